import { TableFlag } from "../../kernel/constants.js";
import { byAge, Refusal, TableState, tableId } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { Op } from "../../kernel/kernel.js";
import { findTable, unlessAbsent } from "./find.js";
import { removeObject } from "./objects.js";
import { deleteChainRules, removeChain } from "./rules.js";
import { removeSet } from "./sets.js";

type TableOp = Extract<Op, { kind: "table" }>;

/** nf_tables_newtable */
export function addTable(tx: Transaction, op: TableOp): void {
  const existing = unlessAbsent(true, () => findTable(tx, op));
  if (existing !== undefined) {
    if (op.op === "create") throw new Refusal("EEXIST");
    if (op.flags !== undefined) updateFlags(tx, existing, op.flags);
    return;
  }
  const flags = op.flags ?? 0;
  const table = new TableState(
    { family: op.family, table: op.table },
    tx.namespace.nextTableHandle(),
    flags,
    op.userdata,
  );
  if ((flags & TableFlag.owner) !== 0) table.owner = tx.portId;
  const { tables } = tx.namespace;
  const id = tableId(op);
  tx.change(
    () => tables.set(id, table),
    () => tables.delete(id),
  );
  tx.note("new", "table", table, undefined, table.handle);
}

/** nf_tables_updtable: dormancy can be switched, and a table left by its owner can be claimed. */
function updateFlags(tx: Transaction, table: TableState, flags: number): void {
  if (flags === table.flags) return;
  const owned = (table.flags & TableFlag.owner) !== 0;
  const orphan = (table.flags & (TableFlag.owner | TableFlag.persist)) === TableFlag.persist;
  const claims = (flags & TableFlag.owner) !== 0;
  if ((owned && !claims) || (claims && !owned && !orphan)) throw new Refusal("EOPNOTSUPP");
  if (((flags ^ table.flags) & TableFlag.persist) !== 0) throw new Refusal("EOPNOTSUPP");
  const before = { flags: table.flags, owner: table.owner };
  if (((flags ^ table.flags) & TableFlag.dormant) !== 0) tx.toggled.add(table);
  tx.change(
    () => {
      table.flags = flags;
      if (claims) table.owner = tx.portId;
    },
    () => Object.assign(table, before),
  );
  tx.note("new", "table", table, undefined, table.handle);
}

/** nf_tables_deltable, with everything in it (nft_flush_table). */
export function deleteTable(tx: Transaction, op: TableOp): void {
  const table = unlessAbsent(op.op === "destroy", () => findTable(tx, op));
  if (table === undefined) return;
  if (op.handle !== undefined && op.handle !== table.handle) throw new Refusal("ENOENT");
  for (const chain of byAge(table.chains)) deleteChainRules(tx, table, chain);
  for (const set of byAge(table.sets)) removeSet(tx, table, set);
  for (const object of byAge(table.objects)) removeObject(tx, table, object);
  for (const chain of byAge(table.chains)) removeChain(tx, table, chain);
  const { tables } = tx.namespace;
  const id = tableId(op);
  tx.change(
    () => tables.delete(id),
    () => tables.set(id, table),
  );
  tx.note("delete", "table", table, undefined, table.handle);
}
