/** Options of a Table and of its `apply`, and the result. */
import type { CommitResult, Family } from "../kernel/kernel.js";
import type { InvalidationCause } from "./invalidations.js";

export interface OperationCounts {
  add: number;
  delete: number;
}

export interface ApplyResult extends Pick<CommitResult, "bytes" | "kernelNs" | "encodeNs"> {
  /** 0 if the kernel already held the desired state. More than 1 if new chains (make-before-break) or elements (`pieceElements`) went first. */
  readonly transactions: number;
  /** Each element counts. A replaced element is one delete and one add. */
  readonly operations: Readonly<Record<"table" | "chain" | "rule" | "set" | "object" | "element", OperationCounts>>;
  readonly total: number;
  /** Call `apply()` again after this many ms, for deferred deletions. Absent: nothing to do. */
  readonly applyAgainMs?: number;
  /** Undesired chains that stay, without rules, because the kernel calls them busy. Absent: none. */
  readonly busy?: readonly string[];
  /** The reason why the kernel was read first. Absent: it was not. */
  readonly resynced?: string;
  /** Chains that do not exist, so that insertions wait for them ("ip filter FORWARD"). Absent: none. */
  readonly deferred?: readonly string[];
  /** Changes by other processes that the read found. This apply has reverted them. */
  readonly drift?: Drift;
}

/** Differences between the kernel's table and the observed state. */
export interface Drift {
  readonly causes: ReadonlySet<InvalidationCause>;
  /** At most 20 lines, such as "chain services: rules 1 gone". */
  readonly changes: readonly string[];
  /** Number of differing objects: chains, sets, and those with changed content. At least `changes.length`. */
  readonly total: number;
  /** Whether the whole table was gone. */
  readonly tableDeleted: boolean;
}

/** Options of `Table.apply`. */
export interface ApplyOptions {
  /**
   * False: changes by another process are not reverted yet, unless a read is needed anyway. Our changes are written on top. If the kernel refuses
   * them, apply fails with "stale". Default: true.
   */
  readonly repair?: boolean;
  /**
   * True: deletes the table and writes it from scratch in one transaction. The last resort if the kernel refuses to change the table, apply after
   * apply. If they can be read, element counters and the contents of dynamic sets are kept. Rule counters start at 0. Default: false.
   */
  readonly rebuild?: boolean;
}

/** The object of a refused operation, for people and for attribution. */
export interface FaultyObject {
  readonly kind: "table" | "chain" | "rule" | "set" | "object" | "element";
  /** The refused operation, such as "delete chain". */
  readonly operation?: string;
  readonly chain?: string;
  readonly ruleIndex?: number;
  readonly set?: string;
  /** Name of a named object or a flowtable. */
  readonly object?: string;
  /** Packed key of the element. */
  readonly key?: Uint8Array;
  readonly errno: string;
  readonly text?: string;
  /** For a new rule: the expressions that this kernel may lack, with their modules. */
  readonly hint?: string;
  /** Index of the operation in its transaction. */
  readonly position?: number;
}

export interface Clock {
  /** Milliseconds, monotonic. */
  now(): number;
}

/** Identity and marks of a table, and how it is written. */
export interface TableOptions {
  readonly family: Family;
  readonly name: string;
  readonly comment?: string;
  /**
   * Marks our rules in chains of other programs, in their comments. `insertions` needs it. Use one mark per Table: apply removes
   * undesired rules with this mark from every chain of the namespace, so that none remains after an upgrade. This
   * costs a dump of all tables' rules at each full read.
   */
  readonly ownerMark?: string;
  /** The clock for timeouts and grace periods. Default: `performance.now`. */
  readonly clock?: Clock;
  /** How long objects stay after their last use, because packets in flight may still use them (deferred deletions). Default: 500 ms. */
  readonly gracePeriodMs?: number;
  /** Above this number, new elements that no packet can see go first, this many a transaction (make-before-break.ts). Default: 16,384. */
  readonly pieceElements?: number;
  /**
   * While we run, no other process can change the table, and `flush ruleset` skips it. When we end, the table stays. The next program claims it with
   * a transaction that does nothing else (quirks.ts). If the kernel cannot do this (before Linux 6.9; see `Table.owned()`), the table is an ordinary
   * one. A table that was made with the other choice is replaced in one transaction, and its rule counters start at 0. Default: false.
   */
  readonly own?: boolean;
}
