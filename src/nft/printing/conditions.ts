/** Conditions of a rule in nft's notation: comparisons, ranges and look-ups. */
import { bytesToNumber } from "../bytes/ip-ranges.js";
import { CmpOp, LookupFlag, RangeOp, VERDICT_REGISTER } from "../kernel/constants.js";
import { FIELD_TYPES } from "../language/fields/field-types.js";
import { fieldAt, type KnownField, longerFieldAt } from "./field-index.js";
import {
  keyAt,
  nameOf,
  type Operand,
  operandOf,
  placeOf,
  rawOperand,
  type Reading,
  UNKNOWN_TEXT,
  valueBytes,
} from "./operands.js";
import type { Of, Term } from "./registers.js";
import { setText } from "./set-text.js";
import { dataText, flagsOf, networkText, numberOf, rangeOfValues } from "./value-text.js";

const OPERATORS: Readonly<Record<number, string>> = {
  [CmpOp.eq]: "",
  [CmpOp.neq]: "!= ",
  [CmpOp.lt]: "< ",
  [CmpOp.lte]: "<= ",
  [CmpOp.gt]: "> ",
  [CmpOp.gte]: ">= ",
};
const isEquality = (op: number): boolean => op === CmpOp.eq || op === CmpOp.neq;

/** The last comparison, which may be the first half of a range. */
export interface Bound {
  readonly op: number;
  readonly left: string;
  readonly data: Uint8Array;
  readonly line: { text: string };
}

/** @returns the comparison, if the next one may complete it to a range. */
export function compare({ sreg, op, data }: Of<"cmp">, reading: Reading, last: Bound | undefined): Bound | undefined {
  const { context } = reading;
  const left = reading.registers.get(sreg, data.length);
  if (left.kind === "header" && isEquality(op) && data.length === left.load.len) {
    compareHeader(left.load, op, data, reading);
    return undefined;
  }
  const flags = isEquality(op) ? flagComparison(left, op, data, reading) : undefined;
  if (flags !== undefined) return void context.add(flags);
  const network = isEquality(op) ? networkComparison(left, data, reading) : undefined;
  if (network !== undefined) return void context.add(`${network.text} ${OPERATORS[op]}${network.value}`);
  const operand = operandOf(left, reading);
  const [form] = operand.forms;
  const isEnd = op === CmpOp.lte && last?.op === CmpOp.gte && last.left === operand.text;
  if (isEnd && form !== undefined) {
    last.line.text = `${operand.text} ${rangeOfValues(form, last.data, data, reading.style)}`;
    return undefined;
  }
  const line = context.add(comparisonText(operand, op, data, reading));
  if (op === CmpOp.eq && operand.field !== undefined && operand.operator === undefined)
    context.noteValue(operand.field, numberOf(form, data), line);
  return { op, left: operand.text, data, line };
}

function comparisonText({ text, forms, operator }: Operand, op: number, data: Uint8Array, { style }: Reading): string {
  const isFlags = forms.length === 1 && forms[0].type !== "raw" && FIELD_TYPES[forms[0].type].kind === "flags";
  // nft takes flags without an operator for "any of them".
  const how = op === CmpOp.eq && (operator !== undefined || isFlags) ? "== " : OPERATORS[op];
  return `${text} ${how}${forms.length === 0 ? UNKNOWN_TEXT : dataText(forms, data, style)}`;
}

/** One or several neighbouring fields of a header, which nft compares at once. */
function compareHeader(load: Of<"payload">, op: number, data: Uint8Array, reading: Reading): void {
  const fields = fieldsIn(load, reading);
  const isPart = ({ known, bits }: FieldOfHeader): boolean =>
    known === undefined || (reading.style.isPortable === true && bits % 8 > 0);
  // Several fields of which any may differ, and parts of fields, cannot be said field by field.
  if (fields.length > 1 && (op === CmpOp.neq || fields.some(isPart)))
    return void addHeaderField(rawOperand(load.base, load.offset * 8, load.len * 8), op, bytesToNumber(data), reading);
  let left = load.len * 8;
  const all = bytesToNumber(data);
  for (const { known, bits } of fields) {
    const raw = rawOperand(load.base, (load.offset + load.len) * 8 - left, bits);
    left -= bits;
    const value = (all >> BigInt(left)) & ((1n << BigInt(bits)) - 1n);
    if (known === undefined) addHeaderField(raw, op, value, reading);
    else if (bits < known.form.bits) addNetwork(known, bits, op, value, reading);
    else {
      reading.context.use(known, true);
      const line = addHeaderField({ text: nameOf(known, reading), forms: [known.form] }, op, value, reading);
      if (op === CmpOp.eq) reading.context.noteValue(known, value, line);
    }
  }
}

interface FieldOfHeader {
  readonly bits: number;
  readonly known?: KnownField | undefined;
}

