/** Determines from its conntrack entry whether a connection was answered (IPS_SEEN_REPLY). */
import { setTimeout as sleep } from "node:timers/promises";
import { CONNTRACK_STATUS, type ConntrackEntry, type ConntrackTable } from "../../nft/conntrack/conntrack-table.js";
import { IpProto } from "../../base/protocols.js";
import type { FoldedPacket } from "./trace-fold.js";
import type { RefusalReplies } from "./refusal-replies.js";
import type { TracedReply } from "./traced-packet.js";

/**
 * Waits between two lookups of the entry, ms. An answer from this node comes at once, one from elsewhere within a
 * second.
 */
const WAITS_MS = [0, 10, 40, 100, 200, 300, 350] as const;

interface Answer {
  /** Absent if the wait was aborted, because an answer may still come. */
  readonly reply?: TracedReply;
  /** With "refused": "TCP reset", "ICMP port unreachable". */
  readonly refusal?: string;
  /** The conntrack entry as last seen. Absent if there was none. */
  readonly entry?: ConntrackEntry;
}

/**
 * Waits up to a second for the answer. If the kernel reported the id of the packet's conntrack entry, only that entry
 * counts, because another connection may have the same tuple.
 */
export async function awaitReply(
  conntrack: Pick<ConntrackTable, "lookup">,
  refusals: Pick<RefusalReplies, "of">,
  packet: Pick<FoldedPacket, "original" | "last" | "ctId">,
  signal: AbortSignal,
): Promise<Answer> {
  const { family, protocol, source, sourcePort, destination, destinationPort } = packet.original;
  const { ctId } = packet;
  const original = { source, sourcePort, destination, destinationPort, protocol: IpProto[protocol] };
  let last: ConntrackEntry | undefined;
  for (const waitMs of WAITS_MS) {
    if (waitMs > 0) await sleep(waitMs, undefined, { signal }).catch(() => undefined);
    const entry = await conntrack.lookup(family, original);
    if (entry !== undefined && (ctId === undefined || entry.id === ctId)) last = entry;
    if (last !== undefined && (last.status & CONNTRACK_STATUS.seenReply) !== 0) return { reply: "yes", entry: last };
    // The kernel deletes the entry of a connection whose only answer is a reset.
    const refusal = refusals.of(packet);
    const seen = last === undefined ? {} : { entry: last };
    if (refusal !== undefined) return { reply: "refused", refusal, ...seen };
    if (signal.aborted) return seen;
  }
  return last === undefined ? { reply: "untracked" } : { reply: "no", entry: last };
}
