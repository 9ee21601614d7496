/** The objects that are served: selection, families, LB ingress modes, external IPs, clashes, and faults in them. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { Cluster } from "./support/cluster.ts";
import {
  clusterAddress,
  clusterIP,
  configuration,
  everyWay,
  externalAddress,
  externalIP,
  externals,
  loadBalancer,
  loadBalancerAddress,
  type Manifest,
  nodePort,
  nodePortOf,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
  target,
} from "./support/objects.ts";
import { rowTests } from "./support/rows.ts";
import { PLAN } from "../lab/topology.ts";

const EVERYONE = ["b", "node", "client"];
const TO_A = { pods: ["a"], masq: true } as const;

const good: ServiceSpec = { name: "good", n: 1, endpoints: ["a"] };
const otherProxy: ServiceSpec = {
  name: "other-proxy",
  n: 2,
  endpoints: ["a"],
  metadata: { labels: { "service.kubernetes.io/service-proxy-name": "somebody-else" } },
};
const headless: ServiceSpec = {
  name: "headless",
  n: 3,
  endpoints: ["a"],
  spec: { clusterIP: "None", clusterIPs: ["None"] },
};
const external: ServiceSpec = {
  name: "external",
  n: 4,
  endpoints: ["a"],
  spec: { type: "ExternalName", externalName: "example.org" },
};
const unallocated: ServiceSpec = {
  name: "unallocated",
  n: 5,
  endpoints: ["a"],
  spec: { clusterIP: "", clusterIPs: [] },
};

const v4: ServiceSpec = { name: "v4", n: 10, endpoints: ["a"], families: ["ip"] };
const v6: ServiceSpec = { name: "v6", n: 11, endpoints: ["a"], families: ["ip6"] };
const v6First: ServiceSpec = { name: "v6-first", n: 12, endpoints: ["a"], families: ["ip6", "ip"] };
/**
 * Single-stack, but with addresses of both families in the lists. The node port and LB IPs follow the ClusterIP's
 * family.
 */
const v4Mixed: ServiceSpec = {
  name: "v4-mixed",
  n: 13,
  endpoints: ["a"],
  families: ["ip"],
  spec: { externalIPs: Object.values(externalAddress(13)) },
  status: { loadBalancer: { ingress: Object.values(loadBalancerAddress(13)).map((ip) => ({ ip })) } },
};
/** Like an old manifest: no clusterIPs, no ipFamilies, no policies, no protocol, no port name. */
const plain: ServiceSpec = { name: "plain", n: 14, endpoints: ["a"] };

const modes: ServiceSpec = {
  name: "modes",
  n: 20,
  endpoints: ["a"],
  status: {
    loadBalancer: {
      ingress: [
        ...Object.values(loadBalancerAddress(20)).map((ip) => ({ ip, ipMode: "Proxy" })),
        ...Object.values(loadBalancerAddress(21)).map((ip) => ({ ip })),
        ...Object.values(loadBalancerAddress(22)).map((ip) => ({ ip, ipMode: "VIP" })),
        { hostname: "lb.example.org" },
      ],
    },
  },
};
const lenient: ServiceSpec = {
  name: "lenient",
  n: 23,
  endpoints: ["a"],
  // Leading zeros are decimal, not octal: 203.0.113.71 and 203.0.113.72.
  spec: { externalIPs: ["203.000.113.071", "2001:0DB8:CB:0::0071"] },
  status: { loadBalancer: { ingress: [{ ip: "203.0.113.072" }, { ip: "2001:db8:cb:0:0:0:0:72" }] } },
};
const partlyBad: ServiceSpec = {
  name: "partly-bad",
  n: 24,
  endpoints: ["a"],
  ranges: ["not a range", "198.51.100.0/24", "2001:db8:2::/64", "2001:db8::/129"],
  spec: { externalIPs: ["300.1.2.3", "", ...Object.values(externalAddress(24)), "bogus"] },
  status: {
    loadBalancer: { ingress: [{ ip: "1.2.3" }, ...Object.values(loadBalancerAddress(24)).map((ip) => ({ ip })), {}] },
  },
};

