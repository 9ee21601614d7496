/**
 * Work that is done one piece at a time: what comes meanwhile is gathered into the next piece; what fails is gathered
 * again and retried with backoff. After a piece comes a pause in proportion to it, so that changes without end do not keep
 * a processor busy; a piece that comes after the pause is begun at once.
 */
import { Backoff } from "../../base/backoff.js";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";

export interface CoalescingWorkerOptions<S> {
  /** Puts a later piece of work into one that has not begun. */
  merge(into: S, from: S): void;
  /** First wait after a failure, ms; doubles from there. */
  readonly firstRetryMs: number;
  readonly maxRetryMs: number;
  /** Pause after a piece of work, in times of what it took, and the longest, ms. */
  readonly pauseFactor: number;
  readonly maxPauseMs: number;
  /** Told of each failure: what, how often in a row, and in how many ms it is retried. */
  onFailure(error: unknown, failures: number, retryMs: number): void;
}

/** `work` is never running twice. It resolves to whether it had anything to do; a rejection is a failure. */
export class CoalescingWorker<S> {
  readonly #work: (scope: S) => Promise<boolean>;
  readonly #options: CoalescingWorkerOptions<S>;
  #pending: S | undefined;
  /** What failed, until the timer brings it back: a change that comes meanwhile neither waits for it nor hastens it. */
  #failed: S | undefined;
  readonly #backoff: Backoff;
  #running: Promise<void> | undefined;
  #retry: { readonly timer: NodeJS.Timeout; readonly begun: Promise<void>; readonly begin: () => void } | undefined;
  /** ms of the performance clock. */
  #pausedUntil = 0;
  readonly #stop = new AbortController();
  #stopped = false;

  constructor(work: (scope: S) => Promise<boolean>, options: CoalescingWorkerOptions<S>) {
    this.#work = work;
    this.#options = options;
    this.#backoff = new Backoff({ firstMs: options.firstRetryMs, longestMs: options.maxRetryMs });
  }

  /** Does it as soon as what is being done is done, and its pause is over. */
  add(scope: S): void {
    if (this.#stopped) return;
    if (this.#pending === undefined) this.#pending = scope;
    else this.#options.merge(this.#pending, scope);
    this.#running ??= this.#run();
  }

  /** Resolves when what failed is retried, or will not be; undefined: nothing has failed. */
  get retry(): Promise<void> | undefined {
    return this.#retry?.begun;
  }

  /** Resolves when nothing runs and nothing waits but for a retry. */
  async idle(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  /** Ends for good; resolves when what is under way is done. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#endRetry();
    this.#pending = this.#failed = undefined;
    this.#stop.abort();
    await this.idle();
  }

  async #run(): Promise<void> {
    // Behind the caller, who must never wait for it.
    await Promise.resolve();
    for (let scope = await this.#next(); scope !== undefined; scope = await this.#next()) {
      const started = performance.now();
      try {
        if (await this.#work(scope)) this.#backoff.reset();
      } catch (error) {
        this.#fail(scope, error);
      }
      const ended = performance.now();
      const { pauseFactor, maxPauseMs } = this.#options;
      this.#pausedUntil = ended + Math.min((ended - started) * pauseFactor, maxPauseMs);
    }
    this.#running = undefined;
  }

  /** What is to be done, after the pause. */
  async #next(): Promise<S | undefined> {
    const pauseMs = this.#pausedUntil - performance.now();
    if (this.#pending !== undefined && pauseMs > 0) {
      // Ended by stop() alone, which leaves nothing pending.
      await sleep(pauseMs, undefined, { signal: this.#stop.signal }).catch(() => undefined);
    }
    const scope = this.#pending;
    this.#pending = undefined;
    return scope;
  }

  #fail(scope: S, error: unknown): void {
    if (this.#stopped) return;
    if (this.#failed === undefined) this.#failed = scope;
    else this.#options.merge(this.#failed, scope);
    const retryMs = this.#backoff.next();
    this.#options.onFailure(error, this.#backoff.failures, retryMs);
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
