import { afterEach, beforeEach, describe, expect, it } from "vitest";

import type { Kernel, Op } from "../../../src/kernel/types.js";
import { Table } from "../../../src/table/index.js";
import { commentOf } from "../../../src/table/text.js";
import { snapshot, type Bench, type Open } from "../bench.js";
import { ip, pack } from "../build.js";
import {
  accept,
  counter,
  drop,
  ENDPOINTS,
  endpoint,
  indexed,
  jump,
  NAME,
  operations,
  OWN,
  rule,
  serviceTable,
  TestClock,
  vip,
  VIPS,
} from "./build.js";

/** What the Table must do on every kernel. */
export function describeTable(name: string, open: Open): void {
  describe(`Table on ${name}`, () => {
    let bench: Bench;
    let kernel: Kernel;
    beforeEach(async () => {
      bench = await open();
      kernel = bench.kernel;
    });
    afterEach(() => bench.close());
    describe("applying", () => applying(() => kernel));
    describe("restarting", () => restarting(() => kernel));
    describe("what cannot be changed in place", () => recreating(() => kernel));
    describe("elements", () => elements(() => kernel));
    describe("drift", () => drift(() => bench));
    describe("insertions", () => insertions(() => bench));
    describe("the rest", () => others(() => kernel));
  });
}

const chainRules = async (kernel: Kernel, chain: string): Promise<(string | undefined)[]> =>
  (await kernel.rules(OWN, chain)).map((info) => commentOf(info.userdata));
const named = (comment: string): { statements: [typeof counter]; comment: string } => ({
  statements: [counter],
  comment,
});

