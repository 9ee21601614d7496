/**
 * The state of a set's elements, one row each: desired, in the kernel, or still to be written. Calico Felix calls this a DeltaTracker. Here one word
 * holds both sides:
 *
 *      desired   in the kernel   the kernel's data
 *         ×            ×         same                 active
 *         ×            ×         differs              dirty: replaced
 *         ×                                           dirty: added
 *                      ×                              dirty: deleted; or deferred, until its grace period is over
 *                                                     free, once no list has it
 *
 * The word has flags, and above them the generation in which the kernel was last known to hold the element. The element is in the kernel if this is
 * the current generation. So all rows leave the kernel in constant time, by a new generation. A row has one copy of its data: the desired data, or
 * else the kernel's. If both are known and differ, a separate map has the kernel's.
 */
import { inSlices } from "../../base/time-slice.js";
import type { RowShape } from "../language/schema.js";
import { bytesAt, wordsFor } from "../bytes/bytes.js";
import { DATA, LIVE, PackedMap, RowList, STATE, USES } from "../bytes/packed-map.js";

export const DESIRED = 1;
/** Not desired, but stays in the kernel for a grace period. */
export const DEFERRED = 2;
/** Desired, and the kernel holds other data. Meaningless unless the kernel is known to hold the element. */
const DIFFERS = 4;
/** In the list of dirty rows, or taken from it and not packed yet. */
const DIRTY = 8;
/** These flags, and the map's own: LIVE. */
const FLAGS = 0xff;
const ONE_GENERATION = FLAGS + 1;

/** Stands for the key of the catch-all element. */
export const CATCH_ALL = new Uint8Array(0);

export class Rows extends PackedMap {
  /** Bytes of keys and data, without padding. */
  readonly keyLen: number;
  readonly dataLen: number;
  readonly #key: Int32Array;
  readonly #onDirty: (() => void) | undefined;
  readonly #onFree: ((row: number) => void) | undefined;
  #dirty = new RowList();
  #allDirty = false;
  #generation = ONE_GENERATION;
  /** While a dump is loaded: rows of this generation were believed to be in the kernel, and the dump has not shown them yet. */
  #expected = 0;
  /** By row: the data that the kernel holds, if other data is desired. */
  readonly #kernelData = new Map<number, Int32Array>();
  /** By row, the earliest first: when the grace period ends. Only rows whose last use has left the kernel have one. */
  readonly #due = new Map<number, number>();
  #desiredSize = 0;
  #kernelSize = 0;
  #pendingAdds = 0;

  /** @param onFree called with each row right before it becomes free. */
  constructor({ keyLen, dataLen, lists }: RowShape, onDirty?: () => void, onFree?: (row: number) => void) {
    super(wordsFor(keyLen), wordsFor(dataLen), lists);
    this.#key = new Int32Array(this.keyWords);
    this.keyLen = keyLen;
    this.dataLen = dataLen;
    this.#onDirty = onDirty;
    this.#onFree = onFree;
  }

  get desiredSize(): number {
    return this.#desiredSize;
  }

  get kernelSize(): number {
    return this.#kernelSize;
  }

  get pendingAdds(): number {
    return this.#pendingAdds;
  }

  get dirty(): boolean {
    return this.#allDirty || this.#dirty.length > 0;
  }

  /** Every row is dirty, whether it is in the list or not. */
  get allDirty(): boolean {
    return this.#allDirty;
  }

  get nextDue(): number | undefined {
    return this.#due.values().next().value;
  }

  of(row: number): number {
    return this.words(row)[this.at(row) + STATE];
  }

  isInKernel(state: number): boolean {
    return (state & ~FLAGS) === this.#generation;
  }

  isUpToDate(state: number): boolean {
    return (state & (DESIRED | DIFFERS)) === DESIRED && this.isInKernel(state);
  }

  /** The words with the data that the kernel holds, which begins at `kernelAt`. Only for rows in the kernel. */
  kernelWords(row: number): Int32Array {
    return this.#kernelData.get(row) ?? this.words(row);
  }

  kernelAt(row: number): number {
    return this.#kernelData.has(row) ? 0 : this.at(row) + DATA;
  }