const first: ServiceSpec = {
  name: "b-first",
  n: 30,
  endpoints: ["a"],
  metadata: { creationTimestamp: "2024-01-01T00:00:00Z" },
  spec: { externalIPs: Object.values(externalAddress(39)) },
};
const second: ServiceSpec = {
  name: "a-second",
  n: 31,
  endpoints: ["r1"],
  metadata: { creationTimestamp: "2024-01-01T00:00:01Z" },
  spec: { externalIPs: [...Object.values(externalAddress(39)), ...Object.values(externalAddress(31))] },
};
/** Created at the same moment, so the name decides. */
const third: ServiceSpec = { name: "tie-a", n: 32, endpoints: ["a"], metadata: first.metadata ?? {} };
const fourth: ServiceSpec = {
  name: "tie-b",
  n: 33,
  endpoints: ["r1"],
  metadata: first.metadata ?? {},
  status: { loadBalancer: { ingress: Object.values(loadBalancerAddress(32)).map((ip) => ({ ip })) } },
};
/** Shares only the address. */
const neighbour: ServiceSpec = {
  name: "neighbour",
  n: 34,
  endpoints: ["r2"],
  protocols: ["tcp"],
  spec: {
    externalIPs: Object.values(externalAddress(39)),
    ports: [{ name: "tcp", protocol: "TCP", port: 81, targetPort: 8080, nodePort: nodePortOf(34) }],
  },
};

function plainObjects(cluster: Cluster): Manifest[] {
  const { lab } = cluster;
  const service = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "plain", namespace: "default" },
    spec: { clusterIP: clusterAddress(plain.n).ip, ports: [{ port: 80 }] },
  };
  const slice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: "plain-ip", namespace: "default", labels: { "kubernetes.io/service-name": "plain" } },
    addressType: "IPv4",
    ports: [{ port: 8080 }],
    endpoints: [{ addresses: [lab.pod("a").address.ip] }],
  };
  return [service, slice];
}

/** Objects that cannot be served at all, each for a different reason. */
const HOPELESS: readonly Manifest[] = [
  { ...serviceObject({ ...good, name: "no-ports", n: 90 }), spec: { clusterIP: "10.96.1.90" } },
  serviceObject({
    name: "bad-cluster-ip",
    n: 91,
    endpoints: [],
    spec: { clusterIP: "10.96.1", clusterIPs: ["10.96.1"] },
  }),
  serviceObject({ name: "bad-port", n: 92, endpoints: [], spec: { ports: [{ port: 70000 }, { port: "http" }] } }),
  serviceObject({ name: "bad-protocol", n: 93, endpoints: [], spec: { ports: [{ port: 80, protocol: "DCCP" }] } }),
  { apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", metadata: { name: "bare", namespace: "default" } },
  { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "not-ours", namespace: "default" }, data: {} },
];

const services = [
  good,
  otherProxy,
  headless,
  external,
  unallocated,
  v4,
  v6,
  v6First,
  v4Mixed,
  modes,
  lenient,
  partlyBad,
  first,
  second,
  third,
  fourth,
  neighbour,
];

/** Many of the objects cannot be served. */
const IN_PART = [undefined, false, ["--allow-incomplete"]] as const;

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(() => cluster.destroy());

function objects(without: readonly ServiceSpec[] = []): Manifest[] {
  const left = services.filter((service) => !without.includes(service));
  return [...HOPELESS, ...left.flatMap((service) => serviceObjects(cluster.lab, service)), ...plainObjects(cluster)];
}

