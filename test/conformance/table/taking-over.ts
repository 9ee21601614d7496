/** The first write into a table that another owner, or a former layout of ours, filled. */
import { expect, it } from "vitest";
import type { ElementBatch, Kernel, Op } from "../../../src/nft/kernel/kernel.js";
import { commentData } from "../../../src/nft/bytes/names-and-comments.js";
import { pack, unpack } from "../../support/operations.ts";
import { draw, ENDPOINTS, jump, operations, OWN, rule, serviceTable, TestClock, vip, VIPS } from "./build.js";

const THEIRS = { set: "theirs", flags: 8, keyType: 7, keyLen: 4, dataType: 0xffffff00 } as const;

/**
 * A hook whose rule looks packets up in a foreign map: one element goes to `chain`, the other to a chain that only the foreign table has.
 */
function formerTable(chain: string, comment?: string): Op[] {
  const userdata = commentData(comment);
  const elements = [
    { key: "1.2.3.4", data: { verdict: "goto", chain } },
    { key: "1.2.3.5", data: { verdict: "goto", chain: "svc-1" } },
  ] as const;
  return [
    { op: "add", kind: "table", ...OWN },
    { op: "add", kind: "chain", ...OWN, chain, userdata },
    { op: "add", kind: "chain", ...OWN, chain: "svc-1" },
    { op: "add", kind: "chain", ...OWN, chain: "prerouting", base: { type: "nat", hook: 0, priority: -100 } },
    { op: "add", kind: "set", ...OWN, ...THEIRS },
    { op: "add", kind: "elements", ...OWN, set: "theirs", elements: pack(elements) },
    { op: "add", kind: "rule", ...OWN, chain, exprs: [{ type: "counter" }] },
    { op: "add", kind: "rule", ...OWN, chain: "svc-1", exprs: [{ type: "counter" }] },
    {
      op: "add",
      kind: "rule",
      ...OWN,
      chain: "prerouting",
      exprs: [
        { type: "payload", base: 1, offset: 16, len: 4, dreg: 1 },
        { type: "lookup", set: "theirs", sreg: 1, dreg: 0 },
      ],
    },
  ];
}

