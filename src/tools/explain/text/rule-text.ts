/** Formats a rule in nft's syntax, in enough detail to find it. Used to name other programs' rules in messages. */
import { formatAddress } from "../../../base/ip.js";
import { protocolName } from "../../../base/protocols.js";
import {
  CmpOp,
  CtKey,
  CtState,
  CtStatus,
  FibFlag,
  FibResult,
  LookupFlag,
  MetaKey,
  NatType,
  PayloadBase,
  RangeOp,
  RejectType,
} from "../../../netlink/constants.js";
import type { Expr, RuleInfo } from "../../../netlink/kernel.js";
import { extensionOf } from "../machine/xt-extension.js";

type Kind = "address" | "port" | "name" | "protocol" | "state" | "status" | "presence" | "hex";
/** A value that an expression has loaded, with the mask that was applied. */
interface Field {
  readonly text: string;
  readonly kind: Kind;
  readonly mask?: Uint8Array;
}
type Of<T extends Expr["type"]> = Extract<Expr, { type: T }>;
type Texts = { readonly [T in Expr["type"]]?: (expr: Of<T>, fields: Fields) => string };

/** By offset and length. */
const NETWORK: Readonly<Record<string, Field>> = {
  "8 1": { text: "ip ttl", kind: "port" },
  "9 1": { text: "ip protocol", kind: "protocol" },
  "12 4": { text: "ip saddr", kind: "address" },
  "16 4": { text: "ip daddr", kind: "address" },
  "8 16": { text: "ip6 saddr", kind: "address" },
  "24 16": { text: "ip6 daddr", kind: "address" },
  "6 1": { text: "ip6 nexthdr", kind: "protocol" },
  "7 1": { text: "ip6 hoplimit", kind: "port" },
};
const TRANSPORT: Readonly<Record<string, Field>> = {
  "0 2": { text: "th sport", kind: "port" },
  "2 2": { text: "th dport", kind: "port" },
  "13 1": { text: "tcp flags", kind: "hex" },
};
const KINDS: Readonly<Partial<Record<string, Kind>>> = {
  iifname: "name",
  oifname: "name",
  l4proto: "protocol",
  state: "state",
  status: "status",
};
const OPERATORS = ["", "!= ", "< ", "<= ", "> ", ">= "];
const NO_VALUE: Field = { text: "…", kind: "hex" };

/** The fields that the expressions so far have loaded, by register. */
class Fields {
  readonly #loaded = new Map<number, Field>();

  /** Adds nothing to the text: the field is named by the expression that reads it. */
  load(register: number, field: Field): "" {
    this.#loaded.set(register, field);
    return "";
  }

  at(register: number): Field {
    return this.#loaded.get(register) ?? NO_VALUE;
  }
}

/** "tcp dport 8080 drop (handle 7)". */
export function ruleText({ exprs, handle }: Pick<RuleInfo, "exprs" | "handle">): string {
  const fields = new Fields();
  const words = exprs.map((expr) => wordsOf(expr, fields)).filter((text) => text !== "");
  const text = words
    .join(" ")
    .replace(/\b(?:meta l4proto|ip protocol|ip6 nexthdr) (tcp|udp|sctp) th (sport|dport)/g, "$1 $2")
    .replace(/\bmeta nfproto \S+ (?=\S)/g, "")
    .replace(/\bmeta ([io]ifname)/g, "$1");
  return `${text} (handle ${handle})`;
}

function wordsOf(expr: Expr, fields: Fields): string {
  const words = TEXTS[expr.type] as ((expr: Expr, fields: Fields) => string) | undefined;
  if (words !== undefined) return words(expr, fields);
  const isLoaded = "dreg" in expr && expr.dreg !== undefined;
  return isLoaded ? fields.load(expr.dreg, { text: expr.type, kind: "hex" }) : expr.type;
}

const over = (flags = 0): string => ((flags & 1) === 0 ? "" : "over ");

