/** The same services and the same packets, with kube-proxy's nftables mode and with ours. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { patience } from "../lab/patience.ts";
import {
  clusterIP,
  everyWay,
  externalIP,
  externals,
  loadBalancer,
  nodePort,
  type ServiceSpec,
  target,
} from "../packets/support/objects.ts";
import { checkRow, type Row } from "../packets/support/rows.ts";
import { Node } from "./support/node.ts";
import { kubeProxyMinor } from "./support/program.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "b", "r1"], external: "Local" };
const empty: ServiceSpec = { name: "empty", n: 3, endpoints: [] };
const inside: ServiceSpec = { name: "inside", n: 4, endpoints: ["c", "r2"], internal: "Local" };
const insideFar: ServiceSpec = { name: "inside-far", n: 5, endpoints: ["r1"], internal: "Local" };
const edgeFar: ServiceSpec = { name: "edge-far", n: 6, endpoints: ["r1", "r2"], external: "Local" };
const guarded: ServiceSpec = {
  name: "guarded",
  n: 7,
  endpoints: ["r1"],
  ranges: ["198.51.100.0/25", "2001:db8:2::/65"],
};
const alone: ServiceSpec = { name: "alone", n: 8, endpoints: ["a"] };
const sticky: ServiceSpec = { name: "sticky", n: 9, endpoints: ["b"], affinitySeconds: patience(600) };
const terminating: ServiceSpec = {
  name: "terminating",
  n: 10,
  endpoints: [{ pod: "a", ready: false, serving: true, terminating: true }],
};
const zoned: ServiceSpec = {
  name: "zoned",
  n: 11,
  // Before 1.31, hints count only for services that request them.
  metadata: { annotations: { "service.kubernetes.io/topology-mode": "Auto" } },
  endpoints: [
    { pod: "a", forZones: ["zone-1"] },
    { pod: "r1", forZones: ["zone-2"] },
  ],
};
const SERVICES = [web, edge, empty, inside, insideFar, edgeFar, guarded, alone, sticky, terminating, zoned];

/** `since`: the first minor version of kube-proxy with the same behaviour. */
type Compared = Row & { readonly since?: number };

const nobody = target("a ClusterIP that no service has", { ip: "10.96.200.200", ip6: "fd00:10:96::c8c8" }, 80);

const ROWS: readonly Compared[] = [
  { rule: "ClusterIP", from: "b", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } },
  { rule: "ClusterIP", from: ["node", "client"], to: clusterIP(web), expect: { pods: ["a", "r1"], masq: true } },
  { rule: "hairpin", from: "a", to: everyWay(alone), expect: { pods: ["a"], masq: true } },
  {
    rule: "policy Cluster",
    from: ["b", "node", "client"],
    to: externals(web),
    expect: { pods: ["a", "r1"], masq: true },
  },
  { rule: "policy Local, off-cluster", from: "client", to: externals(edge), expect: { pods: ["a", "b"], masq: false } },
  { rule: "policy Local, pod", from: "c", to: externals(edge), expect: { pods: ["a", "b", "r1"], masq: false } },
  { rule: "policy Local, node", from: "node", to: externals(edge), expect: { pods: ["a", "b", "r1"], masq: true } },
  { rule: "policy Local, endpoints elsewhere", from: "client", to: externals(edgeFar), expect: "drop" },
  {
    rule: "policy Local, endpoints elsewhere, pod",
    from: "b",
    to: externals(edgeFar),
    expect: { pods: ["r1", "r2"], masq: false },
  },
  {
    // 1.30 checks for endpoints at output before it translates, and so drops the node's own packets.
    since: 31,
    rule: "policy Local, endpoints elsewhere, node",
    from: "node",
    to: [loadBalancer(edgeFar), externalIP(edgeFar)],
    expect: { pods: ["r1", "r2"], masq: true },
  },
  { rule: "internal policy Local", from: "a", to: clusterIP(inside), expect: { pods: ["c"], masq: false } },
  {
    rule: "internal policy Local, endpoints elsewhere",
    from: ["b", "node", "client"],
    to: clusterIP(insideFar),
    expect: "drop",
  },
  { rule: "no endpoints", from: ["b", "node", "client"], to: everyWay(empty), expect: "reject" },
  { rule: "source ranges, inside", from: "client", to: loadBalancer(guarded), expect: { pods: ["r1"], masq: true } },
  { rule: "source ranges, outside", from: ["clientSecond", "b"], to: loadBalancer(guarded), expect: "drop" },
  {
    rule: "source ranges do not protect node ports",
    from: "clientSecond",
    to: nodePort(guarded),
    expect: { pods: ["r1"], masq: true },
  },
  { rule: "affinity", from: ["client", "c"], to: loadBalancer(sticky), expect: { pods: ["b"], masq: true } },
  {
    rule: "terminating endpoints serve if there are no others",
    from: "b",
    to: clusterIP(terminating),
    expect: { pods: ["a"], masq: false },
  },
  { rule: "zone hints", from: "b", to: clusterIP(zoned), expect: { pods: ["a"], masq: false } },
  { rule: "undefined port of a ClusterIP", from: ["b", "node"], to: clusterIP(web, 81), expect: "reject" },
  {
    // Earlier versions read ServiceCIDRs only with a feature gate.
    since: 33,
    rule: "address inside a ServiceCIDR",
    from: ["b", "node"],
    to: nobody,
    expect: "drop",
  },
];

let node: Node;
beforeAll(async () => {
  node = await Node.create(SERVICES);
});
afterAll(async () => node.destroy());

const title = ({ rule, from, to }: Row): string =>
  `${rule}: ${String(from)} → ${[to]
    .flat()
    .map(({ name }) => name)
    .join(", ")}`;

describe("kube-proxy", () => {
  beforeAll(async () => {
    await node.startKubeProxy("nftables");
  });

  for (const row of ROWS) {
    const differs = (row.since ?? 0) > kubeProxyMinor();
    test(`${title(row)}${differs ? `: not before 1.${row.since}` : ""}`, async () => {
      const wrong = await checkRow(node.cluster, row, { answerMs: differs ? 500 : 10_000 });
      if (differs) expect(wrong).not.toEqual([]);
      else expect(wrong).toEqual([]);
    });
  }
});

describe("nft-proxier", () => {
  beforeAll(async () => {
    await node.endAll("SIGTERM");
    await node.startNftProxier();
  });

  for (const row of ROWS) {
    test(title(row), async () => {
      expect(await checkRow(node.cluster, row)).toEqual([]);
    });
  }
});
