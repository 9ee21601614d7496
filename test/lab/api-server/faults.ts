/** Answers that a test substitutes for the right ones. */
import type { Resource, Verb } from "./resources.ts";
import type { Pace } from "./wire.ts";

/** Selects requests; an absent field matches any. */
export interface FaultTarget {
  readonly verb?: Verb;
  /** Example: "services". */
  readonly resource?: string;
  /** True: pages after the first. False: first pages. */
  readonly continued?: boolean;
  /** Number of requests. Default: all until `remove`. */
  readonly times?: number;
  /** Number of requests to let through first. Default 0. */
  readonly after?: number;
}

export interface StatusEffect {
  readonly status: number;
  /** Message of the Status object. */
  readonly message?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Body to send instead of a Status object, as a proxy in between would. */
  readonly body?: string | Buffer;
}

export type FaultEffect =
  | StatusEffect
  /** Never answer. */
  | { readonly hang: true }
  /** Break the connection before an answer. */
  | { readonly reset: true }
  /** Send the right answer, but break the connection after this many bytes of the body. */
  | { readonly cutAfter: number }
  /** Send the right answer slowly. */
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

  /** Number of requests that matched. */
  get hits(): number {
    return this.#hits;
  }

  /** Lets later requests get right answers. */
  remove(): void {
    this.#removed = true;
  }

  /** Whether a request matches; counts it. */
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
