/** How often something is tried, and how often that is logged; with a clock controlled by the test. */
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { RateLimit } from "../../../../src/objects/kubernetes/rate-limit.js";
import { backoffOf, pause, TIMING } from "../../../../src/objects/kubernetes/timing.js";
import { FailureLog } from "../../../../src/objects/kubernetes/failure-log.js";
import { isAtLeast, keptIn, type LogLine } from "../../../support/log.ts";

describe("Backoff", () => {
  test("doubles from 0.8 s to 30 s, each extended by up to its own length, like client-go's reflector", () => {
    for (const drawn of [0, 0.5, 0.999]) {
      const random = vi.spyOn(Math, "random").mockReturnValue(drawn);
      onTestFinished(() => random.mockRestore());
      const backoff = backoffOf(TIMING);
      const bases = [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000, 30000];
      expect(bases.map(() => backoff.next())).toEqual(bases.map((base) => base * (1 + drawn)));
      backoff.reset();
      expect(backoff.failures).toBe(0);
      expect(backoff.next()).toBe(800 * (1 + drawn));
    }
  });
});

test("a pause ends with its signal, and at once if that was already aborted", async () => {
  const abort = new AbortController();
  const sleeping = pause(60_000, abort.signal);
  abort.abort();
  await sleeping;
  await pause(60_000, abort.signal);
});

describe("RateLimit", () => {
  test("allows a burst at once, then one request after another", () => {
    let now = 0;
    const limit = new RateLimit(10, 3, () => now);
    expect([limit.reserve(), limit.reserve(), limit.reserve()]).toEqual([0, 0, 0]);
    expect(limit.reserve()).toBeCloseTo(100);
    expect(limit.reserve()).toBeCloseTo(200);
    now = 10_000;
    expect([limit.reserve(), limit.reserve(), limit.reserve()]).toEqual([0, 0, 0]);
    expect(limit.reserve()).toBeCloseTo(100);
  });

  test("0 means client-go's default, and less means no limit", () => {
    const now = () => 0;
    const usual = new RateLimit(0, 0, now);
    expect(Array.from({ length: 11 }, () => usual.reserve()).filter((wait) => wait === 0)).toHaveLength(10);
    expect(usual.reserve()).toBeCloseTo(400);
    const none = new RateLimit(-1, 0, now);
    expect(Array.from({ length: 100 }, () => none.reserve()).every((wait) => wait === 0)).toBe(true);
  });
});

describe("FailureLog", () => {
  function begin() {
    const lines: LogLine[] = [];
    let now = 0;
    const log = keptIn(lines);
    const failures = new FailureLog(log, 300_000, () => now);
    const shown = () =>
      lines.filter((line) => isAtLeast(line, "info")).map(({ msg, seconds, reason }) => [msg, reason, seconds]);
    return { failures, shown, at: (ms: number) => (now = ms) };
  }

  test("an hour of failures every 30 s has one line at the start, one every five minutes, and one at the end", () => {
    const { failures, shown, at } = begin();
    for (let ms = 0; ms <= 3_600_000; ms += 30_000) {
      at(ms);
      failures.failed("connection", "away", { reason: "refused" });
    }
    expect(shown()).toHaveLength(13);
    expect(shown()[1]).toEqual(["away", "refused", 300]);
    failures.recovered("connection", "back", {});
    expect(shown().at(-1)).toEqual(["back", undefined, 3600]);
    failures.recovered("connection", "back", {});
    expect(shown()).toHaveLength(14);
  });

  test("another reason is logged, but alternating reasons are not logged every time", () => {
    const { failures, shown, at } = begin();
    for (let ms = 0; ms < 120_000; ms += 1_000) {
      at(ms);
      failures.failed("connection", "away", { reason: ms % 2_000 === 0 ? "refused" : "reset" });
    }
    expect(shown().length).toBeGreaterThan(1);
    expect(shown().length).toBeLessThan(6);
  });

  test("a failure that ends before it was logged leaves no line", () => {
    const { failures, shown } = begin();
    failures.failed("connection", "away", { reason: "reset" }, true);
    failures.recovered("connection", "back", {});
    expect(shown()).toEqual([]);
  });
});
