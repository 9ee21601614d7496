import { ChainFlag } from "../../kernel/constants.js";
import { byAge, Refusal, RuleState, type ChainState, type Link, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { Expr, Op } from "../../kernel/kernel.js";
import { initExpr, Registers } from "./exprs.js";
import { checkUserdata, findChain, findTable, unlessAbsent } from "./find.js";
import { afterChange } from "./validate.js";

type RuleOp = Extract<Op, { kind: "rule" }>;
type NewRuleOp = Extract<RuleOp, { op: "add" | "insert" | "replace" }>;

/** NFT_RULE_MAXEXPRS */
const MAX_EXPRESSIONS = 128;

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
  checkUserdata(op.userdata);
  const rule = buildRule(tx, table, chain, handle, op);
  let at = op.op === "insert" ? 0 : chain.rules.length;
  if (beside !== undefined) at = chain.rules.indexOf(beside) + (op.op === "insert" ? 0 : 1);
  if (old !== undefined) at = chain.rules.indexOf(old) + 1;
  tx.change(
    () => {
      chain.rules.splice(at, 0, rule);
      for (const link of rule.links) hold(link, chain);
    },
    () => {
      for (const link of rule.links) release(link, chain);
      chain.rules.splice(chain.rules.indexOf(rule), 1);
    },
  );
  if (old !== undefined) removeRule(tx, table, old);
  tx.note("new", "rule", table, chain.name, rule.handle);
  afterChange(tx, table);
}

function buildRule(tx: Transaction, table: TableState, chain: ChainState, handle: bigint, op: NewRuleOp): RuleState {
  if (op.exprs.length > MAX_EXPRESSIONS) throw new Refusal("EINVAL");
  const registers = new Registers();
  const exprs: Expr[] = [];
  const links: (Link | undefined)[] = [];
  for (const expr of op.exprs) {
    const { dumped, link } = initExpr({ tx, table, chain, registers, bound: links }, expr);
    exprs.push(dumped);
    links.push(link);
  }
  return new RuleState(chain, handle, exprs, links, op.userdata);
}

function hold(link: Link | undefined, chain: ChainState): void {
  if (link?.kind === "chain") link.chain.references++;
  if (link?.kind === "object") link.object.references++;
  if (link?.kind === "set") {
    link.set.bindings.push({ chain, map: link.map });
    link.set.everBound = true;
  }
}

function release(link: Link | undefined, chain: ChainState): void {
  if (link?.kind === "chain") link.chain.references--;
  if (link?.kind === "object") link.object.references--;
  if (link?.kind === "set") {
    const at = link.set.bindings.findLastIndex((binding) => binding.chain === chain && binding.map === link.map);
    link.set.bindings.splice(at, 1);
  }
}

/** A bound chain is deleted with its rule. */
function removeBound(tx: Transaction, table: TableState, chain: ChainState): void {
  tx.change(
    () => table.chains.delete(chain.name),
    () => table.chains.set(chain.name, chain),
  );
  tx.note("delete", "chain", table, chain.name, chain.handle);
}

/** nft_delrule; an anonymous set is deleted with the last rule that uses it. */
export function removeRule(tx: Transaction, table: TableState, rule: RuleState): void {
  const { chain } = rule;
  const at = chain.rules.indexOf(rule);
  tx.change(
    () => {
      chain.rules.splice(at, 1);
      for (const link of rule.links) release(link, chain);
    },
    () => {
      for (const link of rule.links) hold(link, chain);
      chain.rules.splice(at, 0, rule);
    },
  );
  tx.note("delete", "rule", table, chain.name, rule.handle);
  for (const link of rule.links) {
    if (link?.kind === "chain" && (link.chain.flags & ChainFlag.binding) !== 0) {
      for (const inside of [...link.chain.rules]) removeRule(tx, table, inside);
      removeBound(tx, table, link.chain);
    }
    if (link?.kind === "set") tx.unbound.add(link.set);
    if (link?.kind !== "set" || !link.set.anonymous || link.set.bindings.length > 0) continue;
    const { set } = link;
    const elements = [...set.elements.values()];
    tx.change(
      () => {
        for (const element of elements) set.remove(element);
        table.sets.delete(set.name);
      },
      () => {
        table.sets.set(set.name, set);
        for (const element of elements) set.insert(element);
      },
    );
    tx.note("delete", "set", table, set.name, set.handle);
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
  for (const chain of chains) for (const rule of [...chain.rules]) removeRule(tx, table, rule);
}
