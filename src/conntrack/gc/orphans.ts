/**
 * Orphans are translated entries to a current or former VIP or node port of ours, whose reply source is in no slice of
 * any service. UDP and SCTP orphans are also stale (stale-entries.ts), so only TCP orphans need a rule here. Pure.
 */
import { serviceProtocol } from "../../base/protocols.js";
import { IpProto } from "../../nft/kernel/constants.js";
import { isTranslated, ownerOf } from "../reconcile/stale-entries.js";
import type { Knowledge } from "../reconcile/stale-entries.js";
import type { ConntrackEntry } from "../../nft/conntrack/conntrack-table.js";

/**
 * Levels of purging orphans. Each level includes the ones before it. UDP and SCTP orphans are purged at every level but
 * `none`.
 *
 * - `spent`: also TCP connections that were never established or are over. No data can be lost. While such an entry
 *   exists, a client's next SYN from the same port goes to the endpoint that is gone.
 * - `closing`: also TCP connections that one side has closed. The other side may still send, because an endpoint can
 *   live on without being in a slice. These entries expire after one or two minutes of silence
 *   (nf_conntrack_tcp_timeout_fin_wait, _close_wait).
 * - `all`: also established TCP connections.
 */
export type OrphanPurge = "none" | "spent" | "closing" | "all";

/**
 * States in nf_conntrack_proto_tcp.c before the handshake is complete, and after both sides have closed or one has
 * reset.
 */
const SPENT: ReadonlySet<string> = new Set(["SYN_SENT", "SYN_SENT2", "SYN_RECV", "LAST_ACK", "TIME_WAIT", "CLOSE"]);
/** One side has sent its FIN, and the other has not. */
const HALF_CLOSED: ReadonlySet<string> = new Set(["FIN_WAIT", "CLOSE_WAIT"]);

export function isPurged({ original, state = "" }: ConntrackEntry, purge: OrphanPurge): boolean {
  if (original.protocol !== IpProto.tcp) return purge !== "none";
  switch (purge) {
    case "none":
      return false;
    case "spent":
      return SPENT.has(state);
    case "closing":
      return SPENT.has(state) || HALF_CLOSED.has(state);
    case "all":
      return true;
  }
}

/**
 * Returns whether the service of a possible orphan exists now or existed formerly. This service has no such endpoint;
 * the caller must still check the other services. Returns undefined if the entry cannot be an orphan.
 */
export function orphanOf(entry: ConntrackEntry, known: Knowledge): "now" | "former" | undefined {
  const protocol = serviceProtocol(entry.original.protocol);
  if (protocol === undefined || !isTranslated(entry)) return undefined;
  const owner = ownerOf(entry, protocol, known);
  const { source, sourcePort } = entry.reply;
  if (owner.kind === "now") {
    return known.endpointStates(owner.target).state(source, sourcePort) === "absent" ? "now" : undefined;
  }
  if (owner.kind !== "former") return undefined;
  return owner.target.endpoints?.has(`${source} ${sourcePort}`) === false ? undefined : "former";
}
