import type { ProxierObserver, SyncReport } from "../proxier/observer.js";

/** Minimum number of operations in a write after which memory is released. */
const LARGE = 10_000;
/** Quiet time after a large write, ms. A write within it counts as part of it. */
const QUIET_MS = 500;

/**
 * Returns memory to the system when things are quiet after a large write or a full comparison with the kernel. V8
 * collects garbage only when much is allocated. Without this, it would keep the memory from reading everything as long
 * as little happens.
 */
export class MemoryRelease implements ProxierObserver {
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();

  /** @param release must not reject, or its rejection must not matter. */
  constructor(private readonly release: () => Promise<void>) {}

  synced({ ok, full, work }: SyncReport): void {
    if (!ok || (!full && (work?.operations ?? 0) < LARGE)) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#running = this.release().catch(() => undefined);
    }, QUIET_MS);
    this.#timer.unref();
  }

  /** Resolves when no release is running or will follow. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#running;
  }
}
