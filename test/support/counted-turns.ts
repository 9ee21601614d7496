import { vi } from "vitest";

export interface CountedTurns<T> {
  readonly result: T;
  /** Turns of the event loop until the work was done. */
  readonly turns: number;
  /** The highest number of looks at the clock in one turn. A time slice of 4 ms takes five: one at its beginning, and one after each piece. */
  readonly mostLooks: number;
}

/**
 * Runs work that shares the event loop by time slices, and counts how it does so. Meanwhile each look at the clock passes one millisecond, so
 * that a slice ends after a fixed number of pieces of work, whatever the machine does.
 */
export async function countTurns<T>(work: () => Promise<T> | T): Promise<CountedTurns<T>> {
  // Whole milliseconds: with fractions, a difference of four could be rounded to a little less.
  let [now, looks, mostLooks, turns] = [Math.ceil(performance.now()), 0, 0, 0];
  const clock = vi.spyOn(performance, "now").mockImplementation(() => {
    mostLooks = Math.max(mostLooks, ++looks);
    return ++now;
  });
  let isOver = false;
  const turn = (): void => {
    turns++;
    looks = 0;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  try {
    return { result: await work(), turns, mostLooks };
  } finally {
    isOver = true;
    clock.mockRestore();
  }
}
