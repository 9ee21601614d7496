/** Ranges and the catch-all element as keys of sets, maps and verdict maps, on the real kernel, with packets. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { FieldError, type Kernel, openKernel, Table } from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";

let namespace: Namespace;
let kernel: Kernel;

beforeAll(async () => {
  namespace = await Namespace.create("intervals");
  await namespace.ip(["link set lo up"]);
  kernel = await openKernel({ netns: `/run/netns/${namespace.name}` });
});
afterAll(async () => {
  await kernel.close();
  await namespace.destroy();
});
afterEach(() => new Table(kernel, { family: "inet", name: "t" }).destroy());

const nft = (args: readonly string[], input?: string): Promise<string> =>
  namespace.mustRun(["nft", ...args], { input });
const list = async (): Promise<string> => (await nft(["list", "table", "inet", "t"])).replaceAll(/\s+/g, " ");

const LOOKUPS = { type: "filter", hook: "output", priority: "filter" } as const;

/** One set or map of each form, with elements. */
function declared() {
  const table = new Table(kernel, { family: "inet", name: "t" });
  // The rules come before their sets: the byte order of marks in ranges does not depend on that.
  table.chain({
    chain: "lookups",
    rules: [
      { statements: [{ field: "meta mark", value: "@marks" }] },
      { statements: [{ field: ["meta priority", "th dport"], value: "@boxes" }] },
    ],
  });
  const ports = table.set({ set: "ports", key: ["inet_service"], interval: true });
  ports.put(22, { comment: "ssh" });
  ports.put({ from: 1000, to: 2000 });
  ports.put({ from: 60_000, to: 65_535 });
  const marks = table.set({ set: "marks", key: ["mark"], interval: true, timeoutMs: 0 });
  marks.put({ from: 0x10, to: 0x20 }, { timeoutMs: 3_600_000 });
  marks.put({ from: 0x100, to: 0x1ff });
  marks.put("*");
  const protocols = table.set({ set: "protocols", key: ["inet_proto"], interval: true });
  protocols.put({ from: "icmp", to: 5 });
  protocols.put("udp");
  const names = table.set({ set: "names", key: ["ifname"], interval: true });
  names.put("eth*");
  names.put("lo");
  const classes = table.set({ set: "classes", key: ["classid"], data: ["classid"], interval: true });
  classes.put({ from: "1:0", to: "1:ff" }, "2:1");
  const boxes = table.set({ set: "boxes", key: ["classid", "inet_service"], interval: true });
  boxes.put([
    { from: "1:0", to: "1:ff" },
    { from: 80, to: 90 },
  ]);
  boxes.put(["1:1", 443]);
  const gates = table.set({ set: "gates", key: ["ipv6_addr", "ifname"], data: "verdict", interval: true });
  gates.put(["2001:db8::/32", "eth*"], "accept");
  gates.put("*", "drop");
  const limits = table.set({ set: "limits", key: ["inet_service"], data: ["mark"], interval: true, counters: {} });
  limits.put({ from: 1, to: 1023 }, 1, { comment: "low" });
  limits.put("*", 2);
  const rest = table.set({ set: "rest", key: ["ipv4_addr"], data: ["ipv4_addr"] });
  rest.put("192.0.2.1", "198.51.100.1");
  rest.put("*", "198.51.100.2");
  const links = table.set({ set: "links", key: ["ifname"] });
  links.put("eth0");
  const uplinks = table.set({ set: "uplinks", key: ["ipv4_addr"], data: ["ifname"] });
  uplinks.put("192.0.2.1", "eth1");
  return { table, ports, marks, protocols, names, classes, boxes, gates, limits, rest, links, uplinks };
}