function applying(kernel: () => Kernel): void {
  it("writes everything in one transaction, then nothing, then only what changed", async () => {
    const { table, service } = serviceTable(kernel());
    service(1, 2);
    service(2, 3);
    const first = await table.apply();
    expect(first.transactions).toBe(1);
    expect(operations(first)).toBe("table +1 chain +4 rule +4 set +2 element +7");
    expect(first.bytes).toBeGreaterThan(500);
    expect((await table.apply()).transactions).toBe(0);
    service(1, 2, 5);
    expect(operations(await table.apply())).toBe("element +2 -2");
    service(1, 3, 5);
    expect(operations(await table.apply())).toBe("element +2 -1");
    service(3, 4);
    expect(operations(await table.apply())).toBe("chain +1 rule +1 element +5");
    expect((await table.apply()).transactions).toBe(0);
  });

  it("edits a chain with the fewest rules, in the right places", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    const set = async (...comments: string[]): Promise<string> => {
      table.chain({ chain: "c", rules: comments.map(named) });
      const result = operations(await table.apply());
      expect(await chainRules(kernel(), "c")).toEqual(comments);
      return result;
    };
    await set("a", "b", "c");
    const handles = new Map((await kernel().rules(OWN, "c")).map((info) => [commentOf(info.userdata), info.handle]));
    expect(await set("a", "x", "y", "b", "c")).toBe("rule +2");
    expect(await set("p", "q", "a", "x", "y", "b", "c")).toBe("rule +2");
    expect(await set("p", "q", "a", "b", "c", "z", "zz")).toBe("rule +2 -2");
    expect(await set("a", "c", "b")).toBe("rule +1 -5");
    const after = new Map((await kernel().rules(OWN, "c")).map((info) => [commentOf(info.userdata), info.handle]));
    expect(after.get("a")).toBe(handles.get("a"));
    expect([after.get("b") === handles.get("b"), after.get("c") === handles.get("c")].filter(Boolean)).toHaveLength(1);
    expect(await set()).toBe("rule -3");
    expect(await set("n")).toBe("rule +1");
  });

  it("does not mind the order in which things are declared, nor circles of sets and chains", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    table.chain({ chain: "a", rules: [rule({ action: "vmap", key: ["daddr"], map: "m" })] });
    const map = table.set({ set: "m", key: ["ipv4_addr"], data: "verdict" });
    map.put(ip("1.2.3.4"), new Uint8Array(Uint32Array.of(table.verdictId({ verdict: "jump", chain: "b" })).buffer));
    table.chain({ chain: "b", rules: [rule({ match: "in-set", key: ["saddr"], set: "s" }, drop)] });
    table
      .set({ set: "s", key: ["ipv4_addr"], interval: true })
      .replaceNets(["10.0.0.0/8", "11.0.0.0/8", "255.255.255.255"]);
    expect(operations(await table.apply())).toBe("table +1 chain +2 rule +2 set +2 element +4");
    table.removeChain("a");
    table.removeChain("b");
    table.removeSet("m");
    table.removeSet("s");
    expect(operations(await table.apply())).toBe("chain -2 rule -2 set -2 element -1");
    expect(await kernel().chains(OWN)).toEqual([]);
    expect(await kernel().sets(OWN)).toEqual([]);
  });

  it("refuses to leave something wanted without what it names, and takes it once that is there", async () => {
    const { table, service, vips } = serviceTable(kernel());
    service(1, 2);
    await table.apply();
    table.removeChain("draw-2");
    await expect(table.apply()).rejects.toMatchObject({
      code: "invalid",
      message: expect.stringContaining("draw-2"),
      faulty: [{ kind: "chain", chain: "draw-2" }],
    });
    vips.delete(vip(1));
    expect(operations(await table.apply())).toBe("chain -1 rule -1 element -1");
    table.chain({ chain: "x", rules: [rule(jump("nowhere"))] });
    await expect(table.apply()).rejects.toMatchObject({
      code: "invalid",
      faulty: [{ kind: "rule", chain: "x", ruleIndex: 0 }],
    });
    table.chain({ chain: "nowhere", rules: [] });
    expect(operations(await table.apply())).toBe("chain +2 rule +1");
    table.removeSet("vips");
    await expect(table.apply()).rejects.toMatchObject({ code: "invalid", faulty: [{ kind: "set", set: "vips" }] });
  });

  it("names the object that the kernel refuses, keeps the old state, and tries again later", async () => {
    const { table, service } = serviceTable(kernel());
    service(1, 1);
    await table.apply();
    const before = await snapshot(kernel());
    service(2, 1);
    // A jump to a base chain: refused by every kernel.
    table.chain({ chain: "bad", rules: [rule(counter), rule(jump("nat-prerouting"))] });
    await expect(table.apply()).rejects.toMatchObject({
      name: "TableError",
      code: "refused",
      faulty: [{ kind: "rule", chain: "bad", ruleIndex: 1 }],
    });
    expect(await snapshot(kernel())).toEqual(before);
    table.chain({ chain: "bad", rules: [rule(counter)] });
    expect(operations(await table.apply())).toBe("chain +1 rule +1 element +2");
  });

  it("writes anonymous sets with their rules and knows them again", async () => {
    const many = {
      match: "address",
      direction: "source",
      nets: ["10.0.0.0/8", "192.168.0.0/16", "0.0.0.0/8"],
    } as const;
    const ports = { match: "port", direction: "destination", ports: [80, 443] } as const;
    const declare = (table: Table, ...rules: ReturnType<typeof rule>[]): void => table.chain({ chain: "c", rules });
    const table = new Table(kernel(), { family: "ip", name: NAME });
    declare(
      table,
      rule(many, drop),
      rule({ match: "protocol", protocol: "tcp" }, ports, drop),
      rule(many, ports, accept),
    );
    expect(operations(await table.apply())).toBe("table +1 chain +1 rule +3 set +4 element +16");
    const again = new Table(kernel(), { family: "ip", name: NAME });
    declare(again, rule(many, drop), rule(many, ports, accept));
    expect(operations(await again.apply())).toBe("rule -1");
    declare(
      again,
      rule({ ...many, nets: ["10.0.0.0/8", "192.168.0.0/17", "0.0.0.0/8"] }, drop),
      rule(many, ports, accept),
    );
    expect(operations(await again.apply())).toBe("rule +1 -1 set +1 element +6");
  });
}

