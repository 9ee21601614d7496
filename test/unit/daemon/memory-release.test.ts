import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { MemoryRelease } from "../../../src/daemon/memory-release.js";
import type { SyncReport } from "../../../src/proxier/observer.js";
import { WRITTEN } from "../proxier/support/sync-report.ts";

const report = (changes: Partial<SyncReport> & { operations?: number }): SyncReport => ({
  ...WRITTEN,
  work: { transactions: 1, operations: changes.operations ?? 0, bytes: 0, kernelMs: 0 },
  ...changes,
});

describe("memory release", () => {
  let released: number;
  let memory: MemoryRelease;
  beforeEach(() => {
    vi.useFakeTimers();
    released = 0;
    memory = new MemoryRelease(async () => {
      released++;
    });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it("happens when changes stop arriving after the first write of both families", async () => {
    memory.synced(report({ full: true }));
    await vi.advanceTimersByTimeAsync(400);
    memory.synced(report({ full: true, family: "ip6" }));
    await vi.advanceTimersByTimeAsync(400);
    expect(released).toBe(0);
    await vi.advanceTimersByTimeAsync(200);
    expect(released).toBe(1);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(released).toBe(1);
  });

  it("happens after a large write, but not after a small or failed one", async () => {
    memory.synced(report({ operations: 20 }));
    memory.synced(report({ full: true, ok: false }));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(released).toBe(0);
    memory.synced(report({ operations: 200_000 }));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(released).toBe(1);
  });

  it("does not start after the program's end, which waits for one in progress", async () => {
    memory.synced(report({ full: true }));
    await memory.close();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(released).toBe(0);

    const slow = Promise.withResolvers<void>();
    const ending = new MemoryRelease(() => slow.promise);
    ending.synced(report({ full: true }));
    await vi.advanceTimersByTimeAsync(600);
    let closed = false;
    const closing = ending.close().then(() => (closed = true));
    await vi.advanceTimersByTimeAsync(10);
    expect(closed).toBe(false);
    slow.reject(new Error("nobody minds"));
    await closing;
  });
});
