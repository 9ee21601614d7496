/** Rules and sets without a meaning, or with another one than written: refused when declared, whatever the order, with the place in the rule. */
import { expect, test } from "vitest";
import {
  type Family,
  FieldError,
  type Insertion,
  type Kernel,
  printRule,
  type SetSpec,
  type Statement,
  Table,
} from "@nft-proxier/nft";

function declared(family: Family = "ip"): Table {
  // No kernel is needed, because nothing is written.
  return new Table({ portId: 0 } as Kernel, { family, name: "mine" });
}

const TCP: Statement = { field: "meta l4proto", value: "tcp" };
const DROP: Statement = { action: "verdict", verdict: "drop" };
const ADDRESSES: SetSpec = { set: "s", key: ["ipv4_addr"] };
const FILLED: SetSpec = { ...ADDRESSES, dynamic: true, size: 100 };
const MAP: SetSpec = { ...FILLED, data: ["ipv4_addr"] };

test.each<[what: string, set: SetSpec, statements: readonly Statement[], error: RegExp]>([
  [
    "a key of another type",
    { set: "s", key: ["mark"] },
    [{ field: "saddr", value: "@s" }],
    /statement 0, field: expected \[mark\], the key of set s/,
  ],
  [
    "a set that packets cannot fill",
    ADDRESSES,
    [TCP, { action: "update", set: "s", key: ["saddr"] }],
    /statement 1, set: expected a set that is declared with dynamic: true/,
  ],
  [
    "a timeout in a set without",
    FILLED,
    [{ action: "update", set: "s", key: ["saddr"], timeoutMs: 9 }],
    /statement 0, set: expected a set that is declared with timeoutMs/,
  ],
  [
    "data of another type",
    MAP,
    [{ action: "update", set: "s", key: ["saddr"], data: { address: "2001:db8::1" } }],
    /data: expected data of ipv4_addr, found {"address":"2001:db8::1"}/,
  ],
  [
    "more data than the map has",
    MAP,
    [{ action: "update", set: "s", key: ["saddr"], data: { address: "192.0.2.1", port: 80 } }],
    /data: expected data of ipv4_addr, found .*"port":80/,
  ],
  [
    "no data for a map",
    MAP,
    [{ action: "update", set: "s", key: ["saddr"] }],
    /data: expected data of ipv4_addr, found undefined/,
  ],
  [
    "data for a set",
    FILLED,
    [{ action: "update", set: "s", key: ["saddr"], data: { address: "192.0.2.1" } }],
    /data: expected no data/,
  ],
  [
    "verdicts from a set",
    ADDRESSES,
    [{ action: "vmap", key: ["saddr"], map: "s" }],
    /statement 0, map: expected a map of verdicts/,
  ],
  [
    "addresses from a map of marks",
    { ...ADDRESSES, data: ["mark"] },
    [{ action: "dnat", address: { key: ["saddr"], map: "s" } }],
    /address, map: expected a map with data of ipv4_addr, not of mark/,
  ],
])("%s is refused before and after the set is declared", (_, set, statements, error) => {
  const chain = { chain: "c", rules: [{ statements }] };
  const first = declared();
  first.set(set);
  expect(() => first.chain(chain)).toThrow(error);
  expect(() => first.chain(chain)).toThrow(/^chain c, rule 0, statement \d, /);
  const last = declared();
  last.chain(chain);
  expect(() => last.set(set)).toThrow(error);
});