function restarting(kernel: () => Kernel): void {
  it("keeps what is the same, rule handles and all, and removes what nobody wants", async () => {
    const before = serviceTable(kernel());
    before.service(1, 2);
    before.service(2, 1);
    before.table.chain({ chain: "old", rules: [rule(drop)] });
    const oldMap = before.table.set({ ...VIPS, set: "old-map" });
    oldMap.put(
      vip(1),
      new Uint8Array(Uint32Array.of(before.table.verdictId({ verdict: "goto", chain: "old" })).buffer),
    );
    await before.table.apply();
    const handles = (await kernel().rules(OWN)).filter((info) => info.chain !== "old").map((info) => info.handle);

    const { table, service, endpoints } = serviceTable(kernel());
    await table.load();
    expect(endpoints.kernelValue(indexed(1, 1))).toEqual(endpoint("10.0.1.2"));
    expect(endpoints.size).toBe(0);
    service(1, 2);
    service(2, 1);
    const result = await table.apply();
    expect(operations(result)).toBe("chain -1 rule -1 set -1");
    expect((await kernel().rules(OWN)).map((info) => info.handle)).toEqual(handles);
    expect((await kernel().chains(OWN)).map((info) => info.chain)).not.toContain("old");
    expect((await table.apply()).transactions).toBe(0);
  });

  it("reads a set that is declared after the load", async () => {
    const before = serviceTable(kernel());
    before.service(1, 1);
    await before.table.apply();
    const table = new Table(kernel(), { family: "ip", name: NAME });
    await table.load();
    const endpoints = table.set(ENDPOINTS);
    await table.load();
    expect(endpoints.kernelValue(indexed(1, 0))).toEqual(endpoint("10.0.1.1"));
    endpoints.put(indexed(1, 0), endpoint("10.0.1.1"));
    expect(operations(await table.apply())).toBe("chain -3 rule -3 set -1");
  });

  it("takes a table over that looks quite different", async () => {
    const ref = OWN;
    await kernel().commit([
      { op: "add", kind: "table", ...ref },
      { op: "add", kind: "chain", ...ref, chain: "services" },
      { op: "add", kind: "chain", ...ref, chain: "svc-1" },
      { op: "add", kind: "chain", ...ref, chain: "svc-2" },
      { op: "add", kind: "chain", ...ref, chain: "nat-prerouting", base: { type: "filter", hook: 0, priority: 0 } },
      { op: "add", kind: "set", ...ref, set: "vips", flags: 0, keyType: 7, keyLen: 4 },
      { op: "add", kind: "set", ...ref, set: "theirs", flags: 8, keyType: 7, keyLen: 4, dataType: 0xffffff00 },
      { op: "add", kind: "elements", ...ref, set: "vips", elements: pack([{ key: "1.2.3.4" }]) },
      {
        op: "add",
        kind: "elements",
        ...ref,
        set: "theirs",
        elements: pack([
          { key: "1.2.3.4", data: { verdict: "goto", chain: "svc-1" } },
          { key: "1.2.3.5", data: { verdict: "jump", chain: "svc-2" } },
        ]),
      },
      {
        op: "add",
        kind: "rule",
        ...ref,
        chain: "services",
        exprs: [
          { type: "payload", base: 1, offset: 16, len: 4, dreg: 1 },
          { type: "lookup", set: "theirs", sreg: 1, dreg: 0 },
        ],
      },
      {
        op: "add",
        kind: "rule",
        ...ref,
        chain: "svc-1",
        exprs: [
          { type: "payload", base: 1, offset: 16, len: 4, dreg: 1 },
          { type: "lookup", set: "vips", sreg: 1 },
        ],
      },
      {
        op: "add",
        kind: "rule",
        ...ref,
        chain: "nat-prerouting",
        exprs: [{ type: "immediate", dreg: 0, data: { verdict: "jump", chain: "services" } }],
      },
    ]);
    const { table, service } = serviceTable(kernel());
    service(1, 1);
    const result = await table.apply();
    expect(result.transactions).toBe(1);
    expect((await kernel().chains(OWN)).map((info) => info.chain).toSorted()).toEqual([
      "draw-1",
      "nat-prerouting",
      "services",
    ]);
    expect((await kernel().sets(OWN)).map((info) => info.set).toSorted()).toEqual(["endpoints", "vips"]);
    expect((await table.apply()).transactions).toBe(0);
    const fresh = serviceTable(kernel());
    fresh.service(1, 1);
    expect((await fresh.table.apply()).transactions).toBe(0);
  });

  it("leaves what packets put into a dynamic set alone", async () => {
    const declare = (): Table => {
      const table = new Table(kernel(), { family: "ip", name: NAME });
      table.set({ set: "clients", key: ["ipv4_addr"], dynamic: true, timeoutMs: 60_000, size: 1000 });
      table.chain({ chain: "c", rules: [rule({ action: "update", set: "clients", key: ["saddr"] })] });
      return table;
    };
    await declare().apply();
    await kernel().commit([
      { op: "add", kind: "elements", ...OWN, set: "clients", elements: pack([{ key: "10.1.2.3" }]) },
    ]);
    expect((await declare().apply()).transactions).toBe(0);
    const [info] = await kernel().sets(OWN);
    expect((await kernel().elements(OWN, info)).count).toBe(1);
    expect(() =>
      declare()
        .set({ set: "clients", key: ["ipv4_addr"], dynamic: true })
        .put(ip("1.1.1.1")),
    ).toThrow(/packets/);
  });
}

