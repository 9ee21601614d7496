/** Rules made from the table of fields: every field with every form of comparison, and random rules. */
import type { ValueRange } from "../../../src/nft/language/fields/values.js";
import type { Family } from "../../../src/nft/kernel/kernel.js";
import { FIELD_TYPES, type ValueType } from "../../../src/nft/language/fields/field-types.js";
import { type FieldEntry, type FieldName, FIELDS } from "../../../src/nft/language/fields/packet-fields.js";
import type { Comparison, KeyPart } from "../../../src/nft/language/vocabulary.js";
import type { Statement } from "../../../src/nft/statements/rule.js";
import type { Dice } from "../../support/dice.ts";

export const FAMILIES: readonly Family[] = ["ip", "ip6", "inet", "bridge", "netdev", "arp"];
export const NAMES = Object.keys(FIELDS) as FieldName[];

/** A random value of the field's type. */
export function valueOf(name: FieldName, dice: Dice): string | number {
  const { type, bits }: FieldEntry = FIELDS[name];
  return valueOfType(type, bits, dice);
}

function valueOfType(type: ValueType, bits: number, dice: Dice): string | number {
  const terms = FIELD_TYPES[type];
  const names = Object.keys(terms.names);
  switch (terms.kind) {
    case "address":
      return bits === 32
        ? `10.${dice.below(256)}.${dice.below(256)}.${1 + dice.below(254)}`
        : `2001:db8::${(1 + dice.below(0xfffe)).toString(16)}`;
    case "ether":
      return `02:00:00:00:00:${(16 + dice.below(200)).toString(16)}`;
    case "text":
      return type === "ifname" ? `eth${dice.below(100)}` : "x";
    case "protocol":
      return dice.pick(["tcp", "udp", "sctp", "esp"]);
    default:
      if (type === "day") return dice.below(7);
      if (names.length > 0 && dice.below(3) > 0) return dice.pick(names);
      return terms.kind === "flags" ? dice.pick(names) : 1 + dice.below(Math.min(2 ** bits - 1, 60_000));
  }
}

type Form = "one" | "not" | "list" | "not in" | "range" | "not range" | "less" | "network" | "mask";
export const FORMS: readonly Form[] = ["one", "not", "list", "not in", "range", "not range", "less", "network", "mask"];

/** One comparison of the field in this form, if its type has such a form. */
export function comparisonOf(name: FieldName, form: Form, dice: Dice): Statement | undefined {
  const { type, bits }: FieldEntry = FIELDS[name];
  const { kind } = FIELD_TYPES[type];
  const isNumber = kind === "number" || kind === "port" || kind === "class";
  const of = (value: unknown, op?: Comparison, mask?: unknown): Statement =>
    ({
      field: name,
      value,
      ...(op === undefined ? {} : { op }),
      ...(mask === undefined ? {} : { mask }),
    }) as unknown as Statement;
  const ends = (): ValueRange<number> => {
    const most = type === "day" ? 6 : Math.min(2 ** bits - 1, 60_000);
    const from = dice.below(most);
    return { from, to: from + 1 + dice.below(most - from) };
  };
  switch (form) {
    case "one":
      return of(valueOf(name, dice));
    case "not":
      return of(valueOf(name, dice), "!=");
    case "list":
    case "not in": {
      if (type === "boolean" || (isNumber && bits < 2) || kind === "text") return undefined;
      const values = new Set([valueOf(name, dice), valueOf(name, dice), valueOf(name, dice)]);
      return of([...values], form === "list" ? "in" : "not in");
    }
    case "range":
    case "not range":
      return isNumber && bits > 1 && type !== "boolean" ? of([ends()], form === "range" ? "==" : "!=") : undefined;
    case "less":
      return isNumber && bits > 1 && type !== "boolean"
        ? of(ends().to, dice.pick(["<", ">", "<=", ">="] as const))
        : undefined;
    case "network":
      if (kind !== "address") return undefined;
      return of(
        bits === 32
          ? dice.pick(["10.0.0.0/8", "172.16.0.0/12", "192.0.2.0/30"])
          : dice.pick(["2001:db8::/32", "fe80::/10", "fd00::/8"]),
      );
    case "mask":
      if (type === "mark") return of(0x12, dice.pick(["==", "!="] as const), 0xff);
      return type === "tcp_flag" ? of("syn", "==", ["syn", "ack"]) : undefined;
  }
}

/** Fields of a key. Some bits inside several bytes are refused there. */
const READABLE = NAMES.filter((name) => (FIELDS[name] as FieldEntry).settable !== "only");
const KEY_FIELDS = READABLE.filter(
  (name) => name !== "ip6 dscp" && !name.startsWith("exthdr") && FIELDS[name].type !== "boolean" && name !== "osf name",
);

