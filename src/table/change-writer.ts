import type { ElementBatch, Verdict } from "../kernel/types.js";
import { copyBytes, readU32, writeU32 } from "./bytes.js";
import { rangeRecords } from "./intervals.js";
import type { PackedMap } from "./packed-map.js";
import type { VerdictRegistry } from "./verdicts.js";

export interface PackedBatches {
  readonly adds?: ElementBatch;
  readonly deletes?: ElementBatch;
}

/** What packs the rows of a set. */
export interface RowWriter {
  add(row: number, data: Uint8Array, dataAt: number): void;
  delete(row: number): void;
  finish(): PackedBatches;
}

/** Writes element records, and the few verdicts that they use, into buffers that grow. */
export class ChangeWriter implements RowWriter {
  #adds: Uint8Array<ArrayBuffer>;
  #addCount = 0;
  #deletes = new Uint8Array(64);
  #deleteCount = 0;
  readonly #used: Verdict[] = [];
  readonly #numbers = new Map<number, number>();

  constructor(
    readonly map: PackedMap,
    readonly verdicts: VerdictRegistry | undefined,
    /** About as many additions are to come. */
    additions: number,
  ) {
    this.#adds = new Uint8Array(additions * (map.keyLen + map.dataLen));
  }

  add(row: number, data: Uint8Array, dataAt: number): void {
    const { keyLen, dataLen } = this.map;
    const at = this.#addCount++ * (keyLen + dataLen);
    this.#adds = roomFor(this.#adds, at + keyLen + dataLen);
    this.map.copyKey(row, this.#adds, at);
    if (this.verdicts === undefined) copyBytes(data, dataAt, this.#adds, at + keyLen, dataLen);
    else writeU32(this.#adds, at + keyLen, this.#number(readU32(data, dataAt)));
  }

  delete(row: number): void {
    const { keyLen } = this.map;
    const at = this.#deleteCount++ * keyLen;
    this.#deletes = roomFor(this.#deletes, at + keyLen);
    this.map.copyKey(row, this.#deletes, at);
  }

  finish(): PackedBatches {
    const { keyLen, dataLen } = this.map;
    const verdicts = this.verdicts === undefined ? {} : { verdicts: this.#used };
    const addBytes = this.#adds.subarray(0, this.#addCount * (keyLen + dataLen));
    const deleteBytes = this.#deletes.subarray(0, this.#deleteCount * keyLen);
    return {
      ...(this.#addCount > 0 ? { adds: { count: this.#addCount, keyLen, dataLen, ...verdicts, bytes: addBytes } } : {}),
      ...(this.#deleteCount > 0
        ? { deletes: { count: this.#deleteCount, keyLen, dataLen: 0, bytes: deleteBytes } }
        : {}),
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

  constructor(readonly map: PackedMap) {}

  add(row: number): void {
    this.#adds.push(...rangeRecords(this.map.keyAt(row)));
  }

  delete(row: number): void {
    this.#deletes.push(...rangeRecords(this.map.keyAt(row)));
  }

  finish(): PackedBatches {
    const [adds, deletes] = [this.#adds, this.#deletes].map((records) => ({
      count: records.length,
      keyLen: this.map.keyLen / 2,
      dataLen: 0,
      flags: true,
      bytes: Uint8Array.from(Buffer.concat(records)),
    }));
    return { ...(adds.count > 0 ? { adds } : {}), ...(deletes.count > 0 ? { deletes } : {}) };
  }
}

function roomFor(buffer: Uint8Array<ArrayBuffer>, length: number): Uint8Array<ArrayBuffer> {
  if (length <= buffer.length) return buffer;
  const larger = new Uint8Array(Math.max(length, buffer.length * 2));
  larger.set(buffer);
  return larger;
}
