/**
 * Selects packets to trace, and builds the table whose rules mark them (`meta nftrace set 1`). After that, the kernel
 * reports what the rules of every table do with the packet (NFNLGRP_NFTRACE). Pure.
 */
import type { Transport } from "../explain/packet-spec.js";
import { Hook, TableFlag } from "../../netlink/constants.js";
import type { Op, TableRef } from "../../netlink/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { lowerRule, type Match, type Statement } from "../../table/table-exports.js";

export interface TraceSelector {
  readonly family: IpFamily;
  /** At least one. */
  readonly protocols: readonly Transport[];
  /** Canonical addresses and CIDRs. "node": any address of this node, as for node ports. "any": everything. */
  readonly destinations: readonly string[] | "node" | "any";
  /** Empty: all ports. */
  readonly ports: readonly number[];
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

/**
 * Operations that create the table. It disappears with the netlink socket that commits them (NFT_TABLE_F_OWNER, Linux
 * 5.12).
 */
export function traceOps(ref: TableRef, filter: TraceFilter): Op[] {
  const rules = new Rules(ref);
  const ops: Op[] = [{ op: "create", kind: "table", ...ref, flags: TableFlag.owner }];
  const chain = (name: string, hook?: number, priority = 0): void => {
    const base = hook === undefined ? {} : { base: { type: "filter", hook, priority, policy: "accept" } as const };
    ops.push({ op: "add", kind: "chain", ...ref, chain: name, ...base });
  };
  chain(TraceChain.traced);
  if (filter.allPackets) chain(TraceChain.replies);
  chain(TraceChain.refusals);
  chain(TraceChain.preroutingFirst, Hook.prerouting, FIRST);
  chain(TraceChain.outputFirst, Hook.output, FIRST);
  chain(TraceChain.preroutingTracked, Hook.prerouting, TRACKED);
  chain(TraceChain.outputTracked, Hook.output, TRACKED);
  chain(TraceChain.inputLast, Hook.input, LAST);
  chain(TraceChain.postroutingLast, Hook.postrouting, LAST);
  rules.mark(filter);
  for (const selector of filter.selectors) {
    rules.of(selector, filter);
    rules.refusalsOf(selector, filter);
  }
  return [...ops, ...rules.ops];
}

/** Whole networks restrict a rule to one family, regardless of its other matches. */
const ANYWHERE = { ip: "0.0.0.0/0", ip6: "::/0" } as const;

function matchesOf(selector: TraceSelector, protocol: Transport, source: string | undefined): Match[] {
  const { family, destinations, ports } = selector;
  const nets = typeof destinations === "string" ? [ANYWHERE[family]] : destinations;
  return [
    { match: "address", direction: "destination", nets },
    { match: "protocol", protocol },
    ...(source === undefined ? [] : [{ match: "address", direction: "source", nets: [source] } as const]),
    ...(ports.length === 0 ? [] : [{ match: "port", direction: "destination", ports } as const]),
    ...(destinations === "node" ? [{ match: "address-type", direction: "destination", type: "local" } as const] : []),
  ];
}

/** Type of the ICMP message "destination unreachable" (RFC 792, RFC 4443). */
const UNREACHABLE = { ip: { version: 4, type: 3 }, ip6: { version: 6, type: 1 } } as const;
/** Type of the ICMP message that a packet is too big. In IPv4, it is a code of "destination unreachable". */
const TOO_BIG = { ip: UNREACHABLE.ip, ip6: { version: 6, type: 2 } } as const;

/** Matches replies that refuse a connection: one list per way to refuse. */
function refusing({ family, protocols }: TraceSelector): Statement[][] {
  const reset: Match = { match: "tcp-flags", among: ["rst"], set: ["rst"] };
  return [
    ...(protocols.includes("tcp") ? [[{ match: "protocol", protocol: "tcp" } as const, reset]] : []),
    [{ match: "icmp", ...UNREACHABLE[family] } as const],
  ];
}

/**
 * Matches packets that open a connection, or with `negate` all others. Returns undefined if the protocol's packets do
 * not show it.
 */
function opening(protocol: Transport, negate: boolean): Statement[] | undefined {
  const op = negate ? "!=" : "==";
  if (protocol === "tcp") return [{ field: "tcp flags", mask: ["syn", "ack"], op, value: "syn" }];
  // The type of the first chunk.
  if (protocol === "sctp")
    return [{ field: { field: "raw", base: "transport", offset: 96, length: 8 }, op, value: SCTP_INIT }];
  return undefined;
}

const FIRST_CHAINS = [TraceChain.preroutingFirst, TraceChain.outputFirst];
const TRACKED_CHAINS = [TraceChain.preroutingTracked, TraceChain.outputTracked];

class Rules {
  readonly ops: Op[] = [];
  readonly #ref: TableRef;
  #sets = 0;