describe("unchanged objects", () => {
  let output = "";
  beforeAll(async () => {
    const done = await cluster.apply(objects(), ...IN_PART);
    output = done.stdout + done.stderr;
  });

  test("every object that cannot be served is named", () => {
    const names = ["bad-cluster-ip", "bad-port", "bad-protocol", "partly-bad", "a-second", "tie-b"];
    expect(names.filter((name) => !output.includes(`default/${name}`))).toEqual([]);
  });

  testRows([
    { rule: "the rest works", from: EVERYONE, to: externals(good), expect: TO_A },
    { rule: "another proxy's service: its VIPs", from: EVERYONE, to: externals(otherProxy), expect: "untouched" },
    {
      rule: "another proxy's, headless, ExternalName or without a ClusterIP: its address in the ServiceCIDR is unused",
      from: EVERYONE,
      to: [otherProxy, headless, external, unallocated].map((service) => clusterIP(service)),
      expect: "drop",
    },
    {
      rule: "headless, ExternalName or without a ClusterIP: their other addresses and node ports",
      from: EVERYONE,
      to: [headless, external, unallocated].flatMap(externals),
      expect: "untouched",
    },
    { rule: "IPv4 only", from: EVERYONE, to: externals(v4), families: ["ip"], expect: TO_A },
    { rule: "IPv4 only, over IPv6", from: EVERYONE, to: externals(v4), families: ["ip6"], expect: "untouched" },
    { rule: "IPv6 only", from: EVERYONE, to: externals(v6), families: ["ip6"], expect: TO_A },
    { rule: "IPv6 only, over IPv4", from: EVERYONE, to: externals(v6), families: ["ip"], expect: "untouched" },
    { rule: "both, IPv6 first", from: EVERYONE, to: externals(v6First), expect: TO_A },
    { rule: "both, IPv6 first, ClusterIPs", from: "client", to: clusterIP(v6First), expect: TO_A },
    {
      rule: "addresses of both families, ClusterIP of one",
      from: EVERYONE,
      to: externals(v4Mixed),
      families: ["ip"],
      expect: TO_A,
    },
    {
      rule: "addresses of both families, ClusterIP of one: the other family is not served",
      from: EVERYONE,
      to: externals(v4Mixed),
      families: ["ip6"],
      expect: "untouched",
    },
    { rule: "defaults", from: "client", to: clusterIP(plain), families: ["ip"], protocols: ["tcp"], expect: TO_A },
    {
      rule: "defaults: only TCP",
      from: "client",
      to: clusterIP(plain),
      families: ["ip"],
      protocols: ["udp", "sctp"],
      expect: "reject",
    },
    { rule: "ipMode Proxy", from: EVERYONE, to: loadBalancer(modes), expect: "untouched" },
    {
      rule: "ipMode unset or VIP",
      from: EVERYONE,
      to: [21, 22].map((n) => target(`LB ${n}`, loadBalancerAddress(n), 80)),
      expect: TO_A,
    },
    {
      rule: "addresses in unusual forms",
      from: EVERYONE,
      to: [
        target("071", { ip: "203.0.113.71", ip6: "2001:db8:cb::71" }, 80),
        target("072", { ip: "203.0.113.72", ip6: "2001:db8:cb::72" }, 80),
      ],
      expect: TO_A,
    },
    { rule: "invalid addresses next to valid ones", from: "client", to: everyWay(partlyBad), expect: TO_A },
    { rule: "invalid ranges next to valid ones", from: ["b", "node"], to: loadBalancer(partlyBad), expect: "drop" },
  ]);
});

describe("two services claim one address and port", () => {
  const shared = target("the shared external IP", externalAddress(39), 80);
  const tied = loadBalancer(third);

  describe("both services", () => {
    beforeAll(() => cluster.apply(objects(), ...IN_PART));
    testRows([
      { rule: "the older service has the address", from: EVERYONE, to: shared, expect: TO_A },
      { rule: "the name decides between services of equal age", from: EVERYONE, to: tied, expect: TO_A },
      {
        rule: "the loser's other addresses work",
        from: EVERYONE,
        to: [loadBalancer(second), externalIP(second), nodePort(second)],
        expect: { pods: ["r1"], masq: true },
      },
      {
        rule: "another port of the address is no conflict",
        from: EVERYONE,
        to: target("the shared external IP, port 81", externalAddress(39), 81),
        protocols: ["tcp"],
        expect: { pods: ["r2"], masq: true },
      },
    ]);
  });

  describe("without the winners", () => {
    beforeAll(async () => {
      await cluster.apply(objects(), ...IN_PART);
      await cluster.apply(objects([first, third]), ...IN_PART);
    });
    testRows([
      { rule: "the others take over", from: EVERYONE, to: [shared, tied], expect: { pods: ["r1"], masq: true } },
    ]);
  });

  describe("with the winners again", () => {
    beforeAll(async () => {
      await cluster.apply(objects([first, third]), ...IN_PART);
      await cluster.apply(objects(), ...IN_PART);
    });
    testRows([{ rule: "the winners have it again", from: EVERYONE, to: [shared, tied], expect: TO_A }]);
  });
});

describe("featureGates.AllowServiceExternalIPs: false", () => {
  beforeAll(() =>
    cluster.apply(objects(), configuration({ featureGates: { AllowServiceExternalIPs: false } }), false, [
      "--allow-incomplete",
    ]),
  );
  testRows([
    { rule: "external IPs are ignored", from: EVERYONE, to: externalIP(good), expect: "untouched" },
    { rule: "the rest works", from: EVERYONE, to: [loadBalancer(good), nodePort(good)], expect: TO_A },
  ]);
});

describe("without a ServiceCIDR object", () => {
  beforeAll(() => cluster.apply(serviceObjects(cluster.lab, good), configuration({ bindAddress: PLAN.node.ip }), true));
  testRows([
    {
      rule: "an unallocated address is not a VIP",
      from: EVERYONE,
      to: target("10.96.200.1", { ip: "10.96.200.1", ip6: "fd00:10:96::c801" }, 80),
      expect: "untouched",
    },
    { rule: "an active ClusterIP on another port", from: EVERYONE, to: clusterIP(good, 81), expect: "reject" },
  ]);
});
