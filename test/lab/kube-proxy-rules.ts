/**
 * kube-proxy 1.36's rules in nftables mode, as lines for `nft -f`: its setup, and the rules for a list of endpoints
 * (pkg/proxy/nftables/proxier.go: setupNFTables, syncProxyRules).
 */
import { createHash } from "node:crypto";

import type { Transport } from "./agent.ts";
import type { Family } from "./topology.ts";

export const TABLE = "kube-proxy";
/** masqueradeBit 14. */
export const MARK = "0x4000";

/** [name, type, hook, priority]. */
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

/** [to, from, condition]. */
const JUMPS = [
  ["nodeport-endpoints-check", "filter-input", "ct state new "],
  ["service-endpoints-check", "filter-input", "ct state new "],
  ["service-endpoints-check", "filter-forward", "ct state new "],
  ["service-endpoints-check", "filter-output", "ct state new "],
  ["firewall-check", "filter-prerouting-pre-dnat", "ct state new "],
  ["firewall-check", "filter-output-pre-dnat", "ct state new "],
  ["services", "nat-output", ""],
  ["services", "nat-prerouting", ""],
  ["masquerading", "nat-postrouting", ""],
  ["cluster-ips-check", "filter-forward", "ct state new "],
  ["cluster-ips-check", "filter-output", "ct state new "],
] as const;

function base32(bytes: Uint8Array): string {
  let bits = "";
  for (const byte of bytes) bits += byte.toString(2).padStart(8, "0");
  return (bits.match(/.{5}/g) ?? []).map((five) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[parseInt(five, 2)]).join("");
}

/** hashAndTruncate. */
export function hashed(name: string): string {
  return `${base32(createHash("sha256").update(name).digest()).slice(0, 8)}-${name}`;
}

export interface SetUp {
  /** Addresses on which node ports answer. */
  readonly nodeAddresses: "all" | readonly string[];
  readonly clusterCIDR: string;
  readonly serviceCIDR: string;
}

