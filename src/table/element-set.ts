/**
 * Wanted against kernel, for the elements of one set or map.
 *
 *   put / delete / deleteLater                     take ──► pack ──► commit
 *          │                                        ▲                  │
 *          ▼                                        │                  ▼
 *   ┌────────────┐   differs?   ┌───────────┐       │           settle (or abort)
 *   │   wanted   │ ───────────► │ dirty rows│ ──────┘                  │
 *   └────────────┘              └───────────┘ ◄── changed since ───────┤
 *   ┌────────────┐                                                     │
 *   │   kernel   │ ◄────────────── what was sent, on success ──────────┘
 *   └────────────┘ ◄── load (a dump)
 *
 * Both sides live in one PackedMap row, so a change costs one look-up, and a transaction costs as many steps as there are
 * changes, whatever the size. `take` freezes the wanted state in O(1): a row that changes before it is packed
 * keeps its frozen value in `#frozen` (copy on write), so that packing may let the event loop run in between and the
 * transaction is still one moment's state of all sets.
 */
import type { ElementBatch, Verdict } from "../kernel/types.js";
import { readU32 } from "./bytes.js";
import { ChangeWriter, RangeWriter, type RowWriter } from "./change-writer.js";
import { LateRows } from "./late-rows.js";
import { PackedMap, RowList } from "./packed-map.js";
import { eachRecord, type RecordVisitor } from "./records.js";
import { EXPECTED, KERNEL, LATER, WANTED } from "./row-flags.js";
import { RowStates } from "./row-states.js";
import type { ElementSet, SetSpec } from "./types.js";
import type { VerdictRegistry } from "./verdicts.js";
import { inSlices } from "./yielding.js";

interface Frozen {
  readonly flags: number;
  readonly data: Uint8Array;
}

/** What `take` left to be packed. */
interface Taken {
  /** The set is created anew. */
  readonly full: boolean;
  /** Every row below `limit`; otherwise the first `limit` of `rows`. */
  readonly every: boolean;
  readonly rows: RowList;
  readonly limit: number;
  /** So many of them are packed. */
  packed: number;
}

/** What one set contributes to a transaction. */
export interface PackedChange {
  /** The set is created anew: everything wanted is added, nothing deleted singly. */
  readonly full: boolean;
  readonly adds?: ElementBatch;
  readonly deletes?: ElementBatch;
  readonly addRows: RowList;
  readonly deleteRows: RowList;
  /** Rows that start to wait for their late deletion with this transaction. */
  readonly lateRows: RowList;
  readonly otherRows: RowList;
}

/** How the elements of one set differ. */
export interface ElementDrift {
  readonly gone: number;
  readonly added: number;
  readonly changed: number;
}

/** What a dump was found to hold. */
export interface Loaded {
  /** False: an element that this set cannot stand for is among them (a catch-all). */
  readonly complete: boolean;
  /** Against what the kernel was thought to hold. */
  readonly drift: ElementDrift;
}

export interface TrackerOptions {
  readonly keyLen: number;
  readonly dataLen: number;
  /** Given for verdict maps. */
  readonly verdicts?: VerdictRegistry;
  /** Rows are ranges, first and last value, which the kernel holds as one or two elements with flags. */
  readonly ranges?: boolean;
  /** Told when there comes to be something to do for this set. */
  readonly onDirty?: () => void;
}

/** One set's elements. `Table` alone calls what `ElementSet` does not have. */
export class TrackedElements implements ElementSet {
  readonly keyLen: number;
  readonly dataLen: number;
  readonly #map: PackedMap;
  readonly #verdicts: VerdictRegistry | undefined;
  readonly #ranges: boolean;
  readonly #rows: RowStates;
  #taken: Taken | undefined;
  readonly #frozen = new Map<number, Frozen>();
  readonly #late: LateRows;
  #size = 0;
  /** Of the load that is under way. */
  #drift = { gone: 0, added: 0, changed: 0 };

  constructor(
    public spec: SetSpec,
    options: TrackerOptions,
  ) {
    this.keyLen = options.keyLen;
    this.dataLen = options.dataLen;
    this.#map = new PackedMap(options.keyLen, options.dataLen);
    this.#rows = new RowStates(this.#map, options.onDirty);
    this.#late = new LateRows(this.#map);
    this.#verdicts = options.verdicts;
    this.#ranges = options.ranges ?? false;
  }

  get size(): number {
    return this.#size;
  }
  /** Elements in the kernel, as far as is known. */
  get kernelSize(): number {
    return this.#rows.kernelSize;
  }
  /** Elements that the next transaction adds (a replaced one included). */
  get pendingAdds(): number {
    return this.#rows.allDirty ? this.#size : this.#rows.pendingAdds;
  }
  /** Whether the next transaction may have anything to do for this set. */
  get dirty(): boolean {
    return this.#rows.dirty;
  }

