import type { Problem } from "./types.js";

/**
 * Says each problem of an object once: a new version of the object repeats none that the version before had.
 */
export class ProblemLog {
  /** Reasons by field, by kind and object. */
  readonly #said = new Map<string, ReadonlyMap<string, string>>();
  readonly #say: (problem: Problem) => void;

  constructor(say: (problem: Problem) => void) {
    this.#say = say;
  }

  /** No object has a problem as it is. */
  get silent(): boolean {
    return this.#said.size === 0;
  }

  /** Those that objects have as they are. */
  *present(): Iterable<Problem> {
    for (const [key, problems] of this.#said) {
      const space = key.indexOf(" ");
      const [kind, object] = [key.slice(0, space), key.slice(space + 1)];
      for (const [field, reason] of problems) yield { kind, object, field, reason };
    }
  }

  /** `problems` are all that the present version has. */
  update(kind: string, object: string, problems: ReadonlyMap<string, string> | undefined): void {
    const none = problems === undefined || problems.size === 0;
    if (none && this.silent) return;
    const key = `${kind} ${object}`;
    if (none) {
      this.#said.delete(key);
      return;
    }
    const before = this.#said.get(key);
    for (const [field, reason] of problems) {
      if (before?.get(field) !== reason) this.#say({ kind, object, field, reason });
    }
    this.#said.set(key, problems);
  }
}
