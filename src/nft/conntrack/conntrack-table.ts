/** The kernel's connection tracking table as the rest of the program sees it. Addresses are canonical text. */
import type { ConntrackStats, DeleteResult } from "../kernel/conntrack-addon.js";
import type { IpFamily } from "../../base/ip.js";

export type { ConntrackStats, DeleteResult };

/** One direction of a connection. Ports are 0 for protocols that have none. */
export interface ConntrackTuple {
  readonly source: string;
  readonly destination: string;
  /** IANA number: 6 TCP, 17 UDP, 132 SCTP. */
  readonly protocol: number;
  readonly sourcePort: number;
  readonly destinationPort: number;
  /** Only for ICMP and ICMPv6, which have these in place of ports. */
  readonly icmp?: { readonly id: number; readonly type: number; readonly code: number } | undefined;
  /** Set only if the zone applies to this direction alone (CTA_TUPLE_ZONE). The entry's own zone is then 0. */
  readonly zone?: number | undefined;
}

/** Bits of `status`, from enum ip_conntrack_status in linux/netfilter/nf_conntrack_common.h. */
export const CONNTRACK_STATUS = {
  expected: 1 << 0,
  seenReply: 1 << 1,
  assured: 1 << 2,
  confirmed: 1 << 3,
  sourceNat: 1 << 4,
  destinationNat: 1 << 5,
  sequenceAdjust: 1 << 6,
  sourceNatDone: 1 << 7,
  destinationNatDone: 1 << 8,
  dying: 1 << 9,
  fixedTimeout: 1 << 10,
  template: 1 << 11,
  untracked: 1 << 12,
  helper: 1 << 13,
  offload: 1 << 14,
  hardwareOffload: 1 << 15,
} as const;

export interface ConntrackEntry {
  readonly family: IpFamily;
  /** The client's packets: the destination is the VIP. */
  readonly original: ConntrackTuple;
  /** The answers: the source is the endpoint. */
  readonly reply: ConntrackTuple;
  /**
   * CTA_ID, unsigned 32 bits. Distinguishes an entry from a later one with the same tuple, unless the kernel placed
   * both at the same memory address.
   */
  readonly id: number;
  /** CONNTRACK_STATUS bits. */
  readonly status: number;
  /** Seconds left. Absent if the kernel does not say (offloaded, dying). */
  readonly timeout?: number | undefined;
  readonly mark: number;
  /** Zone of both directions. 0: the default zone. */
  readonly zone: number;
  /** The kernel's name of the protocol's state ("ESTABLISHED", "COOKIE_WAIT"). Absent if the protocol has no states. */
  readonly state?: string | undefined;
  /** 16 bytes. Absent if none is set. */
  readonly labels?: Uint8Array | undefined;
  /** Only if net.netfilter.nf_conntrack_acct is on. */
  readonly counters?:
    | {
        readonly original: { readonly packets: bigint; readonly bytes: bigint };
        readonly reply: { readonly packets: bigint; readonly bytes: bigint };
      }
    | undefined;
  /** Unix time, ms. Only if net.netfilter.nf_conntrack_timestamp is on. */
  readonly startedAt?: number | undefined;
}

/**
 * An entry to create. If `reply` is not `original` reversed, the entry gets the NAT that makes it so. The NAT bits of
 * `status` follow from that; their given values are ignored.
 */
export interface NewConntrackEntry {
  readonly family: IpFamily;
  readonly original: ConntrackTuple;
  readonly reply: ConntrackTuple;
  /** Seconds. */
  readonly timeout: number;
  readonly status?: number;
  readonly mark?: number;
  readonly zone?: number;
  /** Only for TCP and SCTP. */
  readonly state?: string;
  /** 16 bytes. */
  readonly labels?: Uint8Array;
}

/**
 * Parts of a tuple that must be equal. Absent parts match everything. An address may be a CIDR without host bits. A
 * port matches only entries of protocols that have ports, never an ICMP id.
 */
export interface TupleFilter {
  readonly source?: string;
  readonly destination?: string;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
}

/**
 * Selects entries. Every given part must match; an empty filter selects all. Unreadable values, unknown fields, undefined
 * fields, and addresses of two families are rejected.
 */
export interface ConntrackFilter {
  readonly family?: IpFamily;
  readonly protocol?: number;
  /** Zone of both directions. */
  readonly zone?: number;
  /** `mask` defaults to all bits. */
  readonly mark?: { readonly value: number; readonly mask?: number };
  /** The bits in `mask` must have the same values as in `value`. */
  readonly status?: { readonly value: number; readonly mask: number };
  /** A state's name, of any protocol that has one of that name. */
  readonly state?: string;
  readonly original?: TupleFilter;
  readonly reply?: TupleFilter;
  /**
   * Any of these is the source or destination of either direction: a client, a VIP, an endpoint or a masquerade
   * address. Addresses or CIDRs without host bits, of one family or both; from 1 to MOST_ADDRESSES.
   */
  readonly addresses?: readonly string[];
}

