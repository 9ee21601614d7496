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
import type { ElementBatch } from "../../kernel/kernel.js";
import { type BatchWriter, columnWord, eachRecord, type PackedChange } from "./batches.js";
import { bytesAt, readU64 } from "./bytes.js";
import type { ElementSet } from "../rules/rule.js";
import type { Rows } from "./rows.js";

/** Reads the set's elements from the kernel; undefined: the kernel has no such set, or one without counters. */
export type CounterDump = () => Promise<ElementBatch | undefined>;

export class CountedRows {
  /** By row: packets and bytes of the kernel's element at the last reading. */
  #read = new Float64Array(32);
  /** By row: packets as of the reading before. */
  #before = new Float64Array(0);
  /** By row: packets and bytes that its element is being written with. */
  readonly #writing = new Map<number, readonly [packets: number, bytes: number]>();
  /** While a dump is under way: rows whose element was written since it began. */
  #settled: Set<number> | undefined;

  constructor(
    readonly rows: Rows,
    readonly set: Pick<ElementSet, "spec">,
  ) {}

  packets(key: Int32Array): number {
    return this.#read[this.rows.find(key) * 2] ?? 0;
  }

  counted(key: Int32Array): { readonly packets: number; readonly bytes: number } {
    const at = this.rows.find(key) * 2;
    return { packets: this.#read[at] ?? 0, bytes: this.#read[at + 1] ?? 0 };
  }

  /** As of the reading before the last. */
  before(key: Int32Array): number {
    return this.#before[this.rows.find(key)] ?? 0;
  }

  /** Reads what the kernel's elements have counted; beside whatever else is done. */
  async read(dump: CounterDump): Promise<void> {
    this.#settled = new Set();
    const rows = this.#read.length / 2;
    if (this.#before.length !== rows) this.#before = new Float64Array(rows);
    for (let row = 0; row < rows; row++) this.#before[row] = this.#read[row * 2];
    try {
      const batch = await dump();
      if (batch !== undefined) await this.#noteAll(batch);
    } finally {
      this.#settled = undefined;
    }
  }

  async #noteAll(batch: ElementBatch): Promise<void> {
    const counterAt = columnWord(batch, "counter");
    if (counterAt < 0) return;
    const noVerdict = (): number => 0;
    await eachRecord(batch, noVerdict, (words, at) => {
      const row = this.rows.find(words, at);
      if (row >= 0) this.note(row, words, at + counterAt);
    });
  }

  /** The kernel's element has counted what is at `words[at]`. */
  note(row: number, words: Int32Array, at: number): void {
    if (this.#writing.has(row) || this.#settled?.has(row) === true) return;
    this.#put(row, readU64(words, at), readU64(words, at + 2));
  }

  /** Packs the row's element, which goes on counting where the one that was there ends. */
  add(row: number, data: Int32Array, dataAt: number, inKernel: boolean, writer: BatchWriter): void {
    const goesOn = !inKernel || this.#carries(row, data, dataAt);
    if (inKernel && goesOn) writer.carryNext();
    const packets = goesOn ? (this.#read[row * 2] ?? 0) : 0;
    const bytes = goesOn ? (this.#read[row * 2 + 1] ?? 0) : 0;
    if (inKernel || packets > 0) this.#writing.set(row, [packets, bytes]);
    writer.add(row, data, dataAt, packets, bytes);
  }

  #carries(row: number, data: Int32Array, dataAt: number): boolean {
    const carries = this.set.spec.counters?.carries;
    if (carries === undefined) return true;
    return carries(this.rows.kernelBytes(row), bytesAt(data, dataAt, this.rows.dataLen));
  }

  /** The transaction is in force. `carried`: the counts of `carry` (CommitResult.carried). */
  settle({ addRows, carry }: PackedChange, carried?: Float64Array): void {
    if (this.#writing.size === 0) return;
    for (let i = 0; i < addRows.length; i++) {
      const row = addRows.rows[i];
      const written = this.#writing.get(row);
      if (written === undefined) continue;
      this.#writing.delete(row);
      this.#put(row, ...written);
      this.#settled?.add(row);
    }
    if (carry === undefined || carried === undefined) return;
    carry.forEach((index, i) => {
      const row = addRows.rows[index];
      const [packets, bytes, missed] = carried.subarray(i * 3);
      this.#put(row, packets, bytes);
      if (missed > 0) this.set.spec.counters?.missed?.(this.rows.keyBytes(row).slice(), missed);
    });
  }

  /** It is not. */
  abort({ addRows }: PackedChange): void {
    for (let i = 0; i < addRows.length; i++) this.#writing.delete(addRows.rows[i]);
  }

  /** The row is another element's from now on. */
  freed(row: number): void {
    this.#writing.delete(row);
    this.#read.fill(0, row * 2, row * 2 + 2);
    this.#before.fill(0, row, row + 1);
    this.#settled?.add(row);
    this.set.spec.counters?.gone?.(this.rows.keyBytes(row).slice());
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
