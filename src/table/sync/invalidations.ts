/**
 * What of our idea of the kernel's table may be wrong, and since when. A read settles what was in doubt when it began;
 * what comes in while it runs stays, unless the read is known to have seen it.
 */
import { isLater } from "../../kernel/generation.js";

export type DoubtCause =
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
  /** Events say that somebody else changed the table. */
  | "foreign"
  /** Events were lost, or nobody listened for a while. */
  | "lost events"
  /** A check in between found a difference. */
  | "check";

/** Causes that may wait for their repair: what is thought still serves to write what changed. */
const MAY_WAIT: ReadonlySet<DoubtCause> = new Set(["foreign", "lost events", "check", "conflict"]);

export interface Doubt {
  readonly cause: DoubtCause;
  /** For people. */
  readonly reason: string;
  /** The ruleset's generation with the change in it; absent: not known. */
  readonly generation?: number;
  /** Sets whose elements are in doubt; absent: all. Chains, rules and the sets themselves always are. */
  readonly sets?: Iterable<string>;
}

/** Doubts that a read begins with. */
export interface DoubtScope {
  /** Of the first doubt. */
  readonly reason: string;
  readonly causes: ReadonlySet<DoubtCause>;
  /** Sets whose elements are to be read; "all" of them otherwise. */
  readonly sets: "all" | ReadonlySet<string>;
  /** What was thought before is a statement about the kernel, so that a difference was made by somebody else. */
  readonly believed: boolean;
}

class Sum {
  reason: string | undefined;
  readonly causes = new Set<DoubtCause>();
  everything = false;
  readonly sets = new Set<string>();
  /** Latest generation of a change; undefined when one of them has none. */
  latest: number | "unknown" | undefined;

  add(doubt: Doubt): void {
    this.reason ??= doubt.reason;
    this.causes.add(doubt.cause);
    if (doubt.sets === undefined) this.everything = true;
    else for (const set of doubt.sets) this.sets.add(set);
    const { generation } = doubt;
    if (generation === undefined) this.latest = "unknown";
    else if (this.latest === undefined || (this.latest !== "unknown" && isLater(generation, this.latest)))
      this.latest = generation;
  }

  get empty(): boolean {
    return this.reason === undefined;
  }
}

export class Doubts {
  #pending = new Sum();
  #reading: Sum | undefined;
  /** Everything up to this generation has been seen by a full read. */
  #covered: number | undefined;

  constructor() {
    this.add({ cause: "first read", reason: "first read" });
  }

  /** False: a read has seen that already. */
  add(doubt: Doubt): boolean {
    if (doubt.generation !== undefined && this.#covered !== undefined && !isLater(doubt.generation, this.#covered))
      return false;
    this.#pending.add(doubt);
    return true;
  }

  /** Whether anything is in doubt. */
  get any(): boolean {
    return !this.#pending.empty;
  }

  /** Whether something is in doubt that nothing can be written before. */
  get pressing(): boolean {
    return [...this.#pending.causes].some((cause) => !MAY_WAIT.has(cause));
  }

  has(cause: DoubtCause): boolean {
    return this.#pending.causes.has(cause);
  }

  /** A read begins. It ends with `settled` or `failed`. */
  begin(): DoubtScope {
    const reading = this.#pending;
    this.#pending = new Sum();
    this.#reading = reading;
    return {
      reason: reading.reason ?? "",
      causes: reading.causes,
      sets: reading.everything ? "all" : reading.sets,
      believed: !reading.causes.has("first read") && !reading.causes.has("outcome"),
    };
  }

  /** The read is through; `covered`: it saw everything, elements of all sets included, up to that generation. */
  settled(covered: number | undefined): void {
    this.#reading = undefined;
    if (covered === undefined) return;
    this.#covered = covered;
    const { latest } = this.#pending;
    if (typeof latest === "number" && !isLater(latest, covered)) this.#pending = new Sum();
  }

  /** The read failed: its doubts are back. */
  failed(): void {
    const reading = this.#reading;
    this.#reading = undefined;
    if (reading === undefined || reading.reason === undefined) return;
    const since = this.#pending;
    this.#pending = reading;
    for (const cause of since.causes) reading.causes.add(cause);
    for (const set of since.sets) reading.sets.add(set);
    reading.everything ||= since.everything;
    if (since.latest !== undefined) reading.latest = laterOf(reading.latest, since.latest);
  }
}

function laterOf(a: Sum["latest"], b: number | "unknown"): number | "unknown" {
  if (a === "unknown" || b === "unknown") return "unknown";
  return a === undefined || isLater(b, a) ? b : a;
}
