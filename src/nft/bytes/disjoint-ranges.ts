/** Ranges of one or more fields that do not overlap: each is its first and its last value, one after the other. */
import { bytesToNumber } from "./ip-ranges.js";

export class DisjointRanges {
  /** Sorted by first values. */
  readonly #entries: Entry[] = [];

  /** @param fields where each field begins and ends in the first half of a key. */
  constructor(readonly fields: readonly Field[]) {}

  get size(): number {
    return this.#entries.length;
  }

  *[Symbol.iterator](): Generator<Uint8Array> {
    for (const { range } of this.#entries) yield range;
  }

  /** Whether the last value of a field comes before its first one. */
  isReversed(range: Uint8Array): boolean {
    return this.fields.some((field) => startsAfter(range, range, field));
  }

  /** Returns a range that overlaps this one. */
  overlapping(range: Uint8Array): Uint8Array | undefined {
    const entries = this.#entries;
    const [first] = this.fields;
    const at = this.#placeOf(range);
    for (let i = at; i < entries.length && !startsAfter(entries[i].range, range, first); i++)
      if (this.#overlap(entries[i].range, range)) return entries[i].range;
    for (let i = at - 1; i >= 0 && !startsAfter(range, entries[i].longest, first); i--)
      if (this.#overlap(entries[i].range, range)) return entries[i].range;
    return undefined;
  }

  /** Adds a copy of a range that overlaps none. */
  add(range: Uint8Array): void {
    const at = this.#placeOf(range);
    // Not the copy yet, so `#noteLongest` notes it.
    this.#entries.splice(at, 0, { range: range.slice(), longest: range });
    this.#noteLongest(at);
  }

  /** Adds a range of a single field, after all others. If it overlaps the last one, or touches it, the two are joined. */
  join(range: Uint8Array): void {
    const last = this.#entries.at(-1)?.range;
    const half = range.length / 2;
    if (last === undefined || bytesToNumber(range.subarray(0, half)) > bytesToNumber(last.subarray(half)) + 1n)
      this.add(range);
    else if (endsBefore(last, range, this.fields[0])) last.set(range.subarray(half), half);
  }

  /** Removes exactly this range, if it is there. */
  delete(range: Uint8Array): void {
    const at = this.#placeOf(range);
    const found = this.#entries.at(at)?.range;
    if (found === undefined || Buffer.compare(found, range) !== 0) return;
    this.#entries.splice(at, 1);
    this.#noteLongest(at);
  }

  #noteLongest(from: number): void {
    const entries = this.#entries;
    for (let i = from; i < entries.length; i++) {
      const { range: own, longest: before } = entries[i];
      const other = entries[i - 1]?.longest;
      const longest = other !== undefined && endsBefore(own, other, this.fields[0]) ? other : own;
      if (longest === before) break;
      entries[i].longest = longest;
    }
  }

  #placeOf(range: Uint8Array): number {
    const last = this.#entries.at(-1);
    let [low, high] = [0, this.#entries.length];
    // The case of sorted ranges.
    if (last !== undefined && Buffer.compare(last.range, range) < 0) return high;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (Buffer.compare(this.#entries[middle].range, range) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #overlap(a: Uint8Array, b: Uint8Array): boolean {
    for (const field of this.fields) if (startsAfter(a, b, field) || startsAfter(b, a, field)) return false;
    return true;
  }
}

type Field = readonly [from: number, to: number];

interface Entry {
  readonly range: Uint8Array;
  /** The range up to this one whose first field ends last. */
  longest: Uint8Array;
}

/** Whether the first value of a field in `a` is larger than the last one in `b`. */
function startsAfter(a: Uint8Array, b: Uint8Array, [from, to]: Field): boolean {
  const last = b.length >>> 1;
  for (let i = from; i < to; i++) if (a[i] !== b[last + i]) return a[i] > b[last + i];
  return false;
}

/** Whether the last value of a field in `a` is smaller than the last one in `b`. */
function endsBefore(a: Uint8Array, b: Uint8Array, [from, to]: Field): boolean {
  const last = a.length >>> 1;
  for (let i = last + from; i < last + to; i++) if (a[i] !== b[i]) return a[i] < b[i];
  return false;
}
