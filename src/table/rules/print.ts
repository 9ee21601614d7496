/** Statements, keys and elements as nft's own text (>= 1.0.6). Pure. */
import { Hook, IpProto } from "../../kernel/constants.js";
import type { Family, Verdict } from "../../kernel/types.js";
import { addressBytes, addressText, mergeRanges, parseNetwork, rangeText } from "./ranges.js";
import { readU32 } from "../elements/bytes.js";
import { DEFAULT_BURST } from "./lower-actions.js";
import { protocolText } from "./protocols.js";
import { padded } from "./schema.js";
import {
  FIELD_BYTES,
  type Action,
  type Field,
  type FieldType,
  type Match,
  type PortRange,
  type Rule,
  type SetSpec,
  type Statement,
} from "./types.js";
import { targetOf } from "../elements/verdicts.js";

export interface PrintOptions {
  readonly family: Family;
  readonly setSpec?: (name: string) => SetSpec | undefined;
}

export function printRule(rule: Rule, options: PrintOptions): string {
  const words = rule.statements.map((statement) => printStatement(statement, options)).filter((text) => text !== "");
  if (rule.comment !== undefined) words.push(`comment "${rule.comment}"`);
  return words.join(" ");
}

function printStatement(statement: Statement, options: PrintOptions): string {
  return "match" in statement ? printMatch(statement, options) : printAction(statement, options);
}

const not = (negate: boolean | undefined): string => (negate === true ? "!= " : "");
const hex = (value: number): string => `0x${(value >>> 0).toString(16)}`;
const either = (items: readonly string[]): string => (items.length === 1 ? items[0] : `{ ${items.join(", ")} }`);

function printMatch(match: Match, options: PrintOptions): string {
  switch (match.match) {
    case "address": {
      const networks = match.nets.map(parseNetwork);
      const version = networks[0]?.version ?? 4;
      const texts = mergeRanges(networks).map((range) => rangeText(range, version === 4 ? 4 : 16));
      return `${version === 4 ? "ip" : "ip6"} ${match.direction === "source" ? "saddr" : "daddr"} ${not(match.negate)}${either(texts)}`;
    }
    case "port":
      return `th ${match.direction === "source" ? "sport" : "dport"} ${not(match.negate)}${either(match.ports.map(portText))}`;
    case "protocol":
      return `meta l4proto ${not(match.negate)}${protocolText(match.protocol)}`;
    case "in-set":
      return `${printKey(match.key, match.set, options)} ${not(match.negate)}@${match.set}`;
    case "address-type": {
      const limit = match.limit === undefined ? "" : match.limit === "in" ? " . iif" : " . oif";
      return `fib ${match.direction === "source" ? "saddr" : "daddr"}${limit} type ${not(match.negate)}${match.type}`;
    }
    case "icmp":
      return printIcmp(match, options.family);
    case "tcp-flags":
      return `tcp flags & ${flagsText(match.among)} == ${match.set.length === 0 ? "0x0" : flagsText(match.set)}`;
    case "ct-state": {
      const states = match.states.length === 1 ? match.states[0] : `(${match.states.join(" | ")})`;
      return match.negate === true ? `ct state & ${states} == 0` : `ct state ${match.states.join(",")}`;
    }
    case "ct-status":
      return match.negate === true ? `ct status & ${match.status} == 0` : `ct status ${match.status}`;
    case "mark":
      if (match.mask === undefined || match.mask === 0xffffffff)
        return `meta mark ${not(match.negate)}${hex(match.value)}`;
      return `meta mark & ${hex(match.mask)} ${match.negate === true ? "!=" : "=="} ${hex(match.value)}`;
    case "priority":
      if (match.mask === undefined) return `meta priority ${not(match.negate)}${classidText(match.value)}`;
      return `meta priority & ${classidText(match.mask)} ${match.negate === true ? "!=" : "=="} ${classidText(match.value)}`;
    case "interface":
      return match.name === "*"
        ? ""
        : `${match.direction === "in" ? "iifname" : "oifname"} ${not(match.negate)}"${match.name}"`;
    case "reverse-path":
      return `fib saddr . iif oif ${match.passed ? "exists" : "missing"}`;
  }
}

