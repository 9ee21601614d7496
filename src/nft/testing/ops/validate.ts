import { FibFlag, FibResult, MetaKey, NatType, RtKey, XfrmDirection } from "../../kernel/constants.js";
import { ChainState, Refusal, type Link, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { Expr } from "../../kernel/kernel.js";

/** NFT_JUMP_STACK_SIZE: the maximum nesting of chains. It also ends the walk of a loop. */
const JUMP_STACK = 16;
const ALL_HOOKS = [0, 1, 2, 3, 4];
const RECEIVING = [0, 1, 2];
const SENDING = [2, 3, 4];

interface Demand {
  /** The required chain type (nft_chain_validate_dependency). */
  readonly nat?: boolean;
  readonly hooks: readonly number[];
}

/** The requirements of an expression on the base chain that it is reached from (its `validate`). */
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
    case "synproxy":
      return { hooks: [1, 2] };
    case "osf":
      return { hooks: RECEIVING };
    case "xfrm":
      return { hooks: expr.dir === XfrmDirection.in ? RECEIVING : SENDING };
    case "rt":
      return { hooks: expr.key === RtKey.tcpmss ? SENDING : ALL_HOOKS };
    case "meta":
      if (expr.sreg !== undefined) return expr.key === MetaKey.pkttype ? { hooks: [0] } : undefined;
      if (expr.key === MetaKey.secpath) return { hooks: RECEIVING };
      return expr.key === MetaKey.sdif || expr.key === MetaKey.sdifname ? { hooks: [1, 2] } : undefined;
    case "fib":
      if (expr.result !== FibResult.addrtype || (expr.flags & FibFlag.iif) !== 0) return { hooks: RECEIVING };
      if ((expr.flags & FibFlag.oif) !== 0) return { hooks: SENDING };
      return { hooks: ALL_HOOKS };
    default:
      return undefined;
  }
}

/**
 * nft_chain_validate: walks everything reachable from `chain`, as seen from `origin`. If `origin` is a base chain,
 * hooks and types are compared with it. `seen` remembers how deep each chain has been searched.
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
  if (link?.kind === "set" && link.map) return [...link.set.targets.keys()].filter((to) => to instanceof ChainState);
  return [];
}

/** nft_table_validate: from every base chain. */
export function validateTable(table: TableState): void {
  for (const chain of table.chains.values()) if (chain.base !== undefined) validateChain(chain, chain);
}

/** Chains must be walked before the commit, or right away if the operation at fault is being searched. */
export function afterChange(tx: Transaction, table: TableState): void {
  if (tx.validateEach) validateTable(table);
  else tx.toValidate.add(table);
}
