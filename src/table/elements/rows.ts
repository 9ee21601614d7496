/**
 * What is noted of the elements of a set, and what follows from it: how many are desired, in the kernel, or still to be added, and which
 * rows are dirty.
 *
 * A row's state is one word: flags, and above them the generation in which the kernel was last known to hold the element. It is in the
 * kernel when that is the present generation, so that all rows leave the kernel at once, whatever their number. A row has one copy of its
 * data: what is desired, or else what the kernel holds. Where both are known and differ, the kernel's is in a map beside.
 *
 * There are two lists of dirty rows by turns, each with its own bit: the one that a transaction has taken, and the one of what changes
 * since.
 */
import { EPOCH, type PackedMap, RowList, STATE } from "./packed-map.js";
import { inSlices } from "./yielding.js";

export const WANTED = 1;
/** Not wanted, but to stay in the kernel for a while. */
export const LATER = 2;
/** Wanted, and the kernel holds other data. Means nothing where the kernel is not known to hold the element. */
const OTHER = 4;
/** In the list of dirty rows: one bit for the current list, the other for the one that is being packed. */
const DIRTY_EVEN = 8;
const DIRTY_ODD = 16;
const DIRTY = DIRTY_EVEN | DIRTY_ODD;
/** The flags; the generation is above them. */
const FLAGS = 0xff;
const ONE_GENERATION = FLAGS + 1;

export class RowStates {
  readonly #map: PackedMap;
  readonly #onDirty: (() => void) | undefined;
  #dirty = new RowList();
  #dirtyBit = DIRTY_EVEN;
  #allDirty = false;
  #generation = ONE_GENERATION;
  /** While a dump is taken over: rows of this generation were thought to be in the kernel, and have not turned up yet. */
  #expected = 0;
  /** By row: data that the kernel holds, and that is not what is wanted. */
  readonly #kernelData = new Map<number, Int32Array>();
  #size = 0;
  #kernelSize = 0;
  #pendingAdds = 0;

  /** `onDirty` is told when there comes to be a dirty row. */
  constructor(map: PackedMap, onDirty: (() => void) | undefined) {
    this.#map = map;
    this.#onDirty = onDirty;
  }

  /** Rows that are wanted. */
  get size(): number {
    return this.#size;
  }

  /** Rows in the kernel, as far as is known. */
  get kernelSize(): number {
    return this.#kernelSize;
  }

  /** Wanted rows that the kernel lacks, or holds with other data. */
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

  /** The row's state; 0 for a free row. */
  of(row: number): number {
    return this.#map.words(row)[this.#map.at(row) + STATE];
  }

  isInKernel(state: number): boolean {
    return (state & ~FLAGS) === this.#generation;
  }

  /** Whether the row is wanted, and in the kernel with the same data. */
  isInForce(state: number): boolean {
    return (state & (WANTED | OTHER)) === WANTED && this.isInKernel(state);
  }

