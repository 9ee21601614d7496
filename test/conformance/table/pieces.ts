/**
 * Many elements that no packet can see yet: they are written in pieces, one transaction each, and the change that makes
 * them visible comes last.
 */
import { expect, it } from "vitest";
import type { CommitOptions, Kernel, Op } from "../../../src/nft/kernel/kernel.js";
import type { KernelWorld } from "../../support/kernel-world.ts";
import { snapshot } from "../../support/snapshot.ts";
import { draw, endpoint, ENDPOINTS, indexed, NAME, operations, OWN, serviceTable } from "./build.js";

const PIECE = 100;
/** Endpoints of one service, so that there is one verdict, and one element that is not written ahead. */
const ENDPOINT_COUNT = 250;

/** Calls `before` before each commit, with the number of earlier ones. */
function beforeCommits(kernel: Kernel, before: (count: number, ops: readonly Op[]) => Promise<void> | void): void {
  const commit = kernel.commit.bind(kernel);
  let count = 0;
  kernel.commit = async (ops: readonly Op[], options?: CommitOptions) => {
    if (options?.dryRun !== true) await before(count++, ops);
    return commit(ops, options);
  };
}

/** All objects. Sets and chains that were written first have another order of creation. */
async function everything(kernel: Kernel): Promise<unknown> {
  const tables = (await snapshot(kernel)) as Readonly<Record<"sets" | "chains" | "rules", readonly object[]>>[];
  const sorted = (objects: readonly object[]): string[] =>
    objects
      .map((object) => JSON.stringify(object, (_, value: unknown) => (typeof value === "bigint" ? `${value}` : value)))
      .toSorted();
  return tables.map(({ sets, chains, rules }) => [sets, chains, rules].map(sorted));
}

export function pieces(world: () => KernelWorld): void {
  const elementsIn = async (set = "endpoints"): Promise<number> => {
    const info = (await world().kernel.sets(OWN)).find((one) => one.set === set);
    return info === undefined ? 0 : (await world().kernel.elements(OWN, info)).count;
  };
  const chains = async (): Promise<string[]> => (await world().kernel.chains(OWN)).map(({ chain }) => chain);

  it("are written before the first hook, after the other chains", async () => {
    const { kernel } = world();
    const whole = serviceTable(kernel);
    whole.service(1, ENDPOINT_COUNT);
    await whole.table.apply();
    const expected = await everything(kernel);
    await whole.table.destroy();

    const { table, service } = serviceTable(kernel, { pieceElements: PIECE });
    service(1, ENDPOINT_COUNT);
    const seen: [chains: number, elements: number][] = [];
    beforeCommits(kernel, async (count) => {
      if (count > 0) seen.push([(await chains()).length, await elementsIn()]);
    });
    const result = await table.apply();
    expect(operations(result)).toBe("table +1 chain +3 rule +3 set +2 element +251");
    expect(result.transactions).toBe(5);
    expect(seen).toEqual([
      [2, 0],
      [2, 100],
      [2, 200],
      [2, 250],
    ]);
    expect(await everything(kernel)).toEqual(expected);
    expect((await table.apply()).transactions).toBe(0);
  });

  it("are written in one transaction with the rest if they are few, or if a rule names their set", async () => {
    const { table, service } = serviceTable(world().kernel, { pieceElements: PIECE });
    service(1, PIECE);
    expect(await table.apply()).toMatchObject({ transactions: 1 });
    service(2, PIECE * 2);
    // The chain for this number is written first.
    expect(await table.apply()).toMatchObject({ transactions: 2 });
  });

  it("are completed after a failure, and after the process ended halfway", async () => {
    const { kernel } = world();
    const first = serviceTable(kernel, { pieceElements: PIECE });
    first.service(1, PIECE * 5);
    let end = 2;
    beforeCommits(kernel, (count) => {
      if (count === end) throw new Error("no more");
    });
    await expect(first.table.apply()).rejects.toThrow("no more");
    expect(await elementsIn()).toBe(PIECE);
    // One has failed; four more succeed, and then the last one fails.
    end = 7;
    await expect(first.table.apply()).rejects.toThrow("no more");
    expect([await elementsIn(), await chains()]).toEqual([PIECE * 5, ["services", `draw-${PIECE * 5}`]]);

    const again = serviceTable(kernel, { pieceElements: PIECE });
    again.service(1, PIECE * 5);
    const result = await again.table.apply();
    expect(operations(result)).toBe("chain +1 rule +1 element +1");
    expect(result.transactions).toBe(1);
    first.table.invalidate("test");
    expect((await first.table.apply()).transactions).toBe(0);
  });

  it("are written before the switch to sets with other names", async () => {
    const { kernel } = world();
    const { table, service } = serviceTable(kernel, { pieceElements: PIECE });
    service(1, 2);
    await table.apply();
    const handles = async (): Promise<string[]> => (await kernel.rules(OWN, "draw-2")).map(({ handle }) => `${handle}`);
    const former = await handles();
    const successor = table.packedSet({ ...ENDPOINTS, set: "successor" });
    for (let i = 0; i < ENDPOINT_COUNT; i++) successor.put(indexed(1, i), endpoint("10.0.1.1"));
    table.chain({ chain: "draw-2", rules: [draw(2, "successor")] });
    table.removeSet("endpoints");
    const seen: unknown[] = [];
    beforeCommits(kernel, async () => void seen.push([await handles(), await elementsIn("successor")]));
    expect((await table.apply()).transactions).toBe(4);
    expect(seen).toEqual([0, 100, 200, 250].map((count) => [former, count]));
    expect(await handles()).not.toEqual(former);
    expect(await elementsIn()).toBe(0);
  });

  it.each([
    ["changes another table", { op: "add", kind: "table", family: "ip", table: "other" }],
    ["deletes the table", { op: "delete", kind: "table", family: "ip", table: NAME }],
    ["empties the set", { op: "flush", kind: "elements", family: "ip", table: NAME, set: "endpoints" }],
  ] as const)("are all there after another process %s in between", async (_what, op) => {
    const { kernel } = world();
    const { table, service } = serviceTable(kernel, { pieceElements: PIECE });
    service(1, ENDPOINT_COUNT);
    const other = await world().other();
    beforeCommits(kernel, async (count) => void (count === 2 && (await other.commit([op]))));
    await table.apply();
    expect([await elementsIn(), (await chains()).length]).toEqual([ENDPOINT_COUNT, 3]);
    table.invalidate("test");
    expect((await table.apply()).transactions).toBe(0);
  });
}
