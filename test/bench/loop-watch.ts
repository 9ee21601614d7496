/** How long the event loop of this thread is held. Imports nothing: it is also loaded into programs that are measured. */

/** Longest time between two turns of the event loop, ms. */
export interface Blocked {
  /** By the clock. On a busy machine mostly what others take. */
  readonly wallMs: number;
  /** Of that, or of another one, this thread's own work; garbage collection on it included. */
  readonly ownMs: number;
}

/** CPU time of this thread, ms. */
export function ownMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** Looks every millisecond how long the event loop has had no turn. */
export class LoopWatch {
  readonly #timer: NodeJS.Timeout;
  #wall = 0;
  #own = 0;
  #longestWall = 0;
  #longestOwn = 0;

  constructor() {
    this.#begin();
    this.#timer = setInterval(() => this.#look(), 1);
    this.#timer.unref();
  }

  /** Forgets what was until now. */
  reset(): void {
    this.#begin();
    this.#longestWall = 0;
    this.#longestOwn = 0;
  }

  stop(): Blocked {
    this.#look();
    clearInterval(this.#timer);
    return { wallMs: this.#longestWall, ownMs: this.#longestOwn };
  }

  #begin(): void {
    this.#wall = performance.now();
    this.#own = ownMs();
  }

  #look(): void {
    this.#longestWall = Math.max(this.#longestWall, performance.now() - this.#wall);
    this.#longestOwn = Math.max(this.#longestOwn, ownMs() - this.#own);
    this.#begin();
  }
}

/** The longer of each. */
export function longest(all: readonly Blocked[]): Blocked {
  return {
    wallMs: Math.max(...all.map(({ wallMs }) => wallMs)),
    ownMs: Math.max(...all.map(({ ownMs: own }) => own)),
  };
}
