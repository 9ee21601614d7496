/** The sets and maps of the table, which services fill. Those that kube-proxy has too are of the same type as its own. */
import type { IpFamily } from "../model/types.js";
import type { Counters, ElementSet, FieldType, SetSpec } from "../table/index.js";
import { unpackNumber } from "./keys.js";
import { carriesCount } from "./connection-counts.js";
import type { ServiceCounters } from "./service-counters.js";
import { isSticky, SHARDS } from "./list-values.js";
import { endpointsName, SetName } from "./names.js";

type Role = keyof typeof SetName;

/** The element sets that services fill, by role; `endpoints` by shard. */
export type ElementSets = Readonly<Record<Exclude<Role, CarriedRole | LimitRole>, ElementSet>> &
  Readonly<Partial<Record<CarriedRole, ElementSet>>> & { readonly endpoints: readonly ElementSet[] };

/** Only there where connections are counted. */
export type CarriedRole = "servicesCarried" | "nodePortsCarried";

/** Only there where connections are limited (limit-chains.ts). */
export type LimitRole = "limitedServices" | "limitedNodePorts" | "limits";
export type LimitMaps = Readonly<Record<LimitRole, ElementSet>>;

/** What is counted, and who keeps what the maps of services cannot (connection-counts.ts). */
export interface Counting extends Pick<Counters, "missed" | "gone"> {
  readonly counters: ServiceCounters;
}

export const NOT_COUNTING: Counting = { counters: "off" };

const LIST = "1 cluster, 2 masqueraded, 3 local, 4 by source, 5-7 affinity; +8: node port";

function verdicts(set: string, key: readonly FieldType[], comment: string): SetSpec {
  return { set, key, data: "verdict", size: "auto", comment };
}

function addressType(family: IpFamily): FieldType {
  return family === "ip" ? "ipv4_addr" : "ipv6_addr";
}

function serviceKey(family: IpFamily): readonly FieldType[] {
  return [addressType(family), "inet_proto", "inet_service"];
}

const NODE_PORT_KEY: readonly FieldType[] = ["inet_proto", "inet_service"];

export function limitMapSpecs(family: IpFamily): Readonly<Record<LimitRole, SetSpec>> {
  const limited = (set: string, key: readonly FieldType[]): SetSpec => {
    return { set, key, data: ["classid"], size: "auto", comment: "number that connections are limited by" };
  };
  return {
    limitedServices: limited(SetName.limitedServices, serviceKey(family)),
    limitedNodePorts: limited(SetName.limitedNodePorts, NODE_PORT_KEY),
    limits: verdicts(SetName.limits, ["classid"], "chain that limits the service port with this number"),
  };
}

export function setSpecs(
  family: IpFamily,
  { counters, missed, gone }: Counting = NOT_COUNTING,
): Readonly<
  Record<Exclude<Role, CarriedRole | LimitRole>, SetSpec> &
    Partial<Record<CarriedRole, SetSpec>> & { endpoints: readonly SetSpec[] }
