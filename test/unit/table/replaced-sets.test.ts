import { afterEach, describe, expect, test } from "vitest";
import { Table } from "../../../src/nft/table.ts";

const address = (i: number): string => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`;
const network = (i: number): string => `${10 + (i >> 15)}.${(i >> 7) & 255}.${(2 * i) & 255}.0/24`;
const list = <T>(count: number, from: number, make: (i: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i + from));

const cpuMs = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};

let watching = false;
afterEach(() => {
  watching = false;
});

/** Runs the work. Returns its CPU time, and the largest part of it in one turn of the event loop, ms. */
async function turnsOf(work: () => Promise<void>): Promise<{ whole: number; longest: number }> {
  const begun = cpuMs();
  let [last, longest] = [begun, 0];
  const look = (): void => {
    const now = cpuMs();
    longest = Math.max(longest, now - last);
    last = now;
    if (watching) setImmediate(look);
  };
  watching = true;
  setImmediate(look);
  await work();
  look();
  watching = false;
  return { whole: last - begun, longest };
}

describe("replace() leaves the event loop to other work", () => {
  const table = new Table(undefined, { family: "inet", name: "t" });
  const networks = table.set({ set: "networks", key: ["ipv4_addr"], interval: true });
  const ports = table.set({ set: "ports", key: ["ipv4_addr", "inet_service"], interval: true });
  const addresses = table.set({ set: "addresses", key: ["ipv4_addr"], timeoutMs: 600_000, counters: {} });

  test.each<[string, (from: number) => Promise<void>, () => number, number]>([
    ["networks", (from) => networks.replace(list(10_000, from, network)), () => networks.size, 10_000],
    [
      "ranges of two fields",
      (from) => ports.replace(list(10_000, from, (i) => [network(i), { from: 80, to: 80 + (i % 7) }] as const)),
      () => ports.size,
      10_000,
    ],
    ["addresses", (from) => addresses.replace(list(20_000, from, address)), () => addresses.size, 20_000],
  ])("while it reads %s", async (_, replace, size, count) => {
    await replace(count / 2);
    const { whole, longest } = await turnsOf(() => replace(0));
    expect([size(), longest < whole / 3]).toEqual([count, true]);
  });
});

test("put() and delete() in a large set of ranges cost about as much as in a small one", () => {
  const table = new Table(undefined, { family: "inet", name: "t" });
  const msFor = (count: number): number => {
    const set = table.set({ set: `of-${count}`, key: ["ipv4_addr"], interval: true });
    for (const one of list(count, 0, network)) set.put(one);
    const begun = cpuMs();
    for (let i = 0; i < 200; i++) expect([set.delete(network(i)), set.put(network(i))]).toEqual([true, true]);
    return cpuMs() - begun;
  };
  msFor(400);
  expect(msFor(8_000)).toBeLessThan(6 * msFor(400));
});

test("ranges that are counted stay apart in a replaced set", async () => {
  const table = new Table(undefined, { family: "inet", name: "t" });
  const counted = table.set({ set: "counted", key: ["ipv4_addr"], interval: true, counters: {} });
  await counted.replace(["192.0.2.0/25", "192.0.2.128/25", "192.0.2.0/25"]);
  expect(counted.keys().toSorted()).toEqual(["192.0.2.0/25", "192.0.2.128/25"]);
  await expect(counted.replace(["10.0.0.0/8", "10.1.0.0/16"])).rejects.toThrow("10.1.0.0/16 overlaps 10.0.0.0/8");
  expect(counted.size).toBe(2);
  await counted.replace(["*"]);
  expect([counted.size, counted.has("*")]).toEqual([0, true]);
});

test("ranges are joined as far as they overlap or touch", async () => {
  const table = new Table(undefined, { family: "inet", name: "t" });
  const set = table.set({ set: "networks", key: ["ipv6_addr"], interval: true });
  await set.replace([
    "::ffff:ffff-::1:0:0:0",
    "::1:0:0:1",
    "::1:0:0:3",
    "::1:0:0:3/127",
    "ffff::-ffff:ffff::",
    "8000::/1",
  ]);
  expect(set.keys()).toEqual(["::ffff:ffff-::1:0:0:3", "8000::/1"]);
});
