/** No endpoint list, addresses at which no service answers, and load-balancer source ranges. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { type AddressPair, FAMILIES, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterAddress,
  clusterIP,
  everyWay,
  externalIP,
  externals,
  loadBalancer,
  loadBalancerAddress,
  type Manifest,
  nodePort,
  SERVICE_PORT,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
  sliceObject,
  target,
} from "./support/objects.ts";
import { checkRow, testRows } from "./support/rows.ts";

const CLIENT_HALF = ["198.51.100.0/25", "2001:db8:2::/65"];

const empty: ServiceSpec = { name: "empty", n: 1, endpoints: [] };
const emptyLocal: ServiceSpec = { name: "empty-local", n: 2, endpoints: [], internal: "Local", external: "Local" };
const web: ServiceSpec = { name: "web", n: 3, endpoints: ["a"] };
const tcpOnly: ServiceSpec = { name: "tcp-only", n: 4, endpoints: ["a"], protocols: ["tcp"] };
const guarded: ServiceSpec = { name: "guarded", n: 10, endpoints: ["a", "r1"], ranges: CLIENT_HALF };
const guardedLocal: ServiceSpec = {
  name: "guarded-local",
  n: 11,
  endpoints: ["a", "r1"],
  external: "Local",
  ranges: CLIENT_HALF,
};
const guardedEmpty: ServiceSpec = { name: "guarded-empty", n: 12, endpoints: [], ranges: CLIENT_HALF };
const withPods: ServiceSpec = {
  name: "with-pods",
  n: 13,
  endpoints: ["a"],
  ranges: [
    PLAN.podCIDR.ip,
    PLAN.podCIDR.ip6,
    "198.51.100.0/24",
    "198.51.100.10/32",
    "2001:db8:2::/64",
    "2001:db8:2::/65",
  ],
};
const onlyV4: ServiceSpec = { name: "only-v4", n: 14, endpoints: ["a"], ranges: ["198.51.100.0/25"] };
const onlyV6: ServiceSpec = { name: "only-v6", n: 15, endpoints: ["a"], ranges: ["2001:db8:2::/65"] };
const everyone: ServiceSpec = { name: "everyone", n: 16, endpoints: ["a"], ranges: ["0.0.0.0/0", "::/0"] };
const withNode: ServiceSpec = {
  name: "with-node",
  n: 17,
  endpoints: ["a"],
  ranges: ["192.0.2.0/28", "2001:db8:1::/64"],
};
const spaced: ServiceSpec = {
  name: "spaced",
  n: 18,
  endpoints: ["a"],
  ranges: [" 198.51.100.0/25 ", " 2001:db8:2::/65"],
};
const services = [
  empty,
  emptyLocal,
  web,
  tcpOnly,
  guarded,
  guardedLocal,
  guardedEmpty,
  withPods,
  onlyV4,
  onlyV6,
  everyone,
  withNode,
  spaced,
];

/** Services whose manually written endpoint is an address of a service. */
const toUnusedPort: ServiceSpec = { name: "to-unused-port", n: 30, endpoints: [] };
const toUnallocated: ServiceSpec = { name: "to-unallocated", n: 31, endpoints: [] };
const toEmpty: ServiceSpec = { name: "to-empty", n: 32, endpoints: [] };
const UNALLOCATED = { ip: "10.96.200.1", ip6: "fd00:10:96::c801" };

function pointing(spec: ServiceSpec, address: AddressPair, port: number): Manifest[] {
  const slices = FAMILIES.map((family) => ({
    ...sliceObject(cluster.lab, { name: `${spec.name}-${family}`, service: spec.name, family, endpoints: [], port }),
    endpoints: [{ addresses: [address[family]], conditions: { ready: true } }],
  }));
  return [serviceObject(spec), ...slices];
}

const EVERYONE = ["b", "c", "node", "client", "remoteNode"];

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.apply([
    ...services.flatMap((service) => serviceObjects(cluster.lab, service)),
    ...pointing(toUnusedPort, clusterAddress(web.n), 81),
    ...pointing(toUnallocated, UNALLOCATED, 80),
    ...pointing(toEmpty, loadBalancerAddress(empty.n), SERVICE_PORT),
  ]);
});
afterAll(async () => {
  await cluster.destroy();
});