/** The elements as nft lists them, without counters. */
const LISTED = [
  'ports { type inet_service flags interval elements = { 22 comment "ssh", 1000-2000, 60000-65535 } }',
  "marks { type mark flags interval,timeout elements = { 0x00000010-0x00000020 timeout 1h expires TIME, 0x00000100/24, * } }",
  "protocols { type inet_proto flags interval elements = { 1-5, udp } }",
  'names { type ifname flags interval elements = { "eth*", "lo" } }',
  "classes { type classid : classid flags interval elements = { 1:0-1:ff : 2:1 } }",
  "boxes { type classid . inet_service flags interval elements = { 1:0-1:ff . 80-90, 1:1 . 443 } }",
  'gates { type ipv6_addr . ifname : verdict flags interval elements = { 2001:db8::/32 . "eth*" : accept, * : drop } }',
  'limits { type inet_service : mark flags interval counter elements = { 1-1023 comment "low" : 0x00000001, * : 0x00000002 } }',
  "rest { type ipv4_addr : ipv4_addr elements = { 192.0.2.1 : 198.51.100.1, * : 198.51.100.2 } }",
  'links { type ifname elements = { "eth0" } }',
  'uplinks { type ipv4_addr : ifname elements = { 192.0.2.1 : "eth1" } }',
];

async function listed(): Promise<string> {
  return (await list())
    .replaceAll(/expires [0-9hms]+/g, "expires TIME")
    .replaceAll(/ counter packets \d+ bytes \d+/g, "");
}

