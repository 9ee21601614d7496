/** Services as an operator asks for them, from the model as it is now. */
import { sortedInSlices, TimeSlice } from "../../base/time-slice.js";
import { weightsOf } from "../../model/balance/endpoint-balance.js";
import { type EndpointCounts } from "../../model/categorize.js";
import { READY, SERVING, TERMINATING } from "../../objects/endpoint-state.js";
import type { DescribedEndpoint } from "../../model/described-endpoints.js";
import type { EndpointList } from "../../objects/endpoint-list.js";
import type { ServiceModel } from "../../model/service-model.js";
import type { IpFamily } from "../../base/ip.js";
import type { ServicePortView } from "../../model/service-port-view.js";
import type { PortConnections, PortCounts } from "../../ruleset/connection-counts.js";
import { annotationStatus } from "./annotation-status.js";
import type { EndpointStatus, ServicePortStatus, ServiceState } from "../../observe/status-report.js";

export type ListedModel = Pick<
  ServiceModel,
  | "services"
  | "eachView"
  | "endpoints"
  | "endpointCounts"
  | "target"
  | "ownerOf"
  | "lostClaims"
  | "unbalanced"
  | "askedFor"
>;

/** A service's state in the kernel, which its objects do not tell. */
export interface ServiceStates {
  /** Written at least once since the start. */
  inForce(family: IpFamily): boolean;
  /** Why the kernel refuses "namespace/name"; undefined: it does not. */
  quarantineReason(family: IpFamily, service: string): string | undefined;
}

/** What has been counted of "namespace/name": tells it of a port of the service; undefined: nothing is. */
export interface ServiceConnections {
  connections(family: IpFamily, service: string): PortCounts;
  /** Between the two readings that it tells of. */
  readonly intervalMs: number | undefined;
}

const NOT_COUNTED: ServiceConnections = { connections: () => () => undefined, intervalMs: undefined };

/** Services that are told of, and what of them beside the model. */
export interface Listing {
  readonly model: ListedModel;
  readonly families: readonly IpFamily[];
  readonly states: ServiceStates;
  /** Default: nothing is counted. */
  readonly counted?: ServiceConnections;
}

/** Of a piece of the list: making it, and then writing it, are to be done in one turn of the event loop. ms */
const PIECE_MS = 3;

/** All service ports of the families, by name, some at a time; who takes them lets the event loop have its turns. */
export async function* servicesInPieces(listing: Listing, details: boolean): AsyncGenerator<ServicePortStatus[]> {
  const { model, families } = listing;
  const lost = lossesByService(model);
  const slice = new TimeSlice(PIECE_MS);
  const names = await sortedInSlices([...model.services()]);
  slice.begin();
  let piece: ServicePortStatus[] = [];
  for (const service of names) {
    for (const family of families) {
      for (const port of portsOf(listing, family, service, lost, details)) {
        piece.push(port);
        if (!slice.spent) continue;
        yield piece;
        piece = [];
        slice.begin();
      }
    }
    if (!slice.spent) continue;
    yield piece;
    piece = [];
    slice.begin();
  }
  yield piece;
}

export function isServed({ model, families }: Listing, service: string): boolean {
  return families.some((family) => model.eachView(family, service)[Symbol.iterator]().next().done !== true);
}

/** One service with its endpoints, some ports at a time; nothing: it is not served. */
export async function* describeService(listing: Listing, service: string): AsyncGenerator<ServicePortStatus[]> {
  const lost = lossesByService(listing.model);
  const slice = new TimeSlice(PIECE_MS);
  let piece: ServicePortStatus[] = [];
  for (const family of listing.families) {
    for (const port of portsOf(listing, family, service, lost, true)) {
      piece.push(port);
      if (!slice.spent) continue;
      yield piece;
      piece = [];
      slice.begin();
    }
  }
  if (piece.length > 0) yield piece;
}

function lossesByService(model: ListedModel): ReadonlyMap<string, string> {
  const lost = new Map<string, string>();
  for (const { object, field, reason } of model.lostClaims()) {
    if (!lost.has(object)) lost.set(object, `${field}: ${reason}`);
  }
  return lost;
}

function* portsOf(
  { model, states, counted = NOT_COUNTED }: Listing,
  family: IpFamily,
  service: string,
  lost: ReadonlyMap<string, string>,
  details: boolean,
): Generator<ServicePortStatus, void> {
  const counts = model.endpointCounts(family, service)[Symbol.iterator]();
  const endpoints = details ? model.endpoints(family, service)[Symbol.iterator]() : undefined;
  const connections = counted.connections(family, service);
  const asked = model.askedFor(service);
  const ignored = asked?.balance === undefined ? undefined : ignoredBalance(model, service);
  for (const view of model.eachView(family, service)) {
    const count = counts.next().value ?? NO_ENDPOINTS;
    const port = connections(view);
    const described: readonly DescribedEndpoint[] = endpoints?.next().value ?? [];
    yield {
      ...statusOf(family, view, count, port),
      ...annotationStatus(family, view, asked),
      ...rateOf(port, counted),
      ...stateOf(family, view, count, states, lost, view.balance === undefined ? ignored : undefined),
      ...(details && {
        endpoints: endpointsOf(view, described, drainingOf(model, family, view, described), port?.endpoints),
      }),
    };
  }
}

const NO_ENDPOINTS: EndpointCounts = { ready: 0, serving: 0, total: 0 };

/** Why the service's slots are not written; undefined: they are. */
function ignoredBalance(model: ListedModel, service: string): string | undefined {
  for (const { object, field, reason } of model.unbalanced()) if (object === service) return `${field}: ${reason}`;
  return undefined;
}