function recreating(kernel: () => Kernel): void {
  it("a base chain's priority, hook or type; the policy is changed in place", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    table.chain({ chain: "b", base: { type: "filter", hook: 1, priority: 0 }, rules: [rule(counter)] });
    await table.apply();
    table.chain({ chain: "b", base: { type: "filter", hook: 1, priority: 5 }, rules: [rule(counter)] });
    expect(operations(await table.apply())).toBe("chain +1 -1 rule +1 -1");
    table.chain({ chain: "b", base: { type: "nat", hook: 3, priority: -100 }, rules: [rule(counter)] });
    expect(operations(await table.apply())).toBe("chain +1 -1 rule +1 -1");
    table.chain({ chain: "b", base: { type: "filter", hook: 1, priority: 0, policy: "drop" }, rules: [rule(counter)] });
    await table.apply();
    table.chain({ chain: "b", base: { type: "filter", hook: 1, priority: 0 }, rules: [rule(counter)] });
    expect(operations(await table.apply())).toBe("chain +1");
    expect((await kernel().chains(OWN))[0].base?.policy ?? "accept").toBe("accept");
    expect((await table.apply()).transactions).toBe(0);
  });

  it("a chain that rules and elements go to takes them along", async () => {
    const { table, service } = serviceTable(kernel());
    service(1, 2);
    service(2, 2);
    table.chain({ chain: "also", rules: [rule(jump("draw-2"))] });
    await table.apply();
    table.chain({ chain: "draw-2", rules: [rule(counter)], comment: "now with a comment" });
    expect(operations(await table.apply())).toBe("chain +1 -1 rule +3 -3 set +1 -1 element +2 -2");
    expect((await table.apply()).transactions).toBe(0);
    const again = serviceTable(kernel());
    again.service(1, 2);
    again.service(2, 2);
    again.table.chain({ chain: "also", rules: [rule(jump("draw-2"))] });
    again.table.chain({ chain: "draw-2", rules: [rule(counter)], comment: "now with a comment" });
    expect((await again.table.apply()).transactions).toBe(0);
  });

  it("a set's types, flags and comment, with the rules that look it up", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    table.chain({ chain: "c", rules: [rule(counter), rule({ match: "in-set", key: ["saddr"], set: "s" }, drop)] });
    table.set({ set: "s", key: ["ipv4_addr"] }).put(ip("1.2.3.4"));
    await table.apply();
    const timed = table.set({ set: "s", key: ["ipv4_addr"], timeoutMs: 0 });
    expect(timed.has(ip("1.2.3.4"))).toBe(true);
    expect(operations(await table.apply())).toBe("rule +2 -2 set +1 -1 element +1");
    expect((await table.apply()).transactions).toBe(0);
    const wider = table.set({ set: "s", key: ["ipv4_addr", "inet_service"] });
    expect(wider.size).toBe(0);
    table.chain({ chain: "c", rules: [rule({ match: "in-set", key: ["saddr", "dport"], set: "s" }, drop)] });
    wider.put(Uint8Array.of(1, 2, 3, 4, 0, 80, 0, 0));
    expect(operations(await table.apply())).toBe("rule +1 -2 set +1 -1 element +1");
    expect((await table.apply()).transactions).toBe(0);
  });

  it("a set of size auto that would overflow, once, with all its users", async () => {
    const { table, service, endpoints } = serviceTable(kernel());
    service(1, 3);
    await table.apply();
    const size = async (): Promise<number | undefined> =>
      (await kernel().sets(OWN)).find((info) => info.set === "endpoints")?.size;
    expect(await size()).toBe(1024);
    for (let i = 2; i <= 300; i++) service(i, 3);
    expect(operations(await table.apply())).toBe("element +1196");
    for (let i = 301; i <= 400; i++) service(i, 3);
    const grown = await table.apply();
    expect(grown.transactions).toBe(1);
    expect(operations(grown)).toContain("set +1 -1");
    expect(await size()).toBe(4096);
    const [info] = (await kernel().sets(OWN)).filter((set) => set.set === "endpoints");
    expect((await kernel().elements(OWN, info)).count).toBe(1200);
    expect(endpoints.kernelValue(indexed(400, 2))).toEqual(endpoint("10.0.144.3"));
    expect((await table.apply()).transactions).toBe(0);
  });
}

