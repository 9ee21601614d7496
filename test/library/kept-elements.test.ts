/** Elements that outlive the program, and lists of elements, on the real kernel. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { FieldError, type Kernel, openKernel, type SetSpec, Table, type TableOptions } from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";

let namespace: Namespace;
let kernel: Kernel;

beforeAll(async () => {
  namespace = await Namespace.create("kept");
  kernel = await openKernel({ netns: `/run/netns/${namespace.name}` });
});
afterAll(async () => {
  await kernel.close();
  await namespace.destroy();
});
afterEach(() => new Table(kernel, { family: "inet", name: "bans" }).destroy());

const nft = (...args: readonly string[]): Promise<string> => namespace.mustRun(["nft", ...args]);

const BANNED = { set: "banned", key: ["ipv4_addr"], timeoutMs: 600_000, keep: true } as const;

type BanSpec = Pick<SetSpec, "set" | "timeoutMs" | "keep" | "comment" | "counters"> & {
  readonly key: readonly ["ipv4_addr"];
};
type Options = Partial<TableOptions> & { readonly hook?: boolean };

/** The program, as it starts: a table with a set of banned addresses, and a rule. */
function started<const Spec extends SetSpec>(spec: Spec, { hook = true, ...options }: Options = {}) {
  const table = new Table(kernel, { family: "inet", name: "bans", ...options });
  const set = table.set(spec);
  const drop = { statements: [{ action: "counter" }, { action: "verdict", verdict: "drop" }] } as const;
  if (hook) table.chain({ chain: "c", base: { type: "filter", hook: "input", priority: 0 }, rules: [drop] });
  return { table, set };
}

test("with keep, a map does not take over values of another type", async () => {
  const map = { set: "banned", key: ["ipv4_addr"], keep: true } as const;
  const first = started({ ...map, data: ["mark"] });
  first.set.put("192.0.2.1", 7);
  await first.table.apply();
  const { table, set } = started({ ...map, data: ["ipv4_addr"] });
  await table.apply();
  expect([set.size, set.keys()]).toEqual([0, []]);
  expect(await nft("list map inet bans banned")).not.toContain("192.0.2.1");
});

