/** Conditions: one comparison of any field. Expressions are the same that nft generates, with its text. */
import { either, optional, type RecordOf, type Shape } from "../../base/shape.js";
import { numberToBytes, type Range } from "../bytes/ip-ranges.js";
import { MAX_INTERFACE_BYTES } from "../bytes/names-and-comments.js";
import { ByteorderOp, CmpOp, LookupFlag, RangeOp } from "../kernel/constants.js";
import type { Expr, Family } from "../kernel/kernel.js";
import { FieldError, within } from "../language/fields/field-error.js";
import {
  bytesOfValue,
  FIELD_TYPES,
  type FieldValues,
  type ValueType,
  type Width,
} from "../language/fields/field-types.js";
import type { FieldName, FieldsOf } from "../language/fields/packet-fields.js";
import { flagsOf, prefixOf, rangesOf, toBytes, type ValueRange } from "../language/fields/values.js";
import {
  anything,
  type Comparison,
  comparison,
  type Field,
  field,
  type GeneratedField,
  generatedField,
  key,
  type KeyPart,
  plainField,
} from "../language/vocabulary.js";
import { anonymousSet, ANONYMOUS_NAME } from "../lowering/anonymous-sets.js";
import { ETHER_TYPES, noteEquality, noteLastProtocol, noteValues } from "../lowering/dependencies.js";
import { inlineLookup } from "../lowering/inline-sets.js";
import { bitsOf, loadSetKey, maskOf, operand, type Operand, refuseOutside } from "../lowering/keys.js";
import { compare, lookup, type LowerContext, lowered, type Lowered, masked } from "../lowering/lowered.js";

const PROTOCOL_FIELDS = new Set(["ether type", "vlan type", "ip protocol", "ip6 nexthdr", "icmp type", "icmpv6 type"]);
const CMP: Readonly<Partial<Record<Comparison, number>>> = {
  "<": CmpOp.lt,
  "<=": CmpOp.lte,
  ">": CmpOp.gt,
  ">=": CmpOp.gte,
};

/** The keys of a comparison. */
export const FIELD_MATCH = {
  field: either(field.expected, plainField, {
    expected: "a field, or a list of fields",
    find: (path, given) => (Array.isArray(given) ? key : generatedField).find(path, given),
  } satisfies Shape<unknown>),
  /** Default: `==`, but for flags `in`: one of them is set. */
  op: optional(comparison),
  /** Or a list of values and { from, to }, or the name of a set, as `"@NAME"`. */
  value: anything,
  /** Compares these bits only. */
  mask: optional(anything),
};

type Values<V> = V | ValueRange<V> | readonly (V | ValueRange<V>)[] | `@${string}`;
type Compared<F, V> = {
  readonly field: F;
  /** Default: "==", but for flags "in". */
  readonly op?: Comparison;
  /** One value or range, or a list of them; an address may be a network or "FROM-TO". Or a named set: "@name". */
  readonly value: Values<V>;
  /** Compares these bits only. */
  readonly mask?: V | readonly V[];
};

/** A condition: compares any field, or several with the elements of a set. The rule continues with its next statement only if it holds. */
export type FieldMatch =
  | { [T in ValueType]: Compared<FieldsOf<T>, FieldValues[T]> }[ValueType]
  | Compared<GeneratedField | Exclude<Field & string, FieldName>, number | string>
  | {
      readonly field: readonly KeyPart[];
      readonly op?: "in" | "not in";
      readonly value: `@${string}` | readonly (readonly (string | number | ValueRange<string | number>)[])[];
    };

/** Compares a field of the packet. */
export function lowerCondition(match: FieldMatch, context: LowerContext): Lowered {
  // Values are checked here.
  const { field: given, op, value, mask } = match as RecordOf<typeof FIELD_MATCH>;
  const isSet = typeof value === "string" && value.startsWith("@");
  if (mask !== undefined && (isSet || Array.isArray(given)))
    throw new FieldError("mask", "no mask beside a key, but in it: [{ field, mask }]", mask);
  if (isSet) return inSet(([] as KeyPart[]).concat(given as KeyPart | readonly KeyPart[]), value.slice(1), op, context);
  if (Array.isArray(given)) return keyMatch(given as readonly KeyPart[], op, value, context);
  const one = within("field", () => operand(context, given as Field));
  return compareOperand(one, op, value, mask, context);
}

