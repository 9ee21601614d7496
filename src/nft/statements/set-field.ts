/** Actions that write a field of the packet or its connection. */
import { addressBytes } from "../../base/ip.js";
import { either, namesOf, oneOf, optional, record, value, type ValueOf } from "../../base/shape.js";
import { numberToBytes } from "../bytes/ip-ranges.js";
import { ByteorderOp, PayloadBase } from "../kernel/constants.js";
import type { Expr } from "../kernel/kernel.js";
import { FieldError, within } from "../language/fields/field-error.js";
import { bytesOfValue, FIELD_TYPES, type ValueType, type Width } from "../language/fields/field-types.js";
import {
  type FieldEntry,
  type FieldName,
  FIELDS,
  load,
  protocolOfField,
  widthOfField,
} from "../language/fields/packet-fields.js";
import { flagsOf, toBytes } from "../language/fields/values.js";
import { address, anything, type Field, field, isFromMap, key, mapOf, orMap, u32 } from "../language/vocabulary.js";
import { IP_NAME, requireField, versionOf } from "../lowering/dependencies.js";
import { lookUpOrMake } from "../lowering/inline-sets.js";
import { operand } from "../lowering/keys.js";
import { immediate, type LowerContext, lowered, type Lowered, masked } from "../lowering/lowered.js";
import { kind } from "./kind.js";

/** One of a packet's two ends. */
const direction = oneOf("source", "destination");
/** The direction of a packet in its connection, or one of the connection's two tuples. */
const ctDirection = oneOf("original", "reply");
export type Direction = ValueOf<typeof direction>;
export type CtDirectionName = ValueOf<typeof ctDirection>;

const constant = value<string | number | readonly string[]>("a value", (given) =>
  Array.isArray(given) ? given.length > 0 : typeof given === "string" || typeof given === "number",
);
const fromMap = record({ key, map: mapOf("data", anything) }, "an object with key and map");
const fromField = record({ from: field, mask: optional(u32), xor: optional(u32) }, "an object with from");
const source = orMap("{ from } or { key, map }", fromField, fromMap);
const dataSource = either("a value, { from }, or { key, map }", constant, source);
/** A value to write: a constant, a field with some bits changed, or what a map holds. */
export type DataSource = ValueOf<typeof dataSource>;

/** Returns the expression that writes a field, from register 1. */
function write(name: FieldName, { source: from, bits }: FieldEntry): Expr {
  if (from.from === "meta" || from.from === "ct") return { type: from.from, key: from.key, sreg: 1 };
  if (from.from === "exthdr")
    return {
      type: "exthdr",
      op: from.op,
      hdrType: from.header,
      offset: from.offset / 8,
      len: bits / 8,
      sreg: 1,
    };
  if (from.from !== "payload") throw new TypeError(`${name} cannot be written`);
  const range = { base: PayloadBase[from.base], offset: from.offset / 8, len: bits / 8 };
  return { type: "payload", ...range, sreg: 1, ...checksumOf(name) };
}

/** enum nft_payload_csum_types: where the checksum of a header is. */
const CHECKSUMS: Readonly<Record<string, readonly [type: number, offset?: number]>> = {
  ip: [1, 10],
  tcp: [1, 16],
  udp: [1, 6],
  icmp: [1, 2],
  icmpv6: [1, 2],
  igmp: [1, 2],
  sctp: [2, 8],
};
/** Fields that the transport header's checksum covers too. */
const PSEUDO_HEADER = new Set<string>([
  "ip saddr",
  "ip daddr",
  "ip protocol",
  "ip length",
  "ip6 saddr",
  "ip6 daddr",
  "ip6 nexthdr",
  "ip6 length",
]);

function checksumOf(
  name: FieldName,
): Pick<Extract<Expr, { type: "payload" }>, "csumType" | "csumOffset" | "csumFlags"> {
  const [csumType, csumOffset] = CHECKSUMS[protocolOfField(name)] ?? [0];
  const csumFlags = PSEUDO_HEADER.has(name) ? 1 : 0;
  return csumOffset === undefined ? { csumType, csumFlags } : { csumType, csumOffset, csumFlags };
}

/** Writes a field of the packet or its connection. */
function setField(name: FieldName, given: DataSource, context: LowerContext): Lowered {
  const entry: FieldEntry = FIELDS[name];
  within("field", () => requireField(context, name, entry));
  return within("value", () => {
    const { type } = entry;
    const width = widthOfField(entry);
    const isList = Array.isArray(given) && FIELD_TYPES[type].kind === "flags";
    const value = isList ? Number(flagsOf({ type, width }, given)) : given;
    if (entry.source.from === "payload" && typeof value !== "object") return setHeader(name, entry, value);
    if (load(entry, 1).isPartial) throw new FieldError("", `a constant, because ${name} is some bits of a byte`, value);
    return lowered(...valueOf(type, width, value, context).exprs, write(name, entry));
  });
}

