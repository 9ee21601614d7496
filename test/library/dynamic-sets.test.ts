/** Sets that packets fill: read and changed by the program, on the real kernel. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, expectTypeOf, test } from "vitest";
import { type DynamicMap, FieldError, type Kernel, openKernel, Table, TableError } from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";

let namespace: Namespace;
let kernel: Kernel;

beforeAll(async () => {
  namespace = await Namespace.create("dynamic");
  await namespace.ip(["link set lo up"]);
  kernel = await openKernel({ netns: `/run/netns/${namespace.name}` });
});
afterAll(async () => {
  await kernel.close();
  await namespace.destroy();
});
afterEach(() => new Table(kernel, { family: "ip", name: "filled" }).destroy());

/** A table that notes the destinations of packets, and counts each. */
function declared() {
  const table = new Table(kernel, { family: "ip", name: "filled" });
  const seen = table.set({
    set: "seen",
    key: ["ipv4_addr"],
    dynamic: true,
    timeoutMs: 600_000,
    size: 1000,
    counters: {},
  });
  table.chain({
    chain: "output",
    base: { type: "filter", hook: "output", priority: "filter" },
    rules: [{ statements: [{ action: "update", set: "seen", key: ["daddr"] }] }],
  });
  return { table, seen };
}

async function send(address: string, packets = 1): Promise<void> {
  const script = `const s = require("dgram").createSocket("udp4"); let left = ${packets};
    const next = () => left-- === 0 ? s.close() : s.send("12345678", 9, "${address}", next); next()`;
  await namespace.mustRun([process.execPath, "-e", script]);
}

