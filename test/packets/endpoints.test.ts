/** Selection of endpoints: readiness, terminating fall-backs, topology hints, and how slices make up a service. */
import { afterAll, beforeAll, describe } from "vitest";

import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  configuration,
  everyWay,
  externals,
  type Manifest,
  NODE,
  REMOTE_NODE,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
  sliceObject,
  ZONE,
} from "./support/objects.ts";
import { type Row, rowTests } from "./support/rows.ts";
import { FAMILIES } from "../lab/topology.ts";

const leaving = { ready: false, serving: true, terminating: true } as const;
const gone = { ready: false, serving: false, terminating: true } as const;
const down = { ready: false, serving: false } as const;
const local = { internal: "Local", external: "Local" } as const;

const unset: ServiceSpec = { name: "unset", n: 1, endpoints: [{ pod: "a" }, { pod: "r1", serving: true }] };
const halfDown: ServiceSpec = { name: "half-down", n: 2, endpoints: ["a", { pod: "r1", ...down }] };
const allDown: ServiceSpec = {
  name: "all-down",
  n: 3,
  endpoints: [
    { pod: "a", ...down },
    { pod: "r1", ...down },
  ],
};
const servingOnly: ServiceSpec = { name: "serving-only", n: 4, endpoints: [{ pod: "a", ready: false, serving: true }] };
const allLeaving: ServiceSpec = {
  name: "all-leaving",
  n: 5,
  endpoints: [
    { pod: "a", ...leaving },
    { pod: "r1", ready: false, terminating: true },
    { pod: "r2", ...gone },
  ],
};
const allGone: ServiceSpec = {
  name: "all-gone",
  n: 6,
  endpoints: [
    { pod: "a", ...gone },
    { pod: "r1", ...gone },
  ],
};
const localLeaving: ServiceSpec = {
  name: "local-leaving",
  n: 7,
  ...local,
  endpoints: [{ pod: "a", ...leaving }, "r1"],
};
const localReady: ServiceSpec = {
  name: "local-ready",
  n: 8,
  ...local,
  endpoints: ["a", { pod: "b", ...leaving }, { pod: "r1", ...leaving }],
};
const localGone: ServiceSpec = { name: "local-gone", n: 9, ...local, endpoints: [{ pod: "a", ...gone }, "r1"] };
const oneReady: ServiceSpec = { name: "one-ready", n: 10, endpoints: [{ pod: "a", ...leaving }, "r1"] };
const localAllLeaving: ServiceSpec = {
  name: "local-all-leaving",
  n: 11,
  ...local,
  endpoints: [
    { pod: "a", ...leaving },
    { pod: "r1", ...leaving },
  ],
};
const early: ServiceSpec = {
  name: "early",
  n: 12,
  // The controller reports such endpoints as ready; the flag itself means nothing to a node.
  spec: { publishNotReadyAddresses: true },
  endpoints: [
    { pod: "a", ready: true, serving: false },
    { pod: "r1", ready: true, serving: false, terminating: true },
    { pod: "r2", ready: false, serving: false },
  ],
};

const byNode: ServiceSpec = {
  name: "by-node",
  n: 20,
  endpoints: [
    { pod: "a", forNodes: [NODE], forZones: ["zone-2"] },
    { pod: "b", forNodes: [REMOTE_NODE], forZones: [ZONE] },
    { pod: "r1", forNodes: [REMOTE_NODE, NODE], forZones: ["zone-2"] },
  ],
};
const byNodeMissing: ServiceSpec = {
  name: "by-node-missing",
  n: 21,
  endpoints: [
    { pod: "a", forNodes: [NODE], forZones: ["zone-2"] },
    { pod: "r1", forZones: [ZONE] },
  ],
};
const byNodeElsewhere: ServiceSpec = {
  name: "by-node-elsewhere",
  n: 22,
  endpoints: [
    { pod: "a", forNodes: [REMOTE_NODE], forZones: [ZONE] },
    { pod: "r1", forNodes: [REMOTE_NODE], forZones: ["zone-2"] },
  ],
};
const byZone: ServiceSpec = {
  name: "by-zone",
  n: 23,
  endpoints: [
    { pod: "a", forZones: ["zone-2"] },
    { pod: "r1", forZones: ["zone-2", ZONE] },
    { pod: "r2", forZones: [ZONE] },
  ],
};
const byZoneMissing: ServiceSpec = {
  name: "by-zone-missing",
  n: 24,
  endpoints: [{ pod: "a", forZones: [ZONE] }, "r1"],
};
const byZoneElsewhere: ServiceSpec = {
  name: "by-zone-elsewhere",
  n: 25,
  endpoints: [
    { pod: "a", forZones: ["zone-2"] },
    { pod: "r1", forZones: ["zone-3"] },
  ],
};
const hintsAndLocal: ServiceSpec = {
  name: "hints-and-local",
  n: 26,
  ...local,
  endpoints: [
    { pod: "a", forNodes: [NODE], forZones: [ZONE] },
    { pod: "b", forNodes: [REMOTE_NODE], forZones: ["zone-2"] },
    { pod: "r1", forNodes: [REMOTE_NODE], forZones: ["zone-2"] },
  ],
};
const hintsOfUnready: ServiceSpec = {
  name: "hints-of-unready",
  n: 27,
  endpoints: [
    { pod: "a", forZones: [ZONE] },
    { pod: "r1", forZones: ["zone-2"] },
    { pod: "r2", ...down },
  ],
};
const hintsOfLeaving: ServiceSpec = {
  name: "hints-of-leaving",
  n: 28,
  endpoints: [
    { pod: "a", ...leaving, forZones: [ZONE] },
    { pod: "r1", ...leaving, forZones: ["zone-2"] },
  ],
};