function printIcmp(match: Extract<Match, { match: "icmp" }>, family: Family): string {
  const name = match.version === 4 ? "icmp" : "icmpv6";
  if (match.code === undefined) return `${name} type ${not(match.negate)}${match.type}`;
  // Neither type != nor code != says that the pair is another one.
  if (match.negate === true) {
    const nfproto = family === "inet" ? `meta nfproto ${match.version === 4 ? "ipv4" : "ipv6"} ` : "";
    const guard = `${nfproto}meta l4proto ${match.version === 4 ? "icmp" : "ipv6-icmp"}`;
    return `${guard} @th,0,16 != ${hex(match.type * 256 + match.code)}`;
  }
  return `${name} type ${match.type} ${name} code ${match.code}`;
}

function flagsText(flags: readonly string[]): string {
  return flags.length === 1 ? flags[0] : `(${flags.join(" | ")})`;
}

function portText(ports: PortRange): string {
  if (typeof ports === "number") return String(ports);
  return ports[0] === ports[1] ? String(ports[0]) : `${ports[0]}-${ports[1]}`;
}

const LOG_LEVELS = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];

function printAction(action: Action, options: PrintOptions): string {
  switch (action.action) {
    case "counter":
      return "counter";
    case "log": {
      const level = action.level === undefined ? "" : ` level ${LOG_LEVELS[action.level] ?? action.level}`;
      return `log prefix "${action.prefix}"${level}${action.group === undefined ? "" : ` group ${action.group}`}`;
    }
    case "limit":
      return `limit rate ${action.rate}/${action.per} burst ${action.burst ?? DEFAULT_BURST} packets`;
    case "set-mark":
      return printSetMark(action.mask ?? 0xffffffff, action.value);
    case "xor-mark":
      return `meta mark set meta mark ^ ${hex(action.value)}`;
    case "set-priority":
      return `meta priority set ${classidText(action.value)}`;
    case "priority-map":
      return `meta priority set ${printKey(action.key, action.map, options)} map @${action.map}`;
    case "notrack":
      return "notrack";
    case "verdict":
      return printVerdict(action.verdict);
    case "vmap":
      return `${printKey(action.key, action.map, options)} vmap @${action.map}`;
    case "dnat":
      return `dnat ${natFamily(action.address, options)}to ${target(action.address, action.port)}`;
    case "snat":
      return `snat ${natFamily(action.address, options)}to ${target(action.address, action.port)}${action.fullyRandom === true ? " fully-random" : ""}`;
    case "dnat-map":
      return printDnatMap(action, options);
    case "masquerade": {
      const flags = [action.random === true ? "random" : "", action.fullyRandom === true ? "fully-random" : ""].filter(
        (flag) => flag !== "",
      );
      return ["masquerade", action.ports === undefined ? "" : `to :${portText(action.ports)}`, flags.join(",")]
        .filter((part) => part !== "")
        .join(" ");
    }
    case "reject":
      return printReject(action.with ?? "port-unreachable", options.family);
    case "update": {
      const timeout = action.timeoutMs === undefined ? "" : ` timeout ${durationText(action.timeoutMs)}`;
      const data =
        action.data === undefined
          ? ""
          : ` : ${action.data.address}${action.data.port === undefined ? "" : ` . ${action.data.port}`}`;
      return `update @${action.set} { ${printKey(action.key, action.set, options)}${timeout}${data} }`;
    }
  }
}

function printSetMark(mask: number, value: number): string {
  if (mask === 0xffffffff) return `meta mark set ${hex(value)}`;
  if (mask === value) return `meta mark set meta mark | ${hex(value)}`;
  const kept = `meta mark set meta mark & ${hex(~mask)}`;
  return value === 0 ? kept : `${kept} | ${hex(value)}`;
}

function natFamily(address: string | undefined, options: PrintOptions): string {
  if (options.family !== "inet" || address === undefined) return "";
  return addressBytes(address).length === 4 ? "ip " : "ip6 ";
}

function target(address: string | undefined, port: number | undefined): string {
  const text = address === undefined ? "" : addressText(addressBytes(address));
  if (port === undefined) return text;
  return `${text.includes(":") ? `[${text}]` : text}:${port}`;
}

function printDnatMap(action: Extract<Action, { action: "dnat-map" }>, options: PrintOptions): string {
  const data = options.setSpec?.(action.map)?.data;
  const v6 = options.family === "ip6" || (data !== undefined && data !== "verdict" && data[0] === "ipv6_addr");
  const what =
    action.data === "address-port"
      ? `${v6 ? "ip6" : "ip"} addr . port `
      : options.family === "inet"
        ? `${v6 ? "ip6" : "ip"} `
        : "";
  return `dnat ${what}to ${printKey(action.key, action.map, options)} map @${action.map}`;
}

