import { afterEach, describe, expect, test, vi } from "vitest";
import { Table } from "../../../src/nft/table.ts";

const address = (i: number): string => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`;
const network = (i: number): string => `${10 + (i >> 15)}.${(i >> 7) & 255}.${(2 * i) & 255}.0/24`;
const list = <T>(count: number, from: number, make: (i: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => make(i + from));

const cpuMs = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};

afterEach(() => {
  vi.restoreAllMocks();
});

/** Runs the work while each piece of it takes 10 ms. Returns how many elements the set got in one turn of the event loop at most, and the number of turns. */
async function turnsOf(set: { readonly size: number }, work: Promise<void>): Promise<{ most: number; turns: number }> {
  let clock = 0;
  vi.spyOn(performance, "now").mockImplementation(() => (clock += 10));
  let [most, turns, last, watching] = [0, 0, set.size, true];
  const look = (): void => {
    most = Math.max(most, set.size - last);
    last = set.size;
    turns++;
    if (watching) setImmediate(look);
  };
  setImmediate(look);
  await work;
  watching = false;
  look();
  return { most, turns };
}

describe("replace() leaves the event loop to other work", () => {
  const table = new Table(undefined, { family: "inet", name: "t", clock: { now: () => 0 } });
  const networks = table.set({ set: "networks", key: ["ipv4_addr"], interval: true });
  const ports = table.set({ set: "ports", key: ["ipv4_addr", "inet_service"], interval: true });
  const addresses = table.set({ set: "addresses", key: ["ipv4_addr"], timeoutMs: 600_000, counters: {} });
  const COUNT = 5000;

  test.each<[string, { readonly size: number }, () => Promise<void>]>([
    ["networks", networks, () => networks.replace(list(COUNT, 0, network))],
    [
      "ranges of two fields",
      ports,
      () => ports.replace(list(COUNT, 0, (i) => [network(i), { from: 80, to: 80 + (i % 7) }] as const)),
    ],
    ["addresses", addresses, () => addresses.replace(list(COUNT, 0, address))],
  ])("while it reads, compares and writes %s", async (_, set, replace) => {
    const { most, turns } = await turnsOf(set, replace());
    // At most 64 keys are read in a turn, and 512 written.
    expect([set.size, most <= 512, turns > COUNT / 64]).toEqual([COUNT, true, true]);
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

test("a set of ranges refuses every change while another set is replaced, and stays as it was", async () => {
  let now = 0;
  const table = new Table(undefined, { family: "inet", name: "t", clock: { now: () => now } });
  const set = table.set({ set: "networks", key: ["ipv4_addr"], interval: true, timeoutMs: 1000 });
  set.put("192.0.2.0/24", { timeoutMs: 5000 });
  set.put("198.51.100.0/24");
  const replaced = table.set({ set: "other", key: ["ipv4_addr"] }).replace([]);
  expect(() => set.put("192.0.2.9")).toThrow("cannot be changed while");
  expect(() => set.delete("192.0.2.0/24")).toThrow("cannot be changed while");
  await replaced;
  now = 2000;
  expect(() => set.put("192.0.2.9")).toThrow("192.0.2.9 overlaps 192.0.2.0/24");
  expect(set.keys()).toEqual(["192.0.2.0/24"]);
});
