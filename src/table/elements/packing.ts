/**
 * Dirty rows on their way into a transaction. `take` freezes the desired state in O(1): a row that changes before it is packed
 * keeps its frozen value in `#frozen` (copy on write), so that packing may let the event loop run in between and the
 * transaction is still one moment's state of all sets.
 */
import { inSlices } from "../../base/time-slice.js";
import { BatchWriter, type PackedChange } from "./batches.js";
import type { CountedRows } from "./counted-rows.js";
import type { Expiries } from "./expiries.js";
import { DATA, type RowList } from "./packed-map.js";
import type { ElementSet } from "../rules/rule.js";
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

export class Packing {
  #taken: Taken | undefined;
  readonly #frozen = new Map<number, Frozen>();

  /** @param counted of sets with counters. @param expiries of sets with timeouts. */
  constructor(
    readonly rows: Rows,
    readonly set: Pick<ElementSet, "spec">,
    readonly verdicts: VerdictRegistry | undefined,
    readonly counted: CountedRows | undefined,
    readonly expiries: Expiries | undefined,
  ) {}

  /** Something that was taken is to be packed. */
  get underWay(): boolean {
    return this.#taken !== undefined;
  }

  /** Freezes what is desired now. `full`: for a set that is created anew. */
  take(full: boolean): void {
    const every = full || this.rows.allDirty;
    const rows = this.rows.takeDirty();
    this.#taken = { full, every, rows, limit: every ? this.rows.end : rows.length, packed: 0, begun: false };
  }

  /** Keeps the frozen value of a row that is about to change, where it is still to be packed. */
  freeze(row: number): void {
    const state = this.rows.of(row);
    if (!this.#isTaken(row, state) || this.#frozen.has(row)) return;
    const from = this.rows.at(row) + DATA;
    this.#frozen.set(row, { state, data: this.rows.words(row).slice(from, from + this.rows.dataWords) });
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
    const { rows, set, counted } = this;
    const additions = Math.min(most, taken.full ? rows.size : rows.pendingAdds);
    const columns = { counters: counted !== undefined, timeouts: this.expiries !== undefined };
    const writer = new BatchWriter(rows, this.verdicts, additions, columns);
    const full = taken.full && !taken.begun;
    const from = taken.packed;
    await inSlices(Math.min(taken.limit - from, most), (_, to) => this.#packUpTo(from + to, taken, writer));
    taken.begun = true;
    if (taken.packed === taken.limit) {
      this.#taken = undefined;
      this.#frozen.clear();
    }
    return writer.finish(full, set.spec.interval === true);
  }

  #packUpTo(end: number, taken: Taken, writer: BatchWriter): void {
    for (; taken.packed < end; taken.packed++) {
      const row = taken.every ? taken.packed : taken.rows.rows[taken.packed];
      if (this.rows.of(row) !== 0) this.#packRow(row, taken.full, writer);
    }
  }

  #packRow(row: number, full: boolean, writer: BatchWriter): void {
    const { rows, counted, expiries } = this;
    const frozen = this.#frozen.size === 0 ? undefined : this.#frozen.get(row);
    const present = rows.untake(row);
    const renewed = expiries?.renewed(row) === true;
    // Nothing is to be done: almost all of a restart.
    if (!full && frozen === undefined && !renewed && rows.isInForce(present)) return;
    const { state, data } = frozen ?? { state: present, data: rows.words(row) };
    const dataAt = frozen === undefined ? rows.at(row) + DATA : 0;
    const inKernel = rows.isInKernel(present);
    if ((state & DESIRED) !== 0) {
      const holds = frozen === undefined ? rows.isInForce(present) : inKernel && rows.kernelHolds(row, data, dataAt);
      if (holds && !renewed && !full) {
        writer.otherRows.push(row);
        return;
      }
      if (inKernel && !full) writer.delete(row);
      if (expiries !== undefined) writer.timeNext(...expiries.packed(row));
      if (counted === undefined) writer.add(row, data, dataAt);
      else counted.add(row, data, dataAt, inKernel, writer);
    } else if ((state & DEFERRED) !== 0 && inKernel) {
      writer.deferredRows.push(row);
      if (full) writer.add(row, rows.kernelWords(row), rows.kernelAt(row));
    } else if (inKernel && !full) writer.delete(row);
    else writer.otherRows.push(row);
  }
}
