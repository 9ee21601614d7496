/** The report of `trace` on a packet. The JSON is versioned. */
import type { Transport } from "../explain/machine/packet-spec.js";
import type { IpFamily } from "../../base/ip.js";
import type { PacketFacts, TraceTuple } from "./trace-headers.js";
import type { DropReason } from "./drop-reasons.js";

/**
 * - accepted: left this node.
 * - delivered: reached a socket of this node.
 * - rejected: with an error to the sender.
 * - dropped: silently.
 * - vanished: accepted by every rule, but seen by no later hook (no route, rp_filter, forwarding, rules outside
 *   nf_tables).
 * - queued: passed to a program (NFQUEUE).
 * - unknown: messages about it were lost.
 */
export type TracedVerdict = "accepted" | "delivered" | "rejected" | "dropped" | "vanished" | "queued" | "unknown";

/** The chain that ended it, or saw it last. */
export interface TracedBy {
  /** "inet filter". */
  readonly table: string;
  readonly chain: string;
  /** "forward". "" if the chain no longer exists. */
  readonly hook: string;
  /** Handle, as in `nft -a list chain`. Absent for the chain's policy, or its end. */
  readonly rule?: string;
  /** Why a rule of this program dropped or rejected it. */
  readonly reason?: DropReason;
}

/**
 * - yes: the other side answered (conntrack).
 * - refused: with a TCP reset or an ICMP error.
 * - no: not within a second.
 * - untracked: there is no conntrack entry, and no refusal was seen.
 */
export type TracedReply = "yes" | "refused" | "no" | "untracked";

/** Without `--all-packets`, it opens a connection or belongs to none, and has no facts. */
export interface TracedPacket extends Partial<PacketFacts> {
  /** Unix time, ms. */
  readonly at: number;
  readonly family: IpFamily;
  readonly protocol: Transport;
  /** Absent: it is of the direction in which the connection was opened, and no other packets are traced. */
  readonly direction?: "original" | "reply";
  /** As it came in. For a packet of the reply direction, this and `translated` are those of the packets that it answers. */
  readonly packet: TraceTuple;
  /** As the other side sees it. Its destination is the chosen endpoint. Absent if nothing was rewritten. */
  readonly translated?: TraceTuple;
  readonly masqueraded: boolean;
  /**
   * Names of interfaces. `in` is absent if this node sent it; `out` is absent if it went no further, or to a socket
   * here.
   */
  readonly in?: string;
  readonly out?: string;
  readonly verdict: TracedVerdict;
  /** Set for every verdict except accepted and delivered. */
  readonly by?: TracedBy;
  /** Set for accepted and delivered. */
  readonly reply?: TracedReply;
  /** Set for the reply "refused": "TCP reset", "ICMP port unreachable". */
  readonly refusal?: string;
}

/** Totals of a trace. */
export interface TraceTotals {
  /** Packets that matched the filter, as counted by the rules. */
  readonly matched: number;
  /** Number of times that messages were lost. */
  readonly losses: number;
}

/** Whether the packet did not reach its destination. */
export function isDropped({ verdict }: TracedPacket): boolean {
  return verdict === "rejected" || verdict === "dropped" || verdict === "vanished";
}
