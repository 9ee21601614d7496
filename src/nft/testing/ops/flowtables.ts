import { Refusal } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { Op } from "../../kernel/kernel.js";
import { findTable } from "./find.js";

type FlowtableOp = Extract<Op, { kind: "flowtable" }>;

function put(tx: Transaction, op: FlowtableOp, devices: ReadonlySet<string> | undefined): void {
  const table = findTable(tx, op);
  const before = table.flowtables.get(op.flowtable);
  const set = (state: ReadonlySet<string> | undefined): void => {
    if (state === undefined) table.flowtables.delete(op.flowtable);
    else table.flowtables.set(op.flowtable, state);
  };
  tx.change(
    () => set(devices),
    () => set(before),
  );
  tx.note(devices === undefined ? "delete" : "new", "flowtable", table, op.flowtable);
}

/** nf_tables_newflowtable. The existing devices are unknown here: every name counts as one. */
export function addFlowtable(tx: Transaction, op: FlowtableOp): void {
  const before = findTable(tx, op).flowtables.get(op.flowtable);
  if (before !== undefined && op.op === "create") throw new Refusal("EEXIST");
  put(tx, op, new Set([...(before ?? []), ...(op.devices ?? [])]));
}

/** nf_tables_delflowtable, and nft_delflowtable_hook if it names devices. */
export function deleteFlowtable(tx: Transaction, op: FlowtableOp): void {
  const before = findTable(tx, op).flowtables.get(op.flowtable);
  if (before === undefined) {
    if (op.op === "destroy") return;
    throw new Refusal("ENOENT");
  }
  const { devices = [] } = op;
  if (devices.length === 0) return put(tx, op, undefined);
  if (devices.some((device) => !before.has(device))) throw new Refusal("ENOENT");
  put(tx, op, new Set([...before].filter((device) => !devices.includes(device))));
}
