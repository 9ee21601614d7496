import { expect, test } from "vitest";
import { NfProto, ObjectType, QuotaFlag, SetFlag } from "../../../src/nft/kernel/constants.js";
import type { ObjectDump, ObjectData, ObjectRef, Op } from "../../../src/nft/kernel/kernel.js";
import {
  addressSet,
  daddr,
  ip,
  newChain,
  newElements,
  newRule,
  newSet,
  newTable,
  noElements,
  noSet,
  pack,
  T,
} from "../../support/operations.ts";
import { runCases, type Case, type Current } from "../cases.js";

/** NFT_OBJECT_* of the data. */
function typeOf({ type }: ObjectData): number {
  const renamed: Readonly<Record<string, number>> = {
    "ct helper": ObjectType.ctHelper,
    "ct timeout": ObjectType.ctTimeout,
    "ct expectation": ObjectType.ctExpect,
  };
  return renamed[type] ?? ObjectType[type as "counter"];
}

const TCP = 6;
const UDP = 17;

const newObject = (object: string, data: ObjectData, op: "add" | "create" = "add", objType = typeOf(data)): Op => ({
  op,
  kind: "object",
  ...T,
  object,
  objType,
  data,
});
const noObject = (object: string, objType: number, op: "delete" | "destroy" = "delete"): Op => ({
  op,
  kind: "object",
  ...T,
  object,
  objType,
});

const counter = newObject("o", { type: "counter", packets: 2n, bytes: 100n });
const byName = newRule("c", { type: "objref", immType: ObjectType.counter, immName: "o" });
const counters = newSet(addressSet("m", { flags: SetFlag.object, objType: ObjectType.counter }));
/** Elements of the map "m", each with its object. */
const refer = (...objects: readonly (string | undefined)[]): Op => {
  const elements = pack(objects.map((_, i) => ({ key: ip(`192.0.2.${i}`) })));
  const extras = objects.flatMap((object, record) => (object === undefined ? [] : { record, object }));
  return { op: "add", kind: "elements", ...T, set: "m", elements: { ...elements, extras } };
};

export function objects(current: Current): void {
  runCases(current, [...kinds.map(kindCase), ...changing, ...references]);

  test("one object is read, and reset", async () => {
    const { kernel } = current();
    const quota: ObjectData = { type: "quota", bytes: 100n, consumed: 100n };
    await kernel.commit([newTable(), counter, newObject("q", quota)]);
    const { id } = await kernel.generation();
    const of: ObjectRef = { object: "o", objType: ObjectType.counter };
    expect(await kernel.object(T, of)).toEqual((await kernel.objects(T))[0]);
    expect((await kernel.object(T, of, true))?.data).toEqual({ type: "counter", packets: 2n, bytes: 100n });
    expect((await kernel.object(T, of))?.data).toEqual({ type: "counter", packets: 0n, bytes: 0n });
    const limited = { object: "q", objType: ObjectType.quota };
    expect((await kernel.object(T, limited, true))?.data).toEqual({ ...quota, flags: QuotaFlag.depleted });
    expect((await kernel.object(T, limited))?.data).toEqual({ ...quota, flags: 0, consumed: 0n });
    expect(await kernel.object(T, { ...of, objType: ObjectType.limit })).toBeUndefined();
    expect(await kernel.object({ ...T, table: "other" }, of)).toBeUndefined();
    expect((await kernel.generation()).id).toBe(id);
  });
}

/** Data as sent, and as dumped if that differs. */
const kinds: readonly (readonly [data: ObjectData, dumped?: ObjectData])[] = [
  [{ type: "counter" }, { type: "counter", packets: 0n, bytes: 0n }],
  [{ type: "counter", packets: 3n, bytes: 5n }],
  [
    { type: "quota", bytes: 1000n },
    { type: "quota", bytes: 1000n, flags: 0, consumed: 0n },
  ],
  [{ type: "quota", bytes: 1000n, flags: QuotaFlag.invert, consumed: 7n }],
  [
    { type: "limit", rate: 10n, unit: 1n },
    { type: "limit", rate: 10n, unit: 1n, burst: 5, limitType: 0, flags: 0 },
  ],
  [{ type: "limit", rate: 1_000_000n, unit: 60n, burst: 2000, limitType: 1, flags: 1 }],
  [
    { type: "ct helper", name: "ftp", l4proto: TCP },
    { type: "ct helper", name: "ftp", l4proto: TCP, l3proto: NfProto.ip },
  ],
  [
    { type: "ct timeout", l4proto: UDP, timeouts: [undefined, 77] },
    { type: "ct timeout", l4proto: UDP, l3proto: NfProto.ip, timeouts: [30, 77] },
  ],
  [
    { type: "ct timeout", l4proto: TCP, l3proto: NfProto.ip, timeouts: [undefined, undefined, 100] },
    {
      type: "ct timeout",
      l4proto: TCP,
      l3proto: NfProto.ip,
      timeouts: [120, 60, 100, 120, 60, 30, 120, 10, 120, 300, 300],
    },
  ],
  [{ type: "ct expectation", l3proto: NfProto.ip, l4proto: UDP, dport: 9876, timeout: 120, size: 12 }],
  [{ type: "synproxy", mss: 1460, wscale: 7, flags: 0xf }],
];

