/**
 * The declarative Table's vocabulary: rules as typed data (text is only a rendering), chains, sets and maps.
 *
 * A value that a packet carries is a `Field`; a `Statement` is one match or one action; a rule is statements
 * in order. `statements.ts` turns statements into kernel expressions, `print.ts` into nft's own text.
 */
import type { RecordOf, ValueOf, VariantOf } from "../../base/shape.js";
import type { BaseChain, CommitResult, Family, TableRef, Verdict } from "../../netlink/kernel.js";
import type { InvalidationCause } from "../sync/invalidations.js";
import type {
  ACTIONS,
  addressTypeName,
  counters,
  ctDirection,
  ctStateName,
  direction,
  field,
  fieldType,
  MATCHES,
  portRange,
  SET,
  tcpFlagName,
} from "./vocabulary.js";

export { LIMIT_SECONDS } from "./vocabulary.js";

/** What a lookup key is made of. */
export type Field = ValueOf<typeof field>;
export type HashField = Extract<Field, { readonly field: "jhash" }>;
/** A port or an inclusive range of ports. */
export type PortRange = ValueOf<typeof portRange>;
/** Of a packet's two ends. */
export type Direction = ValueOf<typeof direction>;
export type TcpFlagName = ValueOf<typeof tcpFlagName>;
export type CtStateName = ValueOf<typeof ctStateName>;
/** Direction of a packet, or of one of the two tuples, of a connection. */
export type CtDirectionName = ValueOf<typeof ctDirection>;
export type AddressTypeName = ValueOf<typeof addressTypeName>;

/** Conditions: the rule goes on to its next statement only when they hold. */
export type Match = VariantOf<"match", typeof MATCHES>;

/** What a rule does. Verdicts: accept, drop, return, continue, jump, goto. */
export type Action = VariantOf<"action", typeof ACTIONS> | { readonly action: "verdict"; readonly verdict: Verdict };

export type Statement = Match | Action;

export interface Rule {
  readonly statements: readonly Statement[];
  /** Shown by nft; at most 128 bytes. */
  readonly comment?: string;
}

export interface ChainSpec {
  readonly chain: string;
  readonly base?: BaseChain;
  readonly rules: readonly Rule[];
  readonly comment?: string;
}

export type FieldType = ValueOf<typeof fieldType>;

export interface SetSpec extends RecordOf<typeof SET> {
  /**
   * Elements that a read of the kernel finds and that are not desired (an earlier run's) are deleted after a grace period: for a set whose
   * elements packets may still look up under a verdict that goes away in the same transaction. A function tells which of them.
   */
  readonly deferLeftovers?: boolean | ((key: Uint8Array) => boolean);
}

export type Counters = ValueOf<typeof counters>;

/**
 * The desired elements of one set or map that the Table fills. The hot path: keys and data are packed bytes as in
 * `ElementBatch` (every field padded to 4 bytes with zeros behind, network order but for marks, classids and indices, which are host order),
 * copied on the way in, so that a caller may reuse one scratch buffer.
 * Data of a verdict map is the 4 bytes of `Table.verdictId()`, host order.
 *
 * `deferred`: what is deleted stays in the kernel until a transaction after the next one, and for `TableOptions.gracePeriodMs` at least:
 * for an element that packets under the old verdict may still look up.
 */
export interface ElementSet {
  readonly spec: SetSpec;
  readonly keyLen: number;
  readonly dataLen: number;
  /** Desired elements. */
  readonly size: number;
  /** Elements that the kernel is known to hold. Before the first read of the kernel: 0. */
  readonly kernelSize: number;
  /**
   * Desires `key` (with `data`). True when that is a change to what is desired. In a set with timeouts it is desired until its time is over: the
   * set's, or `timeoutMs`, which also renews an element that is desired already.
   */
  put(key: Uint8Array, data?: Uint8Array, timeoutMs?: number): boolean;
  /** What the element of a set with timeouts is desired with: its timeout, and what is left of it, ms; 0: none. */
  times(key: Uint8Array): readonly [timeoutMs: number, leftMs: number];
  /** No longer desires `key`, whoever uses it. True when it was desired. */
  delete(key: Uint8Array, deferred?: boolean): boolean;
  /** Desires `key` (with `data`, instead of what others gave) once more: it stays until it is released as often as it was retained. */
  retain(key: Uint8Array, data?: Uint8Array): void;
  /** Takes back one `retain`. */
  release(key: Uint8Array, deferred?: boolean): void;
  has(key: Uint8Array): boolean;
  /** Data desired for `key`, as a view that is valid until the next change. */
  get(key: Uint8Array): Uint8Array | undefined;
  /** Data that the kernel is known to hold for `key`, as a view. Before the first read of the kernel: undefined. */
  kernelValue(key: Uint8Array): Uint8Array | undefined;
  /**
   * Retains the elements of a list: their keys are `key`, followed by `base`, `base + 1` and so on as 4 bytes in host order (a field `index`).
   * `data`: of `count` elements, one behind the other, as packed words.
   */
  retainList(key: Uint8Array, base: number, data: Int32Array, count: number): void;
  /** Gives the elements of such a list, which are retained, other data. Returns how many had other data before. */
  replaceList(key: Uint8Array, base: number, data: Int32Array, count: number): number;
  /** Releases the elements of such a list. */
  releaseList(key: Uint8Array, base: number, count: number, deferred: boolean): void;
  /** Whether the kernel is known to hold all elements of such a list with this data. */
  kernelHoldsList(key: Uint8Array, base: number, data: Int32Array, count: number): boolean;
  /** Packets that the element has counted, as of the last reading; 0 where there is none. Of sets with `counters`. */
  count(key: Uint8Array): number;
  /** The same with bytes. */
  counted(key: Uint8Array): { readonly packets: number; readonly bytes: number };
  /** The same as of the reading before that. */
  countBefore(key: Uint8Array): number;
  /** Calls `visit` with every key that the kernel is known to hold and that is not desired, as a view that is valid during the call. */
  forEachLeftover(visit: (key: Uint8Array) => void): void;
  /** Desires all that the kernel is known to hold, besides. */
  keepLeftovers(): void;
  /** Interval sets only: desires exactly these networks (CIDR, address or FROM-TO); overlapping ones are merged. */
  replaceNets(nets: readonly string[]): void;
  /** Interval sets only: the networks that are desired, merged, as nft prints them: what is no network is FROM-TO. */
  nets(): readonly string[];
  clear(): void;
}

