import { type PackedMap, RowList } from "./packed-map.js";
import { ADD, DIRTY_EVEN, DIRTY_ODD, KERNEL, LATER, WANTED } from "./row-flags.js";
import { inSlices } from "./yielding.js";

/** The flag in each of four rows' flags, read as one number. */
const KERNEL_OF_FOUR = KERNEL * 0x01010101;

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
  #allDirty = false;
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

  /** Rows that are known to be missing in the kernel, or to be there with other data: not counted while all are dirty. */
  get pendingAdds(): number {
    return this.#pendingAdds;
  }

  get dirty(): boolean {
    return this.#allDirty || this.#dirty.length > 0;
  }

  /** Every row is dirty, those too that no list names. */
  get allDirty(): boolean {
    return this.#allDirty;
  }

  /** The dirty rows; from now on there are none. */
  takeDirty(): RowList {
    const taken = this.#dirty;
    this.#dirty = new RowList();
    this.#allDirty = false;
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

  /** The kernel holds what a transaction said of the row, and its data is noted. */
  settle(row: number): void {
    const { flags } = this.#map;
    const before = flags[row];
    if ((before & (WANTED | this.#dirtyBit)) !== WANTED) {
      this.setKernel(row, true);
      this.finish(row);
      return;
    }
    // It has not changed since, so that nothing is to be compared: almost all of a full load.
    if ((before & KERNEL) === 0) this.#kernelSize++;
    if ((before & ADD) !== 0) this.#pendingAdds--;
    flags[row] = (before | KERNEL) & ~ADD;
  }

  /** The kernel holds none of them, and what is wanted is to be written anew: in no time, whatever the number of rows. */
  loseKernel(): void {
    this.forgetKernel();
    if (this.#map.size === 0) return;
    this.#allDirty = true;
    this.#onDirty?.();
  }

  /** Nothing is known to be in the kernel. `instead`: the flag that rows get which were thought to be there. */
  forgetKernel(instead = 0): void {
    this.#allDirty = false;
    if (this.#kernelSize === 0) return;
    // Four rows at a time: there may be half a million of them, and the first time nothing of this is compiled.
    const { buffer, byteOffset, length } = this.#map.flags;
    const words = new Int32Array(buffer, byteOffset, length / 4);
    const last = Math.ceil(this.#map.rows / 4);
    for (let i = 0; i < last; i++) {
      const word = words[i];
      words[i] = (word & ~KERNEL_OF_FOUR) | Math.imul((word & KERNEL_OF_FOUR) / KERNEL, instead);
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