/** Base chains and everything that does not depend on services. Replaces their former contents. */
export function setUp(family: Family, { nodeAddresses, clusterCIDR, serviceCIDR }: SetUp): string[] {
  const table = `${family} ${TABLE}`;
  const lines = [`add table ${table} { comment "rules for kube-proxy" ; }`];
  const rule = (chain: string, ...rules: readonly string[]): void =>
    void lines.push(...rules.map((text) => `add rule ${table} ${chain} ${text}`));
  const declare = (kind: "set" | "map", name: string, type: string, comment: string): void =>
    void lines.push(`add ${kind} ${table} ${name} { type ${type} ; comment "${comment}" ; }`);
  const addressType = family === "ip" ? "ipv4_addr" : "ipv6_addr";
  const service = `${addressType} . inet_proto . inet_service`;
  const nodePort = "inet_proto . inet_service";
  const daddr = `${family} daddr`;

  for (const [name] of BASE_CHAINS) lines.push(`add chain ${table} ${name}`, `delete chain ${table} ${name}`);
  for (const [name, type, hook, priority] of BASE_CHAINS) {
    const base = `{ type ${type} hook ${hook} priority ${priority} ; }`;
    lines.push(`add chain ${table} ${name} ${base}`, `flush chain ${table} ${name}`);
  }
  for (const to of new Set(JUMPS.map(([to]) => to))) {
    lines.push(`add chain ${table} ${to}`, `flush chain ${table} ${to}`);
  }
  for (const [to, from, condition] of JUMPS) rule(from, `${condition}jump ${to}`);
  declare("set", "cluster-ips", addressType, "Active ClusterIPs");
  rule(
    "cluster-ips-check",
    `${daddr} @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"`,
    `${daddr} { ${serviceCIDR} } drop comment "Drop traffic to unallocated ClusterIPs"`,
  );
  declare("set", "nodeport-ips", addressType, "IPs that accept NodePort traffic");
  if (nodeAddresses === "all") {
    lines.push(`delete set ${table} nodeport-ips`);
  } else {
    lines.push(`flush set ${table} nodeport-ips`);
    lines.push(`add element ${table} nodeport-ips { ${nodeAddresses.join(", ")} }`);
  }
  const nothing = "vmap to drop or reject packets to service";
  declare("map", "no-endpoint-services", `${service} : verdict`, `${nothing}s with no endpoints`);
  declare("map", "no-endpoint-nodeports", `${nodePort} : verdict`, `${nothing} nodeports with no endpoints`);
  lines.push(
    `add chain ${table} reject-chain { comment "helper for @no-endpoint-services / @no-endpoint-nodeports" ; }`,
    `flush chain ${table} reject-chain`,
  );
  rule("reject-chain", "reject");
  const serviceKey = `${daddr} . meta l4proto . th dport`;
  const everywhere = `${daddr} != ${family === "ip" ? "127.0.0.0/8" : "::1"} meta l4proto . th dport`;
  const onNodeIPs = `${daddr} @nodeport-ips meta l4proto . th dport`;
  const [checkedPort, servedPort] =
    nodeAddresses === "all" ? [everywhere, `fib daddr type local ${everywhere}`] : [onNodeIPs, onNodeIPs];
  rule("service-endpoints-check", `${serviceKey} vmap @no-endpoint-services`);
  rule("nodeport-endpoints-check", `${checkedPort} vmap @no-endpoint-nodeports`);
  declare("map", "firewall-ips", `${service} : verdict`, "destinations that are subject to LoadBalancerSourceRanges");
  rule("firewall-check", `${serviceKey} vmap @firewall-ips`);
  const hairpin = `${addressType} . ${addressType} . inet_proto . inet_service`;
  declare("set", "hairpin-connections", hairpin, "service hairpin connections");
  rule(
    "masquerading",
    `mark and ${MARK} != 0 mark set mark xor ${MARK} masquerade fully-random`,
    `ct status dnat ${family} saddr . ${family} daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random`,
  );
  declare("map", "service-ips", `${service} : verdict`, "ClusterIP, ExternalIP and LoadBalancer IP traffic");
  declare("map", "service-nodeports", `${nodePort} : verdict`, "NodePort traffic");
  rule(
    "services",
    `${daddr} @cluster-ips ${family} saddr != ${clusterCIDR} mark set mark or ${MARK} comment "masquerade clusterIP traffic from outside cluster"`,
    `${serviceKey} vmap @service-ips`,
    `${servedPort} vmap @service-nodeports`,
  );
  return lines;
}

/** The rule of a service's list: selects one of the endpoints at random. */
export function drawRule(
  family: Family,
  protocol: Transport,
  endpoints: readonly (readonly [address: string, port: number])[],
): string {
  const draw = endpoints.map(([address, port], index) => `${index} : ${address} . ${port}`).join(" , ");
  return `meta l4proto ${protocol} dnat ${family} addr . port to numgen random mod ${endpoints.length} map { ${draw} }`;
}

/**
 * A service's rules with ClientIP affinity, for its chain `service-NAME`: a set and a chain per endpoint
 * (writeServiceToEndpointJumps).
 */
export function affinityRules(
  family: Family,
  protocol: Transport,
  name: string,
  endpoints: readonly (readonly [address: string, port: number])[],
): string[] {
  const table = `${family} ${TABLE}`;
  const type = family === "ip" ? "ipv4_addr" : "ipv6_addr";
  const names = endpoints.map(([address, port]) => `${name}__${address.replaceAll(":", ".")}/${port}`);
  return [
    ...names.flatMap((one) => [
      `add set ${table} affinity-${one} { type ${type} ; flags dynamic,timeout ; timeout 10800s ; }`,
      `add chain ${table} endpoint-${one}`,
    ]),
    ...names.map((one) => `add rule ${table} service-${name} ${family} saddr @affinity-${one} goto endpoint-${one}`),
    `add rule ${table} service-${name} numgen random mod ${names.length} vmap { ${names.map((one, index) => `${index} : goto endpoint-${one}`).join(" , ")} }`,
    ...endpoints.flatMap(([address, port], index) => [
      `add rule ${table} endpoint-${names[index]} update @affinity-${names[index]} { ${family} saddr }`,
      `add rule ${table} endpoint-${names[index]} meta l4proto ${protocol} dnat to ${family === "ip" ? address : `[${address}]`}:${port}`,
    ]),
  ];
}
