import { expect, test } from "vitest";
import { SetFlag } from "../../../src/nft/kernel/constants.js";
import type { Kernel, Op, SetInfo } from "../../../src/nft/kernel/kernel.js";
import {
  addressMap,
  addressSet,
  daddr,
  goto,
  ip,
  jump,
  lookup,
  newChain,
  newElements,
  newRule,
  newSet,
  newTable,
  noElements,
  T,
  unpack,
  verdictMap,
  type Element,
} from "../../support/operations.ts";
import { runCases, type Case, type Current } from "../cases.js";

const table = newTable();
const S = addressSet("s");
const M = addressMap("m");
const V = verdictMap("v");
const inS: readonly Op[] = [table, newSet(S), newElements("s", [{ key: "1.1.1.1" }, { key: "2.2.2.2" }])];
const inM: readonly Op[] = [table, newSet(M), newElements("m", [{ key: "1.1.1.1", data: "9.9.9.9" }])];
const inV: readonly Op[] = [
  table,
  newChain("a"),
  newChain("b"),
  newSet(V),
  newElements("v", [{ key: "1.1.1.1", data: goto("a") }]),
];
const longKey = newElements("s", [{ key: new Uint8Array(8) }]);
const flush = (set: string): Op => ({ op: "flush", kind: "elements", ...T, set });

async function rows(kernel: Kernel, set: SetInfo): Promise<Record<string, unknown>[]> {
  return unpack(await kernel.elements(T, set));
}
const keys = async (kernel: Kernel, set: SetInfo): Promise<unknown[]> =>
  (await rows(kernel, set)).map(({ key }) => key);

export function elements(current: Current): void {
  runCases(current, [...adding, ...replacing, ...deleting, ...limits]);

  test("many elements in one operation, one of them at fault", async () => {
    const { kernel, facts } = current();
    const many: Element[] = Array.from({ length: 5000 }, (_, i) => ({
      key: ip(`10.0.${i >> 8}.${i & 255}`),
      data: "1.2.3.4",
    }));
    await kernel.commit([table, newSet(addressMap("m", { size: 8192 })), newElements("m", many)]);
    const found = await kernel.elements(T, M);
    expect(found.count).toBe(5000);
    expect(new Set(unpack(found).map(({ key }) => key)).size).toBe(5000);
    const again = many.map((element, i) => (i === 4321 ? { ...element, data: "4.3.2.1" } : element));
    await expect(kernel.commit([newElements("m", again)])).rejects.toMatchObject({
      code: "refused",
      errno: "EEXIST",
      faults: [{ op: 0, errno: "EEXIST", ...(facts.namesElements && { element: 4321 }) }],
    });
    await kernel.commit([noElements("m", many)]);
    expect((await kernel.elements(T, M)).count).toBe(0);
  });

  test("userdata of elements is kept, in any order", async () => {
    const { kernel } = current();
    const userdata = (text: string): Uint8Array => Uint8Array.from([0, text.length, ...Buffer.from(text)]);
    const keys = ["1.1.1.1", "2.2.2.2", "3.3.3.3"];
    const added = newElements(
      "s",
      keys.map((key) => ({ key })),
    );
    if (added.kind !== "elements" || added.op === "flush") throw new Error("no elements");
    const extras = [
      { record: 2, userdata: userdata("third\0") },
      { record: 0, userdata: userdata("f\0") },
    ];
    await kernel.commit([table, newSet(S), { ...added, elements: { ...added.elements, extras } }]);
    const batch = await kernel.elements(T, S);
    const texts = batch.extras?.map(({ record, userdata: data }) => [
      unpack(batch)[record].key,
      Buffer.from(data!.subarray(2)).toString(),
    ]);
    expect(texts?.toSorted()).toEqual([
      ["01010101", "f\0"],
      ["03030303", "third\0"],
    ]);
  });

  test("elements of a missing set", async () => {
    const { kernel } = current();
    await kernel.commit([table]);
    await expect(kernel.elements(T, S)).rejects.toMatchObject({ code: "not-found", errno: "ENOENT" });
  });
}