  /** Whether the row is in the list that was taken last. */
  isTaken(state: number): boolean {
    return (state & (this.#dirtyBit ^ DIRTY)) !== 0;
  }

  /** The words that the data which the kernel holds is among: `kernelAt` says where. Only of rows in the kernel. */
  kernelWords(row: number): Int32Array {
    return this.#kernelData.get(row) ?? this.#map.words(row);
  }

  kernelAt(row: number): number {
    return this.#kernelData.has(row) ? 0 : this.#map.at(row) + this.#map.dataWord;
  }

  /** Whether the kernel holds the data at `data[at]`; of rows in the kernel. */
  kernelHolds(row: number, data: Int32Array, at: number): boolean {
    return equal(this.kernelWords(row), this.kernelAt(row), data, at, this.#map.dataWords);
  }

  /** Wants the row with the data at `data[at]`, which it is not wanted with yet. */
  want(row: number, data: Int32Array, at: number): void {
    const { dataWords } = this.#map;
    const words = this.#map.words(row);
    const place = this.#map.at(row);
    const state = words[place + STATE];
    const to = place + this.#map.dataWord;
    if (state === 0) {
      // Almost all of a full load.
      for (let i = 0; i < dataWords; i++) words[to + i] = data[at + i];
      words[place + STATE] = WANTED | this.#dirtyBit;
      this.#size++;
      this.#pendingAdds++;
      this.#dirty.push(row);
      if (this.#dirty.length === 1) this.#onDirty?.();
      return;
    }
    let other = 0;
    // What the kernel holds, or may turn out to hold, is kept.
    if (this.#isKnown(state)) {
      const kept = (state & OTHER) === 0 ? undefined : this.#kernelData.get(row);
      if (!equal(kept ?? words, kept === undefined ? to : 0, data, at, dataWords)) {
        if (kept === undefined) this.#kernelData.set(row, words.slice(to, to + dataWords));
        other = OTHER;
      } else if (kept !== undefined) this.#kernelData.delete(row);
    }
    for (let i = 0; i < dataWords; i++) words[to + i] = data[at + i];
    this.#set(words, place, state, (state & ~(LATER | OTHER)) | WANTED | other);
    this.markDirty(row);
  }

  /** No longer wants the row. `flag`: LATER, or none. */
  unwant(row: number, flag: number): void {
    const words = this.#map.words(row);
    const place = this.#map.at(row);
    const state = words[place + STATE];
    const kept = (state & OTHER) === 0 ? undefined : this.#kernelData.get(row);
    if (kept !== undefined) {
      words.set(kept, place + this.#map.dataWord);
      this.#kernelData.delete(row);
    }
    words[place + EPOCH] = 0;
    this.#set(words, place, state, (state & ~(WANTED | LATER | OTHER)) | flag);
    this.markDirty(row);
  }

  /** The row waits for its deletion no longer. */
  release(row: number): void {
    const words = this.#map.words(row);
    words[this.#map.at(row) + STATE] &= ~LATER;
    this.markDirty(row);
  }

  /** The kernel holds the row with the data at `data[at]`. */
  noteKernel(row: number, data: Int32Array, at: number): void {
    const { dataWords } = this.#map;
    const words = this.#map.words(row);
    const place = this.#map.at(row);
    const state = words[place + STATE];
    const to = place + this.#map.dataWord;
    let other = 0;
    if (!equal(words, to, data, at, dataWords)) {
      if ((state & WANTED) !== 0) {
        this.#kernelData.set(row, data.slice(at, at + dataWords));
        other = OTHER;
      } else for (let i = 0; i < dataWords; i++) words[to + i] = data[at + i];
    }
    if (other === 0 && (state & OTHER) !== 0) this.#kernelData.delete(row);
    this.#set(words, place, state, (state & FLAGS & ~OTHER) | other | this.#generation);
  }

  /** A dump has the row with the data at `data[at]`. Returns how that differs from what the kernel was thought to hold. */
  found(row: number, data: Int32Array, at: number): "added" | "changed" | undefined {
    const expected = this.#isExpected(this.of(row));
    const same = expected && this.kernelHolds(row, data, at);
    this.noteKernel(row, data, at);
    if (same) return undefined;
    return expected ? "changed" : "added";
  }

  /** After a dump was taken over: true of a row that was thought to be in the kernel, and did not turn up. */
  noteMissing(row: number): boolean {
    const words = this.#map.words(row);
    const place = this.#map.at(row) + STATE;
    if (!this.#isExpected(words[place])) return false;
    words[place] &= FLAGS & ~OTHER;
    this.#kernelData.delete(row);
    return true;
  }

  /** Defers the deletion of a row that is in the kernel and not desired. */
  delayLeftover(row: number): void {
    const words = this.#map.words(row);
    const place = this.#map.at(row) + STATE;
    if ((words[place] & (WANTED | LATER)) !== 0 || !this.isInKernel(words[place])) return;
    words[place] |= LATER;
    this.markDirty(row);
  }

  /** The kernel no longer holds the row. */
  dropKernel(row: number): void {
    const words = this.#map.words(row);
    const place = this.#map.at(row);
    const state = words[place + STATE];
    if ((state & OTHER) !== 0) this.#kernelData.delete(row);
    this.#set(words, place, state, state & FLAGS & ~OTHER);
  }

  /** The kernel holds what a transaction said of the row, unless that has changed since: returns false then. */
  settle(row: number): boolean {
    const words = this.#map.words(row);
    const place = this.#map.at(row);
    const state = words[place + STATE];
    if ((state & (WANTED | this.#dirtyBit)) !== WANTED) return false;
    // Nothing is to be compared: almost all of a full load.
    if ((state & OTHER) !== 0) this.#kernelData.delete(row);
    this.#set(words, place, state, (state & FLAGS & ~OTHER) | this.#generation);
    return true;
  }

  /** The dirty rows; from now on there are none. */
  takeDirty(): RowList {
    const taken = this.#dirty;
    this.#dirty = new RowList();
    this.#allDirty = false;
    this.#dirtyBit ^= DIRTY;
    return taken;
  }

  /** The row that was taken is packed. Returns its state. */
  untake(row: number): number {
    const words = this.#map.words(row);
    return (words[this.#map.at(row) + STATE] &= ~(this.#dirtyBit ^ DIRTY));
  }

  markDirty(row: number): void {
    const words = this.#map.words(row);
    const place = this.#map.at(row) + STATE;
    if ((words[place] & this.#dirtyBit) !== 0) return;
    words[place] |= this.#dirtyBit;
    this.#dirty.push(row);
    if (this.#dirty.length === 1) this.#onDirty?.();
  }

  /** Nothing is known to be in the kernel, in no time. `expected`: what was there is expected to turn up, until `endExpecting`. */
  forgetKernel(expected = false): void {
    this.#allDirty = false;
    this.#expected = expected ? this.#generation : 0;
    if (!expected) this.#kernelData.clear();
    this.#kernelSize = 0;
    this.#pendingAdds = this.#size;
    // A number comes again after 16 million reads: no row waits for its write as long.
    this.#generation = (this.#generation + ONE_GENERATION) | 0 || ONE_GENERATION;
  }

  endExpecting(): void {
    this.#expected = 0;
  }

  /** The kernel holds none of them, and what is wanted is to be written anew. */
  loseKernel(): void {
    this.forgetKernel();
    if (this.#map.size === 0) return;
    this.#allDirty = true;
    this.#onDirty?.();
  }

  /** Brings a row in order after its kernel side changed: dirty, in force, or free. */
  finish(row: number): void {
    const state = this.of(row);
    const inKernel = this.isInKernel(state);
    const isWanted = (state & WANTED) !== 0;
    if (isWanted ? !inKernel || (state & OTHER) !== 0 : inKernel && (state & LATER) === 0) this.markDirty(row);
    else if (!isWanted && !inKernel && (state & DIRTY) === 0) this.#map.remove(row);
  }

  async finishAll({ rows, length }: RowList): Promise<void> {
    await inSlices(length, (from, to) => {
      for (let i = from; i < to; i++) this.finish(rows[i]);
    });
  }

  /** Writes a row's state, and keeps count. */
  #set(words: Int32Array, place: number, before: number, after: number): void {
    words[place + STATE] = after;
    this.#count(before, -1);
    this.#count(after, 1);
  }

  #count(state: number, by: 1 | -1): void {
    const inKernel = this.isInKernel(state);
    if (inKernel) this.#kernelSize += by;
    if ((state & WANTED) === 0) return;
    this.#size += by;
    if (!inKernel || (state & OTHER) !== 0) this.#pendingAdds += by;
  }

  #isExpected(state: number): boolean {
    return this.#expected !== 0 && (state & ~FLAGS) === this.#expected;
  }

  #isKnown(state: number): boolean {
    return this.isInKernel(state) || this.#isExpected(state);
  }
}

function equal(a: Int32Array, aAt: number, b: Int32Array, bAt: number, length: number): boolean {
  for (let i = 0; i < length; i++) if (a[aAt + i] !== b[bAt + i]) return false;
  return true;
}
