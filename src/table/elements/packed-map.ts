/**
 * A hash map from fixed-length keys to rows of 32-bit words, on typed arrays alone.
 *
 *   slots (open addressing, linear probing)      rows, in segments of 4,096
 *   ┌───┬──────┐                                 row  state  uses  key words              data words
 *   │ 0 │      │ empty                           0    …      1     10.96.0.1 . 6 . 80 .0  11.0.0.1 . 8080
 *   │ 2 │ hash │ ───────► row 1                  1    …      1     10.96.0.1 . 6 . 80 .1  11.0.0.2 . 8080
 *   │ 1 │ hash │ ───────► row 0                  2    0      0     (free: the next free row + 1)
 *   └───┴──────┘
 *
 * No objects and no strings per entry: half a million entries of 16-byte keys and 8-byte data take about 24 MB. All of a row lies in one
 * or two lines of the processor's caches. Keys that differ in the lowest three bits of their last word alone have their slots side by
 * side: the indices of a list are looked up in one line after the other. Row numbers are stable until the row is removed.
 *
 * It never stands still to grow: one more segment is all that many rows need, and the slots of a large map are 64 tables, each of which
 * grows alone, in a millisecond or two.
 */
const SEGMENT_BITS = 12;
const SEGMENT_ROWS = 1 << SEGMENT_BITS;
const SEGMENT_MASK = SEGMENT_ROWS - 1;
/** Entries from which on a map has many tables of slots: as many as there are values of the hash's highest bits. */
const MANY = 1 << 16;
const TABLE_BITS = 6;
const TABLES = 1 << TABLE_BITS;
/** Of the last word of a key: entries with the same other bits are neighbours. */
const NEIGHBOURS = 7;

/** Words of a row ahead of its key: its state (rows.ts), and how often it is desired. */
export const STATE = 0;
export const USES = 1;
export const KEY = 2;

/** Finds rows by their hashes: no key is looked at in vain, and growing reads nothing but the table itself. */
class SlotTable {
  /** Row + 1 (0: empty) and its hash, side by side. Signed: V8 keeps 32 bits with a sign without allocating. */
  readonly slots: Int32Array;
  readonly mask: number;
  used = 0;

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
  /** Words of a row; its data begins at `dataWord`. */
  readonly rowWords: number;
  readonly dataWord: number;
  readonly #segments: Int32Array[] = [];
  #tables: SlotTable[] = [];
  #tableMask = 0;
  #rows = 0;
  #capacity = 0;
  #free = 0;
  #size = 0;
  /** Keys come from users of the cluster: a secret seed keeps them from building collisions. */
  readonly #seed = Math.floor(Math.random() * 0x1_0000_0000) | 0;

  constructor(
    readonly keyWords: number,
    readonly dataWords: number,
  ) {
    this.dataWord = KEY + keyWords;
    this.rowWords = this.dataWord + dataWords;
    this.reserve(16);
  }

  get size(): number {
    return this.#size;
  }

  /** Every live row is below this number; free rows in between have the state 0. */
  get end(): number {
    return this.#rows;
  }

  /** The words that the row's are among, from `at(row)` on. A map that is still small replaces them when it grows. */
  words(row: number): Int32Array {
    return this.#segments[row >>> SEGMENT_BITS];
  }

  at(row: number): number {
    return (row & SEGMENT_MASK) * this.rowWords;
  }

  /** MurmurHash3 over all words of the key but the last one. */
  hashOfHead(key: Int32Array, at: number): number {
    let hash = this.#seed;
    for (let i = at, last = at + this.keyWords - 1; i < last; i++) {
      let word = Math.imul(key[i], 0xcc9e2d51);
      word = (word << 15) | (word >>> 17);
      hash ^= Math.imul(word, 0x1b873593);
      hash = (hash << 13) | (hash >>> 19);
      hash = (Math.imul(hash, 5) + 0xe6546b64) | 0;
    }
    return hash;
  }

  /** The hash of a key, as 32 bits with a sign, from that of all words but the last one. */
  hashOf(head: number, last: number): number {
    let hash = head ^ Math.imul(last >>> 3, 0x1b873593);
    hash ^= hash >>> 16;
    hash = Math.imul(hash, 0x85ebca6b);
    hash ^= hash >>> 13;
    hash = Math.imul(hash, 0xc2b2ae35);
    hash ^= hash >>> 16;
    return (hash & ~NEIGHBOURS) | (last & NEIGHBOURS);
  }

