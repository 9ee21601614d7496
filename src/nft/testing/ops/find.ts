import { Refusal, type ChainState, type SetState, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { TableRef } from "../../kernel/kernel.js";

/** nft_table_lookup: a table that another socket owns rejects every change. */
export function findTable(tx: Transaction, ref: TableRef): TableState {
  const table = tx.namespace.find(ref);
  if (table === undefined) throw new Refusal("ENOENT");
  if (table.owner !== undefined && table.owner !== tx.portId) throw new Refusal("EPERM");
  return table;
}

/** nft_chain_lookup */
export function findChain(table: TableState, name: string): ChainState {
  const chain = table.chains.get(name);
  if (chain === undefined) throw new Refusal("ENOENT");
  return chain;
}

/** nft_set_lookup_global: by name, otherwise by the number of a set in the same batch. */
export function findSet(tx: Transaction, table: TableState, name: string, id: number | undefined): SetState {
  const byName = table.sets.get(name);
  if (byName !== undefined) return byName;
  const byId = id === undefined ? undefined : tx.setsById.get(id);
  if (byId === undefined || table.sets.get(byId.name) !== byId) throw new Refusal("ENOENT");
  return byId;
}

/** Returns the object with this handle among a table's chains or sets. */
export function byHandle<T extends { readonly handle: bigint }>(objects: Iterable<T>, handle: bigint): T {
  for (const object of objects) if (object.handle === handle) return object;
  throw new Refusal("ENOENT");
}

/** Runs a lookup for a `destroy`, which succeeds if the object does not exist. Returns undefined then. */
export function unlessAbsent<T>(forgiving: boolean, look: () => T): T | undefined {
  try {
    return look();
  } catch (error) {
    if (forgiving && error instanceof Refusal && error.errno === "ENOENT") return undefined;
    throw error;
  }
}
