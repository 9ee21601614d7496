/**
 * What the elements of one set have counted. The kernel's own number is the total: an element that is replaced is written with what the
 * former one had counted by then, so that the next start finds it there. What came in between the kernel tells with the commit
 * (NLM_F_ECHO): that is in no element, and the set's declarer may keep it (`Counters.missed`):
 *
 *     read of the former element          k       the new one is written with k
 *     commit, and the former one's end    f       missed: f - k
 *
 * Rows that are being replaced, or were while a dump was under way, keep what they have: the dump may be from before or after.
 */
import { batchLayout } from "../../kernel/element-batch.js";
import type { ElementBatch } from "../../kernel/types.js";

interface Replacement {
  /** Packets of the former element when it was read. */
  readonly read: number;
  readonly written: number;
  /** The new element goes on where the former ends. */
  readonly carries: boolean;
}

export class ElementCounters {
  /** By row: packets and bytes of the kernel's element at the last reading. */
  #read = new Float64Array(32);
  /** By row: the total as of the reading before. */
  #before = new Float64Array(0);
  readonly #replaced = new Map<number, Replacement>();
  /** Rows whose element was replaced since the dump began. */
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
    this.#before = Float64Array.from({ length: this.#read.length / 2 }, (_, row) => this.packets(row));
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
    if (this.#replaced.has(row) || this.#settled?.has(row) === true) return;
    this.#put(row, packets, bytes);
  }

  /** The row is being written with `written`; what was there has counted what was noted of it last. */
  replacing(row: number, written: number, carries: boolean): void {
    this.#replaced.set(row, { read: this.packets(row), written, carries });
  }

  get replacingAny(): boolean {
    return this.#replaced.size > 0;
  }

  /**
   * What was being written is in force. `end`: what the former element had counted in the end, where the kernel told. Returns what of that
   * the new one does not have.
   */
  replaced(row: number, end: number | undefined): number {
    const replacement = this.#replaced.get(row);
    if (replacement === undefined) return 0;
    const { read, written, carries } = replacement;
    this.#replaced.delete(row);
    this.#put(row, written, carries ? this.bytes(row) : 0);
    this.#settled?.add(row);
    return carries && end !== undefined ? Math.max(0, end - read) : 0;
  }

  /** It is not. */
  aborted(row: number): void {
    this.#replaced.delete(row);
  }

  /** The row is another element's from now on. */
  freed(row: number): void {
    this.#replaced.delete(row);
    if (row * 2 + 1 < this.#read.length) this.#read.fill(0, row * 2, row * 2 + 2);
    if (row < this.#before.length) this.#before[row] = 0;
    this.#settled?.add(row);
  }

  #put(row: number, packets: number, bytes: number): void {
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
