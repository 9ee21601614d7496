/**
 * Whether an entry of the connection tracking table may stay. Pure. The rule is kube-proxy's (pkg/proxy/conntrack/cleanup.go,
 * CleanStaleEntries): a UDP entry whose original destination is a VIP and port, or a node port, of a service with at least
 * one serving endpoint, and whose reply does not come from one of them, goes. Beyond that go entries of SCTP, entries of a service
 * without a serving endpoint (its clients are refused, and learn it), translated entries to what a service has given up or what the table
 * that was taken over had and no service has, and TCP of services that ask for resets. Unlike there, a node port is ours at this node's
 * addresses alone, and the same endpoint address at another port is another endpoint.
 */
import { type Protocol, serviceProtocol } from "../../base/protocols.js";
import type { Endpoint } from "../../objects/endpoint-list.js";
import type { IpFamily } from "../../base/ip.js";
import type { ConntrackEntry } from "../table/conntrack-table.js";

/** serving: takes traffic. present: some slice names it, but it takes none. absent: no slice of the service names it. */
export type EndpointState = "serving" | "present" | "absent";

export class EndpointStates {
  /** "address port" → takes traffic. */
  readonly #states = new Map<string, boolean>();
  readonly anyServing: boolean;

  /** `serving` goes with `endpoints`. */
  constructor(endpoints: readonly Endpoint[], serving: readonly boolean[]) {
    endpoints.forEach(({ address, port }, i) => this.#states.set(`${address} ${port}`, serving[i] ?? false));
    this.anyServing = serving.includes(true);
  }

  state(address: string, port: number): EndpointState {
    const serves = this.#states.get(`${address} ${port}`);
    return serves === undefined ? "absent" : serves ? "serving" : "present";
  }
}

/** The service port that an original destination belongs to. */
export interface KnownTarget {
  readonly resetRemovedEndpoints: boolean;
  readonly endpoints: EndpointStates;
}

/** What a service had once and none has now. */
export interface FormerTarget {
  /** `found`: in the table that was taken over, and no service has it. */
  readonly cause: "deleted" | "changed" | "found";
  /** "address port" of the endpoints that its entries may have; undefined: not known, any. */
  readonly endpoints: Pick<ReadonlySet<string>, "has"> | undefined;
}

/** Knowledge of one family's services, asked for one original destination at a time. Addresses are canonical. */
export interface Knowledge {
  readonly family: IpFamily;
  vip(address: string, protocol: Protocol, port: number): KnownTarget | undefined;
  nodePort(protocol: Protocol, port: number): KnownTarget | undefined;
  formerVip(address: string, protocol: Protocol, port: number): FormerTarget | undefined;
  formerNodePort(protocol: Protocol, port: number): FormerTarget | undefined;
  /** Node ports answer there. */
  isNodePortAddress(address: string): boolean;
}

/** Why an entry stays. */
export const KEPT = [
  /** Its original destination is no VIP or node port that is or was ours. */
  "not-ours",
  /** A node port's number, but at an address where this node serves none. */
  "other-machine",
  /** In a zone, and not translated: not from our rules, which translate a packet in whatever zone another program puts it. */
  "other-zone",
  /** Neither UDP nor SCTP nor TCP. */
  "other-protocol",
  /** TCP of a service that does not ask for resets, or that is gone. */
  "tcp-no-reset",
  /** TCP whose endpoint is still named by a slice, be it terminating or not ready. */
  "tcp-endpoint-exists",
  /** TCP that has ended on its own (TIME_WAIT, CLOSE): there is no one to tell. */
  "tcp-over",
  /** Its reply comes from an endpoint that takes traffic. */
  "endpoint-serves",
  /** No service has its destination now, and it was not translated: it is not from our rules. */
  "former-not-translated",
  /** No service has its destination now, and it was translated to what was no endpoint there: another program did. */
  "former-not-our-endpoint",
] as const;

/** Why an entry goes. */
export const DELETED = [
  /** kube-proxy's rule: the service has serving endpoints, and the reply comes from none of them. */
  "endpoint-gone",
  /** The same rule, and the entry was not translated at all: it was made before the service had rules. */
  "not-translated",
  /** The service has no serving endpoint left. */
  "without-endpoints",
  /** Its service was deleted, or is in the table that was taken over alone. */
  "service-deleted",
  /** The service has this VIP, port or node port no more. */
  "address-changed",
  /** TCP, its service asks for it, and no slice names the endpoint any more. */
  "tcp-endpoint-gone",
] as const;

export type KeepReason = (typeof KEPT)[number];
export type DeleteReason = (typeof DELETED)[number];
export type Decision =
  | { readonly action: "keep"; readonly reason: KeepReason }
  | { readonly action: "delete"; readonly reason: DeleteReason };

const keep = (reason: KeepReason): Decision => ({ action: "keep", reason });
const remove = (reason: DeleteReason): Decision => ({ action: "delete", reason });

/** States of nf_conntrack_proto_tcp.c after which no packet is to come. */
const TCP_OVER: ReadonlySet<string> = new Set(["TIME_WAIT", "CLOSE"]);

/** Something on the way rewrote the destination. */
export function isTranslated({ original, reply }: ConntrackEntry): boolean {
  return reply.source !== original.destination || reply.sourcePort !== original.destinationPort;
}

/** Whether the entry is in the default zone, in both directions. */
function isInDefaultZone({ zone, original, reply }: ConntrackEntry): boolean {
  return zone === 0 && (original.zone ?? 0) === 0 && (reply.zone ?? 0) === 0;
}

/** Whose the original destination is, as of now or once. A VIP goes before a node port, as in the rules. */
export type Owner =
  | { readonly kind: "now"; readonly target: KnownTarget }
  | { readonly kind: "former"; readonly target: FormerTarget }
  | { readonly kind: "other-machine" }
  | { readonly kind: "none" };

export function ownerOf(entry: ConntrackEntry, protocol: Protocol, known: Knowledge): Owner {
  const { destination: address, destinationPort: port } = entry.original;
  const vip = known.vip(address, protocol, port);
  if (vip !== undefined) return { kind: "now", target: vip };
  const nodePort = known.nodePort(protocol, port);
  const served = known.isNodePortAddress(address);
  if (nodePort !== undefined && served) return { kind: "now", target: nodePort };
  const formerVip = known.formerVip(address, protocol, port);
  if (formerVip !== undefined) return { kind: "former", target: formerVip };
  const formerNodePort = known.formerNodePort(protocol, port);
  if (formerNodePort !== undefined && served) return { kind: "former", target: formerNodePort };
  return { kind: nodePort === undefined && formerNodePort === undefined ? "none" : "other-machine" };
}

/** The decision on one entry, of the family that is known. */
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
      return protocol === "TCP" ? decideTcp(entry, owner.target) : decideNow(entry, owner.target);
  }
}