const adding: Case[] = [
  {
    title: "added to a set",
    given: inS.slice(0, 2),
    when: inS.slice(2),
    then: async ({ kernel }) => expect(await rows(kernel, S)).toEqual([{ key: "01010101" }, { key: "02020202" }]),
  },
  {
    title: "added to a map",
    given: inM.slice(0, 2),
    when: inM.slice(2),
    then: async ({ kernel }) => expect(await rows(kernel, M)).toEqual([{ key: "01010101", data: "09090909" }]),
  },
  {
    title: "added to a verdict map",
    given: inV.slice(0, 4),
    when: [
      newElements("v", [
        { key: "1.1.1.1", data: goto("a") },
        { key: "1.1.1.2", data: { verdict: "jump", chain: "b" } },
        { key: "1.1.1.3", data: { verdict: "drop" } },
        { key: "1.1.1.4", data: { verdict: "accept" } },
        { key: "1.1.1.5", data: { verdict: "return" } },
        { key: "1.1.1.6", data: { verdict: "continue" } },
        { key: "1.1.1.7", data: goto("a") },
      ]),
    ],
    then: async ({ kernel }) => {
      expect((await rows(kernel, V)).map(({ data }) => data)).toEqual([
        goto("a"),
        { verdict: "jump", chain: "b" },
        { verdict: "drop" },
        { verdict: "accept" },
        { verdict: "return" },
        { verdict: "continue" },
        goto("a"),
      ]);
    },
  },
  {
    title: "a catch-all",
    given: inM,
    when: [newElements("m", [{ key: "0.0.0.0", data: "8.8.8.8", flags: 2 }])],
    then: async ({ kernel }) => expect(await rows(kernel, M)).toContainEqual({ key: "*", data: "08080808" }),
    before: { fact: "catchAll", faults: [{ op: 0, errno: "EINVAL" }] },
  },
  {
    title: "added to a missing set",
    given: [table],
    when: [newElements("s", [{ key: "1.1.1.1" }])],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "added in a missing table",
    when: [newElements("s", [{ key: "1.1.1.1" }])],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "a key that is too long",
    realOnly: true,
    given: inS,
    when: [longKey],
    faults: [{ op: 0, errno: "EINVAL", element: 0 }],
  },
  {
    title: "data for a set",
    realOnly: true,
    given: inS,
    when: [newElements("s", [{ key: "3.3.3.3", data: "1.1.1.1" }])],
    faults: [{ op: 0, errno: "EINVAL", element: 0 }],
  },
  {
    title: "no data for a map",
    realOnly: true,
    given: inM,
    when: [newElements("m", [{ key: "3.3.3.3" }])],
    faults: [{ op: 0, errno: "EINVAL", element: 0 }],
  },
  {
    title: "a verdict for a data map",
    realOnly: true,
    given: inM,
    when: [newElements("m", [{ key: "3.3.3.3", data: { verdict: "drop" } }])],
    faults: [{ op: 0, errno: "EINVAL", element: 0 }],
  },
  {
    title: "data for a verdict map",
    realOnly: true,
    given: inV,
    when: [newElements("v", [{ key: "3.3.3.3", data: "1.1.1.1" }])],
    faults: [{ op: 0, errno: "EINVAL", element: 0 }],
  },
  {
    title: "a timeout in a set without timeouts",
    realOnly: true,
    given: inS,
    when: [newElements("s", [{ key: "3.3.3.3", timeout: 1000 }])],
    faults: [{ op: 0, errno: "EINVAL", element: 0 }],
  },
  {
    title: "a verdict that refers to a missing chain",
    given: inV,
    when: [
      newElements("v", [
        { key: "3.3.3.3", data: { verdict: "drop" } },
        { key: "3.3.3.4", data: goto("x") },
      ]),
    ],
    faults: [{ op: 0, errno: "ENOENT", element: 1 }],
  },
  {
    title: "a verdict that refers to a base chain",
    given: [...inV, newChain("in", { type: "filter", hook: 1, priority: 0 })],
    when: [newElements("v", [{ key: "3.3.3.3", data: goto("in") }])],
    faults: [{ op: 0, errno: "EOPNOTSUPP", element: 0 }],
  },
];

const replacing: Case[] = [
  { title: "add of the same element", given: inM, when: [newElements("m", [{ key: "1.1.1.1", data: "9.9.9.9" }])] },
  {
    title: "create of the same element",
    given: inM,
    when: [newElements("m", [{ key: "1.1.1.1", data: "9.9.9.9" }], "create")],
    faults: [{ op: 0, errno: "EEXIST", element: 0 }],
  },
  {
    title: "add with other data",
    given: inM,
    when: [newElements("m", [{ key: "1.1.1.1", data: "8.8.8.8" }])],
    faults: [{ op: 0, errno: "EEXIST", element: 0 }],
  },
  { title: "add with the same verdict", given: inV, when: [newElements("v", [{ key: "1.1.1.1", data: goto("a") }])] },
  {
    title: "add with another verdict",
    given: inV,
    when: [newElements("v", [{ key: "1.1.1.1", data: goto("b") }])],
    faults: [{ op: 0, errno: "EEXIST", element: 0 }],
  },
  {
    title: "add with another kind of verdict",
    given: inV,
    when: [newElements("v", [{ key: "1.1.1.1", data: { verdict: "jump", chain: "a" } }])],
    faults: [{ op: 0, errno: "EEXIST", element: 0 }],
  },
  {
    title: "the same key twice in one operation",
    given: inS,
    when: [newElements("s", [{ key: "5.5.5.5" }, { key: "5.5.5.5" }])],
  },
  {
    title: "delete and add replace an element",
    given: inM,
    when: [noElements("m", [{ key: "1.1.1.1" }]), newElements("m", [{ key: "1.1.1.1", data: "7.7.7.7" }])],
    then: async ({ kernel }) => expect(await rows(kernel, M)).toEqual([{ key: "01010101", data: "07070707" }]),
  },
  {
    title: "a replaced verdict releases its chain",
    given: inV,
    when: [
      noElements("v", [{ key: "1.1.1.1" }]),
      newElements("v", [{ key: "1.1.1.1", data: goto("b") }]),
      { op: "delete", kind: "chain", ...T, chain: "a" },
    ],
    then: async ({ kernel }) =>
      expect((await kernel.chains(T)).map(({ chain, use }) => [chain, use])).toEqual([["b", 1]]),
  },
  {
    title: "flush and add in one batch",
    given: inS,
    when: [flush("s"), newElements("s", [{ key: "2.2.2.2" }, { key: "3.3.3.3" }], "create")],
    then: async ({ kernel }) => expect(await keys(kernel, S)).toEqual(["02020202", "03030303"]),
  },
];

