import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { counted } from "../../../src/base/counted.js";

test.each([
  [0, "0 entries"],
  [1, "1 entry"],
  [2, "2 entries"],
])("%d: %s", (count, text) => {
  expect(counted(count, "entry", "entries")).toBe(text);
});

test("most words form their plural with s", () => {
  expect([counted(1, "packet"), counted(10, "packet")]).toEqual(["1 packet", "10 packets"]);
});

/** Parts of lines in which the number is never 1, or is a name. */
const OTHERS = [
  "RangeError",
  "toLocaleString(",
  "rateText(total)",
  "quota ",
  " burst ",
  "SINCE.",
  "${name} ",
  "MAX_",
  "counts.serving",
  "${share} entries",
  "two ${protocol}",
  "records of ${stride} bytes",
  // nft's own words.
  "packets ${packets} bytes ${bytes}",
  " used ${consumed} bytes",
  "${spec.bytes} bytes",
  "${toEndpoint} bytes",
  "${segment.length} bytes",
  "${mtu} bytes",
  "counted(more, ",
  "=== 1 ? ",
  '${name("nodePortAddresses")}',
];

test("messages with a count use the plural", () => {
  const source = join(import.meta.dirname, "../../../src");
  const nouns =
    "packets|services|endpoints|connections|entries|elements|bytes|fields|warnings|errors|times|slots|sets|chains|networks|VIPs|ports|writes|problems";
  const written = new RegExp(`\\$\\{(?![A-Z_]+\\})[^{}\`]*\\} (?:more |new )?(?:${nouns})\\b`);
  const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  const found = files.flatMap((name) =>
    readFileSync(join(source, name), "utf8")
      .split("\n")
      .filter((line) => written.test(line) && !OTHERS.some((other) => line.includes(other)))
      .map((line) => `${name}: ${line.trim()}`),
  );
  expect(found).toEqual([]);
});
