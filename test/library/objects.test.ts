/** Named objects: declared, referred to by rules and maps, read and reset, on the real kernel with packets. */
import { afterAll, afterEach, beforeAll, describe, expect, expectTypeOf, test } from "vitest";
import {
  type Counted,
  CountingObject,
  FieldError,
  type Kernel,
  type NamedObject,
  openKernel,
  type ObjectKind,
  type ObjectSpec,
  type QuotaUse,
  Table,
  TableError,
  TableWatch,
} from "@nft-proxier/nft";
import { type ConntrackEntry, openConntrack } from "@nft-proxier/nft/conntrack";
import { FakeKernel } from "@nft-proxier/nft/testing";
import { eventually } from "../lab/eventually.ts";
import { Namespace } from "../lab/namespace.ts";

let namespace: Namespace;
let kernel: Kernel;

beforeAll(async () => {
  namespace = await Namespace.create("objects");
  await namespace.ip(["link set lo up"]);
  kernel = await openKernel({ netns: `/run/netns/${namespace.name}` });
});
afterAll(async () => {
  await kernel.close();
  await namespace.destroy();
});
afterEach(() => new Table(kernel, { family: "inet", name: "named" }).destroy());

const nft = (...args: readonly string[]): Promise<string> => namespace.mustRun(["nft", ...args]);
const input = (text: string, ...args: readonly string[]): Promise<string> =>
  namespace.mustRun(["nft", ...args, "-f", "-"], { input: text });
const newTable = (): Table => new Table(kernel, { family: "inet", name: "named" });

/** Sends packets of 36 bytes. */
async function send(address: string, packets = 1): Promise<void> {
  const script = `const s = require("dgram").createSocket("udp4"); let left = ${packets};
    const next = () => left-- === 0 ? s.close() : s.send("12345678", 9, "${address}", next); next()`;
  await namespace.mustRun([process.execPath, "-e", script]);
}

const OUTPUT = { type: "filter", hook: "output", priority: "filter" } as const;
const SENT = { field: "th dport", value: 9 } as const;
const UDP = { field: "meta l4proto", value: "udp" } as const;
const DROP = { action: "verdict", verdict: "drop" } as const;
const COUNT = { action: "counter" } as const;

/** Counts the packets to port 9, up to a quota, and by destination. */
function declared(quota = 100) {
  const table = newTable();
  const sent = table.object({ object: "sent", kind: "counter", comment: "to port 9" });
  const most = table.object({ object: "most", kind: "quota", bytes: quota, over: true });
  const [one, two] = [
    table.object({ object: "one", kind: "counter" }),
    table.object({ object: "two", kind: "counter" }),
  ];
  const byAddress = table.set({ set: "by-address", key: ["ipv4_addr"], data: { object: "counter" } });
  byAddress.put("127.0.0.1", "one");
  byAddress.put("127.0.0.2", "two", { comment: "second" });
  table.chain({
    chain: "output",
    base: OUTPUT,
    rules: [
      { statements: [UDP, SENT, COUNT, { action: "object", kind: "counter", name: "sent" }] },
      { statements: [UDP, SENT, { action: "object", kind: "counter", key: ["daddr"], map: "by-address" }] },
      { statements: [UDP, SENT, { action: "object", kind: "quota", name: "most" }, DROP] },
    ],
  });
  return { table, sent, most, one, two, byAddress };
}

