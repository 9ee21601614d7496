import { IpProto, NfProto, ObjectType, QuotaFlag } from "../../kernel/constants.js";
import { normalizeExpr } from "../../kernel/normalize.js";
import type { Family, ObjectData, Op } from "../../kernel/kernel.js";
import { ObjectState, Refusal, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import { findTable, unlessAbsent } from "./find.js";

type ObjectOp = Extract<Op, { kind: "object" }>;
type NewObjectOp = Extract<ObjectOp, { op: "add" | "create" }>;

/** The kernel's timeouts in seconds, by protocol: tcp_timeouts, udp_timeouts. */
const TIMEOUTS: Readonly<Record<number, readonly number[]>> = {
  [IpProto.tcp]: [120, 60, 432_000, 120, 60, 30, 120, 10, 120, 300, 300],
  [IpProto.udp]: [30, 120],
};

/** nft_obj_lookup */
export function findObject(table: TableState, objType: number, name: string): ObjectState {
  const found = table.objects.get(`${objType} ${name}`);
  if (found === undefined) throw new Refusal("ENOENT");
  return found;
}

/** nf_tables_newobj */
export function addObject(tx: Transaction, op: NewObjectOp): void {
  const table = findTable(tx, op);
  const { object, objType } = op;
  const id = `${objType} ${object}`;
  const data = initialised(op.data, table.ref.family);
  const found = table.objects.get(id);
  if (found !== undefined) {
    if (op.op === "create") throw new Refusal("EEXIST");
    return updateObject(tx, table, found, data);
  }
  const state = new ObjectState(object, objType, table.nextHandle(), data, op.userdata?.slice());
  tx.change(
    () => table.objects.set(id, state),
    () => table.objects.delete(id),
  );
  tx.note("new", "object", table, object, state.handle);
}

/** nf_tables_updobj: only these two kinds have an `update` operation. */
function updateObject(tx: Transaction, table: TableState, found: ObjectState, data: ObjectData): void {
  if (found.objType !== ObjectType.quota && found.objType !== ObjectType.synproxy) return;
  const before = found.data;
  const after = data.type === "quota" && before.type === "quota" ? { ...data, consumed: before.consumed ?? 0n } : data;
  tx.change(
    () => (found.data = after),
    () => (found.data = before),
  );
  tx.note("new", "object", table, found.name, found.handle);
}

/** nf_tables_delobj */
export function deleteObject(tx: Transaction, op: Exclude<ObjectOp, NewObjectOp>): void {
  const table = findTable(tx, op);
  const found = unlessAbsent(op.op === "destroy", () => findObject(table, op.objType, op.object));
  if (found === undefined) return;
  if (found.references > 0) throw new Refusal("EBUSY");
  removeObject(tx, table, found);
}

/** nft_delobj */
export function removeObject(tx: Transaction, table: TableState, object: ObjectState): void {
  const id = `${object.objType} ${object.name}`;
  tx.change(
    () => table.objects.delete(id),
    () => table.objects.set(id, object),
  );
  tx.note("delete", "object", table, object.name, object.handle);
}

/** An object's `init`, with the defaults that its dump has. */
function initialised(data: ObjectData, family: Family): ObjectData {
  const l3proto = NfProto[family];
  switch (data.type) {
    case "counter":
      return { ...data, packets: data.packets ?? 0n, bytes: data.bytes ?? 0n };
    case "quota": {
      const { flags = 0, consumed = 0n } = data;
      return { ...data, flags, consumed };
    }
    case "limit":
      return normalizeExpr(data) as ObjectData;
    case "ct timeout": {
      const given = data.timeouts;
      const all = (TIMEOUTS[data.l4proto] ?? []).map((seconds, state) => given[state] ?? seconds);
      return { ...data, l3proto: data.l3proto ?? l3proto, timeouts: all };
    }
    case "ct helper":
    case "ct expectation":
      return { ...data, l3proto: data.l3proto ?? l3proto };
    default:
      return data;
  }
}

/** An object's `dump`, which does not show more use than a quota allows. */
export function dumpedObject({ data }: ObjectState): ObjectData {
  if (data.type !== "quota" || (data.consumed ?? 0n) < data.bytes) return data;
  return { ...data, consumed: data.bytes, flags: (data.flags ?? 0) | QuotaFlag.depleted };
}

/** Starts the counts of an object again. */
export function resetObject(object: ObjectState): void {
  const { data } = object;
  if (data.type === "counter") object.data = { ...data, packets: 0n, bytes: 0n };
  if (data.type === "quota") object.data = { ...data, consumed: 0n };
}
