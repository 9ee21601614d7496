/** What `trace` tells of a packet; versioned as JSON. */
import type { Transport } from "../explain/packet.js";
import type { IpFamily } from "../../base/ip.js";
import type { TraceTuple } from "./headers.js";
import type { DropReason } from "./reasons.js";

/**
 * accepted: it left this node; delivered: to a socket of this node; rejected: with an error to the sender; dropped: without a word;
 * vanished: accepted by every rule, and yet seen by no hook behind (no route, rp_filter, forwarding, rules outside of nf_tables);
 * queued: a program has it (NFQUEUE); unknown: messages about it were lost.
 */
export type TracedVerdict = "accepted" | "delivered" | "rejected" | "dropped" | "vanished" | "queued" | "unknown";

/** Who ended it, or saw it last. */
export interface TracedBy {
  /** "inet filter". */
  readonly table: string;
  readonly chain: string;
  /** "forward"; "": the chain is gone by now. */
  readonly hook: string;
  /** Handle, as `nft -a list chain` shows it; absent: the chain's policy, or its end. */
  readonly rule?: string;
  /** Why a rule of this program's own dropped or rejected it. */
  readonly reason?: DropReason;
}

/**
 * yes: the other side answered (conntrack); refused: with a TCP reset or an ICMP error; no: not within a second; untracked: there is no
 * conntrack entry, and no refusal was seen.
 */
export type TracedReply = "yes" | "refused" | "no" | "untracked";

export interface TracedPacket {
  /** Unix ms. */
  readonly at: number;
  readonly family: IpFamily;
  readonly protocol: Transport;
  /** As it came in. */
  readonly packet: TraceTuple;
  /** As the other side sees it; absent: nothing was rewritten. Its destination is the endpoint that was drawn. */
  readonly translated?: TraceTuple;
  /** The source was rewritten. */
  readonly masqueraded: boolean;
  /** Names of interfaces; absent: this node sent it; it went no further, or to a socket here. */
  readonly in?: string;
  readonly out?: string;
  readonly verdict: TracedVerdict;
  /** With every verdict but accepted and delivered. */
  readonly by?: TracedBy;
  /** With accepted and delivered. */
  readonly reply?: TracedReply;
  /** With the reply "refused": "TCP reset", "ICMP port unreachable". */
  readonly refusal?: string;
}

/** How it went. */
export interface TraceTotals {
  /** That the filter matched, while the rules could count them. */
  readonly matched: number;
  /** Messages were lost that often. */
  readonly losses: number;
}

/** No packet of these ends where it was to go. */
export function isDropped({ verdict }: TracedPacket): boolean {
  return verdict === "rejected" || verdict === "dropped" || verdict === "vanished";
}
