import { Refusal, type ChainState, type Link, type SetState, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { Expr, Verdict } from "../../kernel/kernel.js";
import { findSet } from "./find.js";
import { findObject } from "./objects.js";

/**
 * Returns the chain, set or object that an expression of a new rule refers to. Refuses a missing one, a base chain as a target, and an
 * anonymous set that another expression uses. `bound` has the links of the rule's earlier
 * expressions.
 *
 * Registers, lengths and flags are not checked, and neither is the place of an expression: the real kernel does that.
 */
export function linkOf(tx: Transaction, table: TableState, bound: readonly Link[], expr: Expr): Link | undefined {
  switch (expr.type) {
    case "immediate":
      return expr.data instanceof Uint8Array ? undefined : verdictTarget(table, expr.data);
    case "lookup":
      return bind(bound, findSet(tx, table, expr.set, expr.setId));
    case "dynset": {
      const set = findSet(tx, table, expr.set, expr.setId);
      // The kernel limits a set that packets fill, at once and even if the batch fails later.
      set.size ??= 0xffff;
      return bind(bound, set);
    }
    case "objref":
      if (expr.immName !== undefined) return findObject(table, expr.immType ?? 0, expr.immName);
      return bind(bound, findSet(tx, table, expr.setName ?? "", expr.setId));
    case "flow_offload":
      if (!table.flowtables.has(expr.flowtable)) throw new Refusal("ENOENT");
      return undefined;
    default:
      return undefined;
  }
}

/** nf_tables_bind_set: an anonymous set belongs to one expression. */
function bind(bound: readonly Link[], set: SetState): Link {
  if (set.anonymous && (set.references > 0 || bound.includes(set))) throw new Refusal("EBUSY");
  return set;
}

/** nft_verdict_init: the chain that a verdict names. */
export function verdictTarget(table: TableState, verdict: Verdict): ChainState | undefined {
  if (verdict.verdict !== "jump" && verdict.verdict !== "goto") return undefined;
  const chain = table.chains.get(verdict.chain);
  if (chain === undefined) throw new Refusal("ENOENT");
  if (chain.base !== undefined) throw new Refusal("EOPNOTSUPP");
  return chain;
}
