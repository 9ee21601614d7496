/** Formats a rule in nft's syntax, in enough detail to find it. Used to name other programs' rules in messages. */
import { formatAddress } from "../../base/ip.js";
import { protocolName } from "../../base/protocols.js";
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
} from "../../netlink/constants.js";
import type { Expr, RuleInfo } from "../../netlink/kernel.js";
import { targetOf } from "./xtables.js";

type Kind = "address" | "port" | "number" | "name" | "protocol" | "state" | "status" | "presence" | "hex";
interface Field {
  readonly text: string;
  readonly kind: Kind;
}

/** By offset and length. */
const NETWORK: Readonly<Record<string, Field>> = {
  "8 1": { text: "ip ttl", kind: "number" },
  "9 1": { text: "ip protocol", kind: "protocol" },
  "12 4": { text: "ip saddr", kind: "address" },
  "16 4": { text: "ip daddr", kind: "address" },
  "8 16": { text: "ip6 saddr", kind: "address" },
  "24 16": { text: "ip6 daddr", kind: "address" },
  "6 1": { text: "ip6 nexthdr", kind: "protocol" },
  "7 1": { text: "ip6 hoplimit", kind: "number" },
};
const TRANSPORT: Readonly<Record<string, Field>> = {
  "0 2": { text: "th sport", kind: "port" },
  "2 2": { text: "th dport", kind: "port" },
  "13 1": { text: "tcp flags", kind: "hex" },
};
const KINDS: Readonly<Partial<Record<keyof typeof MetaKey | keyof typeof CtKey, Kind>>> = {
  iifname: "name",
  oifname: "name",
  l4proto: "protocol",
  protocol: "hex",
  state: "state",
  status: "status",
};
const OPERATORS = new Map<number, string>([
  [CmpOp.eq, ""],
  [CmpOp.neq, "!= "],
  [CmpOp.lt, "< "],
  [CmpOp.lte, "<= "],
  [CmpOp.gt, "> "],
  [CmpOp.gte, ">= "],
]);

/** The fields that the expressions so far have loaded, by register, with the mask that was applied. */
type Loaded = Map<number, Field & { readonly mask?: Uint8Array }>;

/** "tcp dport 8080 drop (handle 7)". */
export function ruleText({ exprs, handle }: Pick<RuleInfo, "exprs" | "handle">): string {
  const loaded: Loaded = new Map();
  const words = exprs.map((expr) => wordsOf(expr, loaded)).filter((text) => text !== "");
  const text = words
    .join(" ")
    .replace(/\b(?:meta l4proto|ip protocol|ip6 nexthdr) (tcp|udp|sctp) th (sport|dport)/g, "$1 $2")
    .replace(/\bmeta nfproto \S+ (?=\S)/g, "")
    .replace(/\bmeta ([io]ifname)/g, "$1");
  return `${text} (handle ${handle})`;
}

// One case per expression that has its own syntax.
function wordsOf(expr: Expr, loaded: Loaded): string {
  switch (expr.type) {
    case "payload":
      if (expr.dreg === undefined) return `@${expr.base},${expr.offset * 8},${expr.len * 8} set …`;
      loaded.set(expr.dreg, payloadField(expr));
      return "";
    case "meta":
    case "ct":
      return keyed(expr, loaded);
    case "fib":
      loaded.set(expr.dreg, fibField(expr));
      return "";
    case "bitwise":
      loaded.set(expr.dreg, { ...fieldIn(loaded, expr.sreg), ...(expr.mask && { mask: expr.mask }) });
      return "";
    case "byteorder":
      loaded.set(expr.dreg, fieldIn(loaded, expr.sreg));
      return "";
    case "cmp": {
      const field = fieldIn(loaded, expr.sreg);
      // "!= 0" on some bits means that at least one of them is set.
      const anyOf = expr.op === CmpOp.neq && field.mask !== undefined && expr.data.every((byte) => byte === 0);
      return anyOf
        ? `${field.text} ${valueText({ text: field.text, kind: field.kind }, field.mask)}`
        : `${field.text} ${OPERATORS.get(expr.op) ?? ""}${valueText(field, expr.data)}`;
    }
    case "range": {
      const field = fieldIn(loaded, expr.sreg);
      const not = expr.op === RangeOp.neq ? "!= " : "";
      return `${field.text} ${not}${valueText(field, expr.from)}-${valueText(field, expr.to)}`;
    }
    case "lookup":
      return lookupText(expr, loaded);
    case "immediate": {
      const { data } = expr;
      if (!("verdict" in data)) return "";
      return "chain" in data ? `${data.verdict} ${data.chain}` : data.verdict;
    }
    default:
      if (expr.type !== "dynset" && "dreg" in expr && expr.dreg !== undefined) {
        loaded.set(expr.dreg, { text: expr.type, kind: "hex" });
        return "";
      }
      return otherWords(expr);
  }
}