function decideNow(entry: ConntrackEntry, { endpoints }: KnownTarget): Decision {
  const { source, sourcePort } = entry.reply;
  if (endpoints.state(source, sourcePort) === "serving") return keep("endpoint-serves");
  if (!endpoints.anyServing) return remove("without-endpoints");
  return remove(isTranslated(entry) ? "endpoint-gone" : "not-translated");
}

function decideTcp(entry: ConntrackEntry, target: KnownTarget): Decision {
  if (!target.resetRemovedEndpoints) return keep("tcp-no-reset");
  const { source, sourcePort } = entry.reply;
  if (target.endpoints.state(source, sourcePort) !== "absent") return keep("tcp-endpoint-exists");
  if (TCP_OVER.has(entry.state ?? "")) return keep("tcp-over");
  return isTranslated(entry) ? remove("tcp-endpoint-gone") : keep("tcp-no-reset");
}

function decideFormer(entry: ConntrackEntry, { cause, endpoints }: FormerTarget): Decision {
  if (!isTranslated(entry)) return keep("former-not-translated");
  const { source, sourcePort } = entry.reply;
  if (endpoints !== undefined && !endpoints.has(`${source} ${sourcePort}`)) return keep("former-not-our-endpoint");
  return remove(cause === "changed" ? "address-changed" : "service-deleted");
}
