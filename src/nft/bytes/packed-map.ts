/**
 * A hash map from fixed-length keys to rows of 32-bit words, built on typed arrays only. Rows come in groups with one key each. In a map of lists,
 * keys end in an index, and a group has four rows with neighbouring indices. In any other map a group has one row.
 *
 *     slots (open addressing, linear probing)      keys of groups, and rows, in segments of 4,096 rows
 *     ┌───┬──────┐                                 group  key words                  row  state  uses  data words
 *     │ 0 │      │ empty                           0      10.96.0.1 . 6 . 80 . 0/4   0    …      1     11.0.0.1 . 8080
 *     │ 2 │ hash │ ───────► group 1                                                  1    …      1     11.0.0.2 . 8080
 *     │ 1 │ hash │ ───────► group 0                                                  2    0      0     (nothing has index 2)
 *     └───┴──────┘                                                                   3    0      0
 *
 * An entry needs no objects and no strings. Half a million entries of 16-byte keys and 8-byte data, in lists of ten, take about 14 MB, and one
 * look-up finds four of them. A row keeps its number until it is removed.
 *
 * Growing never takes long. New rows only need one more segment. The slots of a large map are split into 64 shards, and each grows alone in a
 * millisecond or two.
 */
const SEGMENT_BITS = 12;
const SEGMENT_ROWS = 1 << SEGMENT_BITS;
const SEGMENT_MASK = SEGMENT_ROWS - 1;
/** With this many groups, the slots of a map are split into shards, one per value of the hash's highest bits. */
const MANY = 1 << 16;
const SHARD_BITS = 6;
const SHARDS = 1 << SHARD_BITS;
/** Four rows to a group of a list. Larger groups would leave too many rows empty, because most lists are short. */
const LIST_GROUP_BITS = 2;

/** The words of a row before its data: the state (rows.ts; 0: free) and the use count. */
export const STATE = 0;
export const USES = 1;
export const DATA = 2;

/** Set in the state of every row that is not free. */
export const LIVE = 0x80;

/** Finds groups by their hashes. Keys with other hashes are not compared, and growing reads only the shard itself. */
class Shard {
  /** Group + 1 (0: empty) and its hash, side by side. Signed, because V8 keeps signed 32-bit numbers without allocating. */
  readonly slots: Int32Array;
  readonly mask: number;
  used = 0;

  constructor(readonly size: number) {
    this.slots = new Int32Array(size * 2);
    this.mask = size - 1;
  }

  /** A quarter of the slots stays empty. A fuller shard would save little memory, and searches would be long. */
  get full(): boolean {
    return this.used * 4 >= this.size * 3;
  }

  add(group: number, hash: number): void {
    const { slots, mask } = this;
    let slot = hash & mask;
    while (slots[slot * 2] !== 0) slot = (slot + 1) & mask;
    slots[slot * 2] = group + 1;
    slots[slot * 2 + 1] = hash;
    this.used++;
  }
}

export class PackedMap {
  /** The bits of a row's number that select the row in its group. */
  readonly groupMask: number;
  readonly #groupBits: number;
  readonly #rowWords: number;
  readonly #segments: Int32Array[] = [];
  /** Keys of the groups, in segments like their rows. */
  readonly #keys: Int32Array[] = [];
  #shards: Shard[] = [];
  #shardMask = 0;
  #rows = 0;
  #capacity = 0;
  #free = 0;
  #size = 0;
  #unkeyed = -1;
  /** Keys come from users of the cluster. A secret seed prevents them from constructing collisions. */
  readonly #seed = Math.floor(Math.random() * 0x1_0000_0000) | 0;

