/**
 * Converts ranges to the form of the kernel's red-black tree. An element marks the start of a range. An element with the flag
 * NFT_SET_ELEM_INTERVAL_END marks the first value after it, but is absent if the range ends at the largest value.
 */
import { bytesToNumber, numberToBytes, type Range } from "../../base/ip-ranges.js";
import { ElementFlag } from "../../netlink/constants.js";
import { batchLayout } from "../../netlink/element-batch.js";
import type { ElementBatch } from "../../netlink/kernel.js";
import { readU32, writeU32 } from "../elements/bytes.js";

/** The first and the last value of a range, one after the other. */
export function rangeKey(range: Range, keyLen: number): Uint8Array {
  const key = new Uint8Array(keyLen * 2);
  key.set(numberToBytes(range.from, keyLen));
  key.set(numberToBytes(range.to, keyLen), keyLen);
  return key;
}

export function rangeOfKey(key: Uint8Array): Range {
  return { from: bytesToNumber(key.subarray(0, key.length / 2)), to: bytesToNumber(key.subarray(key.length / 2)) };
}

/**
 * Returns the kernel's elements for the ranges: a start for each, and an end unless the range reaches the largest value. The ranges must come from
 * mergeRanges. An end directly follows its start: since Linux 6.18 the kernel requires this order for deletion.
 */
export function rangeElements(ranges: readonly Range[], keyLen: number): ElementBatch {
  const records = ranges.flatMap(({ from, to }) => {
    const start = record(from, 0, keyLen);
    return to === maximum(keyLen) ? [start] : [start, record(to + 1n, ElementFlag.intervalEnd, keyLen)];
  });
  return { count: records.length, keyLen, dataLen: 0, flags: true, bytes: Uint8Array.from(Buffer.concat(records)) };
}

/**
 * Returns the ranges of dumped elements, in any order. `complete` is false if there are other elements: a catch-all, or a start inside
 * another range.
 */
export function rangesOfBatch(batch: ElementBatch): { ranges: Range[]; complete: boolean } {
  const layout = batchLayout(batch);
  const points: { at: bigint; flags: number }[] = [];
  for (let i = 0; i < batch.count; i++) {
    const base = i * layout.stride;
    const flags = layout.flags < 0 ? 0 : readU32(batch.bytes, base + layout.flags);
    points.push({ at: bytesToNumber(batch.bytes.subarray(base, base + batch.keyLen)), flags });
  }
  const inOrder = points.toSorted((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : b.flags - a.flags));
  const ranges: Range[] = [];
  let complete = true;
  let from: bigint | undefined;
  for (const { at, flags } of inOrder) {
    if ((flags & ElementFlag.catchall) !== 0) complete = false;
    else if ((flags & ElementFlag.intervalEnd) === 0) {
      if (from !== undefined) complete = false;
      from = at;
    } else if (from !== undefined) {
      ranges.push({ from, to: at - 1n });
      from = undefined;
      // In an interval set that does not start at zero, nft puts an interval end at zero first.
    } else if (at !== 0n) complete = false;
  }
  if (from !== undefined) ranges.push({ from, to: maximum(batch.keyLen) });
  return { ranges, complete };
}

function maximum(keyLen: number): bigint {
  return (1n << BigInt(keyLen * 8)) - 1n;
}

function record(value: bigint, flags: number, keyLen: number): Uint8Array {
  const bytes = new Uint8Array(keyLen + 4);
  bytes.set(numberToBytes(value, keyLen));
  writeU32(bytes, keyLen, flags);
  return bytes;
}
