import { expect, test } from "vitest";

import { chiSquaredTail, evenSpreadProbability } from "./support/chi-squared.ts";

// Critical values from any statistics table.
test.for([
  [3.841459, 1, 0.05],
  [5.991465, 2, 0.05],
  [16.918978, 9, 0.05],
  [6.634897, 1, 0.01],
  [10.827566, 1, 0.001],
  [23.92813, 1, 1e-6],
  [27.631021, 2, 1e-6],
  [124.342113, 100, 0.05],
  [2.705543, 1, 0.1],
  [1.063623, 4, 0.9],
] as const)("P(X ≥ %f; %i degrees) = %f", ([statistic, degrees, expected]) => {
  expect(chiSquaredTail(statistic, degrees) / expected).toBeCloseTo(1, 4);
});

test("an even spread is likely, and a lopsided one is not", () => {
  expect(evenSpreadProbability([400, 400, 400])).toBe(1);
  expect(evenSpreadProbability([91, 108, 101])).toBeGreaterThan(0.1);
  expect(evenSpreadProbability([500, 400, 300])).toBeLessThan(1e-6);
  expect(evenSpreadProbability([600, 600, 0])).toBeLessThan(1e-6);
  expect(() => evenSpreadProbability([5])).toThrow(RangeError);
});
