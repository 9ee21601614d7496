/** Rules with every match and action of the Table, in every form, for comparison with nft's result for their text. */
import type { Family } from "../../../src/nft/kernel/kernel.js";
import type { Field } from "../../../src/nft/language/vocabulary.js";
import type { SetSpec } from "../../../src/nft/language/set-spec.js";
import type { Statement } from "../../../src/nft/statements/rule.js";

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

const tcp: Statement = { field: "meta l4proto", value: "tcp" };
const CT: readonly Field[] = ["ct-saddr", "ct-daddr"];
const numgen = (modulus: number, offset?: number): Field => ({ field: "numgen", mode: "random", modulus, offset });

function matches(net: (n: number) => string, ip: "ip"): [string, ...Statement[]][] {
  const from = (nets: string[], negate = false): Statement => ({
    field: `${ip} saddr`,
    op: negate ? "!=" : "==",
    value: nets,
  });
  return [
    ["one address", { field: `${ip} daddr`, value: net(0).split("/")[0] }],
    ["a network on a byte boundary", from([net(0)])],
    ["a network between bytes", from([net(1)])],
    ["not a network", from([net(0)], true)],
    ["two networks", from([net(0), net(2)])],
    ["not two networks", from([net(0), net(2)], true)],
    ["two addresses", from([net(0).split("/")[0], net(2).split("/")[0]])],
    ["source and destination", from([net(0)]), { field: `${ip} daddr`, value: net(2) }],
    ["in a set", { field: "daddr", value: "@addresses" }],
    ["not in a set", { field: "saddr", op: "not in", value: "@addresses" }],
    ["in an interval set", { field: "saddr", value: "@cidrs" }],
    ["a concatenation in a set", { field: ["saddr", "daddr", "meta l4proto", "th dport"], value: "@hairpin" }],
    ["an interface and a mark in a set", { field: ["iifname", "meta mark"], value: "@interfaces" }],
    ["original addresses in a set", { field: CT, value: "@connections" }],
    ["an original address", { field: `ct original ${ip} saddr`, value: net(0) }],
    ["not a reply's address", { field: `ct reply ${ip} saddr`, op: "!=", value: net(1) }],
    ["a reply's addresses", { field: `ct reply ${ip} daddr`, value: [net(0), net(2)] }],
  ];
}

