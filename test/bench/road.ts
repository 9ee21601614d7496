/** Packet paths for benchmarks: a client, a node, and a pod behind it that has every endpoint's address. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { buildProgram } from "../lab/build.ts";
import { affinityRules, drawRule, hashed, MARK, setUp, TABLE } from "../lab/kube-proxy-rules.ts";
import { mustRun, Namespace } from "../lab/namespace.ts";
import type { Family } from "../lab/topology.ts";
import {
  clusterIPOf,
  ipv6,
  loadBalancerOf,
  nodePortOf,
  podAddress,
  podsOf,
  type Protocol,
  serviceName,
} from "./cluster.ts";

/** The address in this family, and the prefix of addresses likewise. */
export function inFamily(address: string, family: Family): string {
  if (family === "ip") return address;
  const [first = "", length] = address.split("/");
  return length === undefined ? ipv6(first) : `${ipv6(first)}/${96 + Number(length)}`;
}

export interface Road {
  readonly client: Namespace;
  readonly node: Namespace;
  readonly pod: Namespace;
}

export const ENDPOINTS = 10;
export const SERVER_PORT = 8080;
export const CLIENT = "10.200.0.2";
/** The client's other address. Its packets to a ClusterIP are masqueraded. */
const OUTSIDE = "198.51.100.2";
/** The client counts as a pod of the node, so its packets to a ClusterIP are not masqueraded. */
export const CLUSTER_CIDR = "10.200.0.0/16";
export const SERVICE_CIDR = "10.96.0.0/12";
export const NODE_IP = "192.0.2.1";

