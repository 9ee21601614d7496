/** Changes by another process that the kernel does not let us undo in the usual way. */
import { expect, it } from "vitest";

import { ChainFlag, TableFlag } from "../../../src/nft/kernel/constants.js";
import type { Expr, Kernel, Op } from "../../../src/nft/kernel/kernel.js";
import { commentData } from "../../../src/nft/bytes/names-and-comments.js";
import type { KernelWorld } from "../../support/kernel-world.ts";
import { ip } from "../../support/operations.ts";
import { snapshot } from "../../support/snapshot.ts";
import { OWN, rule, serviceTable, type ServiceTable, VIPS } from "./build.js";

const lookup: readonly Expr[] = [
  { type: "payload", base: 1, offset: 16, len: 4, dreg: 1 },
  { type: "cmp", sreg: 1, op: 0, data: ip("10.96.0.7") },
];

/** As made by `nft insert rule … 'ip daddr 10.96.0.7 jump { counter jump draw-2; }'`. */
const boundChain: readonly Op[] = [
  { op: "add", kind: "chain", ...OWN, chain: "__chain7", flags: ChainFlag.binding },
  {
    op: "add",
    kind: "rule",
    ...OWN,
    chain: "__chain7",
    exprs: [{ type: "counter" }, { type: "immediate", dreg: 0, data: { verdict: "jump", chain: "draw-2" } }],
  },
  {
    op: "insert",
    kind: "rule",
    ...OWN,
    chain: "services",
    exprs: [...lookup, { type: "immediate", dreg: 0, data: { verdict: "jump", chain: "__chain7" } }],
  },
];

const toSleep: Op = { op: "add", kind: "table", ...OWN, flags: TableFlag.dormant };
const noBaseChain: readonly Op[] = [
  { op: "flush", kind: "rule", ...OWN, chain: "nat-prerouting" },
  { op: "delete", kind: "chain", ...OWN, chain: "nat-prerouting" },
];
const otherComment: readonly Op[] = [
  { op: "delete", kind: "table", ...OWN },
  { op: "add", kind: "table", ...OWN, userdata: Uint8Array.from(commentData("theirs") ?? []) },
];

interface Named {
  readonly chain?: string;
  readonly set?: string;
}

/** Everything in the table, regardless of the order of creation of chains and sets. */
async function content(kernel: Kernel): Promise<unknown> {
  const byName = (a: Named, b: Named): number => ((a.chain ?? a.set ?? "") < (b.chain ?? b.set ?? "") ? -1 : 1);
  const [table] = (await snapshot(kernel)) as { chains: Named[]; sets: Named[]; rules: (Named & object)[] }[];
  const rules = Object.fromEntries(Map.groupBy(table.rules, ({ chain }) => chain ?? ""));
  return { ...table, chains: table.chains.toSorted(byName), sets: table.sets.toSorted(byName), rules };
}

/** The table with one service of two endpoints. */
function wanted(kernel: Kernel): ServiceTable {
  const made = serviceTable(kernel);
  made.service(1, 2);
  return made;
}

const TAMPERINGS: readonly (readonly [string, readonly Op[]])[] = [
  ["a rule that jumps to a bound chain is deleted together with the chain", boundChain],
  [
    "a bound chain does not keep the chains that it refers to",
    [...boundChain, { op: "flush", kind: "elements", ...OWN, set: "vips" }],
  ],
  ["a dormant table is activated", [toSleep]],
  ["a dormant table that lacks a base chain is activated with that chain", [...noBaseChain, toSleep]],
  [
    "a dormant table with a base chain at another hook is activated with the right one",
    [
      ...noBaseChain,
      { op: "add", kind: "chain", ...OWN, chain: "nat-prerouting", base: { type: "nat", hook: 3, priority: -100 } },
      toSleep,
    ],
  ],
  ["a table with another comment is written from scratch", otherComment],
];

