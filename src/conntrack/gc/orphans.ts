/**
 * Orphans: entries that were translated, whose original destination is or was a VIP or node port of ours, and whose reply
 * source no slice of any service names. Those of UDP and SCTP are stale as well (decide.ts); what is left are TCP's. Pure.
 */
import { serviceProtocol } from "../../base/protocols.js";
import { IpProto } from "../../netlink/constants.js";
import { isTranslated, ownerOf } from "../reconcile/decide.js";
import type { Knowledge } from "../reconcile/decide.js";
import type { ConntrackEntry } from "../table/conntrack-table.js";

/**
 * Which orphans go, each with those before it; those of UDP and SCTP unless it is `none`.
 *
 * - `spent`: TCP that has not come to be, or is over. Nothing can be lost, and while such an entry is there a client's next SYN
 *   from the same port goes to the endpoint that is gone.
 * - `closing`: also TCP that one side has closed. The other one may still send: an endpoint may live on in no slice. They end
 *   by themselves after one or two minutes of silence (nf_conntrack_tcp_timeout_fin_wait, _close_wait).
 * - `all`: also established TCP.
 */
export type OrphanPurge = "none" | "spent" | "closing" | "all";

/** States of nf_conntrack_proto_tcp.c before the handshake is done, and after both sides have closed or one has reset. */
const SPENT: ReadonlySet<string> = new Set(["SYN_SENT", "SYN_SENT2", "SYN_RECV", "LAST_ACK", "TIME_WAIT", "CLOSE"]);
/** One side has sent its FIN, and the other has not. */
const HALF_CLOSED: ReadonlySet<string> = new Set(["FIN_WAIT", "CLOSE_WAIT"]);

/** Whether an orphan goes. */
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
 * Whose an entry is that may be an orphan: its own service has no such endpoint. Whether another one has is to be asked yet.
 * Undefined: it is none.
 */
export function orphanOf(entry: ConntrackEntry, known: Knowledge): "now" | "former" | undefined {
  const protocol = serviceProtocol(entry.original.protocol);
  if (protocol === undefined || !isTranslated(entry)) return undefined;
  const owner = ownerOf(entry, protocol, known);
  const { source, sourcePort } = entry.reply;
  if (owner.kind === "now") {
    return owner.target.endpoints.state(source, sourcePort) === "absent" ? "now" : undefined;
  }
  if (owner.kind !== "former") return undefined;
  return owner.target.endpoints?.has(`${source} ${sourcePort}`) === false ? undefined : "former";
}