function elements(kernel: () => Kernel): void {
  it("that are deleted later stay until a later transaction and its time", async () => {
    const clock = new TestClock();
    const { table, service, vips } = serviceTable(kernel(), { clock, tailDelayMs: 400 });
    service(1, 3);
    table.chain({ chain: "draw-2", rules: [] });
    await table.apply();
    service(1, 2);
    const shrunk = await table.apply();
    expect(operations(shrunk)).toBe("element +1 -1");
    expect(shrunk.applyAgainMs).toBe(400);
    clock.advance(399);
    expect(await table.apply()).toMatchObject({ transactions: 0, applyAgainMs: 1 });
    clock.advance(1);
    const tail = await table.apply();
    expect(operations(tail)).toBe("element -1");
    expect(tail.applyAgainMs).toBeUndefined();
    service(1, 3);
    await table.apply();
    service(1, 2);
    await table.apply();
    service(1, 3);
    clock.advance(1000);
    expect(operations(await table.apply())).toBe("element +1 -1");
    vips.delete(vip(1));
    vips.put(vip(2), new Uint8Array(Uint32Array.of(table.verdictId({ verdict: "drop" })).buffer));
    vips.put(vip(3), new Uint8Array(Uint32Array.of(table.verdictId({ verdict: "goto", chain: "draw-3" })).buffer));
    await table.apply();
    vips.deleteLater(vip(3));
    await table.apply();
    table.removeChain("draw-3");
    expect(operations(await table.apply())).toBe("chain -1 rule -1 element -1");
  });

  it("that an earlier run left go late where that is asked for", async () => {
    const before = serviceTable(kernel());
    before.service(1, 3);
    await before.table.apply();
    const clock = new TestClock();
    const { table, service } = serviceTable(kernel(), { clock });
    table.set({ ...ENDPOINTS, lateLeftovers: true });
    service(1, 2);
    const first = await table.apply();
    expect(operations(first)).toBe("chain +1 -1 rule +1 -1 element +1 -1");
    expect(first.applyAgainMs).toBe(500);
    clock.advance(500);
    expect(operations(await table.apply())).toBe("element -1");
  });

  it("of interval sets change range by range", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    const set = table.set({ set: "cidrs", key: ["ipv4_addr"], interval: true });
    set.replaceNets(["10.0.0.0/9", "10.128.0.0/9", "240.0.0.0/4"]);
    expect(operations(await table.apply())).toBe("table +1 set +1 element +3");
    set.replaceNets(["10.0.0.0/8", "10.2.0.0/16", "172.16.0.0/12", "240.0.0.0/4"]);
    expect(operations(await table.apply())).toBe("element +2");
    set.replaceNets(["10.0.0.0/7", "240.0.0.0/4"]);
    expect(operations(await table.apply())).toBe("element +2 -4");
    set.replaceNets(["0.0.0.0/0"]);
    expect(operations(await table.apply())).toBe("element +1 -3");
    const again = new Table(kernel(), { family: "ip", name: NAME });
    again.set({ set: "cidrs", key: ["ipv4_addr"], interval: true }).replaceNets(["0.0.0.0/0"]);
    expect((await again.apply()).transactions).toBe(0);
    set.replaceNets([]);
    expect(operations(await table.apply())).toBe("element -1");
    expect(() => set.replaceNets(["fd00::/8"])).toThrow(/family/);
    expect(() => set.put(ip("1.2.3.4"))).toThrow(/replaceNets/);
  });
}

