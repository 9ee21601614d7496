/** Information on sets and conntrack entries is true: after removal, for output that is used as input again, in types, and when printed. */
import { inspect } from "node:util";
import { afterAll, beforeAll, describe, expect, expectTypeOf, test } from "vitest";
import { type ConntrackEntry, openConntrack } from "@nft-proxier/nft/conntrack";
import {
  type DataMap,
  type DynamicMap,
  type DynamicSet,
  FieldError,
  type Kernel,
  type FieldsRange,
  type FieldType,
  type NetworkSet,
  type RangeSet,
  type ObjectMap,
  openKernel,
  type PlainSet,
  type SetSpec,
  Table,
  TableError,
  type VerdictMap,
} from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";

let namespace: Namespace;
let kernel: Kernel;

beforeAll(async () => {
  namespace = await Namespace.create("handles");
  await namespace.ip(["link set lo up"]);
  await namespace.sysctl({ "net.netfilter.nf_conntrack_acct": 1 });
  kernel = await openKernel({ netns: `/run/netns/${namespace.name}` });
});
afterAll(async () => {
  await kernel.close();
  await namespace.destroy();
});

describe("a handle of a set", () => {
  const declared = (): Table => new Table(kernel, { family: "ip", name: "handles" });

  test("cannot be changed while apply() runs, and the error says what to do", async () => {
    const table = declared();
    const plain = table.set({ set: "s", key: ["ipv4_addr"] });
    const networks = table.set({ set: "n", key: ["ipv4_addr"], interval: true });
    const verdicts = table.set({ set: "v", key: ["mark"], data: "verdict" });
    plain.put("192.0.2.1");
    for (const run of [
      () => table.load(),
      () => table.apply(),
      () => Promise.all([table.apply(), table.apply()]),
      () => plain.replace(["192.0.2.1"]),
    ]) {
      const desired = table.render();
      const running = run();
      for (const change of [
        () => plain.put("192.0.2.2"),
        () => plain.delete("192.0.2.1"),
        () => plain.clear(),
        () => networks.put("192.0.2.0/24"),
        () => verdicts.put(1, "drop"),
        () => table.set({ set: "later", key: ["mark"] }),
        () => table.removeSet("s"),
        () => table.chain({ chain: "c", rules: [] }),
        () => table.removeChain("c"),
      ])
        expect(change).toThrow(
          expect.objectContaining({ code: "busy", message: expect.stringContaining("Await it first") }),
        );
      expect([table.render(), plain.has("192.0.2.1")]).toEqual([desired, true]);
      await running;
    }
    expect(plain.put("192.0.2.2")).toBe(true);
    expect((await table.apply()).operations.element.add).toBe(1);
    await table.destroy();
  });

  test("replaces its content in the order of the calls, between load() and apply()", async () => {
    const table = declared();
    const plain = table.set({ set: "s", key: ["ipv4_addr"] });
    const networks = table.set({ set: "n", key: ["ipv4_addr"], interval: true });
    const list = ["192.0.2.1"];
    const calls = [
      plain.replace(list),
      networks.replace(["198.51.100.0/24"]),
      table.apply(),
      plain.replace(["192.0.2.2", "192.0.2.3"]),
      networks.replace(["198.51.100.0/33"]),
      table.apply(),
    ];
    list.push("192.0.2.9");
    expect((await Promise.allSettled(calls)).map(({ status }) => status === "fulfilled")).toEqual([
      ...[true, true, true, true, false, true],
    ]);
    const applied = await Promise.all([calls[2], calls[5]]);
    expect(applied).toEqual([
      expect.objectContaining({ operations: expect.objectContaining({ element: { add: 3, delete: 0 } }) }),
      expect.objectContaining({ operations: expect.objectContaining({ element: { add: 2, delete: 1 } }) }),
    ]);
    expect([plain.keys().toSorted(), networks.networks()]).toEqual([["192.0.2.2", "192.0.2.3"], ["198.51.100.0/24"]]);
    await table.destroy();
  });

  test("fails after the set was removed, or declared with other types", async () => {
    const table = declared();
    const first = table.set({ set: "s", key: ["ipv4_addr"] });
    first.put("192.0.2.1");
    // Its keys have the same width.
    const second = table.set({ set: "s", key: ["mark"] });
    expect(second.size).toBe(0);
    for (const use of [
      () => first.put("192.0.2.2"),
      () => first.size,
      () => first.has("192.0.2.1"),
      () => first.clear(),
    ])
      expect(use).toThrow(TableError);
    second.put(1);
    table.removeSet("s");
    expect(() => second.put(2)).toThrow("set s was removed from the table");
    const third = table.set({ set: "s", key: ["mark"] });
    expect(() => second.put(2)).toThrow(TableError);
    expect([third.put(3), third.size]).toEqual([true, 1]);
    const networks = table.set({ set: "n", key: ["ipv4_addr"], interval: true });
    table.removeSet("n");
    await expect(networks.replace(["192.0.2.0/24"])).rejects.toThrow(TableError);
  });

  test("still works when the set is declared again with the same types", () => {
    const table = declared();
    const first = table.set({ set: "s", key: ["ipv4_addr"] });
    first.put("192.0.2.1");
    const second = table.set({ set: "s", key: ["ipv4_addr"], comment: "again" });
    expect([first.put("192.0.2.2"), second.size, second.put("192.0.2.2")]).toEqual([true, 2, false]);
  });

  test("a set of networks accepts the values that it returns", async () => {
    const set = declared().set({ set: "s", key: ["ipv4_addr"], interval: true });
    await set.replace(["192.0.2.0/31", "192.0.2.2", "198.51.100.0/24"]);
    const networks = set.networks();
    expect(networks).toEqual(["192.0.2.0-192.0.2.2", "198.51.100.0/24"]);
    await set.replace(networks);
    expect(set.networks()).toEqual(networks);
    for (const wrong of ["192.0.2.9-192.0.2.1", "192.0.2.1-2001:db8::1", "192.0.2.1-", "192.0.2.0/24-192.0.2.9"])
      await expect(set.replace([wrong])).rejects.toThrow(FieldError);
    expect(set.networks()).toEqual(networks);
  });

  test("a set of interfaces refuses prefixes, because none would match", () => {
    const set = declared().set({ set: "s", key: ["ifname"] });
    expect(() => set.put("veth*")).toThrow(
      'set s, key (ifname): expected an interface\'s name of 1 to 15 bytes, without * (prefixes need a set with interval: true), found "veth*"',
    );
    expect(set.put("eth0")).toBe(true);
  });

  test("has a union type if the specification leaves the type open", () => {
    const table = declared();
    const spec: SetSpec = { set: "s", key: ["ipv4_addr"], interval: Math.random() < 2 };
    const open = table.set(spec);
    type Fields = readonly FieldType[];
    type OfRanges = RangeSet | VerdictMap<Fields, FieldsRange<Fields>> | DataMap<Fields, Fields, FieldsRange<Fields>>;
    type Every = OfRanges | DynamicSet | DynamicMap | VerdictMap | DataMap | ObjectMap | PlainSet;
    expectTypeOf(open).toEqualTypeOf<Every>();
    expectTypeOf(table.set({ set: "a", key: ["mark"] })).toEqualTypeOf<PlainSet<readonly ["mark"]>>();
    expectTypeOf(table.set({ set: "b", key: ["ipv4_addr"], interval: true })).toEqualTypeOf<NetworkSet>();
    expectTypeOf(table.set({ set: "c", key: ["mark"], data: "verdict" })).toEqualTypeOf<
      VerdictMap<readonly ["mark"]>
    >();
  });

  test("reads the elements' counters", async () => {
    const table = declared();
    const clients = table.set({ set: "clients", key: ["ipv4_addr"], counters: {} });
    const ports = table.set({ set: "ports", key: ["inet_service"], counters: {} });
    clients.put("127.0.0.1");
    clients.put("127.0.0.2");
    ports.put(9);
    table.chain({
      chain: "output",
      base: { type: "filter", hook: "output", priority: "filter" },
      rules: [
        { statements: [{ field: "daddr", value: "@clients" }] },
        {
          statements: [
            { field: "meta l4proto", value: "udp" },
            { field: "th dport", value: "@ports" },
          ],
        },
      ],
    });
    await table.apply();
    const script = `const s = require("dgram").createSocket("udp4"); s.send("12345678", 9, "127.0.0.1", () => s.close())`;
    await namespace.mustRun([process.execPath, "-e", script]);
    expect(clients.counted("127.0.0.1")).toEqual({ packets: 0, bytes: 0 });
    await table.readCounters();
    // Includes the answer that nothing listens.
    expect(clients.counted("127.0.0.1")).toEqual({ packets: 2, bytes: 36 + 64 });
    expect([clients.counted("127.0.0.2"), ports.counted(9)]).toEqual([
      { packets: 0, bytes: 0 },
      { packets: 1, bytes: 36 },
    ]);
    expect(clients.counted("127.0.0.3")).toBeUndefined();
    expect(() => table.set({ set: "s", key: ["mark"] }).counted(1)).toThrow(FieldError);
    await table.destroy();
  });
});

