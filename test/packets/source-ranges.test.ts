/** Load-balancer source ranges: which sources reach which of a service's addresses. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  externalIP,
  externals,
  loadBalancer,
  loadBalancerAddress,
  nodePort,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { checkRow, type Row, rowTests } from "./support/rows.ts";

const CLIENT_HALF = ["198.51.100.0/25", "2001:db8:2::/65"];

const guarded: ServiceSpec = { name: "guarded", n: 10, endpoints: ["a", "r1"], ranges: CLIENT_HALF };
const guardedLocal: ServiceSpec = {
  name: "guarded-local",
  n: 11,
  endpoints: ["a", "r1"],
  external: "Local",
  ranges: CLIENT_HALF,
};
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
const services = [guarded, guardedLocal, withPods, onlyV4, onlyV6, everyone, withNode, spaced];

const EVERYONE = ["b", "c", "node", "client", "remoteNode"];

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.apply(services.flatMap((service) => serviceObjects(cluster.lab, service)));
});
afterAll(() => cluster.destroy());

describe("source ranges", () => {
  const masqueraded = { pods: ["a"], masq: true } as const;
  testRows([
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
  ]);

  test("the LB IPs themselves are allowed sources only if a range contains the node IP", async () => {
    const { node } = cluster.lab;
    const own = (service: ServiceSpec): string => {
      cluster.addSource(`LB IP of ${service.name}`, { namespace: node, address: loadBalancerAddress(service.n) });
      return `LB IP of ${service.name}`;
    };
    const change = (action: "add" | "delete"): Promise<void> =>
      node.ip(
        [withNode, guarded].flatMap(({ n }) => [
          `address ${action} ${loadBalancerAddress(n).ip}/32 dev lo`,
          `address ${action} ${loadBalancerAddress(n).ip6}/128 dev lo${action === "add" ? " nodad" : ""}`,
        ]),
      );
    await change("add");
    const rows: readonly Row[] = [
      { rule: "", from: own(withNode), to: loadBalancer(withNode), expect: { pods: ["a"], masq: true } },
      { rule: "", from: own(guarded), to: loadBalancer(guarded), expect: "drop" },
      { rule: "", from: own(guarded), to: externals(guarded).slice(1), expect: { pods: ["a", "r1"], masq: true } },
    ];
    try {
      const results = await Promise.all(rows.map((row) => checkRow(cluster, row)));
      expect(results.flat()).toEqual([]);
    } finally {
      await change("delete");
    }
  });
});
