/** Changes of other processes to our table, and our rules in theirs. */
import { beforeEach, expect, it } from "vitest";
import type { Kernel, Op } from "../../../src/netlink/kernel.js";
import { TableWatch } from "../../../src/table/sync/watch.js";
import { commentOf } from "../../../src/table/rules/names-and-comments.js";
import type { KernelWorld } from "../../support/kernel-world.ts";
import { snapshot } from "../../support/snapshot.ts";
import { pack } from "../../support/operations.ts";
import {
  accept,
  type counter,
  endpoint,
  indexed,
  named,
  operations,
  OWN,
  rule,
  serviceTable,
  TestClock,
} from "./build.js";

export function drift(world: () => KernelWorld): void {
  it("is found and repaired after invalidate, and by a refused transaction", async () => {
    const { kernel } = world();
    const other = await world().other();
    const { table, service } = serviceTable(kernel);
    service(1, 2);
    service(2, 2);
    await table.apply();
    const wanted = await snapshot(kernel);
    const meddle = async (...ops: Op[]): Promise<void> => void (await other.commit(ops));
    await meddle(
      {
        op: "delete",
        kind: "elements",
        ...OWN,
        set: "endpoints",
        elements: { count: 1, keyLen: 16, dataLen: 0, bytes: indexed(1, 0) },
      },
      { op: "flush", kind: "rule", ...OWN, chain: "services" },
      { op: "add", kind: "chain", ...OWN, chain: "foreign" },
      { op: "add", kind: "rule", ...OWN, chain: "draw-2", exprs: [{ type: "counter" }] },
    );
    expect((await table.apply()).transactions).toBe(0);
    table.invalidate("another process wrote");
    const repaired = await table.apply();
    expect(repaired.resynced).toBe("another process wrote");
    expect(operations(repaired)).toBe("chain -1 rule +1 -1 element +1");
    expect(await snapshot(kernel)).toEqual(wanted);
    await meddle({
      op: "delete",
      kind: "elements",
      ...OWN,
      set: "endpoints",
      elements: { count: 1, keyLen: 16, dataLen: 0, bytes: indexed(1, 0) },
    });
    service(1, 2, 7);
    const retried = await table.apply();
    expect(retried.resynced).toMatch(/something else/);
    expect(operations(retried)).toBe("element +2 -1");
    await meddle({ op: "delete", kind: "table", ...OWN });
    service(1, 2);
    expect(operations(await table.apply())).toBe("table +1 chain +3 rule +3 set +2 element +6");
    expect(await snapshot(kernel)).toEqual(wanted);
  });
}

export function checksInTurn(world: () => KernelWorld): void {
  it("a check of a part compares one set after the other, and of the others the number of elements", async () => {
    const { kernel } = world();
    const other = await world().other();
    const { table, service } = serviceTable(kernel);
    for (let i = 1; i <= 20; i++) service(i, 2);
    await table.apply();
    const wanted = await snapshot(kernel);
    const counted = (await kernel.sets(OWN)).map(({ set, count }) => [set, count]);
    const tells = counted.every(([, count]) => count !== undefined);
    if (tells) expect(Object.fromEntries(counted)).toEqual({ vips: 20, endpoints: 40 });
    const element = { key: indexed(7, 1), data: endpoint("10.9.9.9") };
    const set = { ...OWN, set: "endpoints" } as const;
    const replace = async (): Promise<unknown> =>
      other.commit([
        { op: "delete", kind: "elements", ...set, elements: pack([{ key: element.key }]) },
        { op: "add", kind: "elements", ...set, elements: pack([element]) },
      ]);
    const checks = async (times: number): Promise<string[]> => {
      const outcomes: string[] = [];
      for (let i = 0; i < times; i++) outcomes.push(await table.check(1));
      return outcomes;
    };
    expect(await checks(4)).toEqual(["same", "same", "same", "same"]);
    await replace();
    expect((await checks(2)).at(-1)).toBe("different");
    expect(operations(await table.apply())).toBe("element +1 -1");
    expect(await snapshot(kernel)).toEqual(wanted);
    for (const part of [1, 2]) {
      expect(await checks(part)).toEqual(part === 1 ? ["same"] : ["same", "same"]);
      await other.commit([{ op: "delete", kind: "elements", ...set, elements: pack([{ key: element.key }]) }]);
      expect(await table.check(1)).toBe("different");
      expect(operations(await table.apply())).toBe("element +1");
    }
    expect(await snapshot(kernel)).toEqual(wanted);
  });
}

