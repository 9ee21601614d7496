/** Conditions: one comparison of any field. Expressions are the same that nft generates, with its text. */
import { ByteorderOp, CmpOp, LookupFlag, RangeOp } from "../kernel/constants.js";
import { numberToBytes, type Range } from "../bytes/ip-ranges.js";
import type { Expr, Family } from "../kernel/kernel.js";
import { anonymousRows, anonymousSet, ANONYMOUS_NAME } from "../lowering/anonymous-sets.js";
import { ETHER_TYPES, noteEquality, noteValues } from "../lowering/dependencies.js";
import { bytesOfValue, FIELD_TYPES, hex, type Width } from "../language/fields/field-types.js";
import { inlineLookup } from "../lowering/inline-sets.js";
import { loadSetKey, maskOf, operand, type Operand } from "../lowering/keys.js";
import { compare, lookup, type LowerContext, lowered, type Lowered, masked } from "../lowering/lowered.js";
import { MAX_INTERFACE_BYTES } from "../bytes/names-and-comments.js";
import type { Comparison, Field, FieldMatch, PortRange } from "../language/rule.js";
import { flagsOf, prefixOf, rangesOf, toBytes } from "../language/fields/values.js";

const PROTOCOL_FIELDS = new Set(["ether type", "vlan type", "ip protocol", "ip6 nexthdr", "icmp type", "icmpv6 type"]);
const CMP: Readonly<Partial<Record<Comparison, number>>> = {
  "<": CmpOp.lt,
  "<=": CmpOp.lte,
  ">": CmpOp.gt,
  ">=": CmpOp.gte,
};

/** Compares a field of the packet. */
export function fieldMatch(match: FieldMatch, context: LowerContext): Lowered {
  const { field, op: given, value, mask } = match as LooseMatch;
  if (typeof value === "string" && value.startsWith("@"))
    return inSet(([] as Field[]).concat(field), value.slice(1), given, context);
  if (Array.isArray(field)) return keyMatch(field as readonly Field[], given, value, context);
  return compareField(field as Field, given, value, mask, context);
}

/** A match whose value has any type: it is checked here. */
interface LooseMatch {
  readonly field: Field | readonly Field[];
  readonly op?: Comparison;
  readonly value: unknown;
  readonly mask?: unknown;
}

function compareField(
  field: Field,
  op: Comparison | undefined,
  value: unknown,
  mask: unknown,
  context: LowerContext,
): Lowered {
  const one = operand(context, field);
  try {
    return compareOperand(one, op, value, mask, context);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new RangeError(`${one.text}: ${error.message}`, { cause: error });
  }
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
  if (FIELD_TYPES[one.type].kind === "text") return textMatch(one, op, value, context);
  if (mask !== undefined) return maskedMatch(one, op, value, mask);
  const ranges = isFlags ? [numberRange(flagsOf(one, value))] : rangesOf(one, value);
  if (op in CMP) return ordered(one, op, ranges);
  const isList = ranges.length > 1 && ranges.every(({ from, to }) => from === to);
  if (op === "==" && isList && one.name !== undefined)
    noteValues(
      context,
      one.name,
      ranges.map(({ from }) => Number(from)),
    );
  if (ranges.length > 1) return lowered(...oneOf(one, ranges, op === "!=", context));
  const [range] = ranges;
  if (range.from !== range.to) return lowered(...inRange(one, range, op === "!="));
  const data = shifted(one, range.from, one.width);
  if (op === "==" && one.name !== undefined) noteEquality(context, one.name, data);
  const { isPartial } = one.loaded;
  const exprs = [...one.load(1), ...(isPartial ? [masked(maskOf(one))] : []), compare(data, op === "!=")];
  const isProtocol = one.name !== undefined && PROTOCOL_FIELDS.has(one.name);
  const isImplied = op === "==" && one.name === "meta protocol" && isFamily(context.family, data);
  return { exprs, isImplied, isWholeField: one.isHeader && op === "==", isProtocol };
}

function isFamily(family: Family, data: Uint8Array): boolean {
  return (family === "ip" || family === "ip6") && data.every((byte, index) => byte === ETHER_TYPES[family][index]);
}

const numberRange = (value: number): Range => ({ from: BigInt(value), to: BigInt(value) });

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

