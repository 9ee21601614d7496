/** Sets with timeouts that a program fills, on the real kernel: a ban list. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { FieldError, type Kernel, openKernel, type PlainSet, Table, TableWatch } from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";
import { longTest } from "../support/long.ts";

const ADDRESS = "192.0.2.1";
/** Longer than a busy machine takes between two steps of a test, ms. */
const TIMEOUT = 6000;

let namespace: Namespace;
let kernel: Kernel;
let table: Table;
let banned: PlainSet<readonly ["ipv4_addr"]>;

beforeAll(async () => {
  namespace = await Namespace.create("bans");
  kernel = await openKernel({ netns: `/run/netns/${namespace.name}` });
});
afterAll(async () => {
  await kernel.close();
  await namespace.destroy();
});
beforeEach(() => {
  table = declared();
});
afterEach(() => table.destroy());

function declared(): Table {
  const declaring = new Table(kernel, { family: "inet", name: "bans" });
  banned = declaring.set({ set: "banned", key: ["ipv4_addr"], timeoutMs: TIMEOUT });
  declaring.chain({
    chain: "input",
    base: { type: "filter", hook: "input", priority: -10 },
    rules: [
      {
        statements: [
          { field: "saddr", value: "@banned" },
          { action: "verdict", verdict: "drop" },
        ],
      },
    ],
  });
  return declaring;
}

/** Addresses in the kernel's set, with the remaining seconds. */
async function held(): Promise<Record<string, number>> {
  const text = await namespace.mustRun(["nft", "-j", "list", "set", "inet", "bans", "banned"]);
  const { nftables } = JSON.parse(text) as {
    nftables: { set?: { elem?: { elem: { val: string; expires: number } }[] } }[];
  };
  return Object.fromEntries(
    nftables.flatMap(({ set }) => (set?.elem ?? []).map(({ elem: { val, expires } }) => [val, expires])),
  );
}

const written = async (): Promise<{ add: number; delete: number }> => (await table.apply()).operations.element;

describe("an element of a set with timeouts", () => {
  test("expires in the kernel and in the table alike, and can be added again", async () => {
    expect(banned.put(ADDRESS)).toBe(true);
    await table.apply();
    expect(Object.keys(await held())).toEqual([ADDRESS]);
    expect([banned.put(ADDRESS), banned.size, banned.has(ADDRESS)]).toEqual([false, 1, true]);
    await sleep(TIMEOUT + 100);
    expect([banned.size, banned.has(ADDRESS), await held()]).toEqual([0, false, {}]);
    // Nothing differs: neither a check nor a read restores it.
    expect(await table.check()).toBe("same");
    table.invalidate("test");
    expect(await table.apply()).toMatchObject({ transactions: 0, resynced: "test" });
    expect(await held()).toEqual({});
    expect(banned.put(ADDRESS)).toBe(true);
    expect(await written()).toEqual({ add: 1, delete: 0 });
    expect(Object.keys(await held())).toEqual([ADDRESS]);
  });

  test("is written again if it is put right after it expired", async () => {
    for (let round = 0; round < 5; round++) {
      banned.put(ADDRESS, { timeoutMs: 300 });
      await table.apply();
      await expect.poll(() => banned.has(ADDRESS), { interval: 1 }).toBe(false);
      expect(banned.put(ADDRESS, { timeoutMs: 3_600_000 })).toBe(true);
      expect((await written()).add).toBe(1);
      await sleep(100);
      expect((await held())[ADDRESS]).toBeGreaterThan(3500);
      banned.delete(ADDRESS);
      await table.apply();
      expect(await held()).toEqual({});
    }
  });

  test("has its own timeout, which renews it", async () => {
    banned.put(ADDRESS, { timeoutMs: 3_600_000 });
    banned.put("192.0.2.2");
    await table.apply();
    expect((await held())[ADDRESS]).toBeGreaterThan(3500);
    expect(banned.put(ADDRESS, { timeoutMs: 60_000 })).toBe(true);
    expect(await written()).toEqual({ add: 1, delete: 1 });
    expect((await held())[ADDRESS]).toBeLessThanOrEqual(60);
    expect(await written()).toEqual({ add: 0, delete: 0 });
    await sleep(TIMEOUT + 100);
    expect([banned.size, Object.keys(await held())]).toEqual([1, [ADDRESS]]);
    expect(await namespace.mustRun(["nft", "-c", "-f", "-"], { input: table.render() })).toBe("");
    expect(table.render()).toMatch(/elements = \{ 192\.0\.2\.1 timeout 1m expires \d+s \}/);
  });

  longTest("has its whole time again after it was deleted and put", async () => {
    banned.put(ADDRESS);
    await table.apply();
    await sleep(TIMEOUT / 2);
    banned.delete(ADDRESS);
    expect(banned.put(ADDRESS)).toBe(true);
    expect(await written()).toEqual({ add: 1, delete: 1 });
    await sleep(0.6 * TIMEOUT);
    expect([banned.has(ADDRESS), Object.keys(await held())]).toEqual([true, [ADDRESS]]);
    banned.delete(ADDRESS);
    expect(await written()).toEqual({ add: 0, delete: 1 });
  });

  test("keeps its time when the program restarts, and when another process flushed the set", async () => {
    banned.put(ADDRESS, { timeoutMs: 60_000 });
    banned.put("192.0.2.2");
    await table.apply();
    await sleep(1500);
    table = declared();
    banned.put(ADDRESS, { timeoutMs: 58_500 });
    banned.put("192.0.2.2");
    expect(await written()).toEqual({ add: 0, delete: 0 });
    // The second one's time continues: it ends together with the kernel's.
    await sleep(TIMEOUT - 1300);
    expect([banned.has("192.0.2.2"), Object.keys(await held())]).toEqual([false, [ADDRESS]]);
    await namespace.mustRun(["nft", "flush", "set", "inet", "bans", "banned"]);
    expect(await table.check()).toBe("different");
    expect((await written()).add).toBe(1);
    expect((await held())[ADDRESS]).toBeLessThanOrEqual(57);
  });

  test("its expiry while a watch listens is not reported as a change", async () => {
    const changes: unknown[] = [];
    const watch = new TableWatch(kernel, [table], {
      changed: (_, change) => void changes.push(change),
      lost: () => undefined,
      failed: () => undefined,
    });
    await watch.open();
    banned.put(ADDRESS, { timeoutMs: 200 });
    await table.apply();
    await sleep(1500);
    expect([changes, (await table.apply()).transactions]).toEqual([[], 0]);
    await watch.close();
  });
});

