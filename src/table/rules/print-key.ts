/** Prints packed keys and data as nft's own text. Pure. */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { bytesToNumber, rangeText } from "../../base/ip-ranges.js";
import { bytesOf, FIELD_TYPES, type FieldType, hex, readValue, valueText } from "./field-types.js";
import { isSwapped } from "./intervals.js";
import type { SetSpec } from "./rule.js";
import { padded } from "./schema.js";

/** Prints the key of a row: in an interval set, a range. */
export function printKey({ key, interval }: SetSpec, bytes: Uint8Array): string {
  if (bytes.length === 0) return "*";
  if (interval !== true) return printPacked(key, bytes);
  let at = 0;
  return key
    .map((field) => {
      const width = bytesOf(field);
      const [from, to] = [at, bytes.length / 2 + at].map((start) => bytes.subarray(start, start + width));
      at += padded(width);
      return printRange(field, from, to);
    })
    .join(" . ");
}

function printRange(field: FieldType, from: Uint8Array, to: Uint8Array): string {
  const [first, last] = isSwapped(field) && LITTLE_ENDIAN ? [from, to].map((bytes) => bytes.toReversed()) : [from, to];
  if (Buffer.compare(from, to) === 0) return valueText(field, first);
  switch (FIELD_TYPES[field].kind) {
    case "address":
      return rangeText({ from: bytesToNumber(from), to: bytesToNumber(to) }, from.length);
    case "ether":
      return `${valueText(field, from)}-${valueText(field, to)}`;
    case "text":
      return valueText(field, from).replace(/"$/, '*"');
    default:
      return [first, last].map((bytes) => printEnd(field, Number(readValue(field, bytes)))).join("-");
  }
}

/** In a range, nft reads a name with the dash after it as one word. */
function printEnd(field: FieldType, value: number): string {
  const { kind } = FIELD_TYPES[field];
  if (kind === "class") return `${(value >>> 16).toString(16)}:${(value & 0xffff).toString(16)}`;
  if (field === "time") return `${value}ms`;
  return field === "mark" || kind === "flags" ? hex(value) : String(value);
}

export function printPacked(fields: readonly FieldType[], bytes: Uint8Array): string {
  let at = 0;
  return fields
    .map((field) => {
      const width = bytesOf(field);
      const from = at;
      at += padded(width);
      return valueText(field, bytes.subarray(from, from + width));
    })
    .join(" . ");
}
