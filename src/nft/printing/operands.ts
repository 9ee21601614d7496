/** The operands of conditions and statements in nft's notation: fields, parts of headers, calculations, keys and maps. */
import { numberToBytes } from "../bytes/ip-ranges.js";
import { ByteorderOp, ExthdrOp, HashType, NumgenType, SocketKey, XfrmDirection, XfrmKey } from "../kernel/constants.js";
import type { Expr } from "../kernel/kernel.js";
import { hex } from "../language/fields/field-types.js";
import { fieldAt, type KnownField, otherField } from "./field-index.js";
import type { PacketContext } from "./packet-context.js";
import type { BinaryOperator, Of, Registers, Term } from "./registers.js";
import { dataFormsOf, type ListedSet, setText } from "./set-text.js";
import { type Form, formOf, numberOf, valueText, type ValueStyle } from "./value-text.js";

/** The rule as far as it has been read. */
export interface Reading {
  readonly context: PacketContext;
  readonly registers: Registers;
  readonly style: ValueStyle;
  /** Returns undefined if the set is unknown. */
  readonly set: (name: string, id: number | undefined) => ListedSet | undefined;
}

/** Stands for what is not known. */
export const UNKNOWN_TEXT = "…";

/** The key of a look-up. If the set is unknown, a rule of our own has nothing else in the registers. */
export function keyAt(
  { registers, style, set }: Reading,
  register: number,
  name: string,
  id?: number,
  end?: number,
): Term {
  const length = set(name, id)?.info.keyLen;
  return length === undefined && style.isPortable === true
    ? registers.from(register, end)
    : registers.get(register, length);
}

export interface Operand {
  readonly text: string;
  /** Empty if its values have no known form. */
  readonly forms: readonly Form[];
  readonly field?: KnownField;
  /** The operator that binds least, if it is a calculation. */
  readonly operator?: BinaryOperator;
}

const BASES = ["ll", "nh", "th", "ih"];
const PRECEDENCE: Readonly<Record<BinaryOperator, number>> = { "<<": 1, ">>": 1, "&": 2, "^": 3, "|": 4 };
const INTEGER: Form = { type: "integer", length: 4, bits: 32, hostOrder: true };
const NOTHING: Operand = { text: UNKNOWN_TEXT, forms: [] };

export function operandOf(term: Term, reading: Reading): Operand {
  switch (term.kind) {
    case "header":
      return headerOperand(term.load, reading);
    case "field":
      return fieldOperand(otherField(term.load), reading) ?? generatedOperand(term.load);
    case "hash":
      return hashOperand(term.hash, term.of, reading);
    case "binary":
      return partOfField(term, reading) ?? calculation(term, reading);
    case "swapped":
      return swapped(operandOf(term.of, reading), term.op === ByteorderOp.ntoh);
    case "map": {
      const { set, setId } = term.lookup;
      const key = operandOf(term.key, reading);
      const forms = dataFormsOf(reading.set(set, setId)?.info);
      return { text: `${key.text} map ${setText(reading, set, setId, key.forms)}`, forms };
    }
    case "key": {
      if (reading.style.isPortable === true && term.parts.some(isExtension)) reading.context.keepNetwork();
      const parts = term.parts.map((part) => operandOf(part, reading));
      const isKnown = parts.every(({ forms }) => forms.length === 1);
      return {
        text: parts.map(({ text }) => text).join(" . "),
        forms: isKnown ? parts.flatMap(({ forms }) => forms) : [],
      };
    }
    default:
      return NOTHING;
  }
}

/** No nft before 1.1 reads some of the names that it prints. */
export function nameOf({ name, text }: KnownField, { style }: Reading): string {
  return style.isPortable === true && name !== undefined ? name : text;
}

function isExtension(term: Term): boolean {
  return term.kind === "field" && term.load.type === "exthdr" && term.load.op !== ExthdrOp.tcpopt;
}

function fieldOperand(field: KnownField | undefined, reading: Reading): Operand | undefined {
  if (field === undefined) return undefined;
  reading.context.use(field);
  return { text: nameOf(field, reading), forms: [field.form], field };
}

