import type { Problem } from "./service-port-view.js";

/**
 * Says each problem of an object once: a new version of the object repeats none that the version before had.
 */
export class ProblemLog {
  /** Reasons by field, by kind and object. */
  readonly #said = new Map<string, ReadonlyMap<string, string>>();
  /** Refused fields, by kind and object. */
  readonly #refused = new Map<string, ReadonlySet<string>>();
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
      const refused = this.#refused.get(key);
      for (const [field, reason] of problems) {
        yield { kind, object, field, reason, ...(refused?.has(field) && { refused: true }) };
      }
    }
  }

  /** `problems` are all that the present version has; those of the fields `refused` are there by rule. */
  update(
    kind: string,
    object: string,
    problems: ReadonlyMap<string, string> | undefined,
    refused?: ReadonlySet<string>,
  ): void {
    const none = problems === undefined || problems.size === 0;
    if (none && this.silent) return;
    const key = `${kind} ${object}`;
    if (refused === undefined) this.#refused.delete(key);
    else this.#refused.set(key, refused);
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