function kindCase([data, dumped = data]: (typeof kinds)[number]): Case {
  return {
    title: JSON.stringify(data, (_, value: unknown) => (typeof value === "bigint" ? `${value}n` : value)),
    given: [newTable()],
    when: [{ ...newObject("o", data), userdata: Uint8Array.of(0, 2, 0x78, 0) } as Op],
    then: async ({ kernel }) => {
      const [{ handle, ...found }] = (await kernel.objects(T)) as ObjectDump[];
      expect(handle).toBeGreaterThan(0n);
      const objType = typeOf(data);
      expect(found).toEqual({
        kind: "object",
        object: "o",
        objType,
        use: 0,
        data: dumped,
        userdata: Uint8Array.of(0, 2, 0x78, 0),
      });
    },
  };
}

const changing: Case[] = [
  {
    title: "an object that exists, created again",
    given: [newTable(), counter],
    when: [newObject("o", { type: "counter" }, "create")],
    faults: [{ op: 0, errno: "EEXIST" }],
  },
  {
    title: "an object that exists, added again, stays as it is",
    given: [newTable(), counter],
    when: [newObject("o", { type: "counter" })],
    then: async ({ kernel }) =>
      expect(await kernel.objects(T)).toMatchObject([{ data: { type: "counter", packets: 2n, bytes: 100n } }]),
  },
  {
    title: "a limit that exists, added again with another rate, stays as it is",
    given: [newTable(), newObject("o", { type: "limit", rate: 10n, unit: 1n })],
    when: [newObject("o", { type: "limit", rate: 20n, unit: 1n })],
    then: async ({ kernel }) => expect(await kernel.objects(T)).toMatchObject([{ data: { rate: 10n } }]),
  },
  {
    title: "a quota gets other bytes, and keeps its use",
    given: [newTable(), newObject("o", { type: "quota", bytes: 1000n, consumed: 500n })],
    when: [newObject("o", { type: "quota", bytes: 2000n, flags: QuotaFlag.invert })],
    then: async ({ kernel }) =>
      expect(await kernel.objects(T)).toMatchObject([
        { data: { type: "quota", bytes: 2000n, flags: QuotaFlag.invert, consumed: 500n } },
      ]),
  },
  {
    title: "a synproxy gets another definition",
    given: [newTable(), newObject("o", { type: "synproxy", mss: 1460, wscale: 7, flags: 3 })],
    when: [newObject("o", { type: "synproxy", mss: 1200, wscale: 5, flags: 3 })],
    then: async ({ kernel }) => expect(await kernel.objects(T)).toMatchObject([{ data: { mss: 1200, wscale: 5 } }]),
  },
  {
    title: "two objects of different types with one name",
    given: [newTable(), counter],
    when: [newObject("o", { type: "quota", bytes: 1n })],
    then: async ({ kernel }) => {
      expect(await kernel.objects(T)).toHaveLength(2);
      expect((await kernel.tables("ip"))[0].use).toBe(2);
    },
  },
  {
    title: "an object is replaced in one transaction",
    given: [newTable(), counter],
    when: [noObject("o", ObjectType.counter), newObject("o", { type: "counter", packets: 9n, bytes: 9n })],
    then: async ({ kernel }) => expect(await kernel.objects(T)).toMatchObject([{ data: { packets: 9n } }]),
  },
  { title: "in a missing table", when: [counter], faults: [{ op: 0, errno: "ENOENT" }] },
  {
    title: "a quota that is used more than it has",
    realOnly: true,
    given: [newTable()],
    when: [newObject("o", { type: "quota", bytes: 1n, consumed: 2n })],
    faults: [{ op: 0, errno: "EINVAL" }],
  },
  {
    title: "a missing object is deleted",
    given: [newTable()],
    when: [noObject("o", 1)],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "a missing object is destroyed",
    given: [newTable()],
    when: [noObject("o", 1, "destroy")],
    then: async ({ kernel }) => expect(await kernel.objects(T)).toEqual([]),
  },
];

