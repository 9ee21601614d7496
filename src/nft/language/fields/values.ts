/** Values that a rule compares a field with: single ones, ranges, networks and flags, as bytes and as nft's text. */
import {
  bytesToNumber,
  mergeRanges,
  numberToBytes,
  parseRange,
  prefixLength,
  type Range,
} from "../../bytes/ip-ranges.js";
import { LITTLE_ENDIAN } from "../../../base/byte-order.js";
import { isObject } from "../../../base/shape.js";
import { FieldError, within } from "./field-error.js";
import { bytesOfValue, expectedValue, FIELD_TYPES, isNumeric, type ValueType, type Width } from "./field-types.js";

/** The type and the form of a value. */
export interface TypedField {
  readonly type: ValueType;
  readonly width: Width;
}

/** Converts to the order of the field, or to network order. */
export function toBytes(value: bigint, { length, hostOrder }: Width): Uint8Array {
  const isLittle = hostOrder && LITTLE_ENDIAN;
  // The most frequent case, in the shortest way.
  if (length <= 4) {
    const bytes = new Uint8Array(length);
    for (let i = 0, rest = Number(value); i < length; i++, rest >>>= 8)
      bytes[isLittle ? i : length - 1 - i] = rest & 0xff;
    return bytes;
  }
  const bytes = numberToBytes(value, length);
  return isLittle ? bytes.toReversed() : bytes;
}

function toNumber(type: ValueType, value: unknown, width: Width): bigint {
  // The most frequent case, in the shortest way.
  if (typeof value === "number" && isNumeric(type) && Number.isInteger(value) && value >= 0 && value < 2 ** width.bits)
    return BigInt(value);
  const bytes = bytesOfValue(type, value, width);
  return bytesToNumber(width.hostOrder && LITTLE_ENDIAN ? bytes.toReversed() : bytes);
}

/** The form of a type's values as numbers. Text has the order of its letters. */
export function numeric({ type, width }: TypedField): Width {
  return FIELD_TYPES[type].kind === "text" ? { ...width, hostOrder: false } : width;
}

/** All values between two, both included. */
export interface ValueRange<V> {
  readonly from: V;
  readonly to: V;
}

/** Why a range is refused. */
export const ORDERED_RANGE = "a range whose end is not before its start";

function isRange(value: unknown): value is ValueRange<unknown> {
  return isObject(value) && Object.keys(value).toSorted().join() === "from,to";
}

/** Reads one value or range. Throws FieldError. */
export function rangeOf(operand: TypedField, value: unknown): Range {
  const { type } = operand;
  const width = numeric(operand);
  if (isRange(value)) {
    const from = within("from", () => toNumber(type, value.from, width));
    const to = within("to", () => toNumber(type, value.to, width));
    if (to < from) throw new FieldError("", ORDERED_RANGE, value);
    return { from, to };
  }
  if (Array.isArray(value)) throw new FieldError("", `${expectedValue(type, width.bits)}, or { from, to }`, value);
  const { kind } = FIELD_TYPES[type];
  if (kind === "address") {
    const range = typeof value === "string" ? parseRange(value) : undefined;
    if (range?.version === (width.length === 4 ? 4 : 6)) return { from: range.from, to: range.to };
    throw new FieldError("", `${expectedValue(type)}, a network or a range ("FROM-TO")`, value);
  }
  if (kind === "text" && typeof value === "string" && value.endsWith("*")) {
    const [from, rest] = [toNumber(type, value.slice(0, -1), width), width.length + 1 - Buffer.byteLength(value)];
    return { from, to: from | ((1n << BigInt(rest * 8)) - 1n) };
  }
  const from = toNumber(type, value, width);
  return { from, to: from };
}

/** Reads a value, or a list of values and ranges. Touching networks are joined; other single values stay single, so that nft lists them as they were given. */
export function rangesOf(operand: TypedField, value: unknown): readonly Range[] {
  if (!Array.isArray(value)) return [rangeOf(operand, value)];
  if (value.length === 0) throw new FieldError("", "at least one value", value);
  const ranges = value.map((one, index) => within(`[${index}]`, () => rangeOf(operand, one)));
  const single = ranges.every(({ from, to }) => from === to) && FIELD_TYPES[operand.type].kind !== "address";
  return single ? distinct(ranges) : mergeRanges(ranges);
}

function distinct(ranges: readonly Range[]): Range[] {
  return [...new Set(ranges.map((range) => range.from))]
    .toSorted((a, b) => (a < b ? -1 : 1))
    .map((from) => ({ from, to: from }));
}

/** The length of the range's prefix if it is a network, not a single address. */
export function prefixOf({ type, width }: TypedField, range: Range): number | undefined {
  if (FIELD_TYPES[type].kind !== "address" || range.from === range.to) return undefined;
  return prefixLength(range, width.bits);
}

/** The union of flags, given by name or number. */
export function flagsOf(operand: TypedField, value: unknown): bigint {
  const flagOf = (one: unknown): bigint => toNumber(operand.type, one, operand.width);
  const flags = Array.isArray(value)
    ? value.map((one, index) => within(`[${index}]`, () => flagOf(one)))
    : [flagOf(value)];
  return flags.reduce((all, flag) => all | flag, 0n);
}
