/** The fields of a rule as operands: where they come from, and how they are loaded as a key. */
import { BitwiseOp, ByteorderOp, NumgenType, register } from "../kernel/constants.js";
import type { Expr } from "../kernel/kernel.js";
import { registerWord } from "../kernel/normalize.js";
import { numberToBytes } from "../bytes/ip-ranges.js";
import { FieldError, within } from "../language/fields/field-error.js";
import { flagsOf, toBytes } from "../language/fields/values.js";
import { knownVersion, requireField, versionOf } from "./dependencies.js";
import { FIELD_TYPES, type FieldType, hex, type Width } from "../language/fields/field-types.js";
import { type FieldEntry, fibField, FIELDS, SHORT_FIELDS, load } from "../language/fields/packet-fields.js";
import { hostU32, lowered, type LowerContext, type Lowered, masked } from "./lowered.js";
import type { Field, GeneratedField, KeyPart, MaskedField } from "../language/vocabulary.js";
import { padded } from "../language/schema.js";
import { expression, type KeyField, keyFieldOf } from "../language/set-userdata.js";

/** A field in a rule. */
export interface Operand extends KeyField {
  /** Its name in messages. */
  readonly text: string;
  /** The name in the table of fields. Absent for generated values. */
  readonly name?: keyof typeof FIELDS;
  /** Whether it has whole bytes of a header. */
  readonly isHeader: boolean;
  /** `room`: the first word for the fields that are hashed, counted from the register. */
  load(dreg: number, room?: number): readonly Expr[];
}

function isShort(field: Field): field is keyof typeof SHORT_FIELDS {
  return typeof field === "string" && Object.hasOwn(SHORT_FIELDS, field);
}

/** `type` is what a set expects in this place. */
function addressVersion(context: LowerContext, field: keyof typeof SHORT_FIELDS, type: FieldType | undefined): 4 | 6 {
  const own = versionOf(context.family);
  const asked = versionOfType(type);
  if (own !== undefined && asked !== undefined && own !== asked)
    throw new FieldError("", `a field of type ${type}, which tables of family ${context.family} do not have`, field);
  if (context.family === "arp") throw new FieldError("", "a field of packets in a table of family arp", field);
  const version = own ?? asked ?? knownVersion(context) ?? context.assumed;
  if (version !== undefined) return version;
  const names = SHORT_FIELDS[field];
  const either = `"${names[4]}" or "${names[6]}" in a table of family ${context.family}, or a set that is declared before the rule`;
  throw new FieldError("", either, field);
}

export function versionOfType(type: string | undefined): 4 | 6 | undefined {
  return type === "ipv4_addr" ? 4 : type === "ipv6_addr" ? 6 : undefined;
}

/** Finds a field, and requires what it needs. Throws FieldError. */
export function operand(context: LowerContext, field: KeyPart, type?: FieldType): Operand {
  if (typeof field !== "string")
    return "mask" in field ? maskedOperand(context, field, type) : generated(context, field);
  const name = isShort(field) ? SHORT_FIELDS[field][addressVersion(context, field, type)] : field;
  const entry: FieldEntry = FIELDS[name];
  if (entry.settable === "only") throw new FieldError("", "a field that can be read, not only set", field);
  requireField(context, name, entry);
  // A random number of few values is what a set of type `index` holds.
  const isIndex = type === "index" && entry.type === "mark";
  return isIndex ? { ...namedOperand(name), type } : namedOperand(name);
}

/** Reads a mask of some bits of the field. Throws FieldError. */
export function bitsOf(one: Operand, mask: unknown): bigint {
  if (FIELD_TYPES[one.type].kind === "text") throw new FieldError("mask", "no mask for a name", mask);
  if (one.loaded.isPartial) throw new FieldError("mask", `no mask, because ${one.text} is some bits of a byte`, mask);
  const bits = within("mask", () => flagsOf(one, mask));
  if (bits === 0n) throw new FieldError("mask", "a mask with at least one bit", mask);
  return bits;
}

/** Throws FieldError if the value has bits outside the mask. */
export function refuseOutside(mask: bigint | undefined, value: bigint): void {
  if (mask !== undefined && (value & ~mask) !== 0n)
    throw new FieldError("", `a value without bits outside the mask ${hex(mask)}`, hex(value));
}

function maskedOperand(context: LowerContext, { field, mask }: MaskedField, type?: FieldType): Operand {
  const one = operand(context, field, type);
  const bits = bitsOf(one, mask);
  const bytes = toBytes(bits, one.width);
  return { ...one, bits, load: (reg, room) => [...one.load(reg, room), masked(bytes, undefined, reg)] };
}

