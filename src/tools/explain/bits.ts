/** Bytes with unknown bits, and operations on them. Pure. */
import { CmpOp } from "../../netlink/constants.js";

/** Undefined if the answer depends on unknown bits. */
export type Ternary = boolean | undefined;

export interface Bits {
  /** Unknown bits are 0. */
  readonly bytes: Uint8Array;
  /** A set bit is known. Absent if all bits are known. */
  readonly known?: Uint8Array;
}

export function exactly(bytes: Uint8Array): Bits {
  return { bytes };
}

export function unknownBits(length: number): Bits {
  return { bytes: new Uint8Array(length), known: new Uint8Array(length) };
}

/** A 32-bit number in the host's byte order. @param known mask of the known bits. */
export function hostNumber(value: number, known = -1): Bits {
  const bytes = (number: number): Uint8Array => new Uint8Array(Uint32Array.of(number).buffer);
  return known === -1 ? exactly(bytes(value)) : { bytes: bytes(value & known), known: bytes(known) };
}

/** A number in the host's byte order, of which only the upper bound is known: 0 to `most`. */
export function numberUpTo(most: number): Bits {
  const free = most === 0 ? 0 : 2 ** (32 - Math.clz32(most)) - 1;
  return hostNumber(0, ~free);
}

export function isKnown({ known }: Bits): boolean {
  return known?.every((byte) => byte === 0xff) ?? true;
}

/** Clears the unknown bits, and drops the mask if everything is known. */
function tidy(bytes: Uint8Array, known: Uint8Array): Bits {
  if (known.every((byte) => byte === 0xff)) return { bytes };
  return { bytes: bytes.map((byte, i) => byte & known[i]), known };
}

export function partOf({ bytes, known }: Bits, from: number, length: number): Bits {
  const part = bytes.slice(from, from + length);
  return known === undefined ? { bytes: part } : tidy(part, known.slice(from, from + length));
}

/** Returns `whole` with `part` at offset `at`. */
export function withPart(whole: Bits, at: number, part: Bits): Bits {
  const bytes = whole.bytes.slice();
  bytes.set(part.bytes, at);
  if (whole.known === undefined && part.known === undefined) return { bytes };
  const known = whole.known?.slice() ?? new Uint8Array(bytes.length).fill(0xff);
  known.set(part.known ?? new Uint8Array(part.bytes.length).fill(0xff), at);
  return tidy(bytes, known);
}

/** Computes (value & mask) ^ flip, as nft_bitwise does. A bit that the mask clears is known. */
export function masked({ bytes, known }: Bits, mask: Uint8Array, flip: Uint8Array | undefined): Bits {
  const value = bytes.map((byte, i) => (byte & (mask[i] ?? 0)) ^ (flip?.[i] ?? 0));
  if (known === undefined) return { bytes: value };
  return tidy(
    value,
    known.map((byte, i) => byte | ~(mask[i] ?? 0)),
  );
}

/**
 * Shifts 32-bit words in the host's byte order as one number, with the highest word first (nft_bitwise_eval_lshift and
 * _rshift).
 */
export function shifted({ bytes, known }: Bits, by: number, left: boolean): Bits {
  const width = BigInt(bytes.length * 8);
  const all = (1n << width) - 1n;
  const amount = BigInt(by);
  const shift = (value: bigint, fill: bigint): Uint8Array => {
    const moved = left
      ? ((value << amount) | (fill >> (width - amount))) & all
      : (value >> amount) | (fill << (width - amount));
    return wordsFrom(moved & all, bytes.length);
  };
  const value = shift(bigOf(bytes), 0n);
  return known === undefined ? { bytes: value } : tidy(value, shift(bigOf(known), all));
}

function bigOf(bytes: Uint8Array): bigint {
  const words = new Uint32Array(bytes.slice(0, bytes.length & ~3).buffer);
  return words.reduce((all, word) => (all << 32n) | BigInt(word), 0n);
}

function wordsFrom(value: bigint, length: number): Uint8Array {
  const words = new Uint32Array(length / 4);
  for (let i = words.length - 1, rest = value; i >= 0; i--, rest >>= 32n) words[i] = Number(rest & 0xffffffffn);
  return new Uint8Array(words.buffer);
}

/** Reverses each field of `size` bytes. */
export function swapped({ bytes, known }: Bits, size: number): Bits {
  const turn = (all: Uint8Array): Uint8Array => {
    const result = all.slice();
    for (let at = 0; at < all.length; at += size) result.subarray(at, at + size).reverse();
    return result;
  };
  return known === undefined ? { bytes: turn(bytes) } : { bytes: turn(bytes), known: turn(known) };
}

/** The largest possible value. The smallest is `bytes`. */
export function largest({ bytes, known }: Bits): Uint8Array {
  return known === undefined ? bytes : bytes.map((byte, i) => byte | (~known[i] & 0xff));
}

/** Whether the value equals `data`. */
export function equals({ bytes, known }: Bits, data: Uint8Array): Ternary {
  for (let i = 0; i < data.length; i++) {
    const among = known?.[i] ?? 0xff;
    if (((bytes[i] ?? 0) & among) !== (data[i] & among)) return false;
  }
  return known === undefined || isKnown({ bytes, known }) ? true : undefined;
}

/** Compares in memcmp order (nft_cmp_eval). */
export function compares(value: Bits, op: number, data: Uint8Array): Ternary {
  const not = (result: Ternary): Ternary => (result === undefined ? undefined : !result);
  const low = Buffer.compare(value.bytes, data);
  const high = Buffer.compare(largest(value), data);
  const below: Ternary = high < 0 ? true : low >= 0 ? false : undefined;
  const notAbove: Ternary = high <= 0 ? true : low > 0 ? false : undefined;
  switch (op) {
    case CmpOp.eq:
      return equals(value, data);
    case CmpOp.neq:
      return not(equals(value, data));
    case CmpOp.lt:
      return below;
    case CmpOp.lte:
      return notAbove;
    case CmpOp.gt:
      return not(notAbove);
    default:
      return not(below);
  }
}

/** Whether the value is between `from` and `to`, inclusive. */
export function isWithin(value: Bits, from: Uint8Array, to: Uint8Array): Ternary {
  const [low, high] = [compares(value, CmpOp.gte, from), compares(value, CmpOp.lte, to)];
  if (low === false || high === false) return false;
  return low === true && high === true ? true : undefined;
}

/** Returns the bits that all values have in common. */
export function common(all: readonly Uint8Array[]): Bits {
  const [first = new Uint8Array(), ...others] = all;
  const known = first.map((byte, i) => others.reduce((same, other) => same & ~(byte ^ other[i]), 0xff));
  return tidy(first, known);
}

/** A key: equal for equal bits. */
export function textOf({ bytes, known }: Bits): string {
  const latin = (all: Uint8Array): string => Buffer.from(all).toString("latin1");
  return known === undefined ? latin(bytes) : `${latin(bytes)}?${latin(known)}`;
}
