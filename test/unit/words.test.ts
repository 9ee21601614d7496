import { expect, test } from "vitest";
import { foreignWords, wordsOf } from "../words.ts";

test.each([
  ["the service is set aside", "quarantine"],
  ["observer.setAside?.(report)", "quarantine"],
  ["changes were not heard; reading them again", "events lost, resync"],
  ["waits later and later", "backoff, retry"],
])("%s: says what to say instead", (line, say) => {
  expect(wordsOf(line)).toEqual([expect.stringContaining(`say: ${say}`)]);
});

test("a metric keeps the name that dashboards know", () => {
  expect(wordsOf("nftproxier_services_set_aside_total")).toEqual([]);
});

test("foreignWords() names file, line and word", () => {
  const [first] = foreignWords(import.meta.dirname, ["words.test.ts"]);
  expect(first).toMatch(/^words\.test\.ts:5: "set aside"; say: quarantine$/);
});
