/** The table of fields read backwards: from what the kernel loads to nft's name. Pure. */
import { FibFlag, FibResult } from "../kernel/constants.js";
import type { Expr } from "../kernel/kernel.js";
import {
  FIB_OF,
  FIB_RESULTS,
  type FieldEntry,
  fibField,
  type FieldName,
  FIELDS,
  load,
  protocolOfField,
  widthOfField,
} from "../language/fields/packet-fields.js";
import type { Form } from "./value-text.js";

/** A field under the name that nft prints. */
export interface KnownField {
  readonly name: FieldName | undefined;
  readonly text: string;
  readonly form: Form;
  readonly entry: FieldEntry;
}

/** Names that nft reads, but does not print. */
const PRINTED: Readonly<Partial<Record<FieldName, string>>> = {
  iiftype: "meta iiftype",
  oiftype: "meta oiftype",
  "icmpv6 param-problem": "icmpv6 parameter-problem",
};

const known = (name: FieldName, entry: FieldEntry): KnownField => {
  const form = { type: entry.type, ...widthOfField(entry) };
  return { name, entry, text: PRINTED[name] ?? name, form };
};

/** By protocol, in the order of the header. */
const headers: Partial<Record<string, (KnownField & { readonly offset: number })[]>> = {};
const others = new Map<string, KnownField>();
for (const [name, entry] of Object.entries(FIELDS) as [FieldName, FieldEntry][]) {
  const { source } = entry;
  if (source.from === "payload")
    (headers[protocolOfField(name)] ??= []).push({ ...known(name, entry), offset: source.offset });
  else others.set(keyOf(load(entry, 1).expr, load(entry, 1).shift, entry.bits), known(name, entry));
}
for (const fields of Object.values(headers)) fields?.sort((a, b) => a.offset - b.offset);

/** Identifies the field that an expression loads: of an extension header or option, also its bits. */
function keyOf(expr: Expr, shift: number, bits: number): string {
  const { type, key, direction, ttl, op, hdrType, offset, flags, len } = expr as unknown as Record<string, unknown>;
  if (type !== "exthdr") return [type, key, direction, ttl, flags || ""].join(" ");
  return [type, op, hdrType, ...(flags === 1 ? [] : [offset, len, shift, bits])].join(" ");
}

/** Returns the field that starts at this bit of a header and is no longer than `most` bits. */
export function fieldAt(protocol: string, offset: number, most: number, icmpType?: number): KnownField | undefined {
  return headers[protocol]?.find(
    (field) =>
      field.offset === offset &&
      field.form.bits <= most &&
      (icmpType === undefined || field.entry.messages?.includes(icmpType) !== false),
  );
}

/** Returns the first field of a header at this place that is longer, such as an address of which only a network is compared. */
export function longerFieldAt(protocol: string, offset: number, bits: number): KnownField | undefined {
  return headers[protocol]?.find((field) => field.offset === offset && field.form.bits > bits);
}

/** @param mask the bits that the rule compares of what it loads. */
export function otherField(
  expr: Expr,
  mask?: { readonly shift: number; readonly bits: number },
): KnownField | undefined {
  if (expr.type === "fib") return fibFieldOf(expr);
  const whole = expr.type === "exthdr" ? (expr.len ?? 0) * 8 : 0;
  return others.get(keyOf(expr, mask?.shift ?? 0, mask?.bits ?? whole));
}

function fibFieldOf({ flags, result }: Extract<Expr, { type: "fib" }>): KnownField | undefined {
  const isPresent = (flags & FibFlag.present) !== 0;
  const of = (Object.keys(FIB_OF) as (keyof typeof FIB_OF)[]).filter((part) => (flags & FIB_OF[part]) !== 0);
  const kind = (Object.keys(FIB_RESULTS) as (keyof typeof FIB_RESULTS)[]).find(
    (one) => FibResult[FIB_RESULTS[one].result] === result && FIB_RESULTS[one].present === isPresent,
  );
  if (kind === undefined) return undefined;
  const entry = fibField(of, kind);
  const text = `fib ${of.join(" . ")} ${kind === "check" ? "oif" : kind}`;
  return { name: undefined, entry, text, form: { type: entry.type, ...widthOfField(entry) } };
}
