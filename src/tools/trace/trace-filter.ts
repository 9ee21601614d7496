/**
 * Selects packets to trace, and builds the table whose rules mark them (`meta nftrace set 1`). After that, the kernel
 * reports what the rules of every table do with the packet (NFNLGRP_NFTRACE). Pure.
 */
import type { Transport } from "../explain/machine/packet-spec.js";
import { Hook, TableFlag } from "../../nft/kernel/constants.js";
import type { BaseChain, Op, TableRef } from "../../nft/kernel/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { type FieldMatch, lowerRule, type Statement } from "../../nft/engine-exports.js";

export interface TraceSelector {
  readonly family: IpFamily;
  /** At least one. */
  readonly protocols: readonly Transport[];
  /** Canonical address or CIDR. "node": any address of this node, as for node ports. "any": everything. */
  readonly destination: string;
  /** Absent: all ports. */
  readonly port?: number;
}

export interface TraceFilter {
  /** A packet is traced if it matches one of these. */
  readonly selectors: readonly TraceSelector[];
  /** Canonical source address or CIDR, of the selectors' family. Absent: any source. */
  readonly source?: string;
  /** Also trace packets of open connections, which NAT chains do not see, in both directions, and ICMP messages that a packet is too big. */
  readonly allPackets: boolean;
}

/** Maximum number of packets to trace each second and direction, and in a burst. This is some 1,000 messages, or 1 % of a core. */
export const PACKETS_PER_SECOND = 50;

/**
 * Chains of the trace table. Chains without rules show the packet after other tables' changes: translated, with its
 * interfaces.
 */
export const TraceChain = {
  /** Not named "mark", because nft cannot read a file with a chain of that name. */
  traced: "traced",
  /** Marks packets of the reply direction. */
  replies: "replies",
  /** Marks replies that refuse a connection. */
  refusals: "refusals",
  preroutingFirst: "prerouting-first",
  preroutingTracked: "prerouting-tracked",
  outputFirst: "output-first",
  outputTracked: "output-tracked",
  inputLast: "input-last",
  postroutingLast: "postrouting-last",
} as const;

/** The chains that count and mark packets. */
export function markingChains(allPackets: boolean): readonly string[] {
  return [TraceChain.traced, ...(allPackets ? [TraceChain.replies] : [])];
}

/** Before NF_IP_PRI_RAW (-300), and so before anything that drops there. */
const FIRST = -350;
/** After NF_IP_PRI_CONNTRACK (-200), and before all translation (-100) and our own chains (-110). */
const TRACKED = -190;
/** After all other chains, before NF_IP_PRI_CONNTRACK_CONFIRM (INT_MAX). */
const LAST = 2 ** 31 - 2;

/** The INIT chunk's number, RFC 9260. */
const SCTP_INIT = 1;

/**
 * The name contains the owner's netlink port, which is unique in a namespace, so several programs can trace at once.
 */
export function traceTable(portId: number): TableRef {
  return { family: "inet", table: `nft-proxier-trace-${portId}` };
}

/** A rule of the table: its chain and statements. */
type TraceRule = readonly [chain: string, ...statements: readonly Statement[]];

/**
 * Operations that create the table. It disappears with the netlink socket that commits them (NFT_TABLE_F_OWNER, Linux
 * 5.12).
 */
export function traceOps(ref: TableRef, filter: TraceFilter): Op[] {
  const base = (hook: number, priority: number): BaseChain => ({ type: "filter", hook, priority, policy: "accept" });
  const chains: readonly (readonly [chain: string, base?: BaseChain])[] = [
    ...[...markingChains(filter.allPackets), TraceChain.refusals].map((chain) => [chain] as const),
    [TraceChain.preroutingFirst, base(Hook.prerouting, FIRST)],
    [TraceChain.outputFirst, base(Hook.output, FIRST)],
    [TraceChain.preroutingTracked, base(Hook.prerouting, TRACKED)],
    [TraceChain.outputTracked, base(Hook.output, TRACKED)],
    [TraceChain.inputLast, base(Hook.input, LAST)],
    [TraceChain.postroutingLast, base(Hook.postrouting, LAST)],
  ];
  const rules = [
    ...marking(filter),
    ...filter.selectors.flatMap((selector) => [...opening(selector, filter), ...replying(selector, filter)]),
  ];
  return [
    { op: "create", kind: "table", ...ref, flags: TableFlag.owner },
    ...chains.map(([chain, of]): Op => ({ op: "add", kind: "chain", ...ref, chain, ...(of && { base: of }) })),
    ...rules.map(([chain, ...statements]): Op => {
      return { op: "add", kind: "rule", ...ref, chain, exprs: lowerRule({ statements }, ref).exprs };
    }),
  ];
}

