import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { SetFlag } from "../../../src/nft/kernel/constants.js";
import type { ChangeBatch, ChangeEvent, Kernel, Monitor, MonitorOptions } from "../../../src/nft/kernel/kernel.js";
import {
  addressSet,
  daddr,
  input,
  jump,
  lookup,
  newChain,
  newElements,
  newRule,
  newSet,
  newTable,
  noChain,
  noElements,
  noTable,
  T,
  verdict,
} from "../../support/operations.ts";
import { faultsOf, type Current } from "../cases.js";
import { eventually } from "../../lab/eventually.js";

/** Listens, and waits for batches. */
class Ear {
  readonly batches: ChangeBatch[] = [];
  readonly errors: Error[] = [];
  lost = 0;
  monitor: Monitor | undefined;

  static async open(kernel: Kernel, options?: MonitorOptions): Promise<Ear> {
    const ear = new Ear();
    const handlers = {
      onBatch: (batch: ChangeBatch) => void ear.batches.push(batch),
      onLost: () => void ear.lost++,
      onError: (error: Error) => void ear.errors.push(error),
    };
    ear.monitor = await kernel.monitor(handlers, options);
    return ear;
  }

  /** Waits until that generation has been reported. */
  hear(generation: number): Promise<ChangeBatch> {
    return eventually(() => {
      const found = this.batches.find((batch) => batch.generation === generation);
      if (found !== undefined) return found;
      const heard = this.batches.map((batch) => batch.generation).join(", ");
      throw new Error(`no batch of generation ${generation} among ${heard}`);
    });
  }
}

const brief = ({ action, kind, name, count }: ChangeEvent): string =>
  [action, kind, name, count].filter((word) => word !== undefined).join(" ");

async function heard(
  current: Current,
  committer: Kernel,
  ear: Ear,
  ops: Parameters<Kernel["commit"]>[0],
): Promise<string[]> {
  await committer.commit(ops);
  const batch = await ear.hear((await current().kernel.generation()).id);
  expect(batch.portId).toBe(committer.portId);
  return batch.events.map(brief);
}

export function monitors(current: Current): void {
  test("another connection's changes are reported in their order", async () => {
    const { kernel, other } = current();
    const them = await other();
    const ear = await Ear.open(kernel);
    const made = await heard(current, them, ear, [
      newTable(),
      newChain("a"),
      newChain("in", input),
      newSet(addressSet("s")),
      newElements("s", [{ key: "1.1.1.1" }, { key: "2.2.2.2" }, { key: "3.3.3.3" }]),
      newRule("in", jump("a")),
    ]);
    expect(made).toEqual(["new table", "new chain a", "new chain in", "new set s", "new elements s 3", "new rule in"]);
    const removed = await heard(current, them, ear, [
      noElements("s", [{ key: "1.1.1.1" }]),
      { op: "flush", kind: "rule", ...T, chain: "in" },
      noChain("a"),
    ]);
    expect(removed).toEqual(["delete elements s 1", "delete rule in", "delete chain a"]);
    await ear.monitor?.close();
    expect(ear).toMatchObject({ lost: 0, errors: [] });
  });

  test("an event has the object's handle, and a batch its process", async () => {
    const { kernel, other } = current();
    const them = await other();
    const ear = await Ear.open(kernel);
    await them.commit([newTable(), newChain("a"), newRule("a", verdict("drop"))]);
    const batch = await ear.hear((await kernel.generation()).id);
    const [table] = await kernel.tables();
    const [chain] = await kernel.chains(T);
    const [rule] = await kernel.rules(T);
    expect(batch.events.map(({ handle }) => handle)).toEqual([table.handle, chain.handle, rule.handle]);
    expect(batch.events[2]).toMatchObject({ ...T, name: "a" });
    expect(batch.process?.pid).toBeGreaterThan(0);
    expect(batch.process?.name.length).toBeGreaterThan(0);
    await ear.monitor?.close();
  });

  test("the deletion of a table is reported with each object in it", async () => {
    const { kernel, other } = current();
    const them = await other();
    await them.commit([
      newTable(),
      newChain("a"),
      newRule("a", verdict("drop")),
      newSet(addressSet("s")),
      newElements("s", [{ key: "1.1.1.1" }]),
    ]);
    const ear = await Ear.open(kernel);
    const events = await heard(current, them, ear, [noTable()]);
    expect(events.toSorted()).toEqual(["delete chain a", "delete rule a", "delete set s", "delete table"]);
    expect(events.at(-1)).toBe("delete table");
    await ear.monitor?.close();
  });

  test("an anonymous set is created and deleted with its rule", async () => {
    const { kernel, other } = current();
    const them = await other();
    await them.commit([newTable(), newChain("a")]);
    const ear = await Ear.open(kernel);
    const info = addressSet("__set%d", { flags: SetFlag.anonymous | SetFlag.constant });
    const fill = { ...newElements("__set%d", [{ key: "1.1.1.1" }]), setId: 1 } as ReturnType<typeof newElements>;
    const made = await heard(current, them, ear, [
      newSet(info, "add", 1),
      fill,
      newRule("a", daddr, lookup("__set%d", { setId: 1 })),
    ]);
    expect(made).toEqual(["new set __set0", "new elements __set0 1", "new rule a"]);
    const gone = await heard(current, them, ear, [{ op: "flush", kind: "rule", ...T }]);
    expect(gone).toEqual(["delete rule a", "delete set __set0"]);
    await ear.monitor?.close();
  });

  test("our own changes are skipped, but their batch is reported", async () => {
    const { kernel } = current();
    const ear = await Ear.open(kernel);
    expect(await heard(current, kernel, ear, [newTable()])).toEqual([]);
    await ear.monitor?.close();
  });

  test("our own changes are reported on request", async () => {
    const { kernel } = current();
    const ear = await Ear.open(kernel, { skipOwn: false });
    expect(await heard(current, kernel, ear, [newTable()])).toEqual(["new table"]);
    await ear.monitor?.close();
  });

  test("only changes of the chosen tables are reported", async () => {
    const { kernel, other } = current();
    const them = await other();
    const ear = await Ear.open(kernel, { tables: [T] });
    const ops = [
      { op: "add", kind: "table", family: "ip6", table: "t" } as const,
      { op: "add", kind: "table", family: "ip", table: "u" } as const,
    ];
    expect(await heard(current, them, ear, ops)).toEqual([]);
    expect(await heard(current, them, ear, [newTable()])).toEqual(["new table"]);
    await ear.monitor?.close();
  });

  test("dry runs, refused batches and batches without a change are not reported", async () => {
    const { kernel, other } = current();
    const them = await other();
    await them.commit([newTable()]);
    const { id } = await kernel.generation();
    const ear = await Ear.open(kernel);
    await them.commit([newChain("a")], { dryRun: true });
    await faultsOf(them, [newChain("a"), newRule("x")]);
    await them.commit([newTable()]);
    await them.commit([newChain("a")]);
    await ear.hear(id + 1);
    expect(ear.batches.map(({ events }) => events.map(brief))).toEqual([["new chain a"]]);
    await ear.monitor?.close();
  });

  test("nothing is reported after close", async () => {
    const { kernel, other } = current();
    const them = await other();
    const ear = await Ear.open(kernel);
    await ear.monitor?.close();
    await them.commit([newTable()]);
    await sleep(50);
    expect(ear.batches).toEqual([]);
  });
}
