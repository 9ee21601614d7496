/** Generations of the ruleset: 32 bits that wrap around, and never are 0. */

/** True when generation `a` is later than `b`. */
export function isLater(a: number, b: number): boolean {
  return ((a - b) | 0) > 0;
}

/** The one that a transaction makes of it. */
export function nextGeneration(id: number): number {
  return id === 0xffffffff ? 1 : id + 1;
}
