/** Ranges that overlap a ServiceCIDR, and ranges that do not. Routes have /proc's format. */
import { expect, test } from "vitest";
import { parseCIDR, type Prefix } from "../../../src/base/ip.js";
import { readRoutes, type RouteNetwork } from "../../../src/node/routes.js";
import { findOverlaps, type OverlapFacts } from "../../../src/node/service-cidr-overlaps.js";
import { putFile, temporaryDirectory } from "../../support/temporary-directory.ts";

const SERVICE_CIDRS = ["10.96.0.0/12", "fd00:10:96::/112"];

const prefix = (text: string): Prefix => parseCIDR(text) ?? expect.fail(text);
const routes = (...texts: readonly string[]): RouteNetwork[] =>
  texts.map((text) => ({ prefix: prefix(text), interfaceName: "eth1" }));
const local = (...addresses: readonly string[]): OverlapFacts["local"] =>
  addresses.map((address) => ({ family: address.includes(":") ? "ip6" : "ip", address }));

function overlaps(facts: Partial<OverlapFacts>): string[] {
  const none = { clusterCIDRs: [], podCIDRs: [], nodeIPs: [], local: [], routes: [], clusterIPs: new Set<string>() };
  const found = findOverlaps({ serviceCIDRs: SERVICE_CIDRS, ...none, ...facts });
  return found.map(({ what }) => what);
}

test.each<[string, Partial<OverlapFacts>, readonly string[]]>([
  ["pods in it", { clusterCIDRs: ["10.100.0.0/16"] }, ["ServiceCIDR 10.96.0.0/12 overlaps clusterCIDR 10.100.0.0/16"]],
  [
    "pods that contain it",
    { clusterCIDRs: ["10.0.0.0/8"] },
    ["ServiceCIDR 10.96.0.0/12 overlaps clusterCIDR 10.0.0.0/8"],
  ],
  [
    "a podCIDR",
    { podCIDRs: ["10.111.1.0/24"] },
    ["ServiceCIDR 10.96.0.0/12 overlaps the Node's podCIDR 10.111.1.0/24"],
  ],
  [
    "IPv6",
    { podCIDRs: ["fd00:10:96::/120"] },
    ["ServiceCIDR fd00:10:96::/112 overlaps the Node's podCIDR fd00:10:96::/120"],
  ],
  ["a node IP", { nodeIPs: ["10.96.0.7"] }, ["ServiceCIDR 10.96.0.0/12 overlaps this node's address 10.96.0.7"]],
  [
    "an interface's",
    { local: local("10.97.0.1") },
    ["ServiceCIDR 10.96.0.0/12 overlaps this node's address 10.97.0.1"],
  ],
  [
    "a route inside",
    { routes: routes("10.97.0.0/16") },
    ["ServiceCIDR 10.96.0.0/12 overlaps the route to 10.97.0.0/16 over eth1"],
  ],
  [
    "a host route",
    { routes: routes("10.97.0.9/32") },
    ["ServiceCIDR 10.96.0.0/12 overlaps the route to 10.97.0.9/32 over eth1"],
  ],
])("%s: an overlap", (_, facts, expected) => {
  expect(overlaps(facts)).toEqual(expected);
});

test.each<[string, Partial<OverlapFacts>]>([
  ["no ServiceCIDR", { serviceCIDRs: [], clusterCIDRs: ["10.96.0.0/12"] }],
  ["networks elsewhere", { clusterCIDRs: ["10.244.0.0/16"], podCIDRs: ["10.112.0.0/24", "fd00:10:97::/64"] }],
  ["addresses elsewhere", { nodeIPs: ["10.95.255.255"], local: local("127.0.0.1", "10.112.0.1", "fd00:10:96::1:0") }],
  ["the route to services", { routes: routes("10.96.0.0/12") }],
  ["a route to a larger network", { routes: routes("10.0.0.0/8", "fd00::/8") }],
  [
    "a service's address on an interface, and its route",
    {
      local: local("10.96.0.10"),
      routes: routes("10.96.0.10/32"),
      clusterIPs: new Set(["10.96.0.10"]),
    },
  ],
])("%s: none", (_, facts) => {
  expect(overlaps(facts)).toEqual([]);
});

test("addresses in a reported network are not reported again", () => {
  const inside = {
    podCIDRs: ["10.100.1.0/24"],
    ...{ nodeIPs: ["10.100.1.1"], local: local("10.100.1.1", "10.97.0.1", "10.97.0.2") },
    routes: routes("10.100.1.0/24", "10.97.0.0/24", "10.97.0.8/32"),
  };
  expect(overlaps({ clusterCIDRs: ["10.100.0.0/16"], ...inside })).toEqual([
    "ServiceCIDR 10.96.0.0/12 overlaps clusterCIDR 10.100.0.0/16",
    "ServiceCIDR 10.96.0.0/12 overlaps the route to 10.97.0.0/24 over eth1",
  ]);
});

test("routes out of the node are read, except default, refusing and own ones", async () => {
  const root = temporaryDirectory();
  const v4 = (name: string, destination: string, flags: string, mask: string): string =>
    `${name}\t${destination}\t00000000\t${flags}\t0\t0\t0\t${mask}\t0\t0\t0\n`;
  const head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
  await putFile(
    root,
    "proc/net/route",
    `${head}${v4("eth0", "00000000", "0003", "00000000")}${v4("eth1", "0000610A", "0001", "0000FFFF")}${v4("*", "0000620A", "0201", "0000FFFF")}`,
  );
  const v6 = (destination: string, length: string, flags: string, name: string): string =>
    `${destination} ${length} ${"0".repeat(32)} 00 ${"0".repeat(32)} 00000400 00000001 00000000 ${flags} ${name}\n`;
  const net = `fd000010009600000000000000000000`;
  const all = [v6(net, "78", "00000001", "eth1"), v6(net, "80", "80200001", "eth0"), v6(net, "80", "00100001", "eth0")];
  await putFile(root, "proc/net/ipv6_route", [...all, v6("0".repeat(32), "00", "00000003", "eth0")].join(""));
  const read = (await readRoutes(root)).map(({ prefix: { text }, interfaceName }) => `${text} ${interfaceName}`);
  expect(read).toEqual(["10.97.0.0/16 eth1", "fd00:10:96::/120 eth1"]);
  expect(await readRoutes("/nowhere")).toEqual([]);
});
