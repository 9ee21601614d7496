import { Refusal } from "../state.js";
import type { Transaction } from "../transaction.js";
import type { Op } from "../../../netlink/kernel.js";
import { findTable, unlessAbsent } from "./find.js";

/** nf_tables_delobj */
export function deleteObject(tx: Transaction, op: Extract<Op, { kind: "object" }>): void {
  const table = unlessAbsent(op.op === "destroy", () => findTable(tx, op));
  const id = `${op.objType} ${op.object}`;
  const found = table?.objects.get(id);
  if (table === undefined || found === undefined) {
    if (op.op === "destroy") return;
    throw new Refusal("ENOENT");
  }
  tx.change(
    () => table.objects.delete(id),
    () => table.objects.set(id, found),
  );
  tx.note("delete", "object", table, op.object);
}