export function tampering(world: () => KernelWorld): void {
  for (const [title, ops] of TAMPERINGS) {
    it(`${title}, at the next apply and at a start`, async () => {
      const { kernel } = world();
      const other = await world().other();
      const { table } = wanted(kernel);
      await table.apply();
      const before = await content(kernel);
      for (const op of ops.length > 1 && ops.at(-1) === toSleep ? [ops.slice(0, -1), [toSleep]] : [ops])
        await other.commit(op);
      table.invalidate("test");
      await table.apply();
      expect(await content(kernel)).toEqual(before);
      expect((await table.apply()).transactions).toBe(0);
      table.invalidate("test");
      expect((await table.apply()).transactions).toBe(0);

      for (const op of ops.length > 1 && ops.at(-1) === toSleep ? [ops.slice(0, -1), [toSleep]] : [ops])
        await other.commit(op);
      const next = wanted(kernel);
      await next.table.apply();
      next.table.invalidate("test");
      await next.table.apply();
      expect(await content(kernel)).toEqual(before);
    });
  }

  for (const [what, first] of [
    ["was deleted", [otherComment[0]]],
    ["was recreated", otherComment],
  ] as const) {
    it(`a table that serves packets under another comment is written from scratch if it ${what} just before`, async () => {
      const { kernel } = world();
      const other = await world().other();
      const { table } = wanted(kernel);
      await table.apply();
      const before = await content(kernel);
      await other.commit(first);
      table.invalidate("test");
      await table.load();
      const base = { type: "filter", hook: 1, priority: 0 } as const;
      const serving: Op = { op: "add", kind: "chain", ...OWN, chain: "nat-prerouting", base };
      await other.commit([...(first.length > 1 ? otherComment : [otherComment[1]]), serving]);
      table.invalidate("test");
      await table.apply();
      expect(await content(kernel)).toEqual(before);
    });
  }

  it("a set that a bound chain looks up can be recreated", async () => {
    const { kernel } = world();
    const other = await world().other();
    const { table, service } = wanted(kernel);
    await table.apply();
    await other.commit([
      boundChain[0],
      {
        op: "add",
        kind: "rule",
        ...OWN,
        chain: "__chain7",
        exprs: [
          { type: "payload", base: 1, offset: 16, len: 4, dreg: 1 },
          { type: "meta", key: 16, dreg: 9 },
          { type: "payload", base: 2, offset: 2, len: 2, dreg: 10 },
          { type: "lookup", set: "vips", sreg: 1, dreg: 0 },
        ],
      },
      boundChain[2],
    ]);
    table.invalidate("test");
    table.removeSet("vips");
    table.packedSet({ ...VIPS, comment: "another one" });
    service(1, 2);
    await table.apply();
    expect((await kernel.chains(OWN)).map(({ chain }) => chain).toSorted()).toEqual([
      "draw-2",
      "nat-prerouting",
      "services",
    ]);
  });

  it("an apply that rebuilds writes the table in one transaction, including the elements that packets added", async () => {
    const { kernel } = world();
    const other = await world().other();
    const { table } = wanted(kernel);
    const clients = { set: "clients", key: ["ipv4_addr"], dynamic: true, timeoutMs: 600_000, size: 1000 } as const;
    table.packedSet(clients);
    table
      .packedSet({ set: "counted", key: ["ipv4_addr"], data: ["mark"], counters: {} })
      .put(ip("10.0.0.1"), Uint8Array.of(1, 0, 0, 0));
    table.chain({ chain: "use", rules: [rule({ field: "saddr", value: "@clients" })] });
    await table.apply();
    const before = await content(kernel);
    await other.commit([
      {
        op: "add",
        kind: "elements",
        ...OWN,
        set: "clients",
        elements: { count: 1, keyLen: 4, dataLen: 0, bytes: ip("192.0.2.1") },
      },
      ...replaceCounted(7n),
      { op: "add", kind: "chain", ...OWN, chain: "theirs" },
    ]);
    const { id } = await kernel.generation();
    const rebuilt = await table.apply({ rebuild: true });
    expect(rebuilt).toMatchObject({ transactions: 1, resynced: "the table is written from scratch" });
    expect((await kernel.generation()).id).toBe(id + 1);
    const sets = await kernel.sets(OWN);
    const of = (name: string) => kernel.elements(OWN, sets.find(({ set }) => set === name) ?? clientsInfo);
    const kept = await of("clients");
    expect(kept.count).toBe(1);
    expect([...kept.bytes.subarray(0, 4)]).toEqual([...ip("192.0.2.1")]);
    const counted = await of("counted");
    expect(new DataView(counted.bytes.buffer, counted.bytes.byteOffset).getBigUint64(8, true)).toBe(7n);
    // Other objects there are unchanged.
    await other.commit([{ op: "flush", kind: "elements", ...OWN, set: "clients" }, ...replaceCounted(0n)]);
    expect(await content(kernel)).toEqual(before);
    expect((await table.apply()).transactions).toBe(0);
  });
}

const clientsInfo = { set: "", flags: 0, keyType: 0, keyLen: 4 };

/** The element of `counted` with these packets. */
function replaceCounted(packets: bigint): Op[] {
  const set = { ...OWN, set: "counted" } as const;
  const bytes = new Uint8Array(24);
  bytes.set(ip("10.0.0.1"));
  bytes[4] = 1;
  new DataView(bytes.buffer).setBigUint64(8, packets, true);
  return [
    { op: "delete", kind: "elements", ...set, elements: { count: 1, keyLen: 4, dataLen: 0, bytes: ip("10.0.0.1") } },
    { op: "add", kind: "elements", ...set, elements: { count: 1, keyLen: 4, dataLen: 4, counters: true, bytes } },
  ];
}
