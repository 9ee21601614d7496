import type { Fault } from "../kernel/errors.js";
import { addChain, deleteChain } from "./ops/chains.js";
import { addElements, deleteElements, flushElements } from "./ops/elements.js";
import { addFlowtable, deleteFlowtable } from "./ops/flowtables.js";
import { addObject, deleteObject } from "./ops/objects.js";
import { addRule, deleteRule, flushRules } from "./ops/rules.js";
import { addSet, deleteSet } from "./ops/sets.js";
import { addTable, deleteTable } from "./ops/tables.js";
import { Refusal, type NamespaceState } from "./state/state.js";
import { Transaction } from "./state/transaction.js";
import type { ChangeEvent, Op, OpKind } from "../kernel/kernel.js";

type Handlers = { readonly [K in OpKind]: (tx: Transaction, op: Extract<Op, { kind: K }>) => void };

const HANDLERS: Handlers = {
  table: (tx, op) => (op.op === "add" || op.op === "create" ? addTable(tx, op) : deleteTable(tx, op)),
  chain: (tx, op) => (op.op === "add" || op.op === "create" ? addChain(tx, op) : deleteChain(tx, op)),
  rule: (tx, op) => {
    if (op.op === "flush") flushRules(tx, op);
    else if ("exprs" in op) addRule(tx, op);
    else deleteRule(tx, op);
  },
  set: (tx, op) => ("keyLen" in op ? addSet(tx, op) : deleteSet(tx, op)),
  elements: (tx, op) => {
    if (op.op === "flush") flushElements(tx, op);
    else if (op.op === "delete" || op.op === "destroy") deleteElements(tx, op);
    else addElements(tx, op);
  },
  flowtable: (tx, op) => (op.op === "add" || op.op === "create" ? addFlowtable(tx, op) : deleteFlowtable(tx, op)),
  object: (tx, op) => ("data" in op ? addObject(tx, op) : deleteObject(tx, op)),
};

export interface BatchOptions {
  readonly portId: number;
  readonly now: number;
  readonly dryRun: boolean;
  /** Returns an error to simulate at an operation instead of running it. */
  readonly inject?: (op: Op, index: number) => Refusal | undefined;
}

export type BatchOutcome =
  | { readonly refused: true; readonly errno: string; readonly faults: readonly Fault[] }
  /** `events` is empty if the batch changed nothing; the generation then stays. */
  | { readonly refused: false; readonly events: readonly ChangeEvent[] };

/**
 * Runs a batch on the state like nfnetlink_rcv_batch: every operation is tried and every fault collected. After a
 * fault, or for a dry run, everything is reverted.
 */
export function runBatch(state: NamespaceState, ops: readonly Op[], options: BatchOptions): BatchOutcome {
  const tx = new Transaction(state, options.portId, options.now);
  const faults: Fault[] = [];
  ops.forEach((op, index) => {
    try {
      const injected = options.inject?.(op, index);
      if (injected !== undefined) throw injected;
      const handle = HANDLERS[op.kind] as (tx: Transaction, op: Op) => void;
      handle(tx, op);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { errno, element, text } = error;
      faults.push({ op: index, errno, element, text });
    }
  });
  if (faults.length > 0) {
    tx.rollback();
    return { refused: true, errno: faults[0].errno, faults };
  }
  if (options.dryRun) {
    tx.rollback();
    return { refused: false, events: [] };
  }
  if (tx.newAnonymous.some(({ set }) => !set.everBound)) {
    tx.rollback();
    // nfnetlink_rcv_batch reports a failed commit for the first message after the batch's begin, whatever is at fault.
    return { refused: true, errno: "EINVAL", faults: [{ op: 0, errno: "EINVAL" }] };
  }
  tx.commit();
  if (tx.events.length > 0) state.nextGeneration();
  return { refused: false, events: tx.events };
}