/** Operands of fields by name, which are the same in all rules. */
const named = new Map<string, Operand>();

function namedOperand(name: keyof typeof FIELDS): Operand {
  let one = named.get(name);
  if (one === undefined) named.set(name, (one = { ...operandOf(name, FIELDS[name]), name }));
  return one;
}

function operandOf(text: string, entry: FieldEntry): Operand {
  const { expr } = load(entry, 1);
  const field = keyFieldOf(text, entry);
  return {
    ...field,
    text,
    isHeader: expr.type === "payload" && !field.loaded.isPartial,
    load: (dreg) => [dreg === 1 ? expr : load(entry, dreg).expr],
  };
}

function requiredOperand(context: LowerContext, text: string, entry: FieldEntry): Operand {
  requireField(context, text, entry);
  return operandOf(text, entry);
}

const BASES = { link: "ll", network: "nh", transport: "th", inner: "ih" } as const;

function generated(context: LowerContext, field: GeneratedField): Operand {
  switch (field.field) {
    case "fib":
      // nft before 1.1 writes a check as a comparison of the interface with `exists`.
      return requiredOperand(
        context,
        `fib ${field.of.join(" . ")} ${field.result === "check" ? "oif" : field.result}`,
        fibField(field.of, field.result),
      );
    case "socket-cgroup":
      return requiredOperand(context, `socket cgroupv2 level ${field.level}`, {
        type: "integer",
        bits: 64,
        source: { from: "socket", key: 3, level: field.level },
        families: ["ip", "ip6", "inet"],
      });
    case "raw": {
      const { base, offset, length } = field;
      const entry: FieldEntry = { type: "integer", bits: length, source: { from: "payload", base, offset } };
      const { isPartial, length: bytes } = load(entry, 1);
      if (isPartial && bytes > 4)
        throw new FieldError(
          "length",
          "whole bytes, which a raw field of more than 4 bytes must start and end at",
          length,
        );
      const text = `@${BASES[base]},${offset},${length}`;
      // nft lists these as ports.
      const port = text === "@th,0,16" ? "th sport" : text === "@th,16,16" ? "th dport" : undefined;
      return { ...operandOf(text, entry), ...(port && { typeof: namedOperand(port).typeof }) };
    }
    default:
      return number(context, field);
  }
}

type NumberField = Extract<GeneratedField, { readonly modulus: number }>;
const NUMBER: Width = { bits: 32, length: 4, hostOrder: true };

/** A generated number, from `offset` to less than `offset + modulus`. */
function number(context: LowerContext, field: NumberField): Operand {
  const { modulus, offset = 0 } = field;
  if (modulus + offset > 0xffffffff) throw new FieldError("offset", `at most ${0xffffffff - modulus}`, offset);
  const range = { modulus, ...(offset === 0 ? {} : { offset }) };
  const base = {
    type: "index",
    width: NUMBER,
    isHeader: false,
    loaded: { length: 4, shift: 0, isPartial: false },
  } as const;
  if (field.field === "numgen") {
    const ngType = field.mode === "random" ? NumgenType.random : NumgenType.incremental;
    return {
      ...base,
      text: field.field,
      typeof: expression(23, ngType, modulus, offset),
      load: (dreg) => [{ type: "numgen", dreg, ngType, ...range }],
    };
  }
  const hashOf = (type: number, seed = 0): readonly number[] =>
    expression(24, type, offset, modulus, seed, type === 0 ? 1 : 0);
  if (field.field === "symhash")
    return {
      ...base,
      text: field.field,
      typeof: hashOf(1),
      load: (dreg) => [{ type: "hash", dreg, hashType: 1, ...range }],
    };
  const hashed = field.of.map((one, index) => within(`of[${index}]`, () => operand(context, one)));
  return {
    ...base,
    text: field.field,
    typeof: hashOf(0, field.seed),
    load(dreg, room = HASHED_ROOM) {
      const first = registerWord(dreg) + room;
      const { exprs, end } = loadOperands(hashed, first);
      // NFT_HASH_JENKINS
      const hash = {
        sreg: register(first),
        dreg,
        // Like nft: a single field without its padding.
        len: hashed.length === 1 ? hashed[0].width.length : (end - first) * 4,
        seed: field.seed,
        hashType: 0,
        ...range,
      } as const;
      return [...exprs, { type: "hash", ...hash }];
    },
  };
}

const WORDS = 16;
/** Outside a key, nft loads hashed fields 4 words after the number, to the next 16-byte register. */
const HASHED_ROOM = 4;
/** In a key, it loads them 4 words after the last word of the key, which is the number. */
const HASHED_ROOM_IN_KEY = 5;

