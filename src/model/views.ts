/**
 * Derives everything about one service in one family from its record and slices, for packets, connections, load balancers and
 * operators. Pure.
 */
import { type Balance } from "../objects/balance.js";
import {
  balanceFor,
  endpointBalance,
  MAX_SLOT_ELEMENTS,
  overBudget,
  slotsIn,
  tooManyFor,
} from "./balance/endpoint-balance.js";
import {
  addLocalReady,
  categorizeEndpoints,
  drainingAmong,
  type NodeContext,
  takesTraffic,
} from "./categorize-endpoints.js";
import { NODE_PORT, type PortAddresses, vipsOf } from "./service-address.js";
import type { Claims } from "./claims.js";
import { guardsOf } from "./clashes.js";
import type {
  EndpointColumns,
  FamilyRecord,
  ServicePortRecord,
  ServiceRecord,
  SliceRecord,
} from "../objects/records.js";
import { candidatesInPieces, candidatesOf } from "./slices.js";
import {
  type EndpointLists,
  type HealthCheck,
  portId,
  type ServicePortView,
  type ServiceTarget,
} from "./service-port-view.js";
import type { IpFamily } from "../base/ip.js";

/** A service in a family, with all inputs of its views. */
export interface ServedService {
  readonly family: IpFamily;
  readonly record: ServiceRecord;
  /** The service's addresses in the family. */
  readonly addresses: FamilyRecord;
  /** Slices of all families, in the order of their names. */
  readonly slices: readonly SliceRecord[];
  /** Claims of the family: which of the addresses another service has. */
  readonly claims: Claims;
  readonly node: NodeContext;
}

/**
 * The input of the rules: one view per service port. Each is computed on demand, because there may be tens of thousands. Yields
 * undefined for a pause.
 */
export function* viewsOf(served: ServedService): Generator<ServicePortView | undefined, void> {
  const balance = balanceIn(served);
  const { slices, family } = served;
  for (const port of served.record.ports) {
    const candidates = yield* candidatesInPieces(slices, family, port.name, port.protocol);
    yield viewOf(served, port, candidates, balance);
  }
}

/** Like `viewsOf`, by port number, each with all endpoints of the port. */
export function* viewsWithCandidates(
  served: ServedService,
): Generator<readonly [view: ServicePortView, candidates: EndpointColumns], void> {
  const balance = balanceIn(served);
  for (const port of served.record.ports.toSorted((a, b) => a.port - b.port)) {
    const candidates = candidatesFor(served, port);
    yield [viewOf(served, port, candidates, balance), candidates];
  }
}

function longest({ clusterEndpoints, localEndpoints }: EndpointLists): number {
  return Math.max(clusterEndpoints.length, localEndpoints.length);
}

/** The annotation that asks for more than is served, and the reason. Nearly always undefined, because there is none. */
export function unbalanced(served: ServedService | undefined): [field: string, reason: string] | undefined {
  const balance = served?.record.balance;
  if (served === undefined || balance === undefined) return undefined;
  const reason = tooManyEndpoints(served, balance) ?? tooManySlots(served, balance);
  const annotation = balance.by === "chance" ? "weights" : "balance";
  return reason === undefined ? undefined : [`metadata.annotations["nft-proxier.dev/${annotation}"]`, reason];
}

function tooManyEndpoints(served: ServedService, balance: Balance): string | undefined {
  const { record, slices, family, node } = served;
  if (tooManyFor(balance, endpointsIn(slices, family)) === undefined) return undefined;
  const lengths = record.ports.map((port) =>
    longest(listsOf(record, heldBy(served, port), candidatesFor(served, port), node)),
  );
  return tooManyFor(balance, Math.max(...lengths));
}

/** The service's balance, unless its slots would take too many elements. */
function balanceIn(served: ServedService): Balance | undefined {
  const { balance } = served.record;
  return balance === undefined || tooManySlots(served, balance) !== undefined ? undefined : balance;
}

/**
 * Why the slots would take too many elements. Returns undefined if they do not. Stops at the port that exceeds the limit, and
 * estimates the total on the assumption that all ports are alike.
 */
function tooManySlots(served: ServedService, balance: Balance): string | undefined {
  const { record, node } = served;
  let elements = 0;
  for (let i = 0; i < record.ports.length; i++) {
    const held = heldBy(served, record.ports[i]);
    const candidates = candidatesFor(served, record.ports[i]);
    const lists = listsOf(record, held, candidates, node);
    const ofLists = balanceFor(balance, longest(lists));
    if (ofLists === undefined) continue;
    const asked = endpointBalance(ofLists, candidates);
    const cluster = slotsIn(lists.clusterEndpoints, asked);
    const local = slotsIn(lists.localEndpoints, asked);
    const internal = held.clusterIP === undefined ? 0 : record.internalPolicyLocal ? local : cluster;
    const addresses = held.externalIPs.length + held.loadBalancerIPs.length + (held.nodePort === 0 ? 0 : 1);
    elements += internal + addresses * (cluster + (record.externalPolicyLocal ? local : 0));
    if (elements > MAX_SLOT_ELEMENTS) return overBudget(Math.round((elements / (i + 1)) * record.ports.length));
  }
  return undefined;
}

function endpointsIn(slices: readonly SliceRecord[], family: IpFamily): number {
  return slices.reduce((sum, slice) => sum + (slice.family === family ? slice.endpoints.length : 0), 0);
}

