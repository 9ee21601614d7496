import { expect, test } from "vitest";
import { KernelError, type Fault } from "../../src/nft/kernel/errors.js";
import type { CommitOptions, Kernel, Op } from "../../src/nft/kernel/kernel.js";
import type { KernelWorld } from "../support/kernel-world.ts";
import { snapshot } from "../support/snapshot.ts";
import type { Fact, KernelFacts } from "../support/kernel-facts.ts";

/** The expected result of a batch. */
interface Outcome {
  /** The rejected operations; absent if the batch passes. */
  readonly faults?: readonly Fault[];
  /** Checks the result of an accepted batch. */
  readonly then?: (world: KernelWorld) => Promise<void>;
}

/** One batch and the kernel's answer. */
export interface Case extends Outcome {
  readonly title: string;
  /** Operations to commit first. */
  readonly given?: readonly Op[];
  /** The fake does not check this: it knows objects and references, but not what expressions and attributes mean. */
  readonly realOnly?: boolean;
  readonly when: readonly Op[] | ((world: KernelWorld) => Promise<readonly Op[]>);
  /** Result on kernels before this fact. */
  readonly before?: Outcome & { readonly fact: Fact };
  /** Result on kernels since this fact. */
  readonly since?: Outcome & { readonly fact: Fact };
}

/** Returns the current test's world. */
export type Current = (() => KernelWorld) & { readonly isReal: boolean };

/** Faults of a commit that must fail with "refused". */
export async function faultsOf(kernel: Kernel, ops: readonly Op[], options: CommitOptions = {}): Promise<Fault[]> {
  const error: unknown = await kernel.commit(ops, options).then(
    () => new Error("the kernel accepted the batch"),
    (reason: unknown) => reason,
  );
  if (!(error instanceof KernelError) || error.code !== "refused") throw error;
  // The kernel's own text differs between versions, and is not always there.
  return error.faults.map(({ text: _text, ...fault }) => fault);
}

/** The expected result of a case on a kernel. */
function outcomeOn(facts: KernelFacts, each: Case, ops: readonly Op[]): Outcome {
  const unknown = ops.flatMap((op, index): Fault[] => (op.op === "destroy" ? [{ op: index, errno: "EINVAL" }] : []));
  if (!facts.destroy && unknown.length > 0) return { faults: unknown };
  let outcome: Outcome = each;
  if (each.before !== undefined && !facts[each.before.fact]) outcome = each.before;
  if (each.since !== undefined && facts[each.since.fact]) outcome = each.since;
  if (outcome.faults === undefined || facts.namesElements) return outcome;
  return { faults: outcome.faults.map(({ element: _element, ...fault }) => fault) };
}

/** Runs each case, first as a dry run, which must give the same answer and change nothing. A rejected batch must change nothing either. */
export function runCases(current: Current, cases: readonly Case[]): void {
  for (const each of cases) {
    const { title, given, when, realOnly = false } = each;
    if (realOnly && !current.isReal) continue;
    test(title, async () => {
      const world = current();
      const { kernel } = world;
      if (given !== undefined) await kernel.commit(given);
      const ops = typeof when === "function" ? await when(world) : when;
      const { faults, then } = outcomeOn(world.facts, each, ops);
      const before = await snapshot(kernel);
      const { id } = await kernel.generation();
      if (faults === undefined) {
        await kernel.commit(ops, { dryRun: true });
        expect(await snapshot(kernel)).toEqual(before);
        expect((await kernel.generation()).id).toBe(id);
        await kernel.commit(ops);
        await then?.(world);
        return;
      }
      expect(await faultsOf(kernel, ops, { dryRun: true })).toEqual(faults);
      expect(await faultsOf(kernel, ops)).toEqual(faults);
      expect(await snapshot(kernel)).toEqual(before);
      expect((await kernel.generation()).id).toBe(id);
    });
  }
}
