import { FibFlag, FibResult, NatType } from "../../../../src/netlink/constants.js";
import { Refusal, type ChainState, type Link, type TableState } from "../state.ts";
import type { Transaction } from "../transaction.ts";
import type { Expr } from "../../../../src/netlink/kernel.js";

/** NFT_JUMP_STACK_SIZE: how deep chains may nest. A loop is found by running into it. */
const JUMP_STACK = 16;
const ALL_HOOKS = [0, 1, 2, 3, 4];

interface Demand {
  /** Chain type that is needed (nft_chain_validate_dependency). */
  readonly nat?: boolean;
  readonly hooks: readonly number[];
}

/** What an expression demands of the base chain that it is reached from (its `validate`). */
function demandOf(expr: Expr): Demand | undefined {
  switch (expr.type) {
    case "nat":
      return { nat: true, hooks: expr.natType === NatType.dnat ? [0, 3] : [1, 4] };
    case "masq":
      return { nat: true, hooks: [4] };
    case "redir":
      return { nat: true, hooks: [0, 3] };
    case "reject":
      return { hooks: [0, 1, 2, 3, 5] };
    case "tproxy":
      return { hooks: [0] };
    case "socket":
      return { hooks: [0, 1, 3] };
    case "fib":
      if (expr.result !== FibResult.addrtype) return { hooks: [0, 1, 2] };
      if ((expr.flags & FibFlag.iif) !== 0) return { hooks: [0, 1, 2] };
      if ((expr.flags & FibFlag.oif) !== 0) return { hooks: [2, 3, 4] };
      return { hooks: ALL_HOOKS };
    default:
      return undefined;
  }
}

/**
 * nft_chain_validate: walks what can be reached from `chain`, as seen from `origin`. Hooks and types are held against
 * `origin` when that is a base chain. `seen` remembers how deep each chain has been looked into already.
 */
function validateChain(origin: ChainState, chain: ChainState, level = 0, seen = new Map<ChainState, number>()): void {
  if (level >= JUMP_STACK) throw new Refusal("EMLINK");
  const before = seen.get(chain);
  if (before !== undefined && before >= level) return;
  seen.set(chain, level);
  for (const rule of chain.rules) {
    rule.exprs.forEach((expr, i) => {
      const demand = demandOf(expr);
      if (demand !== undefined && origin.base !== undefined) {
        if (demand.nat === true && origin.base.type !== "nat") throw new Refusal("EOPNOTSUPP");
        if (!demand.hooks.includes(origin.base.hook)) throw new Refusal("EOPNOTSUPP");
      }
      for (const next of reachable(rule.links[i])) validateChain(origin, next, level + 1, seen);
    });
  }
}

function reachable(link: Link | undefined): Iterable<ChainState> {
  if (link?.kind === "chain") return [link.chain];
  if (link?.kind === "set" && link.map) return link.set.targets.keys();
  return [];
}

/** nft_table_validate: from every base chain. */
export function validateTable(table: TableState): void {
  for (const chain of table.chains.values()) if (chain.base !== undefined) validateChain(chain, chain);
}

/** Chains must be walked before the commit; right away when the operation at fault is looked for. */
export function afterChange(tx: Transaction, table: TableState): void {
  if (tx.validateEach) validateTable(table);
  else tx.toValidate.add(table);
}
