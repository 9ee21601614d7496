/** The content of the registers of a rule, as the expressions that made it. */
import type { Expr } from "../kernel/kernel.js";
import { registerWord } from "../kernel/normalize.js";

export type Of<T extends Expr["type"]> = Extract<Expr, { type: T }>;
export type BinaryOperator = "&" | "^" | "|" | "<<" | ">>";

/** The content of a register. `length` is in bytes. */
export type Term = { readonly length: number } & (
  | { readonly kind: "header"; readonly load: Of<"payload"> }
  | { readonly kind: "field"; readonly load: Expr }
  | { readonly kind: "hash"; readonly hash: Of<"hash">; readonly of: Term | undefined }
  | { readonly kind: "constant"; readonly data: Uint8Array }
  | { readonly kind: "binary"; readonly operator: BinaryOperator; readonly of: Term; readonly operand: Uint8Array }
  | { readonly kind: "swapped"; readonly of: Term; readonly op: number }
  | { readonly kind: "map"; readonly key: Term; readonly lookup: Of<"lookup"> }
  | { readonly kind: "key"; readonly parts: readonly Term[] }
  | { readonly kind: "unknown" }
);

const UNKNOWN: Term = { kind: "unknown", length: 0 };
const WORDS = 16;
const words = (bytes: number): number => Math.max(1, Math.ceil(bytes / 4));

export class Registers {
  readonly #terms: (Term | undefined)[] = [];

  set(register: number, term: Term): void {
    const from = registerWord(register);
    const to = from + words(term.length);
    for (let word = 0; word < WORDS; word++) {
      const old = this.#terms[word];
      if (old !== undefined && word < to && word + words(old.length) > from) this.#terms[word] = undefined;
    }
    this.#terms[from] = term;
  }

  /** All neighbours from this register on, before another one. */
  from(register: number, end = Number.MAX_SAFE_INTEGER): Term {
    const first = registerWord(register);
    let word = first;
    while (word < registerWord(end) >>> 0 && this.#terms[word] !== undefined) word += words(this.#terms[word]!.length);
    return this.get(register, (word - first) * 4);
  }

  clear(): void {
    this.#terms.length = 0;
  }

  /** @param length bytes that the reader uses: those of several neighbours, if it is longer than the first one. */
  get(register: number, length = 0): Term {
    const first = registerWord(register);
    const parts: Term[] = [];
    for (let word = first; word === first || word < first + words(length); word += words(parts.at(-1)!.length)) {
      const term = this.#terms[word];
      if (term === undefined || term.kind === "unknown") return UNKNOWN;
      parts.push(term);
    }
    return parts.length === 1 ? parts[0] : { kind: "key", parts, length };
  }
}
