/**
 * A hash map from fixed-length byte keys to fixed-length columns, on typed arrays alone.
 *
 *   slots (open addressing, linear probing)       columns, one row per entry, in segments of 16,384 rows
 *   ┌───┬──────┐                                  row  keys          wanted     kernel     flags epochs
 *   │ 0 │      │ empty                            0    10.96.0.1…80  goto c-3   goto c-2   …     7
 *   │ 2 │ hash │ ───────► row 1                   1    10.96.0.9…53  goto c-1   goto c-1   …     7
 *   │ 1 │ hash │ ───────► row 0                   2    (free, chained through the epochs)
 *   └───┴──────┘
 *
 * No objects and no strings per entry: half a million entries of 16-byte keys and 8-byte data take about 30 MB, and a
 * look-up costs some 100 ns. Row numbers are stable until the row is removed.
 *
 * It never stands still to grow: one more segment is all that many rows need (only `flags`, a byte for each row, is one array that
 * is copied when it grows), and the slots of a large map are 64 tables, each of which grows alone, in less than a millisecond.
 */
import { copyBytes, readU32, writeU32 } from "./bytes.js";

const SEGMENT_BITS = 14;
const SEGMENT_ROWS = 1 << SEGMENT_BITS;
const SEGMENT_MASK = SEGMENT_ROWS - 1;
/** Tables of slots that a map of more than one segment has: as many as there are values of the hash's highest bits. */
const TABLE_BITS = 6;
const TABLES = 1 << TABLE_BITS;

/** The columns of some rows. */
class Segment {
  readonly keys: Uint8Array;
  /** Data that is wanted for the row. */
  readonly wanted: Uint8Array;
  /** Data that the kernel is known to hold for the row. */
  readonly kernel: Uint8Array;
  /** Of a live row; in a free one the next free row + 1. */
  readonly epochs: Uint32Array;

  constructor(
    readonly rows: number,
    keyLen: number,
    dataLen: number,
  ) {
    this.keys = new Uint8Array(rows * keyLen);
    this.wanted = new Uint8Array(rows * dataLen);
    this.kernel = new Uint8Array(rows * dataLen);
    this.epochs = new Uint32Array(rows);
  }

  copyFrom(other: Segment): void {
    this.keys.set(other.keys);
    this.wanted.set(other.wanted);
    this.kernel.set(other.kernel);
    this.epochs.set(other.epochs);
  }
}

/** Finds rows by their hashes: no key is looked at in vain, and growing reads nothing but the table itself. */
class SlotTable {
  /** Row + 1 (0: empty) and its hash, side by side. Signed: V8 keeps 32 bits with a sign without allocating. */
  readonly slots: Int32Array;
  readonly mask: number;
  used = 0;

  /** `size`: slots, a power of two. */
  constructor(readonly size: number) {
    this.slots = new Int32Array(size * 2);
    this.mask = size - 1;
  }

  /** A quarter stays empty: more would save little memory and cost long searches. */
  get full(): boolean {
    return this.used * 4 >= this.size * 3;
  }

  add(row: number, hash: number): void {
    const { slots, mask } = this;
    let slot = hash & mask;
    while (slots[slot * 2] !== 0) slot = (slot + 1) & mask;
    slots[slot * 2] = row + 1;
    slots[slot * 2 + 1] = hash;
    this.used++;
  }
}

export class PackedMap {
  /** What the owner notes of each row; 0 for a free one. Growing replaces the array. */
  flags: Uint8Array;
  readonly #segments: Segment[];
  #tables: SlotTable[];
  /** Number of tables - 1. */
  #tableMask = 0;
  #rows = 0;
  /** Rows that there are columns for. */
  #capacity: number;
  #free = 0;
  #size = 0;
  #lastHash = 0;
  /** Keys come from users of the cluster: a secret seed keeps them from building collisions. */
  readonly #seed = Math.floor(Math.random() * 0x1_0000_0000) | 0;

  constructor(
    readonly keyLen: number,
    readonly dataLen: number,
  ) {
    const rows = 16;
    this.flags = new Uint8Array(rows);
    this.#segments = [new Segment(rows, keyLen, dataLen)];
    this.#tables = [new SlotTable(rows)];
    this.#capacity = rows;
  }

  /** Live rows. */
  get size(): number {
    return this.#size;
  }

  /** Every live row is below this number; free rows in between have flags 0. */
  get rows(): number {
    return this.#rows;
  }

  /** Row of the key that starts at `key[at]`, or -1. */
  find(key: Uint8Array, at = 0): number {
    const hash = this.#hash(key, at);
    this.#lastHash = hash;
    const { keyLen } = this;
    const { slots, mask } = this.#tableOf(hash);
    for (let slot = hash & mask; ; slot = (slot + 1) & mask) {
      const row = slots[slot * 2] - 1;
      if (row < 0) return -1;
      if (slots[slot * 2 + 1] !== hash) continue;
      const { keys } = this.#segments[row >>> SEGMENT_BITS];
      if (equal(keys, (row & SEGMENT_MASK) * keyLen, key, at, keyLen)) return row;
    }
  }

