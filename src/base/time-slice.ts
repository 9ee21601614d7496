/** Splits long work into pieces, so that the event loop handles other work in between. */

/** Work between two yields, ms. Two such pieces, and a garbage collection, may fall into one turn of the event loop. */
const SLICE_MS = 4;

/** Resolves after timers, sockets and signals have had their turn. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A share of the main thread's time. Long work checks `spent` from time to time, and yields if it is true. */
export class TimeSlice {
  #began = performance.now();

  /** @param lengthMs default 4. */
  constructor(private readonly lengthMs = SLICE_MS) {}

  /** Call it when work continues after a wait. */
  begin(): void {
    this.#began = performance.now();
  }

  get spent(): boolean {
    return performance.now() - this.#began >= this.lengthMs;
  }

  /** Yields to the event loop, and starts a new slice. */
  async yield(): Promise<void> {
    await yieldToEventLoop();
    this.begin();
  }
}

/**
 * Runs work for many clients in pieces, in the order of their requests. However many ask, the event loop is held for one
 * time slice.
 */
export class TakingTurns {
  readonly #slice = new TimeSlice();
  #last: Promise<unknown> = Promise.resolve();

  /** Runs after all earlier pieces. Settles as `piece` does. */
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
 * Calls `work` for successive parts of the records from 0 to `count`. The loop is in `work`, because a loop that contains
 * an `await` is slow: V8 optimizes it, and discards the optimized code at its first wait.
 */
export async function inSlices(count: number, work: (from: number, to: number) => void): Promise<void> {
  for (let from = 0; from < count; from += SLICE) {
    if (from > 0) await yieldToEventLoop();
    work(from, Math.min(from + SLICE, count));
  }
}

/** Starts to write each item when the one before is written. The next item is prepared meanwhile. */
export async function inTurn<T>(all: AsyncIterable<T>, write: (one: T) => Promise<void>): Promise<void> {
  let writing = Promise.resolve();
  try {
    for await (const one of all) {
      await writing;
      writing = write(one);
      // While the next item is prepared, this failure has no listener yet. The await that follows receives it.
      writing.catch(() => undefined);
    }
  } finally {
    await writing;
  }
}

/** Work that can pause after each of its pieces. Each should take well below 1 ms. */
export type Pieces<T> = Generator<undefined, T>;

/** List items handled between two pauses: takes some tenths of a ms. */
const PIECE = 512;

/**
 * Calls `work` for successive parts of the items from 0 to `count`. A hot loop that contains a pause is slow: see
 * `inSlices`.
 */
export function* inPieces(count: number, work: (from: number, to: number) => void): Pieces<void> {
  for (let from = 0; from < count; from += PIECE) {
    if (from > 0) yield;
    work(from, Math.min(from + PIECE, count));
  }
}

/** Number of items sorted at once: takes 1 to 2 ms. */
const SORTED = 2_048;

/** Returns the items in this order. Equal items keep theirs. */
export function* sortedInPieces<T>(items: readonly T[], order: (a: T, b: T) => number): Pieces<T[]> {
  let runs: T[][] = [];
  for (let from = 0; from < items.length; from += SORTED) {
    runs.push(items.slice(from, from + SORTED).sort(order));
    yield;
  }
  while (runs.length > 1) {
    const merged: T[][] = [];
    for (let i = 0; i < runs.length; i += 2)
      merged.push(i + 1 < runs.length ? yield* merge(runs[i], runs[i + 1], order) : runs[i]);
    runs = merged;
  }
  return runs[0] ?? [];
}

function* merge<T>(a: readonly T[], b: readonly T[], order: (a: T, b: T) => number): Pieces<T[]> {
  const merged: T[] = [];
  let [i, j] = [0, 0];
  yield* inPieces(a.length + b.length, (from, to) => {
    for (let at = from; at < to; at++)
      merged.push(j >= b.length || (i < a.length && order(a[i], b[j]) <= 0) ? a[i++] : b[j++]);
  });
  return merged;
}

/** Runs all pieces, with turns of the event loop in between. */
export async function runInSlices<T>(work: Pieces<T>, slice = new TimeSlice()): Promise<T> {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
    if (slice.spent) await slice.yield();
  }
}

/** Runs all pieces without a pause. */
export function runAtOnce<T>(work: Pieces<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}