describe("with keep, elements stay when the program starts again", () => {
  test("and keep their remaining times", async () => {
    const first = started(BANNED);
    first.set.put("192.0.2.1");
    first.set.put("192.0.2.2", { timeoutMs: 3_600_000 });
    first.set.put("192.0.2.3", { timeoutMs: 2500 });
    await first.table.apply();
    await nft("add element inet bans banned { 192.0.2.4 timeout 90s }");
    await sleep(1500);
    const { table, set } = started(BANNED);
    expect([set.size, set.keys()]).toEqual([0, []]);
    expect(await table.apply()).toMatchObject({ transactions: 0 });
    expect(set.keys().toSorted()).toEqual(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]);
    const left = (address: string): number => Math.ceil(set.get(address)!.leftMs! / 1000);
    expect([left("192.0.2.1"), left("192.0.2.2"), left("192.0.2.4")]).toEqual([
      expect.closeTo(598, -1),
      expect.closeTo(3598, -1),
      expect.closeTo(88, -1),
    ]);
    expect(set.entries().map(({ timeoutMs }) => timeoutMs)).toEqual(expect.arrayContaining([3_600_000, 90_000]));
    await sleep(1500);
    expect([set.has("192.0.2.3"), set.size, (await table.apply()).transactions]).toEqual([false, 3, 0]);
    // They are ours now: they can be removed, and they come back when another process removes them.
    set.delete("192.0.2.1");
    await nft("delete element inet bans banned { 192.0.2.2 }");
    table.invalidate("test");
    expect((await table.apply()).operations.element).toEqual({ add: 1, delete: 1 });
    expect(await nft("list set inet bans banned")).toMatch(/192\.0\.2\.2 timeout 1h expires 59m\d+s/);
    // Elements that another process adds later are removed, as in every set.
    await nft("add element inet bans banned { 192.0.2.9 }");
    expect(await table.check()).toBe("different");
    expect((await table.apply()).operations.element).toEqual({ add: 0, delete: 1 });
  });

  test.each<[title: string, spec: BanSpec, options: Options]>([
    ["another timeout", { ...BANNED, timeoutMs: 60_000 }, {}],
    ["a comment and counters", { ...BANNED, comment: "bans", counters: {} }, {}],
    ["a table with another comment", BANNED, { comment: "bans", hook: false }],
  ])("also with %s", async (_, spec, options) => {
    const first = started(BANNED, { hook: options.hook ?? true });
    first.set.put("192.0.2.1");
    first.set.put("192.0.2.2", { timeoutMs: 3_600_000 });
    await first.table.apply();
    const { table, set } = started(spec, options);
    await table.apply();
    expect(set.size).toBe(2);
    const listed = await nft("list set inet bans banned");
    expect(listed).toMatch(/192\.0\.2\.1 .*expires 9m\d+s/);
    expect(listed).toMatch(/192\.0\.2\.2 .*timeout 1h expires 59m\d+s/);
    table.invalidate("test");
    expect(await table.apply()).toMatchObject({ transactions: 0 });
  });

  test("in maps, concatenations and sets of networks", async () => {
    const declared = () => {
      const { table, set } = started({ ...BANNED, key: ["ipv4_addr", "inet_proto", "inet_service"] });
      const owners = table.set({ set: "owners", key: ["inet_service"], data: ["mark"], keep: true });
      const networks = table.set({ set: "networks", key: ["ipv4_addr"], interval: true, keep: true });
      return { table, set, owners, networks };
    };
    const first = declared();
    first.set.put(["192.0.2.1", "tcp", 22]);
    first.owners.put(80, 7);
    await first.networks.replace(["198.51.100.0/24", "203.0.113.7"]);
    await first.table.apply();
    const { table, set, owners, networks } = declared();
    await table.load();
    expect(set.keys()).toEqual([["192.0.2.1", 6, 22]]);
    expect(owners.entries()).toEqual([{ key: 80, data: 7 }]);
    expect(networks.networks()).toEqual(["198.51.100.0/24", "203.0.113.7"]);
    owners.delete(80);
    expect((await table.apply()).operations.element).toEqual({ add: 0, delete: 1 });
  });

  test("but not those that overlap a range that the program put before it read them", async () => {
    const spec = { set: "banned", key: ["ipv4_addr"], interval: true, keep: true } as const;
    const tuples = { ...spec, set: "tuples", key: ["ipv4_addr", "inet_service"] } as const;
    const first = started(spec);
    for (const net of ["10.0.0.0/24", "10.1.0.0/24", "192.0.2.0/24"]) first.set.put(net);
    const firstTuples = first.table.set(tuples);
    firstTuples.put(["10.0.0.0/24", { from: 1, to: 9 }]);
    firstTuples.put(["10.0.0.0/24", { from: 10, to: 19 }]);
    await first.table.apply();
    const { table, set } = started(spec);
    const wider = table.set(tuples);
    set.put("10.0.0.0/8");
    wider.put(["10.0.0.0-10.0.0.9", 9]);
    await table.apply();
    expect(set.networks()).toEqual(["10.0.0.0/8", "192.0.2.0/24"]);
    expect(wider.keys()).toEqual(
      expect.arrayContaining([
        ["10.0.0.0/24", { from: 10, to: 19 }],
        ["10.0.0.0-10.0.0.9", 9],
      ]),
    );
    expect([wider.size, await table.check(), (await table.apply()).transactions]).toEqual([2, "same", 0]);
  });

  test("but not after replace() or clear(), which name the whole content", async () => {
    const declared = () => {
      const { table, set } = started({ set: "banned", key: ["ipv4_addr"], interval: true, keep: true });
      return { table, set, plain: table.set({ set: "plain", key: ["inet_service"], keep: true }) };
    };
    const first = declared();
    await first.set.replace(["10.0.0.0/24", "192.0.2.0/24"]);
    await first.plain.replace([22, 80]);
    await first.table.apply();
    const { table, set, plain } = declared();
    await set.replace(["10.0.0.0/16"]);
    plain.clear();
    await table.apply();
    expect([set.networks(), plain.keys(), await table.check()]).toEqual([["10.0.0.0/16"], [], "same"]);
    expect(await nft("list set inet bans banned")).toContain("elements = { 10.0.0.0/16 }");
  });

  test("but not in a set whose content has other types", async () => {
    const first = started(BANNED);
    first.set.put("192.0.2.1");
    await first.table.apply();
    const { table, set } = started({ ...BANNED, key: ["mark"] });
    await table.apply();
    expect(set.size).toBe(0);
  });

  test("and is refused for elements that refer to chains, and for sets that packets fill", () => {
    const table = new Table(kernel, { family: "inet", name: "bans" });
    expect(() => table.set({ set: "s", key: ["mark"], data: "verdict", keep: true })).toThrow(FieldError);
    expect(() => table.set({ set: "s", key: ["mark"], dynamic: true, keep: true })).toThrow(
      "set s, keep: expected a set that is not dynamic, and no map of verdicts or objects, found true",
    );
  });
});

