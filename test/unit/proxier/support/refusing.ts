/** A kernel in memory that refuses whatever is about certain services, as long as it is told to. */
import { KernelError, type Fault } from "../../../../src/netlink/errors.js";
import type { FakeKernel } from "../../../fakes/fake-kernel.ts";
import type { ElementBatch, Op } from "../../../../src/netlink/kernel.js";

/** How much the refusal tells. */
export type Telling =
  /** The operation, and of elements which: Linux 5.17 and later. */
  | "element"
  /** The first of them alone. */
  | "first element"
  /** The operation, not which of its elements. */
  | "operation"
  /** The batch was refused. */
  | "nothing"
  /** A failed commit, which the kernel answers to the batch's first message whatever was at fault. */
  | "first operation";

export interface Refusals {
  /** Whether an operation is refused; of elements, called with the batch and each record's index. */
  refuses: (op: Op, element?: { readonly batch: ElementBatch; readonly index: number }) => boolean;
  telling: Telling;
  errno: string;
  /** Commits that were refused, without those that only ask, and those that were not. */
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
    // One fault a message, as in the kernel: the rest of the message is not looked at.
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
