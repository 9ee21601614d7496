import { describe, expect, test } from "vitest";
import { KernelError } from "../../../../src/nft/kernel/errors.js";
import type { CommitOptions, CommitResult, Kernel, Op } from "../../../../src/nft/kernel/kernel.js";
import { checkTrial, tryRules, type TrialResult } from "../../../../src/migration/preflight/trial.js";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import { EndpointList } from "../../../../src/objects/endpoint-list.js";
import { RULESET_OPTIONS } from "../../ruleset/ruleset-options.ts";
import { PLAIN_VIEW } from "../../model/objects.ts";

/** A kernel that lacks an expression or a set feature, because of a missing module or an older release. */
class LackingKernel extends FakeKernel {
  readonly asked: CommitOptions[] = [];
  readonly #lacks: (op: Op) => boolean;

  constructor(lacks: (op: Op) => boolean) {
    super();
    this.#lacks = lacks;
  }

  override async commit(ops: readonly Op[], options: CommitOptions = {}): Promise<CommitResult> {
    this.asked.push(options);
    const faults = ops.flatMap((op, index) => (this.#lacks(op) ? [{ op: index, errno: "ENOENT" }] : []));
    if (faults.length === 0) return super.commit(ops, options);
    throw new KernelError("refused", "the kernel refused it", { action: "commit", faults });
  }
}

const uses =
  (type: string) =>
  (op: Op): boolean =>
    op.kind === "rule" && "exprs" in op && op.exprs.some((expr) => expr.type === type);
const tried = (kernel: Kernel): Promise<TrialResult> =>
  tryRules({ kernel, family: "ip", options: RULESET_OPTIONS, services: new Map() });
const said = (result: TrialResult): string[] => checkTrial(result, false).map(({ level, what }) => `${level}: ${what}`);

describe("tryRules", () => {
  test("rules that the kernel accepts are ok, and nothing is committed", async () => {
    const kernel = new LackingKernel(() => false);
    const { id } = await kernel.generation();
    const result = await tried(kernel);
    expect(said(result)).toEqual([
      expect.stringMatching(/^ok: IPv4: the kernel accepts the rules with a service of each kind \(\d+ sets, /),
    ]);
    expect(kernel.asked.every(({ dryRun }) => dryRun === true)).toBe(true);
    expect([await kernel.tables(), (await kernel.generation()).id]).toEqual([[], id]);
  });

  test("a missing feature that every node needs is a problem", async () => {
    const result = await tried(new LackingKernel(uses("masq")));
    expect(said(result)).toEqual([
      expect.stringMatching(/^problem: IPv4: the kernel refuses the rules: .*nat-postrouting/),
    ]);
    expect(result.services.outcome).toBe("not made");
  });

  test("a missing feature that only services need is a separate problem", async () => {
    // The rules themselves need a generator too, with a single number.
    const draws = (op: Op): boolean =>
      op.kind === "rule" && "exprs" in op && op.exprs.some((expr) => expr.type === "numgen" && expr.modulus > 1);
    const result = await tried(new LackingKernel(draws));
    expect(said(result)).toEqual([
      expect.stringMatching(/^problem: IPv4: the kernel accepts the rules, but refuses objects that services need: /),
    ]);
  });

  test("a kernel without element counters is reported, and the rules are tried without them", async () => {
    const counted = (op: Op): boolean => op.kind === "elements" && "elements" in op && op.elements.counters === true;
    const refuses = new LackingKernel(() => false);
    const commit = refuses.commit.bind(refuses);
    refuses.commit = async (ops, options) => {
      const at = ops.findIndex(counted);
      if (at < 0) return commit(ops, options);
      throw new KernelError("refused", "", { action: "commit", faults: [{ op: at, errno: "EOPNOTSUPP" }] });
    };
    expect(said(await tried(refuses))).toEqual([
      expect.stringMatching(/^ok: /),
      expect.stringMatching(/^note: .*cannot count per map element/),
    ]);
  });

  test("more elements than the maximum of a batch are not sent", async () => {
    const kernel = new LackingKernel(() => false);
    const endpoints = Array.from({ length: 20_000 }, (_, i) => ({
      address: `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`,
      port: 80,
      local: false,
    }));
    const view = { ...PLAIN_VIEW, clusterIP: "192.0.2.1", clusterEndpoints: EndpointList.of("ip", endpoints) };
    const result = await tryRules({
      kernel,
      family: "ip",
      options: RULESET_OPTIONS,
      services: new Map([["a/b", [view]]]),
    });
    expect(result.services).toMatchObject({ outcome: "too large" });
    expect(checkTrial(result, true)[0]).toMatchObject({
      level: "ok",
      what: expect.stringContaining("without the 2") as string,
    });
  });
});
