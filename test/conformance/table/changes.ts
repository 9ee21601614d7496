/** Restarts, objects that cannot be changed in place, and elements over time. */
import { expect, it } from "vitest";
import type { Kernel } from "../../../src/nft/kernel/kernel.js";
import { Table } from "../../../src/nft/engine-exports.js";
import { snapshot } from "../../support/snapshot.ts";
import { ip, pack } from "../../support/operations.ts";
import {
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

export function restarting(kernel: () => Kernel): void {
  it("keeps unchanged objects, including rule handles, and removes undesired ones", async () => {
    const before = serviceTable(kernel());
    before.service(1, 2);
    before.service(2, 1);
    before.table.chain({ chain: "old", rules: [rule(drop)] });
    const oldMap = before.table.packedSet({ ...VIPS, set: "old-map" });
    oldMap.put(
      vip(1),
      new Uint8Array(Uint32Array.of(before.table.verdictId({ verdict: "goto", chain: "old" })).buffer),
    );
    await before.table.apply();
    const handles = (await kernel().rules(OWN)).filter((info) => info.chain !== "old").map((info) => info.handle);

    const clock = new TestClock();
    const { table, service, endpoints } = serviceTable(kernel(), { clock });
    await table.load();
    expect(endpoints.kernelValue(indexed(1, 1))).toEqual(endpoint("10.0.1.2"));
    expect(endpoints.size).toBe(0);
    service(1, 2);
    service(2, 1);
    const result = await table.apply();
    expect(operations(result)).toBe("");
    expect(result.applyAgainMs).toBe(500);
    clock.advance(500);
    expect(operations(await table.apply())).toBe("chain -1 rule -1 set -1");
    expect((await kernel().rules(OWN)).map((info) => info.handle)).toEqual(handles);
    expect((await kernel().chains(OWN)).map((info) => info.chain)).not.toContain("old");
    expect((await table.apply()).transactions).toBe(0);
  });

  it("reads a set that is declared after the load", async () => {
    const before = serviceTable(kernel());
    before.service(1, 1);
    await before.table.apply();
    const table = new Table(kernel(), { family: "ip", name: NAME, gracePeriodMs: 0 });
    await table.load();
    const endpoints = table.packedSet(ENDPOINTS);
    await table.load();
    expect(endpoints.kernelValue(indexed(1, 0))).toEqual(endpoint("10.0.1.1"));
    endpoints.put(indexed(1, 0), endpoint("10.0.1.1"));
    expect(operations(await table.apply())).toBe("chain -3 rule -3 set -1");
  });

  it("leaves the elements that packets added to a dynamic set alone", async () => {
    const declare = (): Table => {
      const table = new Table(kernel(), { family: "ip", name: NAME });
      table.packedSet({ set: "clients", key: ["ipv4_addr"], dynamic: true, timeoutMs: 60_000, size: 1000 });
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
        .packedSet({ set: "clients", key: ["ipv4_addr"], dynamic: true })
        .put(ip("1.1.1.1")),
    ).toThrow(/packets/);
  });
}

export function recreating(kernel: () => Kernel): void {
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

  it("a chain is recreated together with the rules and elements that refer to it", async () => {
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

  it("a refused deletion of a map and of its chains leaves nothing busy", async () => {
    const { table, service, vips } = serviceTable(kernel());
    for (let i = 1; i < 4; i++) service(i, i);
    const map = table.packedSet({ ...VIPS, set: "more" });
    table.chain({ chain: "one-more", rules: [rule(counter)] });
    map.put(vip(1), new Uint8Array(Uint32Array.of(table.verdictId({ verdict: "goto", chain: "one-more" })).buffer));
    await table.apply();
    const before = await snapshot(kernel());
    table.removeSet("more");
    table.removeChain("one-more");
    vips.delete(vip(2));
    table.removeChain("draw-2");
    // Recreated, and with it the map that goes to it.
    table.chain({ chain: "draw-3", rules: [rule(counter)], comment: "now with a comment" });
    // A jump to a base chain, which every kernel rejects.
    table.chain({ chain: "bad", rules: [rule(jump("nat-prerouting"))] });
    for (let i = 0; i < 2; i++) {
      await expect(table.apply()).rejects.toMatchObject({ code: "refused", faulty: [{ kind: "rule", chain: "bad" }] });
      expect(await snapshot(kernel())).toEqual(before);
    }
    table.removeChain("bad");
    expect(operations(await table.apply())).toBe("chain +1 -3 rule +2 -4 set +1 -2 element +2 -4");
    const chains = (await kernel().chains(OWN)).map(({ chain }) => chain);
    expect(chains.toSorted()).toEqual(["draw-1", "draw-3", "nat-prerouting", "services"]);
    expect((await table.apply()).transactions).toBe(0);
  });

  it("a wrong use count after another process's reverted deletion does not prevent other deletions", async () => {
    const { table } = serviceTable(kernel());
    const map = table.packedSet({ ...VIPS, set: "more" });
    table.chain({ chain: "one-more", rules: [rule(counter)] });
    map.put(vip(1), new Uint8Array(Uint32Array.of(table.verdictId({ verdict: "goto", chain: "one-more" })).buffer));
    await table.apply();
    const refused = kernel().commit([
      { op: "flush", kind: "elements", ...OWN, set: "more" },
      { op: "delete", kind: "set", ...OWN, set: "more" },
      { op: "delete", kind: "chain", ...OWN, chain: "nowhere" },
    ]);
    await expect(refused).rejects.toMatchObject({ code: "refused" });
    table.removeSet("more");
    table.removeChain("one-more");
    const { busy } = await table.apply();
    // On Linux 6.1.176 to 6.1.190.
    expect([undefined, ["one-more"]]).toContainEqual(busy);
    expect((await kernel().sets(OWN)).map(({ set }) => set).toSorted()).toEqual(["endpoints", "vips"]);
    const chains = (await kernel().chains(OWN)).map(({ chain }) => chain);
    expect(chains.toSorted()).toEqual(["nat-prerouting", ...(busy ?? []), "services"]);
    expect(await kernel().rules(OWN, "one-more")).toEqual([]);
    expect((await table.apply()).transactions).toBe(0);
  });

  it("a set's types, flags and comment are changed together with the rules that look it up", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    table.chain({ chain: "c", rules: [rule(counter), rule({ field: "saddr", value: "@s" }, drop)] });
    table.packedSet({ set: "s", key: ["ipv4_addr"] }).put(ip("1.2.3.4"));
    await table.apply();
    const timed = table.packedSet({ set: "s", key: ["ipv4_addr"], timeoutMs: 0 });
    expect(timed.has(ip("1.2.3.4"))).toBe(true);
    expect(operations(await table.apply())).toBe("rule +1 -1 set +1 -1 element +1");
    expect((await table.apply()).transactions).toBe(0);
    const wider = table.packedSet({ set: "s", key: ["ipv4_addr", "inet_service"] });
    expect(wider.size).toBe(0);
    table.chain({ chain: "c", rules: [rule({ field: ["saddr", "th dport"], value: "@s" }, drop)] });
    wider.put(Uint8Array.of(1, 2, 3, 4, 0, 80, 0, 0));
    expect(operations(await table.apply())).toBe("rule +1 -2 set +1 -1 element +1");
    expect((await table.apply()).transactions).toBe(0);
  });

  it("a set of size auto that would overflow is recreated once, with all its users", async () => {
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

export function elements(kernel: () => Kernel): void {
  it("a deferred deletion of an element happens in a later transaction, after a grace period", async () => {
    const clock = new TestClock();
    const { table, service, vips } = serviceTable(kernel(), { clock, gracePeriodMs: 400 });
    service(1, 3);
    // So that the chain for two already exists.
    service(2, 2);
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
    vips.delete(vip(3), true);
    await table.apply();
    // The chain stays as long as the element refers to it.
    table.removeChain("draw-3");
    expect(operations(await table.apply())).toBe("");
    clock.advance(400);
    expect(operations(await table.apply())).toBe("chain -1 rule -1 element -1");
  });

  it("elements of an earlier run are deleted after a grace period if deferUndesired is set", async () => {
    const before = serviceTable(kernel());
    before.service(1, 3);
    await before.table.apply();
    const clock = new TestClock();
    const { table, service } = serviceTable(kernel(), { clock });
    table.packedSet({ ...ENDPOINTS, deferUndesired: true });
    service(1, 2);
    const first = await table.apply();
    expect(operations(first)).toBe("chain +1 -1 rule +1 -1 element +1 -1");
    expect(first.applyAgainMs).toBe(500);
    clock.advance(500);
    expect(operations(await table.apply())).toBe("element -1");
  });

  it("interval sets change range by range", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    const set = table.packedSet({ set: "cidrs", key: ["ipv4_addr"], interval: true });
    set.replaceNets(["10.0.0.0/9", "10.128.0.0/9", "240.0.0.0/4"]);
    expect(operations(await table.apply())).toBe("table +1 set +1 element +3");
    set.replaceNets(["10.0.0.0/8", "10.2.0.0/16", "172.16.0.0/12", "240.0.0.0/4"]);
    expect(operations(await table.apply())).toBe("element +2");
    set.replaceNets(["10.0.0.0/7", "240.0.0.0/4"]);
    expect(operations(await table.apply())).toBe("element +2 -4");
    set.replaceNets(["0.0.0.0/0"]);
    expect(operations(await table.apply())).toBe("element +1 -3");
    const again = new Table(kernel(), { family: "ip", name: NAME });
    again.packedSet({ set: "cidrs", key: ["ipv4_addr"], interval: true }).replaceNets(["0.0.0.0/0"]);
    expect((await again.apply()).transactions).toBe(0);
    set.replaceNets([]);
    expect(operations(await table.apply())).toBe("element -1");
    expect(() => set.replaceNets(["fd00::/8"])).toThrow(/family/);
    expect(() => set.put(ip("1.2.3.4"))).toThrow(/a key of 8 bytes/);
  });
}