/** Expressions that have their own syntax. */
const TEXTS: Texts = {
  payload: (expr, fields) =>
    expr.dreg === undefined
      ? `@${expr.base},${expr.offset * 8},${expr.len * 8} set …`
      : fields.load(expr.dreg, payloadField(expr)),
  meta: (expr, fields) => keyed(expr, MetaKey, fields),
  ct: (expr, fields) => keyed(expr, CtKey, fields),
  fib: (expr, fields) => fields.load(expr.dreg, fibField(expr)),
  bitwise: ({ sreg, dreg, mask }, fields) => fields.load(dreg, { ...fields.at(sreg), ...(mask && { mask }) }),
  byteorder: ({ sreg, dreg }, fields) => fields.load(dreg, fields.at(sreg)),
  cmp: ({ sreg, op, data }, fields) => {
    const field = fields.at(sreg);
    const { text, kind, mask } = field;
    // "!= 0" on some bits means that at least one of them is set.
    const isAnyOf = op === CmpOp.neq && mask !== undefined && data.every((byte) => byte === 0);
    return isAnyOf ? `${text} ${valueText({ text, kind }, mask)}` : `${text} ${OPERATORS[op]}${valueText(field, data)}`;
  },
  range: ({ sreg, op, from, to }, fields) => {
    const field = fields.at(sreg);
    const operator = op === RangeOp.neq ? "!= " : "";
    return `${field.text} ${operator}${valueText(field, from)}-${valueText(field, to)}`;
  },
  lookup: ({ set, sreg, dreg, flags = 0 }, fields) => {
    const { text } = fields.at(sreg);
    const name = set.startsWith("__") ? "{ … }" : `@${set}`;
    if (dreg === undefined) return `${text} ${(flags & LookupFlag.invert) !== 0 ? "!= " : ""}${name}`;
    fields.load(dreg, { text: `${text} map ${name}`, kind: "hex" });
    return dreg === 0 ? `${text} vmap ${name}` : "";
  },
  immediate: ({ data }) =>
    "verdict" in data ? ("chain" in data ? `${data.verdict} ${data.chain}` : data.verdict) : "",
  limit: ({ flags, rate, unit }) => `limit rate ${over(flags)}${rate}/${UNITS[String(unit)] ?? `${unit}s`}`,
  quota: ({ flags, bytes }) => `quota ${over(flags) || "until "}${bytes} bytes`,
  connlimit: ({ flags, count }) => `ct count ${over(flags)}${count}`,
  objref: ({ immType = 0, immName, setName = "" }) =>
    `${OBJECTS[immType] ?? "object"} name ${immName ?? `map @${setName}`}`,
  dynset: ({ op, set }) => `${["add", "update", "delete"][op] ?? "update"} @${set} { … }`,
  nat: ({ natType }) => (natType === NatType.snat ? "snat" : "dnat"),
  masq: () => "masquerade",
  redir: () => "redirect",
  reject: ({ rejectType }) => (rejectType === RejectType.tcpReset ? "reject with tcp reset" : "reject"),
  flow_offload: ({ flowtable }) => `flow add @${flowtable}`,
  opaque: ({ name, data }) => (name === "match" || name === "target" ? `xt ${name} ${extensionOf(data).name}` : name),
};

const UNITS: Readonly<Record<string, string>> = { 1: "second", 60: "minute", 3600: "hour", 86400: "day" };
const OBJECTS: Readonly<Record<number, string>> = {
  ...{ 1: "counter", 2: "quota", 3: "ct helper", 4: "limit", 5: "ct count", 7: "ct timeout", 10: "synproxy" },
};

function payloadField({ base, offset, len }: Of<"payload">): Field {
  const known = base === PayloadBase.network ? NETWORK : base === PayloadBase.transport ? TRANSPORT : {};
  const name = `@${["ll", "nh", "th"][base] ?? "ih"},${offset * 8},${len * 8}`;
  // A prefix of whole bytes loads only that many bytes.
  const whole = [4, 16].find((length) => len < length && known[`${offset} ${length}`]?.kind === "address") ?? len;
  return known[`${offset} ${len}`] ?? known[`${offset} ${whole}`] ?? { text: name, kind: "hex" };
}

function fibField({ flags, result }: Of<"fib">): Field {
  const keys = (["saddr", "daddr", "mark", "iif", "oif"] as const).filter((key) => (flags & FibFlag[key]) !== 0);
  const what = result === FibResult.addrtype ? "type" : result === FibResult.oifname ? "oifname" : "oif";
  const kind = (flags & FibFlag.present) !== 0 ? "presence" : what === "oifname" ? "name" : "hex";
  return { text: `fib ${keys.join(" . ")} ${what}`, kind };
}

function keyed(expr: Of<"meta" | "ct">, keys: Readonly<Record<string, number>>, fields: Fields): string {
  const name = Object.keys(keys).find((key) => keys[key] === expr.key) ?? `key ${expr.key}`;
  const text = `${expr.type} ${name}`;
  return expr.dreg === undefined ? `${text} set …` : fields.load(expr.dreg, { text, kind: KINDS[name] ?? "hex" });
}

function valueText({ text, kind, mask }: Field, data: Uint8Array): string {
  switch (kind) {
    case "address": {
      const whole = new Uint8Array(text.startsWith("ip6") ? 16 : 4);
      whole.set(data.subarray(0, whole.length));
      const bits = mask === undefined ? data.length * 8 : bitsIn(mask);
      return `${formatAddress(whole)}${bits < whole.length * 8 ? `/${bits}` : ""}`;
    }
    case "port":
      return String(data.reduce((all, byte) => all * 256 + byte, 0));
    case "name":
      return `"${Buffer.from(data).toString("latin1").replace(/\0.*$/s, "")}${data.length < 16 ? "*" : ""}"`;
    case "protocol":
      return protocolName(data[0] ?? 0);
    case "state":
      return flagsText(CtState, data);
    case "status":
      return flagsText(CtStatus, data);
    case "presence":
      return data.some((byte) => byte !== 0) ? "exists" : "missing";
    case "hex":
      return `0x${Buffer.from(data.toReversed())
        .toString("hex")
        .replace(/^0+(?=.)/, "")}`;
  }
}

function flagsText(names: Readonly<Record<string, number>>, [value = 0]: Uint8Array): string {
  const set = Object.keys(names).filter((name) => (value & (names[name] ?? 0)) !== 0);
  return set.join(",") || "0";
}

function bitsIn(mask: Uint8Array): number {
  return mask.reduce((sum, byte) => sum + byte.toString(2).replaceAll("0", "").length, 0);
}
