import { SetFlag } from "../../kernel/constants.js";
import { elementId, isExpired, Refusal, type ElementState, type SetState, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { Op } from "../../kernel/kernel.js";
import { findSet, findTable } from "./find.js";
import { forEachGiven, type GivenElement } from "./given-elements.js";
import { isNull } from "../state/intervals.js";
import { verdictTarget } from "./links.js";
import { findObject } from "./objects.js";

type ElementsOp = Extract<Op, { kind: "elements" }>;
type ListOp = Exclude<ElementsOp, { op: "flush" }>;

/** nf_tables_newsetelem */
export function addElements(tx: Transaction, op: ListOp): void {
  const table = findTable(tx, op);
  const set = findSet(tx, table, op.set, op.setId);
  if (set.anonymous || set.has(SetFlag.constant)) refuseBound(tx, set);
  let added = 0;
  forEachGiven(op.elements, (given) => {
    if (addElement(tx, table, set, given, op.op === "create")) added++;
  });
  tx.noteElements("new", table, set, added);
}

/** nft_add_set_elem. Returns true if the element is new or renewed. */
function addElement(tx: Transaction, table: TableState, set: SetState, given: GivenElement, create: boolean): boolean {
  const element = newElement(tx, table, set, given);
  const found = set.elements.get(elementId(element));
  // Unlike the hash, ranges keep an expired catch-all element until the set is changed (nft_setelem_catchall_insert).
  const kept = element.catchall && set.has(SetFlag.interval);
  if (found !== undefined && isExpired(found, tx.now) && !kept) tx.removeElement(set, found);
  const there = meet(tx, set, element);
  if (there === "ignore") return false;
  if (there === undefined) {
    const over = !element.catchall && isFull(tx, set);
    // An element beyond the size stays in the set until the batch is reverted: later operations of the batch find it
    // there.
    tx.insertElement(set, element);
    if (over) throw new Refusal("ENFILE");
    return true;
  }
  // The same element may be added again, and then adopts a new timeout (Linux >= 6.12).
  const isSame =
    there.data === element.data &&
    there.target === element.target &&
    there.verdict?.verdict === element.verdict?.verdict;
  if (!isSame || create) throw new Refusal("EEXIST");
  if (!set.has(SetFlag.timeout) || element.end) return false;
  if (element.timeout === there.timeout && given.expiration === 0n) return false;
  tx.renewals.push({ element: there, timeout: element.timeout, expiresAt: element.expiresAt });
  return true;
}

/** The set's own `insert`: finds the same element, or rejects one that overlaps others. */
function meet(tx: Transaction, set: SetState, element: ElementState): ElementState | "ignore" | undefined {
  if (set.sorted !== undefined && !element.catchall) return tx.guard(set).insert(element, tx.now);
  const found = set.elements.get(elementId(element));
  if (found === undefined && set.ranges && !element.catchall) checkRanges(set, element, tx.now);
  return found;
}

function newElement(tx: Transaction, table: TableState, set: SetState, given: GivenElement): ElementState {
  const { object, timeout: own, expiration, ...rest } = given;
  const timeout = rest.end ? undefined : own || set.timeout;
  const left = expiration || timeout;
  const target =
    object !== undefined
      ? findObject(table, set.info.objType ?? 0, object)
      : rest.verdict && verdictTarget(table, rest.verdict);
  return { ...rest, target, timeout, expiresAt: left === undefined ? Infinity : tx.now + Number(left) };
}

/** Checks the size after the batch; expired elements are removed first. */
function isFull(tx: Transaction, set: SetState): boolean {
  const limit = capacity(set);
  if (set.elements.size < limit) return false;
  if (set.has(SetFlag.timeout)) {
    for (const element of [...set.elements.values()]) if (isExpired(element, tx.now)) tx.removeElement(set, element);
  }
  return (
    set.elements.size - (set.elements.has(elementId({ key: "", keyEnd: "", end: false, catchall: true })) ? 1 : 0) >=
    limit
  );
}

/** nft_set_maxsize: an interval is two elements, and the one that says "nothing below the first" does not count. */
function capacity(set: SetState): number {
  if (set.size === undefined) return Infinity;
  if (set.sorted === undefined) return set.size;
  const [first] = set.sorted;
  const lead = first !== undefined && isNull(first) ? 1 : 0;
  return set.size * 2 + lead;
}

/** Bounds of each field of a concatenation, padded. */
function fieldsOf(set: SetState): [from: number, to: number][] {
  let at = 0;
  return (set.info.fieldLens ?? []).map((bytes) => {
    const from = at;
    at += Math.ceil(bytes / 4) * 4;
    return [from, at];
  });
}

/** Returns the element whose ranges contain a point (pipapo_get). */
function holder(set: SetState, point: string, now: number): ElementState | undefined {
  const fields = fieldsOf(set);
  const between = (low: string, high: string): boolean =>
    fields.every(
      ([from, to]) => low.slice(from, to) <= point.slice(from, to) && point.slice(from, to) <= high.slice(from, to),
    );
  for (const element of set.elements.values()) {
    if (!element.catchall && !isExpired(element, now) && between(element.key, element.keyEnd)) return element;
  }
  return undefined;
}

/** nft_pipapo_insert: neither end of a new range may lie in an old one. */
function checkRanges(set: SetState, element: ElementState, now: number): void {
  const { key, keyEnd } = element;
  if (fieldsOf(set).some(([from, to]) => key.slice(from, to) > keyEnd.slice(from, to))) throw new Refusal("EINVAL");
  if (holder(set, key, now) !== undefined || holder(set, keyEnd, now) !== undefined) throw new Refusal("EEXIST");
}

/**
 * The element that a deletion refers to: among ranges of a concatenation, the one that contains the key, whatever its
 * end.
 */
function findElement(tx: Transaction, set: SetState, wanted: GivenElement): ElementState | undefined {
  if (set.ranges && !wanted.catchall) return holder(set, wanted.key, tx.now);
  if (set.sorted !== undefined && !wanted.catchall) return tx.guard(set).remove(wanted, tx.now);
  const found = set.elements.get(elementId(wanted));
  return found === undefined || (isExpired(found, tx.now) && !wanted.catchall) ? undefined : found;
}

/** nf_tables_delsetelem */
export function deleteElements(tx: Transaction, op: ListOp): void {
  const table = findTable(tx, op);
  const set = named(tx, table, op.set);
  let removed = 0;
  forEachGiven(op.elements, (given) => {
    const found = findElement(tx, set, given);
    if (found === undefined) {
      if (op.op === "destroy") return;
      throw new Refusal("ENOENT");
    }
    tx.deleteElement(set, found);
    removed++;
  });
  tx.noteElements("delete", table, set, removed);
}

/** nf_tables_delsetelem without a list (nft_set_flush) */
export function flushElements(tx: Transaction, op: Extract<ElementsOp, { op: "flush" }>): void {
  const table = findTable(tx, op);
  const set = named(tx, table, op.set);
  const all = [...set.elements.values()];
  for (const element of all) tx.deleteElement(set, element);
  tx.noteElements("delete", table, set, all.length);
}

/** The set to delete from: only by name, never an anonymous one, and a constant one only before it is in use. */
function named(tx: Transaction, table: TableState, name: string): SetState {
  const set = table.sets.get(name);
  if (set === undefined) throw new Refusal("ENOENT");
  if (set.anonymous) throw new Refusal("EOPNOTSUPP");
  if (set.has(SetFlag.constant)) refuseBound(tx, set);
  return set;
}

function refuseBound(tx: Transaction, set: SetState): void {
  if (set.references > 0 || tx.unbound.has(set)) throw new Refusal("EBUSY");
}