/** A value, or for some types a range. */
function valueOrRange(name: FieldName, dice: Dice): string | number | ValueRange<number> {
  const { type, bits }: FieldEntry = FIELDS[name];
  const { kind } = FIELD_TYPES[type];
  if (kind === "address") return bits === 32 ? dice.pick(["10.0.0.0/8", "172.16.0.1-172.16.0.9"]) : "2001:db8::/32";
  if ((kind !== "number" && kind !== "port") || bits < 2) return valueOf(name, dice);
  const most = type === "day" ? 6 : Math.min(2 ** bits - 1, 60_000);
  const from = dice.below(most);
  return { from, to: from + 1 + dice.below(most - from) };
}

/** A look-up in a set that comes with the rule. */
export function keyOf(dice: Dice): Statement {
  const fields = [
    dice.pick(KEY_FIELDS),
    dice.pick(KEY_FIELDS),
    ...(dice.below(3) === 0 ? [dice.pick(KEY_FIELDS)] : []),
  ];
  const hasRanges = dice.below(3) === 0;
  const rows = [0, 1].map(() =>
    fields.map((name) => (hasRanges && dice.below(2) === 0 ? valueOrRange : valueOf)(name, dice)),
  );
  if (!hasRanges && dice.below(4) === 0)
    return {
      field: fields.map(masked),
      value: rows.map((row) => row.map((value, index) => maskedValue(fields[index], value))),
    };
  return { field: fields as KeyPart[], op: dice.pick(["in", "not in"] as const), value: rows };
}

/** Masks, and values without other bits. */
const MASKS: Readonly<
  Partial<Record<ValueType, readonly [mask: string | number, of: (value: string) => string | number]>>
> = {
  ipv4_addr: ["255.255.255.0", (value) => value.replace(/\d+$/, "0")],
  ipv6_addr: ["ffff:ffff:ffff:ffff::", (value) => value.replace(/^2001:db8::(.*)/, "2001:db8:0:$1::")],
  inet_service: [0xff00, (value) => Number(value) & 0xff00],
  mark: [0xff, (value) => Number(value) & 0xff],
};
const masked = (name: FieldName): KeyPart => {
  const mask = MASKS[FIELDS[name].type]?.[0];
  return mask === undefined ? name : { field: name, mask };
};
const maskedValue = (name: FieldName, value: string | number | ValueRange<number>): typeof value =>
  (typeof value === "object" ? undefined : MASKS[FIELDS[name].type]?.[1](String(value))) ?? value;

const ACTIONS: readonly ((dice: Dice) => Statement)[] = [
  () => ({ action: "counter" }),
  (dice) => ({ action: "log", prefix: dice.pick(["x", "a b"]), level: dice.pick(["debug", "info", "err"] as const) }),
  (dice) => ({ action: "log", group: dice.below(100), snaplen: 64, queueThreshold: 10 }),
  (dice) => ({
    action: "limit",
    rate: 1 + dice.below(1000),
    per: dice.pick(["second", "minute", "hour", "day"] as const),
    over: dice.below(2) === 0,
  }),
  (dice) => ({
    action: "limit",
    rate: 1 + dice.below(1000),
    unit: dice.pick(["bytes", "kbytes", "mbytes"] as const),
    per: "second",
    burst: 1 + dice.below(9),
  }),
  (dice) => ({ action: "quota", bytes: 1 + dice.below(1_000_000), over: dice.below(2) === 0 }),
  (dice) => ({ action: "set", field: "meta mark", value: 1 + dice.below(1000) }),
  (dice) => ({
    action: "set",
    field: "meta mark",
    value: { from: "meta mark", mask: 0xffff00ff, xor: dice.pick([0, 0x1200, 0xff00]) },
  }),
  () => ({ action: "set", field: "meta mark", value: { from: "ct mark", mask: 0xff } }),
  () => ({ action: "set", field: "ct mark", value: { from: "meta mark" } }),
  (dice) => ({
    action: "set",
    field: "meta mark",
    value: { from: { field: "numgen", mode: dice.pick(["inc", "random"] as const), modulus: 2 + dice.below(9) } },
  }),
  (dice) => ({
    action: "set",
    field: "meta mark",
    value: { from: { field: "symhash", modulus: 2 + dice.below(9), offset: dice.below(9) } },
  }),
  (dice) => ({ action: "set", field: "meta priority", value: dice.below(0xffff) }),
  (dice) => ({ action: "set", field: "tcp option maxseg size", value: dice.pick([1400, { from: "rt mtu" } as const]) }),
];

/** A random rule: some conditions, in any order, then some actions. */
export function randomRule(dice: Dice): Statement[] {
  const statements: Statement[] = [];
  for (let left = 1 + dice.below(4); left > 0; left--) {
    const one = dice.below(6) === 0 ? keyOf(dice) : comparisonOf(dice.pick(NAMES), dice.pick(FORMS), dice);
    if (one !== undefined) statements.push(one);
    if (dice.below(5) === 0) statements.push(dice.pick(ACTIONS)(dice));
  }
  for (let left = dice.below(3); left > 0; left--) statements.push(dice.pick(ACTIONS)(dice));
  const verdict = dice.pick([undefined, "accept", "drop", "return"] as const);
  if (verdict !== undefined || statements.length === 0)
    statements.push({ action: "verdict", verdict: verdict ?? "continue" });
  return statements;
}
