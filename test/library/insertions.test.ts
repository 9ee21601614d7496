/** Rules of several programs in a chain that none of them owns, on the real kernel. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Kernel, openKernel, Table, TableWatch } from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";
import { patience } from "../lab/patience.ts";

const FORWARD = { family: "ip", table: "filter", chain: "FORWARD" } as const;

let namespace: Namespace;
const closing: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  namespace = await Namespace.create("insertions");
  await namespace.mustRun([
    "nft",
    "add table ip filter; add chain ip filter FORWARD; add rule ip filter FORWARD counter",
  ]);
});
afterAll(async () => {
  for (const close of closing.toReversed()) await close();
  await namespace.destroy();
});

const open = async (): Promise<Kernel> => {
  const kernel = await openKernel({ netns: `/run/netns/${namespace.name}` });
  closing.push(() => kernel.close());
  return kernel;
};

test("a rule that looks up a set of another table is refused with the reason", async () => {
  const kernel = await open();
  const table = new Table(kernel, { family: "ip", name: "own", ownerMark: "own" });
  table.set({ set: "mine", key: ["ipv4_addr"] });
  const statements = [
    { field: "ip saddr", value: "@mine" },
    { action: "verdict", verdict: "drop" },
  ] as const;
  table.insertions({ ...FORWARD, mode: "insert", rules: [{ statements }] });
  await expect(table.apply()).rejects.toThrow("A rule reaches the sets and chains of its own table only: mine");
  await table.destroy();
});

interface Program {
  readonly table: Table;
  /** Reports of its watch. */
  changes: number;
}

/** A program that repairs its rule at once. */
async function started(name: string): Promise<Program> {
  const kernel = await open();
  const table = new Table(kernel, { family: "inet", name, ownerMark: name });
  const statements = [{ action: "counter" }, { action: "verdict", verdict: "accept" }] as const;
  for (const mode of ["insert", "append"] as const) table.insertions({ ...FORWARD, mode, rules: [{ statements }] });
  const program: Program = { table, changes: 0 };
  const watch = new TableWatch(kernel, [table], {
    changed: (changed) => {
      program.changes++;
      void changed.apply();
    },
    lost: () => {},
    failed: () => {},
  });
  closing.push(() => watch.close());
  await watch.open();
  await table.apply();
  return program;
}

const owners = async (): Promise<string> =>
  (await namespace.mustRun(["nft", "list", "chain", "ip", "filter", "FORWARD"]))
    .split("\n")
    .filter((line) => line.includes("counter"))
    .map((line) => /comment "(\w+):/.exec(line)?.[1] ?? "?")
    .join(" ");

test("programs that insert rules at the same ends of a chain come to rest, also after another rule came first", async () => {
  const programs = [await started("one"), await started("two"), await started("three")];
  const counts = (): readonly number[] => programs.map(({ changes }) => changes);
  const quiet = async (): Promise<void> => {
    const end = Date.now() + patience(10_000);
    for (let before = counts(); ; before = counts()) {
      await sleep(500);
      if (counts().join() === before.join()) return;
      expect(Date.now()).toBeLessThan(end);
    }
  };
  await quiet();
  expect(await owners()).toBe("three two one ? one two three");
  await namespace.mustRun(["nft", "insert rule ip filter FORWARD counter; add rule ip filter FORWARD counter"]);
  await quiet();
  const rules = (await owners()).split(" ");
  expect(rules.slice(3, 6)).toEqual(["?", "?", "?"]);
  for (const end of [rules.slice(0, 3), rules.slice(6)]) expect(end.toSorted()).toEqual(["one", "three", "two"]);
  for (const { table } of programs)
    expect([await table.check(), (await table.apply()).transactions]).toEqual(["same", 0]);
});
