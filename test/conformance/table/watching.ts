/** Changes by others to a watched table: noticed by events, read as far as needed, and undone at once. */
import { afterEach, beforeEach, expect, it } from "vitest";

import type { ElementBatch, Kernel, Op } from "../../../src/nft/kernel/kernel.js";
import { type ForeignChange, TableWatch } from "../../../src/nft/table-watch.js";
import type { KernelWorld } from "../../support/kernel-world.ts";
import { snapshot } from "../../support/snapshot.ts";
import { pack } from "../../support/operations.ts";
import { endpoint, indexed, operations, OWN, rule, serviceTable, counter, vip, type ServiceTable } from "./build.js";

const CHAIN = { ...OWN, chain: "nat-prerouting" } as const;
const noElement = (key: Uint8Array): Op => ({
  op: "delete",
  kind: "elements",
  ...OWN,
  set: "endpoints",
  elements: pack([{ key }]),
});
const element = (key: Uint8Array, address: string): Op => ({
  op: "add",
  kind: "elements",
  ...OWN,
  set: "endpoints",
  elements: pack([{ key, data: endpoint(address) }]),
});

/** Possible changes by another process, with the operations that undo them. */
export const DEEDS: Readonly<
  Record<string, { does: (kernel: Kernel) => Op[] | Promise<Op[]>; undone: string; said: string }>
> = {
  "delete the table": {
    does: () => [{ op: "delete", kind: "table", ...OWN }],
    undone: "table +1 chain +3 rule +3 set +3 element +6",
    said: "the table was deleted",
  },
  "delete a rule": {
    does: async (kernel) => {
      const [{ handle }] = await kernel.rules(OWN, "services");
      return [{ op: "delete", kind: "rule", ...OWN, chain: "services", handle }];
    },
    undone: "rule +1",
    said: "chain services: rules 1 gone",
  },
  "add a rule": {
    does: () => [
      { op: "insert", kind: "rule", ...CHAIN, exprs: [{ type: "immediate", dreg: 0, data: { verdict: "drop" } }] },
    ],
    undone: "rule -1",
    said: "chain nat-prerouting: rules 1 added",
  },
  "change a base chain's policy": {
    does: () => [
      { op: "add", kind: "chain", ...CHAIN, base: { type: "nat", hook: 0, priority: -100, policy: "drop" } },
    ],
    undone: "chain +1",
    said: "chain nat-prerouting: type nat hook prerouting priority -100 policy drop, not type nat hook prerouting priority -100 policy accept",
  },
  "move a base chain": {
    does: () => [
      { op: "flush", kind: "rule", ...CHAIN },
      { op: "delete", kind: "chain", ...CHAIN },
      { op: "add", kind: "chain", ...CHAIN, base: { type: "nat", hook: 0, priority: 7 } },
    ],
    undone: "chain +1 -1 rule +1",
    said: "chain nat-prerouting: type nat hook prerouting priority 7 policy accept, not type nat hook prerouting priority -100 policy accept",
  },
  "add a chain": {
    does: () => [{ op: "add", kind: "chain", ...OWN, chain: "theirs" }],
    undone: "chain -1",
    said: "chain theirs: added",
  },
  "remove an element": {
    does: () => [noElement(indexed(1, 0))],
    undone: "element +1",
    said: "set endpoints: elements 1 gone",
  },
  "add an element": {
    does: () => [element(indexed(7, 0), "9.9.9.9")],
    undone: "element -1",
    said: "set endpoints: elements 1 added",
  },
  "change an element": {
    does: () => [noElement(indexed(1, 0)), element(indexed(1, 0), "9.9.9.9")],
    undone: "element +1 -1",
    said: "set endpoints: elements 1 changed",
  },
  "put an element in another's place": {
    does: () => [noElement(indexed(1, 0)), element(indexed(7, 0), "10.0.1.1")],
    undone: "element +1 -1",
    said: "set endpoints: elements 1 gone, 1 added",
  },
  "change a verdict": {
    does: () => [
      { op: "delete", kind: "elements", ...OWN, set: "vips", elements: pack([{ key: vip(1) }]) },
      {
        op: "add",
        kind: "elements",
        ...OWN,
        set: "vips",
        elements: pack([{ key: vip(1), data: { verdict: "drop" } }]),
      },
    ],
    undone: "element +1 -1",
    said: "set vips: elements 1 changed",
  },
  "recreate a map": {
    does: async (kernel) => {
      const info = (await kernel.sets(OWN)).find(({ set }) => set === "vips");
      if (info === undefined) throw new Error("there is no map of VIPs");
      return [
        { op: "flush", kind: "rule", ...OWN, chain: "services" },
        { op: "delete", kind: "set", ...OWN, set: "vips" },
        { ...info, op: "add", kind: "set", ...OWN },
      ];
    },
    undone: "rule +1 element +2",
    said: "set vips: elements 2 gone",
  },
  "empty a map": {
    does: () => [{ op: "flush", kind: "elements", ...OWN, set: "vips" }],
    undone: "element +2",
    said: "set vips: elements 2 gone",
  },
  "make the table dormant": {
    does: () => [{ op: "add", kind: "table", ...OWN, flags: 1 }],
    undone: "table +1",
    said: "the table's flags are dormant, not none",
  },
};

