import type { ProxierObserver, SyncReport } from "../proxier/observer.js";

/** Operations of a write that leave so much behind that it is worth giving back. */
const LARGE = 10_000;
/** Quiet after a large write, ms: what follows it at once belongs to it. */
const QUIET_MS = 500;

/**
 * Has memory given back to the system once things are quiet after a large write, or a full comparison with the kernel: V8 collects
 * when much is allocated, and so would keep what reading everything has left as long as little happens.
 */
export class MemoryRelease implements ProxierObserver {
  readonly #release: () => Promise<void>;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();

  /** `release` never rejects, or it does not matter. */
  constructor(release: () => Promise<void>) {
    this.#release = release;
  }

  synced({ ok, full, work }: SyncReport): void {
    if (!ok || (!full && (work?.operations ?? 0) < LARGE)) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#running = this.#release().catch(() => undefined);
    }, QUIET_MS);
    this.#timer.unref();
  }

  /** Resolves when nothing is released any more. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#running;
  }
}