/** The header that is at this place, and the place in its fields' terms, in bits. Undefined if it is unknown. */
export function placeOf(
  { base, offset }: Of<"payload">,
  { link, network, transport, vlanStart }: PacketContext,
): { readonly protocol: string; readonly offset: number } {
  const bits = offset * 8;
  if (base === 1) return { protocol: network ?? "", offset: bits };
  if (base === 2) return { protocol: transport === "unknown" ? "th" : (transport ?? "th"), offset: bits };
  if (base !== 0) return { protocol: "", offset: bits };
  const isInside = link === "vlan" && bits >= vlanStart;
  return isInside
    ? { protocol: "vlan", offset: bits - vlanStart + 112 }
    : { protocol: link === undefined ? "" : "ether", offset: bits };
}

function headerOperand(load: Of<"payload">, reading: Reading): Operand {
  const { protocol, offset } = placeOf(load, reading.context);
  const bits = load.len * 8;
  const field = fieldAt(protocol, offset, bits, reading.context.icmpType);
  const isWhole = field?.form.bits === bits;
  return fieldOperand(isWhole ? field : undefined, reading) ?? rawOperand(load.base, load.offset * 8, bits);
}

export function rawOperand(base: number, offset: number, bits: number): Operand {
  const form = { type: "raw", bits, length: Math.ceil(bits / 8), hostOrder: false } as const;
  return { text: `@${BASES[base] ?? UNKNOWN_TEXT},${offset},${bits}`, forms: [form] };
}

/** Some bits of what is loaded that are a field: `ip dscp`, `vlan id`. */
function partOfField(term: Term, reading: Reading): Operand | undefined {
  if (term.kind !== "binary") return undefined;
  if (term.operator === ">>") {
    const inner = partOfField(term.of, reading);
    const shift = inner?.forms[0].shift;
    if (inner === undefined || shift !== Number(numberOf(INTEGER, term.operand))) return undefined;
    return { ...inner, forms: [{ ...inner.forms[0], shift: 0 }] };
  }
  if (term.operator !== "&") return undefined;
  const mask = numberOf({ hostOrder: false }, term.operand);
  const ones = mask.toString(2);
  const bits = ones.replace(/0+$/, "").length;
  if (ones.slice(0, bits).includes("0")) return undefined;
  const shift = ones.length - bits;
  const field = fieldIn(term.of, bits, shift, reading);
  if (field === undefined) return undefined;
  reading.context.use(field);
  return { text: nameOf(field, reading), forms: [{ ...field.form, length: term.length, shift }], field };
}

function fieldIn(term: Term, bits: number, shift: number, { context }: Reading): KnownField | undefined {
  if (term.kind === "field") return term.load.type === "exthdr" ? otherField(term.load, { shift, bits }) : undefined;
  if (term.kind !== "header") return undefined;
  const { protocol, offset } = placeOf(term.load, context);
  const field = fieldAt(protocol, offset + term.length * 8 - shift - bits, bits);
  return field?.form.bits === bits ? field : undefined;
}

function calculation({ operator, of, operand }: Extract<Term, { kind: "binary" }>, reading: Reading): Operand {
  const left = operandOf(of, reading);
  if (left.forms.length !== 1) return { text: left.text, forms: [] };
  const isShift = operator === "<<" || operator === ">>";
  const right = isShift ? String(numberOf(INTEGER, operand)) : valueText(left.forms[0], operand, reading.style);
  const value = !isShift && right.includes(" | ") && operator !== "|" ? `(${right})` : right;
  const inner =
    left.operator !== undefined && PRECEDENCE[operator] < PRECEDENCE[left.operator] ? `(${left.text})` : left.text;
  return { text: `${inner} ${operator} ${value}`, forms: left.forms, operator };
}

/** Like nft, the text does not show that bytes are swapped. Values then have the other order. */
function swapped(operand: Operand, isToHost: boolean): Operand {
  return { ...operand, forms: operand.forms.map((form) => ({ ...form, hostOrder: isToHost })) };
}