describe("counters and quotas", () => {
  test("count packets, by name and by map, and are read and reset", async () => {
    const { table, sent, most, one, two } = declared();
    expect([await sent.read(), await most.reset()]).toEqual([undefined, undefined]);
    expect((await table.apply()).operations.object).toEqual({ add: 4, delete: 0 });
    expect(await most.read()).toEqual({ consumed: 0, bytes: 100, depleted: false });
    await send("127.0.0.1", 2);
    await send("127.0.0.2", 1);
    expect(await sent.read()).toEqual({ packets: 3, bytes: 108 });
    expect([await one.read(), await two.read()]).toEqual([
      { packets: 2, bytes: 72 },
      { packets: 1, bytes: 36 },
    ]);
    expect(await most.read()).toEqual({ consumed: 100, bytes: 100, depleted: true });
    expect(await sent.reset()).toEqual({ packets: 3, bytes: 108 });
    expect(await most.reset()).toMatchObject({ consumed: 100, depleted: true });
    expect([await sent.read(), await most.read()]).toEqual([
      { packets: 0, bytes: 0 },
      { consumed: 0, bytes: 100, depleted: false },
    ]);
    // A reset changes nothing that an apply compares.
    expect([await table.check(), (await table.apply()).transactions]).toEqual(["same", 0]);
  });

  test("are listed by nft, and stay when the program starts again", async () => {
    const { table } = declared();
    await table.apply();
    await send("127.0.0.1", 1);
    const listed = await nft("list", "ruleset");
    expect(listed).toMatch(/counter sent \{\s+comment "to port 9"\s+packets 1 bytes 36/);
    expect(listed).toMatch(/quota most \{\s+over 100 bytes used 36 bytes/);
    expect(listed).toContain("type ipv4_addr : counter");
    expect(listed).toMatch(/127\.0\.0\.2 comment "second" : "two"/);
    expect(listed).toContain('counter name "sent"');
    expect(listed).toContain("counter name ip daddr map @by-address");
    expect(listed).toContain('quota name "most" drop');
    const next = declared();
    expect((await next.table.apply()).transactions).toBe(0);
    expect(await next.sent.read()).toEqual({ packets: 1, bytes: 36 });
    expect(next.byAddress.entries().map(({ key, data }) => [key, data])).toEqual([
      ["127.0.0.1", "one"],
      ["127.0.0.2", "two"],
    ]);
  });

  test("a quota changes in place: it keeps its use, and rules keep their counters", async () => {
    const { table, most } = declared();
    await table.apply();
    await send("127.0.0.1", 2);
    table.object({ object: "most", kind: "quota", bytes: 200, over: true });
    const { operations } = await table.apply();
    expect([operations.object, operations.rule]).toEqual([
      { add: 1, delete: 0 },
      { add: 0, delete: 0 },
    ]);
    expect(await most.read()).toEqual({ consumed: 72, bytes: 200, depleted: false });
    expect(await nft("list", "chain", "inet", "named", "output")).toContain("counter packets 2 bytes 72");
  });

  test("a counter with another comment is created again, and keeps its counts", async () => {
    const { table, one, sent } = declared();
    await table.apply();
    await send("127.0.0.1", 2);
    table.object({ object: "one", kind: "counter", comment: "first" });
    expect((await table.plan()).text).toMatch(/counter one \{\s+comment "first"\s+packets 2 bytes 72/);
    const { operations } = await table.apply();
    // The map with its elements, and the rule that looks them up.
    expect([operations.object, operations.rule, operations.set]).toEqual([
      { add: 1, delete: 1 },
      { add: 1, delete: 1 },
      { add: 1, delete: 1 },
    ]);
    await send("127.0.0.1", 1);
    expect([await one.read(), await sent.read()]).toEqual([
      { packets: 3, bytes: 108 },
      { packets: 3, bytes: 108 },
    ]);
    expect(await nft("list", "chain", "inet", "named", "output")).toContain("counter packets 3 bytes 108");
  });

  test("keep their counts when the table is written from scratch", async () => {
    const { table, sent, most } = declared();
    await table.apply();
    await send("127.0.0.1", 2);
    await table.apply({ rebuild: true });
    expect([await sent.read(), await most.read()]).toEqual([
      { packets: 2, bytes: 72 },
      { consumed: 72, bytes: 100, depleted: false },
    ]);
  });

  test("are removed with the rules and elements that refer to them", async () => {
    const { table, byAddress, sent, two } = declared();
    await table.apply();
    table.removeObject({ kind: "counter", object: "sent" });
    table.removeObject({ kind: "counter", object: "two" });
    byAddress.delete("127.0.0.2");
    table.chain({ chain: "output", base: OUTPUT, rules: [{ statements: [UDP, SENT, COUNT] }] });
    const { operations } = await table.apply();
    expect([operations.object.delete, operations.element]).toEqual([2, { add: 0, delete: 1 }]);
    await expect(sent.read()).rejects.toThrow(/counter sent was removed from the table/);
    await expect(two.reset()).rejects.toBeInstanceOf(TableError);
    // Objects of an earlier run, too.
    const next = newTable();
    expect((await next.apply()).operations.object.delete).toBe(2);
    expect(await nft("list", "table", "inet", "named")).toBe("table inet named {\n}\n");
  });

  test("are repaired after changes by another program", async () => {
    const { table, most, sent } = declared();
    await table.apply();
    await send("127.0.0.1", 1);
    await nft("add", "quota", "inet", "named", "most", "{ 5 bytes; }");
    await nft("add", "counter", "inet", "named", "stray");
    expect(await table.check()).toBe("different");
    const { drift, operations } = await table.apply();
    expect(drift?.changes).toEqual(["quota most: definition changed", "counter stray: added"]);
    expect(operations.object).toEqual({ add: 1, delete: 1 });
    expect([await most.read(), await sent.read()]).toEqual([
      { consumed: 36, bytes: 100, depleted: false },
      { packets: 1, bytes: 36 },
    ]);
    await nft("delete", "table", "inet", "named");
    table.invalidate("the table was deleted");
    await table.apply();
    expect(await sent.read()).toEqual({ packets: 0, bytes: 0 });
  });
});

test("a quota that packets deplete is no change by another program", async () => {
  const table = new Table(kernel, { family: "ip", name: "named" });
  const most = table.object({ object: "most", kind: "quota", bytes: 100 });
  const quota = { action: "object", kind: "quota", name: "most" } as const;
  table.chain({ chain: "output", base: OUTPUT, rules: [{ statements: [UDP, quota] }] });
  await table.apply();
  const told: string[] = [];
  const watch = new TableWatch(kernel, [table], {
    changed: (_, { changes }) => void told.push(...changes),
    lost: (reason) => void told.push(reason),
    failed: (error) => void told.push(String(error)),
  });
  await watch.open();
  await send("127.0.0.1", 5);
  expect(await most.read()).toMatchObject({ depleted: true });
  await nft("add", "counter", "ip", "named", "stray");
  await eventually(() => expect(told).toContain("object stray added"));
  await watch.close();
  await table.destroy();
  expect(told).toEqual(["object stray added"]);
});

const KINDS: readonly ObjectSpec[] = [
  { object: "o", kind: "counter", comment: "a comment" },
  { object: "o", kind: "quota", bytes: 1_000_000 },
  { object: "p", kind: "quota", bytes: 25_000_000, over: true, comment: "b" },
  { object: "o", kind: "limit", rate: 10, per: "second" },
  { object: "p", kind: "limit", rate: 400, per: "minute", burst: 20, over: true, comment: "c" },
  { object: "q", kind: "limit", rate: 10_240, per: "hour", unit: "bytes", burst: 2000 },
  { object: "r", kind: "limit", rate: 1, per: "day", unit: "kbytes", over: true },
  { object: "s", kind: "limit", rate: 1, per: "day", burst: 0 },
  { object: "o", kind: "ct helper", helper: "ftp", protocol: "tcp", comment: "d" },
  { object: "p", kind: "ct helper", helper: "tftp", protocol: "udp", l3proto: "ip6" },
  { object: "o", kind: "ct timeout", protocol: "tcp", policy: { established: 100, close: 4 }, comment: "e" },
  { object: "p", kind: "ct timeout", protocol: "udp", l3proto: "ip", policy: { unreplied: 7, replied: 9 } },
  { object: "o", kind: "ct expectation", protocol: "udp", dport: 9876, timeout: 120, size: 12, l3proto: "ip" },
  { object: "o", kind: "synproxy", mss: 1460, wscale: 7, timestamp: true, sackPerm: true, comment: "f" },
  { object: "p", kind: "synproxy", mss: 1400, wscale: 0 },
];

/** Declares all kinds, a map for each, and rules that refer to them by name and by map. */
function everyKind(table: Table, ofMap: readonly ObjectKind[] = KINDS.map(({ kind }) => kind)): Table {
  const byName = KINDS.map(({ kind, object }) => ({ action: "object", kind, name: object }) as const);
  const byMap = [...new Set(ofMap)].map(
    (kind) => ({ action: "object", kind, key: ["saddr"], map: `of-${kind.replace(" ", "-")}` }) as const,
  );
  for (const spec of KINDS) table.object(spec);
  for (const { kind, map: set } of byMap)
    table.set({ set, key: ["ipv4_addr"], data: { object: kind } }).put("192.0.2.1", "o");
  table.chain({
    chain: "every",
    base: { type: "filter", hook: "forward", priority: "filter" },
    rules: [...byName, ...byMap].map((action) => ({ statements: [{ field: "meta l4proto", value: "tcp" }, action] })),
  });
  return table;
}

async function connectionsTo(destination: string): Promise<ConntrackEntry[]> {
  const conntrack = await openConntrack({ netns: `/run/netns/${namespace.name}` });
  const found: ConntrackEntry[] = [];
  await conntrack.dump({}, (entries) => {
    found.push(...entries.filter(({ original }) => original.destination === destination));
  });
  await conntrack.close();
  return found;
}

describe("packets", () => {
  const base = OUTPUT;

  test("pass up to a limit, which is used by name", async () => {
    const table = newTable();
    table.object({ object: "few", kind: "limit", rate: 1, per: "hour", burst: 2 });
    const passed = table.object({ object: "passed", kind: "counter" });
    const statements = [
      UDP,
      SENT,
      { action: "object", kind: "limit", name: "few" },
      { action: "object", kind: "counter", name: "passed" },
    ] as const;
    table.chain({ chain: "output", base, rules: [{ statements }] });
    await table.apply();
    await send("127.0.0.1", 5);
    expect(await passed.read()).toMatchObject({ packets: 2 });
  });

  test("get timeouts, and expect connections, for as many seconds as declared", async () => {
    const table = newTable();
    table.object({ object: "long", kind: "ct timeout", protocol: "udp", policy: { unreplied: 777 } });
    const to = { protocol: "udp", dport: 9876, timeout: 100, size: 1, l3proto: "ip" } as const;
    table.object({ object: "second", kind: "ct expectation", ...to });
    const statements = [
      UDP,
      SENT,
      { action: "object", kind: "ct timeout", name: "long" },
      { action: "object", kind: "ct expectation", name: "second" },
    ] as const;
    table.chain({ chain: "output", base, rules: [{ statements }] });
    await table.apply();
    await send("127.0.0.3");
    const read = (file: string): Promise<string> => namespace.mustRun(["cat", `/proc/net/${file}`]);
    expect(await read("nf_conntrack_expect")).toMatch(/^(100|9\d) .* src=127\.0\.0\.3 .*dport=9876/m);
    const timeouts = (await connectionsTo("127.0.0.3")).map(({ timeout }) => timeout);
    expect(timeouts).toEqual([expect.closeTo(775, -1)]);
  });

  test("get a helper, from a map", async () => {
    const table = newTable();
    table.object({ object: "files", kind: "ct helper", helper: "tftp", protocol: "udp" });
    const helpers = table.set({ set: "helpers", key: ["inet_service"], data: { object: "ct helper" } });
    helpers.put(9, "files");
    const action = { action: "object", kind: "ct helper", key: ["th dport"], map: "helpers" } as const;
    table.chain({ chain: "output", base, rules: [{ statements: [UDP, action] }] });
    await table.apply();
    await send("127.0.0.4");
    // IPS_HELPER
    expect((await connectionsTo("127.0.0.4")).map(({ status }) => (status ?? 0) & 0x2000)).toEqual([0x2000]);
  });
});

describe("every kind", () => {
  test("is written, and found unchanged by the next run", async () => {
    const table = everyKind(newTable());
    await table.apply();
    expect(await table.check()).toBe("same");
    expect((await everyKind(newTable()).apply()).transactions).toBe(0);
    expect(await kernel.objects(table.ref)).toHaveLength(KINDS.length);
    const listed = await nft("list", "ruleset");
    for (const words of [
      'counter name "o"',
      "quota name ip saddr map @of-quota",
      'limit name "q"',
      'ct helper set "p"',
      "ct timeout set ip saddr map @of-ct-timeout",
      'ct expectation set "o"',
      'synproxy name "p"',
      "policy = { established : 100, close : 4 }",
    ])
      expect(listed).toContain(words);
  });

  test("is the same when nft writes it, from the text of the table and of its plan", async () => {
    // nft 1.0.6 cannot read named maps of the others.
    const maps = ["counter", "quota", "limit", "synproxy"] as const;
    const table = everyKind(newTable(), maps);
    for (const text of [table.render(), (await table.plan()).text]) {
      expect(await input(text, "-c")).toBe("");
      await input(text);
      expect((await everyKind(newTable(), maps).apply()).transactions).toBe(0);
      await nft("delete", "table", "inet", "named");
    }
    expect(everyKind(newTable()).render()).toContain("typeof ip daddr : ct helper");
  });

  test("is written again if its definition changes, with the rules and maps that refer to it", async () => {
    const table = everyKind(newTable());
    await table.apply();
    table.object({ object: "o", kind: "limit", rate: 20, per: "second" });
    table.object({ object: "o", kind: "ct timeout", protocol: "tcp", policy: { established: 200 }, comment: "e" });
    table.object({ object: "p", kind: "synproxy", mss: 1300, wscale: 0 });
    const { operations } = await table.apply();
    expect(operations).toMatchObject({
      object: { add: 3, delete: 2 },
      rule: { add: 4, delete: 4 },
      set: { add: 2, delete: 2 },
    });
    expect((await table.apply()).transactions).toBe(0);
    expect(await table.check()).toBe("same");
  });

  test("is the same in the fake kernel", async () => {
    const fake = new FakeKernel();
    const make = (): Table => everyKind(new Table(fake, { family: "inet", name: "named" }));
    await make().apply();
    expect((await make().apply()).transactions).toBe(0);
    await everyKind(newTable()).apply();
    const real = await kernel.objects({ family: "inet", table: "named" });
    const found = await fake.objects({ family: "inet", table: "named" });
    const plain = (objects: typeof real): unknown => objects.map((object) => ({ ...object, handle: undefined }));
    expect(plain(found)).toEqual(plain(real));
  });
});

describe("refused, before anything is written", () => {
  const refusals: readonly (readonly [what: string, declare: (table: Table) => void, message: RegExp])[] = [
    [
      "an unknown kind",
      (t) => t.object({ kind: "countr", object: "o" } as never),
      /object, kind|countr o, kind.*did you mean "counter"/,
    ],
    [
      "an unknown key",
      (t) => t.object({ kind: "quota", object: "o", byte: 1 } as never),
      /quota o, byte: .*did you mean "bytes"/,
    ],
    [
      "a name that nft cannot read",
      (t) => void t.object({ kind: "counter", object: "a b" }),
      /counter a b, object: expected a name/,
    ],
    [
      "a quota of 0",
      (t) => void t.object({ kind: "quota", object: "o", bytes: 0 }),
      /quota o, bytes: expected bytes from 1/,
    ],
    [
      "a state that the protocol lacks",
      (t) => void t.object({ kind: "ct timeout", object: "o", protocol: "udp", policy: { established: 1 } }),
      /policy, established: expected a state of udp: unreplied, replied/,
    ],
    [
      "an expectation without its IP version",
      (t) => void t.object({ kind: "ct expectation", object: "o", protocol: "udp", dport: 1, timeout: 1, size: 1 }),
      /l3proto: expected ip or ip6 in a table of family inet/,
    ],
    [
      "a helper of another IP version",
      () =>
        void new Table(kernel, { family: "ip6", name: "named" }).object({
          kind: "ct helper",
          object: "o",
          helper: "ftp",
          protocol: "tcp",
          l3proto: "ip",
        }),
      /ct helper o, l3proto: expected ip6, found "ip"/,
    ],
    [
      "a map that packets fill",
      (t) => void t.set({ set: "m", key: ["ipv4_addr"], data: { object: "counter" }, dynamic: true }),
      /set m, data: expected no objects, which packets cannot fill/,
    ],
    [
      "a map that keeps its elements",
      (t) => void t.set({ set: "m", key: ["ipv4_addr"], data: { object: "counter" }, keep: true }),
      /no map of verdicts or objects/,
    ],
    [
      "an object's name that is none",
      (t) => void t.set({ set: "m", key: ["ipv4_addr"], data: { object: "counter" } }).put("192.0.2.1", 7 as never),
      /map m, data: expected a name/,
    ],
    [
      "a statement with a name and a map",
      (t) =>
        t.chain({
          chain: "c",
          rules: [{ statements: [{ action: "object", kind: "counter", name: "o", key: ["saddr"], map: "m" }] }],
        }),
      /statement 0: expected a name, or a key and a map/,
    ],
  ];
  test.each(refusals)("%s", (_, declare, message) => {
    let error: unknown;
    try {
      declare(newTable());
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(FieldError);
    expect((error as Error).message).toMatch(message);
  });

  test("connections' objects in a table without connections", () => {
    const table = new Table(kernel, { family: "netdev", name: "named" });
    const helper = { kind: "ct helper", object: "o", helper: "ftp", protocol: "tcp" } as const;
    expect(() => table.object(helper)).toThrow(
      /expected an object of tables of family netdev, which have no connections/,
    );
  });

  test.each([
    ["object", { action: "object", kind: "counter", name: "none" }, /rule 0: counter none is not declared/],
    ["map", { action: "object", kind: "counter", key: ["saddr"], map: "no-map" }, /rule 0: no-map is not declared/],
  ] as const)("a rule's %s, when the table is applied", async (_, statement, message) => {
    const table = newTable();
    table.set({ set: "no-map", key: ["ipv4_addr"], data: { object: "counter" } });
    table.chain({ chain: "c", rules: [{ statements: [statement] }] });
    table.removeSet("no-map");
    await expect(table.apply()).rejects.toThrow(message);
    expect(await kernel.tables("inet")).toEqual([]);
  });

  test.each([
    ["another kind", { set: "m", key: ["ipv4_addr"], data: { object: "quota" } }],
    ["data", { set: "m", key: ["ipv4_addr"], data: ["mark"] }],
  ] as const)("a map of %s, before or after the rule", (_, map) => {
    const statements = [{ action: "object", kind: "counter", key: ["saddr"], map: "m" }] as const;
    const message = /chain c, rule 0, statement 0, map: expected a map of objects of kind counter/;
    const table = newTable();
    table.set(map);
    expect(() => table.chain({ chain: "c", rules: [{ statements }] })).toThrow(message);
    const other = new Table(kernel, { family: "ip", name: "named" });
    other.chain({ chain: "c", rules: [{ statements }] });
    expect(() => other.set(map)).toThrow(message);
  });

  test("an element's object, when the table is applied", async () => {
    const table = newTable();
    const map = table.set({ set: "m", key: ["ipv4_addr"], data: { object: "counter" } });
    map.put("192.0.2.1", "o");
    await expect(table.apply()).rejects.toThrow(/counter o is not declared, but 1 desired element refers to it/);
    table.object({ kind: "counter", object: "o" });
    await table.apply();
    table.removeObject({ kind: "counter", object: "o" });
    await expect(table.apply()).rejects.toThrow(/counter o is not declared/);
    map.delete("192.0.2.1");
    await table.apply();
    expect(await kernel.objects(table.ref)).toEqual([]);
  });
});

test("a map of objects of another kind is another map", async () => {
  const table = newTable();
  table.object({ kind: "counter", object: "o" });
  table.object({ kind: "quota", object: "o", bytes: 10 });
  const counters = table.set({ set: "m", key: ["ipv4_addr"], data: { object: "counter" } });
  counters.put("192.0.2.1", "o");
  await table.apply();
  const quotas = table.set({ set: "m", key: ["ipv4_addr"], data: { object: "quota" } });
  expect(() => counters.has("192.0.2.1")).toThrow(TableError);
  expect(quotas.size).toBe(0);
  quotas.put("192.0.2.2", "o");
  await table.apply();
  expect(await nft("list", "map", "inet", "named", "m")).toMatch(
    /type ipv4_addr : quota\s+elements = \{ 192\.0\.2\.2 : "o" \}/,
  );
});

test("handles are typed by kind", () => {
  const table = newTable();
  const counter = table.object({ kind: "counter", object: "c" });
  const quota = table.object({ kind: "quota", object: "q", bytes: 1 });
  const limit = table.object({ kind: "limit", object: "l", rate: 1, per: "second" });
  expectTypeOf(counter.read()).resolves.toEqualTypeOf<Counted | undefined>();
  expectTypeOf(quota.reset()).resolves.toEqualTypeOf<QuotaUse | undefined>();
  expectTypeOf(limit).toEqualTypeOf<NamedObject<"limit">>();
  expect([counter instanceof CountingObject, limit.kind, limit.object]).toEqual([true, "limit", "l"]);
});
