/** Up to this many values, searching a list is faster than a set. */
const FEW = 16;

/** Collects values with their protocols. Each lookup takes constant time, however many ports an object has. */
export class KnownValues {
  readonly #few: unknown[] = [];
  readonly #many = new Map<string, Set<unknown>>();

  /** Returns false if the value was already known for this protocol. */
  add(protocol: string, value: string | number): boolean {
    if (this.has(protocol, value)) return false;
    if (this.#few.length < 2 * FEW) this.#few.push(protocol, value);
    else {
      let values = this.#many.get(protocol);
      if (values === undefined) this.#many.set(protocol, (values = new Set()));
      values.add(value);
    }
    return true;
  }

  has(protocol: string, value: string | number): boolean {
    const few = this.#few;
    for (let i = 0; i < few.length; i += 2) if (few[i + 1] === value && few[i] === protocol) return true;
    return this.#many.get(protocol)?.has(value) ?? false;
  }
}