function drift(bench: () => Bench): void {
  it("is found and repaired after invalidate, and by a refused transaction", async () => {
    const { kernel } = bench();
    const other = await bench().other();
    const { table, service } = serviceTable(kernel);
    service(1, 2);
    service(2, 2);
    await table.apply();
    const wanted = await snapshot(kernel);
    const meddle = async (...ops: Op[]): Promise<void> => void (await other.commit(ops));
    await meddle(
      {
        op: "delete",
        kind: "elements",
        ...OWN,
        set: "endpoints",
        elements: { count: 1, keyLen: 16, dataLen: 0, bytes: indexed(1, 0) },
      },
      { op: "flush", kind: "rule", ...OWN, chain: "services" },
      { op: "add", kind: "chain", ...OWN, chain: "foreign" },
      { op: "add", kind: "rule", ...OWN, chain: "draw-2", exprs: [{ type: "counter" }] },
    );
    expect((await table.apply()).transactions).toBe(0);
    table.invalidate("somebody else wrote");
    const repaired = await table.apply();
    expect(repaired.resynced).toBe("somebody else wrote");
    expect(operations(repaired)).toBe("chain -1 rule +1 -1 element +1");
    expect(await snapshot(kernel)).toEqual(wanted);
    await meddle({
      op: "delete",
      kind: "elements",
      ...OWN,
      set: "endpoints",
      elements: { count: 1, keyLen: 16, dataLen: 0, bytes: indexed(1, 0) },
    });
    service(1, 2, 7);
    const retried = await table.apply();
    expect(retried.resynced).toMatch(/something else/);
    expect(operations(retried)).toBe("element +2 -1");
    await meddle({ op: "delete", kind: "table", ...OWN });
    service(1, 2);
    expect(operations(await table.apply())).toBe("table +1 chain +3 rule +3 set +2 element +6");
    expect(await snapshot(kernel)).toEqual(wanted);
  });

  it("shows at the refresh interval and behind a write", async () => {
    const clock = new TestClock();
    const { kernel } = bench();
    const other = await bench().other();
    const { table, service } = serviceTable(kernel, { clock, refreshIntervalMs: 1000, postWriteIntervalMs: 300 });
    service(1, 1);
    expect((await table.apply()).applyAgainMs).toBe(300);
    await other.commit([{ op: "flush", kind: "rule", ...OWN, chain: "services" }]);
    clock.advance(300);
    const checked = await table.apply();
    expect(checked).toMatchObject({ transactions: 1, resynced: "check after a write", applyAgainMs: 300 });
    clock.advance(300);
    expect(await table.apply()).toMatchObject({ transactions: 0, resynced: "check after a write", applyAgainMs: 600 });
    clock.advance(600);
    expect(await table.apply()).toMatchObject({ transactions: 0, applyAgainMs: 1000 });
    await other.commit([{ op: "flush", kind: "rule", ...OWN, chain: "services" }]);
    clock.advance(1000);
    expect(await table.apply()).toMatchObject({ transactions: 1, resynced: "refresh interval" });
  });

  it("a catch-all element makes the set new", async () => {
    const { kernel } = bench();
    const { table, service } = serviceTable(kernel);
    service(1, 1);
    await table.apply();
    await kernel.commit([
      {
        op: "add",
        kind: "elements",
        ...OWN,
        set: "endpoints",
        elements: pack([{ key: new Uint8Array(16), data: new Uint8Array(8), flags: 2 }]),
      },
    ]);
    table.invalidate("test");
    expect(operations(await table.apply())).toContain("set +1 -1");
    table.invalidate("test");
    expect((await table.apply()).transactions).toBe(0);
  });
}

