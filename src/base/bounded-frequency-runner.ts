/**
 * Decides when to write: at once for the first change, then once per `gapMs` while changes keep coming, and with
 * backoff after a failure. Writes never overlap.
 */
import { Backoff } from "./backoff.js";

interface RunnerOptions {
  /** Minimum time between the starts of two writes, ms. */
  readonly gapMs: number;
  /** Longest wait between two attempts after failures, ms. */
  readonly maxRetryMs: number;
  /** Monotonic clock, ms. Default: performance.now. */
  readonly now?: () => number;
}

/** First wait after a failure, ms. It doubles with each failure. */
const FIRST_RETRY_MS = 100;

/** The result of a write. */
export interface WriteOutcome {
  /** False: retry later. */
  readonly ok: boolean;
  /** Write again after this many ms, even if nothing has changed. */
  readonly againMs?: number;
}

export class BoundedFrequencyRunner {
  readonly #now: () => number;
  #timer: NodeJS.Timeout | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  #lastStart = Number.NEGATIVE_INFINITY;
  #running: Promise<void> | undefined;
  readonly #backoff: Backoff;
  #stopped = false;

  constructor(
    private readonly write: () => Promise<WriteOutcome>,
    private readonly options: RunnerOptions,
  ) {
    this.#now = options.now ?? (() => performance.now());
    this.#backoff = new Backoff({ firstMs: FIRST_RETRY_MS, longestMs: options.maxRetryMs });
  }

  /**
   * Writes after this many ms, unless a write is requested earlier; 0: as soon as the limit allows. Also after a failure:
   * a retry waits for its backoff, but a change may remove the cause.
   */
  requestIn(ms: number): void {
    const now = this.#now();
    this.#schedule(Math.max(now + ms, this.#lastStart + this.options.gapMs));
  }

  /** Stops for good. Resolves when the current write is complete. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  #schedule(at: number): void {
    if (this.#stopped || at >= this.#dueAt) return;
    this.#dueAt = at;
    if (this.#running !== undefined) return;
    this.#arm();
  }

  #arm(): void {
    clearTimeout(this.#timer);
    const wait = Math.max(0, this.#dueAt - this.#now());
    this.#timer = setTimeout(() => {
      this.#running = this.#run();
    }, wait);
  }

  async #run(): Promise<void> {
    this.#dueAt = Number.POSITIVE_INFINITY;
    this.#lastStart = this.#now();
    const outcome = await this.write();
    this.#running = undefined;
    const now = this.#now();
    if (outcome.ok) this.#backoff.reset();
    else this.#schedule(now + this.#backoff.next());
    if (outcome.againMs !== undefined) this.#schedule(now + outcome.againMs);
    if (!this.#stopped && this.#dueAt !== Number.POSITIVE_INFINITY) this.#arm();
  }
}
