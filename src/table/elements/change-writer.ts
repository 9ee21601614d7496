import type { ElementBatch, Verdict } from "../../kernel/types.js";
import { bytesAt, unpadded } from "./bytes.js";
import { rangeRecords } from "../rules/intervals.js";
import { KEY, type PackedMap } from "./packed-map.js";
import type { VerdictRegistry } from "./verdicts.js";

export interface PackedBatches {
  readonly adds?: ElementBatch;
  readonly deletes?: ElementBatch;
}

/** What packs the rows of a set. */
export interface RowWriter {
  /** With the data at `data[at]`. */
  add(row: number, data: Int32Array, at: number): void;
  delete(row: number): void;
  finish(): PackedBatches;
}

/** Bytes of a set's elements. */
export interface Widths {
  readonly keyLen: number;
  readonly dataLen: number;
}

/** Writes element records, and the few verdicts that they use, into buffers that grow. */
export class ChangeWriter implements RowWriter {
  #adds: Int32Array<ArrayBuffer>;
  #addCount = 0;
  #deletes = new Int32Array(16);
  #deleteCount = 0;
  readonly #used: Verdict[] = [];
  readonly #numbers = new Map<number, number>();

  constructor(
    readonly map: PackedMap,
    readonly widths: Widths,
    readonly verdicts: VerdictRegistry | undefined,
    /** About as many additions are to come. */
    additions: number,
  ) {
    this.#adds = new Int32Array(additions * (map.keyWords + map.dataWords));
  }

  add(row: number, data: Int32Array, at: number): void {
    const { keyWords, dataWords } = this.map;
    const to = this.#addCount++ * (keyWords + dataWords);
    const adds = (this.#adds = roomFor(this.#adds, to + keyWords + dataWords));
    const words = this.map.words(row);
    const from = this.map.at(row) + KEY;
    for (let i = 0; i < keyWords; i++) adds[to + i] = words[from + i];
    if (this.verdicts !== undefined) adds[to + keyWords] = this.#number(data[at]);
    else for (let i = 0; i < dataWords; i++) adds[to + keyWords + i] = data[at + i];
  }

  delete(row: number): void {
    const { keyWords } = this.map;
    const to = this.#deleteCount++ * keyWords;
    this.#deletes = roomFor(this.#deletes, to + keyWords);
    const from = this.map.at(row) + KEY;
    this.#deletes.set(this.map.words(row).subarray(from, from + keyWords), to);
  }

  finish(): PackedBatches {
    const { keyLen, dataLen } = this.widths;
    const verdicts = this.verdicts === undefined ? {} : { verdicts: this.#used };
    const adds = { count: this.#addCount, keyLen, dataLen, ...verdicts };
    const deletes = { count: this.#deleteCount, keyLen, dataLen: 0 };
    return {
      ...(adds.count > 0 ? { adds: { ...adds, bytes: unpadded(this.#adds, adds) } } : {}),
      ...(deletes.count > 0 ? { deletes: { ...deletes, bytes: unpadded(this.#deletes, deletes) } } : {}),
    };
  }

  #number(id: number): number {
    const known = this.#numbers.get(id);
    if (known !== undefined || this.verdicts === undefined) return known ?? 0;
    this.#numbers.set(id, this.#used.length);
    return this.#used.push(this.verdicts.get(id)) - 1;
  }
}

/**
 * Writes ranges. A start and its end go out next to each other, in this order: since Linux 6.18 the kernel wants an
 * end to be deleted right behind its start.
 */
export class RangeWriter implements RowWriter {
  readonly #adds: Uint8Array[] = [];
  readonly #deletes: Uint8Array[] = [];

  constructor(
    readonly map: PackedMap,
    readonly widths: Widths,
  ) {}

  add(row: number): void {
    this.#adds.push(...rangeRecords(this.#key(row)));
  }

  delete(row: number): void {
    this.#deletes.push(...rangeRecords(this.#key(row)));
  }

  finish(): PackedBatches {
    const [adds, deletes] = [this.#adds, this.#deletes].map((records) => ({
      count: records.length,
      keyLen: this.widths.keyLen / 2,
      dataLen: 0,
      flags: true,
      bytes: Uint8Array.from(Buffer.concat(records)),
    }));
    return { ...(adds.count > 0 ? { adds } : {}), ...(deletes.count > 0 ? { deletes } : {}) };
  }

  #key(row: number): Uint8Array {
    return bytesAt(this.map.words(row), this.map.at(row) + KEY, this.widths.keyLen);
  }
}

function roomFor(buffer: Int32Array<ArrayBuffer>, length: number): Int32Array<ArrayBuffer> {
  if (length <= buffer.length) return buffer;
  const larger = new Int32Array(Math.max(length, buffer.length * 2));
  larger.set(buffer);
  return larger;
}