/** Maximum number of `addresses` in a filter. Each entry is compared with each address. */
export const MOST_ADDRESSES = 64;

/**
 * Tells a dump of one family which entries it may skip. It is applied where entries are decoded, because a pass over a
 * million entries must not create an object for each. It lists the original destinations that matter and the reply
 * sources that are in order for each. An entry may be skipped if it matches no destination. It may also be skipped if
 * its reply source is in the list of every destination that it matches. Skipping nothing is always correct; skipping
 * any other entry never is.
 */
export interface ConntrackPrefilter {
  readonly family: IpFamily;
  /**
   * Records of address (4 or 16 bytes), protocol (1), zero (1), port (2, network order), list (4, host order). The
   * unspecified address means any address: a node port.
   */
  readonly destinations: Uint8Array;
  /** List i holds the endpoints from `lists[i]` up to, but excluding, `lists[i + 1]`. */
  readonly lists: Uint32Array;
  /** Records of address (4 or 16 bytes), port (2, network order), zero (2). */
  readonly endpoints: Uint8Array;
}

/** The result of a dump. */
export interface DumpResult {
  /** Entries passed on. */
  readonly entries: number;
  /** Entries that the kernel sent, including entries that were then filtered here. */
  readonly seen: number;
  /** With a prefilter: number of entries that matched the filter, skipped or not. Absent if none was skipped. */
  readonly matched?: number;
  /** How many of the `matched` entries have IPS_SEEN_REPLY. */
  readonly answered?: number;
  /** The table changed during the dump (NLM_F_DUMP_INTR), so entries may be missing or repeated. */
  readonly interrupted: boolean;
}

/** The result of deleting a list. */
export interface DeleteAllResult extends DeleteResult {
  /** Ascending positions of the absent entries in the list. */
  readonly absentAt: readonly number[];
}

export interface ConntrackUpdate {
  /** Seconds. */
  readonly timeout?: number;
  readonly mark?: { readonly value: number; readonly mask?: number };
}

export interface ConntrackEvents {
  onNew?(entry: ConntrackEntry): void;
  /**
   * The kernel reports only entries that it created while a listener existed (net.netfilter.nf_conntrack_events = 2).
   */
  onDestroy?(entry: ConntrackEntry): void;
  /** The kernel dropped events (ENOBUFS). */
  onLost(): void;
  /** The stream ended for good. */
  onError(error: Error): void;
}

/**
 * Conntrack of one network namespace. Every method is asynchronous and runs off the main thread. Errors are
 * `KernelError`; its code says whether permission is missing, the kernel has no ctnetlink, or the filter is invalid. An
 * invalid filter is rejected before the kernel is asked. Implemented by `NetlinkConntrack`.
 */
export interface ConntrackTable {
  /**
   * Dumps entries in chunks. The next chunk is read after the promise for the last one resolves, so memory stays
   * bounded. A reference to an entry keeps the few hundred entries of its chunk in memory; `plainEntry` (decode.ts)
   * makes an independent copy. With a `prefilter` for the filter's family, entries that it does not select may be
   * skipped.
   */
  dump(
    filter: ConntrackFilter,
    onEntries: (entries: readonly ConntrackEntry[]) => void | Promise<void>,
    prefilter?: ConntrackPrefilter,
  ): Promise<DumpResult>;
  lookup(family: IpFamily, original: ConntrackTuple, zone?: number): Promise<ConntrackEntry | undefined>;
  /** Rejects with EEXIST if an entry with either tuple exists. */
  create(entry: NewConntrackEntry): Promise<void>;
  /** Finds the entry by tuple and id. Rejects with ENOENT if it does not exist. */
  update(entry: ConntrackEntry, change: ConntrackUpdate): Promise<void>;
  count(): Promise<number>;
  max(): Promise<number>;
  stats(): Promise<ConntrackStats>;
  /** Finds the entry by tuple and id. Returns false if it is already gone. */
  delete(entry: ConntrackEntry): Promise<boolean>;
  /** Finds the entries by tuple and id. Batched. */
  deleteAll(entries: readonly ConntrackEntry[]): Promise<DeleteAllResult>;
  /**
   * Deletes the entries that match when the dump reaches them. Filters in the kernel if possible; entries never reach
   * JavaScript.
   */
  deleteMatching(filter: ConntrackFilter): Promise<DeleteResult>;
  /** There are no events if net.netfilter.nf_conntrack_events is 0. */
  events(handlers: ConntrackEvents): Promise<{ close(): Promise<void> }>;
  close(): Promise<void>;
}
