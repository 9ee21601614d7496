/**
 * Counters of one set's elements. The kernel's number is the total. Right before the transaction, the committing thread reads each element that is
 * replaced, and writes the new one with that count. Packets between this read and the commit are not counted.
 */
import type { ElementBatch } from "../kernel/kernel.js";
import { catchAllIn } from "../language/intervals.js";
import { type BatchWriter, columnWord, eachRecord, type PackedChange } from "./batch-writer.js";
import { readU64 } from "../bytes/bytes.js";
import type { ElementSet } from "./element-set.js";
import type { Rows } from "./rows.js";

/** Reads the set's elements from the kernel. Returns undefined if the kernel has no such set, or the set has no counters. */
export type CounterDump = () => Promise<ElementBatch | undefined>;

export class CountedRows {
  /** By row: packets and bytes of the kernel's element at the last reading. */
  #read = new Float64Array(32);
  /** By row: packets at the reading before. */
  #before = new Float64Array(0);
  /** Rows whose element is being replaced by one that begins at 0. */
  readonly #restarting = new Set<number>();
  /** During a dump: rows that started at 0 after the dump began. The dump may show their former counts. */
  #restarted: Set<number> | undefined;

  constructor(
    readonly rows: Rows,
    readonly set: Pick<ElementSet, "spec">,
  ) {}

  counted(row: number): { readonly packets: number; readonly bytes: number } {
    const at = row * 2;
    return { packets: this.#read[at] ?? 0, bytes: this.#read[at + 1] ?? 0 };
  }

  /** The count at the reading before the last. */
  before(row: number): number {
    return this.#before[row] ?? 0;
  }

  /** Calls `visit` with each row that counted packets between the last two readings. */
  forEachGrown(visit: (row: number) => void): void {
    const { length } = this.#before;
    for (let row = 0; row < length; row++) if (this.#read[row * 2] > this.#before[row]) visit(row);
  }

  /** Reads the counters of the kernel's elements. May run at the same time as any other call. */
  async read(dump: CounterDump): Promise<void> {
    this.#restarted = new Set();
    const rows = this.#read.length / 2;
    if (this.#before.length !== rows) this.#before = new Float64Array(rows);
    for (let row = 0; row < rows; row++) this.#before[row] = this.#read[row * 2];
    try {
      const batch = await dump();
      if (batch !== undefined) await this.#noteAll(batch);
    } finally {
      this.#restarted = undefined;
    }
  }

  async #noteAll(batch: ElementBatch): Promise<void> {
    const counterAt = columnWord(batch, "counter");
    if (counterAt < 0) return;
    const noVerdict = (): number => 0;
    const catchAll = catchAllIn(batch);
    await eachRecord(batch, noVerdict, (words, at, _data, _dataAt, record) => {
      const row = record === catchAll ? this.rows.unkeyed : this.rows.find(words, at);
      if (row >= 0) this.note(row, words, at + counterAt);
    });
  }

  /** Notes the counter at `words[at]` of the kernel's element. */
  note(row: number, words: Int32Array, at: number): void {
    if (this.#restarting.has(row) || this.#restarted?.has(row) === true) return;
    this.#put(row, readU64(words, at), readU64(words, at + 2));
  }

  /** Packs the row's element. It starts from the count of the element that it replaces, or from the last reading if there is none. */
  add(row: number, inKernel: boolean, writer: BatchWriter): void {
    if (inKernel && !this.#carries(row)) {
      this.#restarting.add(row);
      return writer.add(row);
    }
    if (inKernel) writer.carryNext();
    writer.add(row, this.#read[row * 2] ?? 0, this.#read[row * 2 + 1] ?? 0);
  }

  #carries(row: number): boolean {
    const carries = this.set.spec.counters?.carries;
    return carries === undefined || carries(this.rows.kernelBytes(row), this.rows.dataBytes(row));
  }

  /** The kernel has committed the transaction. */
  settle({ addRows }: PackedChange): void {
    if (this.#restarting.size === 0) return;
    for (let i = 0; i < addRows.length; i++) {
      const row = addRows.rows[i];
      if (!this.#restarting.delete(row)) continue;
      this.#put(row, 0, 0);
      this.#restarted?.add(row);
    }
  }

  /** The kernel has not committed the transaction. */
  abort({ addRows }: PackedChange): void {
    for (let i = 0; i < addRows.length; i++) this.#restarting.delete(addRows.rows[i]);
  }

  /** From now on the row belongs to another element. */
  freed(row: number): void {
    this.#restarting.delete(row);
    this.#read.fill(0, row * 2, row * 2 + 2);
    this.#before.fill(0, row, row + 1);
    this.#restarted?.add(row);
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
