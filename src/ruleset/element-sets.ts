/** The sets and maps of the table, filled by services. Sets that kube-proxy also has have the same type as there. */
import type { IpFamily } from "../base/ip.js";
import type { ElementSet, FieldType, SetSpec, TableDeclarations } from "../nft/engine-exports.js";
import { unpackNumber } from "./key-packer.js";
import { isBySource, hasAffinity, SHARDS } from "./list-values.js";
import { endpointsName, SetName } from "./names.js";
import { declareRefusals } from "./refusals.js";
import type { ServiceCounters } from "./service-counters.js";

type Role = keyof typeof SetName;
/** These maps only exist if connections are limited (limit-chains.ts). */
export const LIMIT_ROLES = ["limitedServices", "limitedNodePorts", "limits"] as const satisfies readonly Role[];
type LimitRole = (typeof LIMIT_ROLES)[number];
type ConstantRole = Exclude<Role, LimitRole>;

/** The element sets that services fill, by role; `endpoints` by shard. */
export type ElementSets = Readonly<Record<ConstantRole, ElementSet>> &
  Partial<Record<LimitRole, ElementSet | undefined>> & { readonly endpoints: readonly ElementSet[] };

/** The sets for lookups of VIPs, and the sets for node ports; `cluster` and `local` are for policy Local. */
export const OF_VIPS = {
  nodePort: false,
  key: ["daddr", "meta l4proto", "th dport"],
  services: "services",
  cluster: "servicesCluster",
  local: "servicesLocal",
  noEndpoints: "noEndpointServices",
  resets: "resetServices",
  limited: "limitedServices",
} as const;

export const OF_NODE_PORTS = {
  nodePort: true,
  key: ["meta l4proto", "th dport"],
  services: "nodePorts",
  cluster: "nodePortsCluster",
  local: "nodePortsLocal",
  noEndpoints: "noEndpointNodePorts",
  resets: "resetNodePorts",
  limited: "limitedNodePorts",
} as const;

export type AddressRoles = typeof OF_VIPS | typeof OF_NODE_PORTS;

const LIST = "1 cluster, 2 masqueraded, 3 local, 4 by source, 5-7 affinity; +8: node port";

type Spec = Omit<SetSpec, "set">;

const NODE_PORT_KEY: readonly FieldType[] = ["inet_proto", "inet_service"];

function serviceKey(family: IpFamily): readonly FieldType[] {
  return [addressType(family), ...NODE_PORT_KEY];
}

export function addressType(family: IpFamily): FieldType {
  return family === "ip" ? "ipv4_addr" : "ipv6_addr";
}

function verdicts(key: readonly FieldType[], comment: string): Spec {
  return { key, data: "verdict", size: "auto", comment };
}

/** Whether a VIP's element keeps its count: with policy Local it counts something else. */
function carriesCount(before: Uint8Array, after: Uint8Array): boolean {
  return isBySource(unpackNumber(before)) === isBySource(unpackNumber(after));
}

export function setSpecs(
  family: IpFamily,
  counters: ServiceCounters,
): Readonly<Record<ConstantRole | "endpoints", Spec>> {
  const address = addressType(family);
  const service = serviceKey(family);
  const nodePort = NODE_PORT_KEY;
  const ofLists = counters === "off" ? {} : { counters: { carries: carriesCount } };
  /** An element that gets another endpoint counts from 0. */
  const ofEndpoints = counters === "endpoint" ? { counters: { carries: () => false } } : {};
  const lists = (key: readonly FieldType[], comment: string): Spec => {
    return { key, data: ["classid"], size: "auto", ...ofLists, comment };
  };
  /** Elements for a service's lists. Elements that packets may still draw are deleted after a grace period. */
  const endpoints = (key: readonly FieldType[], comment: string): Spec => {
    const data: readonly FieldType[] = [address, "inet_service"];
    return { key: [...key, "index"], data, size: "auto", deferUndesired: true, ...ofEndpoints, comment };
  };
  /** All clients forget a deleted number at once. */
  const numbered: Spec = {
    key: ["classid"],
    data: [address, "inet_service"],
    size: "auto",
    ...ofEndpoints,
    comment: "ClientIP affinity: endpoint of each number that clients are remembered with",
  };
  const resets = (key: readonly FieldType[], what: string): Spec => {
    return { key, size: "auto", comment: `${what} that reset connections to removed endpoints` };
  };
  const forPods = "policy Local: list for pods and the node";
  const forOthers = "policy Local: list for everybody else";
  const noEndpoints = (what: string): string => `vmap to drop or reject packets to ${what} with no endpoints`;
  return {
    clusterIPs: { key: [address], size: "auto", comment: "Active ClusterIPs" },
    nodePortIPs: { key: [address], comment: "IPs that accept NodePort traffic" },
    hairpin: {
      key: [address, ...service],
      size: "auto",
      deferUndesired: true,
      comment: "service hairpin connections",
    },
    noEndpointServices: verdicts(service, noEndpoints("services")),
    noEndpointNodePorts: verdicts(nodePort, noEndpoints("service nodeports")),
    firewallIPs: verdicts(service, "destinations that are subject to LoadBalancerSourceRanges"),
    services: lists(service, `15:3 = list 1, endpoints-5, 3 (hex) endpoints; ${LIST}`),
    servicesCluster: lists(service, forPods),
    servicesLocal: lists(service, forOthers),
    nodePorts: lists(nodePort, `90:3 = list 1 of a node port, 3 (hex) endpoints; ${LIST}`),
    nodePortsCluster: lists(nodePort, forPods),
    nodePortsLocal: lists(nodePort, forOthers),
    // A packet may have found the value before a restart, and use it here afterwards. The chain of a single service port is
    // deleted at once.
    dispatch: {
      ...verdicts(["classid"], "chain that draws from such a list"),
      deferUndesired: (key) => !hasAffinity(unpackNumber(key)),
    },
    stickyDraws: {
      key: ["classid", "index"],
      data: ["classid"],
      size: "auto",
      deferUndesired: true,
      comment: "ClientIP affinity: number of the endpoint at each index of a list",
    },
    stickyCluster: numbered,
    stickyLocal: numbered,
    nodePortEndpoints: endpoints(nodePort, "endpoint at each index of a node port's lists"),
    endpoints: endpoints(service, "endpoint at each index of a service's lists"),
    serviceCIDRs: { key: [address], interval: true, comment: "ServiceCIDRs" },
    resetServices: resets(service, "services"),
    resetNodePorts: resets(nodePort, "node ports of services"),
  };
}

/** Declares all sets that every table of the family has, and returns them. */
export function declareSets(table: TableDeclarations, family: IpFamily, counters: ServiceCounters): ElementSets {
  declareRefusals(table, family, counters);
  const declared = Object.entries(setSpecs(family, counters)).map(([role, spec]) => [
    role,
    role === "endpoints"
      ? Array.from({ length: SHARDS }, (_, shard) => table.packedSet({ ...spec, set: endpointsName(shard) }))
      : table.packedSet({ ...spec, set: SetName[role as Role] }),
  ]);
  return Object.fromEntries(declared) as ElementSets;
}

/** Specs of the maps that lead to the chains of limits. */
export function limitMapSpecs(family: IpFamily): Readonly<Record<LimitRole, Spec>> {
  const limited = (key: readonly FieldType[]): Spec => {
    return { key, data: ["classid"], size: "auto", comment: "number that connections are limited by" };
  };
  return {
    limitedServices: limited(serviceKey(family)),
    limitedNodePorts: limited(NODE_PORT_KEY),
    limits: verdicts(["classid"], "chain that limits the service port with this number"),
  };
}
