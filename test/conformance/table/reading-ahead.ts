/** A read of the table that begins before anything is desired: the first apply uses its result, unless the table changed since. */
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import type { Kernel } from "../../../src/nft/kernel/kernel.js";
import { TableWatch } from "../../../src/nft/table-watch.js";
import type { KernelWorld } from "../../support/kernel-world.ts";
import { snapshot } from "../../support/snapshot.ts";
import { operations, OWN, serviceTable, type ServiceTable } from "./build.js";
import { DEEDS, sorted } from "./watching.js";

export function readingAhead(world: () => KernelWorld): void {
  let other: Kernel;
  let again: ServiceTable;
  let watch: TableWatch;
  /** Sets whose elements were read. */
  let reads: string[];
  /** Requests for the generation: a dump ends with the second one. */
  let generations: number;

  /** The same kernel, with requests recorded. */
  function observed(kernel: Kernel): Kernel {
    return new Proxy(kernel, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== "function") return value;
        return (...args: readonly unknown[]): unknown => {
          if (name === "elements") reads.push((args[1] as { set: string }).set);
          if (name === "generation") generations++;
          return Reflect.apply(value, target, args);
        };
      },
    });
  }

  const isRead = (): Promise<unknown> => vi.waitFor(() => expect(generations).toBe(2), { interval: 1 });

  /** Declares a table that includes a set that packets fill. */
  function declare(kernel: Kernel): ServiceTable {
    const declared = serviceTable(kernel);
    declared.table.packedSet({ set: "clients", key: ["ipv4_addr"], dynamic: true, timeoutMs: 60_000 });
    return declared;
  }

  function desire({ service }: ServiceTable): void {
    service(1, 2);
    service(2, 2);
  }

  beforeEach(async () => {
    const { kernel } = world();
    other = await world().other();
    const before = declare(kernel);
    desire(before);
    await before.table.apply();
    reads = [];
    generations = 0;
    again = declare(observed(kernel));
    watch = new TableWatch(kernel, [again.table], {
      changed: () => undefined,
      lost: () => undefined,
      failed: (error) => {
        throw error;
      },
    });
  });
  afterEach(() => watch.close());

  it("its result serves the first load and apply: nothing is read twice, and nothing is written", async () => {
    again.table.readAhead();
    await isRead();
    await again.table.load();
    desire(again);
    expect(await again.table.apply()).toMatchObject({ transactions: 0 });
    expect(reads.toSorted()).toEqual(["endpoints", "vips"]);
  });

  it("its result is used if, according to events, only other tables changed", async () => {
    await watch.open();
    again.table.readAhead();
    await isRead();
    await other.commit([{ op: "add", kind: "table", family: "ip", table: "elsewhere" }]);
    await again.table.load();
    expect(reads).toHaveLength(2);
    desire(again);
    expect(await again.table.apply()).toMatchObject({ transactions: 0 });
  });

  it("the table is read again if something changed and no event says what", async () => {
    again.table.readAhead();
    await isRead();
    await other.commit([{ op: "add", kind: "table", family: "ip", table: "elsewhere" }]);
    await again.table.load();
    expect(reads).toHaveLength(4);
  });

  it("a set whose desired form differs is recreated", async () => {
    await watch.open();
    again.table.readAhead();
    again.table.removeSet("endpoints");
    again.table.packedSet({ set: "endpoints", key: ["ipv4_addr"] }).put(Uint8Array.of(10, 0, 0, 1));
    again.table.chain({ chain: "services", rules: [] });
    await again.table.apply();
    const sets = await world().kernel.sets(OWN);
    const made = sets.find(({ set }) => set === "endpoints");
    expect(made?.keyLen).toBe(4);
    expect(made === undefined ? 0 : (await world().kernel.elements(OWN, made)).count).toBe(1);
  });

  for (const [deed, { does, undone }] of Object.entries(DEEDS)) {
    for (const [when, wait] of [
      ["during it", () => Promise.resolve()],
      ["between it and the first apply", isRead],
    ] as const) {
      it(`${deed}, ${when}: undone`, async () => {
        const { kernel } = world();
        const wanted = await snapshot(kernel);
        const ops = await does(kernel);
        await watch.open();
        again.table.readAhead();
        await wait();
        await other.commit(ops);
        await again.table.load();
        desire(again);
        const repaired = await again.table.apply();
        expect([operations(repaired), repaired.transactions]).toEqual([undone, 1]);
        expect(sorted(await snapshot(kernel))).toEqual(sorted(wanted));
        expect(await again.table.apply()).toMatchObject({ transactions: 0 });
      });
    }
  }
}
