/** Where packets go and whose source is rewritten: every destination, both policies, from pod, node and outside. */
import { afterAll, beforeAll, describe } from "vitest";

import { Cluster } from "./support/cluster.ts";
import {
  clusterAddress,
  clusterIP,
  everyWay,
  externalIP,
  externals,
  loadBalancer,
  nodePort,
  POD_PORT,
  serviceObjects,
  type ServiceSpec,
  target,
  TRANSPORTS,
} from "./support/objects.ts";
import { rowTests } from "./support/rows.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "r1"], external: "Local" };
const inner: ServiceSpec = { name: "inner", n: 3, endpoints: ["a", "r1"], internal: "Local" };
const both: ServiceSpec = { name: "both", n: 4, endpoints: ["a", "r1"], internal: "Local", external: "Local" };
const edgeFar: ServiceSpec = { name: "edge-far", n: 5, endpoints: ["r1", "r2"], external: "Local" };
const innerFar: ServiceSpec = { name: "inner-far", n: 6, endpoints: ["r1", "r2"], internal: "Local" };
const bothFar: ServiceSpec = { name: "both-far", n: 7, endpoints: ["r1"], internal: "Local", external: "Local" };
const alone: ServiceSpec = { name: "alone", n: 8, endpoints: ["a"] };
const aloneEdge: ServiceSpec = { name: "alone-edge", n: 9, endpoints: ["a"], external: "Local" };
const BORROWED_PORT = 10_009;
/** Its external IP is the ClusterIP of `web`, at another port. */
const borrower: ServiceSpec = {
  name: "borrower",
  n: 10,
  endpoints: ["a"],
  external: "Local",
  spec: {
    externalIPs: Object.values(clusterAddress(web.n)),
    ports: TRANSPORTS.map((name) => ({
      name,
      protocol: name.toUpperCase(),
      port: BORROWED_PORT,
      targetPort: POD_PORT,
    })),
  },
};
const services = [web, edge, inner, both, edgeFar, innerFar, bothFar, alone, aloneEdge, borrower];

const OFF_CLUSTER = ["client", "clientSecond", "remoteNode"];

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.apply(services.flatMap((service) => serviceObjects(cluster.lab, service)));
});
afterAll(() => cluster.destroy());

describe("ClusterIP", () => {
  testRows([
    {
      rule: "policy Cluster, a local source keeps its address",
      from: ["b", "c"],
      to: [clusterIP(web), clusterIP(edge)],
      expect: { pods: ["a", "r1"], masq: false },
    },
    {
      rule: "policy Cluster, other sources are rewritten",
      from: ["node", "nodeOutside", ...OFF_CLUSTER],
      to: [clusterIP(web), clusterIP(edge)],
      expect: { pods: ["a", "r1"], masq: true },
    },
    {
      rule: "a pod of another node is local traffic with a cluster CIDR",
      from: "r1",
      to: clusterIP(alone),
      expect: { pods: ["a"], masq: false },
    },
    {
      rule: "policy Local, a local source keeps its address",
      from: ["b", "c"],
      to: [clusterIP(inner), clusterIP(both)],
      expect: { pods: ["a"], masq: false },
    },
    {
      rule: "policy Local, other sources are rewritten",
      from: ["node", ...OFF_CLUSTER],
      to: [clusterIP(inner), clusterIP(both)],
      expect: { pods: ["a"], masq: true },
    },
    {
      rule: "policy Local with endpoints only elsewhere",
      from: ["b", "node", "client"],
      to: [clusterIP(innerFar), clusterIP(bothFar)],
      expect: "drop",
    },
  ]);
});

describe("external addresses and node ports, policy Cluster", () => {
  testRows([
    {
      rule: "always rewritten",
      from: ["b", "c", "node", ...OFF_CLUSTER],
      to: externals(web),
      expect: { pods: ["a", "r1"], masq: true },
    },
    {
      rule: "internal policy Local changes nothing here",
      from: ["b", "node", "client"],
      to: externals(inner),
      expect: { pods: ["a", "r1"], masq: true },
    },
    {
      rule: "internal policy Local with endpoints only elsewhere: the rest still works",
      from: ["b", "node", "client"],
      to: externals(innerFar),
      expect: { pods: ["r1", "r2"], masq: true },
    },
  ]);
});

