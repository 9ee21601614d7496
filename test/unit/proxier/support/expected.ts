/**
 * The expected result of a connection's first packet, derived from the meaning of services: a short second implementation of the table of
 * hooks and policies.
 */
import { type IpFamily, parseCIDR, prefixContains } from "../../../../src/base/ip.js";
import type { Endpoint } from "../../../../src/objects/endpoint-list.js";
import { portId, type ServicePortView } from "../../../../src/model/service-port-view.js";
import type { Connection } from "./packets.js";
import { NODE_ADDRESSES, SOURCES, type SourceName } from "./world.js";

export interface Expectation extends Connection {
  /** Description for people. */
  readonly what: string;
  readonly outcomes: readonly string[];
}

export interface Cluster {
  readonly family: IpFamily;
  /** Views of all services, after claims are resolved. */
  readonly views: readonly ServicePortView[];
  readonly nodePortAddresses: readonly string[];
  readonly serviceCIDRs: readonly string[];
  readonly masqueradeAll: boolean;
  /** Whether source ranges keep a source from a VIP. */
  guarded(address: string, protocol: string, port: number, source: string): boolean;
}

const SOURCE_NAMES: readonly SourceName[] = ["pod", "node", "outside"];

/** One connection for each source and each way in, and some to addresses without a service. */
export function expectations(cluster: Cluster): Expectation[] {
  const { family, views } = cluster;
  const clusterIPs = new Set(views.flatMap(({ clusterIP }) => clusterIP ?? []));
  return SOURCE_NAMES.flatMap((source) => {
    const from = { family, source: SOURCES[source][family], fromNode: source === "node" };
    const one = (view: ServicePortView, way: string, destination: string, port: number, list: List): Expectation => ({
      ...from,
      what: `${source} → ${way} ${destination}:${port}/${view.protocol} of ${portId(view)}`,
      destination,
      protocol: view.protocol,
      port,
      outcomes: outcomesOf(list, view),
    });
    const served = views.flatMap((view) => {
      const external = externalList(view, source);
      const vip = (way: string, address: string, list: List): Expectation => {
        const guarded = cluster.guarded(address, view.protocol, view.port, from.source);
        return one(view, way, address, view.port, guarded ? DROPPED : list);
      };
      return [
        ...(view.clusterIP === undefined
          ? []
          : [vip("cluster IP", view.clusterIP, internalList(view, cluster, source))]),
        ...view.externalIPs.map((address) => vip("external IP", address, external)),
        ...view.loadBalancerIPs.map((address) => vip("LB IP", address, external)),
        ...(view.nodePort === 0
          ? []
          : cluster.nodePortAddresses.map((address) => one(view, "node port", address, view.nodePort, external))),
      ];
    });
    return [...served, ...nobodys(cluster, clusterIPs, from, source)];
  });
}

interface List {
  readonly endpoints: Iterable<Endpoint>;
  readonly masqueraded: boolean;
  readonly dropped?: boolean;
}

const DROPPED: List = { endpoints: [], masqueraded: false, dropped: true };

function outcomesOf({ endpoints, masqueraded, dropped }: List, view: ServicePortView): string[] {
  if (dropped === true) return ["drop"];
  const ends = [...endpoints].map(({ address, port }) => `${address} ${port}${masqueraded ? " masqueraded" : ""}`);
  if (ends.length === 0) return [view.hasAnyEndpoint ? "drop" : "reject"];
  return [...new Set(ends)].sort();
}

/**
 * There is a detector, so connections to a cluster IP are masqueraded unless they come from a pod of this node. As in kube-proxy, address,
 * protocol and port decide: another service may have the same address as an external IP.
 */
function internalList(view: ServicePortView, { masqueradeAll }: Cluster, source: SourceName): List {
  const endpoints = view.internalPolicyLocal ? view.localEndpoints : view.clusterEndpoints;
  return { endpoints, masqueraded: masqueradeAll || source !== "pod" };
}

function externalList(view: ServicePortView, source: SourceName): List {
  if (!view.externalPolicyLocal) return { endpoints: view.clusterEndpoints, masqueraded: true };
  if (source === "outside") return { endpoints: view.localEndpoints, masqueraded: false };
  return { endpoints: view.clusterEndpoints, masqueraded: source === "node" };
}

function contains(cidr: string, address: string): boolean {
  const prefix = parseCIDR(cidr);
  return prefix !== undefined && prefixContains(prefix, address);
}

function nobodys(
  { family, serviceCIDRs }: Cluster,
  clusterIPs: ReadonlySet<string>,
  from: Pick<Connection, "family" | "source" | "fromNode">,
  source: SourceName,
): Expectation[] {
  const prefix = family === "ip" ? "10.96.0." : "fd00:10:96::";
  const addresses = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map((n) => `${prefix}${n}`);
  const verdict = (address: string): string => {
    if (clusterIPs.has(address)) return "reject";
    return serviceCIDRs.some((cidr) => contains(cidr, address)) ? "drop" : "untouched";
  };
  const port = 4711;
  const at = (destination: string, outcome: string): Expectation => ({
    ...from,
    what: `${source} → unused address ${destination}:${port}`,
    destination,
    protocol: "TCP",
    port,
    outcomes: [outcome],
  });
  return [
    ...addresses.map((address) => at(address, verdict(address))),
    at(family === "ip" ? "203.0.113.1" : "2001:db8:cb::1", "untouched"),
    at(NODE_ADDRESSES[family][0], "untouched"),
  ];
}
