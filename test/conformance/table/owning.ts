/** A table that no other process can change: created, claimed, handed over, given up. */
import { beforeEach, expect, it } from "vitest";

import { TableFlag } from "../../../src/nft/kernel/constants.js";
import type { Kernel, Op } from "../../../src/nft/kernel/kernel.js";
import type { KernelWorld } from "../../support/kernel-world.ts";
import { snapshot } from "../../support/snapshot.ts";
import { operations, OWN, serviceTable, type ServiceTable } from "./build.js";

const OWNED = TableFlag.owner | TableFlag.persist;
const deleteTable: Op = { op: "delete", kind: "table", ...OWN };
const foreignChain: Op = { op: "add", kind: "chain", ...OWN, chain: "theirs" };

async function facts(kernel: Kernel): Promise<{ flags: number; owner?: number } | undefined> {
  const table = (await kernel.tables()).find((candidate) => candidate.table === OWN.table);
  if (table === undefined) return undefined;
  return { flags: table.flags, owner: table.owner };
}

/** Handles of everything in the table: they change when an object is recreated. */
async function handles(kernel: Kernel): Promise<bigint[]> {
  const all = [await kernel.chains(OWN), await kernel.sets(OWN), await kernel.rules(OWN)].flat();
  return all.map(({ handle }) => handle).toSorted((a, b) => Number(a - b));
}

/** The contents without flags and owner. */
async function content(kernel: Kernel): Promise<unknown> {
  const [table] = (await snapshot(kernel)) as { flags: number; owner?: number }[];
  const { flags: _flags, owner: _owner, ...rest } = table;
  return rest;
}

/** Before Linux 6.9. */
export function notOwning(world: () => KernelWorld): void {
  it("the table is a plain one, and a restart writes nothing", async () => {
    const { kernel } = world();
    const first = serviceTable(kernel, { own: true });
    first.service(1, 2);
    expect(await first.table.owned()).toBe(false);
    expect(await first.table.apply()).toMatchObject({ transactions: 1 });
    expect(await facts(kernel)).toEqual({ flags: 0 });
    const next = serviceTable(kernel, { own: true });
    next.service(1, 2);
    expect(await next.table.apply()).toMatchObject({ transactions: 0 });
  });

  it("other processes' changes in it are repaired", async () => {
    const { kernel } = world();
    const other = await world().other();
    const { table, service } = serviceTable(kernel, { own: true });
    service(1, 2);
    await table.apply();
    const before = await snapshot(kernel);
    await other.commit([foreignChain]);
    table.invalidate("test");
    await table.apply();
    expect(await snapshot(kernel)).toEqual(before);
  });
}

export function owning(world: () => KernelWorld): void {
  let kernel: Kernel;
  let other: Kernel;
  beforeEach(async () => {
    ({ kernel } = world());
    other = await world().other();
  });

  function owned(by = kernel): ServiceTable {
    const made = serviceTable(by, { own: true });
    made.service(1, 2);
    made.service(2, 2);
    return made;
  }

  function plain(): ServiceTable {
    const made = serviceTable(kernel);
    made.service(1, 2);
    made.service(2, 2);
    return made;
  }

  it("an owned table cannot be changed or deleted by others", async () => {
    const { table } = owned();
    expect(await table.owned()).toBe(true);
    await table.apply();
    expect(await facts(kernel)).toEqual({ flags: OWNED, owner: kernel.portId });
    const before = await snapshot(kernel);
    for (const op of [deleteTable, foreignChain]) {
      await expect(other.commit([op])).rejects.toMatchObject({ code: "refused", errno: "EPERM" });
    }
    expect(await snapshot(kernel)).toEqual(before);
    expect((await table.apply()).transactions).toBe(0);
  });

  it("the table stays after its owner's end, and the next owner claims it without other changes", async () => {
    const { table } = owned(other);
    await table.apply();
    const before = [await content(kernel), await handles(kernel)];
    await other.close();
    expect(await facts(kernel)).toEqual({ flags: TableFlag.persist });
    const next = owned();
    const claimed = await next.table.apply();
    expect(operations(claimed)).toBe("table +1");
    expect(await facts(kernel)).toEqual({ flags: OWNED, owner: kernel.portId });
    expect([await content(kernel), await handles(kernel)]).toEqual(before);
    expect((await next.table.apply()).transactions).toBe(0);
  });

  it("the table is claimed with the first transaction that changes it", async () => {
    await owned(other).table.apply();
    await other.close();
    const next = owned();
    next.service(2, 3);
    const result = await next.table.apply();
    // The new chain is written first.
    expect(result.transactions).toBe(2);
    expect(operations(result)).toBe("table +1 chain +1 rule +1 element +2 -1");
  });

  it("a table that another program owns is reported, and claimed after that program's end", async () => {
    await owned(other).table.apply();
    for (const { table } of [owned(), plain()]) {
      await expect(table.apply()).rejects.toMatchObject({
        code: "no-permission",
        message: expect.stringContaining(`owned by another program (netlink port ${other.portId})`) as string,
      });
      await expect(table.destroy()).rejects.toMatchObject({ code: "no-permission" });
    }
    const { table } = owned();
    await expect(table.apply()).rejects.toMatchObject({ code: "no-permission" });
    await other.close();
    expect((await table.apply()).transactions).toBe(1);
    expect(await facts(kernel)).toEqual({ flags: OWNED, owner: kernel.portId });
  });

  it("a write notices that another process now owns the table", async () => {
    const { table, service } = plain();
    await table.apply();
    await other.commit([deleteTable, { op: "add", kind: "table", ...OWN, flags: OWNED }]);
    service(3, 1);
    await expect(table.apply()).rejects.toMatchObject({ code: "no-permission" });
    await other.close();
    await table.apply();
    expect(await facts(kernel)).toEqual({ flags: 0 });
  });

  it("a plain table is recreated as an owned one, in one transaction", async () => {
    await plain().table.apply();
    const before = await content(kernel);
    const { table } = owned();
    const result = await table.apply();
    expect(result.transactions).toBe(1);
    expect(operations(result)).toBe("table +1 -1 chain +3 rule +3 set +2 element +6");
    expect(await facts(kernel)).toEqual({ flags: OWNED, owner: kernel.portId });
    expect(await content(kernel)).toEqual(before);
    expect((await table.apply()).transactions).toBe(0);
  });

  it("a formerly owned table is recreated as a plain one, in one transaction", async () => {
    await owned(other).table.apply();
    const before = await content(kernel);
    await other.close();
    const { table } = plain();
    const result = await table.apply();
    expect(result.transactions).toBe(1);
    expect(operations(result)).toBe("table +1 -1 chain +3 rule +3 set +2 element +6");
    expect(await facts(kernel)).toEqual({ flags: 0 });
    expect(await content(kernel)).toEqual(before);
  });

  it("a table is removed by its owner, and by any process after the owner's end", async () => {
    const { table } = owned();
    await table.apply();
    expect(operations(await table.destroy())).toBe("table -1");
    await owned(other).table.apply();
    await other.close();
    expect(operations(await plain().table.destroy())).toBe("table -1");
    expect(await kernel.tables()).toEqual([]);
  });

  it("a dormant table is activated and claimed at once", async () => {
    await owned(other).table.apply();
    await other.close();
    await kernel.commit([{ op: "add", kind: "table", ...OWN, flags: TableFlag.persist | TableFlag.dormant }]);
    expect(operations(await owned().table.apply())).toBe("table +1");
    expect(await facts(kernel)).toEqual({ flags: OWNED, owner: kernel.portId });
  });
}
