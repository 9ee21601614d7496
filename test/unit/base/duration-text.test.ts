import { expect, test } from "vitest";
import { durationText } from "../../../src/base/duration-text.js";

test.each([
  [250, "250ms"],
  [17_000, "17s"],
  [3_600_000, "1h"],
  [7_500_000, "2h5m"],
  [273_600_000, "3d4h"],
])("%i ms is %s", (ms, text) => {
  expect(durationText(ms)).toBe(text);
});
