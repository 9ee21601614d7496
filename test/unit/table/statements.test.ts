/**
 * Golden expressions, as `nft --debug=netlink` (1.0.6) prints them for the same text; the conformance tier compares all of them on the
 * kernel.
 */
import { describe, expect, it } from "vitest";

import type { Expr, Family } from "../../../src/nft/kernel/kernel.js";
import { FieldError } from "../../../src/nft/language/fields/field-error.js";
import { lowerRule, printRule } from "../../../src/nft/statements/lower-rule.js";

import type { Rule, Statement } from "../../../src/nft/statements/rule.js";
import type { SetSpec } from "../../../src/nft/language/set-spec.js";

const endpoints6: SetSpec = {
  set: "ep",
  key: ["ipv6_addr", "inet_proto", "inet_service", "index"],
  data: ["ipv6_addr", "inet_service"],
};
const lower = (family: Family, ...statements: Statement[]): readonly Expr[] =>
  lowerRule({ statements }, { family, setSpec: (name) => (name === "ep" ? endpoints6 : undefined) }).exprs;
const bytes = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex, "hex"));

describe("lowering", () => {
  it("compares whole bytes of a prefix, and masks others", () => {
    expect(lower("ip", { field: "ip saddr", op: "!=", value: "10.1.1.0/24" })).toEqual([
      { type: "payload", base: 1, offset: 12, len: 3, dreg: 1 },
      { type: "cmp", sreg: 1, op: 1, data: bytes("0a0101") },
    ]);
    expect(lower("ip", { field: "ip saddr", value: "10.1.0.0/12" })).toEqual([
      { type: "payload", base: 1, offset: 12, len: 4, dreg: 1 },
      { type: "bitwise", sreg: 1, dreg: 1, len: 4, op: 0, mask: bytes("fff00000"), xor: bytes("00000000") },
      { type: "cmp", sreg: 1, op: 0, data: bytes("0a000000") },
    ]);
  });

  it("puts a random number after the other fields, and uses address and port from the result", () => {
    const draw = { field: "numgen", mode: "random", modulus: 3, offset: 65_536 } as const;
    expect(
      lower("ip", {
        action: "dnat",
        address: { key: ["daddr", "meta l4proto", "th dport", draw], map: "m", data: "address-port" },
      }),
    ).toEqual([
      { type: "payload", base: 1, offset: 16, len: 4, dreg: 1 },
      { type: "meta", key: 16, dreg: 9 },
      { type: "payload", base: 2, offset: 2, len: 2, dreg: 10 },
      { type: "numgen", dreg: 11, modulus: 3, ngType: 1, offset: 65_536 },
      { type: "lookup", set: "m", sreg: 1, dreg: 1 },
      { type: "nat", natType: 1, family: 2, regAddrMin: 1, regProtoMin: 9 },
    ]);
  });

  it("knows the family of an inet table's maps, and checks it once", () => {
    const draw = { field: "numgen", mode: "inc", modulus: 2 } as const;
    expect(
      lower(
        "inet",
        { field: "ip6 saddr", value: "fd00::/8" },
        {
          action: "dnat",
          address: { key: ["daddr", "meta l4proto", "th dport", draw], map: "ep", data: "address-port" },
        },
      ),
    ).toEqual([
      { type: "meta", key: 15, dreg: 1 },
      { type: "cmp", sreg: 1, op: 0, data: bytes("0a") },
      { type: "payload", base: 1, offset: 8, len: 1, dreg: 1 },
      { type: "cmp", sreg: 1, op: 0, data: bytes("fd") },
      { type: "payload", base: 1, offset: 24, len: 16, dreg: 1 },
      { type: "meta", key: 16, dreg: 2 },
      { type: "payload", base: 2, offset: 2, len: 2, dreg: 13 },
      { type: "numgen", dreg: 14, modulus: 2, ngType: 0 },
      { type: "lookup", set: "ep", sreg: 1, dreg: 1 },
      { type: "nat", natType: 1, family: 10, regAddrMin: 1, regProtoMin: 2 },
    ]);
  });

  it("masks the flags of a TCP segment, and of no other protocol", () => {
    expect(lower("ip", { field: "tcp flags", mask: ["syn", "rst"], value: "syn" })).toEqual([
      { type: "meta", key: 16, dreg: 1 },
      { type: "cmp", sreg: 1, op: 0, data: bytes("06") },
      { type: "payload", base: 2, offset: 13, len: 1, dreg: 1 },
      { type: "bitwise", sreg: 1, dreg: 1, len: 1, op: 0, mask: bytes("06"), xor: bytes("00") },
      { type: "cmp", sreg: 1, op: 0, data: bytes("02") },
    ]);
    expect(() => lower("ip", { field: "tcp flags", mask: "syn", value: "rst" })).toThrow(/outside the mask/);
  });

  it("rewrites an address together with the checksums that include it", () => {
    expect(lower("ip", { action: "set-address", direction: "source", to: "192.0.2.1" })).toEqual([
      { type: "immediate", dreg: 1, data: bytes("c0000201") },
      { type: "payload", base: 1, offset: 12, len: 4, sreg: 1, csumType: 1, csumOffset: 10, csumFlags: 1 },
    ]);
    const to = { ct: "reply", direction: "destination" } as const;
    expect(lower("ip6", { action: "set-address", direction: "destination", to })).toEqual([
      { type: "ct", key: 22, dreg: 1, direction: 1 },
      { type: "payload", base: 1, offset: 24, len: 16, sreg: 1, csumType: 0, csumFlags: 1 },
    ]);
  });

  it("loads a connection's address completely, and compares its start", () => {
    expect(lower("ip", { field: "ct original ip saddr", value: "127.0.0.0/8" })).toEqual([
      { type: "ct", key: 19, dreg: 1, direction: 0 },
      { type: "cmp", sreg: 1, op: 0, data: bytes("7f") },
    ]);
  });

  it("compares a prefix of an interface's name without its end", () => {
    expect(lower("ip", { field: "iifname", value: "eth*" })).toEqual([
      { type: "meta", key: 6, dreg: 1 },
      { type: "cmp", sreg: 1, op: 0, data: bytes("657468") },
    ]);
    expect(lower("ip", { field: "oifname", value: "*" })).toEqual([]);
  });

  it("turns several networks into one anonymous set of merged ranges", () => {
    const { exprs, anonymous } = lowerRule(
      { statements: [{ field: "ip saddr", value: ["10.0.0.0/9", "10.128.0.0/9", "224.0.0.0/3"] }] },
      { family: "ip" },
    );
    expect(exprs.at(-1)).toEqual({ type: "lookup", set: "__set%d", setId: 1, sreg: 1 });
    expect(anonymous).toEqual([
      {
        info: { set: "__set%d", flags: 7, keyType: 7, keyLen: 4, size: 3, userdata: expect.any(Uint8Array) },
        elements: {
          count: 3,
          keyLen: 4,
          dataLen: 0,
          flags: true,
          bytes: bytes("0a000000000000000b00000001000000e000000000000000"),
        },
      },
    ]);
    expect(lower("ip", { field: "ip saddr", value: ["10.0.0.0/9", "10.128.0.0/9"] })).toHaveLength(2);
  });
});