function compareOperand(
  one: Operand,
  given: Comparison | undefined,
  value: unknown,
  mask: unknown,
  context: LowerContext,
): Lowered {
  const isFlags = FIELD_TYPES[one.type].kind === "flags";
  if (isFlags && mask === undefined && (given === undefined || given === "in" || given === "not in"))
    return anyFlag(one, value, given === "not in");
  const op = given === undefined || given === "in" ? "==" : given === "not in" ? "!=" : given;
  const isText = FIELD_TYPES[one.type].kind === "text";
  if (mask !== undefined) return maskedMatch(one, op, value, mask);
  if (isText) return textMatch(one, op, value, context);
  const ranges = within("value", () => (isFlags ? [alone(flagsOf(one, value))] : rangesOf(one, value)));
  if (op in CMP) return ordered(one, op, value, ranges);
  const isList = ranges.length > 1 && ranges.every(({ from, to }) => from === to);
  if (op === "==" && isList && one.name !== undefined)
    noteValues(
      context,
      one.name,
      ranges.map(({ from }) => Number(from)),
    );
  if (op === "==") noteLastProtocol(context, one.name, Number(ranges.at(-1)!.to));
  if (ranges.length > 1) return lowered(...oneOf(one, ranges, op === "!=", context));
  const [range] = ranges;
  if (range.from !== range.to) return lowered(...inRange(one, range, op === "!="));
  const data = shifted(one, range.from, one.width);
  if (op === "==" && one.name !== undefined) within("value", () => noteEquality(context, one.name!, data));
  const { isPartial } = one.loaded;
  const exprs = [...one.load(1), ...(isPartial ? [masked(maskOf(one))] : []), compare(data, op === "!=")];
  const isProtocol = one.name !== undefined && PROTOCOL_FIELDS.has(one.name);
  const isImplied = op === "==" && one.name === "meta protocol" && isFamily(context.family, data);
  return { exprs, isImplied, isWholeField: one.isHeader && op === "==", isProtocol };
}

function isFamily(family: Family, data: Uint8Array): boolean {
  return (family === "ip" || family === "ip6") && data.every((byte, index) => byte === ETHER_TYPES[family][index]);
}

const alone = (value: bigint): Range => ({ from: value, to: value });

/** A value at its place in the bytes that the kernel loads. */
function shifted({ loaded }: Operand, value: bigint, width: Width): Uint8Array {
  return toBytes(value << BigInt(loaded.shift), { ...width, length: loaded.length });
}

/** Loads a field so that its values have the order of their bytes: in network byte order. */
function loadOrdered(one: Operand): readonly Expr[] {
  const { length } = one.loaded;
  const exprs = [...one.load(1), ...(one.loaded.isPartial ? [masked(maskOf(one))] : [])];
  if (!one.width.hostOrder || length === 1) return exprs;
  // nft swaps 8 bytes as a whole, and others by their own size.
  return [...exprs, { type: "byteorder", sreg: 1, dreg: 1, op: ByteorderOp.hton, len: length, size: length }];
}

const inNetworkOrder = (one: Operand, value: bigint): Uint8Array =>
  shifted(one, value, { ...one.width, hostOrder: false });

function ordered(one: Operand, op: Comparison, value: unknown, ranges: readonly Range[]): Lowered {
  const [{ from, to }] = ranges;
  if (ranges.length > 1 || from !== to) throw new FieldError("value", `one value, which ${op} needs`, value);
  const cmp = { type: "cmp", sreg: 1, op: CMP[op]!, data: inNetworkOrder(one, from) } as const;
  return lowered(...loadOrdered(one), cmp);
}

/** A range, or a network. Like nft, a network of whole bytes is compared directly. Others are masked first. */
function inRange(one: Operand, range: Range, negate: boolean): Expr[] {
  const prefix = prefixOf(one, range);
  if (prefix === undefined) {
    const [from, to] = [inNetworkOrder(one, range.from), inNetworkOrder(one, range.to)];
    if (negate) return [...loadOrdered(one), { type: "range", sreg: 1, op: RangeOp.neq, from, to }];
    return [
      ...loadOrdered(one),
      { type: "cmp", sreg: 1, op: CmpOp.gte, data: from },
      { type: "cmp", sreg: 1, op: CmpOp.lte, data: to },
    ];
  }
  const { length: bytes, bits } = one.width;
  const isWhole = prefix % 8 === 0 && prefix > 0;
  const len = isWhole ? prefix / 8 : bytes;
  const ones = (1n << BigInt(bits)) - 1n;
  const mask = isWhole ? [] : [masked(numberToBytes(ones ^ (ones >> BigInt(prefix)), bytes))];
  // Only the needed bytes of a header are loaded. A connection's address is loaded whole, and its first bytes are compared.
  const beginning = one.load(1).map((expr) => (expr.type === "payload" ? { ...expr, len } : expr));
  return [...beginning, ...mask, compare(numberToBytes(range.from, bytes).slice(0, len), negate)];
}