function statusOf(
  family: IpFamily,
  view: ServicePortView,
  counts: EndpointCounts,
  port: PortConnections | undefined,
): Omit<ServicePortStatus, "state"> {
  const [namespace = "", name = ""] = view.service.split("/");
  return {
    namespace,
    name,
    portName: view.portName,
    protocol: view.protocol,
    port: view.port,
    family,
    clusterIP: view.clusterIP,
    externalIPs: view.externalIPs,
    loadBalancerIPs: view.loadBalancerIPs,
    nodePort: view.nodePort,
    internalTrafficPolicy: policy(view.internalPolicyLocal),
    externalTrafficPolicy: policy(view.externalPolicyLocal),
    affinitySeconds: view.affinitySeconds,
    resetRemovedEndpoints: view.resetRemovedEndpoints || undefined,
    ...counts,
    connections: port?.connections,
  };
}

function policy(local: boolean): "Cluster" | "Local" {
  return local ? "Local" : "Cluster";
}

/** The worst that is to be said of it. */
function stateOf(
  family: IpFamily,
  view: ServicePortView,
  counts: EndpointCounts,
  states: ServiceStates,
  lost: ReadonlyMap<string, string>,
  ignored: string | undefined,
): { readonly state: ServiceState; readonly reason?: string } {
  const refusal = states.quarantineReason(family, view.service);
  if (refusal !== undefined) return { state: "quarantined", reason: refusal };
  if (!states.inForce(family)) return { state: "pending", reason: "the rules have not been written since the start" };
  const loss = lost.get(view.service);
  if (loss !== undefined) return { state: "shadowed", reason: loss };
  if (!view.hasAnyEndpoint) return { state: "rejected", reason: "no endpoint on any node is ready" };
  const drops = dropsHere(view);
  if (drops !== undefined) return { state: "no-local-endpoint", reason: drops };
  if (counts.ready > 0) return { state: "in-force", reason: ignored };
  const many =
    counts.serving === 1
      ? "the endpoint that terminates and still serves"
      : `the ${counts.serving} endpoints that terminate and still serve`;
  return { state: "in-force", reason: `no endpoint is ready: new connections go to ${many}` };
}

/** What a policy Local drops on this node; undefined: nothing. There are endpoints on other nodes. */
function dropsHere(view: ServicePortView): string | undefined {
  if (view.localEndpoints.length > 0) return undefined;
  const { internalPolicyLocal, externalPolicyLocal, clusterIP, nodePort, externalIPs, loadBalancerIPs } = view;
  const outside = [
    ...(nodePort === 0 ? [] : [`node port ${nodePort}`]),
    ...(externalIPs.length + loadBalancerIPs.length === 0 ? [] : ["its external addresses"]),
  ];
  const dropped = [
    ...(externalPolicyLocal && outside.length > 0 ? [`from outside the cluster to ${outside.join(" and ")}`] : []),
    ...(internalPolicyLocal && clusterIP !== undefined ? ["to its ClusterIP"] : []),
  ];
  if (dropped.length === 0) return undefined;
  return `policy Local, and no endpoint is on this node: connections ${dropped.join(", and ")} are dropped`;
}

function rateOf(
  port: PortConnections | undefined,
  { intervalMs }: ServiceConnections,
): Pick<ServicePortStatus, "connectionsPerSecond"> {
  // One that began anew has none.
  if (port === undefined || intervalMs === undefined || port.connections < port.before) return {};
  return { connectionsPerSecond: Math.round(((port.connections - port.before) / intervalMs) * 1e5) / 100 };
}

function endpointsOf(
  view: ServicePortView,
  endpoints: readonly DescribedEndpoint[],
  draining: ReadonlySet<string>,
  counted: ReadonlyMap<string, number> | undefined,
): EndpointStatus[] {
  const cluster = sharesIn(view.clusterEndpoints, view);
  const local = sharesIn(view.localEndpoints, view);
  return endpoints.map(({ address, port, local: isLocal, state, pod, node, zone, hints }) => {
    const key = `${address} ${port}`;
    return {
      ...{ address, port, local: isLocal },
      ...{ ready: has(state, READY), serving: has(state, SERVING), terminating: has(state, TERMINATING) },
      draining: draining.has(key) || undefined,
      pod: pod || undefined,
      node: node || undefined,
      zone: zone || undefined,
      ...(hints.nodes.length > 0 && { forNodes: hints.nodes }),
      ...(hints.zones.length > 0 && { forZones: hints.zones }),
      ...{ clusterShare: cluster.get(key) ?? 0, localShare: local.get(key) ?? 0 },
      connections: counted && (counted.get(key) ?? 0),
    };
  });
}

const NONE: ReadonlySet<string> = new Set();

/** "address port" of those whose connections are kept though they terminate. */
function drainingOf(
  model: ListedModel,
  family: IpFamily,
  view: ServicePortView,
  endpoints: readonly DescribedEndpoint[] = [],
): ReadonlySet<string> {
  if (!endpoints.some(({ state }) => has(state, TERMINATING))) return NONE;
  const target = model.target(family, view.service, "port", view.protocol, view.port);
  const kept = target?.endpoints.filter((_, i) => target.draining?.[i]) ?? [];
  return new Set(kept.map(({ address, port }) => `${address} ${port}`));
}

function has(state: number, condition: number): boolean {
  return (state & condition) !== 0;
}

/** By "address port": of new connections that draw from the list. */
function sharesIn(list: EndpointList, { balance }: ServicePortView): ReadonlyMap<string, number> {
  const weights = balance && weightsOf(list, balance);
  const total = weights?.reduce((sum, weight) => sum + weight, 0) ?? list.length;
  let index = 0;
  return new Map(Array.from(list, ({ address, port }) => [`${address} ${port}`, (weights?.[index++] ?? 1) / total]));
}