function insertions(bench: () => Bench): void {
  const theirs = { family: "ip", table: "filter" } as const;
  const FORWARD = { ...theirs, chain: "FORWARD" } as const;
  const foreign = (text: string): Op => ({
    op: "add",
    kind: "rule",
    ...FORWARD,
    exprs: [{ type: "counter" }],
    userdata: Uint8Array.from([0, text.length + 1, ...Buffer.from(text), 0]),
  });
  const listed = async (): Promise<string> =>
    (await bench().kernel.rules(theirs, "FORWARD"))
      .map((info) => commentOf(info.userdata) ?? "?")
      .map((comment) => (comment.startsWith("test:") ? (comment.split(" ")[1] ?? "ours") : comment))
      .join(" ");
  const ours = (...names: string[]): { statements: [typeof counter]; comment: string }[] => names.map(named);

  beforeEach(async () => {
    await bench().kernel.commit([
      { op: "add", kind: "table", ...theirs },
      { op: "add", kind: "chain", ...FORWARD, base: { type: "filter", hook: 2, priority: 0 } },
      foreign("f1"),
      foreign("f2"),
    ]);
  });

  it("go before and behind what others have there, and are found again", async () => {
    const { table } = serviceTable(bench().kernel);
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A", "B") });
    table.insertions({ ...FORWARD, mode: "append", rules: ours("Y", "Z") });
    const first = await table.apply();
    expect(first.transactions).toBe(1);
    expect(await listed()).toBe("A B f1 f2 Y Z");
    expect((await table.apply()).transactions).toBe(0);

    const again = serviceTable(bench().kernel).table;
    again.insertions({ ...FORWARD, mode: "insert", rules: ours("A", "B") });
    again.insertions({ ...FORWARD, mode: "append", rules: ours("Y", "Z") });
    expect((await again.apply()).transactions).toBe(0);
    again.insertions({ ...FORWARD, mode: "insert", rules: ours("A", "C") });
    again.insertions({ ...FORWARD, mode: "append", rules: ours("X", "Z") });
    expect(operations(await again.apply())).toBe("rule +2 -2");
    expect(await listed()).toBe("A C f1 f2 X Z");
    again.insertions({ ...FORWARD, mode: "insert", rules: [] });
    again.insertions({ ...FORWARD, mode: "append", rules: [] });
    expect(operations(await again.apply())).toBe("rule -4");
    expect(await listed()).toBe("f1 f2");
  });

  it("come back when they are lost or out of place", async () => {
    const { table } = serviceTable(bench().kernel);
    table.insertions({ ...FORWARD, mode: "insert", rules: ours("A") });
    table.insertions({ ...FORWARD, mode: "append", rules: ours("Z") });
    await table.apply();
    await bench().kernel.commit([
      { op: "insert", kind: "rule", ...FORWARD, exprs: [{ type: "counter" }] },
      foreign("f3"),
    ]);
    table.invalidate("test");
    expect(operations(await table.apply())).toBe("rule +2 -2");
    expect(await listed()).toBe("A ? f1 f2 f3 Z");
    await bench().kernel.commit([{ op: "flush", kind: "rule", ...FORWARD }]);
    table.invalidate("test");
    expect(operations(await table.apply())).toBe("rule +2");
    expect(await listed()).toBe("A Z");
  });

  it("wait for a chain that is not there, and go with destroy", async () => {
    const { table } = serviceTable(bench().kernel);
    table.insertions({ family: "ip", table: "absent", chain: "INPUT", mode: "insert", rules: ours("A") });
    table.insertions({
      ...FORWARD,
      mode: "insert",
      rules: [rule({ match: "address", direction: "source", nets: ["10.0.0.0/8", "12.0.0.0/8"] }, accept)],
    });
    expect((await table.apply()).deferred).toEqual(["ip absent INPUT"]);
    expect(await listed()).toBe("ours f1 f2");
    await bench().kernel.commit([
      { op: "add", kind: "table", family: "ip", table: "absent" },
      { op: "add", kind: "chain", family: "ip", table: "absent", chain: "INPUT" },
    ]);
    const later = await table.apply();
    expect(later.deferred).toBeUndefined();
    expect(operations(later)).toBe("rule +1");
    expect(operations(await table.destroy())).toBe("table -1 rule -2");
    expect(await listed()).toBe("f1 f2");
    expect((await bench().kernel.tables()).map((info) => info.table).toSorted()).toEqual(["absent", "filter"]);
    expect((await table.destroy()).transactions).toBe(0);
    expect((await table.apply()).transactions).toBe(1);
    expect(await listed()).toBe("ours f1 f2");
  });
}