function printReject(
  how: "port-unreachable" | "admin-prohibited" | "host-unreachable" | "tcp-reset",
  family: Family,
): string {
  if (how === "port-unreachable") return "reject";
  if (how === "tcp-reset") return "reject with tcp reset";
  const protocol = family === "ip" ? "icmp" : family === "ip6" ? "icmpv6" : "icmpx";
  return `reject with ${protocol} type ${how === "host-unreachable" && family === "ip6" ? "addr-unreachable" : how}`;
}

export function printVerdict(verdict: Verdict): string {
  const chain = targetOf(verdict);
  return chain === undefined ? verdict.verdict : `${verdict.verdict} ${chain}`;
}

/** A concatenation. */
function printKey(key: readonly Field[], set: string, options: PrintOptions): string {
  const spec = options.setSpec?.(set);
  return key.map((field, index) => printField(field, options.family, spec?.key[index])).join(" . ");
}

function printField(field: Field, family: Family, type: FieldType | undefined): string {
  if (typeof field !== "string") {
    const offset = field.offset === undefined || field.offset === 0 ? "" : ` offset ${field.offset}`;
    return `numgen ${field.mode} mod ${field.modulus}${offset}`;
  }
  const ip = family === "ip6" || (family !== "ip" && type === "ipv6_addr") ? "ip6" : "ip";
  switch (field) {
    case "saddr":
    case "daddr":
      return `${ip} ${field}`;
    case "ct-saddr":
    case "ct-daddr":
      return `ct original ${ip} ${field.slice(3)}`;
    case "sport":
    case "dport":
      return `th ${field}`;
    case "l4proto":
    case "mark":
    case "priority":
      return `meta ${field}`;
    case "iifname":
    case "oifname":
      return field;
  }
}

/** As tc and nft print a class: major and minor number in hex; nothing and everything have names. */
function classidText(value: number): string {
  if (value === 0) return "none";
  return value === 0xffffffff ? "root" : `${(value >>> 16).toString(16)}:${(value & 0xffff).toString(16)}`;
}

const TYPEOF: Readonly<Record<FieldType, string>> = {
  ipv4_addr: "ip daddr",
  ipv6_addr: "ip6 daddr",
  inet_proto: "meta l4proto",
  inet_service: "th dport",
  mark: "meta mark",
  classid: "meta priority",
  ifname: "meta iifname",
  index: "numgen random mod 2",
};

/** `type …` or, where an index is among the fields, `typeof …`: nft refuses a plain mark in numgen's place. */
export function printTypes(spec: SetSpec): string {
  const data = spec.data === undefined || spec.data === "verdict" ? [] : spec.data;
  const byExample = [...spec.key, ...data].includes("index");
  const text = (fields: readonly FieldType[]): string =>
    fields.map((field) => (byExample ? TYPEOF[field] : field)).join(" . ");
  const value = spec.data === undefined ? "" : ` : ${spec.data === "verdict" ? "verdict" : text(spec.data)}`;
  return `${byExample ? "typeof" : "type"} ${text(spec.key)}${value}`;
}

const PROTOCOL_NAMES = new Map<number, string>(
  Object.entries(IpProto).map(([name, number]) => [number, name === "icmpv6" ? "ipv6-icmp" : name]),
);

/** Packed fields of a key or of data. */
export function printPacked(fields: readonly FieldType[], bytes: Uint8Array): string {
  let at = 0;
  return fields
    .map((field) => {
      const text = printValue(field, bytes.subarray(at, at + FIELD_BYTES[field]));
      at += padded(FIELD_BYTES[field]);
      return text;
    })
    .join(" . ");
}

function printValue(field: FieldType, bytes: Uint8Array): string {
  switch (field) {
    case "ipv4_addr":
    case "ipv6_addr":
      return addressText(bytes);
    case "inet_proto":
      return PROTOCOL_NAMES.get(bytes[0]) ?? String(bytes[0]);
    case "inet_service":
      return String(bytes[0] * 256 + bytes[1]);
    case "mark":
      return hex(readU32(bytes, 0));
    case "classid":
      return classidText(readU32(bytes, 0));
    case "index":
      return String(readU32(bytes, 0));
    case "ifname":
      return `"${Buffer.from(bytes).toString().replaceAll("\0", "")}"`;
  }
}

const HOOK_NAMES = new Map<number, string>(Object.entries(Hook).map(([name, number]) => [number, name]));

/** The name of a hook of the IP families; of another one its number. */
export function printHook(hook: number): string {
  return HOOK_NAMES.get(hook) ?? String(hook);
}

export function durationText(ms: number): string {
  return ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`;
}