> {
  const carrying = { carries: carriesCount, ...(missed && { missed }) };
  const ofLists = counters === "off" ? {} : { counters: carrying };
  const ofServices = counters === "off" ? {} : { counters: { ...carrying, ...(gone && { gone }) } };
  /** No packet looks here. */
  const carried = (set: string, key: readonly FieldType[]): SetSpec => {
    const comment = "connections that came while an element was replaced, which the new one does not count";
    return { set, key, data: ["mark"], comment };
  };
  /** An element that has another endpoint begins anew. */
  const ofEndpoints = counters === "endpoint" ? { counters: { carries: () => false } } : {};
  const lists = (set: string, key: readonly FieldType[], comment: string): SetSpec => {
    return { set, key, data: ["classid"], size: "auto", ...ofLists, comment };
  };
  const address = addressType(family);
  const service = serviceKey(family);
  const nodePort = NODE_PORT_KEY;
  /** Of a service's lists: what packets may still draw goes after a grace period. */
  const endpoints = (set: string, key: readonly FieldType[], comment: string): SetSpec => {
    const data: readonly FieldType[] = [address, "inet_service"];
    return { set, key: [...key, "index"], data, size: "auto", deferLeftovers: true, ...ofEndpoints, comment };
  };
  /** What is not here is forgotten by all clients, at once. */
  const numbered = (set: string): SetSpec => {
    const comment = "ClientIP affinity: endpoint of each number that clients are remembered with";
    return { set, key: ["classid"], data: [address, "inet_service"], size: "auto", ...ofEndpoints, comment };
  };
  const forPods = "policy Local: list for pods and the node";
  const forOthers = "policy Local: list for everybody else";
  return {
    clusterIPs: { set: SetName.clusterIPs, key: [address], size: "auto", comment: "Active ClusterIPs" },
    nodePortIPs: { set: SetName.nodePortIPs, key: [address], comment: "IPs that accept NodePort traffic" },
    hairpin: {
      set: SetName.hairpin,
      key: [address, address, "inet_proto", "inet_service"],
      size: "auto",
      deferLeftovers: true,
      comment: "service hairpin connections",
    },
    noEndpointServices: verdicts(
      SetName.noEndpointServices,
      service,
      "vmap to drop or reject packets to services with no endpoints",
    ),
    noEndpointNodePorts: verdicts(
      SetName.noEndpointNodePorts,
      nodePort,
      "vmap to drop or reject packets to service nodeports with no endpoints",
    ),
    firewallIPs: verdicts(SetName.firewallIPs, service, "destinations that are subject to LoadBalancerSourceRanges"),
    services: {
      ...lists(SetName.services, service, `15:3 = list 1, endpoints-5, 3 (hex) endpoints; ${LIST}`),
      ...ofServices,
    },
    servicesCluster: lists(SetName.servicesCluster, service, forPods),
    servicesLocal: lists(SetName.servicesLocal, service, forOthers),
    nodePorts: {
      ...lists(SetName.nodePorts, nodePort, `90:3 = list 1 of a node port, 3 (hex) endpoints; ${LIST}`),
      ...ofServices,
    },
    nodePortsCluster: lists(SetName.nodePortsCluster, nodePort, forPods),
    nodePortsLocal: lists(SetName.nodePortsLocal, nodePort, forOthers),
    // A packet that has found the value before a new start looks here after it. The chain of a service port's own goes at once.
    dispatch: {
      ...verdicts(SetName.dispatch, ["classid"], "chain that draws from such a list"),
      deferLeftovers: (key) => !isSticky(unpackNumber(key)),
    },
    stickyDraws: {
      set: SetName.stickyDraws,
      key: ["classid", "index"],
      data: ["classid"],
      size: "auto",
      deferLeftovers: true,
      comment: "ClientIP affinity: number of the endpoint at each index of a list",
    },
    stickyCluster: numbered(SetName.stickyCluster),
    stickyLocal: numbered(SetName.stickyLocal),
    nodePortEndpoints: endpoints(SetName.nodePortEndpoints, nodePort, "endpoint at each index of a node port's lists"),
    endpoints: Array.from({ length: SHARDS }, (_, shard) =>
      endpoints(endpointsName(shard), service, "endpoint at each index of a service's lists"),
    ),
    serviceCIDRs: { set: SetName.serviceCIDRs, key: [address], interval: true, comment: "ServiceCIDRs" },
    resetServices: {
      set: SetName.resetServices,
      key: service,
      size: "auto",
      comment: "services that reset connections to removed endpoints",
    },
    resetNodePorts: {
      set: SetName.resetNodePorts,
      key: nodePort,
      size: "auto",
      comment: "node ports of services that reset connections to removed endpoints",
    },
    ...(counters !== "off" && {
      servicesCarried: carried(SetName.servicesCarried, service),
      nodePortsCarried: carried(SetName.nodePortsCarried, nodePort),
    }),
  };
}
