/** The failures that tests can request from FakeKernel, and its records for tests. */
import { expect, test } from "vitest";
import { FakeInterfaces, interfaceAddress } from "../fakes/fake-interfaces.ts";
import { FakeKernel } from "../fakes/fake-kernel.ts";
import type { ChangeBatch } from "../../src/nft/kernel/kernel.js";
import { snapshot } from "../support/snapshot.ts";
import { ownMs } from "../bench/loop-watch.ts";
import { addressSet, newChain, newElements, newSet, newTable, noTable, T } from "../support/operations.ts";

const handlers = (heard: unknown[]) => ({
  onBatch: (batch: ChangeBatch) => void heard.push(batch.generation),
  onLost: () => void heard.push("lost"),
  onError: (error: Error) => void heard.push(error.message),
});

test("failNext refuses the chosen operation once", async () => {
  const kernel = new FakeKernel();
  kernel.failNext({ when: (op, index) => op.kind === "chain" && index === 2, errno: "ENOMEM", text: "no memory" });
  await kernel.commit([newTable(), newChain("a")]);
  const before = await snapshot(kernel);
  const ops = [newTable(), newChain("b"), newChain("c")];
  await expect(kernel.commit(ops)).rejects.toMatchObject({
    code: "refused",
    errno: "ENOMEM",
    faults: [{ op: 2, errno: "ENOMEM", text: "no memory" }],
  });
  expect(await snapshot(kernel)).toEqual(before);
  await kernel.commit(ops);
  expect((await kernel.chains(T)).map(({ chain }) => chain)).toEqual(["a", "b", "c"]);
});

test("a commit whose reply is lost takes effect and has an unknown outcome", async () => {
  const kernel = new FakeKernel();
  kernel.loseReply();
  await expect(kernel.commit([newTable()])).rejects.toMatchObject({ code: "unknown-outcome", errno: "ENOBUFS" });
  expect(await kernel.tables()).toHaveLength(1);
  await kernel.commit([newChain("a")]);
});

test("neither a refused batch nor a dry run uses up a lost reply", async () => {
  const kernel = new FakeKernel();
  kernel.loseReply();
  await expect(kernel.commit([newChain("a")])).rejects.toMatchObject({ code: "refused" });
  await kernel.commit([newTable()], { dryRun: true });
  await expect(kernel.commit([newTable()])).rejects.toMatchObject({ code: "unknown-outcome" });
});

test("the requested number of dumps is interrupted", async () => {
  const kernel = new FakeKernel();
  kernel.interruptDumps(2);
  await expect(kernel.tables()).rejects.toMatchObject({ code: "interrupted" });
  await expect(kernel.rules(T)).rejects.toMatchObject({ code: "interrupted" });
  expect(await kernel.tables()).toEqual([]);
});

test("monitors report lost events and a broken stream", async () => {
  const kernel = new FakeKernel();
  const heard: unknown[] = [];
  await kernel.monitor(handlers(heard));
  kernel.loseEvents();
  await kernel.commit([newTable()]);
  kernel.breakMonitors(new Error("gone"));
  await kernel.commit([newChain("a")]);
  expect(heard).toEqual(["lost", 2, "gone"]);
});

test("latency delays the chosen actions", async () => {
  const kernel = new FakeKernel();
  const seen: string[] = [];
  let release = (): void => undefined;
  kernel.setLatency((action) => {
    seen.push(action);
    return action === "commit" ? new Promise((resolve) => (release = resolve)) : undefined;
  });
  const commit = kernel.commit([newTable()]);
  expect(await kernel.tables()).toEqual([]);
  release();
  await commit;
  expect(await kernel.tables()).toHaveLength(1);
  expect(seen.toSorted()).toEqual(["commit", "dump tables", "dump tables"]);
});

test("each connection records only its own successful commits", async () => {
  const kernel = new FakeKernel();
  const other = kernel.asOther(4711);
  expect(other.portId).toBe(4711);
  await kernel.commit([newTable()], { dryRun: true });
  await kernel.commit([newTable()]);
  await other.commit([newChain("a")]);
  await expect(kernel.commit([newChain("a", undefined, "create")])).rejects.toMatchObject({ code: "refused" });
  expect(kernel.commits).toEqual([[newTable()]]);
  expect(other.commits).toEqual([[newChain("a")]]);
});

test("the given addresses are returned", async () => {
  const loopback = interfaceAddress("127.0.0.1", "lo", 8);
  const interfaces = new FakeInterfaces([loopback]);
  expect(await interfaces.addresses()).toEqual([loopback]);
  interfaces.set([]);
  expect(await interfaces.asOther().addresses()).toEqual([]);
});

test("a large batch is reverted as fast as it is applied", async () => {
  const kernel = new FakeKernel();
  await kernel.commit([newTable(), newSet(addressSet("s"))]);
  const many = Array.from({ length: 100_000 }, (_, i) => ({
    key: Uint8Array.of(10, i >> 16, (i >> 8) & 255, i & 255),
  }));
  const elements = newElements("s", many);
  const started = ownMs();
  await expect(kernel.commit([elements, newChain("a"), noTable("delete"), newChain("b")])).rejects.toMatchObject({
    faults: [{ op: 3, errno: "ENOENT" }],
  });
  const reverted = ownMs();
  expect((await kernel.elements(T, addressSet("s"))).count).toBe(0);
  const again = ownMs();
  await kernel.commit([elements]);
  const applied = ownMs();
  expect((await kernel.elements(T, addressSet("s"))).count).toBe(100_000);
  // Generous: it takes twice the CPU time, but an undo that scans for each element would take thousands of times.
  expect((reverted - started) / (applied - again)).toBeLessThan(20);
});

test("an address watch reports lost events and its own failure", async () => {
  const interfaces = new FakeInterfaces();
  const heard: unknown[] = [];
  await interfaces.watchAddresses({
    onChange: () => void heard.push("change"),
    onLost: () => void heard.push("lost"),
    onError: (error) => void heard.push(error.message),
  });
  interfaces.loseEvents();
  interfaces.set([]);
  await Promise.resolve();
  interfaces.breakMonitors(new Error("gone"));
  interfaces.set([]);
  await Promise.resolve();
  expect(heard).toEqual(["lost", "change", "gone"]);
});
