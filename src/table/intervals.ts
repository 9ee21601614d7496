/**
 * Ranges as the kernel's red-black tree wants them: an element where a range starts, and one with the flag
 * NFT_SET_ELEM_INTERVAL_END at the first value behind it, which is left out behind the very last value.
 */
import { ElementFlag } from "../kernel/constants.js";
import { mergeRanges, numberToBytes, parseNetwork, type Range, bytesToNumber } from "./addresses.js";
import { readU32, writeU32 } from "./bytes.js";
import { TrackedElements } from "./element-set.js";
import type { ElementSet, SetSpec } from "./types.js";

/** Records of key and 4 bytes of element flags. `ranges` as mergeRanges gives them. */
export function intervalRecords(ranges: readonly Range[], keyLen: number): Uint8Array[] {
  const last = (1n << BigInt(keyLen * 8)) - 1n;
  const records: Uint8Array[] = [];
  for (const { from, to } of ranges) {
    records.push(record(from, 0, keyLen));
    if (to !== last) records.push(record(to + 1n, ElementFlag.intervalEnd, keyLen));
  }
  return records;
}

/** The ranges that such records stand for, whatever their order. */
export function rangesOfRecords(records: readonly Uint8Array[], keyLen: number): Range[] {
  const points = records
    .map((bytes) => ({
      at: bytesToNumber(bytes.subarray(0, keyLen)),
      end: (readU32(bytes, keyLen) & ElementFlag.intervalEnd) !== 0,
    }))
    .toSorted((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : Number(b.end) - Number(a.end)));
  const ranges: Range[] = [];
  let from: bigint | undefined;
  for (const point of points) {
    if (!point.end) {
      from = point.at;
      continue;
    }
    if (from !== undefined) ranges.push({ from, to: point.at - 1n });
    from = undefined;
  }
  if (from !== undefined) ranges.push({ from, to: (1n << BigInt(keyLen * 8)) - 1n });
  return ranges;
}

function record(value: bigint, flags: number, keyLen: number): Uint8Array {
  const bytes = new Uint8Array(keyLen + 4);
  bytes.set(numberToBytes(value, keyLen));
  writeU32(bytes, keyLen, flags);
  return bytes;
}

/** The wanted networks of an interval set; its rows are the tree's start and end elements. */
export class TrackedIntervals extends TrackedElements implements ElementSet {
  readonly #width: number;

  constructor(spec: SetSpec, keyLen: number) {
    super(spec, { keyLen: keyLen + 4, dataLen: 0, keyFlags: true });
    this.#width = keyLen;
  }

  override replaceNets(nets: readonly string[]): void {
    const networks = nets.map((net) => {
      const network = parseNetwork(net);
      if (network.version !== (this.#width === 4 ? 4 : 6))
        throw new RangeError(`set ${this.spec.set}: ${net} is of the other family`);
      return network;
    });
    const records = intervalRecords(mergeRanges(networks), this.#width);
    const wanted = new Set(records.map(hex));
    const gone: Uint8Array[] = [];
    this.forEach((key) => {
      if (!wanted.has(hex(key))) gone.push(key.slice());
    });
    for (const key of gone) super.delete(key);
    for (const key of records) super.put(key);
  }

  /** Merged ranges that are wanted. */
  ranges(): Range[] {
    const records: Uint8Array[] = [];
    this.forEach((key) => records.push(key.slice()));
    return rangesOfRecords(records, this.#width);
  }

  override put(): never {
    throw new TypeError(`set ${this.spec.set} is an interval set: use replaceNets`);
  }

  override delete(): never {
    throw new TypeError(`set ${this.spec.set} is an interval set: use replaceNets`);
  }

  override deleteLater(): never {
    throw new TypeError(`set ${this.spec.set} is an interval set: use replaceNets`);
  }
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}