/** Loads a concatenation, starting at word `first`. `end` is the word after it. */
function loadOperands(
  operands: readonly Operand[],
  first: number,
): { readonly exprs: readonly Expr[]; readonly end: number } {
  let end = first;
  const exprs = operands.flatMap((one) => {
    const from = end;
    end += padded(one.width.length) / 4;
    if (end > WORDS) throw new FieldError("", "at most 64 bytes, which the kernel's registers have", one.text);
    return loadAlone(one, register(from));
  });
  return { exprs, end };
}

/** Loads a field without the bits around it. */
function loadAlone(one: Operand, reg: number): readonly Expr[] {
  const { isPartial, shift, length } = one.loaded;
  const exprs = one.load(reg, HASHED_ROOM_IN_KEY);
  if (!isPartial) return exprs;
  if (shift > 0 && length > 1)
    throw new FieldError("", "no field inside several bytes, which cannot be part of a key", one.text);
  const mask = masked(maskOf(one), undefined, reg);
  if (shift === 0) return [...exprs, mask];
  return [
    ...exprs,
    mask,
    { type: "bitwise", sreg: reg, dreg: reg, len: length, op: BitwiseOp.rshift, data: hostU32(shift) },
  ];
}

/** The field's bits in the bytes that the kernel loads. */
export function maskOf({ width, loaded }: Operand): Uint8Array {
  return numberToBytes(((1n << BigInt(width.bits)) - 1n) << BigInt(loaded.shift), loaded.length);
}

/** Loads a key so that all its values have the order of their bytes: in network byte order. */
export function loadOrdered({ operands }: LoadedKey): readonly Expr[] {
  let word = 0;
  return operands.flatMap((one) => {
    const { length, hostOrder } = one.width;
    const reg = register(word);
    word += padded(length) / 4;
    const exprs = loadAlone(one, reg);
    const isHost = hostOrder && FIELD_TYPES[one.type].kind !== "text";
    // In a concatenation, nft swaps single bytes, too, which changes nothing.
    if (!isHost || (length === 1 && operands.length === 1)) return exprs;
    const size = Math.max(length, 2);
    return [...exprs, { type: "byteorder", sreg: reg, dreg: reg, op: ByteorderOp.hton, len: length, size }];
  });
}

/** A loaded key, from word 0 on. `words` is its size. */
export interface LoadedKey extends Lowered {
  readonly words: number;
  readonly operands: readonly Operand[];
}

/** Loads a key, which errors call `place`. `types` are those of the set, if they are known: they tell the IP versions of addresses. */
export function loadKey(
  context: LowerContext,
  key: readonly KeyPart[],
  place: string,
  types: readonly FieldType[] = [],
): LoadedKey {
  if (key.slice(0, -1).some((field) => typeof field !== "string" && field.field === "jhash"))
    throw new FieldError(place, "a key with jhash as its last field", key.map(fieldName));
  // Conditions that are part of the text come first.
  for (const field of key)
    if (typeof field === "string" && !isShort(field) && FIELDS[field].source.from === "exthdr") operand(context, field);
  const operands = key.map((field, index) => within(`${place}[${index}]`, () => operand(context, field, types[index])));
  const { exprs, end } = within(place, () => loadOperands(operands, 0));
  return { exprs, words: end, operands };
}

/** Whether a set's field can hold the operand's values. */
function fits({ type, width }: Operand, expected: FieldType): boolean {
  if (type === expected) return true;
  if (type === "index") return expected === "mark";
  // A set of named type may hold an integer of the same form: igmp groups are addresses.
  return (
    type === "integer" &&
    width.bits === FIELD_TYPES[expected].bits &&
    FIELD_TYPES[expected].hostOrder === width.hostOrder
  );
}

/** Loads a key of a named set, which errors call `place`. Throws FieldError if it does not fit the set's key. */
export function loadSetKey(context: LowerContext, key: readonly KeyPart[], set: string, place = "key"): LoadedKey {
  const types = context.setSpec?.(set)?.key;
  const loaded = loadKey(context, key, place, types);
  if (types === undefined) return loaded;
  if (types.length !== key.length || !loaded.operands.every((one, index) => fits(one, types[index])))
    throw new FieldError(place, `[${types.join(", ")}], the key of set ${set}`, key.map(fieldName));
  return loaded;
}

function fieldName(field: KeyPart): string {
  return typeof field === "string" ? field : field.field;
}

/** Loads the data that a named map holds for the key into the register. Without an entry for the key, the rule ends. */
export function lookUp(context: LowerContext, key: readonly KeyPart[], map: string, dreg: number): Lowered {
  const { exprs } = loadSetKey(context, key, map);
  return lowered(...exprs, { type: "lookup", set: map, sreg: 1, dreg });
}
