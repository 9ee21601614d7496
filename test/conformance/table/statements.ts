/** Rules with every match and action of the Table, in every form, for comparison with nft's result for their text. */
import type { Family } from "../../../src/nft/kernel/kernel.js";
import type { Field, SetSpec, Statement } from "../../../src/nft/language/rule.js";

export interface Case {
  readonly name: string;
  readonly family: Family;
  /** Base chain that the rule needs. Default: filter, prerouting. */
  readonly chain?: "dstnat" | "srcnat" | "filter" | "input" | "raw";
  readonly statements: readonly Statement[];
  /** nft 1.0.6 lists the rule but aborts on loading its text (netlink_linearize.c: `dreg < ctx->reg_low`). */
  readonly listOnly?: boolean;
}

/** Sets that the rules look up, with IPv4 or IPv6 addresses. */
export function setsOf(family: Family): SetSpec[] {
  const address = family === "ip6" ? "ipv6_addr" : "ipv4_addr";
  return [
    { set: "addresses", key: [address] },
    { set: "cidrs", key: [address], interval: true },
    { set: "hairpin", key: [address, address, "inet_proto", "inet_service"] },
    { set: "interfaces", key: ["ifname", "mark"] },
    { set: "clients", key: [address], dynamic: true, timeoutMs: 10_000, size: 65_535 },
    { set: "counted", key: [address], dynamic: true, size: 65_536 },
    { set: "sticky", key: [address], data: [address, "inet_service"], dynamic: true, timeoutMs: 20_000, size: 65_535 },
    { set: "drawn", key: ["classid", "index"], data: ["classid"] },
    { set: "numbered", key: ["classid"], data: [address, "inet_service"] },
    { set: "remembered", key: [address, "classid"], dynamic: true, timeoutMs: 0, size: 65_536 },
    { set: "connections", key: [address, address] },
    { set: "vips", key: [address, "inet_proto", "inet_service"], data: "verdict" },
    { set: "draws", key: ["index"], data: "verdict" },
    {
      set: "endpoints",
      key: [address, "inet_proto", "inet_service", "index"],
      data: [address, "inet_service"],
      size: 1024,
    },
    { set: "backends", key: [address], data: [address] },
  ];
}

const tcp: Statement = { match: "protocol", protocol: "tcp" };
const CT: readonly Field[] = ["ct-saddr", "ct-daddr"];
const numgen = (modulus: number, offset?: number): Field => ({ field: "numgen", mode: "random", modulus, offset });

function matches(net: (n: number) => string): [string, ...Statement[]][] {
  const from = (nets: string[], negate = false): Statement => ({ match: "address", direction: "source", nets, negate });
  return [
    ["one address", { match: "address", direction: "destination", nets: [net(0).split("/")[0]] }],
    ["a network on a byte boundary", from([net(0)])],
    ["a network between bytes", from([net(1)])],
    ["not a network", from([net(0)], true)],
    ["two networks", from([net(0), net(2)])],
    ["not two networks", from([net(0), net(2)], true)],
    ["two addresses", from([net(0).split("/")[0], net(2).split("/")[0]])],
    ["source and destination", from([net(0)]), { match: "address", direction: "destination", nets: [net(2)] }],
    ["in a set", { match: "in-set", key: ["daddr"], set: "addresses" }],
    ["not in a set", { match: "in-set", key: ["saddr"], set: "addresses", negate: true }],
    ["in an interval set", { match: "in-set", key: ["saddr"], set: "cidrs" }],
    ["a concatenation in a set", { match: "in-set", key: ["saddr", "daddr", "l4proto", "dport"], set: "hairpin" }],
    ["an interface and a mark in a set", { match: "in-set", key: ["iifname", "mark"], set: "interfaces" }],
    ["original addresses in a set", { match: "in-set", key: CT, set: "connections" }],
    ["an original address", { match: "address", ct: "original", direction: "source", nets: [net(0)] }],
    ["not a reply's address", { match: "address", ct: "reply", direction: "source", nets: [net(1)], negate: true }],
    ["a reply's addresses", { match: "address", ct: "reply", direction: "destination", nets: [net(0), net(2)] }],
  ];
}