/** Since Linux 5.13. */
export function catchAll(world: () => KernelWorld): void {
  it("a catch-all element is found by a check, and makes the set new", async () => {
    const { kernel } = world();
    const { table, service } = serviceTable(kernel);
    service(1, 1);
    await table.apply();
    await kernel.commit([
      {
        op: "add",
        kind: "elements",
        ...OWN,
        set: "endpoints",
        elements: pack([{ key: new Uint8Array(16), data: new Uint8Array(8), flags: 2 }]),
      },
    ]);
    expect(await table.check()).toBe("different");
    expect(operations(await table.apply())).toContain("set +1 -1");
    expect(await table.check()).toBe("same");
    table.invalidate("test");
    expect((await table.apply()).transactions).toBe(0);
  });
}

export function insertions(world: () => KernelWorld): void {
  const theirs = { family: "ip", table: "filter" } as const;
  const FORWARD = { ...theirs, chain: "FORWARD" } as const;
  const foreign = (text: string): Op => ({
    op: "add",
    kind: "rule",
    ...FORWARD,
    exprs: [{ type: "counter" }],
    userdata: Uint8Array.from([0, text.length + 1, ...Buffer.from(text), 0]),
  });
  const listed = async (): Promise<string> =>
    (await world().kernel.rules(theirs, "FORWARD"))
      .map((info) => commentOf(info.userdata) ?? "?")
      .map((comment) => (comment.startsWith("test:") ? (comment.split(" ")[1] ?? "ours") : comment))
      .join(" ");
  const ours = (...names: string[]): { statements: [typeof counter]; comment: string }[] => names.map(named);

  beforeEach(async () => {
    await world().kernel.commit([
      { op: "add", kind: "table", ...theirs },
      { op: "add", kind: "chain", ...FORWARD, base: { type: "filter", hook: 2, priority: 0 } },
      foreign("f1"),
      foreign("f2"),
    ]);
  });

  it("go before and behind what others have there, and are found again", async () => {
    const { table } = serviceTable(world().kernel);
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A", "B") });
    table.insertions({ ...FORWARD, mode: "append", rules: ours("Y", "Z") });
    const first = await table.apply();
    expect(first.transactions).toBe(1);
    expect(await listed()).toBe("A B f1 f2 Y Z");
    expect((await table.apply()).transactions).toBe(0);

    const again = serviceTable(world().kernel).table;
    again.insertions({ ...FORWARD, mode: "insert", rules: ours("A", "B") });
    again.insertions({ ...FORWARD, mode: "append", rules: ours("Y", "Z") });
    expect((await again.apply()).transactions).toBe(0);
    again.insertions({ ...FORWARD, mode: "insert", rules: ours("A", "C") });
    again.insertions({ ...FORWARD, mode: "append", rules: ours("X", "Z") });
    expect(operations(await again.apply())).toBe("rule +2 -2");
    expect(await listed()).toBe("A C f1 f2 X Z");
    again.insertions({ ...FORWARD, mode: "insert", rules: [] });
    again.insertions({ ...FORWARD, mode: "append", rules: [] });
    expect(operations(await again.apply())).toBe("rule -4");
    expect(await listed()).toBe("f1 f2");
  });

  it("come back when they are lost or out of place", async () => {
    const { table } = serviceTable(world().kernel);
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A") });
    table.insertions({ ...FORWARD, mode: "append", rules: ours("Z") });
    await table.apply();
    await world().kernel.commit([
      { op: "insert", kind: "rule", ...FORWARD, exprs: [{ type: "counter" }] },
      foreign("f3"),
    ]);
    table.invalidate("test");
    expect(operations(await table.apply())).toBe("rule +2 -2");
    expect(await listed()).toBe("A ? f1 f2 f3 Z");
    await world().kernel.commit([{ op: "flush", kind: "rule", ...FORWARD }]);
    table.invalidate("test");
    expect(operations(await table.apply())).toBe("rule +2");
    expect(await listed()).toBe("A Z");
  });

  it("wait for a chain that is not there, and go with destroy", async () => {
    const { table } = serviceTable(world().kernel);
    table.insertions({ family: "ip", table: "absent", chain: "INPUT", mode: "insert", rules: ours("A") });
    table.insertions({
      ...FORWARD,
      mode: "insert",
      rules: [rule({ match: "address", direction: "source", nets: ["10.0.0.0/8", "12.0.0.0/8"] }, accept)],
    });
    expect((await table.apply()).deferred).toEqual(["ip absent INPUT"]);
    expect(await listed()).toBe("ours f1 f2");
    await world().kernel.commit([
      { op: "add", kind: "table", family: "ip", table: "absent" },
      { op: "add", kind: "chain", family: "ip", table: "absent", chain: "INPUT" },
    ]);
    const later = await table.apply();
    expect(later.deferred).toBeUndefined();
    expect(operations(later)).toBe("rule +1");
    expect(operations(await table.destroy())).toBe("table -1 rule -2");
    expect(await listed()).toBe("f1 f2");
    expect((await world().kernel.tables()).map((info) => info.table).toSorted()).toEqual(["absent", "filter"]);
    expect((await table.destroy()).transactions).toBe(0);
    expect((await table.apply()).transactions).toBe(1);
    expect(await listed()).toBe("ours f1 f2");
  });

  const SECOND = { family: "inet", table: "second", chain: "output" } as const;

  /** Leaves the table of a run with another configuration. */
  async function earlierRun(): Promise<void> {
    const { kernel } = world();
    await kernel.commit([
      { op: "add", kind: "table", family: "inet", table: "second" },
      { op: "add", kind: "chain", ...SECOND },
    ]);
    const { table } = serviceTable(kernel);
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A") });
    table.insertions({ ...SECOND, mode: "append", rules: ours("Z") });
    await table.apply();
    expect([await listed(), await second()]).toEqual(["A f1 f2", 1]);
  }
  const second = async (): Promise<number> => (await world().kernel.rules(SECOND, "output")).length;

  it("of an earlier run go from chains that are no longer named, with the first apply", async () => {
    await earlierRun();
    const { table } = serviceTable(world().kernel);
    table.insertions({ ...FORWARD, mode: "append", rules: ours("Y") });
    expect(operations(await table.apply())).toBe("rule +1 -2");
    expect([await listed(), await second()]).toEqual(["f1 f2 Y", 0]);
    expect((await table.apply()).transactions).toBe(0);
  });

  it("of an earlier run go with destroy, whatever is named", async () => {
    await earlierRun();
    const { table } = serviceTable(world().kernel);
    expect(operations(await table.destroy())).toBe("table -1 rule -2");
    expect([await listed(), await second()]).toEqual(["f1 f2", 0]);
  });

  it("are known by their mark: other marks, and comments that are none, stay", async () => {
    const { kernel } = world();
    await kernel.commit([{ op: "delete", kind: "table", ...theirs }]);
    await kernel.commit([
      { op: "add", kind: "table", ...theirs },
      { op: "add", kind: "chain", ...FORWARD },
      ...["test:AAAAAAAAAAAAAAAA old", "v2:AAAAAAAAAAAAAAAA", "test:short", "f1"].map(foreign),
    ]);
    const { table } = serviceTable(kernel);
    expect(operations(await table.apply())).toContain("rule +2 -1 ");
    const comments = (await kernel.rules(theirs, "FORWARD")).map(({ userdata }) => commentOf(userdata));
    expect(comments).toEqual(["v2:AAAAAAAAAAAAAAAA", "test:short", "f1"]);
  });

  it("in a table that another program owns are left to it: nothing there can be changed", async () => {
    const { facts } = world();
    const other = await world().other();
    const owned = { family: "ip", table: "owned" } as const;
    const text = Buffer.from("test:AAAAAAAAAAAAAAAA\0");
    const userdata = Uint8Array.from([0, text.length, ...text]);
    const marked: Op = { op: "add", kind: "rule", ...owned, chain: "c", exprs: [{ type: "counter" }], userdata };
    await other.commit([
      { op: "add", kind: "table", ...owned, ...(facts.owner ? { flags: 2 } : {}) },
      { op: "add", kind: "chain", ...owned, chain: "c" },
      marked,
    ]);
    const { table } = serviceTable(world().kernel);
    expect((await table.apply()).transactions).toBe(1);
    expect(await world().kernel.rules(owned, "c")).toHaveLength(facts.owner ? 1 : 0);
  });

  it("are compared by check(), which says where they are missing", async () => {
    const { kernel } = world();
    const other = await world().other();
    const { table } = serviceTable(kernel);
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A") });
    await table.apply();
    expect(await table.check()).toBe("same");
    await other.commit([{ op: "flush", kind: "rule", ...FORWARD }]);
    expect(await listed()).toBe("");
    expect(await table.check()).toBe("different");
    expect(table.invalidated).toBe(true);
    const repaired = await table.apply();
    expect(operations(repaired)).toBe("rule +1");
    expect(repaired.drift).toMatchObject({
      changes: ["chain FORWARD of table ip filter: inserted rules missing or out of place"],
      tableDeleted: false,
    });
    expect(await listed()).toBe("A");
    expect([await table.check(), table.invalidated]).toEqual(["same", false]);
  });

  it("are watched: a flushed chain is noticed, other tables and chains are nothing to us", async () => {
    const { kernel } = world();
    const other = await world().other();
    const { table } = serviceTable(kernel);
    const noticed = Promise.withResolvers<readonly string[]>();
    const all: string[] = [];
    const watch = new TableWatch(kernel, [table], {
      changed: (_, { changes }) => {
        all.push(...changes);
        noticed.resolve(changes);
      },
      lost: (reason) => noticed.reject(new Error(reason)),
      failed: (error) => noticed.reject(error),
    });
    await watch.open();
    try {
      table.insertions({ ...FORWARD, mode: "insert", rules: ours("A") });
      await table.apply();
      await other.commit([
        { op: "add", kind: "table", family: "ip", table: "elsewhere" },
        { op: "add", kind: "chain", family: "ip", table: "elsewhere", chain: "FORWARD" },
        { op: "add", kind: "chain", ...theirs, chain: "another" },
      ]);
      await other.commit([{ op: "flush", kind: "rule", ...FORWARD }]);
      const changes = await noticed.promise;
      expect(new Set(changes)).toEqual(new Set(["rule of chain FORWARD deleted in table ip filter"]));
      expect(all).toEqual(changes);
      expect((await table.apply({ repair: false })).transactions).toBe(0);
      expect(operations(await table.apply())).toBe("rule +1");
      expect([await listed(), table.invalidated]).toEqual(["A", false]);
    } finally {
      await watch.close();
    }
  });

  it("that wait for a chain say when to come back, with backoff", async () => {
    const clock = new TestClock();
    const { kernel } = world();
    const { table } = serviceTable(kernel, { clock });
    table.insertions({ family: "ip", table: "absent", chain: "INPUT", mode: "insert", rules: ours("A") });
    expect(await table.apply()).toMatchObject({ deferred: ["ip absent INPUT"], applyAgainMs: 1000 });
    clock.advance(400);
    expect((await table.apply()).applyAgainMs).toBe(600);
    clock.advance(600);
    expect((await table.apply()).applyAgainMs).toBe(2000);
    clock.advance(2000);
    await kernel.commit([
      { op: "add", kind: "table", family: "ip", table: "absent" },
      { op: "add", kind: "chain", family: "ip", table: "absent", chain: "INPUT" },
    ]);
    const written = await table.apply();
    expect([operations(written), written.deferred, written.applyAgainMs]).toEqual(["rule +1", undefined, undefined]);
  });
}

