/**
 * Runs one piece of work at a time. Requests that arrive meanwhile are merged into the next piece. Failed pieces are
 * merged too, and retried with backoff. A pause in proportion to each piece follows it, so that endless changes do not
 * keep a processor busy. A piece that arrives after the pause starts at once.
 */
import { Backoff } from "../../base/backoff.js";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";

interface CoalescingWorkerOptions<S> {
  /** Merges a later piece of work into one that has not started. */
  merge(into: S, from: S): void;
  /** First wait after a failure, ms. It doubles with each failure. */
  readonly firstRetryMs: number;
  readonly maxRetryMs: number;
  /** The pause after a piece of work is its duration times `pauseFactor`, up to `maxPauseMs`. */
  readonly pauseFactor: number;
  readonly maxPauseMs: number;
  /** Called for each failure: the error, the number of failures in a row, and the wait before the retry, ms. */
  onFailure(error: unknown, failures: number, retryMs: number): void;
}

/** Never runs `work` twice at a time. `work` resolves to whether there was anything to do; a rejection is a failure. */
export class CoalescingWorker<S> {
  #pending: S | undefined;
  /** Failed work, until the timer retries it. A change that comes meanwhile neither waits for it nor hastens it. */
  #failed: S | undefined;
  readonly #backoff: Backoff;
  #running: Promise<void> | undefined;
  #retry: { readonly timer: NodeJS.Timeout; readonly begun: Promise<void>; readonly begin: () => void } | undefined;
  /** Time of the performance clock, ms. */
  #pausedUntil = 0;
  readonly #stop = new AbortController();
  #stopped = false;

  constructor(
    private readonly work: (scope: S) => Promise<boolean>,
    private readonly options: CoalescingWorkerOptions<S>,
  ) {
    this.#backoff = new Backoff({ firstMs: options.firstRetryMs, longestMs: options.maxRetryMs });
  }

  /** Does the work after the current piece and its pause. */
  add(scope: S): void {
    if (this.#stopped) return;
    if (this.#pending === undefined) this.#pending = scope;
    else this.options.merge(this.#pending, scope);
    this.#running ??= this.#run();
  }

  /** Resolves when failed work is retried or abandoned. Undefined if nothing has failed. */
  get retry(): Promise<void> | undefined {
    return this.#retry?.begun;
  }

  /** Whether something is running or waiting, except for retries. */
  get busy(): boolean {
    return this.#running !== undefined;
  }

  /** Resolves when nothing is running or waiting, except for retries. */
  async idle(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  /** Stops for good. Resolves when the current piece is complete. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#endRetry();
    this.#pending = this.#failed = undefined;
    this.#stop.abort();
    await this.idle();
  }

  async #run(): Promise<void> {
    // Yield first, because the caller must never wait for the work.
    await Promise.resolve();
    // The last look at what is pending and the end of `#running` share a turn, so that no piece is added between them.
    while (this.#pending !== undefined) {
      const scope = await this.#next();
      if (scope === undefined) break;
      const started = performance.now();
      try {
        if (await this.work(scope)) this.#backoff.reset();
      } catch (error) {
        this.#fail(scope, error);
      }
      const ended = performance.now();
      const { pauseFactor, maxPauseMs } = this.options;
      this.#pausedUntil = ended + Math.min((ended - started) * pauseFactor, maxPauseMs);
    }
    this.#running = undefined;
  }

  /** Returns the pending piece after the pause. Undefined if the worker was stopped meanwhile. */
  async #next(): Promise<S | undefined> {
    const pauseMs = this.#pausedUntil - performance.now();
    if (pauseMs > 0) {
      // Only stop() aborts the pause, and it leaves nothing pending.
      await sleep(pauseMs, undefined, { signal: this.#stop.signal }).catch(() => undefined);
    }
    const scope = this.#pending;
    this.#pending = undefined;
    return scope;
  }

  #fail(scope: S, error: unknown): void {
    if (this.#stopped) return;
    if (this.#failed === undefined) this.#failed = scope;
    else this.options.merge(this.#failed, scope);
    const retryMs = this.#backoff.next();
    this.options.onFailure(error, this.#backoff.failures, retryMs);
    this.#endRetry();
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
    const timer = setTimeout(() => {
      const again = this.#failed;
      this.#failed = undefined;
      if (again !== undefined) this.add(again);
      this.#endRetry();
    }, retryMs);
    this.#retry = { timer, begun, begin };
  }

  #endRetry(): void {
    clearTimeout(this.#retry?.timer);
    this.#retry?.begin();
    this.#retry = undefined;
  }
}
