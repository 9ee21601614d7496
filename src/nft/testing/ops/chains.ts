import { ChainFlag } from "../../kernel/constants.js";
import { ChainState, Refusal, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { BaseChain, Family, Op } from "../../kernel/kernel.js";
import { byHandle, checkUserdata, findChain, findTable, unlessAbsent } from "./find.js";
import { removeRule } from "./rules.js";

type ChainOp = Extract<Op, { kind: "chain" }>;

const ALL_IP_HOOKS = [0, 1, 2, 3, 4];
const IP_TYPES: Partial<Record<BaseChain["type"], readonly number[]>> = {
  filter: ALL_IP_HOOKS,
  nat: [0, 1, 3, 4],
  route: [3],
};
/**
 * The chain types of each family, and the hooks that each type allows (nft_chain_filter.c, nft_chain_nat.c,
 * nft_chain_route.c).
 */
const CHAIN_TYPES: Record<Family, Partial<Record<BaseChain["type"], readonly number[]>>> = {
  ip: IP_TYPES,
  ip6: IP_TYPES,
  inet: { ...IP_TYPES, filter: [...ALL_IP_HOOKS, 5] },
  arp: { filter: [0, 1] },
  bridge: { filter: ALL_IP_HOOKS },
  netdev: { filter: [0, 1] },
};
const FLAGS = ChainFlag.base | ChainFlag.hwOffload | ChainFlag.binding;
/** NF_IP_PRI_CONNTRACK: nat chains must come later. */
const PRIORITY_CONNTRACK = -200;

/** nft_chain_parse_hook */
function checkHook(family: Family, base: BaseChain): void {
  const hooks = CHAIN_TYPES[family][base.type];
  if (hooks === undefined) throw new Refusal("ENOENT");
  if (!hooks.includes(base.hook)) throw new Refusal("EOPNOTSUPP");
  if (base.type === "nat" && base.priority <= PRIORITY_CONNTRACK) throw new Refusal("EOPNOTSUPP");
}

/** nf_tables_newchain */
export function addChain(tx: Transaction, op: ChainOp): void {
  checkUserdata(op.userdata);
  const table = findTable(tx, op);
  const existing = table.chains.get(op.chain);
  if (op.base?.policy !== undefined && existing !== undefined && existing.base === undefined)
    throw new Refusal("EOPNOTSUPP");
  const flags = op.flags ?? existing?.flags ?? 0;
  if ((flags & ~FLAGS) !== 0) throw new Refusal("EOPNOTSUPP");
  if (existing !== undefined) {
    if (op.op === "create") throw new Refusal("EEXIST");
    updateChain(tx, table, existing, op.base, flags | (existing.flags & ChainFlag.base));
    return;
  }
  if (op.base !== undefined) checkHook(op.family, op.base);
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
    checkHook(table.ref.family, wanted);
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

/** nft_delrule_by_chain */
export function deleteChainRules(tx: Transaction, table: TableState, chain: ChainState): void {
  for (const rule of [...chain.rules]) removeRule(tx, table, rule);
}

/** Removes the chain from its table, and records the event. */
export function removeChain(tx: Transaction, table: TableState, chain: ChainState): void {
  tx.change(
    () => table.chains.delete(chain.name),
    () => table.chains.set(chain.name, chain),
  );
  tx.note("delete", "chain", table, chain.name, chain.handle);
}