export function others(world: () => KernelWorld): void {
  const kernel = (): Kernel => world().kernel;
  it("apply() is serialised, and nothing can be changed meanwhile", async () => {
    const { table, service, endpoints } = serviceTable(kernel());
    for (let i = 1; i <= 40; i++) service(i, 1);
    const both = Promise.all([table.apply(), table.apply()]);
    expect(() => service(41, 1)).toThrow(expect.objectContaining({ code: "busy" }));
    const [a, b] = await both;
    expect([a.transactions, b.transactions]).toEqual([1, 0]);
    expect(endpoints.kernelValue(indexed(41, 0))).toBeUndefined();
    service(41, 1);
    await table.apply();
    expect(endpoints.kernelValue(indexed(41, 0))).toEqual(endpoint("10.0.41.1"));
  });

  it("comments and widths are as nft writes them", async () => {
    const { table } = serviceTable(kernel());
    await table.apply();
    const [info] = await kernel().tables();
    expect(commentOf(info.userdata)).toBe("made for a test");
    const sets = await kernel().sets(OWN);
    expect(sets.map((set) => [set.set, set.keyLen, set.dataLen, set.size, commentOf(set.userdata, "set")])).toEqual([
      ["vips", 12, undefined, 1024, undefined],
      ["endpoints", 16, 8, 1024, "where packets go"],
    ]);
  });

  it("features are probed without a trace", async () => {
    const { table } = serviceTable(kernel());
    const before = await kernel().generation();
    const features = await table.features();
    expect((await kernel().generation()).id).toBe(before.id);
    const { facts } = world();
    expect(features).toEqual({
      destroy: facts.destroy,
      masqueradeFullyRandom: true,
      snatFullyRandom: true,
      rejectPrerouting: true,
      tableOwner: facts.owner,
      tablePersist: facts.persist,
      inetNat: true,
      fib: true,
      chainUserdata: true,
      deletedMapsLetGo: true,
      elementCounters: true,
    });
    expect(await kernel().tables()).toEqual([]);
    expect(table.features()).toBe(table.features());
  });

  it("close() refuses what comes later", async () => {
    const { table } = serviceTable(kernel());
    await table.apply();
    table.close();
    await expect(table.apply()).rejects.toMatchObject({ code: "closed" });
  });
}
