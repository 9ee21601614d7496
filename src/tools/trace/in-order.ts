/** Passes on numbered values in numerical order, even if they arrive in another order. */
export class InOrder<T> {
  readonly #onValue: (value: T) => void;
  readonly #early = new Map<number, T | undefined>();
  #next = 0;

  constructor(onValue: (value: T) => void) {
    this.#onValue = onValue;
  }

  /**
   * @param number counts from 0; each comes once. @param value undefined if there is none, so that later ones do not
   * wait for it.
   */
  put(number: number, value: T | undefined): void {
    this.#early.set(number, value);
    while (this.#early.has(this.#next)) {
      const next = this.#early.get(this.#next);
      this.#early.delete(this.#next);
      this.#next++;
      if (next !== undefined) this.#onValue(next);
    }
  }
}
