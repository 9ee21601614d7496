/** Converts fields of keys and data between readable values ("192.0.2.1", "tcp", 443, "eth0") and the kernel's bytes. Pure. */
import { LITTLE_ENDIAN } from "../base/byte-order.js";
import { counted } from "../base/counted.js";
import { addressBytes, formatAddress } from "../base/ip.js";
import { FIELD_TYPES, type FieldType, isInterfaceName, protocolNumber } from "../table/table-exports.js";
import { FieldError } from "./field-error.js";

export { FieldError } from "./field-error.js";

/** Names of transport protocols, as in /etc/protocols. Other protocols have only numbers. */
export type ProtocolName =
  "tcp" | "udp" | "sctp" | "icmp" | "icmpv6" | "udplite" | "dccp" | "gre" | "esp" | "ah" | "igmp" | "vrrp" | "ipip";
export type Protocol = ProtocolName | number;

/** The readable value of each type of field. */
export interface FieldValues {
  /** "192.0.2.1" */
  readonly ipv4_addr: string;
  /** "2001:db8::1" */
  readonly ipv6_addr: string;
  /** "tcp", or a number from 0 to 255. */
  readonly inet_proto: Protocol;
  /** A port, from 0 to 65535. */
  readonly inet_service: number;
  /** 32 bits. */
  readonly mark: number;
  /** 32 bits, or as `tc` writes it: "15:3", with both parts in hex. */
  readonly classid: number | `${string}:${string}`;
  /** At most 15 bytes. A prefix (`*`) is rejected. */
  readonly ifname: string;
  /** A result of `numgen`: 32 bits. */
  readonly index: number;
}

/** One value for a single field, a tuple for a concatenation: `["10.96.0.80", "tcp", 80]`. */
export type FieldsValue<Fields extends readonly FieldType[]> = Fields extends readonly [infer Only extends FieldType]
  ? FieldValues[Only]
  : { readonly [Index in keyof Fields]: FieldValues[Fields[Index]] };

export const EXPECTED: Readonly<Record<FieldType, string>> = {
  ipv4_addr: 'an IPv4 address ("192.0.2.1")',
  ipv6_addr: 'an IPv6 address ("2001:db8::1")',
  inet_proto: 'a protocol ("tcp", or a number from 0 to 255)',
  inet_service: "a port from 0 to 65535",
  mark: "a mark from 0 to 4294967295",
  classid: 'a class ("15:3", or a number from 0 to 4294967295)',
  ifname: "an interface's name of 1 to 15 bytes, without * (prefixes need a set with interval: true)",
  index: "an index from 0 to 4294967295",
};

const ALL_BITS = 0xffffffff;

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
    const [only] = fields;
    const length =
      fields.length === 1 ? FIELD_TYPES[only].bytes : fields.reduce((sum, field) => sum + widthOf(field), 0);
    this.#bytes = new Uint8Array(length);
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
      if (!this.#write(fields[0], value, 0)) throw this.#error(0, value);
      return this.#bytes;
    }
    if (!Array.isArray(value) || value.length !== fields.length) {
      throw new FieldError(this.#where, `[${fields.join(", ")}], or ${counted(this.#bytes.length, "byte")}`, value);
    }
    let at = 0;
    for (const [index, field] of fields.entries()) {
      if (!this.#write(field, value[index], at)) throw this.#error(index, value[index]);
      at += widthOf(field);
    }
    return this.#bytes;
  }

  /** Returns the value of packed bytes: a tuple, or the value itself if there is a single field. */
  unpack(bytes: Uint8Array): unknown {
    let at = 0;
    const values = this.#fields.map((field) => {
      const value = readField(field, bytes.subarray(at, at + FIELD_TYPES[field].bytes));
      at += widthOf(field);
      return value;
    });
    return values.length === 1 ? values[0] : values;
  }

  #error(index: number, value: unknown): FieldError {
    const field = this.#fields[index];
    const name = this.#fields.length === 1 ? this.#where : `${this.#where}[${index}]`;
    return new FieldError(`${name} (${field})`, EXPECTED[field], value);
  }

  /** Returns false if the value is invalid for such a field. */
  #write(field: FieldType, value: unknown, at: number): boolean {
    switch (field) {
      case "ipv4_addr":
      case "ipv6_addr":
        return this.#copy(typeof value === "string" ? addressBytes(value) : undefined, FIELD_TYPES[field].bytes, at);
      case "inet_proto": {
        const number = protocolOf(value);
        if (number !== undefined) this.#bytes[at] = number;
        return number !== undefined;
      }
      case "inet_service":
        if (!isInteger(value, 0xffff)) return false;
        this.#words.setUint16(at, value);
        return true;
      case "mark":
      case "index":
        return this.#writeNumber(value, at);
      case "classid":
        return this.#writeNumber(typeof value === "string" ? classOf(value) : value, at);
      case "ifname": {
        const fits = typeof value === "string" && isInterfaceName(value);
        if (fits) this.#bytes.set(Buffer.from(value), at);
        return fits;
      }
    }
  }

  #copy(bytes: Uint8Array | undefined, length: number, at: number): boolean {
    if (bytes?.length !== length) return false;
    this.#bytes.set(bytes, at);
    return true;
  }

  /** Writes in the machine's own byte order, as the kernel does for such fields. */
  #writeNumber(value: unknown, at: number): boolean {
    if (!isInteger(value, ALL_BITS)) return false;
    this.#words.setUint32(at, value, LITTLE_ENDIAN);
    return true;
  }
}

/** In a concatenation, every field starts at a multiple of 4 bytes. */
export function widthOf(field: FieldType): number {
  return Math.ceil(FIELD_TYPES[field].bytes / 4) * 4;
}

function isInteger(value: unknown, most: number): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= most;
}

/** Returns the number of a protocol given by number or name, or undefined if it is invalid. */
export function protocolOf(value: unknown): number | undefined {
  if (typeof value !== "string" && typeof value !== "number") return undefined;
  try {
    return protocolNumber(value);
  } catch {
    return undefined;
  }
}

function classOf(text: string): number | undefined {
  const [, major, minor] = /^([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i.exec(text) ?? [];
  return major === undefined ? undefined : Number.parseInt(major, 16) * 0x10000 + Number.parseInt(minor, 16);
}

function readField(field: FieldType, bytes: Uint8Array): string | number {
  const words = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  switch (field) {
    case "ipv4_addr":
    case "ipv6_addr":
      return formatAddress(bytes);
    case "inet_proto":
      return bytes[0];
    case "inet_service":
      return words.getUint16(0);
    case "mark":
    case "classid":
    case "index":
      return words.getUint32(0, LITTLE_ENDIAN);
    case "ifname":
      return Buffer.from(bytes).toString().replace(/\0+$/, "");
  }
}
