import { ChainFlag } from "../../kernel/constants.js";
import { byAge, ChainState, Refusal, RuleState, SetState, type Link, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { Expr, Op } from "../../kernel/kernel.js";
import { normalizeExpr } from "../../kernel/normalize.js";
import { findChain, findTable, unlessAbsent } from "./find.js";
import { linkOf } from "./links.js";
import { removeSet } from "./sets.js";

type RuleOp = Extract<Op, { kind: "rule" }>;
type NewRuleOp = Extract<RuleOp, { op: "add" | "insert" | "replace" }>;

function findRule(chain: ChainState, handle: bigint): RuleState {
  const rule = chain.rules.find((candidate) => candidate.handle === handle);
  if (rule === undefined) throw new Refusal("ENOENT");
  return rule;
}

/** nf_tables_newrule */
export function addRule(tx: Transaction, op: NewRuleOp): void {
  const table = findTable(tx, op);
  const chain = findChain(table, op.chain);
  const old = op.op === "replace" ? findRule(chain, op.handle) : undefined;
  const handle = op.op === "replace" ? op.handle : table.nextHandle();
  const beside = op.op !== "replace" && op.position !== undefined ? findRule(chain, op.position) : undefined;
  const rule = buildRule(tx, table, chain, handle, op);
  let at = op.op === "insert" ? 0 : chain.rules.length;
  if (beside !== undefined) at = chain.rules.indexOf(beside) + (op.op === "insert" ? 0 : 1);
  if (old !== undefined) at = chain.rules.indexOf(old) + 1;
  tx.change(
    () => {
      chain.rules.splice(at, 0, rule);
      for (const link of rule.links) hold(link);
    },
    () => {
      for (const link of rule.links) link.references--;
      chain.rules.splice(chain.rules.indexOf(rule), 1);
    },
  );
  if (old !== undefined) removeRule(tx, table, old);
  tx.note("new", "rule", table, chain.name, rule.handle);
}

function buildRule(tx: Transaction, table: TableState, chain: ChainState, handle: bigint, op: NewRuleOp): RuleState {
  const exprs: Expr[] = [];
  const links: Link[] = [];
  for (const expr of op.exprs) {
    const link = linkOf(tx, table, links, expr);
    if (link !== undefined) links.push(link);
    exprs.push(dumped(expr, link));
  }
  return new RuleState(chain, handle, exprs, links, op.userdata);
}

/** Returns the kernel's dump of an expression, with the name that an anonymous set was given. */
function dumped(expr: Expr, link: Link | undefined): Expr {
  if (expr.type === "counter") return { ...expr, packets: expr.packets ?? 0n, bytes: expr.bytes ?? 0n };
  const normal = normalizeExpr(expr);
  return normal.type === "lookup" || normal.type === "dynset" ? { ...normal, set: link?.name ?? normal.set } : normal;
}

function hold(link: Link): void {
  link.references++;
  if (link instanceof SetState) link.everBound = true;
}

/** Removes the chain from its table, and records the event. */
export function removeChain(tx: Transaction, table: TableState, chain: ChainState): void {
  tx.change(
    () => table.chains.delete(chain.name),
    () => table.chains.set(chain.name, chain),
  );
  tx.note("delete", "chain", table, chain.name, chain.handle);
}

/** nft_delrule_by_chain */
export function deleteChainRules(tx: Transaction, table: TableState, chain: ChainState): void {
  for (const rule of [...chain.rules]) removeRule(tx, table, rule);
}

/** nft_delrule; an anonymous set is deleted with the last rule that uses it. */
export function removeRule(tx: Transaction, table: TableState, rule: RuleState): void {
  const { chain } = rule;
  const at = chain.rules.indexOf(rule);
  tx.change(
    () => {
      chain.rules.splice(at, 1);
      for (const link of rule.links) link.references--;
    },
    () => {
      for (const link of rule.links) hold(link);
      chain.rules.splice(at, 0, rule);
    },
  );
  tx.note("delete", "rule", table, chain.name, rule.handle);
  for (const link of rule.links) {
    if (link instanceof ChainState && (link.flags & ChainFlag.binding) !== 0) {
      deleteChainRules(tx, table, link);
      removeChain(tx, table, link);
    }
    if (!(link instanceof SetState)) continue;
    tx.unbound.add(link);
    if (link.anonymous && link.references === 0) removeSet(tx, table, link);
  }
}

/** nf_tables_delrule with a handle */
export function deleteRule(tx: Transaction, op: Extract<RuleOp, { op: "delete" | "destroy" }>): void {
  const table = findTable(tx, op);
  const rule = unlessAbsent(op.op === "destroy", () => findRule(findChain(table, op.chain), op.handle));
  if (rule !== undefined) removeRule(tx, table, rule);
}

/** nf_tables_delrule without a handle */
export function flushRules(tx: Transaction, op: Extract<RuleOp, { op: "flush" }>): void {
  const table = findTable(tx, op);
  const chains = op.chain === undefined ? byAge(table.chains) : [findChain(table, op.chain)];
  if (op.chain !== undefined && (chains[0].flags & ChainFlag.binding) !== 0) throw new Refusal("EOPNOTSUPP");
  for (const chain of chains) deleteChainRules(tx, table, chain);
}