const COMMON: [string, ...Statement[]][] = [
  ["a port", { match: "port", direction: "destination", ports: [80] }],
  ["not a port", { match: "port", direction: "source", ports: [80], negate: true }],
  ["a port of TCP", tcp, { match: "port", direction: "destination", ports: [80] }],
  ["a port range", { match: "port", direction: "destination", ports: [[80, 90]] }],
  ["not a port range", { match: "port", direction: "destination", ports: [[80, 90]], negate: true }],
  ["ports", { match: "port", direction: "source", ports: [443, 80, 80] }],
  ["not ports", { match: "port", direction: "source", ports: [80, 443], negate: true }],
  [
    "thirty ports and ranges",
    {
      match: "port",
      direction: "destination",
      ports: Array.from({ length: 30 }, (_, i) =>
        i % 2 === 0 ? 1000 + i * 10 : ([1000 + i * 10, 1005 + i * 10] as const),
      ),
    },
  ],
  ["protocol by name", { match: "protocol", protocol: "sctp" }],
  ["UDP-Lite", { match: "protocol", protocol: "UDPLite" }],
  ["GRE", { match: "protocol", protocol: "gre" }],
  ["not ESP", { match: "protocol", protocol: "esp", negate: true }],
  ["AH", { match: "protocol", protocol: "ah" }],
  ["DCCP", { match: "protocol", protocol: "dccp" }],
  ["VRRP", { match: "protocol", protocol: "vrrp" }],
  ["protocol by number", { match: "protocol", protocol: 47 }],
  ["not a protocol", { match: "protocol", protocol: "udp", negate: true }],
  ["address type", { match: "address-type", direction: "source", type: "local" }],
  ["not an address type", { match: "address-type", direction: "destination", type: "broadcast", negate: true }],
  ["address type by incoming interface", { match: "address-type", direction: "source", type: "local", limit: "in" }],
  ["conntrack state", { match: "ct-state", states: ["new"] }],
  ["conntrack states", { match: "ct-state", states: ["established", "related"] }],
  ["not conntrack states", { match: "ct-state", states: ["invalid", "untracked"], negate: true }],
  ["not one conntrack state", { match: "ct-state", states: ["invalid"], negate: true }],
  ["conntrack direction", { match: "ct-direction", direction: "reply" }],
  ["conntrack direction, original", { match: "ct-direction", direction: "original" }],
  ["conntrack status", { match: "ct-status", status: "dnat" }],
  ["not conntrack status", { match: "ct-status", status: "snat", negate: true }],
  ["mark", { match: "mark", value: 0x4000 }],
  ["not mark", { match: "mark", value: 0x4000, negate: true }],
  ["mark bit set", { match: "mark", mask: 0x4000, value: 0x4000 }],
  ["mark bit clear", { match: "mark", mask: 0x4000, value: 0 }],
  ["mark bit not clear", { match: "mark", mask: 0x4000, value: 0, negate: true }],
  ["mark under a mask", { match: "mark", mask: 0xff00, value: 0x1200, negate: true }],
  ["interface", { match: "interface", direction: "in", name: "eth0" }],
  ["not interface", { match: "interface", direction: "in", name: "cali0", negate: true }],
  ["interfaces by prefix", { match: "interface", direction: "in", name: "cali*" }],
  ["not interfaces by prefix", { match: "interface", direction: "in", name: "cali*", negate: true }],
  ["reverse path passed", { match: "reverse-path", passed: true }],
  ["reverse path failed", { match: "reverse-path", passed: false }],
  ["counter", { action: "counter" }],
  ["log", { action: "log", prefix: "calico-packet: " }],
  ["log with level", { action: "log", prefix: "x", level: 7 }],
  ["log to a group", { action: "log", prefix: "x", group: 3 }],
  ["limit", { action: "limit", rate: 10, per: "second" }],
  ["limit with burst", { action: "limit", rate: 600, per: "hour", burst: 20 }],
  ["set mark", { action: "set-mark", value: 0x4000 }],
  ["set masked mark", { action: "set-mark", mask: 0xff00, value: 0x1200 }],
  ["set mark bit", { action: "set-mark", mask: 0x4000, value: 0x4000 }],
  ["clear mark bit", { action: "set-mark", mask: 0x4000, value: 0 }],
  ["flip mark bit", { action: "xor-mark", value: 0x4000 }],
  ["accept", { action: "verdict", verdict: { verdict: "accept" } }],
  ["drop", { action: "verdict", verdict: { verdict: "drop" } }],
  ["return", { action: "verdict", verdict: { verdict: "return" } }],
  ["jump", { action: "verdict", verdict: { verdict: "jump", chain: "target" } }],
  ["goto", { action: "verdict", verdict: { verdict: "goto", chain: "target" } }],
  ["verdict map", { action: "vmap", key: ["daddr", "l4proto", "dport"], map: "vips" }],
  ["a verdict map with a random key", { action: "vmap", key: [numgen(3)], map: "draws" }],
  ["reject", { action: "reject" }],
  ["reject admin-prohibited", { action: "reject", with: "admin-prohibited" }],
  ["reject host-unreachable", { action: "reject", with: "host-unreachable" }],
  ["reset", { action: "reject", with: "tcp-reset" }],
  ["reset of TCP", tcp, { action: "reject", with: "tcp-reset" }],
  ["update a dynamic set", { action: "update", set: "clients", key: ["saddr"] }],
  ["connections of a client over a number", { action: "connections-over", set: "counted", key: ["saddr"], count: 7 }],
  [
    "packets of a client over a rate",
    {
      action: "rate-over",
      set: "clients",
      key: ["saddr"],
      rate: 10,
      per: "minute",
      burst: 20,
      timeoutMs: 120_000,
    },
  ],
  ["priority set to a constant", { action: "set-priority", value: 0x52000f }],
  ["masked priority", { match: "priority", mask: 0xff000000, value: 0x6b000000 }],
  ["not a masked priority", { match: "priority", mask: 0xff000000, value: 0x6b000000, negate: true }],
  ["update with a timeout", { action: "update", set: "clients", key: ["saddr"], timeoutMs: 3000 }],
];

