/** No usable endpoint, and addresses or ports at which no service answers. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { type AddressPair, FAMILIES, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterAddress,
  clusterIP,
  everyWay,
  externalIP,
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
import { checkRow, rowTests } from "./support/rows.ts";

const CLIENT_HALF = ["198.51.100.0/25", "2001:db8:2::/65"];

const empty: ServiceSpec = { name: "empty", n: 1, endpoints: [] };
const emptyLocal: ServiceSpec = { name: "empty-local", n: 2, endpoints: [], internal: "Local", external: "Local" };
const web: ServiceSpec = { name: "web", n: 3, endpoints: ["a"] };
const tcpOnly: ServiceSpec = { name: "tcp-only", n: 4, endpoints: ["a"], protocols: ["tcp"] };
const guardedEmpty: ServiceSpec = { name: "guarded-empty", n: 12, endpoints: [], ranges: CLIENT_HALF };
const services = [empty, emptyLocal, web, tcpOnly, guardedEmpty];

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
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.apply([
    ...services.flatMap((service) => serviceObjects(cluster.lab, service)),
    ...pointing(toUnusedPort, clusterAddress(web.n), 81),
    ...pointing(toUnallocated, UNALLOCATED, 80),
    ...pointing(toEmpty, loadBalancerAddress(empty.n), SERVICE_PORT),
  ]);
});
afterAll(() => cluster.destroy());

describe("no usable endpoint on any node", () => {
  testRows([
    { rule: "policy Cluster", from: EVERYONE, to: everyWay(empty), expect: "reject" },
    { rule: "policy Local", from: EVERYONE, to: everyWay(emptyLocal), expect: "reject" },
    { rule: "a source range lets through", from: "client", to: loadBalancer(guardedEmpty), expect: "reject" },
    {
      rule: "a source range is checked first",
      from: ["clientSecond", "b"],
      to: loadBalancer(guardedEmpty),
      expect: "drop",
    },
  ]);
});

describe("addresses and ports that no service has", () => {
  testRows([
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
      to: [loadBalancer(web, 81), externalIP(web, 81), loadBalancer(guardedEmpty, 81)],
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
  ]);
});

describe("an endpoint with the address of a service", () => {
  testRows([
    {
      rule: "a ClusterIP on a port that it does not have",
      from: EVERYONE,
      to: clusterIP(toUnusedPort),
      expect: "reject",
    },
    { rule: "an unallocated ClusterIP", from: EVERYONE, to: clusterIP(toUnallocated), expect: "drop" },
    { rule: "an LB IP without endpoints", from: EVERYONE, to: clusterIP(toEmpty), expect: "reject" },
  ]);
});

test("an unallocated ClusterIP that the node itself has: outgoing packets are checked, and incoming ones are not", async () => {
  const own = { ip: "10.96.200.2", ip6: "fd00:10:96::c802" };
  await cluster.lab.node.ip([`address add ${own.ip}/32 dev lo`, `address add ${own.ip6}/128 dev lo nodad`]);
  try {
    const to = target("a ClusterIP that the node has", own, 80);
    expect(await checkRow(cluster, { rule: "", from: ["b", "client"], to, expect: "untouched" })).toEqual([]);
    expect(await checkRow(cluster, { rule: "", from: "node", to, expect: "drop" })).toEqual([]);
  } finally {
    await cluster.lab.node.ip([`address delete ${own.ip}/32 dev lo`, `address delete ${own.ip6}/128 dev lo`]);
  }
});
