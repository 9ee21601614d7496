import type { ElementBatch, Verdict } from "../kernel/types.js";
import { readU32, writeU32 } from "./bytes.js";
import type { PackedMap } from "./packed-map.js";
import type { VerdictRegistry } from "./verdicts.js";

/** Writes element records, and the few verdicts that they use, into buffers that grow. */
export class ChangeWriter {
  #adds = new Uint8Array(1024);
  #addCount = 0;
  #deletes = new Uint8Array(1024);
  #deleteCount = 0;
  readonly #used: Verdict[] = [];
  readonly #numbers = new Map<number, number>();

  constructor(
    readonly map: PackedMap,
    readonly verdicts: VerdictRegistry | undefined,
    readonly keyFlags: boolean,
  ) {}

  add(row: number, data: Uint8Array, dataAt: number): void {
    const { keyLen, dataLen, keys } = this.map;
    const at = this.#addCount++ * (keyLen + dataLen);
    this.#adds = roomFor(this.#adds, at + keyLen + dataLen);
    copy(keys, row * keyLen, this.#adds, at, keyLen);
    if (this.verdicts === undefined) copy(data, dataAt, this.#adds, at + keyLen, dataLen);
    else writeU32(this.#adds, at + keyLen, this.#number(readU32(data, dataAt)));
  }

  delete(row: number): void {
    const { keyLen, keys } = this.map;
    const at = this.#deleteCount++ * keyLen;
    this.#deletes = roomFor(this.#deletes, at + keyLen);
    copy(keys, row * keyLen, this.#deletes, at, keyLen);
  }

  finish(): { adds?: ElementBatch; deletes?: ElementBatch } {
    const { keyLen: width, dataLen } = this.map;
    const key = { keyLen: this.keyFlags ? width - 4 : width, ...(this.keyFlags ? { flags: true } : {}) };
    const verdicts = this.verdicts === undefined ? {} : { verdicts: this.#used };
    const addBytes = this.#adds.subarray(0, this.#addCount * (width + dataLen));
    const deleteBytes = this.#deletes.subarray(0, this.#deleteCount * width);
    return {
      ...(this.#addCount > 0 ? { adds: { count: this.#addCount, ...key, dataLen, ...verdicts, bytes: addBytes } } : {}),
      ...(this.#deleteCount > 0
        ? { deletes: { count: this.#deleteCount, ...key, dataLen: 0, bytes: deleteBytes } }
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

function copy(from: Uint8Array, fromAt: number, to: Uint8Array, toAt: number, length: number): void {
  for (let i = 0; i < length; i++) to[toAt + i] = from[fromAt + i];
}

function roomFor(buffer: Uint8Array<ArrayBuffer>, length: number): Uint8Array<ArrayBuffer> {
  if (length <= buffer.length) return buffer;
  const larger = new Uint8Array(Math.max(length, buffer.length * 2));
  larger.set(buffer);
  return larger;
}