test.each<[what: string, statements: readonly Statement[], error: RegExp]>([
  ["a statement after a verdict", [DROP, { action: "counter" }], /statement 1: expected no statement after drop/],
  [
    "a port without a protocol",
    [{ action: "dnat", address: "192.0.2.1", port: 80 }],
    /statement 0, port: expected a match of the protocol before it/,
  ],
  [
    "a port of ICMP",
    [
      { field: "meta l4proto", value: "icmp" },
      { action: "dnat", address: "192.0.2.1", port: 80 },
    ],
    /statement 1, port: expected no port, because packets of protocol 1 have none/,
  ],
  [
    "a burst of 0",
    [{ action: "limit", rate: 1, per: "hour", burst: 0 }],
    /statement 0, burst: expected a number from 1/,
  ],
  ["an empty log prefix", [{ action: "log", prefix: "" }], /statement 0, prefix: expected a prefix of 1 to 127 bytes/],
  ["a log prefix that nft reads as a variable", [{ action: "log", prefix: "a$x" }], /statement 0, prefix: expected/],
  [
    "a prefix of a name that is too long",
    [{ field: "iifname", value: "abcdefghijklmno*" }],
    /statement 0, value: expected a prefix of at most 14 bytes/,
  ],
  ["a mask of a name", [{ field: "iifname", mask: 5, value: "eth0" } as never], /statement 0, mask: expected no mask/],
  [
    "a mask of a set",
    [{ field: "ip saddr", mask: "255.0.0.0", value: "@s" }],
    /statement 0, mask: expected no mask beside a key, but in it: \[{ field, mask }\]/,
  ],
  [
    "a mask of a key",
    [{ field: ["tcp dport", "ip saddr"], mask: 5, value: [[5, "192.0.2.1"]] } as never],
    /statement 0, mask: expected no mask/,
  ],
  [
    "a key twice in a map",
    [
      {
        action: "vmap",
        key: ["tcp dport"],
        map: [
          [22, "accept"],
          [80, "drop"],
          [22, "drop"],
        ],
      },
    ],
    /statement 0, map\[2\]\[0\]: expected no overlap with 22, found 22/,
  ],
  [
    "a key twice in a list",
    [
      {
        field: ["ip saddr", "tcp dport"],
        value: [
          ["192.0.2.1", 22],
          ["192.0.2.1", 22],
        ],
      },
    ],
    /statement 0, value\[1\]: expected no overlap with \["192.0.2.1",22\]/,
  ],
  [
    "all queues",
    [{ action: "queue", num: { from: 0, to: 65_535 } }],
    /statement 0, num: expected at most 65535 queues/,
  ],
  [
    "a rate of too many bytes",
    [{ action: "limit", rate: 2 ** 53 - 1, unit: "mbytes", per: "second" }],
    /statement 0, rate: expected a rate of less than 2\^64 bytes/,
  ],
  [
    "a burst of too many bytes",
    [{ action: "limit", rate: 1, unit: "mbytes", burst: 4096, per: "second" }],
    /statement 0, burst: expected a burst of less than 4096 mbytes/,
  ],
  [
    "a prefix at the level audit",
    [{ action: "log", level: "audit", prefix: "x" }],
    /statement 0, level: expected another level than audit, which has no prefix and flags/,
  ],
  ["a $ in a log prefix", [{ action: "log", prefix: "a$" }], /statement 0, prefix: expected a prefix .* and \$/],
  [
    "a verdict as an action",
    [{ action: "drop" } as never],
    /statement 0, action: expected one of verdict, .*, found "drop"$/,
  ],
  [
    "a value outside the mask of its key",
    [{ action: "vmap", key: [{ field: "ip saddr", mask: "255.255.255.0" }], map: [["192.0.2.1", "drop"]] }],
    /statement 0, map\[0\]\[0\]: expected a value without bits outside the mask 0xffffff00, found "0xc0000201"/,
  ],
  [
    "an empty mask in a key",
    [{ field: [{ field: "saddr", mask: "0.0.0.0" }], value: "@s" }],
    /statement 0, field\[0\], mask: expected a mask with at least one bit/,
  ],
  [
    "a mask of some bits of a byte in a key",
    [{ field: [{ field: "ip dscp", mask: 3 }], value: [[1]] }],
    /statement 0, field\[0\], mask: expected no mask, because ip dscp is some bits of a byte/,
  ],
  [
    "an order of keys",
    [{ field: ["tcp dport"], op: "<", value: [[5]] } as never],
    /statement 0, op: expected "in" or "not in" for a set/,
  ],
  [
    "a list of ports to write",
    [TCP, { action: "set", field: "tcp dport", value: [1, 2] as never }],
    /statement 1, value: expected/,
  ],
  [
    "a copy between fields of different widths",
    [{ action: "set", field: "tcp window", value: { from: "ip ttl" } }],
    /statement 0, value, from: expected a field of 16 bits, not 8/,
  ],
])("%s is refused", (_, statements, error) => {
  expect(() => declared().chain({ chain: "c", rules: [{ statements }] })).toThrow(error);
});

