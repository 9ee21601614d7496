/**
 * Types refuse wrong programs. `npm run lint:ts` compiles this file, and reports a @ts-expect-error without an error. At run time, the library
 * refuses the same programs for callers without types.
 */
import { beforeEach, describe, expect, expectTypeOf, test } from "vitest";
import {
  type CountingObject,
  type DataMap,
  type DynamicMap,
  type DynamicSet,
  FieldError,
  type NamedObject,
  type NetworkSet,
  type ObjectMap,
  type PlainSet,
  type QuotaUse,
  type RangeSet,
  type Statement,
  Table,
  type VerdictMap,
} from "../../src/nft/nft-exports.js";
import { FakeKernel } from "../../src/nft/testing/testing-exports.js";

let table: Table;
beforeEach(() => {
  table = new Table(new FakeKernel(), { family: "inet", name: "typed" });
});

/** Declares a chain with this rule. */
function rule(...statements: readonly Statement[]): void {
  table.chain({ chain: "rules", rules: [{ statements }] });
}

describe("a specification determines the handle", () => {
  test("of sets and maps", () => {
    const key = ["ipv4_addr"] as const;
    expectTypeOf(table.set({ set: "a", key: ["ipv4_addr"] })).toEqualTypeOf<PlainSet<readonly ["ipv4_addr"]>>();
    expectTypeOf(table.set({ set: "b", key: ["inet_service"], interval: true })).toEqualTypeOf<
      RangeSet<readonly ["inet_service"]>
    >();
    expectTypeOf(table.set({ set: "c", key, interval: true })).toEqualTypeOf<NetworkSet>();
    expectTypeOf(table.set({ set: "d", key, dynamic: true, size: 10 })).toEqualTypeOf<DynamicSet<typeof key>>();
    expectTypeOf(table.set({ set: "e", key, data: ["mark"] })).toEqualTypeOf<DataMap<typeof key, readonly ["mark"]>>();
    expectTypeOf(table.set({ set: "f", key, data: "verdict" })).toEqualTypeOf<VerdictMap<typeof key>>();
    expectTypeOf(table.set({ set: "g", key, data: { object: "counter" } })).toEqualTypeOf<ObjectMap<typeof key>>();
    expectTypeOf(table.set({ set: "h", key, data: ["mark"], dynamic: true, size: 10 })).toEqualTypeOf<
      DynamicMap<typeof key, readonly ["mark"]>
    >();
  });

  test("of named objects", () => {
    const counter = table.object({ object: "requests", kind: "counter" });
    expectTypeOf(counter).toEqualTypeOf<CountingObject<"counter">>();
    const quota = table.object({ object: "monthly", kind: "quota", bytes: 1000 });
    expectTypeOf(quota.read).returns.resolves.toEqualTypeOf<QuotaUse | undefined>();
    const limit = table.object({ object: "slow", kind: "limit", rate: 1, per: "second" });
    expectTypeOf(limit).toEqualTypeOf<NamedObject<"limit">>();
    // @ts-expect-error -- a limit counts nothing
    expect(limit.read).toBeUndefined();
  });

  test("and its values", () => {
    const marks = table.set({ set: "marks", key: ["ipv4_addr"], data: ["mark"] });
    expectTypeOf(marks.get("192.0.2.1")).toEqualTypeOf<number | undefined>();
    const allowed = table.set({ set: "allowed", key: ["ipv4_addr", "inet_service"] });
    expectTypeOf(allowed.keys()).toEqualTypeOf<(readonly [string, number])[]>();
  });
});

describe("refused:", () => {
  test("a mask of a name that is no field", () => {
    const update = { action: "update", set: "s", key: [{ field: "ip6 saddr", mask: "ffff::" }] } as const;
    expectTypeOf(update).toExtend<Statement>();
    // @ts-expect-error misspelt
    const wrong: Statement = { action: "update", set: "s", key: [{ field: "ip6 sadr", mask: "ffff::" }] };
    expect(() => rule(wrong)).toThrow('did you mean "ip6 saddr"?');
  });

  test("a misspelt field, operator, action or key", () => {
    // @ts-expect-error -- tcp dport
    expect(() => rule({ field: "tcp dprt", value: 22 })).toThrow(FieldError);
    // @ts-expect-error -- not in
    expect(() => rule({ field: "tcp dport", op: "notin", value: [22] })).toThrow(FieldError);
    // @ts-expect-error -- counter
    expect(() => rule({ action: "countr" })).toThrow(FieldError);
    // @ts-expect-error -- prefix
    expect(() => rule({ action: "log", prefx: "dropped: " })).toThrow(FieldError);
  });

  test("a value of another type than the field's", () => {
    // @ts-expect-error -- an address is no port
    expect(() => rule({ field: "tcp dport", value: "192.0.2.1" })).toThrow(FieldError);
    // @ts-expect-error -- established
    expect(() => rule({ field: "ct state", value: "establised" })).toThrow(FieldError);
    // @ts-expect-error -- drop
    expect(() => rule({ action: "verdict", verdict: "dorp" })).toThrow(FieldError);
  });

  test("a verdict in a data map, and data in a verdict map", () => {
    const marks = table.set({ set: "marks", key: ["ipv4_addr"], data: ["mark"] });
    // @ts-expect-error -- a mark is a number
    expect(() => marks.put("192.0.2.1", "accept")).toThrow(FieldError);
    const services = table.set({ set: "services", key: ["inet_service"], data: "verdict" });
    // @ts-expect-error -- a verdict is a text
    expect(() => services.put(22, 1)).toThrow(FieldError);
    // @ts-expect-error -- a set has no data
    expect(() => table.set({ set: "plain", key: ["ipv4_addr"] }).put("192.0.2.1", "accept")).toThrow(FieldError);
  });

  test("a key of the wrong length, order or type", () => {
    const allowed = table.set({ set: "allowed", key: ["ipv4_addr", "inet_service"] });
    // @ts-expect-error -- the port is missing
    expect(() => allowed.put(["192.0.2.1"])).toThrow(FieldError);
    // @ts-expect-error -- one field too many
    expect(() => allowed.put(["192.0.2.1", 22, 23])).toThrow(FieldError);
    // @ts-expect-error -- the address comes first
    expect(() => allowed.put([22, "192.0.2.1"])).toThrow(FieldError);
    // @ts-expect-error -- a tuple
    expect(() => allowed.has("192.0.2.1")).toThrow(FieldError);
    // @ts-expect-error -- no such type
    expect(() => table.set({ set: "typo", key: ["ip4_addr"] })).toThrow(FieldError);
  });
});
