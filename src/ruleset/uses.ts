/** How long what nothing needs is kept, ms: a service that comes and goes, or is scaled to and fro, must not write rules each time. */
const UNUSED_MS = 60_000;

/** Chains and the like that are there while something needs them, and a while longer. */
export class Uses<Key> {
  readonly #counts = new Map<Key, number>();
  /** What nothing needs at present, and since when. */
  readonly #unused = new Map<Key, number | undefined>();

  /** What is there, needed or not. */
  get present(): ReadonlyMap<Key, unknown> {
    return this.#counts;
  }

  isUsed(key: Key): boolean {
    return (this.#counts.get(key) ?? 0) > 0;
  }

  /** One more needs it. True: it was not there. */
  add(key: Key): boolean {
    const count = this.#counts.get(key);
    if (count === 0) this.#unused.delete(key);
    this.#counts.set(key, (count ?? 0) + 1);
    return count === undefined;
  }

  /** One fewer needs it. @param since ms, monotonic, when it was the last; by default from when the clock is next looked at. */
  release(key: Key, since?: number): void {
    const count = this.#counts.get(key) ?? 0;
    if (count === 0) return;
    this.#counts.set(key, count - 1);
    if (count === 1) this.#unused.set(key, since);
  }

  /** Takes out what has not been needed for `forMs`, by default a while, and tells since when; also of what is released meanwhile. */
  *takeOverdue(now: number, forMs = UNUSED_MS): Generator<readonly [key: Key, since: number]> {
    for (const [key, since = now] of this.#unused) {
      this.#unused.set(key, since);
      if (now - since < forMs) continue;
      this.#unused.delete(key);
      this.#counts.delete(key);
      yield [key, since];
    }
  }
}
