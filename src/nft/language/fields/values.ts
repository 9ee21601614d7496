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

/** Reads one value or range. Throws RangeError. */
function rangeOf(operand: TypedField, value: unknown): Range {
  const { type } = operand;
  const width = numeric(operand);
  if (Array.isArray(value)) {
    if (value.length !== 2) throw new RangeError(`expected [from, to], found ${JSON.stringify(value)}`);
    const [from, to] = [toNumber(type, value[0], width), toNumber(type, value[1], width)];
    if (to < from) throw new RangeError(`not a range: ${value[0]}-${value[1]}`);
    return { from, to };
  }
  if (FIELD_TYPES[type].kind === "address" && typeof value === "string" && /[/-]/.test(value)) {
    const { version, ...range } = parseRange(value);
    if (version !== (width.length === 4 ? 4 : 6))
      throw new RangeError(`expected ${expectedValue(type)}, found ${JSON.stringify(value)}`);
    return range;
  }
  const from = toNumber(type, value, width);
  return { from, to: from };
}

/** Returns the first of the values that is none of this field, or undefined. */
export function firstWrong(operand: TypedField, value: unknown): unknown {
  const isText = FIELD_TYPES[operand.type].kind === "text";
  const isWrong = (one: unknown): boolean => {
    try {
      rangeOf(operand, isText && typeof one === "string" ? one.replace(/(.)\*$|^\*$/, "$1_").slice(0, 15) : one);
      return false;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      return true;
    }
  };
  return (Array.isArray(value) ? value : [value]).find(isWrong);
}

/** Reads a value, or a list of values and ranges. Touching networks are joined; other single values stay single, so that nft lists them as they were given. */
export function rangesOf(operand: TypedField, value: unknown): readonly Range[] {
  if (!Array.isArray(value)) return [rangeOf(operand, value)];
  if (value.length === 0) throw new RangeError("expected at least one value");
  const ranges = value.map((one) => rangeOf(operand, one));
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
export function flagsOf(operand: TypedField, value: unknown): number {
  const flags = (Array.isArray(value) ? value : [value]).map((one) =>
    Number(toNumber(operand.type, one, operand.width)),
  );
  return flags.reduce((all, flag) => all | flag, 0) >>> 0;
}
