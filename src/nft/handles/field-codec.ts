/** Converts fields of keys and data between readable values ("192.0.2.1", "tcp", 443, "eth0") and the kernel's bytes. Pure. */
import { counted } from "../../base/counted.js";
export type { FieldValues, Protocol, ProtocolName } from "../language/fields/field-types.js";
import { bytesOf, expectedValue, readValue, writeValue } from "../language/fields/field-types.js";
import type { FieldType, FieldValues } from "../language/fields/field-types.js";
import { packedBytes, padded } from "../language/schema.js";
import { FieldError } from "../language/fields/field-error.js";

export { FieldError } from "../language/fields/field-error.js";

/** One value for a single field, a tuple for a concatenation: `["10.96.0.80", "tcp", 80]`. */
export type FieldsValue<Fields extends readonly FieldType[]> = Fields extends readonly [infer Only extends FieldType]
  ? FieldValues[Only]
  : { readonly [Index in keyof Fields]: FieldValues[Fields[Index]] };

/** Converts one part of a set. Errors call it `where`, such as "set services, key". */
export class FieldCodec {
  readonly #where: string;
  readonly #fields: readonly FieldType[];
  /** Overwritten by every `pack`. */
  readonly #bytes: Uint8Array;
  readonly #words: DataView;

  constructor(where: string, fields: readonly FieldType[]) {
    this.#where = where;
    this.#fields = fields;
    this.#bytes = new Uint8Array(packedBytes(fields));
    this.#words = new DataView(this.#bytes.buffer);
  }

  get length(): number {
    return this.#bytes.length;
  }

  /** Returns the bytes of a value, valid until the next call. A value that is bytes is returned unchanged. Throws FieldError. */
  pack(value: unknown): Uint8Array {
    const fields = this.#fields;
    if (value instanceof Uint8Array) {
      if (value.length === this.#bytes.length) return value;
      throw new FieldError(this.#where, counted(this.#bytes.length, "byte"), value);
    }
    this.#bytes.fill(0);
    if (fields.length === 1) {
      if (!writeValue(fields[0], value, this.#words, 0)) throw this.#error(0, value);
      return this.#bytes;
    }
    if (!Array.isArray(value) || value.length !== fields.length) {
      throw new FieldError(this.#where, `[${fields.join(", ")}], or ${counted(this.#bytes.length, "byte")}`, value);
    }
    let at = 0;
    for (const [index, field] of fields.entries()) {
      if (!writeValue(field, value[index], this.#words, at)) throw this.#error(index, value[index]);
      at += padded(bytesOf(field));
    }
    return this.#bytes;
  }

  /** Returns the value of packed bytes: a tuple, or the value itself if there is a single field. */
  unpack(bytes: Uint8Array): unknown {
    let at = 0;
    const values = this.#fields.map((field) => {
      const value = readValue(field, bytes.subarray(at, at + bytesOf(field)));
      at += padded(bytesOf(field));
      return value;
    });
    return values.length === 1 ? values[0] : values;
  }

  #error(index: number, value: unknown): FieldError {
    const field = this.#fields[index];
    const name = this.#fields.length === 1 ? this.#where : `${this.#where}[${index}]`;
    return new FieldError(`${name} (${field})`, expectedValue(field), value);
  }
}
