import { batchLayout, type BatchLayout } from "../../kernel/element-batch.js";
import { ElementFlag, SetFlag } from "../../kernel/constants.js";
import { elementId, isExpired, Refusal, type ElementState, type SetState, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import type { ElementBatch, ElementExtra, Op, Verdict } from "../../kernel/kernel.js";
import { findSet, findTable } from "./find.js";
import { isNull } from "../state/intervals.js";
import { verdictTarget } from "./links.js";
import { findObject } from "./objects.js";

type ElementsOp = Extract<Op, { kind: "elements" }>;
type ListOp = Exclude<ElementsOp, { op: "flush" }>;

/** The fields that identify an element. */
type Identity = Pick<ElementState, "key" | "keyEnd" | "end" | "catchall">;

/** Reads records of a batch one by one, with the kernel's checks of each element's attributes. */
class Records {
  private readonly at: BatchLayout;
  private readonly bytes: Buffer;
  private readonly extras: ReadonlyMap<number, ElementExtra>;
  constructor(
    private readonly batch: ElementBatch,
    private readonly set: SetState,
  ) {
    this.at = batchLayout(batch);
    this.extras = new Map(batch.extras?.map((extra) => [extra.record, extra]));
    this.bytes = Buffer.from(batch.bytes.buffer, batch.bytes.byteOffset, batch.bytes.byteLength);
  }

  text(record: number, column: number, length: number): string {
    const start = record * this.at.stride + column;
    return this.bytes.toString("latin1", start, start + length);
  }

  number(record: number, column: number): bigint | undefined {
    if (column < 0) return undefined;
    const value = this.bytes.readBigUInt64LE(record * this.at.stride + column);
    return value === 0n ? undefined : value;
  }

  timeout(record: number): bigint | undefined {
    return this.number(record, this.at.timeout);
  }
  expiration(record: number): bigint | undefined {
    return this.number(record, this.at.expiration);
  }

  /** Initial value of its counter; undefined for 0. */
  count(record: number): ElementState["count"] {
    if (this.at.counter < 0) return undefined;
    const start = record * this.at.stride + this.at.counter;
    return { packets: this.bytes.readBigUInt64LE(start), bytes: this.bytes.readBigUInt64LE(start + 8) };
  }

  userdata(record: number): Uint8Array | undefined {
    return this.extras.get(record)?.userdata?.slice();
  }

  object(record: number): string | undefined {
    return this.extras.get(record)?.object;
  }

  verdict(record: number): Verdict | undefined {
    const { verdicts } = this.batch;
    return verdicts?.[this.bytes.readUInt32LE(record * this.at.stride + this.at.data)];
  }

  /** Key and flags (nft_set_elem_parse_flags, nft_setelem_parse_key). */
  identity(record: number): Identity {
    const flags = this.at.flags < 0 ? 0 : this.bytes.readUInt32LE(record * this.at.stride + this.at.flags);
    const end = (flags & ElementFlag.intervalEnd) !== 0;
    const catchall = (flags & ElementFlag.catchall) !== 0;
    if (catchall) return { key: "", keyEnd: "", end, catchall };
    const key = this.text(record, this.at.key, this.batch.keyLen);
    const ranged = this.set.ranges && this.at.keyEnd >= 0;
    return { key, keyEnd: ranged ? this.text(record, this.at.keyEnd, this.batch.keyLen) : key, end, catchall };
  }

  /** Data bytes; `verdict` identifies verdicts. */
  data(record: number): string {
    return this.at.data < 0 ? "" : this.text(record, this.at.data, this.batch.dataLen);
  }
}

/**
 * The changes of one operation to a set, to revert them together: an undo function per element would be too expensive.
 */
class Journal {
  private readonly steps: { readonly element: ElementState; readonly inserted: boolean }[] = [];
  constructor(private readonly set: SetState) {}

  get removed(): ElementState[] {
    return this.steps.flatMap(({ element, inserted }) => (inserted ? [] : [element]));
  }

  insert(element: ElementState): void {
    this.set.insert(element);
    this.steps.push({ element, inserted: true });
  }
  remove(element: ElementState): void {
    this.set.remove(element);
    this.steps.push({ element, inserted: false });
  }

  undo(): void {
    for (let step = this.steps.pop(); step !== undefined; step = this.steps.pop()) {
      if (step.inserted) this.set.remove(step.element);
      else this.set.insert(step.element);
    }
  }
}

/** Runs `each` for every record. An error says which record it was. */
function forEachRecord(count: number, each: (record: number) => void): void {
  for (let record = 0; record < count; record++) {
    try {
      each(record);
    } catch (error) {
      throw error instanceof Refusal ? new Refusal(error.errno, record, error.text) : error;
    }
  }
}

/** nf_tables_newsetelem */
export function addElements(tx: Transaction, op: ListOp): void {
  const table = findTable(tx, op);
  const set = findSet(tx, table, op.set, op.setId);
  if (set.anonymous || set.has(SetFlag.constant)) refuseBound(tx, set);
  const adder = new Adder(tx, table, set, op);
  let added = 0;
  try {
    forEachRecord(op.elements.count, (record) => {
      if (adder.add(record)) added++;
    });
  } finally {
    tx.change(
      () => undefined,
      () => adder.journal.undo(),
    );
  }
  tx.noteElements("new", table, set, added);
}

/** Adds the records of one operation. */
class Adder {
  readonly journal: Journal;
  private readonly records: Records;
  constructor(
    private readonly tx: Transaction,
    private readonly table: TableState,
    private readonly set: SetState,
    private readonly op: ListOp,
  ) {
    this.journal = new Journal(set);
    this.records = new Records(op.elements, set);
  }

  /** nft_add_set_elem. Returns true if the element is new or renewed. */
  add(record: number): boolean {
    const { set, tx, journal } = this;
    const element = this.read(record);
    const found = set.elements.get(elementId(element));
    // Unlike the hash, ranges keep an expired catch-all element until the set is changed (nft_setelem_catchall_insert).
    const kept = element.catchall && set.has(SetFlag.interval);
    if (found !== undefined && isExpired(found, tx.now) && !kept) journal.remove(found);
    const there = this.meet(element);
    if (there === "ignore") return false;
    if (there !== undefined) return this.merge(there, element, record);
    const over = !element.catchall && full(set, tx.now, journal);
    // An element beyond the size stays in the set until the batch is reverted: later operations of the batch find it
    // there.
    journal.insert(element);
    if (over) throw new Refusal("ENFILE");
    return true;
  }

  /** The set's own `insert`: finds the same element, or rejects one that overlaps others. */
  private meet(element: ElementState): ElementState | "ignore" | undefined {
    const { set, tx } = this;
    if (set.sorted !== undefined && !element.catchall) return tx.guard(set).insert(element, tx.now);
    const found = set.elements.get(elementId(element));
    if (found === undefined && set.ranges && !element.catchall) checkRanges(set, element, tx.now);
    return found;
  }

  private read(record: number): ElementState {
    const { set, records } = this;
    const identity = records.identity(record);
    const own = identity.end ? undefined : records.timeout(record);
    const expiration = identity.end ? undefined : records.expiration(record);
    const data = identity.end ? "" : records.data(record);
    const timeout = own ?? (identity.end ? undefined : set.timeout);
    const left = expiration ?? timeout;
    const verdict = identity.end ? undefined : records.verdict(record);
    const object = identity.end ? undefined : records.object(record);
    const target =
      object !== undefined
        ? findObject(this.table, set.info.objType ?? 0, object)
        : verdict && verdictTarget(this.table, verdict);
    return {
      ...identity,
      count: records.count(record),
      data: verdict === undefined ? data : "",
      verdict,
      target,
      userdata: records.userdata(record),
      timeout,
      expiresAt: left === undefined ? Infinity : this.tx.now + Number(left),
    };
  }

  /** An existing element: the same one may be added again, and then adopts a new timeout (Linux >= 6.12). */
  private merge(found: ElementState, element: ElementState, record: number): boolean {
    if (
      found.data !== element.data ||
      found.target !== element.target ||
      found.verdict?.verdict !== element.verdict?.verdict
    ) {
      throw new Refusal("EEXIST");
    }
    if (this.op.op === "create") throw new Refusal("EEXIST");
    if (!this.set.has(SetFlag.timeout) || element.end) return false;
    if (element.timeout === found.timeout && this.records.expiration(record) === undefined) return false;
    this.tx.renewals.push({ element: found, timeout: element.timeout, expiresAt: element.expiresAt });
    return true;
  }
}

/** Checks the size after the batch; expired elements are removed first. */
function full(set: SetState, now: number, journal: Journal): boolean {
  const limit = capacity(set);
  if (set.elements.size < limit) return false;
  if (set.has(SetFlag.timeout)) {
    for (const element of [...set.elements.values()]) if (isExpired(element, now)) journal.remove(element);
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
function findElement(tx: Transaction, set: SetState, wanted: Identity): ElementState | undefined {
  if (set.ranges && !wanted.catchall) return holder(set, wanted.key, tx.now);
  if (set.sorted !== undefined && !wanted.catchall) return tx.guard(set).remove(wanted, tx.now);
  const found = set.elements.get(elementId(wanted));
  return found === undefined || (isExpired(found, tx.now) && !wanted.catchall) ? undefined : found;
}

/** nf_tables_delsetelem */
export function deleteElements(tx: Transaction, op: ListOp): void {
  const table = findTable(tx, op);
  const set = named(tx, table, op.set);
  const records = new Records(op.elements, set);
  const journal = new Journal(set);
  let removed = 0;
  try {
    forEachRecord(op.elements.count, (record) => {
      const found = findElement(tx, set, records.identity(record));
      if (found === undefined) {
        if (op.op === "destroy") return;
        throw new Refusal("ENOENT");
      }
      journal.remove(found);
      removed++;
    });
  } finally {
    tx.change(
      () => tx.noteDeleted(set, journal.removed),
      () => journal.undo(),
    );
  }
  tx.noteElements("delete", table, set, removed);
}

/** nf_tables_delsetelem without a list (nft_set_flush) */
export function flushElements(tx: Transaction, op: Extract<ElementsOp, { op: "flush" }>): void {
  const table = findTable(tx, op);
  const set = named(tx, table, op.set);
  const journal = new Journal(set);
  const all = [...set.elements.values()];
  tx.change(
    () => {
      for (const element of all) journal.remove(element);
      tx.noteDeleted(set, all);
    },
    () => journal.undo(),
  );
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