  constructor(ref: TableRef) {
    this.#ref = ref;
  }

  /** One limit for all packets, which are counted before it, and one for all refusals. */
  mark({ allPackets }: TraceFilter): void {
    const limit = { action: "limit", rate: PACKETS_PER_SECOND, per: "second", burst: PACKETS_PER_SECOND } as const;
    const trace = { action: "set", field: "meta nftrace", value: 1 } as const;
    for (const chain of markingChains(allPackets)) {
      this.#rule(chain, { action: "counter" });
      this.#rule(chain, limit, trace);
    }
    this.#rule(TraceChain.refusals, limit, trace);
  }

  of(selector: TraceSelector, { source, allPackets }: TraceFilter): void {
    for (const protocol of selector.protocols) {
      const matches = matchesOf(selector, protocol, source);
      const first = allPackets ? [] : opening(protocol, false);
      if (first !== undefined) this.#both(FIRST_CHAINS, TraceChain.traced, [...matches, ...first]);
      if (allPackets) continue;
      // Packets that connection tracking has not seen yet or cannot assign.
      const tracked: Statement[] = [...matches, { match: "ct-state", states: ["new", "invalid", "untracked"] }];
      this.#both(TRACKED_CHAINS, TraceChain.traced, [...tracked, ...(opening(protocol, true) ?? [])]);
    }
  }

  /**
   * Matches replies that refuse connections to the selected destinations. A node port is matched by its number alone. This includes
   * unrelated packets, which the limit also covers, and for which no packet is printed.
   */
  refusalsOf(selector: TraceSelector, { source, allPackets }: TraceFilter): void {
    const { family, protocols, destinations, ports } = selector;
    const original = (direction: "source" | "destination", nets: readonly string[]): Match[] =>
      nets.length === 0 ? [] : [{ match: "address", direction, nets, ct: "original" }];
    const replies = allPackets ? protocols.map((protocol): Statement[] => [{ match: "protocol", protocol }]) : [];
    // A message about a packet that this node has not translated back belongs to no connection.
    if (allPackets) this.#both(TRACKED_CHAINS, TraceChain.refusals, [{ match: "icmp", ...TOO_BIG[family] }]);
    const kinds = [
      ...replies.map((kind) => [TraceChain.replies, kind] as const),
      ...refusing(selector).map((kind) => [TraceChain.refusals, kind] as const),
    ];
    for (const number of ports.length === 0 ? [undefined] : ports) {
      const port: Statement[] = number === undefined ? [] : [{ field: "ct original proto-dst", value: number }];
      for (const [chain, kind] of kinds) {
        const matches: Statement[] = [
          ...kind,
          { match: "ct-direction", direction: "reply" },
          ...original("destination", typeof destinations === "string" ? [] : destinations),
          ...original("source", source === undefined ? [] : [source]),
        ];
        this.#both(TRACKED_CHAINS, chain, [...matches, ...port]);
      }
    }
  }

  #both(chains: readonly string[], to: string, matches: readonly Statement[]): void {
    for (const chain of chains)
      this.#rule(chain, ...matches, { action: "verdict", verdict: { verdict: "goto", chain: to } });
  }

  #rule(chain: string, ...statements: readonly Statement[]): void {
    const { exprs, anonymous } = lowerRule({ statements }, { family: this.#ref.family });
    const before = this.#sets;
    for (const { info, elements } of anonymous) {
      const id = ++this.#sets;
      this.ops.push({ op: "add", kind: "set", ...this.#ref, ...info, id });
      this.ops.push({ op: "add", kind: "elements", ...this.#ref, set: info.set, setId: id, elements });
    }
    const renumbered = exprs.map((expr) =>
      expr.type === "lookup" && expr.setId !== undefined ? { ...expr, setId: expr.setId + before } : expr,
    );
    this.ops.push({ op: "add", kind: "rule", ...this.#ref, chain, exprs: renumbered });
  }
}