const COMMON: [string, ...Statement[]][] = [
  ["a port", { field: "th dport", value: 80 }],
  ["not a port", { field: "th sport", op: "!=", value: 80 }],
  ["a port of TCP", tcp, { field: "th dport", value: 80 }],
  ["a port range", { field: "th dport", value: [{ from: 80, to: 90 }] }],
  ["not a port range", { field: "th dport", op: "!=", value: [{ from: 80, to: 90 }] }],
  ["ports", { field: "th sport", value: [443, 80, 80] }],
  ["not ports", { field: "th sport", op: "!=", value: [80, 443] }],
  [
    "thirty ports and ranges",
    {
      field: "th dport",
      value: Array.from({ length: 30 }, (_, i) =>
        i % 2 === 0 ? 1000 + i * 10 : { from: 1000 + i * 10, to: 1005 + i * 10 },
      ),
    },
  ],
  ["protocol by name", { field: "meta l4proto", value: "sctp" }],
  ["UDP-Lite", { field: "meta l4proto", value: "udplite" }],
  ["GRE", { field: "meta l4proto", value: "gre" }],
  ["not ESP", { field: "meta l4proto", op: "!=", value: "esp" }],
  ["AH", { field: "meta l4proto", value: "ah" }],
  ["DCCP", { field: "meta l4proto", value: "dccp" }],
  ["VRRP", { field: "meta l4proto", value: "vrrp" }],
  ["protocol by number", { field: "meta l4proto", value: 47 }],
  ["not a protocol", { field: "meta l4proto", op: "!=", value: "udp" }],
  ["address type", { field: { field: "fib", of: ["saddr"], result: "type" }, value: "local" }],
  ["not an address type", { field: { field: "fib", of: ["daddr"], result: "type" }, op: "!=", value: "broadcast" }],
  [
    "address type by incoming interface",
    { field: { field: "fib", of: ["saddr", "iif"], result: "type" }, value: "local" },
  ],
  ["conntrack state", { field: "ct state", value: "new" }],
  ["conntrack states", { field: "ct state", value: ["established", "related"] }],
  ["not conntrack states", { field: "ct state", op: "not in", value: ["invalid", "untracked"] }],
  ["not one conntrack state", { field: "ct state", op: "not in", value: "invalid" }],
  ["conntrack direction", { field: "ct direction", value: "reply" }],
  ["conntrack direction, original", { field: "ct direction", value: "original" }],
  ["conntrack status", { field: "ct status", value: "dnat" }],
  ["not conntrack status", { field: "ct status", op: "not in", value: "snat" }],
  ["mark", { field: "meta mark", value: 0x4000 }],
  ["not mark", { field: "meta mark", op: "!=", value: 0x4000 }],
  ["mark bit set", { field: "meta mark", mask: 0x4000, value: 0x4000 }],
  ["mark bit clear", { field: "meta mark", mask: 0x4000, value: 0 }],
  ["mark bit not clear", { field: "meta mark", op: "!=", mask: 0x4000, value: 0 }],
  ["mark under a mask", { field: "meta mark", op: "!=", mask: 0xff00, value: 0x1200 }],
  ["interface", { field: "iifname", value: "eth0" }],
  ["not interface", { field: "iifname", op: "!=", value: "cali0" }],
  ["interfaces by prefix", { field: "iifname", value: "cali*" }],
  ["not interfaces by prefix", { field: "iifname", op: "!=", value: "cali*" }],
  ["reverse path passed", { field: { field: "fib", of: ["saddr", "iif"], result: "check" }, value: "exists" }],
  ["reverse path failed", { field: { field: "fib", of: ["saddr", "iif"], result: "check" }, value: "missing" }],
  ["counter", { action: "counter" }],
  ["log", { action: "log", prefix: "calico-packet: " }],
  ["log with level", { action: "log", prefix: "x", level: 7 }],
  ["log to a group", { action: "log", prefix: "x", group: 3 }],
  ["limit", { action: "limit", rate: 10, per: "second" }],
  ["limit with burst", { action: "limit", rate: 600, per: "hour", burst: 20 }],
  ["set mark", { action: "set", field: "meta mark", value: 0x4000 }],
  [
    "set masked mark",
    { action: "set", field: "meta mark", value: { from: "meta mark", mask: 0xffff00ff, xor: 0x1200 } },
  ],
  ["set mark bit", { action: "set", field: "meta mark", value: { from: "meta mark", mask: 0xffffbfff, xor: 0x4000 } }],
  ["clear mark bit", { action: "set", field: "meta mark", value: { from: "meta mark", mask: 0xffffbfff, xor: 0 } }],
  ["flip mark bit", { action: "set", field: "meta mark", value: { from: "meta mark", xor: 0x4000 } }],
  ["accept", { action: "verdict", verdict: "accept" }],
  ["drop", { action: "verdict", verdict: "drop" }],
  ["return", { action: "verdict", verdict: "return" }],
  ["jump", { action: "verdict", verdict: "jump target" }],
  ["goto", { action: "verdict", verdict: "goto target" }],
  ["verdict map", { action: "vmap", key: ["daddr", "meta l4proto", "th dport"], map: "vips" }],
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
  ["priority set to a constant", { action: "set", field: "meta priority", value: 0x52000f }],
  ["masked priority", { field: "meta priority", mask: 0xff000000, value: 0x6b000000 }],
  ["not a masked priority", { field: "meta priority", op: "!=", mask: 0xff000000, value: 0x6b000000 }],
  ["update with a timeout", { action: "update", set: "clients", key: ["saddr"], timeoutMs: 3000 }],
];