/** One limit for all packets, which are counted before it, and one for all refusals. */
function marking({ allPackets }: TraceFilter): TraceRule[] {
  const limit = { action: "limit", rate: PACKETS_PER_SECOND, per: "second", burst: PACKETS_PER_SECOND } as const;
  const trace = { action: "set", field: "meta nftrace", value: 1 } as const;
  return [
    ...markingChains(allPackets).flatMap((chain): TraceRule[] => [
      [chain, { action: "counter" }],
      [chain, limit, trace],
    ]),
    [TraceChain.refusals, limit, trace],
  ];
}

const FIRST_CHAINS = [TraceChain.preroutingFirst, TraceChain.outputFirst];
const TRACKED_CHAINS = [TraceChain.preroutingTracked, TraceChain.outputTracked];

function leading(from: readonly string[], chain: string, ...matches: readonly FieldMatch[]): TraceRule[] {
  return from.map((one) => [one, ...matches, { action: "verdict", verdict: `goto ${chain}` }]);
}

const IS_LOCAL: FieldMatch = { field: { field: "fib", of: ["daddr"], result: "type" }, value: "local" };
/** The type of the first chunk. */
const CHUNK = { field: "raw", base: "transport", offset: 96, length: 8 } as const;

/** Packets of the selector. Without `allPackets`, those that open a connection, or that the connection tracker cannot assign. */
function opening(selector: TraceSelector, { source, allPackets }: TraceFilter): TraceRule[] {
  const { family, protocols, destination, port } = selector;
  const isNet = destination !== "any" && destination !== "node";
  return protocols.flatMap((protocol) => {
    const matches: FieldMatch[] = [
      isNet ? addressMatch(family, "daddr", destination) : { field: "meta nfproto", value: NFPROTO[family] },
      { field: "meta l4proto", value: protocol },
      ...(source === undefined ? [] : [addressMatch(family, "saddr", source)]),
      ...(port === undefined ? [] : [{ field: "th dport", value: port } as const]),
      ...(destination === "node" ? [IS_LOCAL] : []),
    ];
    if (allPackets) return leading(FIRST_CHAINS, TraceChain.traced, ...matches);
    const first = (op: "==" | "!="): FieldMatch =>
      protocol === "tcp"
        ? { field: "tcp flags", mask: ["syn", "ack"], op, value: "syn" }
        : { field: CHUNK, op, value: SCTP_INIT };
    // UDP packets do not show whether they open a connection.
    const isShown = protocol !== "udp";
    const tracked: FieldMatch = { field: "ct state", value: ["new", "invalid", "untracked"] };
    return [
      ...(isShown ? leading(FIRST_CHAINS, TraceChain.traced, ...matches, first("==")) : []),
      ...leading(TRACKED_CHAINS, TraceChain.traced, ...matches, tracked, ...(isShown ? [first("!=")] : [])),
    ];
  });
}

const NFPROTO = { ip: "ipv4", ip6: "ipv6" } as const;
/** ICMP messages "destination unreachable", and that a packet is too big (RFC 792, RFC 4443). In IPv4, this is a code of the other. */
const ICMP = {
  ip: { field: "icmp type", unreachable: "destination-unreachable", tooBig: "destination-unreachable" },
  ip6: { field: "icmpv6 type", unreachable: "destination-unreachable", tooBig: "packet-too-big" },
} as const;

function addressMatch(
  family: IpFamily,
  end: "saddr" | "daddr",
  value: string,
  of: "" | "ct original " = "",
): FieldMatch {
  return { field: `${of}${family} ${end}`, value };
}

/**
 * Replies that refuse connections to the selected destinations, or with `allPackets` all replies. A node port is matched by its number alone. This
 * includes unrelated packets, which the limit also covers, and for which no packet is printed.
 */
function replying({ family, protocols, destination, port }: TraceSelector, filter: TraceFilter): TraceRule[] {
  const { source, allPackets } = filter;
  const { field, unreachable, tooBig } = ICMP[family];
  const isNet = destination !== "any" && destination !== "node";
  const matches: FieldMatch[] = [
    { field: "ct direction", value: "reply" },
    ...(isNet ? [addressMatch(family, "daddr", destination, "ct original ")] : []),
    ...(source === undefined ? [] : [addressMatch(family, "saddr", source, "ct original ")]),
    ...(port === undefined ? [] : [{ field: "ct original proto-dst", value: port } as const]),
  ];
  const reset: FieldMatch = { field: "tcp flags", mask: ["rst"], op: "==", value: "rst" };
  const rules = (chain: string, ...first: readonly FieldMatch[]): TraceRule[] =>
    leading(TRACKED_CHAINS, chain, ...first, ...matches);
  return [
    // A message about a packet that this node has not translated back belongs to no connection.
    ...(allPackets ? leading(TRACKED_CHAINS, TraceChain.refusals, { field, value: tooBig } as FieldMatch) : []),
    ...(allPackets ? protocols : []).flatMap((value) => rules(TraceChain.replies, { field: "meta l4proto", value })),
    ...(protocols.includes("tcp") ? rules(TraceChain.refusals, { field: "meta l4proto", value: "tcp" }, reset) : []),
    ...rules(TraceChain.refusals, { field, value: unreachable }),
  ];
}