describe("a set that packets fill", () => {
  test("lists the elements with counts and times", async () => {
    const { table, seen } = declared();
    expect([await seen.entries(), await seen.has("127.0.0.7")]).toEqual([[], false]);
    await table.apply();
    expect(await seen.entries()).toEqual([]);
    await send("127.0.0.7", 3);
    const entry = await seen.get("127.0.0.7");
    // The update that adds the element counts its packet on some kernels.
    expect(entry).toEqual({
      key: "127.0.0.7",
      timeoutMs: 600_000,
      leftMs: expect.closeTo(600_000, -4),
      counted: { packets: expect.toSatisfy((n: number) => n === 2 || n === 3), bytes: expect.any(Number) },
    });
    expect(entry!.counted!.bytes).toBe(entry!.counted!.packets * 36);
    expect([await seen.has("127.0.0.8"), await seen.get("127.0.0.8")]).toEqual([false, undefined]);
    // The answer that nothing listens has this host as its destination.
    expect((await seen.keys()).toSorted()).toEqual(["127.0.0.1", "127.0.0.7"]);
  });

  test("counts and limits by network, if the key has a mask", async () => {
    const { table, seen } = declared();
    const networks = table.set({ set: "networks", key: ["ipv4_addr"], dynamic: true, timeoutMs: 600_000, size: 1000 });
    const key = [{ field: "ip daddr", mask: "255.255.255.0" }] as const;
    const limit = {
      action: "rate-over",
      set: "networks",
      key,
      timeoutMs: 600_000,
      rate: 1,
      per: "hour",
      burst: 2,
    } as const;
    const update = { action: "update", set: "seen", key } as const;
    table.chain({
      chain: "output",
      base: { type: "filter", hook: "output", priority: "filter" },
      rules: [
        { statements: [update] },
        { statements: [limit, { action: "counter" }, { action: "verdict", verdict: "drop" }] },
      ],
    });
    await table.apply();
    for (const host of [1, 2, 3, 4]) await send(`127.7.0.${host}`);
    expect([await seen.has("127.7.0.0"), await networks.has("127.7.0.0"), await seen.has("127.7.0.1")]).toEqual([
      true,
      true,
      false,
    ]);
    // Two packets pass.
    expect(await namespace.mustRun(["nft", "list", "chain", "ip", "filled", "output"])).toContain(
      "update @networks { ip daddr & 255.255.255.0 timeout 10m limit rate over 1/hour burst 2 packets } counter packets 2 bytes 72 drop",
    );
    expect((await table.apply()).transactions).toBe(0);
  });

  test("can be changed by the program, at once", async () => {
    const { table, seen } = declared();
    await table.apply();
    expect([await seen.put("192.0.2.1"), await seen.put("192.0.2.2", { timeoutMs: 3_600_000 })]).toEqual([true, true]);
    expect(await seen.put("192.0.2.2")).toBe(false);
    const list = (): Promise<string> => namespace.mustRun(["nft", "list", "set", "ip", "filled", "seen"]);
    expect(await list()).toMatch(/192\.0\.2\.1 .*expires 9m5\ds/);
    expect(await list()).toMatch(/192\.0\.2\.2 .*timeout 1h expires 59m5\ds/);
    expect(await seen.put("192.0.2.2", { timeoutMs: 1000 })).toBe(true);
    expect((await seen.get("192.0.2.2"))?.timeoutMs).toBe(1000);
    await sleep(1100);
    expect(await seen.keys()).toEqual(["192.0.2.1"]);
    // An apply leaves the elements alone, and so does the next start.
    expect((await table.apply()).transactions).toBe(0);
    const next = declared();
    expect((await next.table.apply()).transactions).toBe(0);
    expect(await next.seen.keys()).toEqual(["192.0.2.1"]);
    expect([await next.seen.delete("192.0.2.1"), await next.seen.delete("192.0.2.1")]).toEqual([true, false]);
    await next.seen.put("192.0.2.3");
    await next.seen.clear();
    expect(await next.seen.entries()).toEqual([]);
  });

  test("may have a catch-all element", async () => {
    const { table, seen } = declared();
    await table.apply();
    expect([await seen.has("*"), await seen.put("*"), await seen.put("*"), await seen.delete("0.0.0.0")]).toEqual([
      false,
      true,
      false,
      false,
    ]);
    expect(await seen.put("*", { timeoutMs: 3_600_000, comment: "others" })).toBe(true);
    expect(await seen.get("*")).toMatchObject({ key: "*", comment: "others", timeoutMs: 3_600_000 });
    expect([await seen.keys(), await table.check(), await seen.delete("*"), await seen.has("*")]).toEqual([
      [],
      "same",
      true,
      false,
    ]);
  });

  test("keeps the counts of an element whose time starts again", async () => {
    const { table, seen } = declared();
    await table.apply();
    await send("127.0.0.7", 5);
    const before = (await seen.get("127.0.0.7"))!.counted!;
    await seen.put("127.0.0.7", { timeoutMs: 3_600_000 });
    expect(await seen.get("127.0.0.7")).toMatchObject({ timeoutMs: 3_600_000, counted: before });
  });

  test("changes while apply() runs, which waits or goes first", async () => {
    const { table, seen } = declared();
    await table.apply();
    table.removeChain("output");
    const applying = table.apply();
    const putting = seen.put("192.0.2.1");
    expect((await applying).operations.chain.delete).toBe(1);
    expect([await putting, await seen.keys()]).toEqual([true, ["192.0.2.1"]]);
  });

  test("cannot be changed before it is written, or after it was removed", async () => {
    const { table, seen } = declared();
    await expect(seen.put("192.0.2.1")).rejects.toThrow("set seen is not in the kernel. Call apply() first");
    expect(await seen.delete("192.0.2.1")).toBe(false);
    await expect(seen.put("nonsense")).rejects.toThrow(FieldError);
    await expect(seen.put("192.0.2.1", { timeout: 1 } as object)).rejects.toThrow(/did you mean "timeoutMs"/);
    table.removeChain("output");
    table.removeSet("seen");
    await expect(seen.entries()).rejects.toThrow(TableError);
  });
});