  /** Row of the key, made when it is not there yet; a new row has flags and epoch 0. */
  findOrInsert(key: Uint8Array, at = 0): number {
    const found = this.find(key, at);
    if (found >= 0) return found;
    const hash = this.#lastHash;
    const row = this.#takeRow();
    const { keys, epochs } = this.#segments[row >>> SEGMENT_BITS];
    const place = row & SEGMENT_MASK;
    copyBytes(key, at, keys, place * this.keyLen, this.keyLen);
    epochs[place] = 0;
    this.flags[row] = 0;
    let table = this.#tableOf(hash);
    if (table.full) table = this.#growTable(hash);
    table.add(row, hash);
    this.#size++;
    return row;
  }

  /** Frees the row; its number may be given to another key from here on. */
  remove(row: number): void {
    const { keys, epochs } = this.#segments[row >>> SEGMENT_BITS];
    const place = row & SEGMENT_MASK;
    const hash = this.#hash(keys, place * this.keyLen);
    const table = this.#tableOf(hash);
    const { slots, mask } = table;
    let hole = hash & mask;
    while (slots[hole * 2] !== row + 1) hole = (hole + 1) & mask;
    // Backward shift: an entry may move into the hole unless its own home lies cyclically behind the hole.
    for (let slot = (hole + 1) & mask; slots[slot * 2] !== 0; slot = (slot + 1) & mask) {
      const home = slots[slot * 2 + 1] & mask;
      if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
      slots[hole * 2] = slots[slot * 2];
      slots[hole * 2 + 1] = slots[slot * 2 + 1];
      hole = slot;
    }
    slots[hole * 2] = 0;
    table.used--;
    this.flags[row] = 0;
    epochs[place] = this.#free;
    this.#free = row + 1;
    this.#size--;
  }

  /** The row's key, as a view. */
  keyAt(row: number): Uint8Array {
    return this.#view(this.#segments[row >>> SEGMENT_BITS].keys, row, this.keyLen);
  }

