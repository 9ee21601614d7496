import { expect, test } from "vitest";
import { KernelError } from "../../../src/nft/kernel/errors.js";
import type { Op } from "../../../src/nft/kernel/kernel.js";
import { snapshot } from "../../support/snapshot.ts";
import {
  addressSet,
  input,
  jump,
  newChain,
  newElements,
  newRule,
  newSet,
  newTable,
  noChain,
  noElements,
  noSet,
  T,
  verdict,
} from "../../support/operations.ts";
import { faultsOf, type Current } from "../cases.js";

const room = [
  newTable(),
  newChain("a"),
  newChain("in", input),
  newSet(addressSet("s")),
  newElements("s", [{ key: "1.1.1.1" }]),
  newRule("a", verdict("drop")),
];

export function batches(current: Current): void {
  test("a batch is applied as a whole or not at all, and every fault is named", async () => {
    const { kernel } = current();
    await kernel.commit(room);
    const before = await snapshot(kernel);
    const { id } = await kernel.generation();
    const ops = [
      newChain("b"),
      newChain("b", undefined, "create"),
      newRule("in", jump("b")),
      newRule("in", jump("x")),
      noElements("s", [{ key: "1.1.1.1" }]),
      newElements("s", [{ key: "2.2.2.2" }]),
      noSet("s"),
      noChain("a"),
      noChain("a"),
    ];
    expect(await faultsOf(kernel, ops)).toEqual([
      { op: 1, errno: "EEXIST" },
      { op: 3, errno: "ENOENT" },
      { op: 8, errno: "ENOENT" },
    ]);
    expect(await snapshot(kernel)).toEqual(before);
    expect((await kernel.generation()).id).toBe(id);
  });

  test("an error has the errno, the action and the faults", async () => {
    const { kernel } = current();
    const error: unknown = await kernel.commit([newTable(), noChain("a")]).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(KernelError);
    expect(error).toMatchObject({
      code: "refused",
      errno: "ENOENT",
      faults: [{ op: 1, errno: "ENOENT" }],
      details: { action: "commit" },
    });
  });

  test("each commit creates one generation", async () => {
    const { kernel } = current();
    const { id } = await kernel.generation();
    await kernel.commit(room);
    expect((await kernel.generation()).id).toBe(id + 1);
    await kernel.commit([newChain("b")]);
    expect(await kernel.generation()).toMatchObject({ id: id + 2 });
  });

  test("a batch that changes nothing creates no generation", async () => {
    const { kernel, facts } = current();
    await kernel.commit(room);
    const { id } = await kernel.generation();
    await kernel.commit([newTable(), newElements("s", [{ key: "1.1.1.1" }])]);
    if (facts.destroy) await kernel.commit([noChain("x", "destroy"), noElements("s", [{ key: "9.9.9.9" }], "destroy")]);
    expect((await kernel.generation()).id).toBe(id);
  });

  test("a batch without operations creates no generation", async () => {
    const { kernel } = current();
    const { id } = await kernel.generation();
    expect(await kernel.commit([])).toMatchObject({ kernelNs: expect.any(Number) as number });
    expect((await kernel.generation()).id).toBe(id);
  });

  test("a commit reports its messages, bytes and kernel time", async () => {
    const { kernel } = current();
    const result = await kernel.commit(room);
    expect(result.messages).toBeGreaterThanOrEqual(room.length);
    expect(result.bytes).toBeGreaterThan(200);
    expect(result.kernelNs).toBeGreaterThan(0);
  });

  test("a commit passes for the expected generation only", async () => {
    const { kernel } = current();
    await kernel.commit(room);
    const { id } = await kernel.generation();
    await expect(kernel.commit([newChain("b")], { expectGeneration: id - 1 })).rejects.toMatchObject({ code: "stale" });
    await expect(kernel.commit([newChain("b")], { expectGeneration: id + 1, dryRun: true })).rejects.toMatchObject({
      code: "stale",
    });
    expect((await kernel.generation()).id).toBe(id);
    await kernel.commit([newChain("b")], { expectGeneration: id });
    expect((await kernel.chains(T)).map(({ chain }) => chain)).toContain("b");
  });

  test("another connection's commit makes ours stale", async () => {
    const { kernel, other } = current();
    await kernel.commit(room);
    const { id } = await kernel.generation();
    await (await other()).commit([newChain("b")]);
    await expect(kernel.commit([newChain("c")], { expectGeneration: id })).rejects.toMatchObject({ code: "stale" });
  });

  test("commits run in call order", async () => {
    const { kernel } = current();
    const chains = Array.from({ length: 20 }, (_, i) => `c${i}`);
    await Promise.all([kernel.commit([newTable()]), ...chains.map((chain) => kernel.commit([newChain(chain)]))]);
    expect((await kernel.chains(T)).map(({ chain }) => chain)).toEqual(chains);
  });

  test("a refused commit does not delay the next one", async () => {
    const { kernel } = current();
    const results = await Promise.allSettled([
      kernel.commit([newChain("a")]),
      kernel.commit([newTable(), newChain("a")]),
    ]);
    expect(results.map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
  });

  test("handles increase and are not reused", async () => {
    const { kernel } = current();
    await kernel.commit(room);
    const [first] = await kernel.rules(T);
    await kernel.commit([{ op: "flush", kind: "rule", ...T, chain: "a" }, newRule("a", verdict("accept"))]);
    const [second] = await kernel.rules(T);
    expect(second.handle).toBeGreaterThan(first.handle);
  });

  // The addon rejects these before it sends anything; the fake encodes nothing.
  const addon = current.isReal ? INVALID : [];
  test.each(addon)("cannot be encoded: %s", async (_title, op) => {
    const { kernel } = current();
    const { id } = await kernel.generation();
    await expect(kernel.commit([newTable(), op])).rejects.toMatchObject({ code: "invalid" });
    expect((await kernel.generation()).id).toBe(id);
    expect(await kernel.tables()).toEqual([]);
  });

  test("every call fails after close", async () => {
    const { other } = current();
    const kernel = await other();
    await kernel.close();
    await kernel.close();
    await expect(kernel.commit([newTable()])).rejects.toMatchObject({ code: "closed" });
    await expect(kernel.tables()).rejects.toMatchObject({ code: "closed" });
  });

  test("missing objects are read as absent", async () => {
    const { kernel } = current();
    expect(await kernel.tables()).toEqual([]);
    expect(await kernel.chains(T)).toEqual([]);
    expect(await kernel.rules(T)).toEqual([]);
    expect(await kernel.sets(T)).toEqual([]);
    await kernel.commit(room);
    expect(await kernel.rules(T, "x")).toEqual([]);
  });
}

const INVALID: [string, Op][] = [
  ["a name that is too long", newChain("n".repeat(256))],
  ["an empty name", newChain("")],
  ["a name with NUL", newChain("a\0b")],
  [
    "bytes that are not whole records",
    {
      op: "add",
      kind: "elements",
      ...T,
      set: "s",
      elements: { count: 2, keyLen: 4, dataLen: 0, bytes: new Uint8Array(7) },
    },
  ],
  [
    "a key without bytes",
    {
      op: "add",
      kind: "elements",
      ...T,
      set: "s",
      elements: { count: 1, keyLen: 0, dataLen: 0, bytes: new Uint8Array() },
    },
  ],
  [
    "a verdict that is not listed",
    {
      op: "add",
      kind: "elements",
      ...T,
      set: "s",
      elements: {
        count: 1,
        keyLen: 4,
        dataLen: 4,
        verdicts: [{ verdict: "drop" }],
        bytes: Uint8Array.of(1, 1, 1, 1, 1, 0, 0, 0),
      },
    },
  ],
];
