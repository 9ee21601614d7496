/**
 * Decides whether an entry of the connection tracking table may stay. Pure.
 * The rule is kube-proxy's (pkg/proxy/conntrack/cleanup.go, CleanStaleEntries). It applies to UDP entries whose
 * original destination is a VIP and port, or a node port, of a service with a serving endpoint. Such an entry is
 * deleted if its reply comes from no serving endpoint of the service. We also delete:
 *
 * - SCTP entries by the same rule;
 * - entries of a service without a serving endpoint, so that its clients are refused and learn of it;
 * - translated entries to an address that a service gave up, or that only the taken-over table had;
 * - TCP entries of services that ask for resets.
 *
 * Unlike kube-proxy, we treat a node port as ours only at this node's addresses, and the same endpoint address with
 * another port as another endpoint.
 */
import { type Protocol, serviceProtocol } from "../../base/protocols.js";
import type { IpFamily } from "../../base/ip.js";
import { NODE_PORT, type ServiceAddress } from "../../model/service-address.js";
import type { ServiceTarget } from "../../model/service-port-view.js";
import type { ConntrackEntry } from "../../nft/conntrack/conntrack-table.js";

/** serving: takes traffic. present: in some slice, but takes no traffic. absent: in no slice of the service. */
type EndpointState = "serving" | "present" | "absent";

export class EndpointStates {
  /** "address port" → whether it takes traffic. */
  readonly #states = new Map<string, boolean>();
  readonly anyServing: boolean;