  #hash(key: Int32Array, at: number): number {
    return this.hashOf(this.hashOfHead(key, at), key[at + this.keyWords - 1]);
  }

  /** Row of the key that starts at `key[at]`, or -1. */
  find(key: Int32Array, at = 0, hash = this.#hash(key, at)): number {
    const { slots, mask } = this.#tableOf(hash);
    const slot = this.#slotOf(slots, mask, key, at, hash);
    return slots[slot * 2] - 1;
  }

  /** Row of the key, made when it is not there yet; a new row has state and uses 0. */
  findOrInsert(key: Int32Array, at = 0, hash = this.#hash(key, at)): number {
    const table = this.#tableOf(hash);
    const { slots, mask } = table;
    const slot = this.#slotOf(slots, mask, key, at, hash);
    if (slots[slot * 2] !== 0) return slots[slot * 2] - 1;
    const row = this.#takeRow();
    const words = this.words(row);
    const to = this.at(row);
    words[to + STATE] = 0;
    words[to + USES] = 0;
    for (let i = 0; i < this.keyWords; i++) words[to + KEY + i] = key[at + i];
    if (table.full) this.#growTable(hash).add(row, hash);
    else {
      slots[slot * 2] = row + 1;
      slots[slot * 2 + 1] = hash;
      table.used++;
    }
    this.#size++;
    return row;
  }

  #slotOf(slots: Int32Array, mask: number, key: Int32Array, at: number, hash: number): number {
    const { keyWords } = this;
    search: for (let slot = hash & mask; ; slot = (slot + 1) & mask) {
      const row = slots[slot * 2] - 1;
      if (row < 0) return slot;
      if (slots[slot * 2 + 1] !== hash) continue;
      const words = this.words(row);
      const from = this.at(row) + KEY;
      for (let i = 0; i < keyWords; i++) if (words[from + i] !== key[at + i]) continue search;
      return slot;
    }
  }

  /** Whether this is the row of the key that starts at `key[0]`. */
  isAt(row: number, key: Int32Array): boolean {
    if (row >= this.#rows) return false;
    const words = this.words(row);
    const from = this.at(row);
    if (words[from + STATE] === 0) return false;
    // Keys of neighbours differ in their last word, if at all.
    for (let i = this.keyWords - 1; i >= 0; i--) if (words[from + KEY + i] !== key[i]) return false;
    return true;
  }

  /** Makes room for so many entries at once. Of a map that has had none. */
  reserve(count: number): void {
    if (count <= this.#capacity) return;
    const segments = Math.ceil(count / SEGMENT_ROWS);
    const rows = segments === 1 ? ceilPowerOfTwo(count) : SEGMENT_ROWS;
    this.#segments.length = 0;
    while (this.#segments.length < segments) this.#segments.push(new Int32Array(rows * this.rowWords));
    this.#capacity = segments * rows;
    const tables = count < MANY ? 1 : TABLES;
    // No table is full then; many are not filled alike.
    const size = ceilPowerOfTwo(Math.ceil((count / tables) * (tables === 1 ? 4 / 3 : 1.5)) + 1);
    this.#tableMask = tables - 1;
    this.#tables = Array.from({ length: tables }, () => new SlotTable(size));
  }

  /** Frees the row; its number may be given to another key from here on. */
  remove(row: number): void {
    const words = this.words(row);
    const at = this.at(row);
    const hash = this.#hash(words, at + KEY);
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
    words[at + STATE] = 0;
    words[at + KEY] = this.#free;
    this.#free = row + 1;
    this.#size--;
  }

  #tableOf(hash: number): SlotTable {
    return this.#tables[(hash >>> (32 - TABLE_BITS)) & this.#tableMask];
  }

  #takeRow(): number {
    if (this.#free !== 0) {
      const row = this.#free - 1;
      this.#free = this.words(row)[this.at(row) + KEY];
      return row;
    }
    if (this.#rows === this.#capacity) this.#addRows();
    return this.#rows++;
  }

  #addRows(): void {
    const last = this.#segments.length - 1;
    // The first segment begins small: most maps stay so.
    const isSmall = this.#capacity < SEGMENT_ROWS;
    const rows = isSmall ? this.#capacity * 2 : SEGMENT_ROWS;
    const segment = new Int32Array(rows * this.rowWords);
    if (isSmall) {
      segment.set(this.#segments[last]);
      this.#segments[last] = segment;
      this.#capacity = rows;
      return;
    }
    this.#segments.push(segment);
    this.#capacity += rows;
  }

  /** Makes room in the table for this hash, which is full. Returns the table that it belongs to from now on. */
  #growTable(hash: number): SlotTable {
    const full = this.#tableOf(hash);
    const size = full.size * 2;
    if (this.#tables.length === 1 && this.#size >= MANY) {
      this.#tableMask = TABLES - 1;
      this.#tables = Array.from({ length: TABLES }, () => new SlotTable(size / TABLES));
    } else this.#tables[(hash >>> (32 - TABLE_BITS)) & this.#tableMask] = new SlotTable(size);
    const { slots } = full;
    for (let at = 0; at < slots.length; at += 2) {
      const row = slots[at] - 1;
      if (row >= 0) this.#tableOf(slots[at + 1]).add(row, slots[at + 1]);
    }
    return this.#tableOf(hash);
  }
}

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

export function ceilPowerOfTwo(n: number): number {
  let power = 1;
  while (power < n) power *= 2;
  return power;
}
