/** What the rows of one set have counted: read from the kernel, and carried over to the elements that replace them. */
import type { ElementBatch } from "../../kernel/types.js";
import type { SetSpec } from "../rules/types.js";
import { type BatchWriter, eachOfFew, eachRecord, type Widths } from "./batches.js";
import { bytesAt } from "./bytes.js";
import { counterWord, ElementCounters, readCount } from "./counters.js";
import { KEY, type PackedMap } from "./packed-map.js";
import type { PackedChange, Taken } from "./packing.js";
import type { Rows } from "./rows.js";

/** Reads elements of a set with counters from the kernel. */
export interface CounterSource {
  /** Those of these keys, at once. */
  byKey(set: string, keys: Uint8Array): ElementBatch | undefined;
  all(set: string): Promise<ElementBatch | undefined>;
}

/** As many elements that are to be replaced are asked for one by one, some microseconds each, and not by a dump. */
const MOST_BY_KEY = 100;

export class CountedRows {
  readonly #counters = new ElementCounters();

  /** @param source undefined: the kernel has no counters, or cannot be asked. */
  constructor(
    readonly map: PackedMap,
    readonly rows: Rows,
    readonly set: Widths & { readonly spec: SetSpec },
    readonly source: () => CounterSource | undefined,
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
      await this.#readAll();
    } finally {
      counters.endReading();
    }
  }

  async #readAll(): Promise<void> {
    const batch = await this.source()?.all(this.set.spec.set);
    const counterAt = batch === undefined ? -1 : counterWord(batch);
    if (batch === undefined || counterAt < 0) return;
    await eachRecord(
      batch,
      () => 0,
      (words, at) => {
        const row = this.map.find(words, at);
        if (row >= 0) this.note(row, words, at + counterAt);
      },
    );
  }

  /** The kernel's element has counted what is at `words[at]`. */
  note(row: number, words: Int32Array, at: number): void {
    this.#counters.note(row, readCount(words, at), readCount(words, at + 2));
  }

  /** What the elements have counted that the taken rows replace: of a few at once, of many once the promise is done. */
  readReplaced(taken: Taken, most: number): Promise<void> | undefined {
    if (this.rows.kernelSize === 0) return undefined;
    const source = this.source();
    const keys: Uint8Array[] = [];
    for (let i = taken.packed; i < Math.min(taken.limit, taken.packed + most); i++) {
      const row = taken.every ? i : taken.rows.rows[i];
      const state = this.rows.of(row);
      if (this.rows.isInKernel(state) && (taken.full || !this.rows.isInForce(state))) keys.push(this.#keyAt(row));
    }
    if (source === undefined || keys.length === 0) return undefined;
    if (keys.length > MOST_BY_KEY) return this.#readAll();
    const batch = source.byKey(this.set.spec.set, keys.length === 1 ? keys[0] : Buffer.concat(keys));
    const counterAt = batch === undefined ? -1 : counterWord(batch);
    if (batch === undefined || counterAt < 0) return undefined;
    eachOfFew(batch, (words, at) => {
      const row = this.map.find(words, at);
      if (row >= 0) this.note(row, words, at + counterAt);
    });
    return undefined;
  }

  /** Packs the row's element, which goes on counting where the one that was there ends. */
  add(row: number, data: Int32Array, dataAt: number, inKernel: boolean, writer: BatchWriter): void {
    const { carries = (): boolean => true } = this.set.spec.counters ?? {};
    const { dataLen } = this.set;
    const former = bytesAt(this.rows.kernelWords(row), this.rows.kernelAt(row), dataLen);
    const goesOn = !inKernel || carries(former, bytesAt(data, dataAt, dataLen));
    const packets = goesOn ? this.#counters.packets(row) : 0;
    if (inKernel || packets > 0) this.#counters.replacing(row, packets, inKernel && goesOn);
    writer.add(row, data, dataAt, packets, this.#counters.bytes(row));
  }

  /** The transaction is in force. `ends`: the elements that it deleted, with what they had counted. */
  settle({ addRows }: PackedChange, ends?: ElementBatch): void {
    if (!this.#counters.replacingAny) return;
    const ended = new Map<number, number>();
    if (ends !== undefined) {
      const counterAt = counterWord(ends);
      eachOfFew(ends, (words, at) => {
        ended.set(this.map.find(words, at), readCount(words, at + counterAt));
      });
    }
    for (let i = 0; i < addRows.length; i++) {
      const row = addRows.rows[i];
      const missed = this.#counters.replaced(row, ended.get(row));
      if (missed > 0) this.set.spec.counters?.missed?.(this.#keyAt(row).slice(), missed);
    }
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