function others(kernel: () => Kernel): void {
  it("apply() is serialised, and takes one moment's state", async () => {
    const { table, service, endpoints } = serviceTable(kernel());
    for (let i = 1; i <= 40; i++) service(i, 1);
    const first = table.apply();
    const second = table.apply();
    service(41, 1);
    const [a, b] = await Promise.all([first, second]);
    expect(a.transactions + b.transactions).toBeGreaterThan(0);
    await table.apply();
    expect((await table.apply()).transactions).toBe(0);
    expect(endpoints.kernelValue(indexed(41, 0))).toEqual(endpoint("10.0.41.1"));
  });

  it("comments and widths are as nft writes them", async () => {
    const { table } = serviceTable(kernel());
    await table.apply();
    const [info] = await kernel().tables();
    expect(commentOf(info.userdata)).toBe("made for a test");
    const sets = await kernel().sets(OWN);
    expect(sets.map((set) => [set.set, set.keyLen, set.dataLen, set.size, commentOf(set.userdata, "set")])).toEqual([
      ["vips", 12, undefined, 1024, undefined],
      ["endpoints", 16, 8, 1024, "where packets go"],
    ]);
  });

  it("features are probed without a trace", async () => {
    const { table } = serviceTable(kernel());
    const before = await kernel().generation();
    const features = await table.features();
    expect((await kernel().generation()).id).toBe(before.id);
    expect(features).toMatchObject({
      destroy: true,
      masqueradeFullyRandom: true,
      rejectPrerouting: true,
      tableOwner: true,
      tablePersist: true,
      inetNat: true,
    });
    expect(await kernel().tables()).toEqual([]);
    expect(table.features()).toBe(table.features());
  });

  it("close() refuses what comes later", async () => {
    const { table } = serviceTable(kernel());
    await table.apply();
    table.close();
    await expect(table.apply()).rejects.toMatchObject({ code: "closed" });
  });
}