/** /etc/protocols of Debian 12 (netbase 6.4), without comments: protocols whose number fits a byte. */
const NETBASE = `ip 0 IP; hopopt 0 HOPOPT; icmp 1 ICMP; igmp 2 IGMP; ggp 3 GGP; ipencap 4 IP-ENCAP; st 5 ST; tcp 6 TCP
egp 8 EGP; igp 9 IGP; pup 12 PUP; udp 17 UDP; hmp 20 HMP; xns-idp 22 XNS-IDP; rdp 27 RDP
iso-tp4 29 ISO-TP4; dccp 33 DCCP; xtp 36 XTP; ddp 37 DDP; idpr-cmtp 38 IDPR-CMTP; ipv6 41 IPv6
ipv6-route 43 IPv6-Route; ipv6-frag 44 IPv6-Frag; idrp 45 IDRP; rsvp 46 RSVP; gre 47 GRE
esp 50 IPSEC-ESP; ah 51 IPSEC-AH; skip 57 SKIP; ipv6-icmp 58 IPv6-ICMP; ipv6-nonxt 59 IPv6-NoNxt
ipv6-opts 60 IPv6-Opts; rspf 73 RSPF CPHB; vmtp 81 VMTP; eigrp 88 EIGRP; ospf 89 OSPFIGP
ax.25 93 AX.25; ipip 94 IPIP; etherip 97 ETHERIP; encap 98 ENCAP; pim 103 PIM; ipcomp 108 IPCOMP
vrrp 112 VRRP; l2tp 115 L2TP; isis 124 ISIS; sctp 132 SCTP; fc 133 FC
mobility-header 135 Mobility-Header; udplite 136 UDPLite; mpls-in-ip 137 MPLS-in-IP; manet 138
hip 139 HIP; shim6 140 Shim6; wesp 141 WESP; rohc 142 ROHC; ethernet 143 Ethernet`;