/** `name` is the prefix of its namespaces' names. */
export async function makeRoad(name: string): Promise<Road> {
  const [client, node, pod] = await Promise.all(
    ["client", "node", "pod"].map((part) => Namespace.create(`${name}-${part}`)),
  );
  for (const namespace of [client, node, pod]) {
    await namespace.sysctl({ "net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.default.rp_filter": 0 });
    await namespace.sysctl({ "net.ipv6.conf.default.accept_dad": 0, "net.ipv6.conf.all.accept_dad": 0 });
    await namespace.ip(["link set lo up"]);
  }
  await node.sysctl({ "net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1 });
  await node.ip([
    `link add eth0 type veth peer name eth0 netns ${client.name}`,
    `link add eth1 type veth peer name eth0 netns ${pod.name}`,
    "address add 10.200.0.1/24 dev eth0",
    "address add 10.201.0.1/24 dev eth1",
    `address add ${NODE_IP}/32 dev eth0`,
    "link set eth0 up",
    "link set eth1 up",
  ]);
  await client.ip([
    "link set eth0 up",
    `address add ${CLIENT}/24 dev eth0`,
    `address add ${OUTSIDE}/32 dev eth0`,
    "route add default via 10.200.0.1",
  ]);
  // The pod answers from addresses that only a route makes its own.
  await pod.sysctl({ "net.ipv6.ip_nonlocal_bind": 1 });
  await pod.ip([
    "link set eth0 up",
    "address add 10.201.0.2/24 dev eth0",
    "route add default via 10.201.0.1",
    "route add local 11.0.0.0/8 dev lo",
  ]);
  await node.ip(["route add 11.0.0.0/8 via 10.201.0.2", `route add ${OUTSIDE} via ${CLIENT}`]);
  const six = (address: string): string => inFamily(address, "ip6");
  await node.ip([
    `address add ${six("10.200.0.1/24")} dev eth0 nodad`,
    `address add ${six("10.201.0.1/24")} dev eth1 nodad`,
    `route add ${six("11.0.0.0/8")} via ${six("10.201.0.2")}`,
  ]);
  await client.ip([`address add ${six(`${CLIENT}/24`)} dev eth0 nodad`, `route add default via ${six("10.200.0.1")}`]);
  await pod.ip([
    `address add ${six("10.201.0.2/24")} dev eth0 nodad`,
    `route add default via ${six("10.201.0.1")}`,
    `route add local ${six("11.0.0.0/8")} dev lo`,
  ]);
  return { client, node, pod };
}

export async function destroyRoad({ client, node, pod }: Road): Promise<void> {
  await Promise.all([client, node, pod].map((part) => part.destroy()));
}

/** The rules on a road's node. */
export interface Served {
  /** "none", "edits" alone, "kube-proxy" (its rules), or the directory of a build of this program. */
  readonly by: string;
  readonly services: number;
  /** The value of --service-counters; absent for the default. */
  readonly counters?: string;
  /** Annotations nft-proxier.dev/NAME of each service, "NAME=VALUE,…". */
  readonly annotations?: string;
  /** A file for `nft -f` that changes the written rules. */
  readonly edits?: string;
  /** Whether each service also has a load balancer's address and a node port. */
  readonly external?: boolean;
  /** Whether each service has ClientIP affinity. */
  readonly affinity?: boolean;
  /** Family of all addresses; absent for IPv4. */
  readonly family?: Family;
}

const SERVE = fileURLToPath(new URL("serve.ts", import.meta.url));
/** Services per transaction: the time for kube-proxy's layout is quadratic in them. */
const AT_ONCE = 250;

/** Serves on the road's node, and removes what another protocol had there before. */
export async function serve(
  { node }: Road,
  { by, services, counters, annotations, edits, external = false, affinity = false, family = "ip" }: Served,
  protocol: Protocol,
): Promise<void> {
  if (by === "kube-proxy") {
    for (const lines of kubeProxyRules(services, protocol, { external, affinity, family })) {
      await node.mustRun(["nft", "-f", "-"], { input: `${lines.join("\n")}\n`, timeoutMs: 600_000 });
    }
  } else if (by !== "none" && by !== "edits") {
    await promisify(execFile)(process.execPath, [
      "--no-warnings",
      SERVE,
      by,
      node.name,
      String(services),
      protocol,
      counters ?? "",
      annotations ?? "",
      external ? "external" : "",
      affinity ? "ClientIP" : "None",
      family,
    ]);
  }
  if (edits !== undefined) await node.mustRun(["nft", "-f", "-"], { input: await readFile(edits, "utf8") });
}

/** Yields its transactions. */
function* kubeProxyRules(
  services: number,
  protocol: Protocol,
  { external, affinity, family }: Required<Pick<Served, "external" | "affinity" | "family">>,
): Generator<string[]> {
  const transport = protocol === "UDP" ? "udp" : "tcp";
  const table = `${family} ${TABLE}`;
  const at = (address: string): string => inFamily(address, family);
  const options = { nodeAddresses: [at(NODE_IP)], clusterCIDR: at(CLUSTER_CIDR), serviceCIDR: at(SERVICE_CIDR) };
  yield [`add table ${table}`, `delete table ${table}`, ...setUp(family, options)];
  for (let first = 0; first < services; first += AT_ONCE) {
    const lines: string[] = [];
    for (let i = first; i < Math.min(first + AT_ONCE, services); i++) {
      const name = hashed(`bench/${serviceName(i)}/${transport}/http`);
      const chain = `service-${name}`;
      const endpoints = podsOf(i, ENDPOINTS).map((pod) => [at(podAddress(pod)), SERVER_PORT] as const);
      lines.push(
        `add chain ${table} ${chain}`,
        ...(affinity
          ? affinityRules(family, transport, name, endpoints)
          : [`add rule ${table} ${chain} ${drawRule(family, transport, endpoints)}`]),
        `add element ${table} cluster-ips { ${at(clusterIPOf(i))} }`,
        `add element ${table} service-ips { ${at(clusterIPOf(i))} . ${transport} . 80 : goto ${chain} }`,
      );
      if (!external) continue;
      lines.push(
        `add chain ${table} external-${chain}`,
        `add rule ${table} external-${chain} mark set mark or ${MARK}`,
        `add rule ${table} external-${chain} goto ${chain}`,
        `add element ${table} service-ips { ${at(loadBalancerOf(i))} . ${transport} . 80 : goto external-${chain} }`,
        `add element ${table} service-nodeports { ${transport} . ${nodePortOf(i)} : goto external-${chain} }`,
      );
    }
    yield lines;
  }
}

/** Time of a packet, from its send to its receipt; ns. With TCP, the first one is the handshake. */
export interface Quantiles {
  readonly p10: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly count: number;
  readonly lost: number;
}

/** The first datagram of a connection, the second one before any answer, and one after an answer. */
export type Moments = Readonly<Record<"first" | "second" | "answered", Quantiles>>;

/**
 * Where new sockets connect to. "services" and "pods" from a pod of the node, "outside" to ClusterIPs from elsewhere, and from there also
 * "load-balancer" and "node-port", the one of the first service.
 */
export const DESTINATIONS = ["services", "pods", "outside", "load-balancer", "node-port"] as const;

/** The destinations of new sockets. */
export interface Path {
  readonly name: string;
  readonly road: Road;
  readonly to: (typeof DESTINATIONS)[number];
  /** Number of services or pods to draw from at random. */
  readonly destinations: number;
}

/** Opens connections on all paths in turns, this many on each. */
export async function firstPackets(
  paths: readonly Path[],
  connections: number,
  protocol: Protocol = "UDP",
  family: Family = "ip",
): Promise<Record<string, Moments>> {
  const program = buildProgram("first-packet", [], "-O2");
  const args = paths.map(({ name, road, to, destinations }) => {
    const [destination, port] = target(to);
    const source = to === "services" || to === "pods" ? CLIENT : OUTSIDE;
    const addresses = [source, destination].map((address) => inFamily(address, family));
    const ends = [name, road.client.name, road.pod.name, ...addresses, to === "node-port" ? 1 : destinations];
    return [...ends, port, SERVER_PORT, protocol.toLowerCase()].join("|");
  });
  const output = await mustRun(program, [String(connections), ...args], { timeoutMs: 600_000 });
  return JSON.parse(output) as Record<string, Moments>;
}

/** Returns the first of the destinations. */
export function target(to: Path["to"]): readonly [address: string, port: number] {
  switch (to) {
    case "pods":
      return [podAddress(0), SERVER_PORT];
    case "load-balancer":
      return [loadBalancerOf(0), 80];
    case "node-port":
      return [NODE_IP, nodePortOf(0)];
    case "services":
    case "outside":
      return [clusterIPOf(0), 80];
  }
}