  /** @param lists keys end in an index, and most lists have all smaller indices too. */
  constructor(
    readonly keyWords: number,
    readonly dataWords: number,
    lists = false,
  ) {
    this.#groupBits = lists ? LIST_GROUP_BITS : 0;
    this.groupMask = (1 << this.#groupBits) - 1;
    this.#rowWords = DATA + dataWords;
    this.reserve(16);
  }

  get size(): number {
    return this.#size;
  }

  /** Every live row is below this number; free rows in between have the state 0. */
  get end(): number {
    return this.#rows;
  }

  /** The words of the row's segment: the row begins at `at(row)`. A small map replaces them when it grows. */
  words(row: number): Int32Array {
    return this.#segments[row >>> SEGMENT_BITS];
  }

  at(row: number): number {
    return (row & SEGMENT_MASK) * this.#rowWords;
  }

  /** The place of the group's key in its segment of `#keys`. */
  #keyAt(row: number): number {
    return ((row & SEGMENT_MASK) >>> this.#groupBits) * this.keyWords;
  }

  /** Copies the row's key to `into`, starting at `to`. */
  copyKey(row: number, into: Int32Array, to: number): void {
    const words = this.#keys[row >>> SEGMENT_BITS];
    const from = this.#keyAt(row);
    const last = this.keyWords - 1;
    for (let i = 0; i < last; i++) into[to + i] = words[from + i];
    into[to + last] = (words[from + last] << this.#groupBits) | (row & this.groupMask);
  }

  /** MurmurHash3 of a group's key. The last word is passed separately. */
  #hash(key: Int32Array, at: number, lastWord: number): number {
    let hash = this.#seed;
    for (let i = at, last = at + this.keyWords - 1; i <= last; i++) {
      let word = Math.imul(i === last ? lastWord : key[i], 0xcc9e2d51);
      word = (word << 15) | (word >>> 17);
      hash ^= Math.imul(word, 0x1b873593);
      hash = (hash << 13) | (hash >>> 19);
      hash = (Math.imul(hash, 5) + 0xe6546b64) | 0;
    }
    hash ^= hash >>> 16;
    hash = Math.imul(hash, 0x85ebca6b);
    hash ^= hash >>> 13;
    hash = Math.imul(hash, 0xc2b2ae35);
    return hash ^ (hash >>> 16);
  }

  /** Returns the row of the key that starts at `key[at]`, or -1. */
  find(key: Int32Array, at = 0): number {
    const last = key[at + this.keyWords - 1];
    const hash = this.#hash(key, at, last >> this.#groupBits);
    const { slots, mask } = this.#shardOf(hash);
    const group = slots[this.#slotOf(slots, mask, key, at, hash) * 2] - 1;
    if (group < 0) return -1;
    const row = (group << this.#groupBits) | (last & this.groupMask);
    return this.#isLive(row) ? row : -1;
  }

  /** Returns the row of the key, and creates it if necessary: a new row has the state LIVE and a use count of 0. */
  findOrInsert(key: Int32Array, at = 0): number {
    const last = key[at + this.keyWords - 1];
    const hash = this.#hash(key, at, last >> this.#groupBits);
    const shard = this.#shardOf(hash);
    const { slots, mask } = shard;
    const slot = this.#slotOf(slots, mask, key, at, hash);
    let group = slots[slot * 2] - 1;
    if (group < 0) {
      group = this.#allocateGroup();
      this.#beginGroup(group << this.#groupBits, key, at);
      if (shard.full) this.#growShard(hash).add(group, hash);
      else {
        slots[slot * 2] = group + 1;
        slots[slot * 2 + 1] = hash;
        shard.used++;
      }
    }
    return this.#insertAt((group << this.#groupBits) | (last & this.groupMask));
  }

  /** Like `findOrInsert`, for the key whose last word is one larger than that of `row`. It must be in the same group. */
  findOrInsertNext(row: number): number {
    return this.#insertAt(row + 1);
  }

  /** Returns the row of that key, or -1. */
  findNext(row: number): number {
    return this.#isLive(row + 1) ? row + 1 : -1;
  }

  /** The row that no key leads to, for a catch-all element. -1 if there is none. */
  get unkeyed(): number {
    return this.#unkeyed >= 0 && this.#isLive(this.#unkeyed) ? this.#unkeyed : -1;
  }

  insertUnkeyed(): number {
    if (this.#unkeyed < 0) {
      this.#unkeyed = this.#allocateGroup() << this.#groupBits;
      this.#beginGroup(this.#unkeyed, new Int32Array(this.keyWords), 0);
    }
    return this.#insertAt(this.#unkeyed);
  }

  #insertAt(row: number): number {
    const words = this.words(row);
    const at = this.at(row);
    if (words[at + STATE] === 0) {
      words[at + STATE] = LIVE;
      words[at + USES] = 0;
      this.#size++;
    }
    return row;
  }

  #isLive(row: number): boolean {
    return this.words(row)[this.at(row) + STATE] !== 0;
  }

  #beginGroup(row: number, key: Int32Array, at: number): void {
    const words = this.#keys[row >>> SEGMENT_BITS];
    const to = this.#keyAt(row);
    const last = this.keyWords - 1;
    for (let i = 0; i < last; i++) words[to + i] = key[at + i];
    words[to + last] = key[at + last] >> this.#groupBits;
  }

