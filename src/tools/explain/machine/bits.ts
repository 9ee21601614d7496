/** Bytes with unknown bits, and operations on them. Pure. */
import { LITTLE_ENDIAN } from "../../../base/byte-order.js";
import { CmpOp } from "../../../nft/kernel/constants.js";

/** Undefined if the answer depends on unknown bits. */
export type Ternary = boolean | undefined;

export interface Bits {
  /** Unknown bits are 0. */
  readonly bytes: Uint8Array;
  /** A set bit is known. */
  readonly known: Uint8Array;
}

export function exactly(bytes: Uint8Array): Bits {
  return { bytes, known: new Uint8Array(bytes.length).fill(0xff) };
}

export function unknownBits(length: number): Bits {
  return { bytes: new Uint8Array(length), known: new Uint8Array(length) };
}

/** A 32-bit number in the host's byte order. @param known mask of the known bits. */
export function hostNumber(value: number, known = -1): Bits {
  const bytes = (number: number): Uint8Array => new Uint8Array(Uint32Array.of(number).buffer);
  return { bytes: bytes(value & known), known: bytes(known) };
}

/** Returns a 32-bit number of the host. Undefined if a bit is unknown. */
export function numberIn(bits: Bits): number | undefined {
  return isKnown(bits) ? new Uint32Array(bits.bytes.slice(0, 4).buffer)[0] : undefined;
}

/** A number in the host's byte order, of which only the upper bound is known: 0 to `most`. */
export function numberUpTo(most: number): Bits {
  const free = most === 0 ? 0 : 2 ** (32 - Math.clz32(most)) - 1;
  return hostNumber(0, ~free);
}

export function isKnown({ known }: Bits): boolean {
  return known.every((byte) => byte === 0xff);
}

function tidy(bytes: Uint8Array, known: Uint8Array): Bits {
  return { bytes: bytes.map((byte, i) => byte & known[i]), known };
}

export function partOf({ bytes, known }: Bits, from: number, length: number): Bits {
  return { bytes: bytes.slice(from, from + length), known: known.slice(from, from + length) };
}

/** Returns `whole` with `part` at offset `at`. */
export function withPart(whole: Bits, at: number, part: Bits): Bits {
  const [bytes, known] = [whole.bytes.slice(), whole.known.slice()];
  bytes.set(part.bytes, at);
  known.set(part.known, at);
  return { bytes, known };
}

/** Computes (value & mask) ^ flip, as nft_bitwise does. A bit that the mask clears is known. */
export function masked({ bytes, known }: Bits, mask: Uint8Array, flip?: Uint8Array): Bits {
  return tidy(
    bytes.map((byte, i) => (byte & (mask[i] ?? 0)) ^ (flip?.[i] ?? 0)),
    known.map((byte, i) => byte | ~(mask[i] ?? 0)),
  );
}

export function exclusiveOr(one: Bits, other: Bits): Bits {
  return tidy(
    one.bytes.map((byte, i) => byte ^ other.bytes[i]),
    one.known.map((byte, i) => byte & other.known[i]),
  );
}

/**
 * Shifts 32-bit words in the host's byte order as one number, with the highest word first (nft_bitwise_eval_lshift and
 * _rshift).
 */
export function shifted(bits: Bits, by: number, left: boolean): Bits {
  const inOrder = (words: Bits): Bits => (LITTLE_ENDIAN ? swapped(words, 4) : words);
  const { bytes, known } = inOrder(bits);
  const offset = Math.floor((left ? by : -by) / 8);
  const rest = (left ? by : -by) - 8 * offset;
  const moved = (all: Uint8Array, fill: number): Uint8Array =>
    all.map((_, i) => ((all[i + offset] ?? fill) << rest) | ((all[i + offset + 1] ?? fill) >>> (8 - rest)));
  return inOrder({ bytes: moved(bytes, 0), known: moved(known, 0xff) });
}

/** Reverses each field of `size` bytes. */
export function swapped({ bytes, known }: Bits, size: number): Bits {
  const turn = (all: Uint8Array): Uint8Array => {
    const result = all.slice();
    for (let at = 0; at < all.length; at += size) result.subarray(at, at + size).reverse();
    return result;
  };
  return { bytes: turn(bytes), known: turn(known) };
}

/** Whether the value equals `data`. */
export function equals({ bytes, known }: Bits, data: Uint8Array): Ternary {
  for (let i = 0; i < data.length; i++) {
    const among = known[i] ?? 0xff;
    if (((bytes[i] ?? 0) & among) !== (data[i] & among)) return false;
  }
  return isKnown({ bytes, known }) || undefined;
}

/** Compares in memcmp order (nft_cmp_eval). */
export function compares(value: Bits, op: number, data: Uint8Array): Ternary {
  if (op === CmpOp.eq) return equals(value, data);
  if (op === CmpOp.neq) return not(equals(value, data));
  const { bytes, known } = value;
  const low = Buffer.compare(bytes, data);
  const largest = isKnown(value) ? bytes : bytes.map((byte, i) => byte | (~known[i] & 0xff));
  const high = Buffer.compare(largest, data);
  const below: Ternary = high < 0 ? true : low >= 0 ? false : undefined;
  const notAbove: Ternary = high <= 0 ? true : low > 0 ? false : undefined;
  if (op === CmpOp.lt) return below;
  if (op === CmpOp.gte) return not(below);
  return op === CmpOp.lte ? notAbove : not(notAbove);
}

/** Whether the value is between `from` and `to`, inclusive. */
export function isWithin(value: Bits, from: Uint8Array, to: Uint8Array): Ternary {
  return all([compares(value, CmpOp.gte, from), compares(value, CmpOp.lte, to)]);
}

/** A 32-bit number of the host, and the mask of its known bits. */
export function wordOf({ bytes, known }: Bits): readonly [value: number, known: number] {
  const [value = 0, among = 0] = [bytes, known].map((all) => new Uint32Array(all.slice(0, 4).buffer)[0]);
  return [value, among];
}

/** Whether a number of the host has one of the bits. */
export function hasBit(bits: Bits, mask: number): Ternary {
  const [value, among] = wordOf(bits);
  return (value & mask) !== 0 ? true : (~among & mask) === 0 ? false : undefined;
}

export function not(holds: Ternary, isInverted = true): Ternary {
  return holds === undefined ? undefined : holds !== isInverted;
}

export function all(parts: readonly Ternary[]): Ternary {
  return parts.includes(false) ? false : parts.includes(undefined) ? undefined : true;
}

export function any(parts: readonly Ternary[]): Ternary {
  return not(all(parts.map((part) => not(part))));
}

/** Returns the bits that all values have in common. */
export function common(values: readonly Uint8Array[]): Bits {
  const [first = new Uint8Array(), ...others] = values;
  const known = first.map((byte, i) => others.reduce((same, other) => same & ~(byte ^ other[i]), 0xff));
  return tidy(first, known);
}

/** A key: equal for equal bits. */
export function textOf({ bytes, known }: Bits): string {
  return Buffer.concat([bytes, known]).toString("latin1");
}
