/** Values of rules and sets in nft's notation, from their bytes in the kernel. Pure. */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { formatAddress } from "../../base/ip.js";
import { bytesToNumber, numberToBytes, prefixLength } from "../bytes/ip-ranges.js";
import { protocolName, registeredName } from "../../base/protocols.js";
import { IpProto } from "../kernel/constants.js";
import {
  classidText,
  classNumbers,
  FIELD_TYPES,
  type ValueType,
  type Width,
  widthOf,
} from "../language/fields/field-types.js";
import { padded } from "../language/schema.js";

/** How a value is kept. "raw": a number that nft prints in hexadecimal digits. */
export interface Form extends Width {
  readonly type: ValueType | "raw";
  /** Bits to the right of the value. */
  readonly shift?: number;
}

export interface ValueStyle {
  /** Returns the name of an interface. Without it, indices are printed as numbers, which nft reads as well. */
  readonly interfaceName?: ((index: number) => string | undefined) | undefined;
  /** Whether the text must not depend on files of the machine (/etc/protocols). */
  readonly isPortable?: boolean | undefined;
}

export function formOf(type: ValueType): Form {
  return { type, ...widthOf(type) };
}

/** Bytes of values, each padded to 4 bytes. A single one is not. */
export function lengthOf(forms: readonly Form[]): number {
  return forms.length === 1 ? forms[0].length : forms.reduce((sum, { length }) => sum + padded(length), 0);
}

/** Splits the bytes of values. */
export function partsOf<T>(forms: readonly Form[], data: Uint8Array, use: (form: Form, part: Uint8Array) => T): T[] {
  let at = 0;
  return forms.map((form) => {
    const part = data.subarray(at, forms.length === 1 ? undefined : at + form.length);
    at += padded(form.length);
    return use(form, part);
  });
}

/** "10.96.0.10 . tcp . 80" */
export function dataText(forms: readonly Form[], data: Uint8Array, style: ValueStyle): string {
  return partsOf(forms, data, (form, part) => valueText(form, part, style)).join(" . ");
}

/** "10.0.0.0/8 . 80-90" */
export function rangesText(forms: readonly Form[], from: Uint8Array, to: Uint8Array, style: ValueStyle): string {
  const ends = partsOf(forms, to, (_, part) => part);
  return partsOf(forms, from, (form, part) => intervalText(form, part, ends.shift()!, style)).join(" . ");
}

export function numberOf({ hostOrder, shift = 0 }: Pick<Form, "hostOrder" | "shift">, data: Uint8Array): bigint {
  return bytesToNumber(hostOrder && LITTLE_ENDIAN ? data.toReversed() : data) >> BigInt(shift);
}

export function valueText(form: Form, data: Uint8Array, style: ValueStyle): string {
  const { type } = form;
  const kind = type === "raw" ? "number" : FIELD_TYPES[type].kind;
  if (kind === "address" && (data.length === 4 || data.length === 16)) return addressText(data);
  if (kind === "ether")
    return Buffer.from(data)
      .toString("hex")
      .replaceAll(/(..)(?=.)/g, "$1:");
  if (kind === "text") return nameText(data);
  return numberText(type, numberOf(form, data), style);
}

/** Like the C library, prints an IPv4 address inside an IPv6 address with its dots. */
export function addressText(data: Uint8Array): string {
  const text = formatAddress(data);
  const isMapped = data.length === 16 && /^::(?:ffff:)?[0-9a-f]+:[0-9a-f]+$/.test(text);
  return isMapped ? `${/^::(?:ffff:)?/.exec(text)![0]}${formatAddress(data.subarray(12))}` : text;
}

/** Types of which nft prints some ranges as networks. */
const PREFIXED: ReadonlySet<string> = new Set(["ipv4_addr", "ipv6_addr", "mark", "devgroup", "realm"]);

/** "10.0.0.0/8". Undefined if the type has no networks, or this range is none. */
export function networkText(form: Form, from: bigint, to: bigint, style: ValueStyle): string | undefined {
  const isNetwork = style.isPortable === true ? form.type.endsWith("_addr") : PREFIXED.has(form.type);
  const prefix = isNetwork ? prefixLength({ from, to }, form.bits) : undefined;
  return prefix === undefined ? undefined : `${valueText(form, bytesOfNumber(form, from), style)}/${prefix}`;
}

function bytesOfNumber({ length, hostOrder }: Form, value: bigint): Uint8Array {
  const bytes = numberToBytes(value, length);
  return hostOrder && LITTLE_ENDIAN ? bytes.toReversed() : bytes;
}