test("with another timeout, size or comment, a set keeps its elements, and other rules keep their counters", async () => {
  const started = (options: {
    readonly timeoutMs: number;
    readonly size: number;
    readonly comment?: string;
  }): Table => {
    const table = new Table(kernel, { family: "ip", name: "filled" });
    table.set({ set: "seen", key: ["ipv4_addr"], dynamic: true, ...options });
    table.chain({
      chain: "output",
      base: { type: "filter", hook: "output", priority: "filter" },
      rules: [
        { statements: [{ field: "meta l4proto", value: "udp" }, { action: "counter" }], comment: "all" },
        { statements: [{ action: "update", set: "seen", key: ["daddr"] }] },
        { statements: [{ field: "meta l4proto", value: "icmp" }, { action: "counter" }], comment: "answers" },
      ],
    });
    return table;
  };
  await started({ timeoutMs: 600_000, size: 100 }).apply();
  await send("127.0.0.7", 3);
  const counters = async (): Promise<string[]> =>
    (await namespace.mustRun(["nft", "list", "chain", "ip", "filled", "output"])).match(/packets \d+/g) ?? [];
  expect(await counters()).toEqual(["packets 3", "packets 3"]);
  for (const options of [
    { timeoutMs: 300_000, size: 100 },
    { timeoutMs: 300_000, size: 200 },
    { timeoutMs: 300_000, size: 200, comment: "who was here" },
  ]) {
    const { operations } = await started(options).apply();
    expect(operations).toMatchObject({ set: { add: 1, delete: 1 }, rule: { add: 1, delete: 1 } });
    expect(await counters()).toEqual(["packets 3", "packets 3"]);
    const listed = await namespace.mustRun(["nft", "list", "set", "ip", "filled", "seen"]);
    if ("comment" in options) expect(listed).toContain(options.comment);
    expect(listed).toMatch(/127\.0\.0\.7 .*expires 9m5\ds/);
  }
  // Too small for its elements: they go.
  await started({ timeoutMs: 200_000, size: 1 }).apply();
  expect(await namespace.mustRun(["nft", "list", "set", "ip", "filled", "seen"])).not.toContain("elements");
});

test("a set or map that gets a timeout or counters keeps its elements", async () => {
  const table = new Table(kernel, { family: "ip", name: "filled" });
  const named = { set: "seen", key: ["ipv4_addr"], dynamic: true, size: 100 } as const;
  const seen = table.set(named);
  const map = { set: "backends", key: ["ipv4_addr"], data: ["inet_service"], dynamic: true, size: 100 } as const;
  const backends = table.set(map);
  await table.apply();
  for (let host = 0; host < 21; host++) await seen.put(`192.0.2.${host}`);
  await backends.put("192.0.2.1", 80);
  for (const more of [{ timeoutMs: 600_000 }, { timeoutMs: 600_000, counters: {} }]) {
    const next = table.set({ ...named, ...more });
    const nextMap = table.set({ ...map, ...more });
    expect((await table.apply()).operations.set).toEqual({ add: 2, delete: 2 });
    expect(await next.keys()).toHaveLength(21);
    expect(await nextMap.entries()).toMatchObject([{ key: "192.0.2.1", data: 80, timeoutMs: 600_000 }]);
  }
  expect((await table.apply()).transactions).toBe(0);
});

test("rules with any timeout stay when the program restarts", async () => {
  const started = (): Table => {
    const table = new Table(kernel, { family: "ip", name: "filled" });
    table.set({ set: "seen", key: ["ipv4_addr"], dynamic: true, timeoutMs: 600_000, size: 100 });
    const rules = [1, 5, 1333].map((timeoutMs) => ({
      statements: [{ action: "update", set: "seen", key: ["daddr"], timeoutMs }] as const,
    }));
    table.chain({ chain: "output", rules });
    return table;
  };
  await started().apply();
  expect((await started().apply()).transactions).toBe(0);
});

test("a map that packets fill has data", async () => {
  const table = new Table(kernel, { family: "ip", name: "filled" });
  const backends = table.set({
    set: "backends",
    key: ["ipv4_addr"],
    data: ["ipv4_addr", "inet_service"],
    dynamic: true,
    timeoutMs: 60_000,
    size: 100,
  });
  expectTypeOf(backends).toEqualTypeOf<DynamicMap<readonly ["ipv4_addr"], readonly ["ipv4_addr", "inet_service"]>>();
  await table.apply();
  await backends.put("192.0.2.1", ["198.51.100.1", 80]);
  await backends.put("192.0.2.1", ["198.51.100.2", 80], { timeoutMs: 30_000 });
  expect(await backends.entries()).toEqual([
    { key: "192.0.2.1", data: ["198.51.100.2", 80], timeoutMs: 30_000, leftMs: expect.closeTo(30_000, -4) },
  ]);
  await expect(backends.put("192.0.2.1", ["198.51.100.2", 65_536])).rejects.toThrow(FieldError);
});
