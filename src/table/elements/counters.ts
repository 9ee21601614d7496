/**
 * What the elements of one set have counted. The kernel's own number is the total: an element that is replaced is written with what the
 * former one had counted by then, so that the next start finds it there. What came in between the kernel tells with the commit:
 * that is in no element, and the set's declarer may keep it (`Counters.missed`):
 *
 *     read of the former element, by the thread that commits     k       the new one is written with k
 *     commit, and the former one's end                           f       missed: f - k
 *
 * Rows that are being written, or were while a dump was under way, keep what they have: the dump may be from before or after.
 */
import { batchLayout } from "../../kernel/element-batch.js";
import type { ElementBatch } from "../../kernel/types.js";

interface Written {
  readonly packets: number;
  readonly bytes: number;
}

export class ElementCounters {
  /** By row: packets and bytes of the kernel's element at the last reading. */
  #read = new Float64Array(32);
  /** By row: the total as of the reading before. */
  #before = new Float64Array(0);
  readonly #writing = new Map<number, Written>();
  /** Rows whose element was written since the dump began. */
  #settled: Set<number> | undefined;

  packets(row: number): number {
    return this.#read[row * 2] ?? 0;
  }

  /** Packets as of the reading before the last. */
  before(row: number): number {
    return this.#before[row] ?? 0;
  }

  /** A reading begins: what was read last becomes the reading before. */
  keepBefore(): void {
    const rows = this.#read.length / 2;
    if (this.#before.length !== rows) this.#before = new Float64Array(rows);
    for (let row = 0; row < rows; row++) this.#before[row] = this.#read[row * 2];
  }

  bytes(row: number): number {
    return this.#read[row * 2 + 1] ?? 0;
  }

  /** Before a dump. */
  beginReading(): void {
    this.#settled = new Set();
  }

  endReading(): void {
    this.#settled = undefined;
  }

  /** The kernel's element has counted this. */
  note(row: number, packets: number, bytes: number): void {
    if (this.#writing.has(row) || this.#settled?.has(row) === true) return;
    this.put(row, packets, bytes);
  }

  /** The row is being written with this. */
  writing(row: number, packets: number, bytes: number): void {
    this.#writing.set(row, { packets, bytes });
  }

  get writingAny(): boolean {
    return this.#writing.size > 0;
  }

  /** What was being written is in force. */
  written(row: number): void {
    const written = this.#writing.get(row);
    if (written === undefined) return;
    this.#writing.delete(row);
    this.put(row, written.packets, written.bytes);
    this.#settled?.add(row);
  }

  /** It is not. */
  aborted(row: number): void {
    this.#writing.delete(row);
  }

  /** The row is another element's from now on. */
  freed(row: number): void {
    this.#writing.delete(row);
    if (row * 2 + 1 < this.#read.length) this.#read.fill(0, row * 2, row * 2 + 2);
    if (row < this.#before.length) this.#before[row] = 0;
    this.#settled?.add(row);
  }

  put(row: number, packets: number, bytes: number): void {
    if (row * 2 + 1 >= this.#read.length) {
      const larger = new Float64Array(Math.max(row * 2 + 2, this.#read.length * 2));
      larger.set(this.#read);
      this.#read = larger;
    }
    this.#read[row * 2] = packets;
    this.#read[row * 2 + 1] = bytes;
  }
}

/** Word of a record at which a batch's counters begin; -1: it has none. Of batches whose columns are words. */
export function counterWord(batch: ElementBatch): number {
  const { counter } = batchLayout(batch);
  return counter < 0 ? -1 : counter >> 2;
}

const [LOW, HIGH] = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1 ? [0, 1] : [1, 0];

/** A count from two words of the machine's order. */
export function readCount(words: Int32Array, at: number): number {
  return (words[at + LOW] >>> 0) + (words[at + HIGH] >>> 0) * 2 ** 32;
}

export function writeCount(words: Int32Array, at: number, count: number): void {
  words[at + LOW] = count | 0;
  words[at + HIGH] = Math.floor(count / 2 ** 32);
}