const services = [
  unset,
  halfDown,
  allDown,
  servingOnly,
  allLeaving,
  allGone,
  localLeaving,
  localReady,
  localGone,
  oneReady,
  localAllLeaving,
  early,
  byNode,
  byNodeMissing,
  byNodeElsewhere,
  byZone,
  byZoneMissing,
  byZoneElsewhere,
  hintsAndLocal,
  hintsOfUnready,
  hintsOfLeaving,
];

const merged: ServiceSpec = { name: "merged", n: 40, endpoints: [] };
const repeated: ServiceSpec = { name: "repeated", n: 41, endpoints: [] };
const strangers: ServiceSpec = { name: "strangers", n: 42, endpoints: [] };
const twoPorts: ServiceSpec = { name: "two-ports", n: 43, endpoints: [] };

/** Services whose slices differ from those that a controller writes for a plain service. */
function sliceObjects(cluster: Cluster): Manifest[] {
  const { lab } = cluster;
  return FAMILIES.flatMap((family) => {
    const slice = (service: string, suffix: string, endpoints: ServiceSpec["endpoints"]): Manifest =>
      sliceObject(lab, { name: `${service}-${suffix}-${family}`, service, family, endpoints });
    const labels = { "kubernetes.io/service-name": "strangers" };
    const addressOf = (pod: string): string => lab.pod(pod).address[family];
    return [
      slice("merged", "one", ["a"]),
      slice("merged", "two", ["b", "r1"]),
      // The endpoint that is not terminating wins, in either order.
      slice("repeated", "one", [{ pod: "a", ...leaving }, "a", "r1"]),
      slice("repeated", "two", ["a", { pod: "r1", ...leaving }]),
      slice("strangers", "good", ["a"]),
      { ...slice("strangers", "elsewhere", ["b"]), metadata: { name: `else-${family}`, namespace: "other", labels } },
      { ...slice("strangers", "headless", ["b"]), metadata: headless(`headless-${family}`, labels) },
      { ...slice("strangers", "unlabelled", ["b"]), metadata: { name: `plain-${family}`, namespace: "default" } },
      { ...slice("strangers", "fqdn", []), addressType: "FQDN", endpoints: [{ addresses: ["pod-b.example"] }] },
      { ...slice("strangers", "portless", ["b"]), ports: ["TCP", "UDP", "SCTP"].map((p) => named(p)) },
      { ...slice("strangers", "wrong-name", ["b"]), ports: ["TCP", "UDP", "SCTP"].map((p) => named(p, "x", 8080)) },
      {
        ...slice("strangers", "wrong-protocol", ["b"]),
        ports: [
          { name: "tcp", protocol: "UDP", port: 8080 },
          { name: "udp", protocol: "SCTP", port: 8080 },
          { name: "sctp", protocol: "TCP", port: 8080 },
        ],
      },
      // The addresses are of one family, but the slice claims the other.
      { ...slice("strangers", "mixed", ["b"]), addressType: family === "ip" ? "IPv6" : "IPv4" },
      { ...slice("strangers", "second", []), endpoints: [{ addresses: [addressOf("a"), addressOf("b")] }] },
      { ...slice("strangers", "bad", []), endpoints: [{ addresses: ["no-address"] }, { addresses: [] }] },
      {
        ...slice("two-ports", "all", ["a"]),
        ports: [
          { name: "one", protocol: "TCP", port: 8080 },
          { name: "two", protocol: "TCP", port: 8081 },
        ],
      },
    ];
  });
}

function named(protocol: string, suffix = "", port?: number): Manifest {
  return { name: protocol.toLowerCase() + suffix, protocol, port };
}

function headless(name: string, labels: Record<string, string>): Manifest {
  return { name, namespace: "default", labels: { ...labels, "service.kubernetes.io/headless": "" } };
}

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.serve("a", "tcp", 8081, "a-two");
  const twoPortService = serviceObject({
    ...twoPorts,
    spec: {
      ports: [
        { name: "one", protocol: "TCP", port: 80, targetPort: 8080 },
        { name: "two", protocol: "TCP", port: 81, targetPort: "named" },
      ],
    },
  });
  const objects = [
    ...services.flatMap((service) => serviceObjects(cluster.lab, service)),
    ...[merged, repeated, strangers].map(serviceObject),
    twoPortService,
    ...sliceObjects(cluster),
  ];
  // Some of the slices cannot be served as written.
  await cluster.apply(objects, configuration(), false, ["--allow-incomplete"]);
});
afterAll(() => cluster.destroy());

