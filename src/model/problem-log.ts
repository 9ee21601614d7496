import type { Problem } from "./service-port-view.js";

/**
 * Reports each problem of an object once. A new version of the object only reports problems that the version before did not
 * have.
 */
export class ProblemLog {
  /** Reasons by field, by kind and object. */
  readonly #said = new Map<string, ReadonlyMap<string, string>>();
  /** Fields that are not served by rule, by kind and object. */
  readonly #refused = new Map<string, ReadonlySet<string>>();

  constructor(private readonly say: (problem: Problem) => void) {}

  /** True if no object has a problem. */
  get silent(): boolean {
    return this.#said.size === 0;
  }

  /** The problems of the current objects. */
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

  /** @param problems all problems of the current version. @param refused fields among them that are not served by rule. */
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
      if (before?.get(field) !== reason) this.say({ kind, object, field, reason });
    }
    this.#said.set(key, problems);
  }
}
