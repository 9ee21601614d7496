/** Examples of each statement, and the sets and maps that they use. */
import type { Statement } from "../../dist/nft/statements/rule.js";
import type { SetSpec } from "../../dist/nft/handles/set-spec.js";
import { CmpOp, MetaKey } from "../../dist/nft/kernel/constants.js";

export const SETS: readonly SetSpec[] = [
  { set: "banned", key: ["ipv4_addr"] },
  { set: "allowed", key: ["ipv4_addr", "inet_service"] },
  { set: "seen", key: ["ipv4_addr"], dynamic: true, timeoutMs: 600_000 },
  { set: "clients", key: ["ipv4_addr"], dynamic: true, size: 65_536 },
  { set: "networks", key: ["ipv6_addr"], dynamic: true, timeoutMs: 600_000, size: 65_536 },
  { set: "sessions", key: ["ipv4_addr"], data: ["ipv4_addr", "inet_service"], dynamic: true },
  { set: "services", key: ["inet_service"], data: "verdict" },
  { set: "forwards", key: ["inet_service"], data: ["ipv4_addr", "inet_service"] },
  { set: "marks", key: ["ipv4_addr"], data: ["mark"] },
  { set: "classes", key: ["ipv4_addr"], data: ["classid"] },
];

/** A rule with one statement, or with others that it needs. */
type Examples = readonly (Statement | readonly Statement[])[];
type ActionName = Extract<Statement, { action: string }>["action"];

const TCP: Statement = { field: "meta l4proto", value: "tcp" };

export const COMPARISONS: Examples = [
  { field: "tcp dport", value: 443 },
  { field: "tcp dport", op: "!=", value: [80, 443, { from: 8000, to: 8999 }] },
  { field: "ip saddr", value: "192.0.2.0/24" },
  { field: "ip6 saddr", value: "2001:db8::1-2001:db8::ff" },
  { field: "saddr", value: "@banned" },
  { field: "meta l4proto", value: "udp" },
  { field: "icmp type", value: "echo-request" },
  { field: { field: "fib", of: ["daddr"], result: "type" }, value: "local" },
  { field: { field: "fib", of: ["saddr", "iif"], result: "check" }, value: "missing" },
  { field: "meta length", op: ">", value: 1500 },
  { field: "iifname", value: "eth*" },
  { field: "ct state", value: ["established", "related"] },
  { field: "ct state", op: "not in", value: ["established", "related"] },
  { field: "tcp flags", mask: ["syn", "ack"], value: "syn" },
  { field: "meta mark", mask: 0xff, value: 0x10 },
  { field: "meta mark", mask: 0x1, op: "!=", value: 0 },
  { field: "ip saddr", value: "@banned" },
  { field: ["ip saddr", "tcp dport"], op: "not in", value: "@allowed" },
  {
    field: ["ip saddr", "tcp dport"],
    value: [
      ["192.0.2.1", 22],
      ["192.0.2.2", 443],
    ],
  },
];