/** An upper estimate of the views' number of elements. It may be too low if the service has slots. */
export function sizeOf({ record, addresses, slices, family }: ServedService): number {
  const vips = 1 + addresses.externalIPs.length + addresses.loadBalancerIPs.length;
  return record.ports.length * (vips + 1) * (1 + endpointsIn(slices, family));
}

/** The same service ports for existing connections, each computed on demand. */
export function* targetsOf(served: ServedService): Generator<ServiceTarget, void> {
  for (const port of served.record.ports) yield targetIn(served, port);
}

/** Like `targetsOf`, for one port. */
export function targetIn(served: ServedService, port: ServicePortRecord): ServiceTarget {
  const { record, node } = served;
  const { name: service, drainSeconds } = record;
  const { name: portName, protocol } = port;
  const held = heldBy(served, port);
  const candidates = candidatesFor(served, port);
  return {
    service,
    id: portId({ service, portName, protocol }),
    protocol,
    port: port.port,
    addresses: vipsOf(held),
    nodePort: held.nodePort,
    resetRemovedEndpoints: resets(record, port),
    endpoints: [...candidates.endpoints],
    drainSeconds,
    draining:
      drainSeconds === 0 ? undefined : drainingAmong(candidates, listsOf(record, held, candidates, node), protocol),
    // Ready counts even if serving does not (publishNotReadyAddresses), because new connections are sent there.
    serving: candidates.states.map(takesTraffic),
  };
}

/**
 * The service's health check for load balancers. Returns undefined if it has none. As in kube-proxy's
 * EndpointsMap.LocalReadyEndpoints, all ports of the slices count, even those that the Service does not have.
 */
export function healthCheckOf({ record, slices, family }: ServedService): HealthCheck | undefined {
  const { healthCheckPort, uid } = record;
  if (healthCheckPort === 0) return undefined;
  const ready = new Set<number | string>();
  for (const slice of slices) if (slice.family === family) addLocalReady(slice, ready);
  return { port: healthCheckPort, uid, localEndpoints: ready.size };
}

function listsOf(
  record: ServiceRecord,
  { externalIPs, loadBalancerIPs, nodePort }: PortAddresses,
  candidates: EndpointColumns,
  node: NodeContext,
): EndpointLists {
  const external = externalIPs.length > 0 || loadBalancerIPs.length > 0 || nodePort !== 0;
  return categorizeEndpoints(candidates, node, {
    // An external policy Local also needs the cluster list: pods and the node itself draw from it.
    cluster: !record.internalPolicyLocal || external,
    local: record.internalPolicyLocal || (record.externalPolicyLocal && external),
  });
}

function resets(record: ServiceRecord, port: ServicePortRecord): boolean {
  return (record.resetRemovedEndpoints || record.drainSeconds > 0) && port.protocol === "TCP";
}

function candidatesFor({ slices, family }: ServedService, { name, protocol }: ServicePortRecord) {
  return candidatesOf(slices, family, name, protocol);
}

function viewOf(
  served: ServedService,
  port: ServicePortRecord,
  candidates: EndpointColumns,
  balance: Balance | undefined,
): ServicePortView {
  const { record, addresses, node } = served;
  const held = heldBy(served, port);
  const { clusterIP, externalIPs, loadBalancerIPs, nodePort } = held;
  const lists = listsOf(record, held, candidates, node);
  const ofLists = balance && balanceFor(balance, longest(lists));
  return {
    service: record.name,
    portName: port.name,
    protocol: port.protocol,
    port: port.port,
    clusterIP,
    externalIPs,
    loadBalancerIPs,
    nodePort,
    internalPolicyLocal: record.internalPolicyLocal,
    externalPolicyLocal: record.externalPolicyLocal,
    sourceRanges: addresses.sourceRanges,
    // Without spread syntax: V8 would write each following property separately.
    guards: guardsAround(served, port, held),
    affinitySeconds: record.affinitySeconds,
    limits: record.limits,
    balance: ofLists && endpointBalance(ofLists, candidates),
    clusterEndpoints: lists.clusterEndpoints,
    localEndpoints: lists.localEndpoints,
    hasAnyEndpoint: lists.hasAnyEndpoint,
    resetRemovedEndpoints: resets(record, port),
  };
}

/** Source ranges of other services that claim the service port's addresses. */
function guardsAround(
  { family, claims, record }: ServedService,
  { protocol, port: number }: ServicePortRecord,
  held: PortAddresses,
): ServicePortView["guards"] {
  if (!claims.hasRivals(record.name)) return undefined;
  return guardsOf(vipsOf(held), (address) => claims.others(record, { family, address, protocol, port: number }));
}

/** The service port's claims without those that another service has. */
function heldBy({ family, claims, record, addresses }: ServedService, port: ServicePortRecord): PortAddresses {
  const { clusterIP, externalIPs, loadBalancerIPs } = addresses;
  const { protocol, nodePort } = port;
  if (!claims.hasRivals(record.name))
    return { clusterIP, externalIPs, loadBalancerIPs, nodePort, protocol, port: port.port };
  const has = (address: string, number: number) =>
    claims.loss(record, { family, address, protocol, port: number }) === undefined;
  return {
    clusterIP: has(clusterIP, port.port) ? clusterIP : undefined,
    externalIPs: externalIPs.filter((address) => has(address, port.port)),
    loadBalancerIPs: loadBalancerIPs.filter((address) => has(address, port.port)),
    nodePort: nodePort !== 0 && has(NODE_PORT, nodePort) ? nodePort : 0,
    protocol,
    port: port.port,
  };
}