export function takingOver(kernel: () => Kernel): void {
  const elementsOf = async (name: string): Promise<ElementBatch> => {
    const set = (await kernel().sets(OWN)).find((info) => info.set === name);
    if (set === undefined) throw new Error(`no set ${name}`);
    return kernel().elements(OWN, set);
  };
  const chains = async (): Promise<string[]> => (await kernel().chains(OWN)).map(({ chain }) => chain).toSorted();
  const sets = async (): Promise<string[]> => (await kernel().sets(OWN)).map(({ set }) => set).toSorted();
  const generation = async (): Promise<number> => (await kernel().generation()).id;

  it("takes over a table with different contents", async () => {
    const ref = OWN;
    await kernel().commit([
      { op: "add", kind: "table", ...ref },
      { op: "add", kind: "chain", ...ref, chain: "services" },
      { op: "add", kind: "chain", ...ref, chain: "svc-1" },
      { op: "add", kind: "chain", ...ref, chain: "svc-2" },
      { op: "add", kind: "chain", ...ref, chain: "nat-prerouting", base: { type: "filter", hook: 0, priority: 0 } },
      { op: "add", kind: "set", ...ref, set: "vips", flags: 0, keyType: 7, keyLen: 4 },
      { op: "add", kind: "set", ...ref, ...THEIRS },
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
      { op: "add", kind: "rule", ...ref, chain: "svc-2", exprs: [{ type: "counter" }] },
      {
        op: "add",
        kind: "rule",
        ...ref,
        chain: "nat-prerouting",
        exprs: [{ type: "immediate", dreg: 0, data: { verdict: "jump", chain: "services" } }],
      },
    ]);
    const clock = new TestClock();
    const { table, service } = serviceTable(kernel(), { clock });
    service(1, 1);
    const result = await table.apply();
    expect(result.transactions).toBe(2);
    // Objects that a packet in flight in the foreign rules may still look up, and the chains that it may reach, stay for a grace period.
    // Rules that name recreated objects do not.
    const ruled = (await kernel().rules(OWN)).map((info) => info.chain);
    expect(["svc-1", "svc-2"].filter((chain) => ruled.includes(chain))).toEqual(["svc-2"]);
    expect(unpack(await elementsOf("theirs")).map(({ key }) => key)).toEqual(["01020304", "01020305"]);
    expect(result.applyAgainMs).toBe(500);
    clock.advance(499);
    expect((await table.apply()).transactions).toBe(0);
    clock.advance(1);
    expect(operations(await table.apply())).toBe("chain -2 rule -1 set -1");
    expect(await chains()).toEqual(["draw-1", "nat-prerouting", "services"]);
    expect(await sets()).toEqual(["endpoints", "vips"]);
    expect((await table.apply()).transactions).toBe(0);
    const fresh = serviceTable(kernel());
    fresh.service(1, 1);
    expect((await fresh.table.apply()).transactions).toBe(0);
  });

  for (const { title, chain, comment, hooked, services, transactions } of [
    {
      title: "has another comment",
      chain: "draw-1",
      comment: "from before",
      hooked: false,
      services: [1],
      transactions: 1,
    },
    { title: "gets a hook", chain: "nat-output", hooked: true, services: [1], transactions: 2 },
    {
      title: "is recreated after new ones",
      chain: "draw-1",
      comment: "from before",
      hooked: false,
      services: [1, 2],
      transactions: 2,
    },
  ]) {
    it(`removes a former table at once if its map refers to a chain that ${title}`, async () => {
      await kernel().commit(formerTable(chain, comment));
      const before = await generation();
      const { table, service } = serviceTable(kernel());
      for (const count of services) service(count, count);
      if (hooked)
        table.chain({ chain, base: { type: "nat", hook: 3, priority: -100 }, rules: [rule(jump("services"))] });
      const result = await table.apply();
      // First the chains that nothing refers to yet, if there are any; then everything else in one transaction, without a grace period.
      expect([result.transactions, (await generation()) - before]).toEqual([transactions, transactions]);
      expect(result.applyAgainMs).toBeUndefined();
      const draws = services.map((count) => `draw-${count}`);
      expect(await chains()).toEqual([...draws, "nat-prerouting", "services", ...(hooked ? [chain] : [])].toSorted());
      expect(await sets()).toEqual(["endpoints", "vips"]);
      const remade = (await kernel().chains(OWN)).find((info) => info.chain === chain);
      expect([remade?.userdata, remade?.base?.hook]).toEqual([undefined, hooked ? 3 : undefined]);
      expect((await table.apply()).transactions).toBe(0);
      expect(await table.check()).toBe("same");
    });
  }

  it("empties kept objects as soon as an object that their rules name is recreated", async () => {
    const before = serviceTable(kernel());
    before.service(1, 1);
    before.table.chain({ chain: "old", rules: [draw(7)] });
    const map = before.table.packedSet({ ...VIPS, set: "old-map" });
    map.put(vip(9), new Uint8Array(Uint32Array.of(before.table.verdictId({ verdict: "goto", chain: "old" })).buffer));
    await before.table.apply();
    const clock = new TestClock();
    const { table, service } = serviceTable(kernel(), { clock });
    service(1, 1);
    await table.apply();
    expect(await kernel().rules(OWN, "old")).toHaveLength(1);
    table.packedSet({ ...ENDPOINTS, comment: "another one" });
    const result = await table.apply();
    expect([result.resynced, operations(result)]).toEqual([undefined, "rule +1 -2 set +1 -1 element +1"]);
    expect(await kernel().rules(OWN, "old")).toEqual([]);
    clock.advance(500);
    expect(operations(await table.apply())).toBe("chain -1 set -1");
    expect(await sets()).toEqual(["endpoints", "vips"]);
  });

  it("keeps objects that packets in flight may use, even after a first write was refused for another reason", async () => {
    await kernel().commit(formerTable("svc-2"));
    const clock = new TestClock();
    const { table, service } = serviceTable(kernel(), { clock });
    service(1, 1);
    // A jump to a base chain, which every kernel rejects.
    table.chain({ chain: "bad", rules: [rule(jump("nat-prerouting"))] });
    await expect(table.apply()).rejects.toMatchObject({ code: "refused", faulty: [{ kind: "rule", chain: "bad" }] });
    table.removeChain("bad");
    expect((await table.apply()).applyAgainMs).toBe(500);
    expect(unpack(await elementsOf("theirs")).map(({ key }) => key)).toEqual(["01020304", "01020305"]);
    expect(await chains()).toEqual(["draw-1", "nat-prerouting", "services", "svc-1", "svc-2"]);
    clock.advance(500);
    expect(operations(await table.apply())).toBe("chain -2 rule -2 set -1");
    expect(await sets()).toEqual(["endpoints", "vips"]);
  });
}
