import { expect, onTestFinished, test, vi } from "vitest";
import { Backoff } from "../../../src/base/backoff.js";

test("next() doubles the wait after each failure up to the maximum; reset() starts again", () => {
  const backoff = new Backoff({ firstMs: 100, longestMs: 1000 });
  expect(Array.from({ length: 6 }, () => backoff.next())).toEqual([100, 200, 400, 800, 1000, 1000]);
  expect(backoff.failures).toBe(6);
  backoff.reset();
  expect([backoff.failures, backoff.next()]).toEqual([0, 100]);
});

test("next() returns the longest wait however many failures there were", () => {
  const backoff = new Backoff({ firstMs: 100, longestMs: 1000 });
  for (let i = 0; i < 2000; i++) backoff.next();
  expect(backoff.next()).toBe(1000);
});

test("with jitter each wait is extended by up to its own length", () => {
  const random = vi.spyOn(Math, "random");
  onTestFinished(() => random.mockRestore());
  const waits = [0, 0.25, 0.999].map((drawn) => {
    random.mockReturnValue(drawn);
    return new Backoff({ firstMs: 100, longestMs: 1000, jitter: true }).next();
  });
  expect(waits).toEqual([100, 125, 199.9]);
});
