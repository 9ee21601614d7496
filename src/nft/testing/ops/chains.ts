import { ChainFlag } from "../../kernel/constants.js";
import { ChainState, Refusal, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { BaseChain, Op } from "../../kernel/kernel.js";
import { byHandle, findChain, findTable, unlessAbsent } from "./find.js";
import { deleteChainRules, removeChain } from "./rules.js";

type ChainOp = Extract<Op, { kind: "chain" }>;

/** nf_tables_newchain */
export function addChain(tx: Transaction, op: ChainOp): void {
  const table = findTable(tx, op);
  const existing = table.chains.get(op.chain);
  if (op.base?.policy !== undefined && existing !== undefined && existing.base === undefined)
    throw new Refusal("EOPNOTSUPP");
  const flags = op.flags ?? existing?.flags ?? 0;
  if (existing !== undefined) {
    if (op.op === "create") throw new Refusal("EEXIST");
    updateChain(tx, table, existing, op.base, flags | (existing.flags & ChainFlag.base));
    return;
  }
  if (op.base !== undefined && tx.toggled.has(table)) throw new Refusal("EINVAL");
  const base = op.base === undefined ? undefined : { ...op.base, policy: op.base.policy ?? "accept" };
  const chain = new ChainState(op.chain, table.nextHandle(), base, op.userdata);
  chain.flags = flags | (base === undefined ? 0 : ChainFlag.base);
  tx.change(
    () => table.chains.set(chain.name, chain),
    () => table.chains.delete(chain.name),
  );
  tx.note("new", "chain", table, chain.name, chain.handle);
}

/** nf_tables_updchain: only the policy can be changed. */
function updateChain(
  tx: Transaction,
  table: TableState,
  chain: ChainState,
  wanted: BaseChain | undefined,
  flags: number,
): void {
  if (flags !== chain.flags) throw new Refusal("EOPNOTSUPP");
  const before = chain.base;
  if (wanted !== undefined) {
    if (before === undefined) throw new Refusal("EEXIST");
    if (wanted.hook !== before.hook || wanted.priority !== before.priority) throw new Refusal("EOPNOTSUPP");
    if (wanted.type !== before.type) throw new Refusal("EEXIST");
    const after = { ...before, policy: wanted.policy ?? before.policy ?? "accept" };
    tx.change(
      () => (chain.base = after),
      () => (chain.base = before),
    );
  }
  tx.note("new", "chain", table, chain.name, chain.handle);
}

/** nf_tables_delchain: deletes a chain with its rules, unless others refer to it. */
export function deleteChain(tx: Transaction, op: ChainOp): void {
  const table = findTable(tx, op);
  const { handle } = op;
  const find = (): ChainState =>
    handle === undefined ? findChain(table, op.chain) : byHandle(table.chains.values(), handle);
  const chain = unlessAbsent(op.op === "destroy", find);
  if (chain === undefined) return;
  if ((chain.flags & ChainFlag.binding) !== 0) throw new Refusal("EOPNOTSUPP");
  // Counted before its own rules are removed: the kernel does not notice that a jump to the chain itself disappears
  // with them.
  const { references } = chain;
  deleteChainRules(tx, table, chain);
  if (references > 0) throw new Refusal("EBUSY");
  removeChain(tx, table, chain);
}
