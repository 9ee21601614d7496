/** Answers that a test puts in the place of the right ones. */
import type { Resource, Verb } from "./resources.ts";
import type { Pace } from "./wire.ts";

/** Which requests; an absent field: any. */
export interface FaultTarget {
  readonly verb?: Verb;
  /** "services". */
  readonly resource?: string;
  /** Pages after the first one: true; the first ones: false. */
  readonly continued?: boolean;
  /** How many requests; by default all until `remove`. */
  readonly times?: number;
  /** Requests let through first. Default 0. */
  readonly after?: number;
}

export interface StatusEffect {
  readonly status: number;
  /** Of the Status object. */
  readonly message?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Instead of a Status object: what a proxy in between sends. */
  readonly body?: string | Buffer;
}

export type FaultEffect =
  | StatusEffect
  /** No answer at all. */
  | { readonly hang: true }
  /** The connection is broken off before an answer. */
  | { readonly reset: true }
  /** The right answer, broken off after so many bytes of the body. */
  | { readonly cutAfter: number }
  /** The right answer, slowly. */
  | { readonly pace: Pace };

export class Fault {
  readonly effect: FaultEffect;
  readonly #target: FaultTarget;
  #skipped = 0;
  #hits = 0;
  #removed = false;

  constructor(target: FaultTarget, effect: FaultEffect) {
    this.#target = target;
    this.effect = effect;
  }

  /** Requests that it has met. */
  get hits(): number {
    return this.#hits;
  }

  /** Later requests get right answers. */
  remove(): void {
    this.#removed = true;
  }

  /** Whether a request is met; counts it. */
  meets(verb: Verb, resource: Resource, query: URLSearchParams): boolean {
    const target = this.#target;
    if (this.#removed || this.#hits >= (target.times ?? Infinity)) return false;
    if (target.verb !== undefined && target.verb !== verb) return false;
    if (target.resource !== undefined && target.resource !== resource.plural) return false;
    if (target.continued !== undefined && target.continued !== ((query.get("continue") ?? "") !== "")) return false;
    if (this.#skipped < (target.after ?? 0)) {
      this.#skipped++;
      return false;
    }
    this.#hits++;
    return true;
  }
}