/** A range that nft prints as a network or the beginning of a name where it can. */
function intervalText(form: Form, from: Uint8Array, to: Uint8Array, style: ValueStyle): string {
  if (Buffer.compare(from, to) === 0) return valueText(form, from, style);
  const kind = form.type === "raw" ? "number" : FIELD_TYPES[form.type].kind;
  if (kind === "text") return nameText(from.subarray(0, from.findLastIndex((byte) => byte !== 0) + 1));
  return networkText(form, numberOf(form, from), numberOf(form, to), style) ?? rangeOfValues(form, from, to, style);
}

/** In ranges, nft reads no names. */
export function rangeOfValues(form: Form, from: Uint8Array, to: Uint8Array, style: ValueStyle): string {
  return [from, to]
    .map((end) => {
      const { type } = form;
      const isClass = type !== "raw" && FIELD_TYPES[type].kind === "class";
      if (isClass) return classNumbers(Number(numberOf(form, end)));
      const isNumber = type !== "raw" && !["address", "ether", "text"].includes(FIELD_TYPES[type].kind);
      return isNumber ? plainText(type, numberOf(form, end)) : valueText(form, end, style);
    })
    .join("-");
}

/** A name without its NUL is the beginning of names. */
function nameText(data: Uint8Array): string {
  // Bytes that are no text stand for something unknown.
  const name = Buffer.from(data).toString().replaceAll("\ufffd", "…");
  const end = name.indexOf("\0");
  return end < 0 ? `"${name}*"` : `"${name.slice(0, end).replace(/\*$/, String.raw`\*`)}"`;
}

/** Hexadecimal digits that nft prints, by type. */
const HEX_DIGITS: Readonly<Partial<Record<string, number>>> = { mark: 8, dscp: 2, ecn: 1, ether_type: 4 };

/** A number without names of values. */
function plainText(type: ValueType | "raw", value: bigint): string {
  const digits = HEX_DIGITS[type];
  if (type === "raw" || digits !== undefined || FIELD_TYPES[type].kind === "flags")
    return `0x${value.toString(16).padStart(digits ?? 1, "0")}`;
  if (FIELD_TYPES[type].kind === "class") return classidText(Number(value));
  if (type === "time") return durationText(value);
  return type === "hour" ? clockText(Number(value)) : String(value);
}

function numberText(type: ValueType | "raw", value: bigint, { interfaceName, isPortable }: ValueStyle): string {
  if (type === "raw") return plainText(type, value);
  const { kind, names } = FIELD_TYPES[type];
  if (kind === "protocol") return protocolText(Number(value), isPortable === true);
  if (kind === "flags") return flagsOf(type, value).join(" | ");
  const name = type === "iface_index" ? interfaceName?.(Number(value)) : nameOf(names, value);
  if (name === undefined) return plainText(type, value);
  return type === "day" || type === "iface_index" ? `"${name}"` : name;
}

function protocolText(number: number, isPortable: boolean): string {
  if (number === IpProto.icmpv6) return "ipv6-icmp";
  return isPortable ? protocolName(number) : registeredName(number);
}

function nameOf(names: Readonly<Record<string, number>>, value: bigint): string | undefined {
  for (const name in names) if (BigInt(names[name]) === value) return name;
  return undefined;
}

/** One word for each bit, from the lowest on. */
export function flagsOf(type: ValueType, value: bigint): string[] {
  if (value === 0n) return ["0x0"];
  const flags: string[] = [];
  for (let bit = 1n; bit <= value; bit <<= 1n)
    if ((value & bit) !== 0n) flags.push(nameOf(FIELD_TYPES[type].names, bit) ?? plainText(type, bit));
  return flags;
}

const UNITS: readonly (readonly [name: string, ms: bigint])[] = [
  ["d", 86_400_000n],
  ["h", 3_600_000n],
  ["m", 60_000n],
  ["s", 1000n],
  ["ms", 1n],
];

/** "1h30m" */
export function durationText(ms: bigint): string {
  let rest = ms;
  const parts = UNITS.map(([name, unit]) => {
    const count = rest / unit;
    rest %= unit;
    return count === 0n ? "" : `${count}${name}`;
  });
  return parts.join("") || "0s";
}

/** Time of day of this machine, from seconds of a day in UTC. */
function clockText(seconds: number): string {
  // Only a number says that this is no time of a day: it never matches.
  if (seconds >= 86_400) return String(seconds);
  const shift = new Date().getTimezoneOffset() * 60;
  const time = new Date((((seconds - shift) % 86_400) + 86_400) * 1000).toISOString().slice(11, 19);
  return `"${time.replace(/:00$/, "")}"`;
}
