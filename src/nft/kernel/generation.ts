/** Generations of the ruleset: 32-bit numbers that wrap around and are never 0. */

/** Whether generation `a` is later than `b`. */
export function isLater(a: number, b: number): boolean {
  return ((a - b) | 0) > 0;
}

/** Returns the generation after the next transaction. */
export function nextGeneration(id: number): number {
  return id === 0xffffffff ? 1 : id + 1;
}
