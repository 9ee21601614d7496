/** Changes by another process that no TableWatch reports. */
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type Kernel, openKernel, type PlainSet, Table } from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";

let namespace: Namespace;
let kernel: Kernel;
beforeAll(async () => {
  namespace = await Namespace.create("stale-writes");
  kernel = await openKernel({ netns: `/run/netns/${namespace.name}` });
});
afterAll(async () => {
  await kernel.close();
  await namespace.destroy();
});
beforeEach(() => namespace.mustRun(["nft", "flush", "ruleset"]));

function bansOf(one: Kernel): { table: Table; bans: PlainSet<readonly ["ipv4_addr"]> } {
  const table = new Table(one, { family: "ip", name: "mine" });
  return { table, bans: table.set({ set: "bans", key: ["ipv4_addr"] }) };
}

const listed = async (): Promise<readonly string[]> =>
  (await namespace.mustRun(["nft", "list", "set", "ip", "mine", "bans"])).match(/192\.0\.2\.\d/g) ?? [];

test("what another process flushed is written again with the next change, and the result tells it", async () => {
  const { table, bans } = bansOf(kernel);
  bans.put("192.0.2.1");
  bans.put("192.0.2.2");
  await table.apply();
  await namespace.mustRun(["nft", "flush", "set", "ip", "mine", "bans"]);
  bans.put("192.0.2.3");
  const { resynced, drift } = await table.apply();
  expect([resynced, drift?.changes.length]).toEqual(["the ruleset has changed since the last apply", 1]);
  expect(await listed()).toEqual(["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
  expect((await table.apply()).resynced).toBeUndefined();
  await namespace.mustRun(["nft", "flush", "set", "ip", "mine", "bans"]);
  expect((await table.plan()).counts.element.add).toBe(3);
});

test("two processes on one table never mix their elements", async () => {
  const other = await openKernel({ netns: `/run/netns/${namespace.name}` });
  const [mine, theirs] = [bansOf(kernel), bansOf(other)];
  for (let round = 1; round <= 3; round++) {
    mine.bans.clear();
    mine.bans.put(`192.0.2.${round}`);
    await mine.table.apply();
    expect(await listed()).toEqual([`192.0.2.${round}`]);
    theirs.bans.clear();
    theirs.bans.put(`192.0.2.${round + 5}`);
    await theirs.table.apply();
    expect(await listed()).toEqual([`192.0.2.${round + 5}`]);
  }
  await other.close();
});

test("other tables of the program do not make an apply read the kernel", async () => {
  const { table, bans } = bansOf(kernel);
  const beside = new Table(kernel, { family: "ip", name: "beside" });
  await table.apply();
  await beside.apply();
  bans.put("192.0.2.1");
  expect((await table.apply()).resynced).toBeUndefined();
});

test("two tables of one name on one connection notice each other's changes", async () => {
  const [mine, theirs] = [bansOf(kernel), bansOf(kernel)];
  mine.bans.put("192.0.2.1");
  theirs.bans.put("192.0.2.2");
  await mine.table.apply();
  await theirs.table.apply();
  expect(await listed()).toEqual(["192.0.2.2"]);
  await mine.table.apply();
  expect([await listed(), await mine.table.check()]).toEqual([["192.0.2.1"], "same"]);
  await theirs.table.destroy();
  await mine.table.apply();
  expect(await listed()).toEqual(["192.0.2.1"]);
});

test("rules inserted into a table of the same program are written again after it is", async () => {
  const beside = new Table(kernel, { family: "ip", name: "beside", ownerMark: "mine" });
  const { table } = bansOf(kernel);
  const rules = [{ statements: [{ action: "counter" as const }] }];
  table.chain({ chain: "door", rules });
  beside.insertions({ family: "ip", table: "mine", chain: "door", mode: "insert", rules });
  const count = async (): Promise<number> =>
    (await namespace.mustRun(["nft", "list", "chain", "ip", "mine", "door"])).match(/counter/g)?.length ?? 0;
  await table.apply();
  await beside.apply();
  expect(await count()).toBe(2);
  await table.apply();
  expect(await count()).toBe(1);
  await beside.apply();
  expect(await count()).toBe(2);
});
