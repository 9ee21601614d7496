/** The writes of apply(), and their number of steps. */
import { expect, it } from "vitest";
import type { Kernel } from "../../../src/nft/kernel/kernel.js";
import { Table } from "../../../src/nft/engine-exports.js";
import { commentOf } from "../../../src/nft/bytes/names-and-comments.js";
import { snapshot } from "../../support/snapshot.ts";
import { ip } from "../../support/operations.ts";
import { accept, counter, named, drop, jump, NAME, operations, OWN, rule, serviceTable, vip } from "./build.js";

const chainRules = async (kernel: Kernel, chain: string): Promise<(string | undefined)[]> =>
  (await kernel.rules(OWN, chain)).map((info) => commentOf(info.userdata));

export function applying(kernel: () => Kernel): void {
  it("everything is written in one transaction, then nothing, then only the changes", async () => {
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

  it("a chain is edited with the fewest rules, in the right places", async () => {
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

  it("objects may be declared in any order, and sets and chains may refer to each other", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    table.chain({ chain: "a", rules: [rule({ action: "vmap", key: ["daddr"], map: "m" })] });
    const map = table.packedSet({ set: "m", key: ["ipv4_addr"], data: "verdict" });
    map.put(ip("1.2.3.4"), new Uint8Array(Uint32Array.of(table.verdictId({ verdict: "jump", chain: "b" })).buffer));
    table.chain({ chain: "b", rules: [rule({ field: "saddr", value: "@s" }, drop)] });
    table
      .packedSet({ set: "s", key: ["ipv4_addr"], interval: true })
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

  it("a missing reference is refused, and accepted after its target exists", async () => {
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

  it("an object that the kernel refuses is named, the old state is kept, and the write is retried later", async () => {
    const { table, service } = serviceTable(kernel());
    service(1, 1);
    await table.apply();
    const before = await snapshot(kernel());
    service(2, 1);
    // A jump to a base chain, which every kernel rejects.
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

  it("anonymous sets are written with their rules and recognized later", async () => {
    const many = { field: "ip saddr", value: ["10.0.0.0/8", "192.168.0.0/16", "0.0.0.0/8"] } as const;
    const ports = { field: "th dport", value: [80, 443] } as const;
    const declare = (table: Table, ...rules: ReturnType<typeof rule>[]): void => table.chain({ chain: "c", rules });
    const table = new Table(kernel(), { family: "ip", name: NAME });
    declare(
      table,
      rule(many, drop),
      rule({ field: "meta l4proto", value: "tcp" }, ports, drop),
      rule(many, ports, accept),
    );
    expect(operations(await table.apply())).toBe("table +1 chain +1 rule +3 set +4 element +16");
    const again = new Table(kernel(), { family: "ip", name: NAME });
    declare(again, rule(many, drop), rule(many, ports, accept));
    expect(operations(await again.apply())).toBe("rule -1");
    declare(
      again,
      rule({ ...many, value: ["10.0.0.0/8", "192.168.0.0/17", "0.0.0.0/8"] }, drop),
      rule(many, ports, accept),
    );
    expect(operations(await again.apply())).toBe("rule +1 -1 set +1 element +6");
  });
}