longTest("maps and short keys have timeouts, too", async () => {
  const ports = table.set({ set: "ports", key: ["inet_service"], data: "verdict", timeoutMs: 0 });
  const counts = table.set({ set: "counts", key: ["inet_service"], data: ["mark"], timeoutMs: 60_000, counters: {} });
  ports.put(80, "accept", { timeoutMs: TIMEOUT });
  ports.put(81, "drop");
  counts.put(80, 1);
  counts.put(443, 2);
  await table.apply();
  table.invalidate("test");
  expect((await table.apply()).transactions).toBe(0);
  expect(await namespace.mustRun(["nft", "list", "map", "inet", "bans", "ports"])).toMatch(/ 81 : drop/);
  expect([ports.get(80), ports.get(81), counts.get(443)]).toEqual(["accept", "drop", 2]);
  await sleep(TIMEOUT + 100);
  expect([ports.get(80), ports.get(81), ports.size]).toEqual([undefined, "drop", 1]);
  ports.put(80, "drop", { timeoutMs: 1000 });
  expect((await table.apply()).operations.element.add).toBe(1);
});

describe("a set of networks with timeouts", () => {
  const NETWORKS = { set: "networks", key: ["ipv4_addr"], interval: true, timeoutMs: 600_000, keep: true } as const;
  const list = (): Promise<string> => namespace.mustRun(["nft", "list", "set", "inet", "bans", "networks"]);

  test("writes, lists, renews and removes single networks, which may touch but not overlap", async () => {
    const networks = table.set(NETWORKS);
    expect([networks.put("198.51.100.0/25"), networks.put("198.51.100.128/25", { comment: "upper" })]).toEqual([
      true,
      true,
    ]);
    networks.put("203.0.113.7", { timeoutMs: 3_600_000 });
    networks.put("255.255.255.0/24");
    networks.put("0.0.0.0/8");
    expect(networks.put("198.51.100.0/25")).toBe(false);
    for (const other of ["198.51.100.0/24", "198.51.100.5", "203.0.113.0/24", "203.0.113.7-203.0.113.9"])
      expect(() => networks.put(other)).toThrow(/overlaps (198|203)/);
    expect(() => networks.put("2001:db8::/32")).toThrow(FieldError);
    await namespace.mustRun(["nft", "-c", "-f", "-"], { input: table.render() });
    await namespace.mustRun(["nft", "-c", "-f", "-"], { input: (await table.plan()).text });
    await table.apply();
    expect(await list()).toMatch(/198\.51\.100\.128\/25 .*expires .*comment "upper"/);
    expect(networks.get("203.0.113.7")).toEqual({
      key: "203.0.113.7",
      timeoutMs: 3_600_000,
      leftMs: expect.closeTo(3_600_000, -4),
    });
    expect([await table.check(), (await table.plan()).text]).toEqual(["same", ""]);
    table.invalidate("test");
    expect((await table.apply()).transactions).toBe(0);
    networks.put("198.51.100.0/25", { timeoutMs: 60_000 });
    expect([networks.delete("203.0.113.7"), networks.delete("203.0.113.8")]).toEqual([true, false]);
    await table.apply();
    expect(networks.keys().toSorted()).toEqual([
      "0.0.0.0/8",
      "198.51.100.0/25",
      "198.51.100.128/25",
      "255.255.255.0/24",
    ]);
    expect(await table.check()).toBe("same");
    expect(await list()).toMatch(/198\.51\.100\.0\/25 timeout 1m expires/);
    await networks.replace(["198.51.100.0/24"]);
    await table.apply();
    expect([networks.networks(), await table.check()]).toEqual([["198.51.100.0/24"], "same"]);
  });

  test("ends networks in the kernel and in the table alike, and keeps them over a restart", async () => {
    const networks = table.set(NETWORKS);
    networks.put("198.51.100.0/24", { timeoutMs: 1500 });
    networks.put("203.0.113.0/24");
    networks.put("192.0.2.0/25", { timeoutMs: 1500 });
    networks.put("192.0.2.128/25");
    await table.apply();
    await sleep(1600);
    expect(networks.networks().toSorted()).toEqual(["192.0.2.128/25", "203.0.113.0/24"]);
    expect(await table.check()).toBe("same");
    table.invalidate("test");
    expect((await table.apply()).transactions).toBe(0);
    expect(networks.put("198.51.100.0/24", { timeoutMs: 60_000 })).toBe(true);
    expect(networks.put("192.0.2.0/26", { timeoutMs: 60_000 })).toBe(true);
    await table.apply();
    expect(await table.check()).toBe("same");
    table = declared();
    const again = table.set(NETWORKS);
    expect((await table.apply()).transactions).toBe(0);
    expect(again.networks().toSorted()).toEqual([
      "192.0.2.0/26",
      "192.0.2.128/25",
      "198.51.100.0/24",
      "203.0.113.0/24",
    ]);
    expect(again.get("198.51.100.0/24")?.leftMs).toBeLessThanOrEqual(60_000);
  });

  test("that stay in the list of replace() keep their times and comments", async () => {
    const networks = table.set(NETWORKS);
    await networks.replace(["192.0.2.0/24", "198.51.100.0/24"]);
    networks.put("203.0.113.0/24", { timeoutMs: 60_000, comment: "guest" });
    await table.apply();
    await networks.replace(["203.0.113.0/24", "198.51.100.0/24", "192.0.2.0/24"]);
    expect((await table.apply()).transactions).toBe(0);
    await networks.replace(["203.0.113.0/24", "10.0.0.0/8"]);
    // The kernel has an element for each end.
    expect((await table.apply()).operations.element).toEqual({ add: 2, delete: 4 });
    expect(await list()).toMatch(/203\.0\.113\.0\/24 timeout 1m expires \S+ comment "guest"/);
    await networks.replace(["203.0.113.0/24", "10.0.0.0/8"], { timeoutMs: 5000, comment: "all" });
    await table.apply();
    expect(await list()).toMatch(
      /10\.0\.0\.0\/8 timeout 5s .*comment "all".*203\.0\.113\.0\/24 timeout 5s .*comment "all"/s,
    );
    await expect(networks.replace([], { timeout: 1 } as object)).rejects.toThrow('did you mean "timeoutMs"');
    await banned.replace([ADDRESS]);
    await banned.replace([ADDRESS, "192.0.2.77"]);
    expect(banned.keys()).toEqual([ADDRESS, "192.0.2.77"]);
  });

  test("of IPv6 works alike", async () => {
    const networks = table.set({ ...NETWORKS, key: ["ipv6_addr"] });
    networks.put("2001:db8::/32", { timeoutMs: 60_000, comment: "v6" });
    networks.put("2001:db9::-2001:db9::9");
    await table.apply();
    expect(await list()).toMatch(/2001:db8::\/32 timeout 1m expires \d+s\S* comment "v6"/);
    table.invalidate("test");
    expect((await table.apply()).transactions).toBe(0);
    expect(networks.get("2001:db9::-2001:db9::9")?.timeoutMs).toBe(600_000);
  });

  test("work without timeouts, too", async () => {
    const networks = table.set({ set: "plain", key: ["ipv4_addr"], interval: true });
    expect([networks.put("192.0.2.1"), networks.delete("192.0.2.1"), networks.size]).toEqual([true, true, 0]);
    await networks.replace(["192.0.2.0/24"]);
    expect([networks.has("192.0.2.0/24"), networks.has("192.0.2.1"), networks.entries()]).toEqual([
      true,
      false,
      [{ key: "192.0.2.0/24" }],
    ]);
  });
});

test("a timeout in a set without timeouts is rejected", () => {
  const plain = table.set({ set: "plain", key: ["ipv4_addr"] });
  expect(() => plain.put(ADDRESS, { timeoutMs: 1000 })).toThrow(FieldError);
  expect(() => banned.put(ADDRESS, { timeoutMs: 0 })).toThrow(FieldError);
  expect(() => banned.put(ADDRESS, { timeout: 1000 } as object)).toThrow(/did you mean "timeoutMs"/);
  expect([plain.size, banned.size]).toEqual([0, 0]);
});
