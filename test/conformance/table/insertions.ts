/** Our rules in chains of other processes' tables, as the library writes them. */
import { beforeEach, expect, it } from "vitest";
import { Table } from "../../../src/nft/table.js";
import { TableWatch } from "../../../src/nft/table-watch.js";
import type { Rule } from "../../../src/nft/statements/rule.js";
import type { Op } from "../../../src/nft/kernel/kernel.js";
import { commentOf } from "../../../src/nft/bytes/names-and-comments.js";
import type { KernelWorld } from "../../support/kernel-world.ts";
import { operations, OWN, TestClock } from "./build.js";

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
  const inserting = (): Table => new Table(world().kernel, { family: "ip", name: OWN.table, ownerMark: "test" });
  const ours = (...names: string[]): Rule[] =>
    names.map((comment) => ({ statements: [{ action: "counter" }], comment }));

  beforeEach(async () => {
    await world().kernel.commit([
      { op: "add", kind: "table", ...theirs },
      { op: "add", kind: "chain", ...FORWARD, base: { type: "filter", hook: 2, priority: 0 } },
      foreign("f1"),
      foreign("f2"),
    ]);
  });

  it("are written before and after the other rules of a chain, and recognized later", async () => {
    const table = inserting();
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A", "B") });
    table.insertions({ ...FORWARD, mode: "append", rules: ours("Y", "Z") });
    const first = await table.apply();
    // The table, then the rules.
    expect(first.transactions).toBe(2);
    expect(await listed()).toBe("A B f1 f2 Y Z");
    expect((await table.apply()).transactions).toBe(0);

    const again = inserting();
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

  it("are restored if they are lost or out of place", async () => {
    const table = inserting();
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

  it("of two programs at both ends of one chain come to rest, whatever comes between them", async () => {
    const other = await world().other();
    const one = inserting();
    const two = new Table(other, { family: "ip", name: "two", ownerMark: "two" });
    one.insertions({ ...FORWARD, mode: "insert", rules: ours("A", "B") });
    one.insertions({ ...FORWARD, mode: "append", rules: ours("Z") });
    two.insertions({ ...FORWARD, mode: "insert", rules: ours("C") });
    two.insertions({ ...FORWARD, mode: "append", rules: ours("X", "Y") });
    const settled = async (): Promise<string> => {
      for (const table of [one, two, one, two]) {
        table.invalidate("test");
        await table.apply();
      }
      for (const table of [one, two]) {
        table.invalidate("test");
        expect([(await table.apply()).transactions, await table.check()]).toEqual([0, "same"]);
      }
      return (await world().kernel.rules(theirs, "FORWARD"))
        .map(({ userdata }) => commentOf(userdata)?.replace(/^(test|two):\S+ /, "") ?? "?")
        .join(" ");
    };
    expect(await settled()).toBe("C A B f1 f2 Z X Y");
    await world().kernel.commit([
      { op: "insert", kind: "rule", ...FORWARD, exprs: [{ type: "counter" }] },
      foreign("f3"),
    ]);
    expect(await settled()).toBe("C A B ? f1 f2 f3 Z X Y");
    one.insertions({ ...FORWARD, mode: "insert", rules: ours("A", "D") });
    one.insertions({ ...FORWARD, mode: "append", rules: ours("V", "Z") });
    expect(await settled()).toBe("C A D ? f1 f2 f3 V Z X Y");
    await world().kernel.commit([{ op: "flush", kind: "rule", ...FORWARD }]);
    expect(await settled()).toBe("C A D V Z X Y");
  });

  it("wait for a missing chain, and are removed by destroy", async () => {
    const table = inserting();
    table.insertions({ family: "ip", table: "absent", chain: "INPUT", mode: "insert", rules: ours("A") });
    table.insertions({
      ...FORWARD,
      mode: "insert",
      rules: [
        {
          statements: [
            { field: "ip saddr", value: ["10.0.0.0/8", "12.0.0.0/8"] },
            { action: "verdict", verdict: "accept" },
          ],
        },
      ],
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
    expect((await table.apply()).transactions).toBe(2);
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
    const table = inserting();
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A") });
    table.insertions({ ...SECOND, mode: "append", rules: ours("Z") });
    await table.apply();
    expect([await listed(), await second()]).toEqual(["A f1 f2", 1]);
  }
  const second = async (): Promise<number> => (await world().kernel.rules(SECOND, "output")).length;

  it("insertions of an earlier run are removed by the first apply from chains that are no longer named", async () => {
    await earlierRun();
    const table = inserting();
    table.insertions({ ...FORWARD, mode: "append", rules: ours("Y") });
    expect(operations(await table.apply())).toBe("rule +1 -2");
    expect([await listed(), await second()]).toEqual(["f1 f2 Y", 0]);
    expect((await table.apply()).transactions).toBe(0);
  });

  it("insertions of an earlier run are removed by destroy, whichever chains are named", async () => {
    await earlierRun();
    const table = inserting();
    expect(operations(await table.destroy())).toBe("table -1 rule -2");
    expect([await listed(), await second()]).toEqual(["f1 f2", 0]);
  });

  it("are known by their mark: rules with other marks or ordinary comments stay", async () => {
    const { kernel } = world();
    await kernel.commit([{ op: "delete", kind: "table", ...theirs }]);
    await kernel.commit([
      { op: "add", kind: "table", ...theirs },
      { op: "add", kind: "chain", ...FORWARD },
      ...["test:AAAAAAAAAAAAAAAA old", "v2:AAAAAAAAAAAAAAAA", "test:short", "f1"].map(foreign),
    ]);
    const table = inserting();
    expect(operations(await table.apply())).toBe("table +1 rule -1");
    const comments = (await kernel.rules(theirs, "FORWARD")).map(({ userdata }) => commentOf(userdata));
    expect(comments).toEqual(["v2:AAAAAAAAAAAAAAAA", "test:short", "f1"]);
  });

  it("insertions in a table that another program owns are not touched", async () => {
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
    const table = inserting();
    // Before Linux 5.12 no table has an owner, so a second transaction removes the rule.
    expect((await table.apply()).transactions).toBe(facts.owner ? 1 : 2);
    expect(await world().kernel.rules(owned, "c")).toHaveLength(facts.owner ? 1 : 0);
  });

  it("are compared by check(), which says where they are missing", async () => {
    const other = await world().other();
    const table = inserting();
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A") });
    await table.apply();
    expect(await table.check()).toBe("same");
    await other.commit([{ op: "flush", kind: "rule", ...FORWARD }]);
    expect(await listed()).toBe("");
    expect(await table.check()).toBe("different");
    const repaired = await table.apply();
    expect(operations(repaired)).toBe("rule +1");
    expect(repaired.drift).toMatchObject({
      changes: ["chain FORWARD of table ip filter: inserted rules missing or out of place"],
      tableDeleted: false,
    });
    expect(await listed()).toBe("A");
    expect(await table.check()).toBe("same");
  });

  it("are watched: a flushed chain is noticed, and other tables and chains are ignored", async () => {
    const { kernel } = world();
    const other = await world().other();
    const table = inserting();
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
      expect(operations(await table.apply())).toBe("rule +1");
      expect([await listed(), await table.check()]).toEqual(["A", "same"]);
    } finally {
      await watch.close();
    }
  });

  it("insertions that wait for a chain return the time of the next try, with backoff", async () => {
    const clock = new TestClock();
    const { kernel } = world();
    const table = new Table(kernel, { family: "ip", name: OWN.table, ownerMark: "test", clock });
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

  it("cannot be changed while apply() runs", async () => {
    const table = inserting();
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A") });
    const both = Promise.all([table.apply(), table.apply()]);
    expect(() => table.insertions({ ...FORWARD, mode: "insert", rules: [] })).toThrow(
      expect.objectContaining({ code: "busy" }),
    );
    const [first, second] = await both;
    expect([first.transactions, second.transactions, await listed()]).toEqual([2, 0, "A f1 f2"]);
  });

  it("are written again if another process deleted the rule next to them meanwhile", async () => {
    const { kernel } = world();
    const other = await world().other();
    const table = inserting();
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A") });
    const commit = kernel.commit.bind(kernel);
    let once = true;
    kernel.commit = async (ops, options) => {
      if (once && ops.some(({ kind }) => kind === "rule")) {
        once = false;
        await other.commit([{ op: "flush", kind: "rule", ...FORWARD }]);
      }
      return commit(ops, options);
    };
    expect((await table.apply()).transactions).toBe(2);
    expect([once, await listed()]).toEqual([false, "A"]);
  });
}