  /** The key (CATCH_ALL if it has none), the data, or the kernel's data of a row, as a view. Data is valid until the next change, a key until the next call. */
  keyBytes(row: number): Uint8Array {
    if (row === this.unkeyed) return CATCH_ALL;
    this.copyKey(row, this.#key, 0);
    return bytesAt(this.#key, 0, this.keyLen);
  }

  dataBytes(row: number): Uint8Array {
    return bytesAt(this.words(row), this.at(row) + DATA, this.dataLen);
  }

  kernelBytes(row: number): Uint8Array {
    return bytesAt(this.kernelWords(row), this.kernelAt(row), this.dataLen);
  }

  /** Whether the kernel holds the data at `data[at]`. Only for rows in the kernel. */
  kernelHolds(row: number, data: Int32Array, at: number): boolean {
    return equal(this.kernelWords(row), this.kernelAt(row), data, at, this.dataWords);
  }

  /** Whether the row has the data at `data[at]`. If the row is desired, this is the desired data. */
  holds(row: number, data: Int32Array, at: number): boolean {
    return equal(this.words(row), this.at(row) + DATA, data, at, this.dataWords);
  }

  /** Desires the row with the data at `data[at]`. It must not be desired with the same data already. */
  desire(row: number, data: Int32Array, at: number): void {
    const { dataWords } = this;
    const words = this.words(row);
    const place = this.at(row);
    const state = words[place + STATE];
    const to = place + DATA;
    if (state === LIVE) {
      // The case of nearly every row in a full load.
      for (let i = 0; i < dataWords; i++) words[to + i] = data[at + i];
      words[place + STATE] = LIVE | DESIRED | DIRTY;
      this.#desiredSize++;
      this.#pendingAdds++;
      this.#dirty.push(row);
      if (this.#dirty.length === 1) this.#onDirty?.();
      return;
    }
    let differs = 0;
    // The data that the kernel holds is kept.
    if (this.isInKernel(state)) {
      const kept = (state & DIFFERS) === 0 ? undefined : this.#kernelData.get(row);
      if (!equal(kept ?? words, kept === undefined ? to : 0, data, at, dataWords)) {
        if (kept === undefined) this.#kernelData.set(row, words.slice(to, to + dataWords));
        differs = DIFFERS;
      }
    }
    for (let i = 0; i < dataWords; i++) words[to + i] = data[at + i];
    if ((state & DEFERRED) !== 0 && this.#due.size > 0) this.#due.delete(row);
    this.#set(row, (state & ~(DEFERRED | DIFFERS)) | DESIRED | differs, words, place);
    this.markDirty(row);
  }

  /** No longer desires the row. @param flag DEFERRED, or 0. */
  markUndesired(row: number, flag: number): void {
    this.expire(row, flag);
    this.markDirty(row);
  }

  /** Like `markUndesired`, for a row that the kernel ends by itself, so nothing has to be written. */
  expire(row: number, flag = 0): void {
    const words = this.words(row);
    const place = this.at(row);
    const state = words[place + STATE];
    const kept = (state & DIFFERS) === 0 ? undefined : this.#kernelData.get(row);
    if (kept !== undefined) words.set(kept, place + DATA);
    words[place + USES] = 0;
    this.#set(row, (state & ~(DESIRED | DEFERRED | DIFFERS)) | flag, words, place);
  }

  /** The last use of these rows has left the kernel: they stay until `due`. */
  beginGrace({ rows, length }: RowList, due: number): void {
    for (let i = 0; i < length; i++) {
      if (!this.#waits(rows[i])) continue;
      this.#due.delete(rows[i]);
      this.#due.set(rows[i], due);
    }
  }

  /** Ends up to `most` grace periods that are over. Returns their number. */
  endGrace(now: number, most: number): number {
    let ended = 0;
    for (const [row, due] of this.#due) {
      if (due > now || ended === most) break;
      this.undefer(row);
      ended++;
    }
    return ended;
  }

  undefer(row: number): void {
    this.#due.delete(row);
    this.#set(row, this.of(row) & ~DEFERRED);
    this.markDirty(row);
  }

  forEachDeferred(visit: (row: number) => void): void {
    for (let row = 0; row < this.end; row++) if (this.#waits(row)) visit(row);
  }

  #waits(row: number): boolean {
    const state = this.of(row);
    return (state & (DEFERRED | DESIRED)) === DEFERRED && this.isInKernel(state);
  }

  /** The kernel holds the row with the data at `data[at]`. */
  noteKernel(row: number, data: Int32Array, at: number): void {
    const { dataWords } = this;
    const words = this.words(row);
    const place = this.at(row);
    const state = words[place + STATE];
    const to = place + DATA;
    let differs = 0;
    if (!equal(words, to, data, at, dataWords)) {
      if ((state & DESIRED) !== 0) {
        this.#kernelData.set(row, data.slice(at, at + dataWords));
        differs = DIFFERS;
      } else for (let i = 0; i < dataWords; i++) words[to + i] = data[at + i];
    }
    this.#set(row, (state & FLAGS & ~DIFFERS) | differs | this.#generation, words, place);
  }

  /** Lets the next transaction check all rows. If nothing was known of any row before, this costs less than noting each. */
  markAll(): void {
    if (this.size === 0) return;
    this.#allDirty = true;
    this.#onDirty?.();
  }

  /**
   * A dump has the row with the data at `data[at]`. Returns how this differs from the observed state.
   * @param defer if the row is not desired, defer its deletion.
   */
  found(row: number, data: Int32Array, at: number, defer: boolean): "added" | "changed" | undefined {
    const words = this.words(row);
    const place = this.at(row);
    if (words[place + STATE] === LIVE) {
      // The case of nearly every row in a first dump.
      const to = place + DATA;
      for (let i = 0, { dataWords } = this; i < dataWords; i++) words[to + i] = data[at + i];
      words[place + STATE] = LIVE | this.#generation | (defer ? DEFERRED : 0);
      this.#kernelSize++;
      return "added";
    }
    const expected = this.#isExpected(this.of(row));
    const same = expected && this.kernelHolds(row, data, at);
    this.noteKernel(row, data, at);
    if (defer && (words[place + STATE] & DESIRED) === 0) words[place + STATE] |= DEFERRED;
    if (same) return undefined;
    return expected ? "changed" : "added";
  }

  /**
   * Completes the state of all rows after a dump. Returns how many were believed to be in the kernel, but are not in the dump.
   * @param defers whether to defer the deletion of the row if it is not desired.
   */
  async finishLoad(defers: (row: number) => boolean): Promise<number> {
    let gone = 0;
    await inSlices(this.end, (from, to) => {
      for (let row = from; row < to; row++) if (this.of(row) !== 0 && this.#finishLoad(row, defers(row))) gone++;
    });
    this.#expected = 0;
    return gone;
  }

  #finishLoad(row: number, defer: boolean): boolean {
    const state = this.of(row);
    const isMissing = this.#isExpected(state);
    if (isMissing) this.dropKernel(row);
    else if (defer && (state & (DESIRED | DEFERRED)) === 0 && this.isInKernel(state)) {
      this.#set(row, state | DEFERRED);
      this.markDirty(row);
    }
    this.finish(row);
    return isMissing;
  }

  dropKernel(row: number): void {
    this.#set(row, this.of(row) & FLAGS & ~DIFFERS);
  }

  /** The kernel now holds the row with its data. */
  settle(row: number): void {
    this.#set(row, (this.of(row) & FLAGS & ~DIFFERS) | this.#generation);
  }

  takeDirty(): RowList {
    const taken = this.#dirty;
    this.#dirty = new RowList();
    this.#allDirty = false;
    return taken;
  }

  /** The taken row is no longer in any list. Returns its state. */
  untake(row: number): number {
    const words = this.words(row);
    return (words[this.at(row) + STATE] &= ~DIRTY);
  }

  markDirty(row: number): void {
    const words = this.words(row);
    const place = this.at(row) + STATE;
    if ((words[place] & DIRTY) !== 0 || this.#allDirty) return;
    words[place] |= DIRTY;
    this.#dirty.push(row);
    if (this.#dirty.length === 1) this.#onDirty?.();
  }

  /** Marks all rows as not in the kernel, in constant time. `expected`: until `finishLoad`, the rows are expected to be in the dump. */
  forgetKernel(expected = false): void {
    this.#allDirty = false;
    this.#expected = expected ? this.#generation : 0;
    if (!expected) this.#kernelData.clear();
    this.#kernelSize = 0;
    this.#pendingAdds = this.#desiredSize;
    // A number repeats after 16 million reads. No row waits that long for its write.
    this.#generation = (this.#generation + ONE_GENERATION) | 0 || ONE_GENERATION;
  }

  /** The kernel holds none of the rows: everything desired has to be written again. */
  loseKernel(): void {
    this.forgetKernel();
    this.markAll();
  }

  /** Completes a row's state after its kernel side changed: dirty, active, deferred, or free. */
  finish(row: number): void {
    const state = this.of(row);
    const inKernel = this.isInKernel(state);
    const isDesired = (state & DESIRED) !== 0;
    if (isDesired ? !inKernel || (state & DIFFERS) !== 0 : inKernel && (state & DEFERRED) === 0) this.markDirty(row);
    else if (!isDesired && !inKernel && (state & DIRTY) === 0) {
      if ((state & DEFERRED) !== 0) this.#due.delete(row);
      this.#onFree?.(row);
      this.remove(row);
    }
  }

  async forEachIn({ rows, length }: RowList, visit: (row: number) => void): Promise<void> {
    await inSlices(length, (from, to) => {
      for (let i = from; i < to; i++) visit(rows[i]);
    });
  }

  #set(row: number, state: number, words = this.words(row), place = this.at(row)): void {
    const before = words[place + STATE];
    if ((before & ~state & DIFFERS) !== 0) this.#kernelData.delete(row);
    words[place + STATE] = state;
    this.#count(before, -1);
    this.#count(state, 1);
  }

  #count(state: number, by: 1 | -1): void {
    const inKernel = this.isInKernel(state);
    if (inKernel) this.#kernelSize += by;
    if ((state & DESIRED) === 0) return;
    this.#desiredSize += by;
    if (!inKernel || (state & DIFFERS) !== 0) this.#pendingAdds += by;
  }

  #isExpected(state: number): boolean {
    return this.#expected !== 0 && (state & ~FLAGS) === this.#expected;
  }
}

function equal(a: Int32Array, aAt: number, b: Int32Array, bAt: number, length: number): boolean {
  for (let i = 0; i < length; i++) if (a[aAt + i] !== b[bAt + i]) return false;
  return true;
}
