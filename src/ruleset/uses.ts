/**
 * How long unused objects are kept, ms. A service that comes and goes, or that is scaled up and down, must not write rules each
 * time.
 */
const UNUSED_MS = 60_000;

/** Tracks objects, such as chains, that exist while something needs them, and some time longer. */
export class Uses<Key> {
  readonly #counts = new Map<Key, number>();
  /** Unused objects, and since when. */
  readonly #unused = new Map<Key, number | undefined>();

  /** All existing objects, used or not. */
  get present(): ReadonlyMap<Key, unknown> {
    return this.#counts;
  }

  isUsed(key: Key): boolean {
    return (this.#counts.get(key) ?? 0) > 0;
  }

  /** Adds a use. Returns true if the object is new. */
  add(key: Key): boolean {
    const count = this.#counts.get(key);
    if (count === 0) this.#unused.delete(key);
    this.#counts.set(key, (count ?? 0) + 1);
    return count === undefined;
  }

  /** Removes a use. @param since when the last one ended, ms, monotonic. Default: the time of the next `takeOverdue`. */
  release(key: Key, since?: number): void {
    const count = this.#counts.get(key) ?? 0;
    if (count === 0) return;
    this.#counts.set(key, count - 1);
    if (count === 1) this.#unused.set(key, since);
  }

  /**
   * Removes objects unused for `forMs`, by default UNUSED_MS, and yields since when. Includes objects released during the
   * iteration.
   */
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
