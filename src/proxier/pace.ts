/**
 * When to write: the first change at once; while changes keep coming, one write per `gapMs`; after a failure again, with
 * backoff; never two at a time.
 */
import { Backoff } from "../base/backoff.js";

export interface PaceOptions {
  /** At least this long between the starts of two writes, ms. */
  readonly gapMs: number;
  /** Longest wait between two attempts after failures, ms. */
  readonly maxRetryMs: number;
  /** Milliseconds, monotonic. */
  now(): number;
}

/** First wait after a failure, ms; doubles from there. */
const FIRST_RETRY_MS = 100;

/** What a write says of itself. */
export interface WriteOutcome {
  /** False: try again later. */
  readonly ok: boolean;
  /** Write again after this many ms, although nothing changed. */
  readonly againMs?: number;
}

export class Pace {
  readonly #write: () => Promise<WriteOutcome>;
  readonly #options: PaceOptions;
  #timer: NodeJS.Timeout | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  #lastStart = Number.NEGATIVE_INFINITY;
  #running: Promise<void> | undefined;
  readonly #backoff: Backoff;
  #stopped = false;

  constructor(write: () => Promise<WriteOutcome>, options: PaceOptions) {
    this.#write = write;
    this.#options = options;
    this.#backoff = new Backoff({ firstMs: FIRST_RETRY_MS, longestMs: options.maxRetryMs });
  }

  /** Something changed: write as soon as the pace allows. */
  request(): void {
    // After a failure the next attempt waits its turn, but a change may be the cure: it is tried at the usual pace.
    this.requestIn(0);
  }

  /** Write in so many ms, if nothing else asks for it before. */
  requestIn(ms: number): void {
    const now = this.#options.now();
    this.#schedule(Math.max(now + ms, this.#lastStart + this.#options.gapMs));
  }

  /** Ends for good; resolves when a write that is under way is done. */
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
    const wait = Math.max(0, this.#dueAt - this.#options.now());
    this.#timer = setTimeout(() => {
      this.#running = this.#run();
    }, wait);
  }

  async #run(): Promise<void> {
    this.#dueAt = Number.POSITIVE_INFINITY;
    this.#lastStart = this.#options.now();
    const outcome = await this.#write();
    this.#running = undefined;
    const now = this.#options.now();
    if (outcome.ok) this.#backoff.reset();
    else this.#schedule(now + this.#backoff.next());
    if (outcome.againMs !== undefined) this.#schedule(now + outcome.againMs);
    if (!this.#stopped && this.#dueAt !== Number.POSITIVE_INFINITY) this.#arm();
  }
}
