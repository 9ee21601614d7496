/** Kernels that lack features that the table would use. */
import { expect, it } from "vitest";
import { Hook } from "../../../src/nft/kernel/constants.js";
import { KernelError } from "../../../src/nft/kernel/errors.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { ChainName, TABLE_NAME } from "../../../src/ruleset/names.js";
import { makeService, makeSlice } from "../../bench/cluster.js";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { makeProxier } from "./support/proxier.js";
import { putObjects } from "../../support/decoded.js";

/**
 * Makes the kernel lack `reject` in prerouting, like Linux before 5.9. Returns a function that counts the attempts to
 * use it.
 */
function withoutRejectInPrerouting(kernel: FakeKernel): () => number {
  const commit = kernel.commit.bind(kernel);
  const prerouting = new Set<string>();
  let asked = 0;
  kernel.commit = async (ops, options) => {
    for (const op of ops) {
      if (op.kind === "chain" && "base" in op && op.base?.hook === Hook.prerouting) prerouting.add(op.chain);
    }
    const index = ops.findIndex(
      (op) => op.kind === "rule" && "exprs" in op && prerouting.has(op.chain) && op.exprs.some(isReject),
    );
    if (index < 0) return commit(ops, options);
    asked++;
    const faults = [{ op: index, errno: "EOPNOTSUPP" }];
    throw new KernelError("refused", "reject in prerouting", { action: "commit", faults });
  };
  return () => asked;
}

const isReject = ({ type }: { readonly type: string }): boolean => type === "reject";

/** Adds a service that requests resets: without one there are no rules for them. */
function putReset(proxier: Proxier): void {
  const service = makeService(0);
  service.metadata = { ...service.metadata, annotations: { "nft-proxier.dev/reset-removed-endpoints": "true" } };
  putObjects(proxier, service, makeSlice(0, [1, 2]));
  proxier.synced();
}

/** Whether each chain rejects, once a service is written. */
async function rejectingChains(kernel: FakeKernel): Promise<readonly [prerouting: boolean, output: boolean]> {
  const proxier = makeProxier(kernel);
  putReset(proxier);
  await proxier.sync();
  await proxier.stop();
  const chains = [ChainName.filterPreroutingPreDnat, ChainName.filterOutputPreDnat];
  const [prerouting, output] = await Promise.all(
    chains.map(async (chain) => {
      const rules = await kernel.rules({ family: "ip", table: TABLE_NAME }, chain);
      return rules.some(({ exprs }) => exprs.some(isReject));
    }),
  );
  return [prerouting, output];
}

it("connections are reset in prerouting if the kernel accepts reject there", async () => {
  expect(await rejectingChains(new FakeKernel())).toEqual([true, true]);
});

it("a kernel that refuses reject in prerouting is asked once, and receives the table without it", async () => {
  const kernel = new FakeKernel();
  const asked = withoutRejectInPrerouting(kernel);
  expect(await rejectingChains(kernel)).toEqual([false, true]);
  expect(asked()).toBe(1);
});

it("a probe that failed for another reason is repeated with the next write", async () => {
  const kernel = new FakeKernel();
  const asked = withoutRejectInPrerouting(kernel);
  const { commit } = kernel;
  let failures = 1;
  kernel.commit = (ops, options) =>
    options?.dryRun === true && failures-- > 0
      ? Promise.reject(new KernelError("system", "no memory", { action: "commit", errno: "ENOMEM" }))
      : commit(ops, options);
  const proxier = makeProxier(kernel);
  proxier.synced();
  await proxier.sync();
  expect(asked()).toBe(0);
  putReset(proxier);
  expect((await proxier.sync()).ok).toBe(true);
  expect(await kernel.rules({ family: "ip", table: TABLE_NAME }, ChainName.filterOutputPreDnat)).not.toEqual([]);
  expect(asked()).toBe(1);
  await proxier.stop();
});

it("a kernel without an expression of one family: the error names the expression and its module", async () => {
  const kernel = new FakeKernel();
  const commit = kernel.commit.bind(kernel);
  kernel.commit = async (ops, options) => {
    const faults = ops.flatMap((op, index) =>
      op.kind === "rule" && "exprs" in op && op.family === "ip6" && op.exprs.some(isReject)
        ? [{ op: index, errno: "ENOENT" }]
        : [],
    );
    if (faults.length > 0) throw new KernelError("refused", "no such file", { action: "commit", faults });
    return commit(ops, options);
  };
  const errors = new Map<string, string | undefined>();
  const proxier = makeProxier(kernel, { families: ["ip", "ip6"] });
  proxier.observe({ synced: ({ family, error }) => void errors.set(family, error) });
  putReset(proxier);
  await proxier.sync();
  await proxier.stop();
  expect(errors.get("ip")).toBeUndefined();
  expect(errors.get("ip6")).toContain("ENOENT, this kernel may lack reject (module nft_reject_ipv6)");
});
