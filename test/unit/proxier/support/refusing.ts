/** A kernel in memory that rejects everything about certain services on request. */
import { KernelError, type Fault } from "../../../../src/nft/kernel/errors.js";
import type { FakeKernel } from "../../../fakes/fake-kernel.ts";
import type { ElementBatch, Op } from "../../../../src/nft/kernel/kernel.js";

/** How precise the error is. */
export type Telling =
  /** Names the operation and its elements at fault: Linux 5.17 and later. */
  | "element"
  /** Names only the first of these. */
  | "first element"
  /** Names the operation, but not its elements. */
  | "operation"
  /** Says only that the batch was rejected. */
  | "nothing"
  /** A failed commit: the kernel reports it for the batch's first message, whatever is at fault. */
  | "first operation";

export interface Refusals {
  /** Whether to reject an operation. For elements, it is called with the batch and each record's index. */
  refuses: (op: Op, element?: { readonly batch: ElementBatch; readonly index: number }) => boolean;
  telling: Telling;
  errno: string;
  /** Numbers of commits that were rejected, not counting dry runs, and that were accepted. */
  refused: number;
  passed: number;
}

export function refuse(kernel: FakeKernel, telling: Telling = "element"): Refusals {
  const refusals: Refusals = { refuses: () => false, telling, errno: "ENOMEM", refused: 0, passed: 0 };
  const commit = kernel.commit.bind(kernel);
  kernel.commit = async (ops, options) => {
    const faults = ops.flatMap((op, index) => faultsOf(op, index, refusals));
    if (faults.length > 0) {
      if (options?.dryRun !== true) refusals.refused++;
      throw toError(faults, refusals);
    }
    const result = await commit(ops, options);
    refusals.passed++;
    return result;
  };
  return refusals;
}

function faultsOf(op: Op, index: number, { refuses, errno }: Refusals): Fault[] {
  if (op.kind !== "elements" || op.op === "flush") return refuses(op) ? [{ op: index, errno }] : [];
  const batch = op.elements;
  for (let element = 0; element < batch.count; element++) {
    // One fault per message, as in the kernel, which does not check the rest of the message.
    if (refuses(op, { batch, index: element })) return [{ op: index, element, errno }];
  }
  return [];
}

function toError(faults: readonly Fault[], { telling, errno }: Refusals): KernelError {
  const told: Readonly<Record<Telling, readonly Fault[]>> = {
    element: faults,
    "first element": faults.slice(0, 1),
    operation: faults.map(({ op }) => ({ op, errno })),
    nothing: [],
    "first operation": [{ op: 0, errno }],
  };
  return new KernelError("refused", `the kernel refused: ${errno}`, { action: "commit", errno, faults: told[telling] });
}

/** Whether a record's key begins with the cluster IP of one of the services (test/bench/cluster.ts). */
export function isOfService(indices: ReadonlySet<number>): Refusals["refuses"] {
  return (_op, element) => {
    if (element === undefined) return false;
    const { batch, index } = element;
    if (batch.keyLen < 8) return false;
    const at = (index * batch.bytes.length) / batch.count;
    const [a, b, c, d] = batch.bytes.subarray(at, at + 4);
    if (a !== 10 || b !== 96) return false;
    return indices.has(((c << 8) | d) - 1);
  };
}