function hashOperand(hash: Of<"hash">, of: Term | undefined, reading: Reading): Operand {
  const { modulus, seed, offset = 0, hashType } = hash;
  const key = of === undefined ? NOTHING : operandOf(of, reading);
  const what = hashType === HashType.sym ? "symhash" : `jhash ${key.text}`;
  const seeded = hashType === HashType.sym || seed === undefined ? "" : ` seed ${hex(seed)}`;
  return { text: `${what} mod ${modulus}${seeded}${offset === 0 ? "" : ` offset ${offset}`}`, forms: [INTEGER] };
}

/** Values that are no fields of the table: numbers that the kernel generates, and others that rules can only read. */
function generatedOperand(expr: Expr): Operand {
  switch (expr.type) {
    case "numgen": {
      const { ngType, modulus, offset = 0 } = expr;
      const mode = ngType === NumgenType.random ? "random" : "inc";
      return { text: `numgen ${mode} mod ${modulus}${offset === 0 ? "" : ` offset ${offset}`}`, forms: [INTEGER] };
    }
    case "socket":
      if (expr.key !== SocketKey.cgroupv2) return NOTHING;
      return { text: `socket cgroupv2 level ${expr.level ?? 0}`, forms: [{ ...INTEGER, bits: 64, length: 8 }] };
    case "xfrm":
      return xfrmOperand(expr);
    default:
      return { text: `${expr.type} ${UNKNOWN_TEXT}`, forms: [] };
  }
}

function xfrmOperand({ key, dir, spnum = 0 }: Of<"xfrm">): Operand {
  const way = dir === XfrmDirection.in ? "in" : "out";
  const what = { [XfrmKey.reqid]: "reqid", [XfrmKey.spi]: "spi" }[key];
  const text = `ipsec ${way} ${spnum === 0 ? "" : `spnum ${spnum} `}`;
  if (what !== undefined) return { text: `${text}${what}`, forms: [{ ...INTEGER, hostOrder: key === XfrmKey.reqid }] };
  const isSix = key === XfrmKey.daddrIp6 || key === XfrmKey.saddrIp6;
  const end = key === XfrmKey.saddrIp4 || key === XfrmKey.saddrIp6 ? "saddr" : "daddr";
  const type = isSix ? "ipv6_addr" : "ipv4_addr";
  return { text: `${text}${isSix ? "ip6" : "ip"} ${end}`, forms: [formOf(type)] };
}

/** The data that rules of our own write to a set that is not declared. */
const GUESSED: Readonly<Partial<Record<number, Form>>> = {
  2: formOf("inet_service"),
  4: formOf("ipv4_addr"),
  16: formOf("ipv6_addr"),
};

/** A value that a statement writes: a constant in the form of its target, or what another place holds. */
export function writtenText(term: Term, forms: readonly Form[], reading: Reading): string {
  if (term.kind !== "constant" && term.kind !== "key") return operandOf(term, reading).text;
  const parts = term.kind === "key" ? term.parts : [term];
  if (parts.length > 1 && forms.length > 0 && parts.length !== forms.length) return UNKNOWN_TEXT;
  return parts
    .map((part, index) => {
      if (part.kind !== "constant") return operandOf(part, reading).text;
      const form = forms[index] ?? (reading.style.isPortable === true ? GUESSED[part.length] : undefined);
      if (form === undefined) return UNKNOWN_TEXT;
      return constantText(form, part.data.subarray(0, form.length), reading.style);
    })
    .join(" . ");
}

/** Names that nft reads as keywords when they follow `set`, as it does the names of protocols. */
const KEYWORDS: ReadonlySet<string> = new Set(["redirect", "helper", "mark", "secmark", "synproxy"]);

export function constantText(form: Form, data: Uint8Array, style: ValueStyle): string {
  const text = valueText(form, data, style);
  const isName = form.type === "inet_proto" || text.split(" | ").some((word) => KEYWORDS.has(word));
  return style.isPortable === true && isName ? String(numberOf(form, data)) : text;
}

/** Bytes of a value in a header, shifted to the end of whole bytes. */
export function valueBytes(value: bigint, bits: number): Uint8Array {
  return numberToBytes(value, Math.ceil(bits / 8));
}