describe("no usable endpoint on any node", () => {
  testRows(
    () => cluster,
    [
      { rule: "policy Cluster", from: EVERYONE, to: everyWay(empty), expect: "reject" },
      { rule: "policy Local", from: EVERYONE, to: everyWay(emptyLocal), expect: "reject" },
      { rule: "a source range lets through", from: "client", to: loadBalancer(guardedEmpty), expect: "reject" },
      {
        rule: "a source range is checked first",
        from: ["clientSecond", "b"],
        to: loadBalancer(guardedEmpty),
        expect: "drop",
      },
    ],
  );
});

describe("addresses and ports that no service has", () => {
  testRows(
    () => cluster,
    [
      {
        rule: "an active ClusterIP on another port",
        from: EVERYONE,
        to: [clusterIP(web, 81), clusterIP(empty, 81)],
        expect: "reject",
      },
      {
        rule: "an active ClusterIP over another protocol",
        from: EVERYONE,
        to: clusterIP(tcpOnly),
        protocols: ["udp", "sctp"],
        expect: "reject",
      },
      {
        rule: "inside a ServiceCIDR, unused",
        from: EVERYONE,
        to: target("an unallocated ClusterIP", UNALLOCATED, 80),
        expect: "drop",
      },
      {
        rule: "not a VIP",
        from: EVERYONE,
        to: target("203.0.113.250:80", { ip: "203.0.113.250", ip6: "2001:db8:cb::fa:1" }, 80),
        expect: "untouched",
      },
      {
        rule: "an LB or external IP on another port",
        from: EVERYONE,
        to: [loadBalancer(web, 81), externalIP(web, 81), loadBalancer(guarded, 81)],
        expect: "untouched",
      },
      {
        rule: "an LB IP over another protocol",
        from: EVERYONE,
        to: loadBalancer(tcpOnly),
        protocols: ["udp", "sctp"],
        expect: "untouched",
      },
      {
        rule: "a node port that no service has",
        from: EVERYONE,
        to: target("node port 30999", PLAN.node, 30999),
        expect: "untouched",
      },
      {
        rule: "a node port over another protocol",
        from: EVERYONE,
        to: nodePort(tcpOnly),
        protocols: ["udp", "sctp"],
        expect: "untouched",
      },
      {
        rule: "another process's address on a node port's number",
        from: ["b", "client"],
        to: target("203.0.113.250 on a node port", { ip: "203.0.113.250", ip6: "2001:db8:cb::fa:1" }, 30003),
        expect: "untouched",
      },
      {
        rule: "pods and nodes themselves",
        from: ["b", "node", "client"],
        to: target("pod a", { ip: "10.244.0.5", ip6: "fd00:10:244::5" }, 8080),
        expect: { pods: ["a"], masq: false },
      },
    ],
  );
});

describe("an endpoint with the address of a service", () => {
  testRows(
    () => cluster,
    [
      {
        rule: "a ClusterIP on a port that it does not have",
        from: EVERYONE,
        to: clusterIP(toUnusedPort),
        expect: "reject",
      },
      { rule: "an unallocated ClusterIP", from: EVERYONE, to: clusterIP(toUnallocated), expect: "drop" },
      { rule: "an LB IP without endpoints", from: EVERYONE, to: clusterIP(toEmpty), expect: "reject" },
    ],
  );
});

test("an unallocated ClusterIP that the node itself has: outgoing packets are checked, and incoming ones are not", async () => {
  const own = { ip: "10.96.200.2", ip6: "fd00:10:96::c802" };
  await cluster.lab.node.ip([`address add ${own.ip}/32 dev lo`, `address add ${own.ip6}/128 dev lo nodad`]);
  const to = target("a ClusterIP that the node has", own, 80);
  expect(await checkRow(cluster, { rule: "", from: ["b", "client"], to, expect: "untouched" })).toEqual([]);
  expect(await checkRow(cluster, { rule: "", from: "node", to, expect: "drop" })).toEqual([]);
});