/** The cluster list as a pod sees it at the ClusterIP. */
const clusterList = (rule: string, service: ServiceSpec, pods: readonly string[]): Row => ({
  rule,
  from: "c",
  to: clusterIP(service),
  expect: { pods, masq: false },
});
/** The local list as a client sees it at the external addresses. */
const localList = (rule: string, service: ServiceSpec, pods: readonly string[]): Row => ({
  rule,
  from: "client",
  to: externals(service),
  expect: { pods, masq: false },
});

describe("conditions", () => {
  testRows([
    clusterList("ready unset means true", unset, ["a", "r1"]),
    clusterList("only ready endpoints", halfDown, ["a"]),
    { rule: "none ready", from: ["b", "node", "client"], to: everyWay(allDown), expect: "reject" },
    { rule: "serving alone is not enough", from: ["b", "client"], to: everyWay(servingOnly), expect: "reject" },
    clusterList("publishNotReadyAddresses arrives folded into ready", early, ["a", "r1"]),
  ]);
});

describe("terminating endpoints as fall-back", () => {
  testRows([
    clusterList("all terminating: those that serve; serving unset means true", allLeaving, ["a", "r1"]),
    {
      rule: "all terminating: they also serve from outside",
      from: "client",
      to: externals(allLeaving),
      expect: { pods: ["a", "r1"], masq: true },
    },
    { rule: "terminating and not serving", from: ["b", "node", "client"], to: everyWay(allGone), expect: "reject" },
    clusterList("one ready on any node: no terminating one", oneReady, ["r1"]),
    localList("ready beats terminating separately: none ready here", localLeaving, ["a"]),
    {
      rule: "ready beats terminating separately: the cluster list",
      from: "b",
      to: externals(localLeaving),
      expect: { pods: ["r1"], masq: false },
    },
    {
      rule: "the ClusterIP with policy Local falls back, too",
      from: "b",
      to: clusterIP(localLeaving),
      expect: { pods: ["a"], masq: false },
    },
    localList("one ready here: no terminating one", localReady, ["a"]),
    {
      rule: "one ready here: the cluster list",
      from: "c",
      to: externals(localReady),
      expect: { pods: ["a"], masq: false },
    },
    localList("both lists fall back: the local list", localAllLeaving, ["a"]),
    {
      rule: "both lists fall back to terminating endpoints: the cluster list",
      from: "b",
      to: externals(localAllLeaving),
      expect: { pods: ["a", "r1"], masq: false },
    },
    { rule: "not serving here, ready elsewhere", from: "client", to: everyWay(localGone), expect: "drop" },
  ]);
});

describe("topology hints", () => {
  testRows([
    clusterList("forNodes on every ready endpoint, one names this node", byNode, ["a", "r1"]),
    { rule: "forNodes from outside", from: "client", to: externals(byNode), expect: { pods: ["a", "r1"], masq: true } },
    clusterList("an endpoint without forNodes, one without forZones does not matter: forZones", byNodeMissing, ["r1"]),
    clusterList("forNodes never names this node: forZones", byNodeElsewhere, ["a"]),
    clusterList("forZones on every ready endpoint, one names this zone", byZone, ["r1", "r2"]),
    clusterList("an endpoint without forZones: no narrowing", byZoneMissing, ["a", "r1"]),
    clusterList("forZones never names this zone: no narrowing", byZoneElsewhere, ["a", "r1"]),
    localList("hints never narrow the local list", hintsAndLocal, ["a", "b"]),
    {
      rule: "hints narrow the cluster list as well",
      from: "c",
      to: externals(hintsAndLocal),
      expect: { pods: ["a"], masq: false },
    },
    {
      rule: "hints never narrow the ClusterIP's local list",
      from: "c",
      to: clusterIP(hintsAndLocal),
      expect: { pods: ["a", "b"], masq: false },
    },
    clusterList("an endpoint that is not ready need not have hints", hintsOfUnready, ["a"]),
    clusterList("hints do not narrow terminating endpoints", hintsOfLeaving, ["a", "r1"]),
  ]);
});

describe("slices", () => {
  testRows([
    clusterList("several slices are merged", merged, ["a", "b", "r1"]),
    clusterList("the same endpoint twice: not terminating wins", repeated, ["a", "r1"]),
    clusterList("only slices, ports and addresses that belong to the service", strangers, ["a"]),
    {
      rule: "ports match by name",
      from: "b",
      to: clusterIP(twoPorts),
      protocols: ["tcp"],
      expect: { pods: ["a"], masq: false },
    },
    {
      rule: "ports match by name, the second",
      from: "b",
      to: clusterIP(twoPorts, 81),
      protocols: ["tcp"],
      expect: { pods: ["a-two"], masq: false },
    },
  ]);
});
