/** Verdict maps that are deleted with the chains that they refer to, on kernels of all kinds. */
import { beforeEach, describe, expect, it } from "vitest";

import { KernelError } from "../../../src/nft/kernel/errors.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { DeletedMaps } from "../../../src/nft/testing/state/state.js";
import type { CommitOptions, Op } from "../../../src/nft/kernel/kernel.js";
import type { Table } from "../../../src/nft/engine-exports.js";
import { recreating } from "../../conformance/table/changes.js";
import { counter, OWN, rule, serviceTable, vip, VIPS } from "../../conformance/table/build.js";

const isFlush = (op: Op): boolean => op.kind === "elements" && op.op === "flush";

/** A table with a map, and a chain that only the map refers to; `remove` makes both unwanted. */
async function withMap(kernel: FakeKernel): Promise<{ table: Table; remove: () => void }> {
  const { table } = serviceTable(kernel);
  const map = table.packedSet({ ...VIPS, set: "more" });
  table.chain({ chain: "to-more", rules: [rule(counter)] });
  map.put(vip(1), new Uint8Array(Uint32Array.of(table.verdictId({ verdict: "goto", chain: "to-more" })).buffer));
  await table.apply();
  return {
    table,
    remove: () => {
      table.removeSet("more");
      table.removeChain("to-more");
    },
  };
}

/** Counts the kernel's dry runs from now on. */
function dryRuns(kernel: FakeKernel, answer: () => void = () => undefined): { count: number } {
  const runs = { count: 0 };
  const commit = kernel.commit.bind(kernel);
  kernel.commit = async (ops, options?: CommitOptions) => {
    if (options?.dryRun === true) {
      runs.count++;
      answer();
    }
    return commit(ops, options);
  };
  return runs;
}

describe.each<DeletedMaps>(["let go", "hold on", "come back twice"])(
  "chains of deleted maps that %s",
  (deletedMaps) => {
    let kernel: FakeKernel;
    beforeEach(() => {
      kernel = new FakeKernel({ deletedMaps });
    });

    recreating(() => kernel);

    it("the map is emptied only if necessary", async () => {
      const { table, remove } = await withMap(kernel);
      remove();
      await table.apply();
      expect((await kernel.chains(OWN)).map(({ chain }) => chain)).not.toContain("to-more");
      expect(kernel.commits.at(-1)?.filter(isFlush)).toHaveLength(deletedMaps === "hold on" ? 1 : 0);
    });

    it("the kernel is asked once, and not before a map is deleted", async () => {
      const runs = dryRuns(kernel);
      const { table, remove } = await withMap(kernel);
      table.packedSet({ ...VIPS, set: "another" });
      await table.apply();
      expect(runs.count).toBe(0);
      remove();
      await table.apply();
      expect(runs.count).toBe(1);
      table.removeSet("another");
      await table.apply();
      expect(runs.count).toBe(1);
    });

    it("an unanswered question is retried", async () => {
      const { table, remove } = await withMap(kernel);
      let trouble = true;
      const runs = dryRuns(kernel, () => {
        if (trouble) throw new KernelError("system", "no answer", { action: "commit", errno: "ENOMEM" });
      });
      remove();
      await expect(table.apply()).rejects.toMatchObject({ code: "system" });
      trouble = false;
      await table.apply();
      expect(runs.count).toBe(2);
      expect(await kernel.sets(OWN)).toHaveLength(2);
      expect((await table.apply()).transactions).toBe(0);
    });
  },
);

describe("a kernel that refuses the question itself", () => {
  it("is treated like a current one", async () => {
    const kernel = new FakeKernel();
    const { table, remove } = await withMap(kernel);
    dryRuns(kernel, () => {
      throw new KernelError("refused", "no", {
        action: "commit",
        errno: "ENOENT",
        faults: [{ op: 0, errno: "ENOENT" }],
      });
    });
    remove();
    await table.apply();
    expect(kernel.commits.at(-1)?.some(isFlush)).toBe(false);
  });
});

/** Why maps are emptied only if necessary: seen on Linux 6.1.176. */
it("a chain stays busy for good on a kernel that counts its use twice", async () => {
  const kernel = new FakeKernel({ deletedMaps: "come back twice" });
  await withMap(kernel);
  const flush: Op = { op: "flush", kind: "elements", ...OWN, set: "more" };
  const noSet: Op = { op: "delete", kind: "set", ...OWN, set: "more" };
  const noChain = (chain: string): Op => ({ op: "delete", kind: "chain", ...OWN, chain });
  await expect(kernel.commit([flush, noSet, noChain("nowhere")])).rejects.toMatchObject({ errno: "ENOENT" });
  await kernel.commit([flush]);
  await kernel.commit([noSet]);
  await expect(kernel.commit([noChain("to-more")])).rejects.toMatchObject({ errno: "EBUSY" });
});

it("a read does not concern the elements of a set that is no longer desired", async () => {
  const kernel = new FakeKernel();
  const { table, remove } = await withMap(kernel);
  remove();
  kernel.failNext({
    when: (op) => op.kind === "chain" && op.op === "delete" && op.chain === "to-more",
    errno: "ENOENT",
  });
  const result = await table.apply();
  expect(result.resynced).toMatch(/differs from the observed state/);
  expect(result.drift).toBeUndefined();
});
