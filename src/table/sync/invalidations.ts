/**
 * What of the observed state may be out of date, and since when. A read settles what was invalidated when it began;
 * what comes in while it runs stays, unless the read is known to have seen it.
 */
import { isLater } from "../../netlink/generation.js";

export type InvalidationCause =
  /** Nothing has been read yet. */
  | "first read"
  /** The caller asked for a read. */
  | "asked"
  /** A transaction of ours may be in force or not. */
  | "outcome"
  /** The ruleset changed between a read and the transaction that was built on it. */
  | "stale"
  /** The kernel refused an operation because an object is there, is not there, or is in use. */
  | "conflict"
  /** Events say that another process changed the table. */
  | "foreign"
  /** Events were lost, or nobody listened for a while. */
  | "lost events"
  /** A check in between found a difference. */
  | "check";

/** Causes that may wait for their repair: what was observed still serves to write what changed. */
const MAY_WAIT: ReadonlySet<InvalidationCause> = new Set(["foreign", "lost events", "check", "conflict"]);

export interface Invalidation {
  readonly cause: InvalidationCause;
  /** For people. */
  readonly reason: string;
  /** The ruleset's generation with the change in it; absent: not known. */
  readonly generation?: number;
  /** Sets whose elements are invalidated; absent: all. Chains, rules and the sets themselves always are. */
  readonly sets?: Iterable<string>;
}

/** What invalidations add up to, and a read is to settle. */
export interface InvalidationScope {
  /** Of the first invalidation. */
  readonly reason: string;
  readonly causes: ReadonlySet<InvalidationCause>;
  /** Sets whose elements are to be read; "all" of them otherwise. */
  readonly sets: "all" | ReadonlySet<string>;
  /** Latest generation of a change; undefined when one of them has none. */
  readonly latest: number | undefined;
}

const NOTHING: InvalidationScope = { reason: "", causes: new Set(), sets: new Set(), latest: undefined };

/** Whether what was observed before is a statement about the kernel, so that a difference was made by another process. */
export function believed({ causes }: InvalidationScope): boolean {
  return !causes.has("first read") && !causes.has("outcome");
}

/** `b` came later. */
function sumOf(a: InvalidationScope, b: InvalidationScope): InvalidationScope {
  if (a === NOTHING) return b;
  if (b === NOTHING) return a;
  const isKnown = a.latest !== undefined && b.latest !== undefined;
  return {
    reason: a.reason,
    causes: new Set([...a.causes, ...b.causes]),
    sets: a.sets === "all" || b.sets === "all" ? "all" : new Set([...a.sets, ...b.sets]),
    latest: !isKnown ? undefined : isLater(b.latest, a.latest) ? b.latest : a.latest,
  };
}

export class Invalidations {
  #pending = NOTHING;
  /** Everything up to this generation has been seen by a full read. */
  #covered: number | undefined;

  constructor() {
    this.add({ cause: "first read", reason: "first read" });
  }

  /** False: a read has seen that already. */
  add({ cause, reason, generation, sets }: Invalidation): boolean {
    if (generation !== undefined && this.#covered !== undefined && !isLater(generation, this.#covered)) return false;
    const names = sets === undefined ? "all" : new Set(sets);
    this.#pending = sumOf(this.#pending, { reason, causes: new Set([cause]), sets: names, latest: generation });
    return true;
  }

  get any(): boolean {
    return this.#pending !== NOTHING;
  }

  /** Whether nothing can be written before a read. */
  get pressing(): boolean {
    return [...this.#pending.causes].some((cause) => !MAY_WAIT.has(cause));
  }

  has(cause: InvalidationCause): boolean {
    return this.#pending.causes.has(cause);
  }

  /** A read of this begins. It ends with `settled` or `failed`. */
  begin(): InvalidationScope {
    const scope = this.#pending;
    this.#pending = NOTHING;
    return scope;
  }

  /** The read is through; `covered`: it saw everything, elements of all sets included, up to that generation. */
  settled(covered: number | undefined): void {
    if (covered === undefined) return;
    this.#covered = covered;
    const { latest } = this.#pending;
    if (latest !== undefined && !isLater(latest, covered)) this.#pending = NOTHING;
  }

  /** The read failed: what it was to settle is invalidated again. */
  failed(scope: InvalidationScope): void {
    this.#pending = sumOf(scope, this.#pending);
  }
}