describe("protocols", () => {
  const number = (protocol: string): number =>
    (lower("ip", { field: "meta l4proto", value: protocol as "tcp" })[1] as { data: Uint8Array }).data[0];

  it("are known under every name and alias of /etc/protocols", () => {
    for (const entry of NETBASE.split(/[;\n]/)) {
      const [name, value, ...aliases] = entry.trim().split(" ");
      for (const each of [name, ...aliases]) expect([each, number(each)]).toEqual([each, Number(value)]);
    }
  });

  it("are known in the case that Calico uses", () => {
    expect(["TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite"].map(number)).toEqual([6, 17, 1, 58, 132, 136]);
  });
});

const rewritten = (to: string): Statement => ({ action: "set-address", direction: "source", to });

const REFUSED: [string, RegExp, Family, Statement][] = [
  ["no networks", /value: expected at least one value/, "ip", { field: "saddr", value: [] }],
  ["an IPv6 network in an ip table", /value: expected an IPv4 address/, "ip", { field: "saddr", value: "fd00::/8" }],
  [
    "both families at once",
    /value\[1\]: expected an IPv6 address/,
    "inet",
    { field: "ip6 saddr", value: ["fd00::/8", "10.0.0.0/8"] },
  ],
  ["no ports", /value: expected at least one value/, "ip", { field: "th sport", value: [] }],
  ["a port of 70000", /expected a port from 0 to 65535, found 70000/, "ip", { field: "th sport", value: 70_000 }],
  [
    "a range that runs backwards",
    /value\[0\]: expected a range whose end is not before its start/,
    "ip",
    { field: "th sport", value: [{ from: 90, to: 80 }] },
  ],
  [
    "an unknown protocol",
    /value: expected a protocol .*, found "tpc"/,
    "ip",
    { field: "meta l4proto", value: "tpc" as "tcp" },
  ],
  ["a protocol of 256", /protocol/, "ip", { field: "meta l4proto", value: 256 }],
  [
    "a protocol with the name of an object's method",
    /expected a protocol .*, found "constructor"/,
    "ip",
    { field: "meta l4proto", value: "constructor" as "tcp" },
  ],
  ["ICMPv6 in an ip table", /ip6|family/, "ip", { field: "icmpv6 type", value: 128 }],
  [
    "an ICMP type of 300",
    /value: expected a number from 0 to 255, .*echo-request/,
    "ip",
    { field: "icmp type", value: 300 },
  ],
  ["no states", /value: expected at least one flag/, "ip", { field: "ct state", value: [] }],
  ["a mark outside its mask", /mask/, "ip", { field: "meta mark", mask: 0xff, value: 0x100 }],
  ["an interface name of 16 bytes", /interface/, "ip", { field: "iifname", value: "x".repeat(16) }],
  ["no interface at all", /every name/, "ip", { field: "iifname", op: "!=", value: "*" }],
  ["a key that does not fit its set", /the key of set ep/, "ip6", { field: "daddr", value: "@ep" }],
  [
    "an inet look-up in an unknown set",
    /a set that is declared before the rule/,
    "inet",
    { field: "daddr", value: "@unknown" },
  ],
  [
    "a random number below 0",
    /key\[0\], modulus/,
    "ip",
    { action: "vmap", key: [{ field: "numgen", mode: "random", modulus: 0 }], map: "m" },
  ],
  ["a log prefix of 128 bytes", /127/, "ip", { action: "log", prefix: "x".repeat(128) }],
  ["a log prefix with a quote", /quote/, "ip", { action: "log", prefix: 'a"' }],
  ["an empty rate", /rate/, "ip", { action: "limit", rate: 0, per: "second" }],
  ["dnat to nothing", /expected an address or a port/, "ip", { action: "dnat" }],
  ["dnat to the other family", /family ip/, "ip", { action: "dnat", address: "fd00::1" }],
  ["an address rewritten in a table of both families", /tables of family inet/, "inet", rewritten("192.0.2.1")],
  ["an address rewritten to the other family's", /the table's family \(ip6\)/, "ip6", rewritten("192.0.2.1")],
  ["an address rewritten to a name", /IP address/, "ip", rewritten("localhost")],
  ["a name as address", /expected an address/, "ip", { action: "dnat", address: "localhost" }],
];

describe("invalid values", () => {
  it.each(REFUSED)("%s", (_, message, family, statement) => {
    expect(() => lower(family, statement)).toThrow(FieldError);
    expect(() => lower(family, statement)).toThrow(message);
  });
  it("a comment of 129 bytes is refused", () => {
    expect(() => lowerRule({ statements: [], comment: "x".repeat(129) }, { family: "ip" })).toThrow(/128/);
  });
});

it("rules are printed in nft's notation", () => {
  const print = (...statements: Statement[]): string => printRule({ statements, comment: "why" }, { family: "ip" });
  expect(
    print(
      { field: "ct state", value: "new" },
      { field: "iifname", value: "*" },
      { field: "ip saddr", op: "!=", value: ["10.0.0.0/8", "12.0.0.1"] },
      { action: "set", field: "meta mark", value: { from: "meta mark", mask: 0xffffbfff, xor: 0x4000 } },
      { action: "update", set: "s", key: ["saddr"], timeoutMs: 1500, data: { address: "10.0.0.1", port: 80 } },
    ),
  ).toBe(
    'ct state new ip saddr != { 10.0.0.0/8, 12.0.0.1 } meta mark set meta mark | 0x00004000 update @s { ip saddr timeout 1s500ms : 10.0.0.1 . 80 } comment "why"',
  );
});

it("names that nft takes for keywords are printed as numbers", () => {
  const print = (statement: Statement): string => printRule({ statements: [statement] }, { family: "inet" });
  expect(print({ action: "set", field: "ip protocol", value: "udp" })).toBe("ip protocol set 17");
  expect(print({ action: "set", field: "icmp type", value: "redirect" })).toBe("icmp type set 5");
  expect(print({ action: "set", field: "ct event", value: ["new", "helper"] })).toBe("ct event set 65");
  expect(print({ action: "set", field: "ct event", value: ["new", "destroy"] })).toBe("ct event set new,destroy");
});

it("connections cannot be counted in a set with timeouts", () => {
  const spec: SetSpec = { set: "clients", key: ["ipv4_addr"], dynamic: true, timeoutMs: 1000 };
  const rule: Rule = { statements: [{ action: "connections-over", set: "clients", key: ["ip saddr"], count: 2 }] };
  expect(() => lowerRule(rule, { family: "ip", setSpec: () => spec })).toThrow(/set: expected a set without timeouts/);
});

it.each<[Family, Statement]>([
  ["bridge", { action: "masquerade" }],
  ["netdev", { action: "redirect" }],
  ["netdev", { action: "queue", num: 0 }],
  ["arp", { action: "reject" }],
  ["inet", { action: "fwd", device: 1 }],
  ["netdev", { field: "rt mtu", value: 1500 }],
  ["ip6", { field: "osf name", value: "Linux" }],
  ["bridge", { field: { field: "fib", of: ["daddr"], result: "type" }, value: "local" }],
  ["arp", { field: "th dport", value: 80 }],
  ["arp", { field: "tcp option maxseg", value: "exists" }],
])("a table of family %s refuses %j, as the kernel does", (family, statement) => {
  expect(() => lower(family, statement)).toThrow(FieldError);
  expect(() => lower(family, statement)).toThrow(/(table|tables) of family|have no ports/);
});

it("addresses are printed in the notation of their sets' family, including hashed ones", () => {
  const draw = { field: "jhash", of: ["saddr"], modulus: 16, seed: 7 } as const;
  const key = ["daddr", "meta l4proto", "th dport", draw] as const;
  const rule: Rule = { statements: [{ action: "dnat", address: { key, map: "ep", data: "address-port" } }] };
  const print = (sets: readonly SetSpec[]): string =>
    printRule(rule, { family: "inet", setSpec: (name) => sets.find(({ set }) => set === name) });
  expect(print([endpoints6])).toBe(
    "dnat ip6 to ip6 daddr . meta l4proto . th dport . jhash ip6 saddr mod 16 seed 0x7 map @ep",
  );
  // Without the set it can be printed, but not sent.
  expect(print([])).toBe("dnat ip to ip daddr . meta l4proto . th dport . jhash ip saddr mod 16 seed 0x7 map @ep");
});
