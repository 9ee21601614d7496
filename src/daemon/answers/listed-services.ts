/** Describes services for operators, from the current model. */
import { runInSlices, sortedInPieces, TimeSlice, yieldToEventLoop } from "../../base/time-slice.js";
import { weightsOf } from "../../model/balance/endpoint-balance.js";
import { countStates, drainingAmong, type EndpointCounts } from "../../model/categorize-endpoints.js";
import { NOT_SAID } from "../../objects/endpoint-details.js";
import { NO_HINTS, READY, SERVING, TERMINATING } from "../../objects/endpoint-state.js";
import type { EndpointList } from "../../objects/endpoint-list.js";
import type { EndpointColumns } from "../../objects/records.js";
import type { ServiceModel } from "../../model/service-model.js";
import type { IpFamily } from "../../base/ip.js";
import type { Problem, ServicePortView } from "../../model/service-port-view.js";
import { type ConnectionCounts, NOT_COUNTED } from "../../ruleset/connection-counts.js";
import { clusterIPsAmong } from "../../model/slices.js";
import { annotationStatus } from "./annotation-status.js";
import {
  compareServices,
  type EndpointStatus,
  type ServicePortStatus,
  type ServiceState,
} from "../../observe/status-report.js";

export type ListedModel = Pick<
  ServiceModel,
  | "services"
  | "eachView"
  | "eachViewWithCandidates"
  | "ownerOf"
  | "lostClaims"
  | "unbalanced"
  | "askedFor"
  | "clusterIPs"
>;

/** A service's state in the kernel, which does not follow from its objects. */
export interface ServiceStates {
  /** Whether the family's rules have been written since startup. */
  active(family: IpFamily): boolean;
  /** Returns why the kernel rejects the service ("namespace/name"), or undefined if it accepts it. */
  quarantineReason(family: IpFamily, service: string): string | undefined;
}

/** Connections that the kernel counted. */
interface ServiceConnections {
  connections(family: IpFamily, service: string): ConnectionCounts;
  /** Time between the last two readings. */
  readonly intervalMs: () => number | undefined;
  /** Refused connections of the service port, and of each endpoint by "address port". Undefined if there are none. */
  refusalsOf(family: IpFamily, view: ServicePortView): PortRefusals | undefined;
}

export interface PortRefusals extends Pick<ServicePortStatus, "refusals" | "refusalAgesMs" | "refusalsIncomplete"> {
  readonly byEndpoint: ReadonlyMap<string, number>;
}

/** The services to describe, and the sources of facts that the model lacks. */
export interface Listing {
  readonly model: ListedModel;
  readonly families: readonly IpFamily[];
  readonly states: ServiceStates;
  /** Default: nothing is counted. */
  readonly counted?: ServiceConnections;
}

/** Time to create a piece of the list, which is then written in the same turn of the event loop, ms. */
const PIECE_MS = 3;

/** Yields all service ports by service, family and port number, some at a time. The consumer yields to the event loop between two pieces. */
export async function* servicesInPieces(listing: Listing, withEndpoints: boolean): AsyncGenerator<ServicePortStatus[]> {
  const services = sortedInPieces([...listing.model.services()], compareServices);
  yield* piecesOf(listing, await runInSlices(services), withEndpoints);
}

export function isServed({ model, families }: Listing, service: string): boolean {
  return families.some((family) => model.eachView(family, service)[Symbol.iterator]().next().done !== true);
}

/** Yields one service with its endpoints, some ports at a time, or nothing if it is not served. */
export function describeService(listing: Listing, service: string): AsyncGenerator<ServicePortStatus[]> {
  return piecesOf(listing, [service], true, listing.model.clusterIPs());
}

async function* piecesOf(
  listing: Listing,
  services: readonly string[],
  withEndpoints: boolean,
  /** The service of each ClusterIP. Not for lists, because each endpoint is looked up. */
  clusterIPs?: ReadonlyMap<string, string>,
): AsyncGenerator<ServicePortStatus[]> {
  const reasonsOf = await reasonsIn(listing.model);
  const slice = new TimeSlice(PIECE_MS);
  let piece: ServicePortStatus[] = [];
  for (const service of services) {
    for (const port of portsOf(listing, service, reasonsOf(service), withEndpoints, clusterIPs)) {
      if (port !== undefined) piece.push(port);
      if (!slice.spent) continue;
      yield piece;
      piece = [];
      slice.begin();
    }
  }
  if (piece.length > 0) yield piece;
}

