/** Writes to the kernel over the last minutes, for the plot of the status page. */
import type { ProxierObserver, SyncReport } from "../../proxier/observer.js";

/** All writes of a few seconds. */
export interface WriteBucket {
  /** Unix time of its start, ms. */
  readonly at: number;
  readonly writes: number;
  readonly failed: number;
  /** Longest time from the start of a write to the kernel's answer, ms. */
  readonly longestMs: number;
}

export const BUCKET_MS = 2_000;
/** Ten minutes. */
const KEPT_BUCKETS = 300;

/** Needs the same memory on a busy node as on a quiet one. Buckets without a write are not stored. */
export class WriteHistory implements ProxierObserver {
  #buckets: WriteBucket[] = [];

  /** @param now returns Unix time, ms. Default: the system's clock. */
  constructor(private readonly now: () => number = Date.now) {}

  synced({ ok, ms, work }: SyncReport): void {
    // The kernel already had the desired state, so nothing was written.
    if (ok && work?.transactions === 0) return;
    const at = Math.floor(this.now() / BUCKET_MS) * BUCKET_MS;
    const last = this.#buckets.at(-1);
    const before = last?.at === at ? last : undefined;
    if (before !== undefined) this.#buckets.pop();
    this.#buckets.push({
      at,
      writes: (before?.writes ?? 0) + 1,
      failed: (before?.failed ?? 0) + (ok ? 0 : 1),
      longestMs: Math.max(before?.longestMs ?? 0, ms),
    });
    if (this.#buckets.length > KEPT_BUCKETS) this.#buckets.shift();
  }

  /** Returns the buckets of the last ten minutes, oldest first, from the bucket that contains `since` (Unix time, ms). */
  buckets(since = 0): readonly WriteBucket[] {
    const from = Math.max(since - BUCKET_MS, this.now() - KEPT_BUCKETS * BUCKET_MS);
    return this.#buckets.filter(({ at }) => at > from);
  }
}
