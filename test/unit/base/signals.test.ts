import { describe, expect, test } from "vitest";

import { missedDuringBoot } from "../../../src/base/signals.js";

/** /proc/self/status, as far as it matters; bit N - 1 is signal N: SIGINT is 2, SIGTERM 15. */
const status = (caught: string): string => `Name:\tnode\nSigIgn:\t0000000001001000\nSigCgt:\t${caught}\nCapInh:\t0\n`;

describe("missedDuringBoot", () => {
  test.each([
    ["both are caught: none came", "0000000100004602", undefined],
    ["SIGTERM was used up", "0000000100000602", "SIGTERM"],
    ["SIGINT was used up", "0000000100004600", "SIGINT"],
    ["neither is caught: this Node works otherwise", "0000000100000600", undefined],
  ])("%s", (_, caught, expected) => {
    expect(missedDuringBoot(status(caught))).toBe(expected);
  });

  test("nothing is concluded where /proc tells nothing", () => {
    expect(missedDuringBoot("")).toBeUndefined();
  });
});