function otherWords(expr: Expr): string {
  switch (expr.type) {
    case "limit":
      return `limit rate ${(expr.flags ?? 0) & 1 ? "over " : ""}${expr.rate}/${unitText(expr.unit)}`;
    case "quota":
      return `quota ${(expr.flags ?? 0) & 1 ? "over" : "until"} ${expr.bytes} bytes`;
    case "connlimit":
      return `ct count ${(expr.flags ?? 0) & 1 ? "over " : ""}${expr.count}`;
    case "objref":
      return `${OBJECTS.get(expr.immType ?? 0) ?? "object"} name ${expr.immName ?? `map @${expr.setName ?? ""}`}`;
    case "dynset":
      return `${["add", "update", "delete"][expr.op] ?? "update"} @${expr.set} { … }`;
    case "nat":
      return expr.natType === NatType.snat ? "snat" : "dnat";
    case "masq":
      return "masquerade";
    case "redir":
      return "redirect";
    case "reject":
      return expr.rejectType === RejectType.tcpReset ? "reject with tcp reset" : "reject";
    case "flow_offload":
      return `flow add @${expr.flowtable}`;
    case "opaque":
      return expr.name === "match" || expr.name === "target"
        ? `xt ${expr.name} ${targetOf(expr.data).name}`
        : expr.name;
    default:
      return expr.type;
  }
}

const OBJECTS = new Map([
  [1, "counter"],
  [2, "quota"],
  [3, "ct helper"],
  [4, "limit"],
  [5, "ct count"],
  [7, "ct timeout"],
  [10, "synproxy"],
]);

function unitText(seconds: bigint): string {
  const units: Readonly<Record<string, string>> = { 1: "second", 60: "minute", 3600: "hour", 86400: "day" };
  return units[String(seconds)] ?? `${seconds}s`;
}

function payloadField({
  base,
  offset,
  len,
}: Extract<Expr, { type: "payload" }>): Field & { readonly mask?: Uint8Array } {
  const known = base === PayloadBase.network ? NETWORK : base === PayloadBase.transport ? TRANSPORT : {};
  const field = known[`${offset} ${len}`];
  if (field !== undefined) return field;
  // A prefix of whole bytes loads only that many bytes.
  for (const [at, name] of [
    ["12 4", 12],
    ["16 4", 16],
    ["8 16", 8],
    ["24 16", 24],
  ] as const) {
    const whole = NETWORK[at];
    if (base === PayloadBase.network && offset === name && whole !== undefined && len < (at.endsWith("16") ? 16 : 4)) {
      return whole;
    }
  }
  return { text: `@${["ll", "nh", "th"][base] ?? "ih"},${offset * 8},${len * 8}`, kind: "hex" };
}

function fibField({ flags, result }: Extract<Expr, { type: "fib" }>): Field {
  const keys = (["saddr", "daddr", "mark", "iif", "oif"] as const).filter((key) => (flags & FibFlag[key]) !== 0);
  const what = result === FibResult.addrtype ? "type" : result === FibResult.oifname ? "oifname" : "oif";
  const kind = (flags & FibFlag.present) !== 0 ? "presence" : what === "oifname" ? "name" : "hex";
  return { text: `fib ${keys.join(" . ")} ${what}`, kind };
}

function keyed(expr: Extract<Expr, { type: "meta" | "ct" }>, loaded: Loaded): string {
  const names: Readonly<Record<string, number>> = expr.type === "meta" ? MetaKey : CtKey;
  const name = Object.entries(names).find(([, key]) => key === expr.key)?.[0];
  const text = `${expr.type} ${name ?? `key ${expr.key}`}`;
  if (expr.dreg === undefined) return `${text} set …`;
  const kind = KINDS[name as keyof typeof MetaKey] ?? "hex";
  loaded.set(expr.dreg, { text, kind });
  return "";
}

function lookupText({ set, sreg, dreg, flags = 0 }: Extract<Expr, { type: "lookup" }>, loaded: Loaded): string {
  const { text } = fieldIn(loaded, sreg);
  const name = set.startsWith("__") ? "{ … }" : `@${set}`;
  if (dreg === undefined) return `${text} ${(flags & LookupFlag.invert) !== 0 ? "!= " : ""}${name}`;
  loaded.set(dreg, { text: `${text} map ${name}`, kind: "hex" });
  return dreg === 0 ? `${text} vmap ${name}` : "";
}

function fieldIn(loaded: Loaded, register: number): Field & { readonly mask?: Uint8Array } {
  return loaded.get(register) ?? { text: "…", kind: "hex" };
}

function valueText({ text, kind, mask }: Field & { readonly mask?: Uint8Array }, data: Uint8Array): string {
  switch (kind) {
    case "address": {
      const length = text.startsWith("ip6") ? 16 : 4;
      const whole = new Uint8Array(length);
      whole.set(data.subarray(0, length));
      const bits = mask === undefined ? data.length * 8 : mask.reduce((sum, byte) => sum + bitsOf(byte), 0);
      return `${formatAddress(whole)}${bits < length * 8 ? `/${bits}` : ""}`;
    }
    case "port":
    case "number":
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

function flagsText(names: Readonly<Record<string, number>>, data: Uint8Array): string {
  const value = data[0] ?? 0;
  const set = Object.entries(names).filter(([, bit]) => (value & bit) !== 0);
  return set.map(([name]) => name).join(",") || "0";
}

const bitsOf = (byte: number): number => byte.toString(2).replaceAll("0", "").length;