describe("external addresses and node ports, policy Local", () => {
  testRows([
    {
      rule: "an external IP that is the ClusterIP of another service: the source is kept",
      from: OFF_CLUSTER,
      to: target("external IP borrower", clusterAddress(web.n), BORROWED_PORT),
      expect: { pods: ["a"], masq: false },
    },
    {
      rule: "a pod reaches the cluster list and keeps its address",
      from: ["b", "c"],
      to: [...externals(edge), ...externals(both)],
      expect: { pods: ["a", "r1"], masq: false },
    },
    {
      rule: "the node reaches the cluster list, rewritten",
      from: ["node", "nodeOutside"],
      to: [...externals(edge), ...externals(both)],
      expect: { pods: ["a", "r1"], masq: true },
    },
    {
      rule: "off-cluster sources reach the local list and keep their address",
      from: OFF_CLUSTER,
      to: [...externals(edge), ...externals(both)],
      expect: { pods: ["a"], masq: false },
    },
    {
      rule: "endpoints only elsewhere, off-cluster",
      from: OFF_CLUSTER,
      to: [...externals(edgeFar), ...externals(bothFar)],
      expect: "drop",
    },
    {
      rule: "endpoints only elsewhere: pods still reach them",
      from: ["b", "c"],
      to: externals(edgeFar),
      expect: { pods: ["r1", "r2"], masq: false },
    },
    {
      rule: "endpoints only elsewhere: the node still reaches them",
      from: "node",
      to: externals(edgeFar),
      expect: { pods: ["r1", "r2"], masq: true },
    },
    {
      rule: "endpoints only elsewhere: the ClusterIP still works",
      from: "client",
      to: clusterIP(edgeFar),
      expect: { pods: ["r1", "r2"], masq: true },
    },
    {
      rule: "both policies Local, endpoints only elsewhere: pods and node still reach them through external addresses",
      from: "b",
      to: externals(bothFar),
      expect: { pods: ["r1"], masq: false },
    },
  ]);
});

describe("hairpin: the chosen endpoint is the sender", () => {
  testRows([
    { rule: "ClusterIP", from: "a", to: clusterIP(alone), expect: { pods: ["a"], masq: true } },
    {
      rule: "ClusterIP, only connections to itself",
      from: "a",
      to: [clusterIP(web), clusterIP(edge)],
      expect: { pods: ["a", "r1"], masq: ["a"] },
    },
    { rule: "ClusterIP, policy Local", from: "a", to: clusterIP(inner), expect: { pods: ["a"], masq: true } },
    { rule: "external, policy Cluster", from: "a", to: externals(alone), expect: { pods: ["a"], masq: true } },
    { rule: "external, policy Local", from: "a", to: externals(aloneEdge), expect: { pods: ["a"], masq: true } },
    {
      rule: "external, policy Local, only connections to itself",
      from: "a",
      to: [loadBalancer(edge), externalIP(edge), nodePort(edge)],
      expect: { pods: ["a", "r1"], masq: ["a"] },
    },
    {
      rule: "a pod of another node, policy Local, only connections to itself",
      from: "r1",
      to: [clusterIP(edge), ...externals(edge)],
      expect: { pods: ["a", "r1"], masq: ["r1"] },
    },
    {
      rule: "another pod's connections are not treated as hairpin",
      from: "b",
      to: [clusterIP(alone), ...externals(aloneEdge)],
      expect: { pods: ["a"], masq: false },
    },
  ]);
});

describe("every address of a service at once", () => {
  testRows([{ rule: "from outside", from: "client", to: everyWay(alone), expect: { pods: ["a"], masq: true } }]);
});
