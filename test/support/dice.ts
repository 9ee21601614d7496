/** Reproducible random numbers (mulberry32): the same seed gives the same run. */
export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** From 0 to below 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  /** 0 to `limit` - 1. */
  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  bytes(count: number): Buffer {
    return Buffer.from(Array.from({ length: count }, () => this.below(256)));
  }

  pick<X>(from: readonly X[]): X {
    return from[this.below(from.length)];
  }

  chance(percent: number): boolean {
    return this.below(100) < percent;
  }

  shuffled<X>(all: readonly X[]): X[] {
    const rest = [...all];
    return Array.from(all, () => rest.splice(this.below(rest.length), 1)[0]);
  }

  /** At most `most` different items. */
  some<X>(from: readonly X[], most: number): X[] {
    const rest = [...from];
    const count = this.below(most + 1);
    return Array.from({ length: Math.min(count, rest.length) }, () => rest.splice(this.below(rest.length), 1)[0]);
  }
}