const references: Case[] = [
  {
    title: "a rule refers to an object of the same transaction",
    when: [newTable(), newChain("c"), counter, byName],
    then: async ({ kernel }) => {
      expect(await kernel.objects(T)).toMatchObject([{ use: 1 }]);
      expect((await kernel.rules(T))[0].exprs).toEqual([{ type: "objref", immType: 1, immName: "o" }]);
    },
  },
  {
    title: "a rule refers to a missing object",
    given: [newTable(), newChain("c")],
    when: [byName],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "a rule refers to an object of another type",
    given: [newTable(), newChain("c"), newObject("o", { type: "quota", bytes: 1n })],
    when: [byName],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "an object that a rule refers to is deleted",
    given: [newTable(), newChain("c"), counter, byName],
    when: [noObject("o", ObjectType.counter)],
    faults: [{ op: 0, errno: "EBUSY" }],
  },
  {
    title: "an object is deleted after the rules that refer to it",
    given: [newTable(), newChain("c"), counter, byName],
    when: [{ op: "flush", kind: "rule", ...T, chain: "c" }, noObject("o", ObjectType.counter)],
    then: async ({ kernel }) => expect(await kernel.objects(T)).toEqual([]),
  },
  {
    title: "a map of objects, and a rule that uses it",
    when: [
      newTable(),
      newChain("c"),
      counter,
      counters,
      refer("o", "o"),
      newRule("c", daddr, { type: "objref", setSreg: 1, setName: "m" }),
    ],
    then: async ({ kernel }) => {
      expect(await kernel.objects(T)).toMatchObject([{ use: 2 }]);
      const [set] = await kernel.sets(T);
      expect(set).toMatchObject({ flags: SetFlag.object, objType: ObjectType.counter });
      const { extras, dataLen } = await kernel.elements(T, set);
      expect(dataLen).toBe(0);
      expect(extras?.map(({ object }) => object)).toEqual(["o", "o"]);
      expect((await kernel.rules(T))[0].exprs.at(-1)).toEqual({ type: "objref", setSreg: 1, setName: "m" });
    },
  },
  {
    title: "an element refers to a missing object",
    given: [newTable(), counter, counters],
    when: [refer("o", "x")],
    faults: [{ op: 0, errno: "ENOENT", element: 1 }],
  },
  {
    title: "an element of a map of objects without one",
    realOnly: true,
    given: [newTable(), counter, counters],
    when: [refer(undefined)],
    faults: [{ op: 0, errno: "EINVAL", element: 0 }],
  },
  {
    title: "an element refers to another object than before",
    given: [newTable(), counter, newObject("p", { type: "counter" }), counters, refer("o")],
    when: [refer("p")],
    faults: [{ op: 0, errno: "EEXIST", element: 0 }],
  },
  {
    title: "an element of a set refers to an object",
    realOnly: true,
    given: [newTable(), counter, newSet(addressSet("m"))],
    when: [refer("o")],
    faults: [{ op: 0, errno: "EINVAL", element: 0 }],
  },
  {
    title: "an object that an element refers to is deleted",
    given: [newTable(), counter, counters, refer("o")],
    when: [noObject("o", ObjectType.counter)],
    faults: [{ op: 0, errno: "EBUSY" }],
  },
  {
    title: "an object is deleted after the elements that refer to it",
    given: [newTable(), counter, counters, refer("o")],
    when: [noElements("m", [{ key: ip("192.0.2.0") }]), noObject("o", ObjectType.counter)],
    then: async ({ kernel }) => expect(await kernel.objects(T)).toEqual([]),
  },
  {
    title: "an object is deleted after the map that refers to it",
    given: [newTable(), counter, counters, refer("o")],
    when: [{ op: "flush", kind: "elements", ...T, set: "m" }, noSet("m"), noObject("o", ObjectType.counter)],
    then: async ({ kernel }) => expect(await kernel.objects(T)).toEqual([]),
  },
  {
    title: "a map of objects without their type",
    realOnly: true,
    given: [newTable()],
    when: [newSet(addressSet("m", { flags: SetFlag.object }))],
    faults: [{ op: 0, errno: "EINVAL" }],
  },
  {
    title: "a rule looks an object up in a set without objects",
    realOnly: true,
    given: [newTable(), newChain("c"), newSet(addressSet("m")), newElements("m", [{ key: "192.0.2.1" }])],
    when: [newRule("c", daddr, { type: "objref", setSreg: 1, setName: "m" })],
    faults: [{ op: 0, errno: "EINVAL" }],
  },
];