/** Every kind of place in a rule: the error leads to the value. */
test.each<[family: Family, statements: readonly object[], field: string, expected: string]>([
  ["ip", [{ field: "ip6 saddr", value: "::1" }], "field", "family ip"],
  [
    "ip",
    [{ field: ["ip saddr", "tcp dport"], value: [["192.0.2.1", 22, 3]] }],
    "value[0]",
    "[ipv4_addr, inet_service]",
  ],
  ["ip", [{ field: ["ip saddr", "tcp dport"], value: [["192.0.2.1", "x"]] }], "value[0][1]", "a port from 0 to 65535"],
  ["ip", [{ field: ["ip saddr", "tcp dport"], value: [["fe80::1", 80]] }], "value[0][0]", "an IPv4 address"],
  ["ip", [{ field: "tcp dport", value: { from: 90, to: 80 } }], "value", "a range whose end is not before its start"],
  ["ip", [{ field: "tcp dport", value: [22, { from: 1, to: "x" }] }], "value[1], to", "a port from 0 to 65535"],
  [
    "ip",
    [{ field: ["tcp dport"], value: [[{ from: 9, to: 8 }]] }],
    "value[0]",
    "a range whose end is not before its start",
  ],
  ["ip", [{ action: "vmap", key: ["tcp dport"], map: [["x", "drop"]] }], "map[0][0]", "a port from 0 to 65535"],
  ["ip", [{ action: "vmap", key: ["tcp dport"], map: [[80, "dorp"]] }], "map[0][1]", '"accept", "drop"'],
  [
    "ip",
    [{ action: "set", field: "meta mark", value: { key: ["tcp dport"], map: [[80, "x"]] } }],
    "value, map[0][1]",
    "a mark",
  ],
  ["ip", [{ action: "masquerade", ports: { from: 9, to: 8 } }], "ports", "a range whose end is not before its start"],
  [
    "netdev",
    [{ field: "meta protocol", value: ["ip", "arp"] }, { action: "reject" }],
    "",
    "a condition on ip or ip6 alone",
  ],
  ["netdev", [{ field: "ether type", value: "arp" }, { action: "reject" }], "", "a condition on ip or ip6 alone"],
  [
    "inet",
    [
      { field: "ip saddr", value: "192.0.2.1" },
      { action: "dnat", address: "2001:db8::1" },
    ],
    "address",
    "not ip6",
  ],
  [
    "inet",
    [
      { field: "ip6 saddr", value: "::1" },
      { action: "snat", address: "192.0.2.1" },
    ],
    "address",
    "not ip",
  ],
  [
    "inet",
    [
      { field: "ip saddr", value: "192.0.2.1" },
      { action: "dnat", address: { key: ["tcp dport"], map: [[80, "2001:db8::1"]] } },
    ],
    "address, map",
    "not ip6",
  ],
])("in %s, %j is refused with its place", (family, statements, field, expected) => {
  const insertion = { family, table: "other", chain: "c", mode: "insert", rules: [{ statements }] };
  const table = new Table({ portId: 0 } as Kernel, { family, name: "mine", ownerMark: "me" });
  const at = `statement ${statements.length - 1}${field === "" ? "" : `, ${field}`}`;
  for (const [where, declare] of [
    ["chain c, rule 0", () => table.chain({ chain: "c", rules: [{ statements: statements as Statement[] }] })],
    ["insertion in other c, rule 0", () => table.insertions(insertion as Insertion)],
    ["rule", () => printRule(statements as Statement[], { family })],
  ] as const) {
    const error = refusal(declare);
    expect([error.field, error.expected.includes(expected)], error.message).toEqual([`${where}, ${at}`, true]);
  }
});

test("in netdev, reject follows conditions that nft takes for IP", () => {
  for (const value of ["ip", "ip6", ["ip", "ip6"]] as const)
    expect(printRule([{ field: "meta protocol", value }, { action: "reject" }], { family: "netdev" })).toContain(
      "reject",
    );
});

function refusal(action: () => unknown): FieldError {
  try {
    action();
  } catch (error) {
    if (error instanceof FieldError) return error;
    throw error;
  }
  throw new Error("accepted");
}

test("objects and sets that the kernel cannot hold are named", () => {
  const object = () =>
    declared().object({ object: "fast", kind: "limit", rate: 1, unit: "mbytes", burst: 2 ** 32 - 1, per: "hour" });
  expect(object).toThrow("limit fast, burst: expected a burst of less than 4096 mbytes");
  const data = Array.from({ length: 5 }, () => "ipv6_addr" as const);
  expect(() => declared().set({ set: "wide", key: ["mark"], data })).toThrow(
    "set wide, data: expected at most 64 bytes",
  );
  expect(() => declared().chain({ name: "c" } as never)).not.toThrow(/did you mean/);
});

test("what is removed is named, not described", () => {
  const table = declared();
  expect(() => table.removeSet({ set: "s" } as never)).toThrow("removeSet: expected");
  expect(() => table.removeChain({ chain: "c" } as never)).toThrow("removeChain: expected");
  expect(() => table.removeObject({ kind: "counter", name: "a" } as never)).toThrow("removeObject, object: expected");
});

test("hooks of devices need devices, and others have none", () => {
  const chain = (family: Family, base: object) => () =>
    declared(family).chain({ chain: "c", base: { type: "filter", priority: 0, hook: "ingress", ...base }, rules: [] });
  expect(chain("netdev", {})).toThrow("chain c, base, devices: expected devices, which this hook needs");
  expect(chain("netdev", { devices: [] })).toThrow("chain c, base, devices: expected");
  expect(chain("inet", {})).toThrow("chain c, base, devices: expected devices, which this hook needs");
  expect(chain("ip", { hook: "input", devices: ["eth0"] })).toThrow(
    "chain c, base, devices: expected none at this hook",
  );
  expect(chain("inet", { devices: ["eth0"] })).not.toThrow();
});

test.each(["ipv4_addr", "ipv6_addr"] as const)("in inet, a chain may come before its set of %s", (type) => {
  const before = declared("inet");
  const after = declared("inet");
  const chain = { chain: "c", rules: [{ statements: [{ field: "saddr", value: "@s" }, DROP] }] } as const;
  before.chain(chain);
  before.set({ set: "s", key: [type] });
  after.set({ set: "s", key: [type] });
  after.chain(chain);
  expect(before.render()).toBe(after.render());
});