const deleting: Case[] = [
  {
    title: "delete",
    given: inS,
    when: [noElements("s", [{ key: "1.1.1.1" }])],
    then: async ({ kernel }) => expect(await keys(kernel, S)).toEqual(["02020202"]),
  },
  {
    title: "delete with data",
    given: inM,
    when: [noElements("m", [{ key: "1.1.1.1", data: "9.9.9.9" }])],
    then: async ({ kernel }) => expect(await keys(kernel, M)).toEqual([]),
  },
  {
    title: "delete of a missing element",
    given: inS,
    when: [noElements("s", [{ key: "1.1.1.1" }, { key: "7.7.7.7" }])],
    faults: [{ op: 0, errno: "ENOENT", element: 1 }],
  },
  {
    title: "delete twice in one batch",
    given: inS,
    when: [noElements("s", [{ key: "1.1.1.1" }]), noElements("s", [{ key: "1.1.1.1" }])],
    faults: [{ op: 1, errno: "ENOENT", element: 0 }],
  },
  {
    title: "destroy of several elements, some of them missing",
    given: inS,
    when: [noElements("s", [{ key: "7.7.7.7" }, { key: "2.2.2.2" }], "destroy")],
    then: async ({ kernel }) => expect(await keys(kernel, S)).toEqual(["01010101"]),
  },
  {
    title: "delete from a missing set",
    given: [table],
    when: [noElements("s", [{ key: "1.1.1.1" }])],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "flush",
    given: inV,
    when: [flush("v")],
    then: async ({ kernel }) => expect(await keys(kernel, V)).toEqual([]),
  },
  { title: "flush of a missing set", given: [table], when: [flush("s")], faults: [{ op: 0, errno: "ENOENT" }] },
  { title: "flush of an empty set", given: inS.slice(0, 2), when: [flush("s")] },
];

const small = addressSet("s", { size: 2 });
const constant = addressSet("k", { flags: SetFlag.constant });

const limits: Case[] = [
  {
    title: "a full set",
    given: [table, newSet(small)],
    when: [newElements("s", [{ key: "1.1.1.1" }, { key: "2.2.2.2" }, { key: "3.3.3.3" }])],
    faults: [{ op: 0, errno: "ENFILE", element: 2 }],
  },
  {
    title: "a full set accepts an element that it has",
    given: [table, newSet(small), newElements("s", [{ key: "1.1.1.1" }, { key: "2.2.2.2" }])],
    when: [newElements("s", [{ key: "2.2.2.2" }])],
  },
  {
    title: "a full map refuses other data for an element that it has",
    given: [table, newSet(addressMap("m", { size: 1 })), newElements("m", [{ key: "1.1.1.1", data: "1.1.1.1" }])],
    when: [newElements("m", [{ key: "1.1.1.1", data: "2.2.2.2" }])],
    faults: [{ op: 0, errno: "EEXIST", element: 0 }],
  },
  {
    title: "the elements of a full set can be replaced by flush and add",
    given: [table, newSet(small), newElements("s", [{ key: "1.1.1.1" }, { key: "2.2.2.2" }])],
    when: [flush("s"), newElements("s", [{ key: "3.3.3.3" }, { key: "4.4.4.4" }])],
    then: async ({ kernel }) => expect(await keys(kernel, S)).toEqual(["03030303", "04040404"]),
  },
  {
    title: "one element of a full set can be replaced",
    given: [table, newSet(small), newElements("s", [{ key: "1.1.1.1" }, { key: "2.2.2.2" }])],
    when: [noElements("s", [{ key: "1.1.1.1" }]), newElements("s", [{ key: "3.3.3.3" }])],
    then: async ({ kernel }) => expect(await keys(kernel, S)).toEqual(["02020202", "03030303"]),
  },
  {
    title: "a constant set before it is in use",
    given: [table, newSet(constant)],
    when: [newElements("k", [{ key: "1.1.1.1" }])],
    then: async ({ kernel }) => expect(await keys(kernel, constant)).toEqual(["01010101"]),
  },
  {
    title: "a constant set in use",
    given: [
      table,
      newChain("c"),
      newSet(constant),
      newElements("k", [{ key: "1.1.1.1" }]),
      newRule("c", daddr, lookup("k")),
    ],
    when: [newElements("k", [{ key: "2.2.2.2" }]), noElements("k", [{ key: "1.1.1.1" }]), newRule("c", jump("x"))],
    faults: [
      { op: 0, errno: "EBUSY" },
      { op: 1, errno: "EBUSY" },
      { op: 2, errno: "ENOENT" },
    ],
  },
];