describe("ranges and catch-all elements", () => {
  test("are written, read back without a difference, and listed by nft", async () => {
    const { table } = declared();
    await table.apply();
    const text = await listed();
    for (const one of LISTED) expect(text).toContain(one);
    expect(text).toContain("meta mark @marks meta priority . th dport @boxes");
    expect([await table.check(), (await table.plan()).text]).toEqual(["same", ""]);
    const restarted = declared();
    expect((await restarted.table.apply()).transactions).toBe(0);
  });

  test("are rendered as text that nft loads, with the same elements and rules", async () => {
    const { table } = declared();
    const { text } = await table.plan();
    // nft 1.0.6 crashes if a command, not a set's block, adds a catch-all element to ranges of one field.
    const commands = text.split("\n").filter((line) => !/ (marks|limits) \{ .*\*/.test(line));
    await nft(["-c", "-f", "-"], commands.join("\n"));
    await nft(["-f", "-"], table.render().replaceAll(/ expires \d+s/g, ""));
    table.invalidate("nft wrote the table");
    expect((await table.apply()).operations.rule).toEqual({ add: 0, delete: 0 });
    const withoutComments = LISTED.map((one) => one.replaceAll(/ comment "[a-z]+"/g, ""));
    await table.destroy();
    await nft(["-f", "-"], table.render());
    const loaded = await listed();
    for (const one of withoutComments) expect(loaded).toContain(one);
    const restarted = declared();
    const { element } = (await restarted.table.apply()).operations;
    // nft got no comments: these two elements are written again. A range has two ends, but the first range of ports has its end in common.
    // The range with a timeout is written again, too, if a busy machine took more than a second since the text was made.
    expect([
      [4, 4],
      [6, 6],
    ]).toContainEqual([element.add, element.delete]);
  });

  test("that other programs add or remove are found and repaired", async () => {
    const { table } = declared();
    await table.apply();
    await nft(["add", "element", "inet", "t", "ports", "{ 3000-4000, 5000 }"]);
    await nft(["delete", "element", "inet", "t", "boxes", "{ 1:0-1:ff . 80-90 }"]);
    await nft(["add", "element", "inet", "t", "boxes", "{ 7:1 . 1-2 }"]);
    await nft(["delete", "element", "inet", "t", "rest", "{ * }"]);
    expect(await table.check()).toBe("different");
    expect((await table.apply()).operations.element).toEqual({ add: 2, delete: 5 });
    const text = await listed();
    for (const one of LISTED.filter((set) => !/^(ports|boxes)/.test(set))) expect(text).toContain(one);
    expect(text).toContain("elements = { 1:1 . 443, 1:0-1:ff . 80-90 }");
    expect(await table.check()).toBe("same");
  });

  test("are listed as they were put", () => {
    const { marks, ports, protocols, names, classes, boxes, gates, limits, rest } = declared();
    expect(ports.keys()).toEqual([22, { from: 1000, to: 2000 }, { from: 60_000, to: 65_535 }]);
    expect(ports.entries()[0]).toEqual({ key: 22, comment: "ssh" });
    expect([marks.keys(), marks.size, marks.has("*"), marks.has({ from: 0x10, to: 0x20 }), marks.has(0x10)]).toEqual([
      [
        { from: 0x10, to: 0x20 },
        { from: 0x100, to: 0x1ff },
      ],
      2,
      true,
      true,
      false,
    ]);
    expect(protocols.keys()).toEqual([{ from: 1, to: 5 }, 17]);
    expect(names.keys()).toEqual(["eth*", "lo"]);
    expect([classes.keys(), classes.get({ from: "1:0", to: 0x100ff })]).toEqual([
      [{ from: 0x10000, to: 0x100ff }],
      0x20001,
    ]);
    expect(boxes.keys()).toEqual([
      [
        { from: 0x10000, to: 0x100ff },
        { from: 80, to: 90 },
      ],
      [0x10001, 443],
    ]);
    expect([gates.entries(), gates.get("*")]).toEqual([[{ key: ["2001:db8::/32", "eth*"], data: "accept" }], "drop"]);
    expect([limits.get("*"), rest.get("*"), rest.size, rest.delete("*"), rest.get("*")]).toEqual([
      2,
      "198.51.100.2",
      1,
      true,
      undefined,
    ]);
    for (const { key, data } of classes.entries()) expect(classes.put(key, data)).toBe(false);
  });

  test("are refused if they overlap, or are malformed", async () => {
    const { ports, boxes, gates, names } = declared();
    const refusal = (action: () => unknown): string => {
      try {
        action();
      } catch (error) {
        if (error instanceof FieldError) return error.message;
        throw error;
      }
      return "accepted";
    };
    expect(refusal(() => ports.put({ from: 1500, to: 3000 }))).toBe(
      'set ports, key: expected ranges that do not overlap (set ports: 1500-3000 overlaps 1000-2000), found {"from":1500,"to":3000}',
    );
    expect(refusal(() => boxes.put(["1:7", 85]))).toContain("1:7 . 85 overlaps 1:0-1:ff . 80-90");
    expect(refusal(() => boxes.put(["1:7", 91]))).toBe("accepted");
    expect(refusal(() => names.put("eth0"))).toContain('"eth0" overlaps "eth*"');
    expect(refusal(() => ports.put({ from: 9, to: 3 }))).toBe(
      'set ports, key (inet_service): expected a range whose end is not before its start, found {"from":9,"to":3}',
    );
    expect(refusal(() => gates.put(["2001:db8::/129", "lo"], "drop"))).toContain("set gates, key[0] (ipv6_addr)");
    // @ts-expect-error a range of ports is no text
    expect(refusal(() => ports.put("1-2"))).toContain("expected a port from 0 to 65535");
    expect(refusal(() => ports.put(Uint8Array.of(0, 9, 0, 3)))).toContain("9-3 ends before it begins");
    await ports.replace([{ from: 1, to: 5 }, { from: 6, to: 9 }, { from: 100, to: 200 }, { from: 150, to: 300 }, "*"]);
    expect([ports.keys(), ports.has("*")]).toEqual([
      [
        { from: 1, to: 9 },
        { from: 100, to: 300 },
      ],
      true,
    ]);
    await expect(
      boxes.replace([
        ["1:1", 1],
        ["1:1", { from: 1, to: 2 }],
      ]),
    ).rejects.toThrow("overlaps");
    expect(boxes.size).toBe(3);
    await boxes.replace([
      ["1:1", { from: 1, to: 2 }],
      ["1:1", 3],
      ["1:1", { from: 1, to: 2 }],
    ]);
    expect(boxes.size).toBe(2);
  });
});

test("a set of ranges is refused if a rule before it looks up other fields", () => {
  const table = new Table(kernel, { family: "inet", name: "t" });
  table.chain({ chain: "c", rules: [{ statements: [{ field: "meta mark", value: "@ports" }] }] });
  expect(() => table.set({ set: "ports", key: ["inet_service"], interval: true })).toThrow(
    'field: expected [inet_service], the key of set ports, found ["meta mark"]',
  );
  expect(table.set({ set: "ports", key: ["mark"], interval: true }).put({ from: 1, to: 2 })).toBe(true);
});

describe("with timeouts and keep, ranges and catch-all elements", () => {
  const KEPT = { interval: true, keep: true, timeoutMs: 600_000 } as const;
  const started = () => {
    const table = new Table(kernel, { family: "inet", name: "t" });
    const boxes = table.set({ set: "boxes", key: ["ipv4_addr", "mark"], data: ["mark"], ...KEPT });
    const ports = table.set({ set: "ports", key: ["inet_service"], ...KEPT });
    return { table, boxes, ports };
  };

  test("stay when the program starts again, with their times", async () => {
    const first = started();
    first.boxes.put(["192.0.2.0/24", { from: 1, to: 9 }], 7, { comment: "a box" });
    first.boxes.put("*", 8, { timeoutMs: 60_000 });
    first.ports.put({ from: 1, to: 9 }, { timeoutMs: 3_600_000 });
    await first.table.apply();
    await nft(["add", "element", "inet", "t", "ports", "{ 20-29, 31 timeout 90s }"]);
    const { table, boxes, ports } = started();
    expect((await table.apply()).transactions).toBe(0);
    expect([boxes.keys(), boxes.get("*"), ports.keys()]).toEqual([
      [["192.0.2.0/24", { from: 1, to: 9 }]],
      8,
      [{ from: 1, to: 9 }, { from: 20, to: 29 }, 31],
    ]);
    expect(boxes.entries()[0]).toMatchObject({ data: 7, timeoutMs: 600_000, comment: "a box" });
    expect(ports.entries().map(({ timeoutMs }) => timeoutMs)).toEqual([3_600_000, 600_000, 90_000]);
    expect(() => ports.put({ from: 25, to: 30 })).toThrow("overlaps 20-29");
  });

  test("end in the kernel and in the table alike", async () => {
    const { table, boxes, ports } = started();
    boxes.put(["192.0.2.0/24", 1], 7, { timeoutMs: 1200 });
    boxes.put(["192.0.2.0/24", 2], 7);
    boxes.put("*", 8, { timeoutMs: 1200 });
    ports.put({ from: 1, to: 9 }, { timeoutMs: 1200 });
    ports.put("*", { timeoutMs: 1200 });
    await table.apply();
    await sleep(1300);
    expect([boxes.keys(), boxes.has("*"), ports.size, ports.has("*")]).toEqual([
      [["192.0.2.0/24", 2]],
      false,
      0,
      false,
    ]);
    expect(await table.check()).toBe("same");
    table.invalidate("test");
    expect((await table.apply()).transactions).toBe(0);
    boxes.put(["192.0.2.0/25", 1], 7);
    boxes.put("*", 9);
    ports.put({ from: 5, to: 6 });
    expect((await table.apply()).operations.element.add).toBe(4);
    expect(await table.check()).toBe("same");
  });
});

describe("packets", () => {
  test("match ranges of ports, marks and concatenations, and the catch-all element otherwise", async () => {
    const table = new Table(kernel, { family: "inet", name: "t" });
    const marks = table.set({ set: "marks", key: ["mark"], interval: true, counters: {} });
    const classes = table.set({ set: "classes", key: ["inet_service"], data: ["classid"], interval: true });
    const boxes = table.set({
      set: "boxes",
      key: ["ipv4_addr", "classid", "inet_service"],
      interval: true,
      counters: {},
    });
    const verdicts = table.set({
      set: "verdicts",
      key: ["ipv4_addr", "inet_service"],
      data: "verdict",
      interval: true,
      counters: {},
    });
    const keys = table.set({ set: "keys", key: ["inet_service"], counters: {} });
    marks.put(0);
    marks.put({ from: 1, to: 0x01000000 });
    classes.put({ from: 1000, to: 1999 }, "1:1");
    classes.put("*", "2:2");
    boxes.put(["127.0.0.0/8", { from: "1:0", to: "1:ff" }, { from: 1500, to: 1600 }]);
    boxes.put(["127.0.0.0/8", { from: "2:0", to: "2:ff" }, { from: 1, to: 9 }]);
    boxes.put("*");
    verdicts.put(["127.0.0.1", { from: 1500, to: 1600 }], "accept");
    verdicts.put("*", "drop");
    keys.put(1);
    keys.put("*");
    table.chain({
      chain: "output",
      base: LOOKUPS,
      rules: [
        {
          statements: [
            { field: "meta l4proto", op: "!=", value: "udp" },
            { action: "verdict", verdict: "accept" },
          ],
        },
        { statements: [{ action: "set", field: "meta priority", value: { key: ["th dport"], map: "classes" } }] },
        { statements: [{ field: "meta mark", value: "@marks" }] },
        { statements: [{ field: "th dport", value: "@keys" }] },
        { statements: [{ field: ["daddr", "meta priority", "th dport"], value: "@boxes" }] },
        { statements: [{ action: "vmap", key: ["daddr", "th dport"], map: "verdicts" }] },
      ],
    });
    await table.apply();
    const send = (...ports: number[]): Promise<string> =>
      namespace.mustRun([process.execPath, "-e", SENDER, ...ports.map(String)]);
    expect(await send(1500, 1600, 1601, 5)).toBe("1500 1600");
    await table.readCounters();
    const packets = (counts: { packets: number } | undefined): number => counts?.packets ?? -1;
    expect([packets(marks.counted(0)), packets(marks.counted({ from: 1, to: 0x01000000 }))]).toEqual([4, 0]);
    expect(boxes.entries().map(({ counted }) => packets(counted))).toEqual([2, 1]);
    expect(packets(boxes.counted("*"))).toBe(1);
    expect([
      packets(verdicts.counted(["127.0.0.1", { from: 1500, to: 1600 }])),
      packets(verdicts.counted("*")),
    ]).toEqual([2, 2]);
    expect([packets(keys.counted(1)), packets(keys.counted("*"))]).toEqual([0, 4]);
    // A replaced element keeps its count, with the packets since the last reading.
    expect(await send(5)).toBe("");
    keys.put("*", { comment: "all others" });
    verdicts.put(["127.0.0.1", { from: 1500, to: 1600 }], "drop");
    boxes.put(["127.0.0.0/8", { from: "1:0", to: "1:ff" }, { from: 1500, to: 1600 }], { comment: "first" });
    await table.apply();
    expect(await send(1500, 5)).toBe("");
    await table.readCounters();
    expect(packets(verdicts.counted(["127.0.0.1", { from: 1500, to: 1600 }]))).toBe(3);
    expect(packets(boxes.counted(["127.0.0.0/8", { from: "1:0", to: "1:ff" }, { from: 1500, to: 1600 }]))).toBe(3);
    expect(packets(keys.counted("*"))).toBe(7);
    expect(await table.check()).toBe("same");
  });
});

/** Sends a datagram to each port of 127.0.0.1, and prints the ports that received one. */
const SENDER = `
const { createSocket } = require("node:dgram");
const ports = process.argv.slice(1).map(Number);
const got = [];
const sockets = ports.map((port) => createSocket("udp4").on("message", () => got.push(port)));
(async () => {
  for (const [i, port] of ports.entries()) await new Promise((done) => sockets[i].bind(port, "127.0.0.1", done));
  const sender = createSocket("udp4");
  for (const port of ports) await new Promise((done) => sender.send("x", port, "127.0.0.1", () => done()));
  setTimeout(() => {
    process.stdout.write(got.toSorted((a, b) => a - b).join(" "));
    process.exit(0);
  }, 300);
})();
`;
