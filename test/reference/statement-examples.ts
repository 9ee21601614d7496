/** Examples of each statement, and the sets and maps that they use. */
import type { Statement } from "../../dist/nft/statements/rules.js";
import type { SetSpec } from "../../dist/nft/handles/set-spec.js";
import { CmpOp, MetaKey } from "../../dist/nft/kernel/constants.js";
import type { Match } from "../../dist/nft/language/rule.js";

export const SETS: readonly SetSpec[] = [
  { set: "banned", key: ["ipv4_addr"] },
  { set: "allowed", key: ["ipv4_addr", "inet_service"] },
  { set: "seen", key: ["ipv4_addr"], dynamic: true, timeoutMs: 600_000 },
  { set: "clients", key: ["ipv4_addr"], dynamic: true, size: 65_536 },
  { set: "sessions", key: ["ipv4_addr"], data: ["ipv4_addr", "inet_service"], dynamic: true },
  { set: "services", key: ["inet_service"], data: "verdict" },
  { set: "forwards", key: ["inet_service"], data: ["ipv4_addr", "inet_service"] },
  { set: "marks", key: ["ipv4_addr"], data: ["mark"] },
  { set: "classes", key: ["ipv4_addr"], data: ["classid"] },
];

/** A rule with one statement, or with others that it needs. */
type Examples = readonly (Statement | readonly Statement[])[];
type ActionName = Extract<Statement, { action: string }>["action"];

const TCP: Statement = { match: "protocol", protocol: "tcp" };

export const COMPARISONS: Examples = [
  { field: "tcp dport", value: 443 },
  { field: "tcp dport", op: "!=", value: [80, 443, [8000, 8999]] },
  { field: "ip saddr", value: "192.0.2.0/24" },
  { field: "ip6 saddr", value: "2001:db8::1-2001:db8::ff" },
  { field: "meta length", op: ">", value: 1500 },
  { field: "iifname", value: "eth*" },
  { field: "ct state", value: ["established", "related"] },
  { field: "ct state", op: "not in", value: ["established", "related"] },
  { field: "tcp flags", mask: ["syn", "ack"], value: "syn" },
  { field: "meta mark", mask: 0xff, value: 0x10 },
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

export const MATCH_EXAMPLES: { readonly [K in Match["match"]]: Examples } = {
  address: [
    { match: "address", direction: "source", nets: ["192.0.2.0/24", "198.51.100.7"] },
    { match: "address", direction: "destination", nets: ["2001:db8::/32"], negate: true },
    { match: "address", direction: "destination", nets: ["192.0.2.1"], ct: "original" },
  ],
  port: [{ match: "port", direction: "destination", ports: [53, [8000, 8999]] }],
  protocol: [{ match: "protocol", protocol: "udp" }],
  "in-set": [{ match: "in-set", key: ["saddr"], set: "banned" }],
  "address-type": [{ match: "address-type", direction: "destination", type: "local", limit: "in" }],
  icmp: [
    { match: "icmp", version: 4, type: 8 },
    { match: "icmp", version: 6, type: 1, code: 4 },
  ],
  "tcp-flags": [{ match: "tcp-flags", among: ["syn", "ack", "rst"], set: ["syn"] }],
  "ct-state": [{ match: "ct-state", states: ["established", "related"] }],
  "ct-direction": [{ match: "ct-direction", direction: "reply" }],
  "ct-status": [{ match: "ct-status", status: "dnat" }],
  "ct-mark": [{ match: "ct-mark", mask: 0xff, value: 0x10 }],
  mark: [{ match: "mark", mask: 0x1, value: 0, negate: true }],
  priority: [{ match: "priority", value: 0x150003 }],
  interface: [{ match: "interface", direction: "in", name: "eth*" }],
  "reverse-path": [{ match: "reverse-path", passed: false }],
};

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
  ],
  object: [
    { action: "object", kind: "counter", name: "web" },
    { action: "object", kind: "quota", key: ["ip saddr"], map: "quotas" },
  ],
  "set-mark": [
    { action: "set-mark", value: 0x10 },
    { action: "set-mark", mask: 0xff, value: 0x10 },
    { action: "set-mark", value: { from: "ct mark" } },
    { action: "set-mark", value: { key: ["ip saddr"], map: "marks" } },
  ],
  "xor-mark": [{ action: "xor-mark", value: 1 }],
  "set-ct-mark": [{ action: "set-ct-mark", value: { from: "meta mark" } }],
  "set-priority": [{ action: "set-priority", value: 0x150003 }],
  "priority-map": [{ action: "priority-map", key: ["ip saddr"], map: "classes" }],
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
  "dnat-map": [{ action: "dnat-map", key: ["tcp dport"], map: "forwards", data: "address-port" }],
  snat: [
    { action: "snat", address: ["192.0.2.1", "192.0.2.9"], persistent: true },
    { action: "snat", address: "2001:db8::/64" },
  ],
  masquerade: [{ action: "masquerade" }, [TCP, { action: "masquerade", ports: [20_000, 29_999], random: true }]],
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
    { action: "queue", num: [0, 3], fanout: true },
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
  ],
};