/** Writes a constant to a header. Where a checksum has to be corrected, the kernel writes an even number of bytes at an even place. */
function setHeader(name: FieldName, entry: FieldEntry, given: unknown): Lowered {
  const { expr, shift, isPartial } = load(entry, 1);
  const { base, offset, len } = expr as Extract<Expr, { type: "payload" }>;
  const width = widthOfField(entry);
  const data = bytesOfValue(entry.type, given, width);
  const checksum = checksumOf(name);
  const align = checksum.csumType === 0 ? 1 : 2;
  const first = offset - (offset % align);
  const end = Math.ceil((offset + len) / align) * align;
  if (!isPartial && first === offset && end === offset + len) return lowered(immediate(data), write(name, entry));
  const place = BigInt(shift + (end - offset - len) * 8);
  const bytes = end - first;
  const ones = (1n << BigInt(bytes * 8)) - 1n;
  const bits = ((1n << BigInt(entry.bits)) - 1n) << place;
  const xor = data.reduce((all, byte) => (all << 8n) | BigInt(byte), 0n) << place;
  const range = { base, offset: first, len: bytes };
  return lowered(
    { type: "payload", ...range, dreg: 1 },
    masked(numberToBytes(ones ^ bits, bytes), numberToBytes(xor, bytes)),
    { type: "payload", ...range, sreg: 1, ...checksum },
  );
}

/** Loads a value into register 1: a constant, another field, or what a map holds. */
function valueOf(type: ValueType, width: Width, given: DataSource, context: LowerContext): Lowered {
  if (isFromMap(given)) return lookUpOrMake(context, given, [type], [width]);
  if (typeof given !== "object" || !("from" in given)) return lowered(immediate(bytesOfValue(type, given, width)));
  const { from, mask, xor } = given;
  const one = within("from", () => operand(context, from, type === "integer" ? undefined : type));
  const isNumber = one.type === "index" || one.type === "integer" || type === "integer";
  if (one.type !== type && !isNumber)
    throw new FieldError("from", `a field of type ${type}, not ${one.type}`, one.text);
  if (one.width.bits !== width.bits)
    throw new FieldError("from", `a field of ${width.bits} bits, not ${one.width.bits}`, one.text);
  if (one.loaded.isPartial)
    throw new FieldError("from", "a field of whole bytes, because some bits of a byte cannot be copied", one.text);
  const { length } = width;
  const isSwapped = one.width.hostOrder !== width.hostOrder && length > 1;
  const op = one.width.hostOrder ? ByteorderOp.hton : ByteorderOp.ntoh;
  const swap: Expr[] = isSwapped ? [{ type: "byteorder", sreg: 1, dreg: 1, op, len: length, size: length }] : [];
  if (mask === undefined && xor === undefined) return lowered(...one.load(1), ...swap);
  const all = (1n << BigInt(length * 8)) - 1n;
  for (const [place, bits = 0] of [
    ["mask", mask],
    ["xor", xor],
  ] as const)
    if (BigInt(bits) > all) throw new FieldError(place, `at most ${width.bits} bits`, bits);
  const bits = [masked(toBytes(mask === undefined ? all : BigInt(mask), width), toBytes(BigInt(xor ?? 0), width))];
  return lowered(...one.load(1), ...swap, ...bits);
}

const settable = namesOf(FIELDS).filter((one) => (FIELDS[one] as FieldEntry).settable !== undefined);

export const WRITES = {
  /** Writes a field of the packet or its connection. A source that is no constant must have the field's type. */
  set: kind({ field: oneOf<FieldName>(...settable), value: dataSource }, ({ field: name, value: given }, context) =>
    setField(name, given, context),
  ),
  /**
   * Rewrites an address in the packet's header, with its checksums. Connection tracking and the connection's other packets are not affected.
   */
  "set-address": kind(
    {
      direction,
      /** A constant, or the connection's address in one direction. Only in a table of family ip or ip6. */
      to: either("an IP address, or { ct, direction }", address, record({ ct: ctDirection, direction })),
    },
    ({ direction: end, to }, context) => {
      const version = versionOf(context.family)!;
      const nameOf = (one: string): string => `${IP_NAME[version]} ${one === "source" ? "saddr" : "daddr"}`;
      const name = nameOf(end) as FieldName;
      if (typeof to !== "string")
        return setField(name, { from: `ct ${to.ct} ${nameOf(to.direction)}` as Field & string }, context);
      if (addressBytes(to)!.length !== (version === 4 ? 4 : 16))
        throw new FieldError("to", `an address of the table's family (${context.family})`, to);
      return setField(name, to, context);
    },
    ["ip", "ip6"],
  ),
};