  copyKey(row: number, to: Uint8Array, at: number): void {
    const { keyLen } = this;
    copyBytes(this.#segments[row >>> SEGMENT_BITS].keys, (row & SEGMENT_MASK) * keyLen, to, at, keyLen);
  }

  epoch(row: number): number {
    return this.#segments[row >>> SEGMENT_BITS].epochs[row & SEGMENT_MASK];
  }

  setEpoch(row: number, epoch: number): void {
    this.#segments[row >>> SEGMENT_BITS].epochs[row & SEGMENT_MASK] = epoch;
  }

  /** The row's wanted data, as a view. */
  wantedAt(row: number): Uint8Array {
    return this.#view(this.#segments[row >>> SEGMENT_BITS].wanted, row, this.dataLen);
  }

  /** The row's data in the kernel, as a view. */
  kernelAt(row: number): Uint8Array {
    return this.#view(this.#segments[row >>> SEGMENT_BITS].kernel, row, this.dataLen);
  }

  /** The array that `wantedAt` is a part of, from `dataAt` on. */
  wantedColumn(row: number): Uint8Array {
    return this.#segments[row >>> SEGMENT_BITS].wanted;
  }

  kernelColumn(row: number): Uint8Array {
    return this.#segments[row >>> SEGMENT_BITS].kernel;
  }

  /** Where a row's data begins in its columns. */
  dataAt(row: number): number {
    return (row & SEGMENT_MASK) * this.dataLen;
  }

  /** The row's wanted data as a number in host order; for data of 4 bytes. */
  wantedNumber(row: number): number {
    return readU32(this.#segments[row >>> SEGMENT_BITS].wanted, (row & SEGMENT_MASK) * 4);
  }

  kernelNumber(row: number): number {
    return readU32(this.#segments[row >>> SEGMENT_BITS].kernel, (row & SEGMENT_MASK) * 4);
  }

  setKernelNumber(row: number, value: number): void {
    writeU32(this.#segments[row >>> SEGMENT_BITS].kernel, (row & SEGMENT_MASK) * 4, value);
  }

  /** Takes over data from `data[at]` on. */
  setWanted(row: number, data: Uint8Array, at: number): void {
    copyBytes(data, at, this.#segments[row >>> SEGMENT_BITS].wanted, this.dataAt(row), this.dataLen);
  }

  setKernel(row: number, data: Uint8Array, at: number): void {
    copyBytes(data, at, this.#segments[row >>> SEGMENT_BITS].kernel, this.dataAt(row), this.dataLen);
  }

  /** Whether `data`, from `at` on, is what is wanted for the row. */
  isWanted(row: number, data: Uint8Array, at: number): boolean {
    return equal(this.#segments[row >>> SEGMENT_BITS].wanted, this.dataAt(row), data, at, this.dataLen);
  }

  /** Whether `data`, from `at` on, is what the kernel holds for the row. */
  isInKernel(row: number, data: Uint8Array, at: number): boolean {
    return equal(this.#segments[row >>> SEGMENT_BITS].kernel, this.dataAt(row), data, at, this.dataLen);
  }

  /** Whether the kernel holds the data that is wanted. */
  inSync(row: number): boolean {
    const { wanted, kernel } = this.#segments[row >>> SEGMENT_BITS];
    const at = this.dataAt(row);
    return equal(wanted, at, kernel, at, this.dataLen);
  }

  #view(column: Uint8Array, row: number, length: number): Uint8Array {
    const at = (row & SEGMENT_MASK) * length;
    return column.subarray(at, at + length);
  }

  #tableOf(hash: number): SlotTable {
    return this.#tables[(hash >>> (32 - TABLE_BITS)) & this.#tableMask];
  }

  #takeRow(): number {
    if (this.#free !== 0) {
      const row = this.#free - 1;
      this.#free = this.epoch(row);
      return row;
    }
    if (this.#rows === this.flags.length) this.#growFlags();
    if (this.#rows === this.#capacity) this.#growColumns();
    return this.#rows++;
  }

  #growFlags(): void {
    const flags = new Uint8Array(this.flags.length * 2);
    flags.set(this.flags);
    this.flags = flags;
  }

  #growColumns(): void {
    const { keyLen, dataLen } = this;
    const last = this.#segments.at(-1);
    if (last === undefined || last.rows === SEGMENT_ROWS) {
      this.#segments.push(new Segment(SEGMENT_ROWS, keyLen, dataLen));
      this.#capacity += SEGMENT_ROWS;
      return;
    }
    // The first segment begins small: most maps stay so.
    const larger = new Segment(last.rows * 2, keyLen, dataLen);
    larger.copyFrom(last);
    this.#segments[this.#segments.length - 1] = larger;
    this.#capacity = larger.rows;
  }

  /** Makes room in the table for this hash, which is full. Returns the table that it belongs to from now on. */
  #growTable(hash: number): SlotTable {
    const full = this.#tableOf(hash);
    const size = full.size * 2;
    if (this.#tables.length === 1 && this.#size >= SEGMENT_ROWS) {
      this.#tableMask = TABLES - 1;
      this.#tables = Array.from({ length: TABLES }, () => new SlotTable(size / TABLES));
    } else this.#tables[(hash >>> (32 - TABLE_BITS)) & this.#tableMask] = new SlotTable(size);
    this.#addAll(full);
    return this.#tableOf(hash);
  }

  #addAll({ slots }: SlotTable): void {
    for (let at = 0; at < slots.length; at += 2) {
      const row = slots[at] - 1;
      if (row >= 0) this.#tableOf(slots[at + 1]).add(row, slots[at + 1]);
    }
  }

  /** MurmurHash3 over the key, as 32 bits with a sign. */
  #hash(key: Uint8Array, at: number): number {
    let hash = this.#seed;
    const end = at + this.keyLen;
    let i = at;
    for (; i + 4 <= end; i += 4) {
      let word = key[i] | (key[i + 1] << 8) | (key[i + 2] << 16) | (key[i + 3] << 24);
      word = Math.imul(word, 0xcc9e2d51);
      word = (word << 15) | (word >>> 17);
      hash ^= Math.imul(word, 0x1b873593);
      hash = (hash << 13) | (hash >>> 19);
      hash = (Math.imul(hash, 5) + 0xe6546b64) | 0;
    }
    for (; i < end; i++) hash = Math.imul(hash ^ key[i], 0x01000193);
    hash ^= hash >>> 16;
    hash = Math.imul(hash, 0x85ebca6b);
    hash ^= hash >>> 13;
    hash = Math.imul(hash, 0xc2b2ae35);
    return hash ^ (hash >>> 16);
  }
}

/** Growable list of row numbers. */
export class RowList {
  rows: Uint32Array<ArrayBuffer>;
  length = 0;

  constructor(capacity = 16) {
    this.rows = new Uint32Array(Math.max(16, capacity));
  }

  push(row: number): void {
    if (this.length === this.rows.length) {
      const larger = new Uint32Array(this.length * 2);
      larger.set(this.rows);
      this.rows = larger;
    }
    this.rows[this.length++] = row;
  }
}

/** Smallest power of two that is not below `n`. */
export function ceilPowerOfTwo(n: number): number {
  let power = 1;
  while (power < n) power *= 2;
  return power;
}

function equal(a: Uint8Array, aAt: number, b: Uint8Array, bAt: number, length: number): boolean {
  for (let i = 0; i < length; i++) if (a[aAt + i] !== b[bAt + i]) return false;
  return true;
}
