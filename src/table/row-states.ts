import { type PackedMap, RowList } from "./packed-map.js";
import { ADD, DIRTY_EVEN, DIRTY_ODD, KERNEL, LATER, WANTED } from "./row-flags.js";
import { inSlices } from "./yielding.js";

/**
 * What follows from the flags of a set's rows and is kept with them: how many are in the kernel, how many are to be added,
 * and the list of dirty rows. There are two lists by turns, each with its own bit: the one that a transaction has taken,
 * and the one of what changes since.
 */
export class RowStates {
  readonly #map: PackedMap;
  readonly #onDirty: (() => void) | undefined;
  #dirty = new RowList();
  #dirtyBit = DIRTY_EVEN;
  #kernelSize = 0;
  #pendingAdds = 0;

  /** `onDirty` is told when there comes to be a dirty row. */
  constructor(map: PackedMap, onDirty: (() => void) | undefined) {
    this.#map = map;
    this.#onDirty = onDirty;
  }

  /** Rows in the kernel, as far as is known. */
  get kernelSize(): number {
    return this.#kernelSize;
  }

  /** Rows that the kernel lacks, or has with other data. */
  get pendingAdds(): number {
    return this.#pendingAdds;
  }

  get dirty(): boolean {
    return this.#dirty.length > 0;
  }

  /** The dirty rows; from now on there are none. */
  takeDirty(): RowList {
    const taken = this.#dirty;
    this.#dirty = new RowList();
    this.#dirtyBit = this.takenBit;
    return taken;
  }

  /** The flag of rows that were taken last. */
  get takenBit(): number {
    return this.#dirtyBit ^ (DIRTY_EVEN | DIRTY_ODD);
  }

  markDirty(row: number): void {
    if ((this.#map.flags[row] & this.#dirtyBit) !== 0) return;
    this.#map.flags[row] |= this.#dirtyBit;
    this.#dirty.push(row);
    if (this.#dirty.length === 1) this.#onDirty?.();
  }

  /** To be called when what is wanted, or what the kernel holds, has changed. */
  updateAdd(row: number): void {
    const map = this.#map;
    const flags = map.flags[row];
    const add = (flags & WANTED) !== 0 && ((flags & KERNEL) === 0 || !map.inSync(row));
    if (add === ((flags & ADD) !== 0)) return;
    map.flags[row] = flags ^ ADD;
    this.#pendingAdds += add ? 1 : -1;
  }

  setKernel(row: number, present: boolean): void {
    const flags = this.#map.flags[row];
    if (((flags & KERNEL) !== 0) === present) return;
    this.#map.flags[row] = flags ^ KERNEL;
    this.#kernelSize += present ? 1 : -1;
  }

  /** Nothing is known to be in the kernel. `instead`: the flag that rows get which were thought to be there. */
  forgetKernel(instead = 0): void {
    const flags = this.#map.flags;
    for (let row = 0; row < this.#map.rows; row++) {
      if ((flags[row] & KERNEL) !== 0) flags[row] = (flags[row] & ~KERNEL) | instead;
    }
    this.#kernelSize = 0;
  }

  /** Brings a row's derived state in order after its kernel side changed: dirty, in sync, or free. */
  finish(row: number): void {
    this.updateAdd(row);
    const flags = this.#map.flags[row];
    if ((flags & ADD) !== 0 || (flags & (WANTED | KERNEL | LATER)) === KERNEL) this.markDirty(row);
    else if ((flags & (WANTED | KERNEL | DIRTY_EVEN | DIRTY_ODD)) === 0) this.#map.remove(row);
  }

  async finishAll({ rows, length }: RowList): Promise<void> {
    await inSlices(length, (from, to) => {
      for (let i = from; i < to; i++) this.finish(rows[i]);
    });
  }
}