/** A look-up in an anonymous set. */
function oneOf(one: Operand, ranges: readonly Range[], negate: boolean, context: LowerContext): Expr[] {
  const single = ranges.every(({ from, to }) => from === to);
  const { shift } = one.loaded;
  const inPlace = ranges.map(({ from, to }) => ({ from: from << BigInt(shift), to: to << BigInt(shift) }));
  // Single values keep the field's own order; ranges need the order of bytes.
  const swap =
    single && one.width.hostOrder ? (value: bigint): bigint => swapped(value, one.width) : (value: bigint) => value;
  const values = inPlace.map(({ from, to }) => ({ from: swap(from), to: swap(to) }));
  const load = single ? [...one.load(1), ...(one.loaded.isPartial ? [masked(maskOf(one))] : [])] : loadOrdered(one);
  return [...load, lookup(ANONYMOUS_NAME, negate, context.anonymous.push(anonymousSet(values, one)))];
}

function swapped(value: bigint, width: Width): bigint {
  return toBytes(value, width).reduce((all, byte) => (all << 8n) | BigInt(byte), 0n);
}

/** (field & bits) != 0, or == 0 when negated. */
function anyFlag(one: Operand, value: unknown, negate: boolean): Lowered {
  const bits = within("value", () => flagsOf(one, value));
  if (bits === 0n) throw new FieldError("value", "at least one flag", value);
  const zero = toBytes(0n, one.width);
  return lowered(...one.load(1), masked(toBytes(bits, one.width)), compare(zero, !negate));
}

/** (field & mask) == value. */
function maskedMatch(one: Operand, op: Comparison, value: unknown, mask: unknown): Lowered {
  if (op !== "==" && op !== "!=") throw new FieldError("op", '"==" or "!=" with a mask', op);
  const [bits, wanted] = [bitsOf(one, mask), within("value", () => flagsOf(one, value))];
  within("value", () => refuseOutside(bits, wanted));
  return lowered(...one.load(1), masked(toBytes(bits, one.width)), compare(toBytes(wanted, one.width), op === "!="));
}

/** A name, or a prefix followed by `*`. */
function textMatch(one: Operand, op: Comparison, value: unknown, context: LowerContext): Lowered {
  if (op !== "==" && op !== "!=") throw new FieldError("op", '"==" or "!=" for a name', op);
  const values: readonly unknown[] = Array.isArray(value) ? value : [value];
  if (values.length > 1) {
    const ranges = within("value", () => rangesOf(one, values));
    const id = context.anonymous.push(anonymousSet(ranges, one));
    return lowered(...one.load(1), lookup(ANONYMOUS_NAME, op === "!=", id));
  }
  const [pattern] = values;
  if (pattern === "*") {
    if (op === "!=") throw new FieldError("value", "a name, because every name matches *", pattern);
    return lowered();
  }
  const prefix = typeof pattern === "string" && pattern.endsWith("*") ? pattern.slice(0, -1) : undefined;
  // nft counts the * as well.
  if (prefix !== undefined && Buffer.byteLength(prefix) >= MAX_INTERFACE_BYTES)
    throw new FieldError("value", "a prefix of at most 14 bytes", pattern);
  const data = within("value", () => bytesOfValue(one.type, prefix ?? pattern));
  const used = prefix === undefined ? data : data.slice(0, Buffer.byteLength(prefix));
  return lowered(...one.load(1), compare(used, op === "!="));
}

/** The concatenated fields are an element of a named or an anonymous set. */
function keyMatch(
  fields: readonly KeyPart[],
  op: Comparison | undefined,
  value: unknown,
  context: LowerContext,
): Lowered {
  if (!Array.isArray(value) || value.length === 0) throw new FieldError("value", '"@SET", or a list of keys', value);
  const rows = value.map((row: unknown, index) => ({ place: `value[${index}]`, key: row }));
  return inlineLookup(context, { place: "field", fields }, rows, isNegated(op) ? { flags: LookupFlag.invert } : {});
}

function isNegated(op: Comparison | undefined): boolean {
  if (op !== undefined && op !== "==" && op !== "!=" && op !== "in" && op !== "not in")
    throw new FieldError("op", '"in" or "not in" for a set', op);
  return op === "not in" || op === "!=";
}

function inSet(fields: readonly KeyPart[], set: string, op: Comparison | undefined, context: LowerContext): Lowered {
  const { exprs } = loadSetKey(context, fields, set, "field");
  return lowered(...exprs, lookup(set, isNegated(op)));
}
