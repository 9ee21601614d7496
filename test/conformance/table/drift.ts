/** Changes of other processes to our table. */
import { expect, it } from "vitest";
import type { Kernel, Op } from "../../../src/nft/kernel/kernel.js";
import { commentOf } from "../../../src/nft/bytes/names-and-comments.js";
import { Table as LibraryTable } from "../../../src/nft/table.js";
import type { KernelWorld } from "../../support/kernel-world.ts";
import { snapshot } from "../../support/snapshot.ts";
import { pack } from "../../support/operations.ts";
import { endpoint, indexed, operations, OWN, serviceTable } from "./build.js";

export function drift(world: () => KernelWorld): void {
  it("is found and repaired after invalidate, and after a refused transaction", async () => {
    const { kernel } = world();
    const other = await world().other();
    const { table, service } = serviceTable(kernel);
    service(1, 2);
    service(2, 2);
    await table.apply();
    // As with a TableWatch, which here does not hear of the changes.
    table.listening(true);
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
    table.invalidate("another process wrote");
    const repaired = await table.apply();
    expect(repaired.resynced).toBe("another process wrote");
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
    expect(retried.resynced).toMatch(/differs from the observed state/);
    expect(operations(retried)).toBe("element +2 -1");
    await meddle({ op: "delete", kind: "table", ...OWN });
    service(1, 2);
    expect(operations(await table.apply())).toBe("table +1 chain +3 rule +3 set +2 element +6");
    expect(await snapshot(kernel)).toEqual(wanted);
  });
}

export function checksInTurn(world: () => KernelWorld): void {
  it("a partial check compares one set after the other, and only counts the elements of the rest", async () => {
    const { kernel } = world();
    const other = await world().other();
    const { table, service } = serviceTable(kernel);
    for (let i = 1; i <= 20; i++) service(i, 2);
    await table.apply();
    const wanted = await snapshot(kernel);
    const counted = (await kernel.sets(OWN)).map(({ set, count }) => [set, count]);
    const tells = counted.every(([, count]) => count !== undefined);
    if (tells) expect(Object.fromEntries(counted)).toEqual({ vips: 20, endpoints: 40 });
    const element = { key: indexed(7, 1), data: endpoint("10.9.9.9") };
    const set = { ...OWN, set: "endpoints" } as const;
    const replace = async (): Promise<unknown> =>
      other.commit([
        { op: "delete", kind: "elements", ...set, elements: pack([{ key: element.key }]) },
        { op: "add", kind: "elements", ...set, elements: pack([element]) },
      ]);
    const checks = async (times: number): Promise<string[]> => {
      const outcomes: string[] = [];
      for (let i = 0; i < times; i++) outcomes.push(await table.check(1));
      return outcomes;
    };
    expect(await checks(4)).toEqual(["same", "same", "same", "same"]);
    await replace();
    expect((await checks(2)).at(-1)).toBe("different");
    expect(operations(await table.apply())).toBe("element +1 -1");
    expect(await snapshot(kernel)).toEqual(wanted);
    for (const part of [1, 2]) {
      expect(await checks(part)).toEqual(part === 1 ? ["same"] : ["same", "same"]);
      await other.commit([{ op: "delete", kind: "elements", ...set, elements: pack([{ key: element.key }]) }]);
      expect(await table.check(1)).toBe("different");
      expect(operations(await table.apply())).toBe("element +1");
    }
    expect(await snapshot(kernel)).toEqual(wanted);
  });
}

/** Since Linux 5.13. */
export function catchAll(world: () => KernelWorld): void {
  it("a check finds a catch-all element of another process, and the next apply removes it", async () => {
    const { kernel } = world();
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
    expect(await table.check()).toBe("different");
    expect(operations(await table.apply())).toBe("element -1");
    expect(await table.check()).toBe("same");
    table.invalidate("test");
    expect((await table.apply()).transactions).toBe(0);
  });
}

export function others(world: () => KernelWorld): void {
  const kernel = (): Kernel => world().kernel;
  it("apply() is serialised, and nothing can be changed while it runs", async () => {
    const { table, service, endpoints } = serviceTable(kernel());
    for (let i = 1; i <= 40; i++) service(i, 1);
    const both = Promise.all([table.apply(), table.apply()]);
    expect(() => service(41, 1)).toThrow(expect.objectContaining({ code: "busy" }));
    const [a, b] = await both;
    expect([a.transactions, b.transactions]).toEqual([1, 0]);
    expect(endpoints.kernelValue(indexed(41, 0))).toBeUndefined();
    service(41, 1);
    await table.apply();
    expect(endpoints.kernelValue(indexed(41, 0))).toEqual(endpoint("10.0.41.1"));
  });

  it("comments and widths are written as nft writes them", async () => {
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

  it("probing the features leaves no trace", async () => {
    const table = new LibraryTable(kernel(), { family: "ip", name: OWN.table });
    const before = await kernel().generation();
    const features = await table.features();
    expect((await kernel().generation()).id).toBe(before.id);
    const { facts } = world();
    expect(features).toEqual({
      destroy: facts.destroy,
      masqueradeFullyRandom: true,
      snatFullyRandom: true,
      rejectPrerouting: true,
      tableOwner: facts.owner,
      tablePersist: facts.persist,
      inetNat: true,
      fib: true,
      chainUserdata: true,
      deletedMapsLetGo: true,
      elementCounters: true,
    });
    expect(await kernel().tables()).toEqual([]);
    expect(table.features()).toBe(table.features());
  });

  it("calls after close() are refused", async () => {
    const { table } = serviceTable(kernel());
    await table.apply();
    table.close();
    await expect(table.apply()).rejects.toMatchObject({ code: "closed" });
  });
}
