/**
 * A hash map from fixed-length byte keys to fixed-length columns, on typed arrays alone.
 *
 *   #slots  (open addressing, linear probing)      columns, one row per entry
 *   ┌───┐                                          row  keys          wanted     kernel     flags epochs
 *   │ 0 │ empty                                    0    10.96.0.1…80  goto c-3   goto c-2   …     7
 *   │ 2 │ ──────────────► row 1                    1    10.96.0.9…53  goto c-1   goto c-1   …     7
 *   │ 1 │ ──────────────► row 0                    2    (free, chained through #hashes)
 *   └───┘
 *
 * No objects and no strings per entry: half a million entries of 16-byte keys and 8-byte data take about 30 MB, and a
 * look-up costs some 100 ns. Row numbers are stable until the row is removed. The columns are public because
 * the owner (element-set.ts) reads and writes them in its inner loops; growing replaces the arrays.
 */
export class PackedMap {
  keys: Uint8Array;
  /** Data that is wanted for the row. */
  wanted: Uint8Array;
  /** Data that the kernel is known to hold for the row. */
  kernel: Uint8Array;
  flags: Uint8Array;
  epochs: Uint32Array;
  /** Hash of a live row; link to the next free row + 1 in a free one. */
  #hashes: Uint32Array;
  /** Row + 1, 0 for an empty slot. Twice as many slots as rows at least. */
  #slots: Uint32Array;
  #mask: number;
  #rows = 0;
  #free = 0;
  #size = 0;
  #lastHash = 0;
  /** Keys come from users of the cluster: a secret seed keeps them from building collisions. */
  readonly #seed = Math.floor(Math.random() * 0x1_0000_0000) | 0;

  constructor(
    readonly keyLen: number,
    readonly dataLen: number,
    capacity = 16,
  ) {
    const rows = ceilPowerOfTwo(Math.max(16, capacity));
    this.keys = new Uint8Array(rows * keyLen);
    this.wanted = new Uint8Array(rows * dataLen);
    this.kernel = new Uint8Array(rows * dataLen);
    this.flags = new Uint8Array(rows);
    this.epochs = new Uint32Array(rows);
    this.#hashes = new Uint32Array(rows);
    this.#slots = new Uint32Array(rows * 2);
    this.#mask = rows * 2 - 1;
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
    const { keyLen, keys } = this;
    for (let slot = hash & this.#mask; ; slot = (slot + 1) & this.#mask) {
      const row = this.#slots[slot] - 1;
      if (row < 0) return -1;
      if (this.#hashes[row] !== hash) continue;
      const base = row * keyLen;
      let i = 0;
      while (i < keyLen && keys[base + i] === key[at + i]) i++;
      if (i === keyLen) return row;
    }
  }

  /** Row of the key, made when it is not there yet; a new row has flags and epoch 0. */
  findOrInsert(key: Uint8Array, at = 0): number {
    const found = this.find(key, at);
    if (found >= 0) return found;
    const hash = this.#lastHash;
    const row = this.#takeRow();
    this.#hashes[row] = hash;
    this.keys.set(at === 0 && key.length === this.keyLen ? key : key.subarray(at, at + this.keyLen), row * this.keyLen);
    this.flags[row] = 0;
    this.epochs[row] = 0;
    this.#place(row, hash);
    this.#size++;
    return row;
  }

  /** Frees the row; its number may be given to another key from here on. */
  remove(row: number): void {
    const slots = this.#slots;
    const mask = this.#mask;
    let hole = this.#hashes[row] & mask;
    while (slots[hole] !== row + 1) hole = (hole + 1) & mask;
    // Backward shift: an entry may move into the hole unless its own home lies cyclically behind the hole.
    for (let slot = (hole + 1) & mask; slots[slot] !== 0; slot = (slot + 1) & mask) {
      const home = this.#hashes[slots[slot] - 1] & mask;
      if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
      slots[hole] = slots[slot];
      hole = slot;
    }
    slots[hole] = 0;
    this.flags[row] = 0;
    this.epochs[row] = 0;
    this.#hashes[row] = this.#free;
    this.#free = row + 1;
    this.#size--;
  }

  /** Makes room for this many rows in all, so that a load does not grow step by step. */
  reserve(rows: number): void {
    if (rows > this.flags.length) this.#grow(ceilPowerOfTwo(rows));
  }

  /** The row's key, as a view. */
  keyAt(row: number): Uint8Array {
    return this.keys.subarray(row * this.keyLen, (row + 1) * this.keyLen);
  }

  #takeRow(): number {
    if (this.#free !== 0) {
      const row = this.#free - 1;
      this.#free = this.#hashes[row];
      return row;
    }
    if (this.#rows === this.flags.length) this.#grow(this.flags.length * 2);
    return this.#rows++;
  }

  #place(row: number, hash: number): void {
    let slot = hash & this.#mask;
    while (this.#slots[slot] !== 0) slot = (slot + 1) & this.#mask;
    this.#slots[slot] = row + 1;
  }

  #grow(rows: number): void {
    this.keys = grown(this.keys, new Uint8Array(rows * this.keyLen));
    this.wanted = grown(this.wanted, new Uint8Array(rows * this.dataLen));
    this.kernel = grown(this.kernel, new Uint8Array(rows * this.dataLen));
    this.flags = grown(this.flags, new Uint8Array(rows));
    this.epochs = grown(this.epochs, new Uint32Array(rows));
    this.#hashes = grown(this.#hashes, new Uint32Array(rows));
    const old = this.#slots;
    this.#slots = new Uint32Array(rows * 2);
    this.#mask = rows * 2 - 1;
    for (let slot = 0; slot < old.length; slot++) {
      const row = old[slot] - 1;
      if (row >= 0) this.#place(row, this.#hashes[row]);
    }
  }

  /** MurmurHash3 (32 bit) over the key. */
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
    return (hash ^ (hash >>> 16)) >>> 0;
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
    if (this.length === this.rows.length) this.rows = grown(this.rows, new Uint32Array(this.length * 2));
    this.rows[this.length++] = row;
  }
}

/** Smallest power of two that is not below `n`. */
export function ceilPowerOfTwo(n: number): number {
  let power = 1;
  while (power < n) power *= 2;
  return power;
}

function grown<T extends Uint8Array | Uint32Array>(from: T, to: T): T {
  to.set(from);
  return to;
}
