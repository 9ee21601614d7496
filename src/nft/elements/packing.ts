/** Moves dirty rows into a transaction. The desired state of rows must not change until everything packed is settled or aborted. */
import { inSlices } from "../../base/time-slice.js";
import { BatchWriter, type PackedChange } from "./batch-writer.js";
import type { Comments } from "./comments.js";
import type { CountedRows } from "./counted-rows.js";
import type { Expiries } from "./expiries.js";
import type { RowList } from "../bytes/packed-map.js";
import { kindOfMap } from "../language/object-kinds.js";
import type { ElementSet } from "./element-set.js";
import { DEFERRED, DESIRED, type Rows } from "./rows.js";
import { formOf } from "../language/schema.js";
import type { VerdictRegistry } from "./verdict-registry.js";

interface Taken {
  readonly full: boolean;
  /** The rows to pack. Undefined: every row. */
  readonly list: RowList | undefined;
  readonly length: number;
  packed: number;
  /** The first part, which creates the set, is packed. */
  begun: boolean;
}

export class Packing {
  #taken: Taken | undefined;

  /** @param counted for sets with counters. @param expiries for sets with timeouts. */
  constructor(
    readonly rows: Rows,
    readonly set: Pick<ElementSet, "spec">,
    readonly verdicts: VerdictRegistry | undefined,
    readonly counted: CountedRows | undefined,
    readonly expiries: Expiries | undefined,
    readonly comments: Comments,
  ) {}

  /** Whether rows are taken but not packed. */
  get underWay(): boolean {
    return this.#taken !== undefined;
  }

  /**
   * Takes the differences, or everything (`full`) for a set that is created from scratch. Every take ends in `settle`, or in
   * `giveBack` and `abort`.
   */
  take(full: boolean): void {
    this.expiries?.sweep();
    const every = full || this.rows.allDirty;
    const dirty = this.rows.takeDirty();
    const list = every ? undefined : dirty;
    this.#taken = { full, list, length: list?.length ?? this.rows.end, packed: 0, begun: false };
  }

  /** Packs the taken rows, or the next `most` of them: `underWay` tells whether there are more. Yields to the event loop now and then. */
  async pack(most = Infinity): Promise<PackedChange> {
    const taken = this.#taken;
    if (taken === undefined) throw new Error(`set ${this.set.spec.set}: pack() was called before take()`);
    const { rows, set, counted } = this;
    const additions = Math.min(most, taken.full ? rows.size : rows.pendingAdds);
    const objects = kindOfMap(set.spec) !== undefined;
    const columns = { counters: counted !== undefined, timeouts: this.expiries !== undefined, objects };
    const writer = new BatchWriter(rows, this.verdicts, additions, columns);
    const full = taken.full && !taken.begun;
    await this.#eachRow(taken, most, (row) => this.#packRow(row, taken.full, writer));
    taken.begun = true;
    if (taken.packed === taken.length) this.#taken = undefined;
    return writer.finish(full, formOf(set.spec));
  }

  /** Returns the rows that are taken but not packed: the next transaction writes them. */
  async giveBack(): Promise<void> {
    const taken = this.#taken;
    if (taken === undefined) return;
    await this.#eachRow(taken, Infinity, (row) => {
      this.rows.untake(row);
      this.rows.markDirty(row);
    });
    this.#taken = undefined;
  }

  /** The kernel has committed the transaction. Grace periods that begin with it end at `due`. */
  async settle(change: PackedChange, due: number): Promise<void> {
    const { rows, counted, expiries, comments } = this;
    counted?.settle(change);
    if (change.full) {
      rows.forgetKernel();
      comments.forgetKernel();
    }
    const { addRows, deleteRows } = change;
    for (let i = 0; i < addRows.length; i++) comments.settled(addRows.rows[i]);
    if (expiries !== undefined) for (let i = 0; i < addRows.length; i++) expiries.settled(addRows.rows[i]);
    for (let i = 0; i < deleteRows.length; i++) rows.dropKernel(deleteRows.rows[i]);
    await rows.forEachIn(addRows, (row) => rows.settle(row));
    rows.beginGrace(change.deferredRows, due);
    for (const list of [deleteRows, change.otherRows]) await rows.forEachIn(list, (row) => rows.finish(row));
  }

  /** The transaction was not committed: the next one repeats all that it had packed. */
  async abort(change: PackedChange): Promise<void> {
    const { rows, counted } = this;
    counted?.abort(change);
    for (const list of [change.addRows, change.deleteRows, change.deferredRows, change.otherRows])
      await rows.forEachIn(list, (row) => rows.markDirty(row));
  }

  async #eachRow(taken: Taken, most: number, visit: (row: number) => void): Promise<void> {
    const { rows } = this;
    const from = taken.packed;
    await inSlices(Math.min(taken.length - from, most), (_, to) => {
      for (; taken.packed < from + to; taken.packed++) {
        const row = taken.list?.rows[taken.packed] ?? taken.packed;
        if (rows.of(row) !== 0) visit(row);
      }
    });
  }

  #packRow(row: number, full: boolean, writer: BatchWriter): void {
    const { rows, counted, expiries, comments } = this;
    const state = rows.untake(row);
    // Nothing to write, as for nearly every row after a restart.
    if (!full && rows.isUpToDate(state) && expiries?.renewed(row) !== true && !comments.differs(row)) return;
    const inKernel = rows.isInKernel(state);
    if ((state & DESIRED) !== 0) {
      if (inKernel && !full) writer.delete(row);
      if (expiries !== undefined) writer.time = expiries.packed(row);
      writer.comment = comments.of(row);
      if (counted === undefined) writer.add(row);
      else counted.add(row, inKernel, writer);
    } else if ((state & DEFERRED) !== 0 && inKernel) {
      writer.deferredRows.push(row);
      if (full) writer.add(row);
    } else if (inKernel && !full) writer.delete(row);
    else writer.otherRows.push(row);
  }
}
