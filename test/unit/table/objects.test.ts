/** When named objects are written, in the transactions of an apply. */
import { expect, it } from "vitest";

import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { Table } from "../../../src/nft/engine-exports.js";
import { counter, operations, OWN, rule } from "../../conformance/table/build.js";

const INPUT = { type: "filter", hook: 1, priority: 0 } as const;
const named = (name: string) => ({ action: "object", kind: "counter", name }) as const;
const numberOf = (id: number): Uint8Array => new Uint8Array(Uint32Array.of(id).buffer);
const KEY = Uint8Array.of(192, 0, 2, 1);

function ownTable(kernel: FakeKernel, now: () => number = () => 0): Table {
  return new Table(kernel, { family: OWN.family, name: OWN.table, clock: { now } });
}

it("a new object goes ahead with the new chain whose rules name it", async () => {
  const kernel = new FakeKernel();
  const table = ownTable(kernel);
  const map = table.packedSet({ set: "m", key: ["ipv4_addr"], data: "verdict" });
  table.chain({ chain: "in", base: INPUT, rules: [rule({ action: "vmap", key: ["saddr"], map: "m" })] });
  await table.apply();
  table.object({ kind: "counter", object: "web" });
  table.object({ kind: "counter", object: "unused" });
  table.chain({ chain: "web", rules: [rule(named("web"))] });
  map.put(KEY, numberOf(table.verdictId({ verdict: "goto", chain: "web" })));
  const { transactions } = await table.apply();
  expect(transactions).toBe(2);
  expect(kernel.commits.at(-2)!.map(({ op, kind }) => `${op} ${kind}`)).toEqual([
    "add chain",
    "add object",
    "add object",
    "add rule",
  ]);
  expect(kernel.commits.at(-1)!.map(({ op, kind }) => `${op} ${kind}`)).toEqual(["add elements"]);
});

it("an object goes ahead of many elements that no packet can see yet, and its map does not", async () => {
  const kernel = new FakeKernel();
  const table = new Table(kernel, { family: OWN.family, name: OWN.table, pieceElements: 10 });
  table.object({ kind: "counter", object: "web" });
  const names = table.packedSet({ set: "named", key: ["ipv4_addr"], data: { object: "counter" } });
  const set = table.packedSet({ set: "many", key: ["ipv4_addr"] });
  const web = numberOf(table.verdictId({ kind: "counter", object: "web" }));
  for (let i = 0; i < 30; i++) {
    set.put(Uint8Array.of(10, 0, 0, i));
    names.put(Uint8Array.of(10, 0, 0, i), web);
  }
  const result = await table.apply();
  expect(operations(result)).toBe("table +1 set +2 object +1 element +60");
  expect(result.transactions).toBeGreaterThan(1);
  expect((await ownTable(kernel).apply()).operations.object.delete).toBe(1);
});

it("a refused transaction is repeated with its objects", async () => {
  const kernel = new FakeKernel();
  const table = ownTable(kernel);
  table.chain({ chain: "in", base: INPUT, rules: [rule(named("web"))] });
  table.object({ kind: "counter", object: "web" });
  kernel.failNext({ when: ({ kind }) => kind === "object", errno: "ENOMEM" });
  await expect(table.apply()).rejects.toMatchObject({
    code: "refused",
    faulty: [{ kind: "object", object: "web" }, { kind: "rule" }],
  });
  expect(operations(await table.apply())).toBe("table +1 chain +1 rule +1 object +1");
  table.removeObject({ kind: "counter", object: "web" });
  table.removeChain("in");
  kernel.failNext({ when: ({ kind }) => kind === "object", errno: "ENOMEM" });
  await expect(table.apply()).rejects.toMatchObject({ code: "refused" });
  expect(operations(await table.apply())).toBe("chain -1 rule -1 object -1");
});

it("an element in its grace period does not keep its object", async () => {
  const kernel = new FakeKernel();
  const table = ownTable(kernel);
  for (const object of ["a", "b"]) table.object({ kind: "counter", object });
  const map = table.packedSet({ set: "m", key: ["ipv4_addr"], data: { object: "counter" } });
  for (const [i, object] of ["a", "b"].entries())
    map.put(Uint8Array.of(10, 0, 0, i), numberOf(table.verdictId({ kind: "counter", object })));
  await table.apply();
  for (const i of [0, 1]) map.delete(Uint8Array.of(10, 0, 0, i), true);
  table.removeObject({ kind: "counter", object: "a" });
  expect(operations(await table.apply())).toBe("object -1 element -1");
  expect(kernel.dump()).toContain("counter b");
});

it("an element gets another object, which keeps its number until nothing uses it", async () => {
  const kernel = new FakeKernel();
  const table = ownTable(kernel);
  for (const object of ["a", "b"]) table.object({ kind: "counter", object });
  const map = table.packedSet({ set: "m", key: ["ipv4_addr"], data: { object: "counter" } });
  const idOf = (object: string): number => table.verdictId({ kind: "counter", object });
  map.put(KEY, numberOf(idOf("a")));
  await table.apply();
  map.put(KEY, numberOf(idOf("b")));
  table.removeObject({ kind: "counter", object: "a" });
  expect(operations(await table.apply())).toBe("object -1 element +1 -1");
  expect((await table.apply()).transactions).toBe(0);
  expect(await table.check()).toBe("same");
  // Another program has changed it: the kernel's element is known by the object's name.
  const other = kernel.asOther();
  const elements = { count: 1, keyLen: 4, dataLen: 0, bytes: KEY };
  await other.commit([
    { op: "add", kind: "object", ...OWN, object: "c", objType: 1, data: { type: "counter" } },
    { op: "delete", kind: "elements", ...OWN, set: "m", elements },
    { op: "add", kind: "elements", ...OWN, set: "m", elements: { ...elements, extras: [{ record: 0, object: "c" }] } },
  ]);
  expect(await table.check()).toBe("different");
  const repaired = await table.apply();
  expect(repaired.drift?.changes).toEqual(["counter c: added", "set m: elements 1 changed"]);
  expect(operations(repaired)).toBe("object -1 element +1 -1");
});

it("rules of a chain whose other rules name a replaced object keep their counters", async () => {
  const kernel = new FakeKernel();
  const table = ownTable(kernel);
  table.object({ kind: "limit", object: "few", rate: 1, per: "second" });
  const limited = { action: "object", kind: "limit", name: "few" } as const;
  table.chain({ chain: "in", base: INPUT, rules: [rule(counter), rule(limited), rule(counter)] });
  await table.apply();
  const before = (await kernel.rules(OWN)).map(({ handle }) => handle);
  table.object({ kind: "limit", object: "few", rate: 2, per: "second" });
  expect(operations(await table.apply())).toBe("rule +1 -1 object +1 -1");
  const after = (await kernel.rules(OWN)).map(({ handle }) => handle);
  expect([after[0], after[2]]).toEqual([before[0], before[2]]);
  expect(after[1]).not.toBe(before[1]);
});
