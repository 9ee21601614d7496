/** Addresses and networks as numeric ranges: parsing, merging, printing. */
import { addressBytes, formatAddress } from "../../base/ip.js";

/** An inclusive range of addresses (or ports). */
export interface Range {
  readonly from: bigint;
  readonly to: bigint;
}

interface Network extends Range {
  readonly version: 4 | 6;
}

/** Parses `ADDRESS` or `ADDRESS/PREFIX`. Bits after the prefix are ignored. Returns undefined for other text. */
export function parseNetwork(text: string): Network | undefined {
  const slash = text.indexOf("/");
  const bytes = addressBytes(slash < 0 ? text : text.slice(0, slash));
  if (bytes === undefined) return undefined;
  const bits = bytes.length * 8;
  const prefix = slash < 0 ? String(bits) : text.slice(slash + 1);
  if (!/^\d{1,3}$/.test(prefix) || Number(prefix) > bits) return undefined;
  const host = (1n << BigInt(bits - Number(prefix))) - 1n;
  const from = bytesToNumber(bytes) & ~host;
  return { version: bytes.length === 4 ? 4 : 6, from, to: from | host };
}

/** Parses the output of `rangeText`: like `parseNetwork`, and also `FROM-TO`. */
export function parseRange(text: string): Network | undefined {
  const dash = text.indexOf("-");
  if (dash < 0) return parseNetwork(text);
  const [from, to] = [text.slice(0, dash), text.slice(dash + 1)].map(addressBytes);
  if (from === undefined || to?.length !== from.length) return undefined;
  const range = { from: bytesToNumber(from), to: bytesToNumber(to) };
  return range.to < range.from ? undefined : { version: from.length === 4 ? 4 : 6, ...range };
}

/** Sorts the ranges, and joins those that overlap or touch. */
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

/** Returns the length of the prefix that equals this range, or undefined if there is none. */
export function prefixLength(range: Range, bits: number): number | undefined {
  const span = range.to - range.from + 1n;
  if ((span & (span - 1n)) !== 0n || range.from % span !== 0n) return undefined;
  return bits - (span.toString(2).length - 1);
}

export function bytesToNumber(bytes: Uint8Array): bigint {
  return BigInt(`0x0${Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("hex")}`);
}

/** Converts to network byte order. */
export function numberToBytes(value: bigint, length: number): Uint8Array {
  const digits = BigInt.asUintN(length * 8, value).toString(16);
  return Uint8Array.from(Buffer.from(digits.padStart(length * 2, "0"), "hex"));
}

/** Address in nft's notation. */
export const addressText = formatAddress;

/** Returns `a.b.c.d/n`, a single address, or `from-to`. */
export function rangeText(range: Range, length: number): string {
  const from = addressText(numberToBytes(range.from, length));
  if (range.from === range.to) return from;
  const prefix = prefixLength(range, length * 8);
  return prefix === undefined ? `${from}-${addressText(numberToBytes(range.to, length))}` : `${from}/${prefix}`;
}
