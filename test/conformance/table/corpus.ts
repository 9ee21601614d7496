/** Rules with every statement, in many forms, for comparison with nft's result for their text. */
import type { ValueRange } from "../../../src/nft/language/fields/values.js";
import type { Family } from "../../../src/nft/kernel/kernel.js";
import type { SetSpec } from "../../../src/nft/language/set-spec.js";
import type { Statement } from "../../../src/nft/statements/rule.js";

export interface CorpusRule {
  readonly families: readonly Family[];
  readonly statements: readonly Statement[];
}

const ALL: readonly Family[] = ["ip", "ip6", "inet", "bridge", "netdev", "arp"];
const IP: readonly Family[] = ["ip", "ip6", "inet"];
const PACKETS: readonly Family[] = ["ip", "ip6", "inet", "bridge", "netdev"];

/** Sets that the rules name. */
export function setsOfCorpus(family: Family): SetSpec[] {
  const address = family === "ip6" ? "ipv6_addr" : "ipv4_addr";
  return [
    { set: "addresses", key: [address] },
    { set: "networks", key: [address], interval: true },
    { set: "ports", key: ["inet_service"] },
    { set: "sockets", key: [address, "inet_service"] },
    { set: "services", key: ["inet_proto", "inet_service"], data: "verdict" },
    { set: "clients", key: [address], dynamic: true, timeoutMs: 10_000, size: 65_535 },
    { set: "flows", key: [address, "inet_service"], dynamic: true, timeoutMs: 10_000, size: 65_535 },
    { set: "macs", key: ["ether_addr"] },
    { set: "pairs", key: ["ether_addr", "ether_type"], dynamic: true, timeoutMs: 10_000, size: 100 },
    { set: "marks", key: ["mark"], data: ["mark"] },
    { set: "classes", key: [address], data: ["classid"] },
    { set: "names", key: ["ifname"], data: "verdict" },
    { set: "types", key: ["icmp_type"] },
    { set: "states", key: ["ct_state"], data: "verdict" },
    { set: "targets", key: ["inet_service"], data: [address, "inet_service"] },
    { set: "hosts", key: ["inet_service"], data: [address] },
    { set: "dscps", key: ["dscp"], dynamic: true, timeoutMs: 10_000, size: 100 },
    { set: "marked", key: ["mark"], interval: true },
    { set: "lengths", key: ["mark", "inet_service"], interval: true },
    { set: "boxes", key: [address, "inet_service"], interval: true },
    { set: "owners", key: ["uid"], interval: true, data: "verdict" },
    { set: "redirects", key: ["inet_service"], data: ["inet_service"] },
  ];
}

const tcp: Statement = { field: "meta l4proto", value: "tcp" };
const udp: Statement = { field: "meta l4proto", value: "udp" };
const dport = (...ports: (number | ValueRange<number>)[]): Statement => ({ field: "th dport", op: "in", value: ports });
const accept: Statement = { action: "verdict", verdict: "accept" };
const drop: Statement = { action: "verdict", verdict: "drop" };
const saddr = (family: Family): "ip saddr" => (family === "ip6" ? ("ip6 saddr" as "ip saddr") : "ip saddr");

const rules: CorpusRule[] = [];
const add = (families: readonly Family[], ...statements: Statement[]): void =>
  void rules.push({ families, statements });
const nat = (_at: "dstnat" | "srcnat", families: readonly Family[], ...statements: Statement[]): void =>
  void rules.push({ families, statements });

