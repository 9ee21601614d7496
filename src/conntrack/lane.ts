/**
 * Work that is done one piece at a time: what comes meanwhile is gathered into the next piece; what fails is gathered
 * again and waits, longer each time.
 */

/** Changes that wait to be reconciled. */
export interface Scope<C> {
  /** Everything, not only what follows. */
  all: boolean;
  /** "namespace/name" of services that changed. */
  readonly services: Set<string>;
  /** By key. */
  readonly claims: Map<string, C>;
  /** How many passes over the same went before, without a change in between. */
  repeats: number;
}

export function newScope<C>(): Scope<C> {
  return { all: false, services: new Set(), claims: new Map(), repeats: 0 };
}

function mergeScope<C>(into: Scope<C>, from: Scope<C>): void {
  into.all ||= from.all;
  for (const service of from.services) into.services.add(service);
  for (const [key, claim] of from.claims) into.claims.set(key, claim);
  into.repeats = Math.min(into.repeats, from.repeats);
}

export interface LaneOptions {
  /** First wait after a failure, ms; doubles from there. */
  readonly firstRetryMs: number;
  readonly maxRetryMs: number;
  /** Told of each failure: what, how often in a row, and in how many ms it is tried again. */
  onFailure(error: unknown, failures: number, retryMs: number): void;
}

/** `work` is never running twice. It resolves to whether it had anything to do; a rejection is a failure. */
export class Lane<C> {
  readonly #work: (scope: Scope<C>) => Promise<boolean>;
  readonly #options: LaneOptions;
  #pending: Scope<C> | undefined;
  /** What failed, until the timer brings it back: a change that comes meanwhile neither waits for it nor hastens it. */
  #failed: Scope<C> | undefined;
  /** In a row. */
  #failures = 0;
  #running: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(work: (scope: Scope<C>) => Promise<boolean>, options: LaneOptions) {
    this.#work = work;
    this.#options = options;
  }

  /** Does it as soon as what is being done is done. */
  add(scope: Scope<C>): void {
    if (this.#stopped) return;
    if (this.#pending === undefined) this.#pending = scope;
    else mergeScope(this.#pending, scope);
    this.#running ??= this.#run();
  }

  /** Resolves when nothing runs and nothing waits but for a retry. */
  async idle(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  /** Ends for good; resolves when what is under way is done. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#pending = this.#failed = undefined;
    await this.idle();
  }

  async #run(): Promise<void> {
    // Behind the caller, who must never wait for it.
    await Promise.resolve();
    for (let scope = this.#pending; scope !== undefined; scope = this.#pending) {
      this.#pending = undefined;
      try {
        if (await this.#work(scope)) this.#failures = 0;
      } catch (error) {
        this.#fail(scope, error);
      }
    }
    this.#running = undefined;
  }

  #fail(scope: Scope<C>, error: unknown): void {
    if (this.#stopped) return;
    if (this.#failed === undefined) this.#failed = scope;
    else mergeScope(this.#failed, scope);
    const { firstRetryMs, maxRetryMs } = this.#options;
    const retryMs = Math.min(firstRetryMs * 2 ** this.#failures, maxRetryMs);
    this.#failures++;
    this.#options.onFailure(error, this.#failures, retryMs);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      const again = this.#failed;
      this.#failed = undefined;
      if (again !== undefined) this.add(again);
    }, retryMs);
  }
}