export function watching(world: () => KernelWorld): void {
  let watch: TableWatch;
  let heard: ForeignChange[];
  let wake: (() => void) | undefined;
  let own: ServiceTable;
  let other: Kernel;

  async function nextChange(): Promise<ForeignChange> {
    while (heard.length === 0) await new Promise<void>((resolve) => (wake = resolve));
    return heard.splice(0)[0];
  }

  beforeEach(async () => {
    const { kernel } = world();
    other = await world().other();
    heard = [];
    own = serviceTable(kernel);
    own.table.packedSet({ set: "clients", key: ["ipv4_addr"], dynamic: true, timeoutMs: 60_000 });
    watch = new TableWatch(kernel, [own.table], {
      changed: (_table, change) => {
        heard.push(change);
        wake?.();
      },
      lost: () => undefined,
      failed: (error) => {
        throw error;
      },
    });
    await watch.open();
    own.service(1, 2);
    own.service(2, 2);
    await own.table.apply();
  });
  afterEach(() => watch.close());

  for (const [deed, { does, undone, said }] of Object.entries(DEEDS)) {
    it(`${deed}: undone in one transaction`, async () => {
      const { kernel } = world();
      const wanted = await snapshot(kernel);
      await other.commit(await does(kernel));
      expect(await snapshot(kernel)).not.toEqual(wanted);
      const { changes, process } = await nextChange();
      expect(changes.length).toBeGreaterThan(0);
      expect(process?.pid).toBeGreaterThan(0);
      const repaired = await own.table.apply();
      expect(operations(repaired)).toBe(undone);
      expect(repaired).toMatchObject({ transactions: 1, resynced: "another process changed the table" });
      expect(repaired.drift?.changes).toContain(said);
      expect(repaired.drift?.tableDeleted).toBe(deed === "delete the table");
      expect(sorted(await snapshot(kernel))).toEqual(sorted(wanted));
      expect(await own.table.apply()).toMatchObject({ transactions: 0 });
      expect(own.table.invalidated).toBe(false);
    });

    it(`${deed}: found by a check if no event reports it`, async () => {
      await watch.close();
      expect(await own.table.check()).toBe("same");
      await other.commit(await does(world().kernel));
      expect(own.table.invalidated).toBe(false);
      expect(await own.table.check()).toBe("different");
      const repaired = await own.table.apply();
      expect(operations(repaired)).toBe(undone);
      expect(repaired.drift?.changes).toContain(said);
      expect([...(repaired.drift?.causes ?? [])]).toEqual(["check"]);
      expect(await own.table.check()).toBe("same");
    });
  }

  it("our own changes, those of other tables, and elements that packets add are not noticed", async () => {
    own.service(3, 1);
    await own.table.apply();
    await other.commit([{ op: "add", kind: "table", family: "ip", table: "elsewhere" }]);
    await other.commit([
      { op: "add", kind: "elements", ...OWN, set: "clients", elements: pack([{ key: Uint8Array.of(1, 2, 3, 4) }]) },
    ]);
    expect(own.table.invalidated).toBe(false);
    await other.commit([noElement(indexed(1, 0))]);
    expect((await nextChange()).changes).toEqual(["1 element of set endpoints deleted"]);
    expect(heard).toEqual([]);
    const repaired = await own.table.apply();
    expect(operations(repaired)).toBe("element +1");
    expect((await world().kernel.elements(OWN, (await setsByName()).clients)).count).toBe(1);
  });

  const setsByName = async (): Promise<Record<string, Awaited<ReturnType<Kernel["sets"]>>[number]>> =>
    Object.fromEntries((await world().kernel.sets(OWN)).map((set) => [set.set, set]));

  it("a change of ours is written with the repair, or before it if the repair has to wait", async () => {
    await other.commit([noElement(indexed(1, 0))]);
    await nextChange();
    own.service(3, 2);
    const before = await own.table.apply({ repair: false });
    expect([operations(before), before.resynced]).toEqual(["element +3", undefined]);
    expect(own.table.invalidated).toBe(true);
    own.service(4, 2);
    const after = await own.table.apply();
    expect(operations(after)).toBe("element +4");
    expect(after.drift?.changes).toEqual(["set endpoints: elements 1 gone"]);
  });

  it("a change that cannot be written before the repair says so, and is written with it", async () => {
    await other.commit([noElement(indexed(1, 0))]);
    await nextChange();
    own.service(1, 2, 50);
    await expect(own.table.apply({ repair: false })).rejects.toMatchObject({ code: "stale" });
    expect(operations(await own.table.apply())).toBe("element +2 -1");
  });

  it("a check compares ranges and elements that wait for deletion, but not elements that packets add", async () => {
    await watch.close();
    own.table
      .packedSet({ set: "nets", key: ["ipv4_addr"], interval: true })
      .replaceNets(["10.0.0.0/8", "192.168.0.0/16"]);
    own.service(2, 1);
    await own.table.apply();
    await other.commit([
      { op: "add", kind: "elements", ...OWN, set: "clients", elements: pack([{ key: Uint8Array.of(1, 2, 3, 4) }]) },
    ]);
    expect(await own.table.check()).toBe("same");
    await other.commit([noElement(indexed(2, 1))]);
    expect(await own.table.check()).toBe("different");
    await own.table.apply();
    const range = (from: number[], end: number[]): ElementBatch =>
      pack([{ key: Uint8Array.from(from) }, { key: Uint8Array.from(end), flags: 1 }]);
    const nets = { kind: "elements", ...OWN, set: "nets" } as const;
    await other.commit([
      { op: "delete", ...nets, elements: range([10, 0, 0, 0], [11, 0, 0, 0]) },
      { op: "add", ...nets, elements: range([10, 0, 0, 0], [10, 0, 1, 0]) },
    ]);
    expect(await own.table.check()).toBe("different");
    expect(operations(await own.table.apply())).toBe("element +2 -2");
    expect(await own.table.check()).toBe("same");
  });

  it("counters and elements that packets added survive the repair of other objects", async () => {
    const { kernel } = world();
    own.table.chain({ chain: "counting", rules: [rule(counter)] });
    await own.table.apply();
    const [before] = await kernel.rules(OWN, "counting");
    await other.commit([
      { op: "add", kind: "elements", ...OWN, set: "clients", elements: pack([{ key: Uint8Array.of(1, 2, 3, 4) }]) },
      noElement(indexed(1, 0)),
      { op: "add", kind: "chain", ...OWN, chain: "theirs" },
    ]);
    await nextChange();
    expect(operations(await own.table.apply())).toBe("chain -1 element +1");
    expect((await kernel.rules(OWN, "counting")).map(({ handle }) => handle)).toEqual([before.handle]);
    expect((await kernel.elements(OWN, (await setsByName()).clients)).count).toBe(1);
  });
}

/** Recreated chains and sets are listed last. */
export function sorted(tables: unknown): unknown {
  const byName = (a: { chain?: string; set?: string }, b: { chain?: string; set?: string }): number =>
    `${a.chain}${a.set}` < `${b.chain}${b.set}` ? -1 : 1;
  return (tables as { chains: object[]; rules: object[]; sets: object[] }[]).map((table) => ({
    ...table,
    chains: table.chains.toSorted(byName),
    rules: table.rules.toSorted(byName),
    sets: table.sets.toSorted(byName),
  }));
}
