/** Converts keys of interval sets between readable ranges ("192.0.2.0/24", { from: 1000, to: 2000 }, "eth*") and the bytes of rows (nft/language/intervals.ts). Pure. */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { counted } from "../../base/counted.js";
import { rangeText } from "../bytes/ip-ranges.js";
import { bytesOf, readValue, widthOf } from "../language/fields/field-types.js";
import type { FieldType, FieldValues } from "../language/fields/field-types.js";
import { isSwapped, rangeKey, rangeOfKey } from "../language/intervals.js";
import { within } from "../language/fields/field-error.js";
import { rangeOf, type ValueRange } from "../language/fields/values.js";
import { packedBytes, padded } from "../language/schema.js";
import { FieldError } from "./field-codec.js";

/**
 * A value, or all values between two, both included. Addresses are text: "192.0.2.1", "192.0.2.0/24" or "192.0.2.1-192.0.2.9". An interface is its name, or
 * the beginning of names: "eth*".
 */
export type FieldRange<Type extends FieldType> = Type extends "ipv4_addr" | "ipv6_addr" | "ifname"
  ? string
  : FieldValues[Type] | ValueRange<FieldValues[Type]>;

/** A key of an interval set: one range for a single field, a tuple for a concatenation: `["192.0.2.0/24", { from: 80, to: 90 }]`. */
export type FieldsRange<Fields extends readonly FieldType[]> = Fields extends readonly [infer Only extends FieldType]
  ? FieldRange<Only>
  : { readonly [Index in keyof Fields]: FieldRange<Fields[Index]> };

export class RangeCodec {
  readonly #where: string;
  readonly #fields: readonly FieldType[];
  /** Bytes of one end. */
  readonly #length: number;

  constructor(where: string, fields: readonly FieldType[]) {
    this.#where = where;
    this.#fields = fields;
    this.#length = packedBytes(fields);
  }

  /** Returns the bytes of a range: the first value, then the last one. Bytes are returned unchanged. Throws FieldError. */
  pack(value: unknown): Uint8Array {
    const fields = this.#fields;
    const length = this.#length;
    if (value instanceof Uint8Array) {
      if (value.length === length * 2) return value;
      throw new FieldError(this.#where, counted(length * 2, "byte"), value);
    }
    const ranges: readonly unknown[] = fields.length === 1 ? [value] : Array.isArray(value) ? value : [];
    if (ranges.length !== fields.length)
      throw new FieldError(this.#where, `[${fields.join(", ")}], or ${counted(length * 2, "byte")}`, value);
    const bytes = new Uint8Array(length * 2);
    let at = 0;
    for (const [index, field] of fields.entries()) {
      const ends = this.#ends(index, ranges[index]);
      bytes.set(ends.subarray(0, ends.length / 2), at);
      bytes.set(ends.subarray(ends.length / 2), length + at);
      at += padded(bytesOf(field));
    }
    return bytes;
  }

  /** Returns the range of packed bytes: a tuple, or the range itself if there is a single field. */
  unpack(bytes: Uint8Array): unknown {
    let at = 0;
    const ranges = this.#fields.map((field) => {
      const [from, to] = [at, this.#length + at].map((start) => bytes.slice(start, start + bytesOf(field)));
      at += padded(bytesOf(field));
      return rangeIn(field, from, to);
    });
    return ranges.length === 1 ? ranges[0] : ranges;
  }

  /** Returns the first and the last value of a field, in network byte order. */
  #ends(index: number, value: unknown): Uint8Array {
    const type = this.#fields[index];
    const where = this.#fields.length === 1 ? this.#where : `${this.#where}[${index}]`;
    const range = within(`${where} (${type})`, () => rangeOf({ type, width: widthOf(type) }, value));
    return rangeKey(range, bytesOf(type));
  }
}

function rangeIn(field: FieldType, from: Uint8Array, to: Uint8Array): unknown {
  if (field === "ipv4_addr" || field === "ipv6_addr")
    return rangeText(rangeOfKey(Buffer.concat([from, to])), from.length);
  const reverse = isSwapped(field) && LITTLE_ENDIAN;
  const [first, last] = [from, to].map((end) => readValue(field, reverse ? end.toReversed() : end));
  if (first === last) return first;
  return field === "ifname" ? `${String(first)}*` : { from: first, to: last };
}
