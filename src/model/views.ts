/** One service in one family, from its record and slices: what packets, connections, load balancers and operators see of it. Pure. */
import { endpointBalance, tooManyFor } from "./balance.js";
import { addLocalReady, type Categories, countStates } from "./categorize.js";
import { NODE_PORT } from "./claim-keys.js";
import type { Claims } from "./claims.js";
import { guardsOf } from "./clashes.js";
import { describedEndpoints, type DescribedEndpoint } from "./endpoint-details.js";
import type { FamilyRecord, ServicePortRecord, ServiceRecord, SliceRecord } from "./records.js";
import { candidatesOf } from "./slices.js";
import { drainingAmong, type Held, listsOf, resets, targetOf } from "./targets.js";
import type { EndpointCounts, HealthCheck, IpFamily, NodeContext, ServicePortView, ServiceTarget } from "./types.js";

/** A service that is served in a family, and what decides beside it. */
export interface ServedService {
  readonly family: IpFamily;
  readonly record: ServiceRecord;
  /** Those of the family. */
  readonly addresses: FamilyRecord;
  /** Of all families, in order of their names. */
  readonly slices: readonly SliceRecord[];
  /** Of the family: which of the addresses another service has. */
  readonly claims: Claims;
  readonly node: NodeContext;
}

/** What the rules are made of, a view for each service port. */
export function viewsOf(served: ServedService): ServicePortView[] {
  return served.record.ports.map((port) => viewOf(served, port));
}

function longest({ cluster, local }: Pick<Categories, "cluster" | "local">): number {
  return Math.max(cluster.length, local.length);
}

/** The annotation that asks for more than so many endpoints allow, and why; undefined: none, as nearly always. */
export function unbalanced(served: ServedService | undefined): [field: string, reason: string] | undefined {
  if (served?.record.balance === undefined) return undefined;
  const { record, slices, family, node } = served;
  const { by } = served.record.balance;
  if (tooManyFor(endpointsIn(slices, family)) === undefined) return undefined;
  const lengths = record.ports.map((port) =>
    longest(listsOf(record, heldBy(served, port), candidatesFor(served, port), node)),
  );
  const reason = tooManyFor(Math.max(...lengths));
  const annotation = by === "chance" ? "weights" : "balance";
  return reason === undefined ? undefined : [`metadata.annotations["nft-proxier.dev/${annotation}"]`, reason];
}

function endpointsIn(slices: readonly SliceRecord[], family: IpFamily): number {
  return slices.reduce((sum, slice) => sum + (slice.family === family ? slice.endpoints.length : 0), 0);
}

/** The same service ports as existing connections see them. */
export function targetsOf(served: ServedService): ServiceTarget[] {
  const { record, node } = served;
  return record.ports.map((port) => {
    const held = heldBy(served, port);
    const candidates = candidatesFor(served, port);
    const draining =
      record.drainSeconds === 0 ? undefined : drainingAmong(candidates, listsOf(record, held, candidates, node));
    return targetOf(record, port, held, candidates, draining);
  });
}

/** Every endpoint of each service port, with what operators see of it. */
export function endpointsOf({ family, record, slices }: ServedService): DescribedEndpoint[][] {
  return record.ports.map(({ name, protocol }) => describedEndpoints(slices, family, name, protocol));
}

/** The same, counted: those that take new connections, and all. */
export function endpointCountsOf(served: ServedService): EndpointCounts[] {
  return served.record.ports.map((port) => countStates(candidatesFor(served, port)));
}

/** What load balancers ask; undefined: nothing. */
export function healthCheckOf(served: ServedService): HealthCheck | undefined {
  const { ports, healthCheckPort, uid } = served.record;
  if (healthCheckPort === 0) return undefined;
  const ready = new Set<string>();
  for (const port of ports) addLocalReady(candidatesFor(served, port), ready);
  return { port: healthCheckPort, uid, localEndpoints: ready.size };
}

function candidatesFor({ slices, family }: ServedService, { name, protocol }: ServicePortRecord) {
  return candidatesOf(slices, family, name, protocol);
}

function viewOf(served: ServedService, port: ServicePortRecord): ServicePortView {
  const { record, addresses, node } = served;
  const held = heldBy(served, port);
  const { clusterIP, externalIPs, loadBalancerIPs, nodePort } = held;
  const candidates = candidatesFor(served, port);
  const lists = listsOf(record, held, candidates, node);
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
    // Not spread: V8 would write each property behind it singly.
    guards: guardsAround(served, port, held),
    affinitySeconds: record.affinitySeconds,
    limits: record.limits,
    balance:
      record.balance && tooManyFor(longest(lists)) === undefined
        ? endpointBalance(record.balance, candidates)
        : undefined,
    clusterEndpoints: lists.cluster,
    localEndpoints: lists.local,
    hasAnyEndpoint: lists.any,
    resetRemovedEndpoints: resets(record, port),
  };
}

/** Source ranges of others that claim what a service port has. */
function guardsAround(
  { claims, record }: ServedService,
  port: ServicePortRecord,
  held: Held,
): ServicePortView["guards"] {
  if (!claims.hasRivals(record.name)) return undefined;
  const { clusterIP, externalIPs, loadBalancerIPs } = held;
  const vips = [...(clusterIP === undefined ? [] : [clusterIP]), ...externalIPs, ...loadBalancerIPs];
  return guardsOf(vips, (address) => claims.others(record, address, port.protocol, port.port));
}

/** What of a service port's claims is its own: all, unless another service has it. */
function heldBy({ claims, record, addresses }: ServedService, port: ServicePortRecord): Held {
  const { clusterIP, externalIPs, loadBalancerIPs } = addresses;
  const { protocol, nodePort } = port;
  if (!claims.hasRivals(record.name)) return { clusterIP, externalIPs, loadBalancerIPs, nodePort };
  const has = (address: string, number: number) => claims.loss(record, address, protocol, number) === undefined;
  return {
    clusterIP: has(clusterIP, port.port) ? clusterIP : undefined,
    externalIPs: externalIPs.filter((address) => has(address, port.port)),
    loadBalancerIPs: loadBalancerIPs.filter((address) => has(address, port.port)),
    nodePort: nodePort !== 0 && has(NODE_PORT, nodePort) ? nodePort : 0,
  };
}
