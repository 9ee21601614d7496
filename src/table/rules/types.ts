/**
 * The declarative Table's vocabulary: rules as typed data (text is only a rendering), chains, sets and maps.
 *
 * A value that a packet carries is a `Field`; a `Statement` is one match or one action; a rule is statements
 * in order. `statements.ts` turns statements into kernel expressions, `print.ts` into nft's own text.
 */
import type { AddressType, TcpFlag } from "../../kernel/constants.js";
import type { BaseChain, CommitResult, Family, TableRef, Verdict } from "../../kernel/types.js";
import type { InvalidationCause } from "../sync/invalidations.js";

/** What a lookup key is made of. `saddr`/`daddr` are of the table's family (16 bytes in ip6). */
export type Field =
  | "saddr"
  | "daddr"
  | "l4proto"
  | "sport"
  | "dport"
  | "iifname"
  | "oifname"
  | "mark"
  | "priority"
  /** Original source / destination address of the connection. */
  | "ct-saddr"
  | "ct-daddr"
  /** A number from 0 (or `offset`) up, below `offset + modulus`. */
  | { readonly field: "numgen"; readonly mode: "random" | "inc"; readonly modulus: number; readonly offset?: number }
  | HashField;

/**
 * A number of the same range that is always the same for the same fields `of` the packet, on every machine of the same byte order. Stands
 * last in a key: nft would read what follows as one more field of `of`.
 */
export interface HashField {
  readonly field: "jhash";
  readonly of: readonly Extract<Field, string>[];
  readonly modulus: number;
  readonly seed: number;
  readonly offset?: number;
}

/** A port or an inclusive range of ports. */
export type PortRange = number | readonly [from: number, to: number];

/** Of a packet's two ends. */
export type Direction = "source" | "destination";

export type TcpFlagName = keyof typeof TcpFlag;
export type CtStateName = "new" | "established" | "related" | "invalid" | "untracked";
/** Direction of a packet, or of one of the two tuples, of a connection. */
export type CtDirectionName = "original" | "reply";
export type AddressTypeName = keyof typeof AddressType;

/** Conditions: the rule goes on to its next statement only when they hold. */
export type Match = Readonly<
  /** Address inside any of the networks (CIDR or single address). Several networks become an anonymous interval set. */
  | {
      match: "address";
      direction: Direction;
      nets: readonly string[];
      negate?: boolean;
      /** Of the packet's connection as it was before any rewriting (original), or as its answers are (reply), instead of the packet's own. */
      ct?: CtDirectionName;
    }
  /** Transport port in any of the ranges; any number of them. Implies nothing about the protocol. */
  | { match: "port"; direction: Direction; ports: readonly PortRange[]; negate?: boolean }
  /** Transport protocol by number, or by a name of /etc/protocols ("tcp", "gre", "UDPLite": protocols.ts). */
  | { match: "protocol"; protocol: string | number; negate?: boolean }
  /** The fields, concatenated, are an element of the named set (or a key of the named map). */
  | { match: "in-set"; key: readonly Field[]; set: string; negate?: boolean }
  /** Routing type of an address (fib), optionally limited to the incoming or outgoing interface. */
  | { match: "address-type"; direction: Direction; type: AddressTypeName; negate?: boolean; limit?: "in" | "out" }
  | { match: "icmp"; version: 4 | 6; type: number; code?: number; negate?: boolean }
  /** Of these flags of a TCP segment, just those of `set` are set; other protocols never match. */
  | { match: "tcp-flags"; among: readonly TcpFlagName[]; set: readonly TcpFlagName[] }
  | { match: "ct-state"; states: readonly CtStateName[]; negate?: boolean }
  /** original: the packet goes from who opened the connection; reply: to it. */
  | { match: "ct-direction"; direction: CtDirectionName }
  | { match: "ct-status"; status: "dnat" | "snat"; negate?: boolean }
  /** (packet mark & mask) == value. mask defaults to all ones. A bit clear: value 0; not clear: value 0 with negate. */
  | { match: "mark"; mask?: number; value: number; negate?: boolean }
  /** (priority & mask) == value, of the packet's priority, 32 bits (skb->priority). mask defaults to all ones. */
  | { match: "priority"; mask?: number; value: number; negate?: boolean }
  /** A name, or a prefix followed by `*`. */
  | { match: "interface"; direction: "in" | "out"; name: string; negate?: boolean }
  /** Reverse path filter: the source would be routed out of the interface it came in by (or not). */
  | { match: "reverse-path"; passed: boolean }