describe("the comment of an element", () => {
  const list = (): Promise<string> => nft("list set inet bans banned");

  test("is written, listed, changed and kept", async () => {
    const first = started(BANNED);
    first.set.put("192.0.2.1", { comment: "ssh: 3 failures" });
    first.set.put("192.0.2.2");
    const marks = first.table.set({ set: "marks", key: ["inet_service"], data: ["mark"], keep: true });
    marks.put(80, 7, { comment: "web" });
    await first.table.apply();
    expect(await list()).toMatch(/192\.0\.2\.1 .*comment "ssh: 3 failures"/);
    expect(await nft("list map inet bans marks")).toContain('80 comment "web" : 0x00000007');
    first.table.invalidate("test");
    expect((await first.table.apply()).transactions).toBe(0);

    const { table, set } = started(BANNED);
    const kept = table.set({ set: "marks", key: ["inet_service"], data: ["mark"], keep: true });
    await table.load();
    expect([set.get("192.0.2.1")?.comment, set.get("192.0.2.2")?.comment]).toEqual(["ssh: 3 failures", undefined]);
    expect(kept.entries()).toEqual([{ key: 80, data: 7, comment: "web" }]);
    expect([set.put("192.0.2.1"), set.put("192.0.2.1", { comment: "again" })]).toEqual([false, true]);
    expect((await table.plan()).text).toMatch(/add element .*192\.0\.2\.1 timeout 10m expires \S+ comment "again"/);
    expect((await table.apply()).operations.element).toEqual({ add: 1, delete: 1 });
    expect(await list()).toMatch(/192\.0\.2\.1 .*expires 9m5\ds.*comment "again"/);
    expect((await table.apply()).transactions).toBe(0);
    set.delete("192.0.2.1");
    set.put("192.0.2.1");
    await table.apply();
    expect(await list()).not.toContain("again");
  });

  test("is written again after another process changed it", async () => {
    const { table, set } = started({ ...BANNED, timeoutMs: 0 });
    set.put("192.0.2.1", { comment: "ours" });
    set.put("192.0.2.2");
    await table.apply();
    await nft(
      'delete element inet bans banned { 192.0.2.1, 192.0.2.2 }; add element inet bans banned { 192.0.2.1 comment "theirs", 192.0.2.2 comment "theirs" }',
    );
    expect(await table.check()).toBe("different");
    const { operations, drift } = await table.apply();
    expect([operations.element, drift?.total]).toEqual([{ add: 2, delete: 2 }, 1]);
    expect(await list()).toContain('elements = { 192.0.2.1 comment "ours", 192.0.2.2 }');
    expect(await table.check()).toBe("same");
  });

  test("of a dynamic set can be read and written", async () => {
    const table = new Table(kernel, { family: "inet", name: "bans" });
    const seen = table.set({ set: "banned", key: ["ipv4_addr"], dynamic: true, timeoutMs: 60_000, size: 100 });
    await table.apply();
    await seen.put("192.0.2.1", { comment: "by hand" });
    expect((await seen.get("192.0.2.1"))?.comment).toBe("by hand");
    expect(await list()).toContain('comment "by hand"');
    expect(() => started(BANNED).set.put("192.0.2.1", { comment: 'a "quote"' })).toThrow(FieldError);
  });
});

describe("a handle lists its elements", () => {
  test("with values, times and counts", async () => {
    const { table, set } = started({ ...BANNED, key: ["ipv4_addr", "inet_proto"], counters: {} });
    const owners = table.set({ set: "owners", key: ["ipv6_addr"], data: ["ipv6_addr", "inet_service"] });
    const ports = table.set({ set: "ports", key: ["inet_service"], data: "verdict", timeoutMs: 0 });
    set.put(["192.0.2.1", "udp"]);
    owners.put("2001:db8::1", ["2001:db8::2", 443]);
    ports.put(80, "goto c");
    ports.put(81, "drop", { timeoutMs: 60_000 });
    const counted = { packets: 0, bytes: 0 };
    const entry = { key: ["192.0.2.1", 17], timeoutMs: 600_000, leftMs: expect.closeTo(600_000, -4), counted };
    expect([set.entries(), set.get(["192.0.2.1", 17])]).toEqual([[entry], entry]);
    expect(set.get(["192.0.2.1", "tcp"])).toBeUndefined();
    expect(owners.entries()).toEqual([{ key: "2001:db8::1", data: ["2001:db8::2", 443] }]);
    expect([owners.keys(), owners.get("2001:db8::9")]).toEqual([["2001:db8::1"], undefined]);
    expect(ports.entries()).toEqual([
      { key: 80, data: "goto c" },
      { key: 81, data: "drop", timeoutMs: 60_000, leftMs: expect.closeTo(60_000, -4) },
    ]);
    // The listed values can be put again.
    for (const { key } of set.entries()) expect(set.put(key)).toBe(false);
    for (const { key, data } of owners.entries()) expect(owners.put(key, data)).toBe(false);
    for (const { key, data } of ports.entries()) expect(ports.put(key, data)).toBe(false);
  });
});