function natCases(family: Family, address: string): Case[] {
  const dstnat = (name: string, ...statements: Statement[]): Case => ({ name, family, chain: "dstnat", statements });
  const srcnat = (name: string, ...statements: Statement[]): Case => ({ name, family, chain: "srcnat", statements });
  const key: readonly Field[] = ["daddr", "meta l4proto", "th dport", numgen(3)];
  return [
    dstnat("dnat to an address", { action: "dnat", address }),
    dstnat("dnat to address and port", tcp, { action: "dnat", address, port: 8080 }),
    dstnat("dnat through a map", { action: "dnat", address: { key, map: "endpoints", data: "address-port" } }),
    dstnat("dnat through a map by a hash of the source", {
      action: "dnat",
      address: {
        key: ["daddr", "meta l4proto", "th dport", { field: "jhash", of: ["saddr"], modulus: 1024, seed: 7 }],
        map: "endpoints",
        data: "address-port",
      },
    }),
    dstnat("dnat through a map by a hash of source and port, with offset", {
      action: "dnat",
      address: {
        key: [
          "daddr",
          "meta l4proto",
          "th dport",
          { field: "jhash", of: ["saddr", "th sport"], modulus: 1024, seed: 0x6e667470, offset: 65_536 },
        ],
        map: "endpoints",
        data: "address-port",
      },
    }),
    dstnat("dnat through a map with offset", {
      action: "dnat",
      address: {
        key: ["daddr", "meta l4proto", "th dport", numgen(2, 65_536)],
        map: "endpoints",
        data: "address-port",
      },
    }),
    dstnat("dnat to a mapped address", { action: "dnat", address: { key: ["saddr"], map: "backends" } }),
    dstnat("dnat to a remembered endpoint", tcp, {
      action: "dnat",
      address: { key: ["saddr"], map: "sticky", data: "address-port" },
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
      action: "set",
      field: "meta priority",
      value: { key: ["meta priority", numgen(3)], map: "drawn" },
    }),
    dstnat("dnat by priority", tcp, {
      action: "dnat",
      address: { key: ["meta priority"], map: "numbered", data: "address-port" },
    }),
    dstnat("update with the priority", {
      action: "update",
      set: "remembered",
      key: ["saddr", "meta priority"],
      timeoutMs: 10_800_000,
    }),
    srcnat("snat", { action: "snat", address }),
    srcnat("snat fully random", { action: "snat", address, fullyRandom: true }),
    srcnat("snat with port", tcp, { action: "snat", address, port: 99, fullyRandom: true }),
    srcnat("masquerade", { action: "masquerade" }),
    srcnat("masquerade fully random", { action: "masquerade", fullyRandom: true }),
    srcnat("masquerade random", { action: "masquerade", random: true }),
    srcnat("masquerade to a port", tcp, { action: "masquerade", ports: 1024 }),
    srcnat("masquerade to ports", tcp, { action: "masquerade", ports: { from: 1024, to: 2048 }, fullyRandom: true }),
    srcnat("outgoing interface", { field: "oifname", value: "eth*" }),
    srcnat("address type by outgoing interface", {
      field: { field: "fib", of: ["daddr", "oif"], result: "type" },
      value: "local",
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
  const icmp = (name: string, what: "type" | "code", value: number, op: "==" | "!=" = "=="): Case => ({
    name,
    family,
    statements: [{ field: `${version === 4 ? "icmp" : "icmpv6"} ${what}` as "icmp type", op, value }],
  });
  const rejects = new Set(["reject", "reject admin-prohibited", "reject host-unreachable", "reset", "reset of TCP"]);
  return [
    ...[...matches(net, (version === 4 ? "ip" : "ip6") as "ip"), ...COMMON].map(([name, ...statements]): Case => ({
      name,
      family,
      chain: rejects.has(name) ? "input" : "filter",
      statements,
    })),
    { name: "notrack", family, chain: "raw", statements: [{ action: "notrack" }] },
    { name: "no SYN", family, statements: [{ field: "tcp flags", mask: "syn", value: 0 }] },
    { name: "SYN alone", family, statements: [{ field: "tcp flags", mask: ["syn", "ack", "rst"], value: "syn" }] },
    icmp("icmp type", "type", version === 4 ? 8 : 128),
    icmp("icmp code", "code", 4),
    icmp("not icmp type", "type", version === 4 ? 8 : 128, "!="),
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