function natCases(family: Family, address: string): Case[] {
  const dstnat = (name: string, ...statements: Statement[]): Case => ({ name, family, chain: "dstnat", statements });
  const srcnat = (name: string, ...statements: Statement[]): Case => ({ name, family, chain: "srcnat", statements });
  const key: readonly Field[] = ["daddr", "l4proto", "dport", numgen(3)];
  return [
    dstnat("dnat to an address", { action: "dnat", address }),
    dstnat("dnat to address and port", tcp, { action: "dnat", address, port: 8080 }),
    dstnat("dnat through a map", { action: "dnat-map", key, map: "endpoints", data: "address-port" }),
    dstnat("dnat through a map by a hash of the source", {
      action: "dnat-map",
      key: ["daddr", "l4proto", "dport", { field: "jhash", of: ["saddr"], modulus: 1024, seed: 7 }],
      map: "endpoints",
      data: "address-port",
    }),
    dstnat("dnat through a map by a hash of source and port, with offset", {
      action: "dnat-map",
      key: [
        "daddr",
        "l4proto",
        "dport",
        { field: "jhash", of: ["saddr", "sport"], modulus: 1024, seed: 0x6e667470, offset: 65_536 },
      ],
      map: "endpoints",
      data: "address-port",
    }),
    dstnat("dnat through a map with offset", {
      action: "dnat-map",
      key: ["daddr", "l4proto", "dport", numgen(2, 65_536)],
      map: "endpoints",
      data: "address-port",
    }),
    dstnat("dnat to a mapped address", { action: "dnat-map", key: ["saddr"], map: "backends", data: "address" }),
    dstnat("dnat to a remembered endpoint", tcp, {
      action: "dnat-map",
      key: ["saddr"],
      map: "sticky",
      data: "address-port",
    }),
    {
      ...dstnat("update a map with a constant", {
        action: "update",
        set: "sticky",
        key: ["saddr"],
        data: { address, port: 8080 },
      }),
      listOnly: family === "ip6",
    },
    dstnat("priority set to what a map holds for it", {
      action: "priority-map",
      key: ["priority", numgen(3)],
      map: "drawn",
    }),
    dstnat("dnat by priority", tcp, { action: "dnat-map", key: ["priority"], map: "numbered", data: "address-port" }),
    dstnat("update with the priority", {
      action: "update",
      set: "remembered",
      key: ["saddr", "priority"],
      timeoutMs: 10_800_000,
    }),
    srcnat("snat", { action: "snat", address }),
    srcnat("snat fully random", { action: "snat", address, fullyRandom: true }),
    srcnat("snat with port", tcp, { action: "snat", address, port: 99, fullyRandom: true }),
    srcnat("masquerade", { action: "masquerade" }),
    srcnat("masquerade fully random", { action: "masquerade", fullyRandom: true }),
    srcnat("masquerade random", { action: "masquerade", random: true }),
    srcnat("masquerade to a port", tcp, { action: "masquerade", ports: 1024 }),
    srcnat("masquerade to ports", tcp, { action: "masquerade", ports: [1024, 2048], fullyRandom: true }),
    srcnat("outgoing interface", { match: "interface", direction: "out", name: "eth*" }),
    srcnat("address type by outgoing interface", {
      match: "address-type",
      direction: "destination",
      type: "local",
      limit: "out",
    }),
  ];
}

