/** How long what nothing needs is kept, ms: a service that comes and goes, or is scaled to and fro, must not write rules each time. */
const UNUSED_MS = 60_000;

/** Chains and the like that nothing needs at present, and since when. */
export class Unused<Key> {
  readonly #since = new Map<Key, number | undefined>();

  /** @param since ms, monotonic; by default from when the clock is next looked at. */
  add(key: Key, since?: number): void {
    if (!this.#since.has(key)) this.#since.set(key, since);
  }

  /** It is needed again. */
  delete(key: Key): void {
    this.#since.delete(key);
  }

  /** Takes out what has not been needed for `forMs`, by default a while, and tells since when; also of what is added meanwhile. */
  *takeOverdue(now: number, forMs = UNUSED_MS): Generator<readonly [key: Key, since: number]> {
    for (const [key, since = now] of this.#since) {
      this.#since.set(key, since);
      if (now - since < forMs) continue;
      this.#since.delete(key);
      yield [key, since];
    }
  }
}
