/** Rules and sets without a meaning, or with another one than written: refused when declared, whatever the order, with the place in the rule. */
import { expect, test } from "vitest";
import { type Family, type Kernel, type SetSpec, type Statement, Table } from "@nft-proxier/nft";

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
    /statement 0: set s has keys of mark/,
  ],
  [
    "a set that packets cannot fill",
    ADDRESSES,
    [TCP, { action: "update", set: "s", key: ["saddr"] }],
    /statement 1: set s is not dynamic/,
  ],
  [
    "a timeout in a set without",
    FILLED,
    [{ action: "update", set: "s", key: ["saddr"], timeoutMs: 9 }],
    /statement 0: set s has no timeouts/,
  ],
  [
    "data of another type",
    MAP,
    [{ action: "update", set: "s", key: ["saddr"], data: { address: "2001:db8::1" } }],
    /set s has data of ipv4_addr, but the action has ipv6_addr/,
  ],
  [
    "more data than the map has",
    MAP,
    [{ action: "update", set: "s", key: ["saddr"], data: { address: "192.0.2.1", port: 80 } }],
    /but the action has ipv4_addr . inet_service/,
  ],
  ["no data for a map", MAP, [{ action: "update", set: "s", key: ["saddr"] }], /but the action has none/],
  [
    "data for a set",
    FILLED,
    [{ action: "update", set: "s", key: ["saddr"], data: { address: "192.0.2.1" } }],
    /set s has no data, but/,
  ],
  [
    "verdicts from a set",
    ADDRESSES,
    [{ action: "vmap", key: ["saddr"], map: "s" }],
    /statement 0: s is not a map of verdicts/,
  ],
  [
    "addresses from a map of marks",
    { ...ADDRESSES, data: ["mark"] },
    [{ action: "dnat", address: { key: ["saddr"], map: "s" } }],
    /map s has data of mark, not of ipv4_addr/,
  ],
])("%s is refused before and after the set is declared", (_, set, statements, error) => {
  const chain = { chain: "c", rules: [{ statements }] };
  const first = declared();
  first.set(set);
  expect(() => first.chain(chain)).toThrow(error);
  expect(() => first.chain(chain)).toThrow(/^chain c, rule 0: statement \d: /);
  const last = declared();
  last.chain(chain);
  expect(() => last.set(set)).toThrow(error);
});

test.each<[what: string, statements: readonly Statement[], error: RegExp]>([
  ["a statement after a verdict", [DROP, { action: "counter" }], /statement 1: it has no effect after drop/],
  [
    "a port without a protocol",
    [{ action: "dnat", address: "192.0.2.1", port: 80 }],
    /statement 0: ports need a match of the protocol/,
  ],
  [
    "a port of ICMP",
    [
      { field: "meta l4proto", value: "icmp" },
      { action: "dnat", address: "192.0.2.1", port: 80 },
    ],
    /statement 1: packets of protocol 1 have no ports/,
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
    /statement 0: iifname: a prefix has at most 14 bytes/,
  ],
])("%s is refused", (_, statements, error) => {
  expect(() => declared().chain({ chain: "c", rules: [{ statements }] })).toThrow(error);
});

test("hooks of devices need devices, and others have none", () => {
  const chain = (family: Family, base: object) => () =>
    declared(family).chain({ chain: "c", base: { type: "filter", priority: 0, hook: "ingress", ...base }, rules: [] });
  expect(chain("netdev", {})).toThrow("chain c: this hook needs devices");
  expect(chain("netdev", { devices: [] })).toThrow("chain c: ");
  expect(chain("inet", {})).toThrow("chain c: this hook needs devices");
  expect(chain("ip", { hook: "input", devices: ["eth0"] })).toThrow("chain c: devices do not fit this hook");
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