function headerCases(family: Family, to: string): Case[] {
  const origin = { ct: "original", direction: "source" } as const;
  const own = { ct: "reply", direction: "destination" } as const;
  const set = (name: string, ...statements: Statement[]): Case => ({ name, family, statements });
  return [
    set("source set to an address", { action: "set-address", direction: "source", to }),
    set("destination set to who opened", { action: "set-address", direction: "destination", to: origin }),
    set("destination set to where answers go", { action: "set-address", direction: "destination", to: own }),
  ];
}

function familyCases(family: Family, net: (n: number) => string, version: 4 | 6): Case[] {
  const icmp = (name: string, type: number, code?: number, negate = false): Case => ({
    name,
    family,
    statements: [{ match: "icmp", version, type, code, negate }],
  });
  const rejects = new Set(["reject", "reject admin-prohibited", "reject host-unreachable", "reset", "reset of TCP"]);
  return [
    ...[...matches(net), ...COMMON].map(([name, ...statements]): Case => ({
      name,
      family,
      chain: rejects.has(name) ? "input" : "filter",
      statements,
    })),
    { name: "notrack", family, chain: "raw", statements: [{ action: "notrack" }] },
    { name: "no SYN", family, statements: [{ match: "tcp-flags", among: ["syn"], set: [] }] },
    { name: "SYN alone", family, statements: [{ match: "tcp-flags", among: ["syn", "ack", "rst"], set: ["syn"] }] },
    icmp("icmp type", version === 4 ? 8 : 128),
    icmp("icmp type and code", version === 4 ? 3 : 1, 4),
    icmp("not icmp type", version === 4 ? 8 : 128, undefined, true),
    icmp("not icmp type and code", version === 4 ? 3 : 1, 4, true),
    ...(family === "inet" ? [] : headerCases(family, version === 4 ? "192.0.2.1" : "2001:db8::1")),
    ...natCases(family, version === 4 ? "10.1.2.3" : "fd00::1:2"),
  ];
}

const NETS4 = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/24"];
const NETS6 = ["fd00::/64", "fd80::/9", "2001:db8::/32"];

export const CASES: readonly Case[] = [
  ...familyCases("ip", (n) => NETS4[n], 4),
  ...familyCases("ip6", (n) => NETS6[n], 6),
  ...familyCases("inet", (n) => NETS4[n], 4),
];