  #slotOf(slots: Int32Array, mask: number, key: Int32Array, at: number, hash: number): number {
    const last = this.keyWords - 1;
    const lastWord = key[at + last] >> this.#groupBits;
    search: for (let slot = hash & mask; ; slot = (slot + 1) & mask) {
      const group = slots[slot * 2] - 1;
      if (group < 0) return slot;
      if (slots[slot * 2 + 1] !== hash) continue;
      const row = group << this.#groupBits;
      const words = this.#keys[row >>> SEGMENT_BITS];
      const from = this.#keyAt(row);
      if (words[from + last] !== lastWord) continue;
      for (let i = 0; i < last; i++) if (words[from + i] !== key[at + i]) continue search;
      return slot;
    }
  }

  /** Reserves capacity. Call it only if the map has never had an entry. */
  reserve(count: number): void {
    if (count <= this.#capacity) return;
    const segments = Math.ceil(count / SEGMENT_ROWS);
    const rows = segments === 1 ? ceilPowerOfTwo(count) : SEGMENT_ROWS;
    this.#segments.length = 0;
    this.#keys.length = 0;
    while (this.#segments.length < segments) this.#addSegment(rows);
    this.#capacity = segments * rows;
    const groups = count >> this.#groupBits;
    const shards = groups < MANY ? 1 : SHARDS;
    // With this size no shard is full. Several shards fill unevenly, so they get more room.
    const size = ceilPowerOfTwo(Math.ceil((groups / shards) * (shards === 1 ? 4 / 3 : 1.5)) + 1);
    this.#shardMask = shards - 1;
    this.#shards = Array.from({ length: shards }, () => new Shard(size));
  }

  /** Frees the row. Its number may be given to another key afterwards, except that of the row without a key. */
  remove(row: number): void {
    this.words(row)[this.at(row) + STATE] = 0;
    this.#size--;
    if (row === this.#unkeyed) return;
    const first = row & ~this.groupMask;
    for (let other = first; other <= first + this.groupMask; other++) if (this.#isLive(other)) return;
    this.#removeGroup(first);
  }

  /** @param row the first row of the group. */
  #removeGroup(row: number): void {
    const group = row >>> this.#groupBits;
    const words = this.#keys[row >>> SEGMENT_BITS];
    const at = this.#keyAt(row);
    const hash = this.#hash(words, at, words[at + this.keyWords - 1]);
    const shard = this.#shardOf(hash);
    const { slots, mask } = shard;
    let hole = hash & mask;
    while (slots[hole * 2] !== group + 1) hole = (hole + 1) & mask;
    // Backward shift: an entry may move into the hole unless its home slot lies cyclically after the hole.
    for (let slot = (hole + 1) & mask; slots[slot * 2] !== 0; slot = (slot + 1) & mask) {
      const home = slots[slot * 2 + 1] & mask;
      if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
      slots[hole * 2] = slots[slot * 2];
      slots[hole * 2 + 1] = slots[slot * 2 + 1];
      hole = slot;
    }
    slots[hole * 2] = 0;
    shard.used--;
    words[at] = this.#free;
    this.#free = group + 1;
  }

  #shardOf(hash: number): Shard {
    return this.#shards[(hash >>> (32 - SHARD_BITS)) & this.#shardMask];
  }

  #allocateGroup(): number {
    if (this.#free !== 0) {
      const group = this.#free - 1;
      const row = group << this.#groupBits;
      this.#free = this.#keys[row >>> SEGMENT_BITS][this.#keyAt(row)];
      return group;
    }
    if (this.#rows === this.#capacity) this.#addRows();
    const group = this.#rows >>> this.#groupBits;
    this.#rows += this.groupMask + 1;
    return group;
  }

  #addRows(): void {
    // The first segment starts small, because most maps stay small.
    if (this.#capacity >= SEGMENT_ROWS) {
      this.#addSegment(SEGMENT_ROWS);
      this.#capacity += SEGMENT_ROWS;
      return;
    }
    const [rows] = this.#segments.splice(0);
    const [keys] = this.#keys.splice(0);
    this.#capacity *= 2;
    this.#addSegment(this.#capacity);
    this.#segments[0].set(rows);
    this.#keys[0].set(keys);
  }

  #addSegment(rows: number): void {
    this.#segments.push(new Int32Array(rows * this.#rowWords));
    this.#keys.push(new Int32Array((rows >>> this.#groupBits) * this.keyWords));
  }

  /** Grows the full shard of this hash. Returns the shard that the hash now belongs to. */
  #growShard(hash: number): Shard {
    const full = this.#shardOf(hash);
    const size = full.size * 2;
    if (this.#shards.length === 1 && full.used >= MANY) {
      this.#shardMask = SHARDS - 1;
      this.#shards = Array.from({ length: SHARDS }, () => new Shard(size / SHARDS));
    } else this.#shards[(hash >>> (32 - SHARD_BITS)) & this.#shardMask] = new Shard(size);
    const { slots } = full;
    for (let at = 0; at < slots.length; at += 2) {
      const group = slots[at] - 1;
      if (group >= 0) this.#shardOf(slots[at + 1]).add(group, slots[at + 1]);
    }
    return this.#shardOf(hash);
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
