/**
 * kube-proxy can start where this program ran: the transaction with which its nftables mode sets its table up (chains, maps
 * and sets by name, type and flags; `add` does not mind what is there as long as these agree) is accepted on our table,
 * and our next run takes everything back.
 */
import { afterAll, beforeAll, expect, test } from "vitest";

import { FAMILIES, type Family } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, externals, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { checkRow } from "./support/rows.ts";

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(async () => {
  await cluster.destroy();
});

const SERVICES: readonly ServiceSpec[] = [
  { name: "web", n: 1, endpoints: ["a", "r1"] },
  { name: "edge", n: 2, endpoints: ["a", "b", "r1"], external: "Local" },
  { name: "empty", n: 3, endpoints: [] },
];

/** [name, type, hook, priority] of its base chains. */
const BASE_CHAINS = [
  ["filter-prerouting-pre-dnat", "filter", "prerouting", -110],
  ["filter-output-pre-dnat", "filter", "output", -110],
  ["filter-input", "filter", "input", 0],
  ["filter-forward", "filter", "forward", 0],
  ["filter-output", "filter", "output", 0],
  ["nat-prerouting", "nat", "prerouting", -100],
  ["nat-output", "nat", "output", -100],
  ["nat-postrouting", "nat", "postrouting", 100],
] as const;

const CHAINS = [
  "services",
  "cluster-ips-check",
  "masquerading",
  "mark-for-masquerade",
  "nodeport-endpoints-check",
  "service-endpoints-check",
  "firewall-check",
  "reject-chain",
];

function setUp(family: Family): string {
  const address = family === "ip" ? "ipv4_addr" : "ipv6_addr";
  const table = `${family} kube-proxy`;
  const service = `${address} . inet_proto . inet_service`;
  const sets: readonly (readonly [kind: string, name: string, type: string])[] = [
    ["set", "cluster-ips", address],
    ["set", "nodeport-ips", address],
    ["set", "hairpin-connections", `${address} . ${address} . inet_proto . inet_service`],
    ["map", "service-ips", `${service} : verdict`],
    ["map", "service-nodeports", "inet_proto . inet_service : verdict"],
    ["map", "no-endpoint-services", `${service} : verdict`],
    ["map", "no-endpoint-nodeports", "inet_proto . inet_service : verdict"],
    ["map", "firewall-ips", `${service} : verdict`],
  ];
  return [
    `add table ${table} { comment "rules for kube-proxy" ; }`,
    ...BASE_CHAINS.flatMap(([name]) => [`add chain ${table} ${name}`, `delete chain ${table} ${name}`]),
    ...BASE_CHAINS.flatMap(([name, type, hook, priority]) => [
      `add chain ${table} ${name} { type ${type} hook ${hook} priority ${priority} ; }`,
      `flush chain ${table} ${name}`,
    ]),
    ...CHAINS.flatMap((name) => [`add chain ${table} ${name}`, `flush chain ${table} ${name}`]),
    ...sets.flatMap(([kind, name, type]) => [
      `add ${kind} ${table} ${name} { type ${type} ; comment "its own words" ; }`,
      `flush ${kind} ${table} ${name}`,
    ]),
    `add rule ${table} nat-prerouting jump services`,
    `add rule ${table} services ${family} daddr . meta l4proto . th dport vmap @service-ips`,
    "",
  ].join("\n");
}

test("kube-proxy's set-up is accepted on our table, and our next run serves again", async () => {
  const objects = SERVICES.flatMap((service) => serviceObjects(cluster.lab, service));
  await cluster.apply(objects);
  await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: FAMILIES.map(setUp).join("") });
  await cluster.apply(objects);
  const [web, edge, empty] = SERVICES;
  const wrong = await Promise.all([
    checkRow(cluster, { rule: "", from: "b", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } }),
    checkRow(cluster, { rule: "", from: "client", to: externals(edge), expect: { pods: ["a", "b"], masq: false } }),
    checkRow(cluster, { rule: "", from: "client", to: externals(empty), expect: "reject" }),
  ]);
  expect(wrong.flat()).toEqual([]);
});