describe("a conntrack entry", () => {
  const client = { source: "10.1.1.1", destination: "192.0.2.1", sourcePort: 1234, destinationPort: 80 };
  const original = { ...client, protocol: 6 };
  const reply = { source: "192.0.2.1", destination: "10.1.1.1", protocol: 6, sourcePort: 80, destinationPort: 1234 };

  test("prints, spreads, clones and becomes JSON with all of its fields", async () => {
    const conntrack = await openConntrack({ netns: `/run/netns/${namespace.name}` });
    await conntrack.create({ family: "ip", original, reply, timeout: 300, state: "ESTABLISHED", mark: 7 });
    const entries: ConntrackEntry[] = [];
    await conntrack.dump({ mark: { value: 7 } }, (some) => void entries.push(...some));
    entries.push((await conntrack.get({ ...client, protocol: "tcp" }))!);
    expect(entries).toHaveLength(2);
    for (const entry of entries) {
      const expected = { original, reply, mark: 7, state: "ESTABLISHED" };
      expect({ ...entry }).toMatchObject(expected);
      expect(structuredClone(entry)).toMatchObject(expected);
      expect(inspect(entry)).toContain("source: '10.1.1.1'");
      expect(entry.counters?.original.packets).toBe(0n);
      const none = { packets: "0", bytes: "0" };
      expect(JSON.parse(JSON.stringify({ ...entry }))).toMatchObject({ ...expected, counters: { original: none } });
    }
    expect(await conntrack.delete(structuredClone(entries[0]))).toBe(true);
    await conntrack.close();
  });

  test("is requested by methods that reject their promise, and never throw", async () => {
    const conntrack = await openConntrack({ netns: `/run/netns/${namespace.name}` });
    const wrong: Record<string, () => Promise<unknown>> = {
      get: () => conntrack.get({ source: "x", destination: "y", protocol: "tcp" }),
      dump: () => conntrack.dump({ protocol: "nope" as "tcp" }, () => undefined),
      "dump with an empty filter": () => conntrack.dump(undefined as unknown as object, () => undefined),
      deleteMatching: () => conntrack.deleteMatching({ protocol: 300 }),
      "deleteMatching with inherited fields": () => conntrack.deleteMatching(Object.create({ protocol: 6 }) as object),
      create: () => conntrack.create({ family: "ip", original, reply, timeuot: 1 } as never),
      update: () => conntrack.update({} as ConntrackEntry, { marks: 1 } as object),
      watch: () =>
        conntrack.watch({ onnew: () => undefined, onLost: () => undefined, onError: () => undefined } as never),
      openConntrack: () => openConntrack({ namespace: "x" } as object),
    };
    for (const [name, call] of Object.entries(wrong)) {
      let promise: Promise<unknown> | undefined;
      expect(() => (promise = call()), name).not.toThrow();
      await expect(promise, name).rejects.toBeInstanceOf(FieldError);
    }
    await conntrack.close();
  });
});
