/**
 * Addresses, networks and ports as ranges of numbers; and ranges as the kernel's red-black tree wants them: an element where a range
 * starts, and one with the flag NFT_SET_ELEM_INTERVAL_END at the first value behind it, which is absent behind the very last value.
 */
import { addressBytes as bytesOf, formatAddress } from "../../base/ip.js";
import { ElementFlag } from "../../kernel/constants.js";
import { batchLayout } from "../../kernel/element-batch.js";
import type { ElementBatch } from "../../kernel/types.js";
import { readU32, writeU32 } from "../elements/bytes.js";

/** An inclusive range of addresses (or ports). */
export interface Range {
  readonly from: bigint;
  readonly to: bigint;
}

export interface Network extends Range {
  readonly version: 4 | 6;
}

/** Bytes of an address, 4 or 16. Throws RangeError for anything but one address in canonical dotted or colon form. */
export function addressBytes(text: string): Uint8Array {
  const bytes = bytesOf(text);
  if (bytes === undefined) throw new RangeError(`not an IP address: ${JSON.stringify(text)}`);
  return bytes;
}

/** Parses `ADDRESS` or `ADDRESS/PREFIX`; bits behind the prefix are ignored. */
export function parseNetwork(text: string): Network {
  const slash = text.indexOf("/");
  const bytes = addressBytes(slash < 0 ? text : text.slice(0, slash));
  const bits = bytes.length * 8;
  const prefix = slash < 0 ? String(bits) : text.slice(slash + 1);
  if (!/^\d{1,3}$/.test(prefix) || Number(prefix) > bits)
    throw new RangeError(`not a network: ${JSON.stringify(text)}`);
  const host = (1n << BigInt(bits - Number(prefix))) - 1n;
  const from = bytesToNumber(bytes) & ~host;
  return { version: bytes.length === 4 ? 4 : 6, from, to: from | host };
}

/** Sorts, and joins ranges that overlap or touch. */
export function mergeRanges(ranges: readonly Range[]): Range[] {
  const sorted = ranges.toSorted((a, b) => (a.from < b.from ? -1 : a.from > b.from ? 1 : 0));
  const merged: { from: bigint; to: bigint }[] = [];
  for (const { from, to } of sorted) {
    const last = merged.at(-1);
    if (last !== undefined && from <= last.to + 1n) last.to = to > last.to ? to : last.to;
    else merged.push({ from, to });
  }
  return merged;
}

/** Length of the prefix that is exactly this range, when there is one. */
export function prefixLength(range: Range, bits: number): number | undefined {
  const span = range.to - range.from + 1n;
  if ((span & (span - 1n)) !== 0n || range.from % span !== 0n) return undefined;
  return bits - (span.toString(2).length - 1);
}

export function bytesToNumber(bytes: Uint8Array): bigint {
  let value = 0n;
  for (const byte of bytes) value = (value << 8n) | BigInt(byte);
  return value;
}

/** Network byte order. */
export function numberToBytes(value: bigint, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let i = length - 1, rest = value; i >= 0; i--, rest >>= 8n) bytes[i] = Number(rest & 0xffn);
  return bytes;
}

/** Text of an address as nft prints it. */
export const addressText = formatAddress;

/** `a.b.c.d/n`, a single address, or `from-to`. */
export function rangeText(range: Range, length: number): string {
  const from = addressText(numberToBytes(range.from, length));
  if (range.from === range.to) return from;
  const prefix = prefixLength(range, length * 8);
  return prefix === undefined ? `${from}-${addressText(numberToBytes(range.to, length))}` : `${from}/${prefix}`;
}

/** Records of key and 4 bytes of element flags. `ranges` as mergeRanges gives them. */
export function intervalRecords(ranges: readonly Range[], keyLen: number): Uint8Array[] {
  return ranges.flatMap((range) => rangeRecords(rangeKey(range, keyLen)));
}

/** First and last value of a range, one behind the other. */
export function rangeKey(range: Range, keyLen: number): Uint8Array {
  const key = new Uint8Array(keyLen * 2);
  key.set(numberToBytes(range.from, keyLen));
  key.set(numberToBytes(range.to, keyLen), keyLen);
  return key;
}

export function rangeOfKey(key: Uint8Array): Range {
  return { from: bytesToNumber(key.subarray(0, key.length / 2)), to: bytesToNumber(key.subarray(key.length / 2)) };
}

/** The elements that a range is in the kernel: its start, and its end unless it reaches the last value. */
export function rangeRecords(key: Uint8Array): Uint8Array[] {
  const keyLen = key.length / 2;
  const { from, to } = rangeOfKey(key);
  const start = record(from, 0, keyLen);
  return to === maximum(keyLen) ? [start] : [start, record(to + 1n, ElementFlag.intervalEnd, keyLen)];
}

/**
 * The ranges that dumped elements stand for, whatever their order.
 * `complete` is false when there are others among them: a catch-all, or a start inside another range.
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
      // nft opens an interval set that does not start at zero with the end of nothing.
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
