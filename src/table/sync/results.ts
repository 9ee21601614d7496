/** What an apply tells of itself. */
import type { KernelError } from "../../kernel/errors.js";
import type { CommitResult } from "../../kernel/types.js";
import { joined } from "./drift.js";
import { noCounts, type Counts, type PlannedOp } from "./plan.js";
import type { ApplyResult, FaultyObject } from "../rules/types.js";

/** Two applies, as one. */
export function joinResults(a: ApplyResult, b: ApplyResult): ApplyResult {
  const drift = joined(a.drift, b.drift);
  const resynced = a.resynced ?? b.resynced;
  return {
    ...sumOf(a, b),
    ...(b.applyAgainMs === undefined ? {} : { applyAgainMs: b.applyAgainMs }),
    ...(b.deferred === undefined ? {} : { deferred: b.deferred }),
    ...(b.busy === undefined ? {} : { busy: b.busy }),
    ...(resynced === undefined ? {} : { resynced }),
    ...(drift === undefined ? {} : { drift }),
  };
}

/** Of two transactions of one apply. */
export function sumOf(a: ApplyResult, b: ApplyResult): ApplyResult {
  const operations = noCounts();
  for (const [kind, counts] of Object.entries(operations) as [keyof Counts, { add: number; delete: number }][]) {
    counts.add = a.operations[kind].add + b.operations[kind].add;
    counts.delete = a.operations[kind].delete + b.operations[kind].delete;
  }
  return {
    transactions: a.transactions + b.transactions,
    operations,
    total: a.total + b.total,
    bytes: a.bytes + b.bytes,
    kernelNs: a.kernelNs + b.kernelNs,
    encodeNs: a.encodeNs + b.encodeNs,
  };
}

export function toResult(commit: CommitResult | undefined, counts: Counts): ApplyResult {
  const operations = commit === undefined ? noCounts() : counts;
  const total = Object.values(operations).reduce((sum, { add, delete: deleted }) => sum + add + deleted, 0);
  return {
    transactions: commit === undefined ? 0 : 1,
    operations,
    total,
    bytes: commit?.bytes ?? 0,
    kernelNs: commit?.kernelNs ?? 0,
    encodeNs: commit?.encodeNs ?? 0,
  };
}

/** The kernel's faults in terms of our objects. */
export function faultyObjects(error: KernelError, ops: readonly PlannedOp[]): FaultyObject[] {
  return error.faults.flatMap((fault) => {
    const planned = ops[fault.op];
    if (planned === undefined) return [];
    const { op, origin } = planned;
    const batch = op.kind === "elements" && op.op !== "flush" ? op.elements : undefined;
    const stride = batch === undefined ? 0 : batch.bytes.length / batch.count;
    const key =
      batch === undefined || fault.element === undefined || origin.kind !== "element"
        ? undefined
        : batch.bytes.slice(fault.element * stride, fault.element * stride + batch.keyLen);
    return [
      {
        ...origin,
        ...(key === undefined ? {} : { key }),
        errno: fault.errno,
        position: fault.op,
        ...(fault.text === undefined ? {} : { text: fault.text }),
      },
    ];
  });
}
