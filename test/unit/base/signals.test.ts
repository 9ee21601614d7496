import { describe, expect, test } from "vitest";

import { missedDuringBoot } from "../../../src/base/signals.js";

// Bit N - 1 is signal N: SIGINT is 2, SIGTERM 15.
const BOTH = "0000000100004602";
const INT = "0000000100000602";
const TERM = "0000000100004600";
const NEITHER = "0000000100000600";

describe("missedDuringBoot", () => {
  test.each([
    ["both were caught: none came", BOTH, BOTH, undefined],
    ["SIGTERM was used up", INT, INT, "SIGTERM"],
    ["SIGTERM was used up between the two looks", BOTH, INT, "SIGTERM"],
    ["SIGINT was used up", TERM, BOTH, "SIGINT"],
    ["SIGINT was used up, and then SIGTERM", TERM, INT, "SIGTERM"],
    ["neither was caught: this Node works otherwise", NEITHER, INT, undefined],
    ["/proc tells nothing", undefined, undefined, undefined],
  ])("%s", (_, atFirst, thereafter, expected) => {
    expect(missedDuringBoot(atFirst, thereafter)).toBe(expected);
  });
});