/** Returns each service's ports without endpoints; none if it is not served. Yields to the event loop in between. */
export async function portsByService(
  listing: Listing,
  services: Iterable<string>,
): Promise<Map<string, ServicePortStatus[]>> {
  const found = new Map<string, ServicePortStatus[]>();
  for (const service of services) found.set(service, []);
  for await (const piece of piecesOf(listing, [...found.keys()], false)) {
    for (const port of piece) found.get(`${port.namespace}/${port.name}`)?.push(port);
    await yieldToEventLoop();
  }
  return found;
}

/** Returns the services that have an endpoint with this text in its address or in its pod's name, at most `most` of them. */
export async function servicesWithEndpoint(
  { model, families }: Listing,
  text: string,
  most: number,
): Promise<string[]> {
  const slice = new TimeSlice(PIECE_MS);
  const found = new Set<string>();
  for (const service of model.services()) {
    for (const family of families) {
      if (found.has(service)) break;
      for (const [, candidates] of model.eachViewWithCandidates(family, service)) {
        if (hasEndpoint(candidates, text)) found.add(service);
        if (slice.spent) await slice.yield();
      }
    }
    if (found.size >= most) break;
  }
  return [...found];
}

function hasEndpoint({ endpoints, details }: EndpointColumns, text: string): boolean {
  for (const { address } of endpoints) if (address.includes(text)) return true;
  return details?.all(endpoints.length).some(({ pod }) => pod.includes(text)) ?? false;
}

/** Returns a function that returns the reasons of a service. */
export async function reasonsIn(
  model: Pick<ServiceModel, "lostClaims" | "unbalanced">,
): Promise<(service: string) => Reasons> {
  const lost = await reasonsByService(model.lostClaims());
  const ignored = await reasonsByService(model.unbalanced());
  return (service) => ({ lost: lost.get(service), ignored: ignored.get(service) });
}

/** Returns the text of each service's first problem. */
async function reasonsByService(problems: Iterable<Problem>): Promise<ReadonlyMap<string, string>> {
  const slice = new TimeSlice(PIECE_MS);
  const reasons = new Map<string, string>();
  for (const { object, field, reason } of problems) {
    if (!reasons.has(object)) reasons.set(object, `${field}: ${reason}`);
    if (slice.spent) await slice.yield();
  }
  return reasons;
}

/** Reasons why a service does not serve as its objects ask. */
interface Reasons {
  /** Undefined unless another service has an address that this one claims. */
  readonly lost: string | undefined;
  /** Undefined unless the slots of its balance annotations are not written. */
  readonly ignored: string | undefined;
  /** Undefined unless an endpoint is a ClusterIP. */
  readonly unreachable?: string | undefined;
}

/** Also yields undefined after each family, because a service may have no port there, and the caller must check its time slice. */
function* portsOf(
  { model, families, states, counted }: Listing,
  service: string,
  reasons: Reasons,
  withEndpoints: boolean,
  clusterIPs?: ReadonlyMap<string, string>,
): Generator<ServicePortStatus | undefined, void> {
  const asked = model.askedFor(service);
  for (const family of families) {
    const { ofPort, ofEndpoints } = counted?.connections(family, service) ?? NOT_COUNTED;
    for (const [view, candidates] of model.eachViewWithCandidates(family, service)) {
      const counts = countStates(candidates);
      const connections = ofPort(view);
      const intervalMs = counted?.intervalMs();
      const { byEndpoint, ...refusals }: Partial<PortRefusals> = counted?.refusalsOf(family, view) ?? {};
      const [unreachable] = clusterIPs === undefined ? [] : clusterIPsAmong(candidates.endpoints, clusterIPs);
      yield {
        ...statusOf(family, view, counts),
        connections: connections?.[0],
        ...annotationStatus(family, view, asked),
        connectionsPerSecond: rateOf(connections, intervalMs),
        rateMs: intervalMs,
        ...refusals,
        ...stateOf(family, view, counts, states, { ...reasons, unreachable }),
        endpoints: withEndpoints
          ? endpointsOf(view, candidates, asked?.drainSeconds ?? 0, ofEndpoints(view), byEndpoint)
          : undefined,
      };
    }
    yield undefined;
  }
}

