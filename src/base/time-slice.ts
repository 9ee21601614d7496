/** Long work in pieces, so that the event loop comes to everything else in between. */

/** Work between two yields, ms: two such pieces may fall into one turn of the event loop, and a collection of garbage on top. */
const SLICE_MS = 4;

/** Resolves after timers, sockets and signals have had their turn. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A share of the main thread's time: work looks at `spent` now and then, and yields when it is. */
export class TimeSlice {
  readonly #lengthMs: number;
  #began = performance.now();

  /** @param lengthMs default 4. */
  constructor(lengthMs = SLICE_MS) {
    this.#lengthMs = lengthMs;
  }

  /** To be called when work goes on after a wait. */
  begin(): void {
    this.#began = performance.now();
  }

  get spent(): boolean {
    return performance.now() - this.#began >= this.#lengthMs;
  }

  /** Yields to the event loop, and begins anew. */
  async yield(): Promise<void> {
    await yieldToEventLoop();
    this.begin();
  }
}

/** Work for many clients, piece by piece in the order of their requests: however many ask, the event loop is held for one time slice. */
export class TakingTurns {
  readonly #slice = new TimeSlice();
  #last: Promise<unknown> = Promise.resolve();

  /** Runs after all that asked before. Settles as `piece` does. */
  run<T>(piece: () => Promise<T> | T): Promise<T> {
    const result = this.#last.then(piece);
    this.#last = this.#paused(result);
    return result;
  }

  async #paused(piece: Promise<unknown>): Promise<void> {
    await piece.catch(() => undefined);
    if (this.#slice.spent) await this.#slice.yield();
  }
}

/** Records handled between two turns of the event loop: well below 20 ms even on a slow core. */
const SLICE = 8_192;

/**
 * Does `work` on the records from 0 to `count`, some at a time. A loop that waits in its midst is slow: V8 optimizes it only to
 * throw that away at its first wait.
 */
export async function inSlices(count: number, work: (from: number, to: number) => void): Promise<void> {
  for (let from = 0; from < count; from += SLICE) {
    if (from > 0) await yieldToEventLoop();
    work(from, Math.min(from + SLICE, count));
  }
}

/** Names that are put in order in one piece: a ms or two. */
const SORTED = 2_048;

/** The names in the order of their code units; the array is not to be used any more. */
export async function sortedInSlices(names: string[]): Promise<string[]> {
  let runs: string[][] = [];
  for (let from = 0; from < names.length; from += SORTED) {
    runs.push(names.slice(from, from + SORTED).sort());
    await yieldToEventLoop();
  }
  while (runs.length > 1) {
    const merged: string[][] = [];
    for (let i = 0; i < runs.length; i += 2)
      merged.push(i + 1 < runs.length ? await merge(runs[i], runs[i + 1]) : runs[i]);
    runs = merged;
  }
  return runs[0] ?? [];
}

async function merge(a: readonly string[], b: readonly string[]): Promise<string[]> {
  const merged: string[] = [];
  let [i, j] = [0, 0];
  await inSlices(a.length + b.length, (from, to) => {
    for (let at = from; at < to; at++) merged.push(j >= b.length || (i < a.length && a[i] <= b[j]) ? a[i++] : b[j++]);
  });
  return merged;
}

/** Writes each as soon as the one before is through; the next is prepared meanwhile. */
export async function inTurn<T>(all: AsyncIterable<T>, write: (one: T) => Promise<void>): Promise<void> {
  let writing = Promise.resolve();
  try {
    for await (const one of all) {
      await writing;
      writing = write(one);
      // While the next one is prepared its failure has no listener yet; the await that follows gets it.
      writing.catch(() => undefined);
    }
  } finally {
    await writing;
  }
}

/** Work that may wait after each of its pieces, whose length is its own affair: well below a ms. */
export type Pieces<T> = Generator<undefined, T>;

/** Items of a list that are handled between two pauses: some tenths of a ms. */
const PIECE = 512;

/** Does `work` on the items from 0 to `count`, some at a time: a hot loop with a pause in its midst is slow, see `inSlices`. */
export function* inPieces(count: number, work: (from: number, to: number) => void): Pieces<void> {
  for (let from = 0; from < count; from += PIECE) {
    if (from > 0) yield;
    work(from, Math.min(from + PIECE, count));
  }
}

/** All of them with turns of the event loop in between. */
export async function runInSlices<T>(work: Pieces<T>, slice = new TimeSlice()): Promise<T> {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
    if (slice.spent) await slice.yield();
  }
}

/** All of them in one go. */
export function runAtOnce<T>(work: Pieces<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}
