/**
 * Notes which parts of the observed state may be out of date, and since when. A read settles the invalidations from before it began. Later ones stay,
 * unless the read is known to have seen the change.
 */
import { isLater } from "../kernel/generation.js";

export type InvalidationCause =
  /** Nothing has been read yet. */
  | "first read"
  /** The caller requested a read. */
  | "asked"
  /** The outcome of one of our transactions is unknown. */
  | "outcome"
  /** The ruleset changed between a read and the transaction that was based on it. */
  | "stale"
  /** The kernel refused an operation because an object exists, does not exist, or is in use. */
  | "conflict"
  /** Events reported a change of the table by another process. */
  | "foreign"
  /** Events were lost, or nobody listened for a while. */
  | "lost events"
  /** A periodic check found a difference. */
  | "check";

/** Causes whose repair may wait: the observed state is still good enough to write our changes. */
const MAY_WAIT: ReadonlySet<InvalidationCause> = new Set(["foreign", "lost events", "check", "conflict"]);

interface Invalidation {
  readonly cause: InvalidationCause;
  /** For people. */
  readonly reason: string;
  /** The generation that includes the change. Absent if unknown. */
  readonly generation?: number;
  /** Sets whose elements are invalidated. Absent: all. Chains, rules and set definitions are always invalidated. */
  readonly sets?: Iterable<string>;
}

/** The sum of invalidations, which a read has to settle. */
export interface InvalidationScope {
  /** The reason of the first invalidation. */
  readonly reason: string;
  readonly causes: ReadonlySet<InvalidationCause>;
  /** Sets whose elements have to be read. */
  readonly sets: "all" | ReadonlySet<string>;
  /** Latest generation of a change. Undefined if any change has no known generation. */
  readonly latest: number | undefined;
}

const NOTHING: InvalidationScope = { reason: "", causes: new Set(), sets: new Set(), latest: undefined };

/** Whether the observed state was known to match the kernel, so that another process made any difference. */
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
  /** A full read has seen everything up to this generation. */
  #covered: number | undefined;

  constructor() {
    this.add({ cause: "first read", reason: "first read" });
  }

  /** Returns false if a read has already seen the change. */
  add({ cause, reason, generation, sets }: Invalidation): boolean {
    if (generation !== undefined && this.#covered !== undefined && !isLater(generation, this.#covered)) return false;
    const names = sets === undefined ? "all" : new Set(sets);
    this.#pending = sumOf(this.#pending, { reason, causes: new Set([cause]), sets: names, latest: generation });
    return true;
  }

  get any(): boolean {
    return this.#pending !== NOTHING;
  }

  /** Whether a read is required before anything can be written. */
  get pressing(): boolean {
    return [...this.#pending.causes].some((cause) => !MAY_WAIT.has(cause));
  }

  has(cause: InvalidationCause): boolean {
    return this.#pending.causes.has(cause);
  }

  /** Begins a read of the returned scope. It ends with `settled` or `failed`. */
  begin(): InvalidationScope {
    const scope = this.#pending;
    this.#pending = NOTHING;
    return scope;
  }

  /** The read succeeded. `covered`: it saw everything, including the elements of all sets, up to this generation. */
  settled(covered: number | undefined): void {
    if (covered === undefined) return;
    this.#covered = covered;
    const { latest } = this.#pending;
    if (latest !== undefined && !isLater(latest, covered)) this.#pending = NOTHING;
  }

  /** The read failed: its scope is invalidated again. */
  failed(scope: InvalidationScope): void {
    this.#pending = sumOf(scope, this.#pending);
  }
}
