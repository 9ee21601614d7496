/** The kernel's connection tracking table as the rest of the program sees it. Addresses are canonical text. */
import type { IpFamily } from "../../base/ip.js";

/** One direction of a connection. Ports are 0 for protocols that have none. */
export interface ConntrackTuple {
  readonly source: string;
  readonly destination: string;
  /** IANA number: 6 TCP, 17 UDP, 132 SCTP. */
  readonly protocol: number;
  readonly sourcePort: number;
  readonly destinationPort: number;
  /** ICMP and ICMPv6 alone: what stands in the ports' place. */
  readonly icmp?: { readonly id: number; readonly type: number; readonly code: number } | undefined;
  /** Only where the zone holds for this direction alone (CTA_TUPLE_ZONE); the entry's own zone is then 0. */
  readonly zone?: number | undefined;
}

/** Bits of `status`, linux/netfilter/nf_conntrack_common.h enum ip_conntrack_status. */
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
  /** What the client sent: its destination is the VIP. */
  readonly original: ConntrackTuple;
  /** What the other side answers with: its source is the endpoint. */
  readonly reply: ConntrackTuple;
  /**
   * CTA_ID, unsigned 32 bits: tells an entry from a later one with the same tuple, unless the kernel has put that one in
   * the very same place in memory.
   */
  readonly id: number;
  /** CONNTRACK_STATUS bits. */
  readonly status: number;
  /** Seconds left; absent where the kernel does not tell (offloaded, dying). */
  readonly timeout?: number | undefined;
  readonly mark: number;
  /** Zone of both directions; 0: the default one. */
  readonly zone: number;
  /** Name of the protocol's state in the kernel's words ("ESTABLISHED", "COOKIE_WAIT"); absent: the protocol has none. */
  readonly state?: string | undefined;
  /** 16 bytes; absent: none set. */
  readonly labels?: Uint8Array | undefined;
  /** Only where net.netfilter.nf_conntrack_acct is on. */
  readonly counters?:
    | {
        readonly original: { readonly packets: bigint; readonly bytes: bigint };
        readonly reply: { readonly packets: bigint; readonly bytes: bigint };
      }
    | undefined;
  /** Unix ms, only where net.netfilter.nf_conntrack_timestamp is on. */
  readonly startedAt?: number | undefined;
}

/**
 * An entry to be made. Where `reply` is not `original` turned round, the entry gets the NAT that makes it so; the bits of
 * `status` that tell of NAT come from that and are ignored here.
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
 * Parts of a tuple that must be equal; what is absent matches all. An address may be a CIDR without host bits. A port
 * matches entries of protocols that have ports, and no ICMP id.
 */
export interface TupleFilter {
  readonly source?: string;
  readonly destination?: string;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
}

/**
 * Which entries are meant. Every part given must hold; an empty filter means all. What cannot be read is refused, and so
 * are a field that is not known, a part that is there and undefined, and addresses of two families.
 */
export interface ConntrackFilter {
  readonly family?: IpFamily;
  readonly protocol?: number;
  /** Zone of both directions. */
  readonly zone?: number;
  /** `mask` defaults to all bits. */
  readonly mark?: { readonly value: number; readonly mask?: number };
  /** Bits of `mask` must have the value that `value` has. */
  readonly status?: { readonly value: number; readonly mask: number };
  /** A state's name, of whatever protocol has one of that name. */
  readonly state?: string;
  readonly original?: TupleFilter;
  readonly reply?: TupleFilter;
  /**
   * One of these is the source or destination of either direction: a client, a VIP, an endpoint, an address that is masqueraded
   * to. Addresses or CIDRs without host bits, of one family or both; from 1 to MOST_ADDRESSES.
   */
  readonly addresses?: readonly string[];
}

/** Of a filter's `addresses`; each entry is compared with each. */
export const MOST_ADDRESSES = 64;

/**
 * What a dump of one family may skip, looked up where entries are decoded: a pass over a million entries must not make
 * an object of each. It says which original destinations matter and which reply sources are in order there. An entry need
 * not be handed over when no destination matches it, or when its reply source is in the list of every destination that
 * does. Skipping nothing is always right; skipping anything else never is.
 */