// Actions that every family has.
for (const verdict of ["accept", "drop", "return", "continue"] as const) add(ALL, { action: "verdict", verdict });
add(ALL, { action: "verdict", verdict: "jump target" });
add(ALL, { action: "verdict", verdict: "goto target" });
add(ALL, { action: "counter" });
add(ALL, { action: "last" });
add(ALL, { action: "log" });
for (const level of ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit", 0, 7] as const)
  add(ALL, { action: "log", level });
add(ALL, {
  action: "log",
  prefix: "dropped: ",
  flags: ["tcp sequence", "tcp options", "ip options", "skuid", "ether"],
});
add(ALL, { action: "log", flags: ["skuid"] });
add(ALL, { action: "log", group: 0 });
add(ALL, { action: "log", prefix: "p", group: 7, snaplen: 128, queueThreshold: 20 });
for (const per of ["second", "minute", "hour", "day"] as const) {
  add(ALL, { action: "limit", rate: 10, per });
  add(ALL, { action: "limit", rate: 10, per, over: true, burst: 20 });
  add(ALL, { action: "limit", rate: 10, per, unit: "bytes" });
  add(ALL, { action: "limit", rate: 10, per, unit: "kbytes", burst: 3 });
  if (per === "second") add(ALL, { action: "limit", rate: 10, per, unit: "mbytes", burst: 1, over: true });
}
add(ALL, { action: "quota", bytes: 1_000_000 });
add(ALL, { action: "quota", bytes: 25_000, over: true }, drop);
for (const value of [0, 1, 0xff, 0xffffffff]) {
  add(ALL, { action: "set", field: "meta mark", value: value });
  add(ALL, { field: "meta mark", value });
  add(ALL, { field: "meta mark", op: "!=", value });
}
for (const mask of [0xff, 0xff00, 0x80000000]) {
  add(ALL, { action: "set", field: "meta mark", value: { from: "meta mark", mask: ~mask >>> 0, xor: mask } });
  add(ALL, { action: "set", field: "meta mark", value: { from: "meta mark", mask: ~mask >>> 0, xor: 0 } });
  add(ALL, { field: "meta mark", mask, value: 0 });
  add(ALL, { field: "meta mark", mask, op: "!=", value: mask });
  add(ALL, { field: "meta mark", op: "!=", mask: mask, value: mask });
  add(ALL, { action: "set", field: "meta mark", value: { from: "meta mark", mask } });
  add(ALL, { action: "set", field: "meta mark", value: { from: "meta mark", xor: mask } });
}
add(ALL, { action: "set", field: "meta mark", value: { from: "meta mark", xor: 0x4000 } });
add(ALL, { action: "set", field: "meta mark", value: { key: ["meta mark"], map: "marks" } });
add(ALL, {
  action: "set",
  field: "meta mark",
  value: {
    key: ["meta mark"],
    map: [
      [1, 2],
      [3, 4],
    ],
  },
});
add(ALL, { action: "set", field: "meta priority", value: 0x10002 });
add(ALL, { action: "set", field: "meta priority", value: "15:3" });
add(ALL, { action: "set", field: "meta nftrace", value: 1 });
add(ALL, { action: "set", field: "meta pkttype", value: "host" });
for (const mode of ["inc", "random"] as const) {
  for (const offset of [undefined, 7]) {
    const field = { field: "numgen", mode, modulus: 10, ...(offset === undefined ? {} : { offset }) } as const;
    add(ALL, { action: "set", field: "meta mark", value: { from: field } });
    add(ALL, { field, op: "<", value: 3 }, accept);
    add(ALL, { field, value: 0 }, drop);
    add(ALL, {
      action: "vmap",
      key: [field],
      map: [
        [0, "accept"],
        [1, "drop"],
      ],
    });
    add(ALL, {
      action: "set",
      field: "meta mark",
      value: {
        key: [field],
        map: [
          [0, 0x100],
          [1, 0x200],
        ],
      },
    });
  }
}
add(ALL, { action: "set", field: "meta mark", value: { from: { field: "symhash", modulus: 4 } } });
add(ALL, { field: { field: "symhash", modulus: 2 }, value: 1 }, drop);
add(ALL, { action: "vmap", key: ["iifname"], map: "names" });
add(ALL, {
  action: "vmap",
  key: ["iifname"],
  map: [
    ["eth0", "accept"],
    ["eth1", "goto target"],
  ],
});
for (const name of ["iifname", "oifname"] as const) {
  add(ALL, { field: name, value: "eth0" });
  add(ALL, { field: name, op: "!=", value: "eth*" });
  add(ALL, { field: name, value: ["eth0", "eth1"] });
  add(ALL, { field: name, op: "not in", value: ["eth0", "eth1"] });
}
add(ALL, { field: "meta pkttype", op: "in", value: ["broadcast", "multicast"] }, drop);
add(ALL, { field: "meta protocol", op: "!=", value: "arp" });
for (const [base, offset, length] of [
  ["link", 0, 48],
  ["link", 96, 16],
  ["network", 0, 8],
  ["network", 4, 4],
  ["network", 96, 32],
  ["transport", 0, 16],
  ["transport", 16, 16],
  ["transport", 100, 6],
] as const) {
  const field = { field: "raw", base, offset, length } as const;
  add(ALL, { field, value: 1 });
  add(ALL, { field, op: "!=", value: 2 });
  add(ALL, { field, op: "<", value: 3 });
  add(ALL, { field, op: "in", value: [1, 2, 5] });
}

// Ethernet, VLAN and ARP.
add(ALL, { field: "ether saddr", value: "@macs" });
add(ALL, { field: "ether saddr", op: "not in", value: "@macs" }, drop);
add(ALL, { action: "update", set: "pairs", key: ["ether saddr", "ether type"] });
add(["bridge", "netdev"], { action: "set", field: "ether daddr", value: "02:00:00:00:00:01" });
add(["bridge", "netdev"], { action: "set", field: "vlan id", value: 7 });
add(["bridge", "netdev"], { action: "set", field: "vlan pcp", value: 3 });
add(
  ["bridge", "netdev"],
  { field: "vlan id", value: 5 },
  { field: "ip saddr", value: "10.0.0.1" },
  tcp,
  dport(22),
  drop,
);
add(["bridge", "netdev"], { field: "ether type", value: "8021q" }, { field: "vlan id", op: "in", value: [1, 2, 3] });
add(["bridge", "netdev"], { field: "ether saddr", value: "02:00:00:00:00:01" }, { field: "vlan id", value: 5 });
add(
  ["bridge", "netdev", "arp"],
  { field: "arp operation", value: "request" },
  { field: "arp daddr ip", value: "10.0.0.0/8" },
);
add(
  ["bridge", "netdev", "arp"],
  { field: "arp operation", op: "in", value: ["request", "reply"] },
  { field: "arp saddr ether", value: "02:00:00:00:00:01" },
);
add(["arp"], { action: "set", field: "arp operation", value: "reply" });
add(["netdev"], { action: "dup", device: 1 });
add(["netdev"], { action: "fwd", device: 1 });
add(["netdev"], { action: "fwd", device: 1, address: "10.0.0.1" });
add(["netdev"], { action: "fwd", device: 1, address: "fd00::1" });

// Fields that all IP packets have.
for (const family of PACKETS) {
  const address = saddr(family);
  const daddr = family === "ip6" ? ("ip6 daddr" as "ip daddr") : "ip daddr";
  const own = [family];
  const one = family === "ip6" ? "fd00::1" : "10.0.0.1";
  const two = family === "ip6" ? "fd00::2" : "10.0.0.2";
  const net = family === "ip6" ? "fd00::/64" : "192.0.2.0/24";
  const odd = family === "ip6" ? "fd80::/9" : "172.16.0.0/12";
  for (const field of [address, daddr] as const) {
    for (const value of [one, net, odd, `${one}-${two}`]) {
      add(own, { field, value });
      add(own, { field, op: "!=", value });
    }
    add(own, { field, op: "in", value: [one, two] });
    add(own, { field, op: "not in", value: [net, odd] });
    add(own, { field, op: "in", value: "@addresses" });
    add(own, { field, op: "not in", value: "@networks" });
    add(own, { field: [field, "tcp dport"], op: "in", value: "@sockets" });
    add(own, {
      field: ["tcp dport", field],
      op: "in",
      value: [
        [22, one],
        [80, two],
      ],
    });
    add(own, {
      field: [field, "th dport", "iifname", "meta mark"],
      op: "not in",
      value: [
        [one, 22, "eth0", 1],
        [two, 80, "eth1", 2],
      ],
    });
    add(own, { action: "update", set: "clients", key: [field] });
    add(own, { action: "update", op: "add", set: "clients", key: [field], timeoutMs: 5000 });
    add(own, { action: "update", op: "delete", set: "clients", key: [field] });
    add(own, { action: "update", set: "flows", key: [field, "udp sport"] });
    const part = { field, mask: family === "ip6" ? "ffff:ffff:ffff:ffff::" : "255.255.255.0" } as const;
    const nets = family === "ip6" ? ["2001:db8::", "2001:db8:0:1::"] : ["192.0.2.0", "198.51.100.0"];
    add(own, { action: "update", set: "clients", key: [part], timeoutMs: 5000 });
    add(own, { action: "update", set: "flows", key: [part, { field: "tcp dport", mask: 0xff00 }] });
    add(
      own,
      { action: "rate-over", set: "clients", key: [part], rate: 5, per: "minute", burst: 3, timeoutMs: 60_000 },
      drop,
    );
    add(own, { action: "vmap", key: ["meta l4proto", { field: "th dport", mask: 0xfff0 }], map: "services" });
    add(own, { action: "set", field: "meta priority", value: { key: [part], map: "classes" } });
    for (const set of ["addresses", "networks"]) add(own, { field: [part], value: `@${set}` }, accept);
    add(own, { field: [part, "tcp dport"], op: "not in", value: "@boxes" }, accept);
    add(own, { action: "vmap", key: [part], map: nets.map((one, i) => [one, i === 0 ? "accept" : "drop"] as const) });
    add(own, { field: [part, "tcp dport"], value: nets.map((one, i) => [one, i === 0 ? 80 : 443] as const) }, accept);
    add(own, { field: [part], value: [[family === "ip6" ? "fd00::/8" : "10.0.0.0/8"], [nets[0]]] }, accept);
    add(
      own,
      { action: "rate-over", set: "clients", key: [field], rate: 5, per: "minute", burst: 3, timeoutMs: 60_000 },
      drop,
    );
    add(own, { action: "set", field: "meta priority", value: { key: [field], map: "classes" } });
    add(own, {
      action: "set",
      field: "meta mark",
      value: {
        key: [field],
        map: [
          [one, 1],
          [two, 2],
        ],
      },
    });
    add(own, {
      action: "vmap",
      key: [field, "tcp dport"],
      map: [
        [[one, 22], "accept"],
        [[two, 80], "jump target"],
      ],
    });
    add(own, { action: "set", field, value: one });
    add(own, {
      action: "set",
      field: "meta mark",
      value: { from: { field: "jhash", of: [field, "th sport"], modulus: 8, seed: 99 } },
    });
    add(own, { field: { field: "jhash", of: [field], modulus: 8, seed: 99, offset: 2 }, value: 3 });
  }
  add(own, { field: address, value: one }, { field: daddr, value: two });
  add(own, { field: daddr, value: two }, { field: address, value: one });
  add(own, tcp, { field: address, value: net }, dport(22), accept);
  add(own, { field: "tcp dport", value: 22 }, { field: "tcp sport", value: 1024 });
  add(
    own,
    { field: "tcp sport", value: 1024 },
    { field: "tcp dport", value: 22 },
    { field: "tcp flags", value: "syn" },
  );
}
for (const protocol of ["tcp", "udp", "sctp", "dccp", "udplite"] as const) {
  for (const port of ["sport", "dport"] as const) {
    const field = `${protocol} ${port}` as "tcp dport";
    add(PACKETS, { field, value: 53 });
    add(PACKETS, { field, op: "!=", value: 53 });
    add(PACKETS, { field, value: [{ from: 1000, to: 2000 }] });
    add(PACKETS, { field, op: "!=", value: [{ from: 1000, to: 2000 }] });
    add(PACKETS, { field, op: "in", value: [22, 80, { from: 8000, to: 8010 }] }, accept);
    add(PACKETS, { field, op: "not in", value: [22, 80, 443] }, drop);
    add(PACKETS, { field, value: "@ports" });
    add(PACKETS, { field: ["meta l4proto", field], op: "in", value: [[protocol, 22]] });
    add(PACKETS, { action: "set", field, value: 8080 });
    add(PACKETS, {
      action: "vmap",
      key: [field],
      map: [
        [22, "accept"],
        [23, "drop"],
      ],
    });
  }
}
add(PACKETS, { action: "vmap", key: ["meta l4proto", "th dport"], map: "services" });
for (const flags of [["syn"], ["syn", "ack"], ["fin", "psh", "urg"]] as const) {
  add(PACKETS, { field: "tcp flags", value: flags });
  add(PACKETS, { field: "tcp flags", op: "not in", value: flags });
  add(PACKETS, { field: "tcp flags", op: "==", value: flags });
  add(PACKETS, { field: "tcp flags", op: "!=", value: flags });
  add(PACKETS, { field: "tcp flags", mask: ["fin", "syn", "rst", "psh", "ack", "urg"], value: flags });
  add(PACKETS, { field: "tcp flags", mask: ["fin", "syn", "rst", "psh", "ack", "urg"], op: "!=", value: flags });
}
add(PACKETS, { field: "tcp flags", mask: ["syn", "ack"], value: 0 });
add(PACKETS, { action: "set", field: "tcp option maxseg size", value: 1400 });
add(
  IP,
  { field: "tcp flags", value: "syn" },
  { action: "set", field: "tcp option maxseg size", value: { from: "rt mtu" } },
);
add(PACKETS, { field: "tcp option sack-perm", value: "missing" }, drop);
add(["ip", "inet", "bridge", "netdev"], { action: "set", field: "ip dscp", value: "cs1" });
add(["ip", "inet", "bridge", "netdev"], { action: "set", field: "ip ecn", value: "ce" });
add(["ip", "inet", "bridge", "netdev"], { action: "set", field: "ip ttl", value: 64 });
// Masks of more than 32 bits.
add(["bridge"], { field: "ether saddr", mask: "00:ff:ff:ff:00:00", value: "00:02:00:00:00:00" });
add(["ip6", "inet"], { field: "ip6 saddr", mask: "::ffff:0:0:1", value: "::1:0:0:1" });
add(["ip", "inet", "bridge", "netdev"], { field: "ip frag-off", mask: 0x1fff, op: "!=", value: 0 });
add(["ip6", "inet", "bridge", "netdev"], { action: "set", field: "ip6 dscp", value: "af11" });
add(["ip6", "inet", "bridge", "netdev"], { action: "set", field: "ip6 hoplimit", value: 64 });
add(["ip6", "inet", "bridge", "netdev"], { action: "set", field: "ip6 flowlabel", value: 99 });
add(
  ["ip", "inet", "bridge", "netdev"],
  { field: "icmp type", op: "in", value: ["echo-request", "echo-reply"] },
  accept,
);
add(["ip", "inet", "bridge", "netdev"], { field: "icmp type", value: "@types" });
add(["ip", "inet", "bridge", "netdev"], { field: "icmp type", value: 3 }, { field: "icmp code", value: 4 });
add(["ip", "inet", "bridge", "netdev"], { field: ["icmp type", "icmp code"], op: "not in", value: [[3, 4]] });
add(
  ["ip", "inet", "bridge", "netdev"],
  { field: "icmp code", value: "frag-needed" },
  { field: "icmp type", value: "destination-unreachable" },
);
add(["ip", "inet", "bridge", "netdev"], { field: "icmp mtu", op: "<", value: 1400 });
add(
  ["ip6", "inet", "bridge", "netdev"],
  { field: "icmpv6 type", op: "in", value: ["nd-router-advert", "nd-neighbor-solicit", "nd-neighbor-advert"] },
  accept,
);
add(["ip6", "inet", "bridge", "netdev"], {
  field: ["icmpv6 type", "icmpv6 code"],
  op: "in",
  value: [
    [1, "no-route"],
    [1, 4],
  ],
});
add(["ip6", "inet", "bridge", "netdev"], { field: "frag more-fragments", value: 1 }, drop);
add(["inet"], { field: "meta nfproto", value: "ipv6" }, { field: "ip6 hoplimit", op: "<", value: 5 });
add(["inet"], { field: "meta nfproto", value: "ipv4" }, { field: "ip saddr", value: "10.0.0.1" });

// Routes, sockets and connections.
for (const of of [
  ["saddr"],
  ["daddr"],
  ["saddr", "iif"],
  ["daddr", "oif"],
  ["saddr", "mark"],
  ["daddr", "mark", "iif"],
] as const) {
  for (const result of ["oif", "oifname", "type", "check"] as const) {
    const field = { field: "fib", of, result } as const;
    const value = { oif: 1, oifname: "lo", type: "local", check: "exists" }[result];
    if (!(result !== "type" && of.includes("oif" as never))) {
      rules.push({
        families: IP,
        statements: [{ field, value }],
      });
      rules.push({
        families: IP,
        statements: [{ field, op: "!=", value }],
      });
    }
  }
}
add(IP, { field: "socket transparent", value: 1 }, { action: "set", field: "meta mark", value: 1 });
add(IP, { action: "set", field: "meta mark", value: { from: "socket mark" } });
add(IP, { field: "rt mtu", op: "<", value: 1400 });
add(["ip", "inet"], { field: "rt ip nexthop", value: "10.0.0.1" });
add(["ip6", "inet"], { field: "rt ip6 nexthop", value: "fd00::1" });
for (const states of [["new"], ["established", "related"], ["invalid", "untracked"]] as const) {
  add(IP, { field: "ct state", value: states });
  add(IP, { field: "ct state", op: "not in", value: states });
  add(IP, { field: "ct state", value: states });
  add(IP, { field: "ct state", op: "==", value: states });
}
add(IP, { action: "vmap", key: ["ct state"], map: "states" });
add(IP, {
  action: "vmap",
  key: ["ct state"],
  map: [
    ["established", "accept"],
    ["related", "accept"],
    ["invalid", "drop"],
  ],
});
for (const status of ["expected", "seen-reply", "assured", "confirmed", "snat", "dnat", "dying"] as const) {
  add(IP, { field: "ct status", value: status });
  add(IP, { field: "ct status", op: "not in", value: [status] });
}
add(IP, { field: "ct status", value: ["snat", "dnat"] });
add(IP, { field: "ct direction", value: "original" });
add(IP, { field: "ct bytes", op: ">", value: 1_000_000 }, { action: "counter" });
add(IP, { field: "ct original packets", op: "<=", value: 10 });
add(IP, { field: "ct expiration", op: "<", value: 30_000 });
add(IP, tcp, { field: "ct original proto-dst", op: "in", value: [22, { from: 8000, to: 8080 }] });
add(IP, { action: "set", field: "ct mark", value: 7 });
add(IP, { action: "set", field: "ct mark", value: { from: "ct mark", mask: 0xffff00ff, xor: 0x100 } });
add(IP, { action: "set", field: "ct mark", value: { from: "meta mark" } });
add(IP, { action: "set", field: "meta mark", value: { from: "ct mark", mask: 0xff } });
add(IP, { action: "set", field: "meta mark", value: { from: "ct mark", mask: 0xff, xor: 0x100 } });
add(IP, { action: "set", field: "ct mark", value: { from: { field: "numgen", mode: "inc", modulus: 3 } } });
rules.push({
  families: IP,
  statements: [{ action: "set", field: "ct event", value: ["new", "destroy"] }],
});
add(IP, { action: "connections", count: 10 });
add(IP, { action: "connections", count: 10, over: true }, drop);
rules.push({ families: IP, statements: [{ action: "notrack" }] });
for (const code of ["port-unreachable", "admin-prohibited", "host-unreachable", "no-route"] as const) {
  if (code !== "no-route") add(["ip"], { action: "reject", with: code });
  if (code !== "host-unreachable") add(["ip6"], { action: "reject", with: code });
  add(["inet"], { action: "reject", with: code });
}
for (const code of ["net-unreachable", "prot-unreachable", "net-prohibited", "host-prohibited", "frag-needed"] as const)
  add(["ip"], { action: "reject", with: code });
for (const code of ["addr-unreachable", "policy-fail", "reject-route"] as const)
  add(["ip6"], { action: "reject", with: code });
add(IP, { action: "reject", with: "tcp-reset" });
add(IP, { field: "tcp dport", value: 113 }, { action: "reject", with: "tcp-reset" });
// The condition that tcp-reset needs comes before what the rule counts.
add(IP, dport({ from: 1000, to: 2000 }), { action: "counter" }, { action: "reject", with: "tcp-reset" });
add(IP, { field: "meta mark", value: 1 }, { action: "counter" }, { action: "reject", with: "tcp-reset" });
for (const field of ["tcp dport", "ether saddr", "vlan id", "meta l4proto"] as const) {
  const hash = { field: "jhash", of: [field], seed: 7, modulus: 10 } as const;
  add(["inet", "bridge"], { action: "set", field: "meta mark", value: { from: hash } });
}
add(IP, { action: "queue", num: 3 });
add(IP, { action: "queue", num: { from: 1, to: 4 }, bypass: true, fanout: true });
add(IP, { action: "queue", num: 0, bypass: true });
add(IP, { action: "queue", num: { field: "symhash", modulus: 4 } });
add(
  IP,
  { field: "tcp flags", value: "syn" },
  { action: "synproxy", mss: 1460, wscale: 7, sackPerm: true, timestamp: true },
);
add(["ip"], { action: "dup", address: "10.0.0.9" });
add(["ip"], { action: "dup", address: "10.0.0.9", device: 1 });
add(["ip6"], { action: "dup", address: "fd00::9" });
rules.push({
  families: ["ip", "inet"],
  statements: [tcp, { action: "tproxy", address: "127.0.0.1", port: 8080 }],
});
rules.push({
  families: ["ip6", "inet"],
  statements: [udp, { action: "tproxy", address: "::1", port: 8080 }, accept],
});
rules.push({ families: IP, statements: [tcp, { action: "tproxy", port: 8080 }] });

// Address translation.
for (const options of [
  {},
  { random: true },
  { fullyRandom: true },
  { persistent: true },
  { random: true, persistent: true },
]) {
  nat("srcnat", IP, { action: "masquerade", ...options });
  nat("srcnat", IP, tcp, { action: "masquerade", ports: { from: 1024, to: 2048 }, ...options });
  nat("dstnat", IP, { action: "redirect", ...options });
  nat("dstnat", IP, tcp, { action: "redirect", ports: 8080, ...options });
  nat("srcnat", ["ip", "inet"], { action: "snat", address: "192.0.2.1", ...options });
  nat("srcnat", ["ip", "inet"], { action: "snat", address: "192.0.2.1-192.0.2.9", ...options });
  nat("dstnat", ["ip", "inet"], { action: "dnat", address: "192.0.2.1", ...options });
  nat("srcnat", ["ip6", "inet"], { action: "snat", address: "2001:db8::1", ...options });
  nat("dstnat", ["ip6", "inet"], { action: "dnat", address: "2001:db8::1-2001:db8::9", ...options });
}
for (const [families, address] of [
  [["ip", "inet"], "192.0.2.1"],
  [["ip6", "inet"], "2001:db8::1"],
] as const) {
  nat("dstnat", families, tcp, { action: "dnat", address, port: 80 });
  nat("dstnat", families, tcp, { action: "dnat", address, port: { from: 80, to: 90 } });
  nat("srcnat", families, udp, { action: "snat", address, port: { from: 1024, to: 65535 } });
}
nat("dstnat", ["ip", "ip6"], tcp, { action: "dnat", port: 80 });
nat("dstnat", IP, tcp, {
  action: "redirect",
  ports: {
    key: ["tcp dport"],
    map: [
      [80, 8080],
      [443, 8443],
    ],
  },
});
nat("dstnat", IP, tcp, { action: "redirect", ports: { key: ["tcp dport"], map: "redirects" } });
nat("dstnat", IP, { action: "dnat", address: { key: ["tcp dport"], map: "hosts" } });
nat("srcnat", IP, { action: "snat", address: { key: ["tcp dport"], map: "hosts" } });
nat("dstnat", IP, { action: "dnat", address: { key: ["tcp dport"], map: "targets", data: "address-port" } });
nat("dstnat", IP, { action: "dnat", address: { key: ["tcp dport"], map: "targets", data: "address-port" } });
nat("dstnat", ["ip", "inet"], {
  action: "dnat",
  address: {
    key: [{ field: "numgen", mode: "inc", modulus: 2 }],
    map: [
      [0, "10.0.0.1"],
      [1, "10.0.0.2"],
    ],
  },
});
nat("srcnat", ["ip"], { action: "snat", address: "192.0.2.0/24" });
nat("dstnat", ["ip6"], { action: "dnat", address: "2001:db8::/64" });

// Ranges in maps that come with the rule.
const verdicts = { accept: "accept", drop: "drop" } as const;
add(PACKETS, {
  action: "vmap",
  key: ["tcp dport"],
  map: [
    [{ from: 1, to: 1023 }, verdicts.drop],
    [8080, verdicts.accept],
  ],
});
add(PACKETS, {
  action: "vmap",
  key: ["meta mark"],
  map: [
    [{ from: 1, to: 9 }, verdicts.drop],
    [{ from: 256, to: 511 }, verdicts.accept],
  ],
});
add(PACKETS, {
  action: "vmap",
  key: ["th dport", "meta mark"],
  map: [
    [[{ from: 1, to: 9 }, 7], verdicts.drop],
    [[80, { from: 256, to: 511 }], verdicts.accept],
  ],
});
add(PACKETS, {
  action: "set",
  field: "meta mark",
  value: {
    key: ["th dport"],
    map: [
      [{ from: 1, to: 1023 }, 1],
      [{ from: 1024, to: 65535 }, 2],
    ],
  },
});
add(["ip", "inet", "bridge", "netdev"], {
  action: "vmap",
  key: ["ip saddr", "tcp dport"],
  map: [
    [["10.0.0.0/8", { from: 1, to: 1023 }], verdicts.drop],
    [["192.0.2.1", 80], verdicts.accept],
  ],
});
add(["ip", "inet", "bridge", "netdev"], {
  action: "vmap",
  key: ["ip saddr"],
  map: [
    ["10.0.0.0/8", verdicts.drop],
    ["192.0.2.1-192.0.2.9", verdicts.accept],
  ],
});
add(["ip", "inet", "bridge", "netdev"], {
  action: "vmap",
  key: ["ip dscp"],
  map: [
    ["cs1", verdicts.drop],
    ["af11", verdicts.accept],
  ],
});
add(["ip", "inet", "bridge", "netdev"], { field: ["ip saddr", "iifname"], op: "in", value: [["10.0.0.0/8", "eth0"]] });

// Named sets of ranges, and of some bits.
add(ALL, { field: "meta mark", value: "@marked" });
add(ALL, { field: "meta mark", op: "not in", value: "@marked" });
add(PACKETS, { field: ["meta mark", "th dport"], op: "in", value: "@lengths" });
add(IP, { field: ["ct mark", "tcp sport"], op: "not in", value: "@lengths" });
add(IP, { action: "vmap", key: ["meta skuid"], map: "owners" });
add(["ip", "inet", "bridge", "netdev"], { field: ["ip daddr", "udp dport"], op: "in", value: "@boxes" });
add(["ip", "inet", "bridge", "netdev"], { action: "update", set: "dscps", key: ["ip dscp"] });
add(ALL, {
  action: "set",
  field: "meta mark",
  value: {
    key: [{ field: "meta mark", mask: 0xff }],
    map: [
      [3, 7],
      [4, 8],
    ],
  },
});
add(ALL, { action: "set", field: "meta mark", value: { key: [{ field: "meta mark", mask: 0xff }], map: "marks" } });
// An extension header may be next.
for (const number of [0, 43, 44, 60, 135]) {
  const next: Statement = { field: "ip6 nexthdr", value: number };
  add(["ip6", "inet", "bridge", "netdev"], next, { field: "tcp dport", value: 5 }, accept);
  add(["ip6", "inet", "bridge", "netdev"], { field: "icmpv6 type", value: "echo-request" }, next, accept);
  add(
    ["ip6", "inet"],
    next,
    { field: "icmpv6 type", value: "echo-request" },
    { field: "icmpv6 code", value: 0 },
    accept,
  );
}
add(PACKETS, {
  action: "vmap",
  key: [{ field: "tcp flags", mask: ["syn", "ack"] }],
  map: [
    ["syn", "accept"],
    ["ack", "drop"],
  ],
});
add(["ip", "inet", "bridge", "netdev"], { field: "ip dscp", op: "in", value: "@dscps" });
add(["ip", "inet", "bridge", "netdev"], {
  action: "set",
  field: "meta mark",
  value: { from: { field: "jhash", of: ["ip dscp", "ip saddr"], modulus: 4, seed: 1 } },
});
add(["ip", "inet", "bridge", "netdev"], {
  field: "ip length",
  op: "in",
  value: [{ from: 1, to: 9 }, { from: 5, to: 20 }, 100],
});
add(ALL, { field: "meta mark", op: "in", value: [{ from: 1, to: 300 }, { from: 256, to: 511 }, 0xffffffff] });
add(ALL, { field: "meta length", op: "in", value: [1, 1, 0xffffffff] });

export const CORPUS: readonly CorpusRule[] = rules;