  put(key: Uint8Array, data?: Uint8Array, epoch = 0): boolean {
    this.#check(key, data);
    const map = this.#map;
    const row = map.findOrInsert(key);
    const flags = map.flags[row];
    const wanted = (flags & WANTED) !== 0;
    if (wanted && (data === undefined || map.isWanted(row, data, 0))) {
      map.setEpoch(row, epoch);
      return false;
    }
    this.#freeze(row);
    if (this.#verdicts !== undefined && data !== undefined) {
      this.#verdicts.retain(readU32(data, 0));
      if (wanted) this.#verdicts.release(map.wantedNumber(row));
    }
    map.setEpoch(row, epoch);
    if (data !== undefined) map.setWanted(row, data, 0);
    map.flags[row] = (flags | WANTED) & ~LATER;
    if (!wanted) this.#size++;
    this.#rows.updateAdd(row);
    this.#rows.markDirty(row);
    return true;
  }

  delete(key: Uint8Array): boolean {
    return this.#unwant(key, 0);
  }

  deleteLater(key: Uint8Array): boolean {
    return this.#unwant(key, LATER);
  }

  has(key: Uint8Array): boolean {
    return this.#wantedRow(key) >= 0;
  }

  get(key: Uint8Array): Uint8Array | undefined {
    const row = this.#wantedRow(key);
    return row < 0 ? undefined : this.#map.wantedAt(row);
  }

