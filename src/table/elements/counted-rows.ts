/** What the rows of one set have counted: read from the kernel, and carried over to the elements that replace them. */
import type { ElementBatch } from "../../kernel/types.js";
import type { SetSpec } from "../rules/types.js";
import { type BatchWriter, eachRecord, type Widths } from "./batches.js";
import { bytesAt } from "./bytes.js";
import { counterWord, ElementCounters, readCount } from "./counters.js";
import { KEY, type PackedMap } from "./packed-map.js";
import type { PackedChange } from "./packing.js";
import type { Rows } from "./rows.js";

/** Reads the elements of a set with counters from the kernel; undefined: the kernel has no such set, or one without. */
export type CounterSource = (set: string) => Promise<ElementBatch | undefined>;

export class CountedRows {
  readonly #counters = new ElementCounters();

  constructor(
    readonly map: PackedMap,
    readonly rows: Rows,
    readonly set: Widths & { readonly spec: SetSpec },
    readonly source: CounterSource,
  ) {}

  packets(key: Int32Array): number {
    const row = this.map.find(key);
    return row < 0 ? 0 : this.#counters.packets(row);
  }

  /** As of the reading before the last. */
  before(key: Int32Array): number {
    const row = this.map.find(key);
    return row < 0 ? 0 : this.#counters.before(row);
  }

  /** Reads what the kernel's elements have counted; beside whatever else is done. */
  async read(): Promise<void> {
    const counters = this.#counters;
    counters.beginReading();
    counters.keepBefore();
    try {
      const batch = await this.source(this.set.spec.set);
      if (batch !== undefined) await this.#noteAll(batch);
    } finally {
      counters.endReading();
    }
  }

  async #noteAll(batch: ElementBatch): Promise<void> {
    const counterAt = counterWord(batch);
    if (counterAt < 0) return;
    const noVerdict = (): number => 0;
    await eachRecord(batch, noVerdict, (words, at) => {
      const row = this.map.find(words, at);
      if (row >= 0) this.note(row, words, at + counterAt);
    });
  }

  /** The kernel's element has counted what is at `words[at]`. */
  note(row: number, words: Int32Array, at: number): void {
    this.#counters.note(row, readCount(words, at), readCount(words, at + 2));
  }

  /** Packs the row's element, which goes on counting where the one that was there ends. */
  add(row: number, data: Int32Array, dataAt: number, inKernel: boolean, writer: BatchWriter): void {
    const counters = this.#counters;
    const goesOn = !inKernel || this.#carries(row, data, dataAt);
    if (inKernel && goesOn) writer.carryNext();
    const packets = goesOn ? counters.packets(row) : 0;
    const bytes = goesOn ? counters.bytes(row) : 0;
    if (inKernel || packets > 0) counters.writing(row, packets, bytes);
    writer.add(row, data, dataAt, packets, bytes);
  }

  #carries(row: number, data: Int32Array, dataAt: number): boolean {
    const carries = this.set.spec.counters?.carries;
    if (carries === undefined) return true;
    const { dataLen } = this.set;
    const former = bytesAt(this.rows.kernelWords(row), this.rows.kernelAt(row), dataLen);
    return carries(former, bytesAt(data, dataAt, dataLen));
  }

  /** The transaction is in force. `carried`: the counts of `carry` (CommitResult.carried). */
  settle({ addRows, carry }: PackedChange, carried?: Float64Array): void {
    if (!this.#counters.writingAny) return;
    for (let i = 0; i < addRows.length; i++) this.#counters.written(addRows.rows[i]);
    if (carry === undefined || carried === undefined) return;
    carry.forEach((index, i) => {
      const row = addRows.rows[index];
      const [packets, bytes, missed] = carried.subarray(i * 3);
      this.#counters.put(row, packets, bytes);
      if (missed > 0) this.set.spec.counters?.missed?.(this.#keyAt(row).slice(), missed);
    });
  }

  /** It is not. */
  abort({ addRows }: PackedChange): void {
    for (let i = 0; i < addRows.length; i++) this.#counters.aborted(addRows.rows[i]);
  }

  /** The row is another element's from now on. */
  freed(row: number): void {
    this.#counters.freed(row);
    this.set.spec.counters?.gone?.(this.#keyAt(row).slice());
  }

  #keyAt(row: number): Uint8Array {
    return bytesAt(this.map.words(row), this.map.at(row) + KEY, this.set.keyLen);
  }
}
