import { expect, test } from "vitest";
import { TableFlag } from "../../../src/nft/kernel/constants.js";
import type { Fault } from "../../../src/nft/kernel/errors.js";
import type { Op } from "../../../src/nft/kernel/kernel.js";
import {
  addressSet,
  input,
  jump,
  newChain,
  newElements,
  newRule,
  newSet,
  newTable,
  noTable,
  T,
} from "../../support/operations.ts";
import { faultsOf, runCases, type Current } from "../cases.js";

const flagged = (flags: number): Op => ({ op: "add", kind: "table", ...T, flags });

/** Answers to flags from kernels that know no owners, and from new ones to unknown flags. */
const flagsUnknown: readonly Fault[] = [{ op: 0, errno: "EINVAL" }];

export function tables(current: Current): void {
  runCases(current, [
    {
      title: "add creates a table",
      when: [newTable()],
      then: async ({ kernel }) => {
        const [table] = await kernel.tables();
        expect(table).toMatchObject({ ...T, flags: 0, use: 0 });
        expect(table.handle).toBeGreaterThan(0n);
        expect(table.owner).toBeUndefined();
      },
    },
    { title: "add accepts an existing table", given: [newTable()], when: [newTable()] },
    {
      title: "create refuses an existing table",
      given: [newTable()],
      when: [newTable("create")],
      faults: [{ op: 0, errno: "EEXIST" }],
    },
    { title: "create creates a table", when: [newTable("create")] },
    { title: "delete of a missing table", when: [noTable()], faults: [{ op: 0, errno: "ENOENT" }] },
    { title: "destroy of a missing table", when: [noTable("destroy")] },
    { title: "destroy deletes the table", given: [newTable()], when: [noTable("destroy")], then: gone },
    {
      title: "delete deletes everything in the table",
      given: [
        newTable(),
        newChain("a"),
        newChain("b", input),
        newRule("b", jump("a")),
        newSet(addressSet("s")),
        newElements("s", [{ key: "1.2.3.4" }]),
      ],
      when: [noTable()],
      then: gone,
    },
    {
      title: "delete and add in one batch leave an empty table",
      given: [newTable(), newChain("a"), newSet(addressSet("s"))],
      when: [noTable(), newTable("create"), newChain("a", undefined, "create")],
      then: async ({ kernel }) => {
        expect((await kernel.chains(T)).map(({ chain }) => chain)).toEqual(["a"]);
        expect(await kernel.sets(T)).toEqual([]);
      },
    },
    {
      title: "the same name in two families means two tables",
      when: [newTable(), { op: "create", kind: "table", family: "ip6", table: T.table }],
      then: async ({ kernel }) => {
        expect((await kernel.tables()).length).toBe(2);
        expect((await kernel.tables("ip6")).map(({ family }) => family)).toEqual(["ip6"]);
      },
    },
    {
      title: "use counts chains and sets",
      when: [newTable(), newChain("a"), newChain("b"), newSet(addressSet("s"))],
      then: async ({ kernel }) => expect((await kernel.tables())[0]).toMatchObject({ use: 3 }),
    },
    {
      title: "a table can be made dormant and active",
      given: [newTable()],
      when: [flagged(TableFlag.dormant)],
      then: async ({ kernel }) => expect((await kernel.tables())[0]).toMatchObject({ flags: TableFlag.dormant }),
    },
    {
      title: "unknown flags",
      realOnly: true,
      when: [flagged(0x100)],
      faults: [{ op: 0, errno: "EOPNOTSUPP" }],
      before: { fact: "owner", faults: flagsUnknown },
      since: { fact: "flagsByPolicy", faults: flagsUnknown },
    },
    {
      title: "a plain table cannot be claimed",
      given: [newTable()],
      when: [flagged(TableFlag.owner)],
      faults: [{ op: 0, errno: "EOPNOTSUPP" }],
      before: { fact: "owner", faults: flagsUnknown },
    },
    {
      title: "a plain table cannot become persistent",
      given: [newTable()],
      when: [flagged(TableFlag.persist)],
      faults: [{ op: 0, errno: "EOPNOTSUPP" }],
      before: { fact: "owner", faults: flagsUnknown },
    },
    {
      title: "userdata is returned unchanged",
      when: [{ op: "add", kind: "table", ...T, userdata: Uint8Array.of(0, 3, 104, 105, 0) }],
      then: async ({ kernel }) => {
        const [{ userdata }] = await kernel.tables();
        expect([...(userdata ?? [])]).toEqual([0, 3, 104, 105, 0]);
      },
    },
  ]);

  test("an owner cannot give up its table", async () => {
    const { kernel, facts } = current();
    if (!facts.owner) {
      expect(await faultsOf(kernel, [flagged(TableFlag.owner)])).toEqual(flagsUnknown);
      return;
    }
    await kernel.commit([flagged(TableFlag.owner)]);
    expect(await faultsOf(kernel, [flagged(0)])).toEqual([{ op: 0, errno: "EOPNOTSUPP" }]);
    expect((await kernel.tables())[0]).toMatchObject({ flags: TableFlag.owner });
  });

  test("an owned table rejects other processes, and is deleted with its owner", async () => {
    const { kernel, other, facts } = current();
    const owner = await other();
    if (!facts.owner) {
      expect(await faultsOf(owner, [flagged(TableFlag.owner)])).toEqual(flagsUnknown);
      return;
    }
    await owner.commit([flagged(TableFlag.owner), newChain("a")]);
    expect((await kernel.tables())[0]).toMatchObject({ flags: TableFlag.owner, owner: owner.portId });
    expect(await faultsOf(kernel, [newChain("b"), noTable()])).toEqual([
      { op: 0, errno: "EPERM" },
      { op: 1, errno: "EPERM" },
    ]);
    await owner.commit([newChain("b")]);
    await owner.close();
    expect(await kernel.tables()).toEqual([]);
  });

  test("a persistent table outlives its owner, and a later socket can claim it", async () => {
    const { kernel, other, facts } = current();
    const owner = await other();
    const claim = flagged(TableFlag.owner | TableFlag.persist);
    if (!facts.persist) {
      expect(await faultsOf(owner, [claim])).toEqual(facts.owner ? [{ op: 0, errno: "EOPNOTSUPP" }] : flagsUnknown);
      return;
    }
    await owner.commit([claim, newChain("a")]);
    await owner.close();
    expect((await kernel.tables())[0]).toMatchObject({ flags: TableFlag.persist });
    await kernel.commit([newChain("b")]);
    await kernel.commit([claim]);
    expect((await kernel.tables())[0]).toMatchObject({ owner: kernel.portId });
    expect((await kernel.chains(T)).map(({ chain }) => chain)).toEqual(["a", "b"]);
  });
}

async function gone({ kernel }: { kernel: { tables(): Promise<unknown[]> } }): Promise<void> {
  expect(await kernel.tables()).toEqual([]);
}
