/**
 * Work that is done one piece at a time: what comes meanwhile is gathered into the next piece; what fails is gathered
 * again and waits, longer each time.
 */

/** Changes of one family that wait to be reconciled. */
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

export function emptyScope<C>(repeats = Number.POSITIVE_INFINITY): Scope<C> {
  return { all: false, services: new Set(), claims: new Map(), repeats };
}

export function mergeScope<C>(into: Scope<C>, from: Scope<C>): void {
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

/** One lane: `work` is never running twice. It resolves to whether it had anything to do; a rejection is a failure. */
export class Lane<K, C> {
  readonly #work: (key: K, scope: Scope<C>) => Promise<boolean>;
  readonly #options: LaneOptions;
  readonly #pending = new Map<K, Scope<C>>();
  /** What failed, until the timer brings it back: a change that comes meanwhile neither waits for it nor hastens it. */
  readonly #failed = new Map<K, Scope<C>>();
  /** In a row. */
  readonly #failures = new Map<K, number>();
  #running: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(work: (key: K, scope: Scope<C>) => Promise<boolean>, options: LaneOptions) {
    this.#work = work;
    this.#options = options;
  }

  /** Does it as soon as what is being done is done. */
  add(key: K, scope: Scope<C>): void {
    if (this.#stopped) return;
    gather(this.#pending, key, scope);
    this.#start();
  }

  /** Resolves when nothing runs and nothing waits but for a retry. */
  async idle(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  /** Ends for good; resolves when what is under way is done. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#pending.clear();
    this.#failed.clear();
    await this.idle();
  }

  #start(): void {
    if (this.#running !== undefined || this.#stopped) return;
    this.#running = this.#run();
  }

  async #run(): Promise<void> {
    // Behind the caller, who must never wait for it.
    await Promise.resolve();
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      const [key, scope] = next;
      this.#pending.delete(key);
      try {
        if (await this.#work(key, scope)) this.#failures.delete(key);
      } catch (error) {
        this.#fail(key, scope, error);
      }
    }
    this.#running = undefined;
  }

  #next(): [K, Scope<C>] | undefined {
    const next = this.#pending.entries().next();
    return next.done === true || this.#stopped ? undefined : next.value;
  }

  #fail(key: K, scope: Scope<C>, error: unknown): void {
    if (this.#stopped) return;
    gather(this.#failed, key, scope);
    const { firstRetryMs, maxRetryMs } = this.#options;
    const before = this.#failures.get(key) ?? 0;
    const retryMs = Math.min(firstRetryMs * 2 ** before, maxRetryMs);
    this.#failures.set(key, before + 1);
    this.#options.onFailure(error, before + 1, retryMs);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      for (const [late, waiting] of this.#failed) gather(this.#pending, late, waiting);
      this.#failed.clear();
      this.#start();
    }, retryMs);
  }
}

function gather<K, C>(into: Map<K, Scope<C>>, key: K, scope: Scope<C>): void {
  const waiting = into.get(key);
  if (waiting === undefined) into.set(key, scope);
  else mergeScope(waiting, scope);
}
