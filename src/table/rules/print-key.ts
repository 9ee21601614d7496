/** Prints packed keys and data as nft's own text. Pure. */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { bytesToNumber, rangeText } from "../../base/ip-ranges.js";
import { readU32 } from "../elements/bytes.js";
import { FIELD_TYPES } from "./field-types.js";
import type { FieldType, SetSpec } from "./rule.js";
import { padded } from "./schema.js";

/** Prints the key of a row: in an interval set, a range. */
export function printKey({ key, interval }: SetSpec, bytes: Uint8Array): string {
  if (bytes.length === 0) return "*";
  if (interval !== true) return printPacked(key, bytes);
  let at = 0;
  return key
    .map((field) => {
      const { bytes: width } = FIELD_TYPES[field];
      const [from, to] = [at, bytes.length / 2 + at].map((start) => bytes.subarray(start, start + width));
      at += padded(width);
      return printRange(field, from, to);
    })
    .join(" . ");
}

function printRange(field: FieldType, from: Uint8Array, to: Uint8Array): string {
  const { text, hostOrder } = FIELD_TYPES[field];
  const [first, last] = hostOrder && LITTLE_ENDIAN ? [from, to].map((bytes) => bytes.toReversed()) : [from, to];
  if (Buffer.compare(from, to) === 0) return text(first);
  switch (field) {
    case "ipv4_addr":
    case "ipv6_addr":
      return rangeText({ from: bytesToNumber(from), to: bytesToNumber(to) }, from.length);
    case "ifname":
      return text(from).replace(/"$/, '*"');
    // In a range, nft reads a name with the dash after it as one word.
    case "inet_proto":
      return `${from[0]}-${to[0]}`;
    case "classid":
      return [first, last].map((bytes) => classText(readU32(bytes, 0))).join("-");
    default:
      return `${text(first)}-${text(last)}`;
  }
}

function classText(value: number): string {
  return `${(value >>> 16).toString(16)}:${(value & 0xffff).toString(16)}`;
}

export function printPacked(fields: readonly FieldType[], bytes: Uint8Array): string {
  let at = 0;
  return fields
    .map((field) => {
      const { bytes: width, text } = FIELD_TYPES[field];
      const from = at;
      at += padded(width);
      return text(bytes.subarray(from, from + width));
    })
    .join(" . ");
}
