import { DATA_VERDICT } from "../../kernel/constants.js";
import { Refusal, SetState, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { Op, SetInfo } from "../../kernel/kernel.js";
import { byHandle, findTable, unlessAbsent } from "./find.js";

type SetOp = Extract<Op, { kind: "set" }>;
type NewSetOp = Extract<SetOp, { op: "add" | "create" }>;

/** nft_set_is_same: the fields in which a set and an `add` of it must agree. */
function isSame(set: SetState, info: SetInfo): boolean {
  const old = set.info;
  const fields = (of: SetInfo): string => ((of.fieldLens?.length ?? 0) > 1 ? String(of.fieldLens) : "");
  return (
    old.keyType === info.keyType &&
    old.keyLen === info.keyLen &&
    old.dataType === info.dataType &&
    old.objType === info.objType &&
    old.flags === info.flags &&
    (old.dataType === DATA_VERDICT || old.dataLen === info.dataLen) &&
    fields(old) === fields(info) &&
    (old.exprs?.length ?? 0) === (info.exprs?.length ?? 0) &&
    (old.exprs ?? []).every((expr, i) => expr.type === info.exprs?.[i].type)
  );
}

/** nf_tables_newset */
export function addSet(tx: Transaction, op: NewSetOp): void {
  const table = findTable(tx, op);
  const existing = table.sets.get(op.set);
  if (existing !== undefined) {
    updateSet(tx, table, existing, op);
    return;
  }
  const name = op.set.includes("%") ? freeName(table, op.set) : op.set;
  const set = new SetState(name, table.nextHandle(), infoOf(op, name));
  tx.change(
    () => table.sets.set(name, set),
    () => table.sets.delete(name),
  );
  if (op.id !== undefined) tx.setsById.set(op.id, set);
  if (set.anonymous) tx.newAnonymous.push({ table, set });
  tx.note("new", "set", table, name, set.handle);
}

function infoOf(op: NewSetOp, set: string): SetInfo {
  const { op: _op, kind: _kind, family: _family, table: _table, id: _id, ...info } = op;
  return { ...info, set };
}

/** An `add` of an existing set: size and timeouts are updated if the rest is the same. */
function updateSet(tx: Transaction, table: TableState, set: SetState, op: NewSetOp): void {
  if (op.op === "create") throw new Refusal("EEXIST");
  if (set.anonymous) throw new Refusal("EOPNOTSUPP");
  if (!isSame(set, op)) throw new Refusal("EEXIST");
  const before = { size: set.size, timeout: set.timeout, gcInterval: set.gcInterval };
  tx.change(
    () => {
      set.timeout = op.timeout === 0n ? undefined : op.timeout;
      set.gcInterval = op.gcInterval === 0 ? undefined : op.gcInterval;
      if (op.size !== undefined && op.size !== 0) set.size = op.size;
    },
    () => Object.assign(set, before),
  );
  if (op.id !== undefined) tx.setsById.set(op.id, set);
  tx.note("new", "set", table, set.name, set.handle);
}

/** nf_tables_set_alloc_name: the lowest free number. */
function freeName(table: TableState, pattern: string): string {
  let number = 0;
  while (table.sets.has(pattern.replace("%d", String(number)))) number++;
  return pattern.replace("%d", String(number));
}

/** nf_tables_delset */
export function deleteSet(tx: Transaction, op: Extract<SetOp, { op: "delete" | "destroy" }>): void {
  const table = findTable(tx, op);
  const set = unlessAbsent(op.op === "destroy", () => {
    const found = op.handle === undefined ? table.sets.get(op.set) : byHandle(table.sets.values(), op.handle);
    if (found === undefined) throw new Refusal("ENOENT");
    return found;
  });
  if (set === undefined) return;
  if (set.references > 0) throw new Refusal("EBUSY");
  removeSet(tx, table, set);
}

/** nft_delset; elements are deleted without events, and release their chains as `DeletedMaps` says. */
export function removeSet(tx: Transaction, table: TableState, set: SetState): void {
  const { deletedMaps } = tx.namespace;
  const hold = (count: 1 | -1): void => {
    for (const { target } of set.elements.values()) if (target !== undefined) target.references += count;
  };
  const twice = deletedMaps === "come back twice" ? tx.deleted.filter((deleted) => deleted.set === set) : [];
  tx.change(
    () => {
      table.sets.delete(set.name);
      if (deletedMaps === "hold on") tx.later(() => hold(-1));
      else hold(-1);
    },
    () => {
      if (deletedMaps !== "hold on") hold(1);
      for (const { element } of twice) if (element.target !== undefined) element.target.references++;
      table.sets.set(set.name, set);
    },
  );
  tx.note("delete", "set", table, set.name, set.handle);
}