function ordered(one: Operand, op: Comparison, ranges: readonly Range[]): Lowered {
  const [{ from, to }] = ranges;
  if (ranges.length > 1 || from !== to) throw new RangeError(`${op} takes one value`);
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
  const bits = flagsOf(one, value);
  if (bits === 0) throw new RangeError("expected at least one flag");
  const zero = toBytes(0n, one.width);
  return lowered(...one.load(1), masked(toBytes(BigInt(bits), one.width)), compare(zero, !negate));
}

/** (field & mask) == value. */
function maskedMatch(one: Operand, op: Comparison, value: unknown, mask: unknown): Lowered {
  if (op !== "==" && op !== "!=") throw new RangeError(`with a mask, op must be "==" or "!=", not ${op}`);
  if (one.loaded.isPartial) throw new RangeError(`${one.text} takes no mask: it is some bits of a byte`);
  const [bits, wanted] = [flagsOf(one, mask), flagsOf(one, value)];
  if (bits === 0) throw new RangeError("the mask is 0");
  if ((wanted & ~bits) !== 0)
    throw new RangeError(`the value has bits outside the mask: ${hex(wanted)} & ~${hex(bits)}`);
  return lowered(
    ...one.load(1),
    masked(toBytes(BigInt(bits), one.width)),
    compare(toBytes(BigInt(wanted), one.width), op === "!="),
  );
}

/** A name, or a prefix followed by `*`. */
function textMatch(one: Operand, op: Comparison, value: unknown, context: LowerContext): Lowered {
  if (op !== "==" && op !== "!=") throw new RangeError(`a name is compared with "==" or "!=", not ${op}`);
  const values = Array.isArray(value) ? value : [value];
  if (values.length > 1) {
    const rows = values.map((name) => bytesOfValue(one.type, name));
    const id = context.anonymous.push(anonymousRows({ key: [one], keyLen: one.width.length, rows }));
    return lowered(...one.load(1), lookup(ANONYMOUS_NAME, op === "!=", id));
  }
  const pattern = String(values[0]);
  if (pattern === "*") {
    if (op === "!=") throw new RangeError("* matches every name, so its negation never matches");
    return lowered();
  }
  const prefix = pattern.endsWith("*") ? pattern.slice(0, -1) : undefined;
  // nft counts the * as well.
  if (prefix !== undefined && Buffer.byteLength(pattern) > MAX_INTERFACE_BYTES)
    throw new RangeError(`a prefix has at most 14 bytes: ${pattern}`);
  const data = bytesOfValue(one.type, prefix ?? pattern);
  const used = prefix === undefined ? data : data.slice(0, Buffer.byteLength(prefix));
  return lowered(...one.load(1), compare(used, op === "!="));
}

/** The concatenated fields are an element of a named or an anonymous set. */
function keyMatch(
  fields: readonly Field[],
  op: Comparison | undefined,
  value: unknown,
  context: LowerContext,
): Lowered {
  if (!Array.isArray(value) || value.length === 0)
    throw new RangeError(`a key is compared with "@SET" or a list, not ${JSON.stringify(value)}`);
  const negate = op === "not in" || op === "!=";
  const rows = value.map((row) => ({ key: row }));
  return inlineLookup(context, fields, rows, negate ? { flags: LookupFlag.invert } : {});
}

function inSet(key: readonly Field[], set: string, op: Comparison | undefined, context: LowerContext): Lowered {
  if (op !== undefined && op !== "==" && op !== "!=" && op !== "in" && op !== "not in")
    throw new RangeError(`a set takes "in" or "not in", not ${op}`);
  const negate = op === "not in" || op === "!=";
  const { exprs } = loadSetKey(context, key, set);
  return lowered(...exprs, lookup(set, negate));
}

/** Throws RangeError for an invalid port or range. */
export function portRange(ports: PortRange): Range {
  const [from, to] = typeof ports === "number" ? [ports, ports] : ports;
  if (to < from) throw new RangeError(`not a port range: ${from}-${to}`);
  for (const port of [from, to]) bytesOfValue("inet_service", port);
  return { from: BigInt(from), to: BigInt(to) };
}

/** First and last port, in network byte order. */
export function portBounds({ from, to }: Range): [from: Uint8Array, to: Uint8Array] {
  return [numberToBytes(from, 2), numberToBytes(to, 2)];
}