describe("source ranges", () => {
  const masqueraded = { pods: ["a"], masq: true } as const;
  testRows(
    () => cluster,
    [
      { rule: "inside", from: "client", to: loadBalancer(guarded), expect: { pods: ["a", "r1"], masq: true } },
      {
        rule: "outside, pods and the node included",
        from: ["clientSecond", "b", "node", "remoteNode"],
        to: [loadBalancer(guarded), loadBalancer(guardedLocal)],
        expect: "drop",
      },
      {
        rule: "source ranges protect only the LB IPs",
        from: ["clientSecond", "node", "remoteNode"],
        to: [clusterIP(guarded), externalIP(guarded), nodePort(guarded)],
        expect: { pods: ["a", "r1"], masq: true },
      },
      {
        rule: "source ranges protect only the LB IPs, from a pod",
        from: "b",
        to: clusterIP(guarded),
        expect: { pods: ["a", "r1"], masq: false },
      },
      {
        rule: "inside, policy Local",
        from: "client",
        to: loadBalancer(guardedLocal),
        expect: { pods: ["a"], masq: false },
      },
      {
        rule: "several ranges, overlapping",
        from: ["b", "client", "clientSecond"],
        to: loadBalancer(withPods),
        expect: masqueraded,
      },
      { rule: "several ranges, outside all", from: ["remoteNode", "node"], to: loadBalancer(withPods), expect: "drop" },
      { rule: "spaces around a range", from: "client", to: loadBalancer(spaced), expect: masqueraded },
      { rule: "spaces around a range, outside", from: "clientSecond", to: loadBalancer(spaced), expect: "drop" },
      { rule: "all addresses", from: EVERYONE, to: loadBalancer(everyone), expect: masqueraded },
      {
        rule: "only IPv4 ranges leave IPv6 open",
        from: ["b", "clientSecond"],
        to: loadBalancer(onlyV4),
        families: ["ip6"],
        expect: masqueraded,
      },
      {
        rule: "only IPv4 ranges protect IPv4",
        from: ["b", "clientSecond"],
        to: loadBalancer(onlyV4),
        families: ["ip"],
        expect: "drop",
      },
      {
        rule: "only IPv6 ranges leave IPv4 open",
        from: ["b", "clientSecond"],
        to: loadBalancer(onlyV6),
        families: ["ip"],
        expect: masqueraded,
      },
      {
        rule: "only IPv6 ranges protect IPv6",
        from: ["b", "clientSecond"],
        to: loadBalancer(onlyV6),
        families: ["ip6"],
        expect: "drop",
      },
      { rule: "the node, with a range for it", from: "node", to: loadBalancer(withNode), expect: masqueraded },
    ],
  );

  test("the LB IPs themselves are allowed sources only if a range contains the node IP", async () => {
    const { node } = cluster.lab;
    const own = (service: ServiceSpec): string => {
      cluster.addSource(`LB IP of ${service.name}`, { namespace: node, address: loadBalancerAddress(service.n) });
      return `LB IP of ${service.name}`;
    };
    await node.ip(
      [withNode, guarded].flatMap(({ n }) => [
        `address add ${loadBalancerAddress(n).ip}/32 dev lo`,
        `address add ${loadBalancerAddress(n).ip6}/128 dev lo nodad`,
      ]),
    );
    const results = await Promise.all([
      checkRow(cluster, {
        rule: "",
        from: own(withNode),
        to: loadBalancer(withNode),
        expect: { pods: ["a"], masq: true },
      }),
      checkRow(cluster, { rule: "", from: own(guarded), to: loadBalancer(guarded), expect: "drop" }),
      checkRow(cluster, {
        rule: "",
        from: own(guarded),
        to: externals(guarded).slice(1),
        expect: { pods: ["a", "r1"], masq: true },
      }),
    ]);
    expect(results.flat()).toEqual([]);
  });
});