>;

/** What a rule does. */
export type Action = Readonly<
  | { action: "counter" }
  | { action: "log"; prefix: string; level?: number; group?: number }
  | { action: "limit"; rate: number; per: RateUnit; burst?: number }
  /** mark = (mark & ~mask) | value. mask defaults to all ones (a plain set); value 0 clears the masked bits. */
  | { action: "set-mark"; mask?: number; value: number }
  /** mark = mark ^ value. */
  | { action: "xor-mark"; value: number }
  | { action: "set-priority"; value: number }
  /**
   * Priority set to what a map holds for the fields, a classid; goes on to the next rule when it holds nothing. The next statement may
   * look the priority up: nft prints that, but no key that comes from a look-up directly.
   */
  | { action: "priority-map"; key: readonly Field[]; map: string }
  | { action: "notrack" }
  /**
   * An address in the packet's header rewritten, with its checksums, and nothing else: the connection is tracked as it was, and its other packets
   * stay as they are.
   */
  | {
      action: "set-address";
      direction: Direction;
      /** A constant, or an address that the connection has in one direction. In a table of family ip or ip6. */
      to: string | { readonly ct: CtDirectionName; readonly direction: Direction };
    }
  /** accept, drop, return, continue, jump, goto. */
  | { action: "verdict"; verdict: Verdict }
  /** The verdict that a verdict map holds for the concatenated fields; goes on when there is none. */
  | { action: "vmap"; key: readonly Field[]; map: string }
  /** Destination rewritten to a constant. */
  | { action: "dnat"; address?: string; port?: number }
  /** Destination rewritten to what a map holds for the fields: an address, or address . port. */
  | { action: "dnat-map"; key: readonly Field[]; map: string; data: "address" | "address-port" }
  | { action: "snat"; address: string; port?: number; fullyRandom?: boolean }
  | { action: "masquerade"; ports?: PortRange; random?: boolean; fullyRandom?: boolean }
  | { action: "reject"; with?: "port-unreachable" | "admin-prohibited" | "host-unreachable" | "tcp-reset" }
  /** Adds the key to a dynamic set (or renews its timeout). timeoutMs overrides the set's own. */
  | {
      action: "update";
      set: string;
      key: readonly Field[];
      timeoutMs?: number;
      /** Maps only: the constant that the key maps to, an address with or without a port. An entry that is there keeps its data. nft 0.9.8 aborts on listing address and port here; later ones print it. */
      data?: { readonly address: string; readonly port?: number };
    }
  /**
   * The connection is one of more than `count` open ones that came here with the same key: else the rule ends. Counted in a dynamic set; the
   * element keeps the count that it began with. In a NAT chain, which sees the first packet of a connection alone, just `count` are let by.
   */
  | { action: "connections-over"; set: string; key: readonly Field[]; count: number }
  /** More packets than the rate came here with the same key: else the rule ends. An element that waits for longer than `timeoutMs` begins anew. */
  | {
      action: "rate-over";
      set: string;
      key: readonly Field[];
      timeoutMs: number;
      rate: number;
      per: RateUnit;
      burst: number;
    }
>;

/** Units of a rate. */
export const LIMIT_SECONDS = { second: 1, minute: 60, hour: 3600, day: 86400 } as const;
type RateUnit = keyof typeof LIMIT_SECONDS;

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

/**
 * Type of one field of a key or of data. `index` is the 32-bit host-order number that `numgen` gives: declared to
 * the kernel as nft's `mark`, printed as `typeof numgen random mod 2` (nft refuses a plain mark there). `classid` is a packet's
 * priority, 32 bits in host order, printed as two numbers in hex: `15:3`.
 */
export type FieldType =
  "ipv4_addr" | "ipv6_addr" | "inet_proto" | "inet_service" | "mark" | "classid" | "ifname" | "index";