  kernelValue(key: Uint8Array): Uint8Array | undefined {
    this.#checkKey(key);
    const row = this.#map.find(key);
    if (row < 0 || (this.#map.flags[row] & KERNEL) === 0) return undefined;
    return this.#map.kernelAt(row);
  }

  kernelHolds(key: Uint8Array, data: Uint8Array): boolean {
    this.#checkKey(key);
    const map = this.#map;
    const row = map.find(key);
    if (row < 0 || (map.flags[row] & KERNEL) === 0) return false;
    return data.length === map.dataLen && map.isInKernel(row, data, 0);
  }

  epochOf(key: Uint8Array): number {
    const row = this.#wantedRow(key);
    return row < 0 ? 0 : this.#map.epoch(row);
  }

  replaceNets(_nets: readonly string[]): void {
    throw new TypeError(`set ${this.spec.set} is not an interval set`);
  }

  keepLeftovers(): void {
    throw new TypeError(`set ${this.spec.set} is not an interval set`);
  }

  clear(): void {
    for (let row = 0; row < this.#map.rows; row++) if ((this.#map.flags[row] & WANTED) !== 0) this.#unwantRow(row, 0);
  }

  /** Calls `visit` with every wanted element, as views that are valid during the call. */
  forEach(visit: (key: Uint8Array, data: Uint8Array) => void): void {
    const { rows, flags } = this.#map;
    for (let row = 0; row < rows; row++) {
      if ((flags[row] & WANTED) !== 0) visit(this.#map.keyAt(row), this.#map.wantedAt(row));
    }
  }

  forEachLeftover(visit: (key: Uint8Array) => void): void {
    const { rows, flags } = this.#map;
    for (let row = 0; row < rows; row++) {
      if ((flags[row] & (KERNEL | WANTED)) === KERNEL) visit(this.#map.keyAt(row));
    }
  }

  /** Freezes what is wanted now. `full`: for a set that is created anew. Every take ends in `settle` or `abort`. */
  take(full: boolean): void {
    const every = full || this.#rows.allDirty;
    const rows = this.#rows.takeDirty();
    this.#taken = { full, every, rows, limit: every ? this.#map.rows : rows.length, packed: 0 };
  }

  /** Packs what `take` froze. Lets the event loop run now and then. */
  async pack(): Promise<PackedChange> {
    const taken = this.#taken;
    if (taken === undefined) throw new Error(`set ${this.spec.set}: nothing was taken`);
    const additions = taken.every ? this.#map.size : this.#rows.pendingAdds;
    const writer = this.#ranges ? new RangeWriter(this.#map) : new ChangeWriter(this.#map, this.#verdicts, additions);
    const change = {
      full: taken.full,
      addRows: new RowList(additions),
      deleteRows: new RowList(),
      lateRows: new RowList(),
      otherRows: new RowList(),
    };
    await inSlices(taken.limit, (_, to) => this.#packUpTo(to, taken, change, writer));
    this.#taken = undefined;
    this.#frozen.clear();
    const { adds, deletes } = writer.finish();
    return { ...change, ...(adds === undefined ? {} : { adds }), ...(deletes === undefined ? {} : { deletes }) };
  }

  /** The transaction is in force: the kernel holds what was sent. Late rows wait until `due`. */
  async settle(change: PackedChange, due: number): Promise<void> {
    if (change.full) this.#rows.forgetKernel();
    const { deleteRows } = change;
    for (let i = 0; i < deleteRows.length; i++) this.#rows.setKernel(deleteRows.rows[i], false);
    await inSlices(change.addRows.length, (from, to) => this.#settleAdds(change, from, to));
    this.#late.start(change.lateRows, due);
    await this.#rows.finishAll(deleteRows);
    await this.#rows.finishAll(change.otherRows);
  }

  /** The transaction is not in force: everything that was taken is to be done again. */
  async abort(change: PackedChange): Promise<void> {
    for (let i = 0; i < change.lateRows.length; i++) this.#rows.markDirty(change.lateRows.rows[i]);
    for (const list of [change.addRows, change.deleteRows, change.otherRows]) await this.#rows.finishAll(list);
  }

  /** Moves late deletions whose time has come to the next transaction; `force` tells which go at once. */
  releaseLate(now: number, force?: (kernelData: Uint8Array) => boolean): void {
    this.#late.release(now, (row) => this.#rows.markDirty(row), force);
  }

  /** Whether the kernel holds an element with one of these verdicts. */
  kernelMentions(ids: ReadonlySet<number>): boolean {
    const { rows, flags } = this.#map;
    for (let row = 0; row < rows; row++) {
      if ((flags[row] & KERNEL) !== 0 && ids.has(this.#map.kernelNumber(row))) return true;
    }
    return false;
  }

  /** When the next late deletion is due, on the Table's clock. */
  get nextLate(): number | undefined {
    return this.#late.next;
  }

  /** Replaces what is known of the kernel by a dump; no dump: the set is not there. */
  async load(batch?: ElementBatch): Promise<Loaded> {
    if (batch === undefined) {
      const drift = { gone: this.#rows.kernelSize, added: 0, changed: 0 };
      this.#rows.loseKernel();
      return { complete: true, drift };
    }
    this.#rows.forgetKernel(EXPECTED);
    this.#drift = { gone: 0, added: 0, changed: 0 };
    const complete = await this.loadBatch(batch);
    const late = this.spec.lateLeftovers === true;
    await inSlices(this.#map.rows, (from, to) => {
      for (let row = from; row < to; row++) if (this.#map.flags[row] !== 0) this.#finishLoad(row, late);
    });
    return { complete, drift: { ...this.#drift } };
  }

  /** A row after a dump was taken over. `late`: what nobody wants of it goes late. */
  #finishLoad(row: number, late: boolean): void {
    const { flags } = this.#map;
    if ((flags[row] & EXPECTED) !== 0) {
      flags[row] &= ~EXPECTED;
      this.#drift.gone++;
    }
    if (late && (flags[row] & (KERNEL | WANTED | LATER)) === KERNEL) {
      flags[row] |= LATER;
      this.#rows.markDirty(row);
    } else this.#rows.finish(row);
  }

  /** Notes every element of a dump; false when one of them has no place here. */
  protected loadBatch(batch: ElementBatch): Promise<boolean> {
    return this.eachRecord(batch, (key, at, data, dataAt) => this.holds(key, at, data, dataAt));
  }

  /** Shows every element of a dump, as this one keeps them; false when one of them has no place here. */
  protected eachRecord(batch: ElementBatch, visit: RecordVisitor): Promise<boolean> {
    return eachRecord(batch, (verdict) => this.#verdicts?.id(verdict) ?? 0, visit);
  }

  /** Notes that the kernel holds the key at `key[at]` with this data. */
  protected holds(key: Uint8Array, at: number, data: Uint8Array = NOTHING, dataAt = 0): void {
    const map = this.#map;
    const row = map.findOrInsert(key, at);
    const expected = (map.flags[row] & EXPECTED) !== 0;
    if (!expected) this.#drift.added++;
    else {
      map.flags[row] &= ~EXPECTED;
      if (map.isInKernel(row, data, dataAt)) return this.#rows.setKernel(row, true);
      this.#drift.changed++;
    }
    this.#rows.setKernel(row, true);
    map.setKernel(row, data, dataAt);
  }

  /** How a dump differs from what the kernel is thought to hold, when that does not change meanwhile. */
  async compare(batch: ElementBatch): Promise<ElementDrift> {
    const drift = { gone: 0, added: 0, changed: 0 };
    let found = 0;
    await this.eachRecord(batch, (key, at, data, dataAt) => {
      const row = this.#map.find(key, at);
      if (row < 0 || (this.#map.flags[row] & KERNEL) === 0) drift.added++;
      else {
        found++;
        if (!this.#map.isInKernel(row, data, dataAt)) drift.changed++;
      }
    });
    return { ...drift, gone: this.#rows.kernelSize - found };
  }

  #packUpTo(end: number, taken: Taken, change: Omit<PackedChange, "adds" | "deletes">, writer: RowWriter): void {
    for (; taken.packed < end; taken.packed++) {
      const row = taken.every ? taken.packed : taken.rows.rows[taken.packed];
      if (this.#map.flags[row] !== 0) this.#packRow(row, change, writer);
    }
  }

  #packRow(row: number, change: Omit<PackedChange, "adds" | "deletes">, writer: RowWriter): void {
    const map = this.#map;
    const frozen = this.#frozen.get(row);
    map.flags[row] &= ~this.#rows.takenBit;
    const flags = frozen?.flags ?? map.flags[row];
    const inKernel = (map.flags[row] & KERNEL) !== 0;
    const data = frozen?.data ?? map.wantedColumn(row);
    const dataAt = frozen === undefined ? map.dataAt(row) : 0;
    if ((flags & WANTED) !== 0) {
      const same = inKernel && map.isInKernel(row, data, dataAt);
      if (same && !change.full) {
        change.otherRows.push(row);
        return;
      }
      if (inKernel && !change.full) {
        writer.delete(row);
        change.deleteRows.push(row);
      }
      writer.add(row, data, dataAt);
      change.addRows.push(row);
    } else if ((flags & LATER) !== 0 && inKernel) {
      change.lateRows.push(row);
      if (!change.full) return;
      writer.add(row, map.kernelColumn(row), map.dataAt(row));
      change.addRows.push(row);
    } else if (inKernel && !change.full) {
      writer.delete(row);
      change.deleteRows.push(row);
    } else change.otherRows.push(row);
  }

  /** The kernel holds what the additions from `from` to `to` said. */
  #settleAdds({ adds, addRows }: PackedChange, from: number, to: number): void {
    const map = this.#map;
    const stride = this.keyLen + this.dataLen;
    // A few verdicts for thousands of rows.
    const ids: number[] = [];
    for (let i = from; i < to; i++) {
      const row = addRows.rows[i];
      if (adds !== undefined) {
        const at = i * stride + this.keyLen;
        if (this.#verdicts === undefined) map.setKernel(row, adds.bytes, at);
        else {
          const number = readU32(adds.bytes, at);
          map.setKernelNumber(row, (ids[number] ??= this.#verdicts.id(verdictAt(adds, number))));
        }
      }
      this.#rows.settle(row);
    }
  }

  #unwant(key: Uint8Array, flag: number): boolean {
    const row = this.#wantedRow(key);
    if (row < 0) return false;
    this.#unwantRow(row, flag);
    return true;
  }

  #unwantRow(row: number, flag: number): void {
    this.#freeze(row);
    this.#verdicts?.release(this.#map.wantedNumber(row));
    this.#map.flags[row] = (this.#map.flags[row] & ~(WANTED | LATER)) | flag;
    this.#map.setEpoch(row, 0);
    this.#size--;
    this.#rows.updateAdd(row);
    this.#rows.markDirty(row);
  }

  #wantedRow(key: Uint8Array): number {
    this.#checkKey(key);
    const row = this.#map.find(key);
    return row >= 0 && (this.#map.flags[row] & WANTED) !== 0 ? row : -1;
  }

  /** Keeps the frozen value of a row that changes between take and pack. */
  #freeze(row: number): void {
    const flags = this.#map.flags[row];
    if (!this.#isTaken(row, flags) || this.#frozen.has(row)) return;
    this.#frozen.set(row, { flags, data: this.#map.wantedAt(row).slice() });
  }

  /** Whether the row was taken, and is not packed yet. */
  #isTaken(row: number, flags: number): boolean {
    const taken = this.#taken;
    if (taken === undefined) return false;
    return taken.every ? row >= taken.packed && row < taken.limit : (flags & this.#rows.takenBit) !== 0;
  }

  #checkKey(key: Uint8Array): void {
    if (key.length !== this.keyLen)
      throw new RangeError(`set ${this.spec.set}: a key has ${this.keyLen} bytes, not ${key.length}`);
  }

  #check(key: Uint8Array, data: Uint8Array | undefined): void {
    this.#checkKey(key);
    if (this.spec.dynamic === true) throw new TypeError(`set ${this.spec.set} is filled by packets`);
    const length = data?.length ?? 0;
    if (length !== this.dataLen)
      throw new RangeError(`set ${this.spec.set}: data has ${this.dataLen} bytes, not ${length}`);
    if (this.#verdicts !== undefined && data !== undefined) this.#verdicts.get(readU32(data, 0));
  }
}

const NOTHING = new Uint8Array(0);

function verdictAt(batch: ElementBatch | undefined, index: number): Verdict {
  const verdict = batch?.verdicts?.[index];
  if (verdict === undefined) throw new RangeError(`element batch without verdict ${index}`);
  return verdict;
}