export interface ConntrackPrefilter {
  readonly family: IpFamily;
  /**
   * Records of address (4 or 16 bytes), protocol (1), zero (1), port (2, network order), list (4, host order).
   * The unspecified address means any: a node port.
   */
  readonly destinations: Uint8Array;
  /** List i is the endpoints from `lists[i]` up to, without, `lists[i + 1]`. */
  readonly lists: Uint32Array;
  /** Records of address (4 or 16 bytes), port (2, network order), zero (2). */
  readonly endpoints: Uint8Array;
}

/** What a dump came to. */
export interface DumpResult {
  /** Entries handed over. */
  readonly entries: number;
  /** Entries that the kernel sent; what it did not filter was filtered here. */
  readonly seen: number;
  /** With a prefilter: how many matched the filter, handed over or not. Absent: none was skipped. */
  readonly matched?: number;
  /** And how many of these have IPS_SEEN_REPLY. */
  readonly answered?: number;
  /** The table changed under the dump (NLM_F_DUMP_INTR): entries may be missing or told twice. */
  readonly interrupted: boolean;
}

export interface DeleteResult {
  readonly deleted: number;
  /** Gone, or another entry with the same tuple by now. */
  readonly absent: number;
  readonly interrupted: boolean;
}

/** What a deletion of a list came to. */
export interface DeleteAllResult extends DeleteResult {
  /** Positions of the absent ones in the list, ascending. */
  readonly absentAt: readonly number[];
}

export interface ConntrackUpdate {
  /** Seconds. */
  readonly timeout?: number;
  readonly mark?: { readonly value: number; readonly mask?: number };
}

export interface ConntrackEvents {
  onNew?(entry: ConntrackEntry): void;
  /** The kernel tells it only of entries that it made while a listener was there (net.netfilter.nf_conntrack_events = 2). */
  onDestroy?(entry: ConntrackEntry): void;
  /** The kernel dropped events (ENOBUFS). */
  onLost(): void;
  /** The stream ended for good. */
  onError(error: Error): void;
}

/** Per-CPU counters summed (CTA_STATS_*), since boot. */
export interface ConntrackStats {
  readonly found: number;
  readonly invalid: number;
  readonly insert: number;
  readonly insertFailed: number;
  readonly drop: number;
  readonly earlyDrop: number;
  readonly error: number;
}

/**
 * Conntrack of one network namespace. Every method is asynchronous and off the main thread. Errors are `KernelError` (its
 * code says: no rights, no ctnetlink in the kernel, a filter that is not understood). A filter with a part that cannot be
 * read is refused before anything is asked of the kernel. Implemented by `NetlinkConntrack`.
 */
export interface ConntrackTable {
  /**
   * In chunks: the next one is read when the last one's promise is done, so memory stays bounded.
   * An entry that is kept keeps the few hundred of its chunk in memory; `plainEntry` (decode.ts) makes a copy of its own.
   * With a `prefilter` for the filter's family, entries that it does not ask for may be skipped.
   */
  dump(
    filter: ConntrackFilter,
    onEntries: (entries: readonly ConntrackEntry[]) => void | Promise<void>,
    prefilter?: ConntrackPrefilter,
  ): Promise<DumpResult>;
  lookup(family: IpFamily, original: ConntrackTuple, zone?: number): Promise<ConntrackEntry | undefined>;
  /** Rejects with EEXIST when there is one with either tuple. */
  create(entry: NewConntrackEntry): Promise<void>;
  /** By tuple and id. Rejects with ENOENT when there is no such entry. */
  update(entry: ConntrackEntry, change: ConntrackUpdate): Promise<void>;
  count(): Promise<number>;
  max(): Promise<number>;
  stats(): Promise<ConntrackStats>;
  /** By tuple and id. False: it was not there any more. */
  delete(entry: ConntrackEntry): Promise<boolean>;
  /** By tuple and id, batched. */
  deleteAll(entries: readonly ConntrackEntry[]): Promise<DeleteAllResult>;
  /** What matches when the dump meets it; filtered in the kernel where it can. Never crosses into JavaScript. */
  deleteMatching(filter: ConntrackFilter): Promise<DeleteResult>;
  /** Nothing is told where net.netfilter.nf_conntrack_events is 0. */
  events(handlers: ConntrackEvents): Promise<{ close(): Promise<void> }>;
  close(): Promise<void>;
}
