/**
 * Dirty rows on their way into a transaction. `take` freezes the desired state in O(1): a row that changes before it is packed
 * keeps its frozen value in `#frozen` (copy on write), so that packing may let the event loop run in between and the
 * transaction is still one moment's state of all sets.
 */
import { inSlices } from "../../base/time-slice.js";
import { BatchWriter, type PackedBatches, type SetOfRows } from "./batches.js";
import type { CountedRows } from "./counted-rows.js";
import { type PackedMap, RowList } from "./packed-map.js";
import { DEFERRED, DESIRED, type Rows } from "./rows.js";
import type { VerdictRegistry } from "./verdicts.js";

interface Frozen {
  readonly state: number;
  readonly data: Int32Array;
}

interface Taken {
  readonly full: boolean;
  /** Every row below `limit`; otherwise the first `limit` of `rows`. */
  readonly every: boolean;
  readonly rows: RowList;
  readonly limit: number;
  packed: number;
  /** The part that makes the set is packed. */
  begun: boolean;
}

/** What becomes of the rows. */
interface RowChanges {
  readonly addRows: RowList;
  readonly deleteRows: RowList;
  /** Rows whose grace period begins with this transaction. */
  readonly deferredRows: RowList;
  readonly otherRows: RowList;
}

export interface PackedChange extends PackedBatches, RowChanges {
  /** The set is created anew: everything desired is added, nothing deleted singly. */
  readonly full: boolean;
}

export class Packing {
  #taken: Taken | undefined;
  readonly #frozen = new Map<number, Frozen>();

  /** @param counted of sets with counters. */
  constructor(
    readonly map: PackedMap,
    readonly rows: Rows,
    readonly set: SetOfRows,
    readonly verdicts: VerdictRegistry | undefined,
    readonly counted: CountedRows | undefined,
  ) {}

  /** Something that was taken is to be packed. */
  get underWay(): boolean {
    return this.#taken !== undefined;
  }

  /** Freezes what is desired now. `full`: for a set that is created anew. */
  take(full: boolean): void {
    const every = full || this.rows.allDirty;
    const rows = this.rows.takeDirty();
    this.#taken = { full, every, rows, limit: every ? this.map.rows : rows.length, packed: 0, begun: false };
  }

  /** Keeps the frozen value of a row that is about to change, where it is still to be packed. */
  freeze(row: number): void {
    const state = this.rows.of(row);
    if (!this.#isTaken(row, state) || this.#frozen.has(row)) return;
    const from = this.map.at(row) + this.map.dataWord;
    this.#frozen.set(row, { state, data: this.map.words(row).slice(from, from + this.map.dataWords) });
  }

  #isTaken(row: number, state: number): boolean {
    const taken = this.#taken;
    if (taken === undefined) return false;
    return taken.every ? row >= taken.packed && row < taken.limit : this.rows.isTaken(state);
  }

  /** Packs what `take` froze, or the next `most` rows of it. Yields to the event loop now and then. */
  async pack(most = Infinity): Promise<PackedChange> {
    const taken = this.#taken;
    if (taken === undefined) throw new Error(`set ${this.set.spec.set}: nothing was taken`);
    const { counted } = this;
    const additions = Math.min(most, taken.full ? this.map.size : this.rows.pendingAdds);
    const writer = new BatchWriter(this.map, this.set, this.verdicts, additions, counted !== undefined);
    const change = {
      full: taken.full && !taken.begun,
      addRows: new RowList(additions),
      deleteRows: new RowList(),
      deferredRows: new RowList(),
      otherRows: new RowList(),
    };
    const from = taken.packed;
    await inSlices(Math.min(taken.limit - from, most), (_, to) => this.#packUpTo(from + to, taken, change, writer));
    taken.begun = true;
    if (taken.packed === taken.limit) {
      this.#taken = undefined;
      this.#frozen.clear();
    }
    return { ...change, ...writer.finish(this.set.spec.interval === true) };
  }

  #packUpTo(end: number, taken: Taken, changes: RowChanges, writer: BatchWriter): void {
    for (; taken.packed < end; taken.packed++) {
      const row = taken.every ? taken.packed : taken.rows.rows[taken.packed];
      if (this.rows.of(row) !== 0) this.#packRow(row, taken.full, changes, writer);
    }
  }

  #packRow(row: number, full: boolean, changes: RowChanges, writer: BatchWriter): void {
    const { map, rows, counted } = this;
    const frozen = this.#frozen.size === 0 ? undefined : this.#frozen.get(row);
    const present = rows.untake(row);
    // Nothing is to be done: almost all of a restart.
    if (!full && frozen === undefined && rows.isInForce(present)) return;
    const { state, data } = frozen ?? { state: present, data: map.words(row) };
    const dataAt = frozen === undefined ? map.at(row) + map.dataWord : 0;
    const inKernel = rows.isInKernel(present);
    if ((state & DESIRED) !== 0) {
      const same = frozen === undefined ? rows.isInForce(present) : inKernel && rows.kernelHolds(row, data, dataAt);
      if (same && !full) {
        changes.otherRows.push(row);
        return;
      }
      if (inKernel && !full) {
        writer.delete(row);
        changes.deleteRows.push(row);
      }
      if (counted === undefined) writer.add(row, data, dataAt);
      else counted.add(row, data, dataAt, inKernel, writer);
      changes.addRows.push(row);
    } else if ((state & DEFERRED) !== 0 && inKernel) {
      changes.deferredRows.push(row);
      if (!full) return;
      writer.add(row, rows.kernelWords(row), rows.kernelAt(row));
      changes.addRows.push(row);
    } else if (inKernel && !full) {
      writer.delete(row);
      changes.deleteRows.push(row);
    } else changes.otherRows.push(row);
  }
}