/** Rules of ours inside a chain that another process owns. */
export interface Insertion extends TableRef {
  readonly chain: string;
  /** insert: before all others. append: behind them. */
  readonly mode: "insert" | "append";
  readonly rules: readonly Rule[];
}

export interface OperationCounts {
  add: number;
  delete: number;
}

export interface ApplyResult extends Pick<CommitResult, "bytes" | "kernelNs" | "encodeNs"> {
  /** 0 when the kernel already held what is desired; several when new chains (make-before-break) or elements (`pieceElements`) went first. */
  readonly transactions: number;
  /** Elements count each; a replaced element is one delete and one add. */
  readonly operations: Readonly<Record<"table" | "chain" | "rule" | "set" | "object" | "element", OperationCounts>>;
  /** Sum over all kinds. */
  readonly total: number;
  /** Call `apply()` again after this many ms (deferred deletions and insertions). Absent: nothing to do. */
  readonly applyAgainMs?: number;
  /** Insertions that wait because the other table or chain is not there ("ip filter FORWARD"). Absent: none. */
  readonly deferred?: readonly string[];
  /** Chains that are not desired and that stay, without rules, because the kernel calls them busy. Absent: none. */
  readonly busy?: readonly string[];
  /** Why the kernel was read before, when it was. */
  readonly resynced?: string;
  /** What that read found to be otherwise than it was left: another process's doing, which this apply undid. */
  readonly drift?: Drift;
}

/** How the kernel's table differed from what it was observed to hold. */
export interface Drift {
  /** Why it was read. */
  readonly causes: ReadonlySet<InvalidationCause>;
  /** "chain services: rules 1 gone", at most 20. */
  readonly changes: readonly string[];
  /** Differing objects: chains, sets, and those with changed content. At least `changes.length`. */
  readonly total: number;
  /** All of it was gone. */
  readonly tableDeleted: boolean;
}

export interface ApplyOptions {
  /**
   * False: what another process did to the table is kept for now, unless nothing can be known without a read. What changed is
   * written on top if the kernel takes that; if not, apply fails with "stale". Default true.
   */
  readonly repair?: boolean;
  /**
   * True: the table is deleted and written from scratch, in one transaction. The last resort for a table that the kernel refuses to change, apply
   * after apply. The counters of elements and what packets put into dynamic sets stay if they can be read; rule counters start at 0. Default false.
   */
  readonly rebuild?: boolean;
}

/** What a refused operation was about, for people and for attribution. */
export interface FaultyObject {
  readonly kind: "table" | "chain" | "rule" | "set" | "object" | "element";
  /** What was refused: "delete chain". */
  readonly operation?: string;
  readonly chain?: string;
  readonly ruleIndex?: number;
  readonly set?: string;
  /** A named object or a flowtable. */
  readonly object?: string;
  /** Element key, packed. */
  readonly key?: Uint8Array;
  readonly errno: string;
  readonly text?: string;
  /** Index of the operation in its transaction. */
  readonly position?: number;
}

/** Injected time. */
export interface Clock {
  /** Milliseconds, monotonic. */
  now(): number;
}

export interface TableOptions {
  readonly family: Family;
  readonly name: string;
  readonly comment?: string;
  readonly clock?: Clock;
  /** How long what packets under way may still use outlives its last use (deferred deletions). Default 500 ms. */
  readonly gracePeriodMs?: number;
  /** When more elements than this are to be written that no packet can see yet, they go first, so many a transaction (make-before-break.ts). Default 16,384. */
  readonly pieceElements?: number;
  /**
   * While we run, no other process can change the table, and `flush ruleset` passes it by; when we end it stays, and the next of us
   * claims it with a transaction that holds nothing else (quirks.ts). Where the kernel cannot (before Linux 6.9; `Table.owned()` tells), a
   * table as any other. A table that was made with the other choice is made anew, in one transaction: rule counters start at 0 then. Default
   * false.
   */
  readonly own?: boolean;
  /**
   * Identifies our rules in others' chains, in their comments. Needed for insertions. It is this Table's alone: rules with this
   * mark that are not desired are removed from every chain of the namespace, so that none stays behind after an upgrade. That
   * costs a dump of all tables' rules at each full read; a Table without the option reads only its own.
   */
  readonly ownerMark?: string;
}