/** Splits what a rule loads from a header. */
function fieldsIn(load: Of<"payload">, { context }: Reading): FieldOfHeader[] {
  const fields: FieldOfHeader[] = [];
  const { protocol, offset: first } = placeOf(load, context);
  let offset = first;
  for (let left = load.len * 8; left > 0;) {
    const known = fieldAt(protocol, offset, left, context.icmpType) ?? networkAt(protocol, offset, left);
    const bits = Math.min(known?.form.bits ?? left, left);
    fields.push({ bits, known });
    left -= bits;
    offset += bits;
  }
  return fields;
}

function networkAt(protocol: string, offset: number, bits: number): KnownField | undefined {
  const field = longerFieldAt(protocol, offset, bits);
  return field !== undefined && FIELD_TYPES[field.entry.type].kind === "address" ? field : undefined;
}

function addHeaderField(operand: Operand, op: number, value: bigint, reading: Reading): { text: string } {
  const [form] = operand.forms;
  return reading.context.add(comparisonText(operand, op, valueBytes(value, form.bits), reading));
}

function addNetwork(field: KnownField, bits: number, op: number, value: bigint, reading: Reading): void {
  reading.context.use(field);
  const whole = value << BigInt(field.form.bits - bits);
  const end = whole + (1n << BigInt(field.form.bits - bits)) - 1n;
  reading.context.add(
    `${field.text} ${OPERATORS[op]}${networkText(field.form, whole, end, reading.style) ?? UNKNOWN_TEXT}`,
  );
}

/** `tcp flags syn / syn,ack`, `ct state established,related`. */
function flagComparison(left: Term, op: number, data: Uint8Array, reading: Reading): string | undefined {
  if (left.kind !== "binary" || left.operator !== "&") return undefined;
  const { text, forms } = operandOf(left.of, reading);
  const [form] = forms;
  if (form === undefined || form.type === "raw" || FIELD_TYPES[form.type].kind !== "flags") return undefined;
  const { type } = form;
  const [mask, value] = [left.operand, data].map((bytes) => flagsOf(type, numberOf(form, bytes)));
  if (numberOf(form, data) === 0n && numberOf(form, left.operand) !== 0n)
    return `${text} ${op === CmpOp.eq ? "! " : ""}${mask.join(",")}`;
  // nft has no shorter form for a single flag.
  if (value.length === 1 && value[0] === mask[0] && mask.length === 1)
    return `${text} & ${mask[0]} ${op === CmpOp.eq ? "==" : "!="} ${value[0]}`;
  return `${text} ${OPERATORS[op]}${value.join(",")} / ${mask.join(",")}`;
}

/** An address of which only the first bits are compared. */
function networkComparison(
  left: Term,
  data: Uint8Array,
  reading: Reading,
): { readonly text: string; readonly value: string } | undefined {
  const isMasked = left.kind === "binary" && left.operator === "&";
  const inner = isMasked ? left.of : left;
  if (inner.kind === "binary" || (!isMasked && data.length >= left.length)) return undefined;
  const { text, forms } = operandOf(inner, reading);
  const [form] = forms;
  if (forms.length !== 1 || form.type === "raw" || form.length !== inner.length) return undefined;
  const [mask, value] = [isMasked ? left.operand : new Uint8Array(data.length).fill(0xff), data].map((bytes) => {
    const whole = new Uint8Array(form.length);
    whole.set(bytes);
    return numberOf(form, whole);
  });
  const hosts = ((1n << BigInt(form.bits)) - 1n) ^ mask;
  const network = (value & hosts) === 0n ? networkText(form, value, value | hosts, reading.style) : undefined;
  return network === undefined ? undefined : { text, value: network };
}

export function compareRange({ sreg, op, from, to }: Of<"range">, reading: Reading): void {
  const { text, forms } = operandOf(reading.registers.get(sreg, from.length), reading);
  const [form] = forms as readonly (Operand["forms"][number] | undefined)[];
  const range = form === undefined ? UNKNOWN_TEXT : rangeOfValues(form, from, to, reading.style);
  reading.context.add(`${text} ${op === RangeOp.neq ? "!= " : ""}${range}`);
}

/** A look-up as a condition, or in a map: of verdicts, or of data for what follows. */
export function lookUp(expr: Of<"lookup">, reading: Reading): void {
  const { context, registers } = reading;
  const { set, setId, sreg, dreg, flags = 0 } = expr;
  const found = reading.set(set, setId);
  const key = keyAt(reading, sreg, set, setId);
  if (dreg !== undefined && dreg !== VERDICT_REGISTER)
    return registers.set(dreg, { kind: "map", key, lookup: expr, length: found?.info.dataLen ?? 0 });
  const { text, forms, field, operator } = operandOf(key, reading);
  const equal = operator === undefined ? "" : "== ";
  const how = dreg === VERDICT_REGISTER ? "vmap " : (flags & LookupFlag.invert) !== 0 ? "!= " : equal;
  context.add(`${text} ${how}${setText(reading, set, setId, forms)}`);
  const first = found?.elements?.bytes[0];
  if (dreg === undefined && how === "" && first !== undefined && /^icmp.* type$/.test(field?.text ?? ""))
    context.icmpType = first;
}