  constructor({ endpoints, serving }: Pick<ServiceTarget, "endpoints" | "serving">) {
    endpoints.forEach(({ address, port }, i) => this.#states.set(`${address} ${port}`, serving[i] ?? false));
    this.anyServing = serving.includes(true);
  }

  state(address: string, port: number): EndpointState {
    const serves = this.#states.get(`${address} ${port}`);
    return serves === undefined ? "absent" : serves ? "serving" : "present";
  }
}

/** An address that a service once had and that no service has now. */
export interface FormerTarget {
  /** `found`: in the table that was taken over, but no service has it. */
  readonly cause: "deleted" | "changed" | "found";
  /** "address port" of the endpoints that its entries may have. Undefined if unknown: any endpoint is possible. */
  readonly endpoints: Pick<ReadonlySet<string>, "has"> | undefined;
}

/** Knowledge of one family's services, asked for one original destination at a time. Addresses are canonical. */
export interface Knowledge {
  readonly family: IpFamily;
  /** The service port that has an address now. */
  target(address: ServiceAddress): ServiceTarget | undefined;
  endpointStates(target: ServiceTarget): EndpointStates;
  former(address: ServiceAddress): FormerTarget | undefined;
  /** Whether node ports are served at this address. */
  isNodePortAddress(address: string): boolean;
}

/** Why an entry stays. */
export const KEPT = [
  /** Its original destination is not, and never was, a VIP or node port of ours. */
  "not-ours",
  /** It has a node port's number, but an address where this node serves no node ports. */
  "other-machine",
  /**
   * It is in a zone and was not translated. Our rules translate packets in any zone, so the entry is not from our
   * rules.
   */
  "other-zone",
  /** Its protocol is not UDP, SCTP or TCP. */
  "other-protocol",
  /** TCP of a service that does not ask for resets, or that is gone. */
  "tcp-no-reset",
  /** TCP to an endpoint that is still in a slice, even if it is terminating or not ready. */
  "tcp-endpoint-exists",
  /** TCP that has ended on its own (TIME_WAIT, CLOSE), so there is no client to inform. */
  "tcp-over",
  /** Its reply comes from an endpoint that takes traffic. */
  "endpoint-serves",
  /** No service has its destination now, and it was not translated, so it is not from our rules. */
  "former-not-translated",
  /**
   * No service has its destination now, and it was translated to an address that was no endpoint there: another program
   * did that.
   */
  "former-not-our-endpoint",
] as const;

/** Why an entry goes. */
export const DELETED = [
  /** kube-proxy's rule: the service has serving endpoints, and the reply comes from none of them. */
  "endpoint-gone",
  /** The same rule, but the entry was not translated, because it was created before the service had rules. */
  "not-translated",
  /** The service has no serving endpoint left. */
  "without-endpoints",
  /** Its service was deleted, or existed only in the table that was taken over. */
  "service-deleted",
  /** The service no longer has this VIP, port or node port. */
  "address-changed",
  /** TCP of a service that asks for resets, to an endpoint that is no longer in a slice. */
  "tcp-endpoint-gone",
] as const;

export type KeepReason = (typeof KEPT)[number];
export type DeleteReason = (typeof DELETED)[number];
type Decision =
  | { readonly action: "keep"; readonly reason: KeepReason }
  | { readonly action: "delete"; readonly reason: DeleteReason };

const keep = (reason: KeepReason): Decision => ({ action: "keep", reason });
const remove = (reason: DeleteReason): Decision => ({ action: "delete", reason });

/** States in nf_conntrack_proto_tcp.c in which a connection has ended. */
const TCP_OVER: ReadonlySet<string> = new Set(["TIME_WAIT", "CLOSE"]);

/** Whether the destination was rewritten. */
export function isTranslated({ original, reply }: ConntrackEntry): boolean {
  return reply.source !== original.destination || reply.sourcePort !== original.destinationPort;
}

/** Whether the entry is in the default zone in both directions. */
function isInDefaultZone({ zone, original, reply }: ConntrackEntry): boolean {
  return zone === 0 && (original.zone ?? 0) === 0 && (reply.zone ?? 0) === 0;
}

/** The current or former owner of the original destination. As in the rules, VIPs take precedence over node ports. */
type Owner =
  | { readonly kind: "now"; readonly target: ServiceTarget }
  | { readonly kind: "former"; readonly target: FormerTarget }
  | { readonly kind: "other-machine" }
  | { readonly kind: "none" };

export function ownerOf(entry: ConntrackEntry, protocol: Protocol, known: Knowledge): Owner {
  const { destination, destinationPort: port } = entry.original;
  const vip: ServiceAddress = { family: known.family, address: destination, protocol, port };
  const nodePort: ServiceAddress = { ...vip, address: NODE_PORT };
  const ofVip = known.target(vip);
  if (ofVip !== undefined) return { kind: "now", target: ofVip };
  const ofNodePort = known.target(nodePort);
  const served = known.isNodePortAddress(destination);
  if (ofNodePort !== undefined && served) return { kind: "now", target: ofNodePort };
  const formerVip = known.former(vip);
  if (formerVip !== undefined) return { kind: "former", target: formerVip };
  const formerNodePort = known.former(nodePort);
  if (formerNodePort !== undefined && served) return { kind: "former", target: formerNodePort };
  return { kind: ofNodePort === undefined && formerNodePort === undefined ? "none" : "other-machine" };
}

/** Decides on one entry, which must be of the family of `known`. */
export function decide(entry: ConntrackEntry, known: Knowledge): Decision {
  const protocol = serviceProtocol(entry.original.protocol);
  if (protocol === undefined) return keep("other-protocol");
  if (!isInDefaultZone(entry) && !isTranslated(entry)) return keep("other-zone");
  const owner = ownerOf(entry, protocol, known);
  switch (owner.kind) {
    case "none":
      return keep("not-ours");
    case "other-machine":
      return keep("other-machine");
    case "former":
      return protocol === "TCP" ? keep("tcp-no-reset") : decideFormer(entry, owner.target);
    case "now":
      return protocol === "TCP"
        ? decideTcp(entry, owner.target, known)
        : decideNow(entry, known.endpointStates(owner.target));
  }
}

function decideNow(entry: ConntrackEntry, endpoints: EndpointStates): Decision {
  const { source, sourcePort } = entry.reply;
  if (endpoints.state(source, sourcePort) === "serving") return keep("endpoint-serves");
  if (!endpoints.anyServing) return remove("without-endpoints");
  return remove(isTranslated(entry) ? "endpoint-gone" : "not-translated");
}

function decideTcp(entry: ConntrackEntry, target: ServiceTarget, known: Knowledge): Decision {
  if (!target.resetRemovedEndpoints) return keep("tcp-no-reset");
  const { source, sourcePort } = entry.reply;
  if (known.endpointStates(target).state(source, sourcePort) !== "absent") return keep("tcp-endpoint-exists");
  if (TCP_OVER.has(entry.state ?? "")) return keep("tcp-over");
  return isTranslated(entry) ? remove("tcp-endpoint-gone") : keep("tcp-no-reset");
}

function decideFormer(entry: ConntrackEntry, { cause, endpoints }: FormerTarget): Decision {
  if (!isTranslated(entry)) return keep("former-not-translated");
  const { source, sourcePort } = entry.reply;
  if (endpoints !== undefined && !endpoints.has(`${source} ${sourcePort}`)) return keep("former-not-our-endpoint");
  return remove(cause === "changed" ? "address-changed" : "service-deleted");
}