export const ACTION_EXAMPLES: { readonly [K in ActionName]: Examples } = {
  verdict: [
    { action: "verdict", verdict: "accept" },
    { action: "verdict", verdict: "jump web" },
  ],
  counter: [{ action: "counter" }],
  last: [{ action: "last" }],
  log: [
    { action: "log", prefix: "dropped: ", level: "info", flags: ["tcp options"] },
    { action: "log", group: 5, snaplen: 128 },
  ],
  limit: [
    { action: "limit", rate: 10, per: "second" },
    { action: "limit", rate: 2, per: "second", unit: "mbytes", burst: 4, over: true },
  ],
  quota: [{ action: "quota", bytes: 1_000_000, over: true }],
  connections: [{ action: "connections", count: 20, over: true }],
  set: [
    { action: "set", field: "ip dscp", value: "af11" },
    { action: "set", field: "tcp option maxseg size", value: { from: "rt mtu" } },
    { action: "set", field: "ct mark", value: { from: "meta mark", mask: 0xff } },
    { action: "set", field: "meta mark", value: { from: "meta mark", mask: 0xffffff00, xor: 0x10 } },
    { action: "set", field: "meta priority", value: { key: ["ip saddr"], map: "classes" } },
  ],
  object: [
    { action: "object", kind: "counter", name: "web" },
    { action: "object", kind: "quota", key: ["ip saddr"], map: "quotas" },
  ],
  notrack: [{ action: "notrack" }],
  "set-address": [
    { action: "set-address", direction: "source", to: "192.0.2.1" },
    { action: "set-address", direction: "source", to: "2001:db8::1" },
    { action: "set-address", direction: "destination", to: { ct: "original", direction: "destination" } },
  ],
  vmap: [
    { action: "vmap", key: ["tcp dport"], map: "services" },
    {
      action: "vmap",
      key: ["tcp dport"],
      map: [
        [22, "accept"],
        [80, "jump web"],
      ],
    },
  ],
  dnat: [
    [TCP, { action: "dnat", address: "192.0.2.1", port: 8080 }],
    [TCP, { action: "dnat", address: "2001:db8::1", port: 8080 }],
    { action: "dnat", address: { key: ["tcp dport"], map: "forwards", data: "address-port" } },
    {
      action: "dnat",
      address: {
        key: [{ field: "numgen", mode: "inc", modulus: 2 }],
        map: [
          [0, "192.0.2.1"],
          [1, "192.0.2.2"],
        ],
      },
    },
  ],
  snat: [
    { action: "snat", address: "192.0.2.1-192.0.2.9", persistent: true },
    { action: "snat", address: "2001:db8::/64" },
  ],
  masquerade: [
    { action: "masquerade" },
    [TCP, { action: "masquerade", ports: { from: 20_000, to: 29_999 }, random: true }],
  ],
  redirect: [[TCP, { action: "redirect", ports: 8080 }]],
  tproxy: [
    [TCP, { action: "tproxy", address: "127.0.0.1", port: 8080 }],
    [TCP, { action: "tproxy", port: 8080 }],
  ],
  reject: [
    { action: "reject" },
    { action: "reject", with: "host-unreachable" },
    { action: "reject", with: "tcp-reset" },
  ],
  queue: [
    { action: "queue", num: 0, bypass: true },
    { action: "queue", num: { from: 0, to: 3 }, fanout: true },
  ],
  flow: [{ action: "flow", flowtable: "fast" }],
  dup: [
    { action: "dup", address: "192.0.2.1" },
    { action: "dup", device: 2 },
  ],
  fwd: [
    { action: "fwd", device: 2 },
    { action: "fwd", device: 2, address: "192.0.2.1" },
  ],
  synproxy: [[TCP, { action: "synproxy", mss: 1460, wscale: 7, sackPerm: true, timestamp: true }]],
  raw: [
    {
      action: "raw",
      exprs: [
        { type: "meta", key: MetaKey.prandom, dreg: 1 },
        { type: "cmp", sreg: 1, op: CmpOp.lt, data: Uint8Array.of(16, 0, 0, 0) },
      ],
      text: "meta random < 268435456",
    },
  ],
  update: [
    { action: "update", set: "seen", key: ["ip saddr"], timeoutMs: 60_000 },
    { action: "update", set: "sessions", key: ["ip saddr"], data: { address: "192.0.2.1", port: 80 } },
  ],
  "connections-over": [{ action: "connections-over", set: "clients", key: ["ip saddr"], count: 10 }],
  "rate-over": [
    { action: "rate-over", set: "seen", key: ["ip saddr"], timeoutMs: 60_000, rate: 10, per: "second", burst: 20 },
    {
      action: "rate-over",
      set: "networks",
      key: [{ field: "ip6 saddr", mask: "ffff:ffff:ffff:ffff::" }],
      timeoutMs: 60_000,
      rate: 3,
      per: "minute",
      burst: 3,
    },
  ],
};
