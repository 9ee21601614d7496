import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { BoundedFrequencyRunner, type WriteOutcome } from "../../../src/base/bounded-frequency-runner.js";

describe("BoundedFrequencyRunner", () => {
  let writes: number[];
  let outcome: (index: number) => WriteOutcome;
  let duration: number;
  let now: () => number;

  beforeEach(() => {
    vi.useFakeTimers();
    const start = Date.now();
    now = () => Date.now() - start;
    writes = [];
    outcome = () => ({ ok: true });
    duration = 1;
  });
  afterEach(() => vi.useRealTimers());

  function runner(): BoundedFrequencyRunner {
    const write = async (): Promise<WriteOutcome> => {
      writes.push(now());
      const result = outcome(writes.length - 1);
      await new Promise((resolve) => setTimeout(resolve, duration));
      return result;
    };
    return new BoundedFrequencyRunner(write, { gapMs: 20, maxRetryMs: 1000, now });
  }

  it("writes the first change at once", async () => {
    runner().requestIn(0);
    await vi.advanceTimersByTimeAsync(1);
    expect(writes).toEqual([0]);
  });

  it("writes a stream of changes once per gap, including the last one", async () => {
    const subject = runner();
    for (let i = 0; i < 50; i++) {
      subject.requestIn(0);
      await vi.advanceTimersByTimeAsync(2);
    }
    await vi.advanceTimersByTimeAsync(100);
    expect(writes).toEqual([0, 20, 40, 60, 80, 100]);
  });

  it("never writes twice at a time, and writes again for changes that arrive meanwhile", async () => {
    duration = 70;
    const subject = runner();
    subject.requestIn(0);
    await vi.advanceTimersByTimeAsync(30);
    subject.requestIn(0);
    await vi.advanceTimersByTimeAsync(30);
    expect(writes).toEqual([0]);
    await vi.advanceTimersByTimeAsync(100);
    // A timer of 0 ms takes 1 ms.
    expect(writes).toEqual([0, 71]);
  });

  it("retries a failure with backoff, up to the limit, and forgets it after a success", async () => {
    outcome = (index) => ({ ok: index === 5 || index > 6 });
    const subject = runner();
    subject.requestIn(0);
    await vi.advanceTimersByTimeAsync(10_000);
    const waits = (): number[] => writes.slice(1).map((at, index) => at - writes[index] - duration);
    expect(waits()).toEqual([100, 200, 400, 800, 1000]);
    subject.requestIn(0);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(waits().at(-1)).toBe(100);
    expect(writes).toHaveLength(8);
  });

  it("tries a new change at the usual pace even while it waits to retry", async () => {
    outcome = (index) => ({ ok: index >= 1 });
    const subject = runner();
    subject.requestIn(0);
    await vi.advanceTimersByTimeAsync(50);
    subject.requestIn(0);
    await vi.advanceTimersByTimeAsync(1);
    expect(writes).toEqual([0, 50]);
  });

  it("writes again when a write asks for it", async () => {
    outcome = (index) => (index === 0 ? { ok: true, againMs: 500 } : { ok: true });
    runner().requestIn(0);
    await vi.advanceTimersByTimeAsync(2000);
    expect(writes).toEqual([0, 501]);
  });

  it("stops: it waits for the write in progress, and no longer writes", async () => {
    duration = 30;
    const subject = runner();
    subject.requestIn(0);
    await vi.advanceTimersByTimeAsync(10);
    subject.requestIn(0);
    let stopped = false;
    const stop = subject.stop().then(() => (stopped = true));
    await vi.advanceTimersByTimeAsync(10);
    expect(stopped).toBe(false);
    await vi.advanceTimersByTimeAsync(100);
    await stop;
    const idle = runner();
    await idle.stop();
    for (const one of [subject, idle]) one.requestIn(0);
    await vi.advanceTimersByTimeAsync(1000);
    expect(writes).toEqual([0]);
  });
});
