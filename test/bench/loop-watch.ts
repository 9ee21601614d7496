/** Measures how long the event loop of this thread is held. Imports none of our modules: it is also loaded into measured programs. */
import { readFileSync } from "node:fs";

/** Longest time between two turns of the event loop, ms. */
export interface Blocked {
  /** Without the time in which this thread was ready to run but had no core, which depends on other load. */
  readonly heldMs: number;
  /** Wall-clock time. */
  readonly wallMs: number;
  /** This thread's own work in one turn, without waiting, for example for helpers of the garbage collector that have no core. */
  readonly ownMs: number;
}

/** CPU time of this thread, ms. */
export function ownMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** How long this thread has waited for a core so far, ms: schedstat's second number. */
function waitedMs(): number {
  try {
    return Number(readFileSync("/proc/thread-self/schedstat", "utf8").split(" ")[1]) / 1e6;
  } catch {
    return 0; // a kernel without CONFIG_SCHED_INFO
  }
}

/** Checks every millisecond how long the event loop has had no turn. */
export class LoopWatch {
  readonly #timer: NodeJS.Timeout;
  #since = 0;
  #waited = 0;
  #own = 0;
  #longestHeld = 0;
  #longestWall = 0;
  #longestOwn = 0;

  constructor() {
    this.#begin();
    this.#timer = setInterval(() => this.#sample(), 1);
    this.#timer.unref();
  }

  /** Ignores the work of this turn so far. */
  skip(): void {
    this.#begin();
  }

  stop(): Blocked {
    this.#sample();
    clearInterval(this.#timer);
    return { heldMs: this.#longestHeld, wallMs: this.#longestWall, ownMs: this.#longestOwn };
  }

  #begin(): void {
    this.#waited = waitedMs();
    this.#own = ownMs();
    this.#since = performance.now();
  }

  #sample(): void {
    const wall = performance.now() - this.#since;
    this.#longestWall = Math.max(this.#longestWall, wall);
    this.#longestOwn = Math.max(this.#longestOwn, ownMs() - this.#own);
    if (wall > this.#longestHeld) this.#longestHeld = Math.max(this.#longestHeld, wall - (waitedMs() - this.#waited));
    this.#begin();
  }
}

/** The maximum of each field. */
export function longest(all: readonly Blocked[]): Blocked {
  return {
    heldMs: Math.max(...all.map(({ heldMs }) => heldMs)),
    wallMs: Math.max(...all.map(({ wallMs }) => wallMs)),
    ownMs: Math.max(...all.map(({ ownMs: own }) => own)),
  };
}