function statusOf(family: IpFamily, view: ServicePortView, counts: EndpointCounts): Omit<ServicePortStatus, "state"> {
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
    sourceRanges: view.sourceRanges,
    otherSourceRanges: view.guards?.flatMap(({ address, sources }) =>
      sources.map(({ sourceRanges }) => ({ address, sourceRanges })),
    ),
    resetRemovedEndpoints: view.resetRemovedEndpoints || undefined,
    ...counts,
  };
}

function policy(local: boolean): "Cluster" | "Local" {
  return local ? "Local" : "Cluster";
}

/** Returns the service port's worst state. */
function stateOf(
  family: IpFamily,
  view: ServicePortView,
  counts: EndpointCounts,
  states: ServiceStates,
  { lost, ignored, unreachable }: Reasons,
): { readonly state: ServiceState; readonly reason?: string } {
  const refusal = states.quarantineReason(family, view.service);
  if (refusal !== undefined) return { state: "quarantined", reason: refusal };
  if (!states.active(family)) return { state: "pending", reason: "the rules have not been written since startup" };
  if (lost !== undefined) return { state: "shadowed", reason: lost };
  if (!view.hasAnyEndpoint) return { state: "rejected", reason: "no endpoint on any node is ready" };
  if (unreachable !== undefined) return { state: "active", reason: unreachable };
  const drops = dropsHere(view);
  if (drops !== undefined) return { state: "no-local-endpoint", reason: drops };
  if (counts.ready > 0) return { state: "active", reason: view.balance === undefined ? ignored : undefined };
  const many =
    counts.serving === 1
      ? "1 terminating endpoint that still serves"
      : `${counts.serving} terminating endpoints that still serve`;
  return { state: "active", reason: `no endpoint is ready, so new connections go to ${many}` };
}

/** Returns which connections a policy Local drops on this node, or undefined if none. Other nodes have endpoints. */
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
  return `policy Local, and no endpoint is on this node, so connections ${dropped.join(", and ")} are dropped`;
}

/** Returns connections per second. A counter that restarted from zero has no rate. */
function rateOf(
  connections: readonly [now: number, before: number] | undefined,
  intervalMs: number | undefined,
): number | undefined {
  if (connections === undefined || intervalMs === undefined) return undefined;
  const [now, before] = connections;
  return now < before ? undefined : Math.round(((now - before) / intervalMs) * 1e5) / 100;
}

function endpointsOf(
  view: ServicePortView,
  candidates: EndpointColumns,
  drainSeconds: number,
  counted: ReadonlyMap<string, number> | undefined,
  refused: ReadonlyMap<string, number> | undefined,
): EndpointStatus[] {
  const { endpoints, states, hints, details } = candidates;
  const [cluster, local] = [sharesIn(view.clusterEndpoints, view), sharesIn(view.localEndpoints, view)];
  const draining = drainSeconds === 0 ? undefined : drainingAmong(candidates, view, view.protocol);
  const pods = details?.all(endpoints.length);
  return Array.from(endpoints, ({ address, port, local: isLocal }, i) => {
    const key = `${address} ${port}`;
    const state = states[i] ?? 0;
    const { pod, node } = pods?.[i] ?? NOT_SAID;
    const { nodes, zones } = hints?.[i] ?? NO_HINTS;
    return {
      ...{ address, port, local: isLocal },
      ...{ ready: has(state, READY), serving: has(state, SERVING), terminating: has(state, TERMINATING) },
      draining: draining?.[i] || undefined,
      pod: pod || undefined,
      node: node || undefined,
      zone: details?.zone(i) || undefined,
      ...(nodes.length > 0 && { forNodes: nodes }),
      ...(zones.length > 0 && { forZones: zones }),
      ...{ clusterShare: cluster.get(key) ?? 0, localShare: local.get(key) ?? 0 },
      connections: counted && (counted.get(key) ?? 0),
      refused: refused?.get(key),
    };
  });
}

function has(state: number, condition: number): boolean {
  return (state & condition) !== 0;
}

/** Returns each endpoint's share of new connections, by "address port". */
function sharesIn(list: EndpointList, { balance }: ServicePortView): ReadonlyMap<string, number> {
  const weights = balance && weightsOf(list, balance);
  const total = weights?.reduce((sum, weight) => sum + weight, 0) ?? list.length;
  let index = 0;
  return new Map(Array.from(list, ({ address, port }) => [`${address} ${port}`, (weights?.[index++] ?? 1) / total]));
}