export interface SetSpec {
  readonly set: string;
  readonly key: readonly FieldType[];
  /** Absent: a set. "verdict": a verdict map. Else a data map. */
  readonly data?: "verdict" | readonly FieldType[];
  /** Elements are ranges. A key of one field only. */
  readonly interval?: boolean;
  /** Filled by packets (`update`), its elements are not the Table's and are kept. */
  readonly dynamic?: boolean;
  /** Default timeout of an element in ms; 0: elements may have one (the `timeout` flag) but none by default. Absent: no timeouts. */
  readonly timeoutMs?: number;
  /**
   * How the kernel's set is sized. A number: that bound. "auto": the Table picks a bound from what it holds when it
   * creates the set (the kernel's fixed hash loads twice as fast), and creates a larger one when it would overflow.
   * Absent: no bound.
   */
  readonly size?: number | "auto";
  /**
   * Elements that a read of the kernel finds and that are not desired (an earlier run's) are deleted after a grace period: for a set whose
   * elements packets may still look up under a verdict that goes away in the same transaction. A function tells which of them.
   */
  readonly deferLeftovers?: boolean | ((key: Uint8Array) => boolean);
  /**
   * Each element counts the packets that find it (Linux 5.7). An element that is replaced goes on counting where the former one ended, unless
   * `carries` says that the two are not about the same thing; `ElementSet.count` tells, as of the last `Table.readCounters()`.
   */
  readonly counters?: Counters;
  readonly comment?: string;
}

export interface Counters {
  /** Of the data before and after, as views; default: always. */
  readonly carries?: (before: Uint8Array, after: Uint8Array) => boolean;
  /** These packets found the element that was replaced, and came too late for the new one to be told of. */
  readonly missed?: (key: Uint8Array, packets: number) => void;
  /** The element is neither desired nor in the kernel any more. */
  readonly gone?: (key: Uint8Array) => void;
}

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
  /** Desires `key` (with `data`). True when that is a change to what is desired. */
  put(key: Uint8Array, data?: Uint8Array): boolean;
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
  /** Releases the elements of such a list. */
  releaseList(key: Uint8Array, base: number, count: number, deferred: boolean): void;
  /** Whether the kernel is known to hold all elements of such a list with this data. */
  kernelHoldsList(key: Uint8Array, base: number, data: Int32Array, count: number): boolean;
  /** Packets that the element has counted, as of the last reading; 0 where there is none. Of sets with `counters`. */
  count(key: Uint8Array): number;
  /** The same as of the reading before that. */
  countBefore(key: Uint8Array): number;
  /** Calls `visit` with every key that the kernel is known to hold and that is not desired, as a view that is valid during the call. */
  forEachLeftover(visit: (key: Uint8Array) => void): void;
  /** Desires all that the kernel is known to hold, besides. */
  keepLeftovers(): void;
  /** Interval sets only: desires exactly these networks (CIDR or address); overlapping ones are merged. */
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
  readonly operations: Readonly<Record<"table" | "chain" | "rule" | "set" | "element", OperationCounts>>;
  /** Sum over all kinds. */
  readonly total: number;
  /** Call `apply()` again after this many ms (deferred deletions and insertions, post-write check, refresh). Absent: nothing to do. */
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
}

/** What a refused operation was about, for people and for attribution. */
export interface FaultyObject {
  readonly kind: "table" | "chain" | "rule" | "set" | "element";
  readonly chain?: string;
  readonly ruleIndex?: number;
  readonly set?: string;
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
  /** Read and compare everything this often; 0 (default): never. */
  readonly refreshIntervalMs?: number;
  /** First check after a write; doubles until refreshIntervalMs. 0 (default): none. */
  readonly postWriteIntervalMs?: number;
  /** When more elements than this are to be written that no packet can see yet, they go first, so many a transaction (make-before-break.ts). Default 16,384. */
  readonly pieceElements?: number;
  /**
   * While we run, no other process can change the table, and `flush ruleset` passes it by; when we end it stays, and the next of us
   * claims it with a transaction that holds nothing else (quirks.ts). Where the kernel cannot (before Linux 6.9; `Table.owned()` tells), a
   * table as any other. A table that was made with the other choice is made anew, in one transaction: rule counters and what packets put into
   * dynamic sets are lost then. Default false.
   */
  readonly own?: boolean;
  /**
   * Identifies our rules in others' chains, in their comments. Needed for insertions. It is this Table's alone: rules with this
   * mark that are not desired are removed from every chain of the namespace, so that none stays behind after an upgrade. That
   * costs a dump of all tables' rules at each full read; a Table without the option reads only its own.
   */
  readonly ownerMark?: string;
}
