/** Every kind of match: its expressions, the same that nft generates, and its text. */
import {
  AddressType,
  CmpOp,
  CtKey,
  CtState,
  CtStatus,
  FibFlag,
  FibResult,
  IpProto,
  PayloadBase,
  RangeOp,
  SetFlag,
  TcpFlag,
} from "../../netlink/constants.js";
import type { ElementBatch, Expr } from "../../netlink/kernel.js";
import {
  ADDRESS_NAME,
  ADDRESS_TYPE,
  addressField,
  ANONYMOUS_NAME,
  type AnonymousSet,
  compare,
  CT_DIRECTION,
  CT_MARK,
  hostU32,
  loadKey,
  lookup,
  type LowerContext,
  lowered,
  type Lowered,
  masked,
  maskOf,
  metaField,
  portBytes,
  portField,
  requireL4proto,
  requireVersion,
  type StatementKind,
  versionText,
} from "./lowered.js";
import { protocolNumber, protocolText } from "../../base/protocols.js";
import { mergeRanges, numberToBytes, parseNetwork, prefixLength, type Range, rangeText } from "../../base/ip-ranges.js";
import { classidText, FIELD_TYPES, hex } from "./field-types.js";
import { rangeElements } from "./intervals.js";
import { MAX_INTERFACE_BYTES } from "./names-and-comments.js";
import type { FieldType, Match, PortRange } from "./rule.js";

type Of<K extends Match["match"]> = Extract<Match, { match: K }>;

const not = (negate: boolean | undefined): string => (negate === true ? "!= " : "");
const either = (items: readonly string[]): string => (items.length === 1 ? items[0] : `{ ${items.join(", ")} }`);
const flagsText = (flags: readonly string[]): string => (flags.length === 1 ? flags[0] : `(${flags.join(" | ")})`);

/** Matches if the field has this value, or does not have it. */
function compared(field: Lowered, data: Uint8Array, value: string, negate?: boolean): Lowered {
  return lowered(`${field.text} ${not(negate)}${value}`, ...field.exprs, compare(data, negate));
}

/** An anonymous set of the ranges. If all are single values, it is not an interval set. */
function anonymousSet(ranges: readonly Range[], type: FieldType): AnonymousSet {
  const { id: keyType, bytes: keyLen } = FIELD_TYPES[type];
  const single = ranges.every((range) => range.from === range.to);
  const values = ranges.map((range) => numberToBytes(range.from, keyLen));
  const elements: ElementBatch = single
    ? { count: values.length, keyLen, dataLen: 0, bytes: Uint8Array.from(Buffer.concat(values)) }
    : rangeElements(ranges, keyLen);
  const flags = SetFlag.anonymous | SetFlag.constant | (single ? 0 : SetFlag.interval);
  return { info: { set: ANONYMOUS_NAME, flags, keyType, keyLen, size: elements.count }, elements };
}

function portConditions(ranges: readonly Range[], negate: boolean | undefined, context: LowerContext): Expr[] {
  if (ranges.length > 1) {
    // Single ports stay single, so that nft lists them as they were given.
    const merged = ranges.every((range) => range.from === range.to) ? distinct(ranges) : mergeRanges(ranges);
    return [lookup(ANONYMOUS_NAME, negate, context.anonymous.push(anonymousSet(merged, "inet_service")))];
  }
  const [from, to] = portBounds(ranges[0]);
  if (ranges[0].from === ranges[0].to) return [compare(from, negate)];
  if (negate === true) return [{ type: "range", sreg: 1, op: RangeOp.neq, from, to }];
  return [
    { type: "cmp", sreg: 1, op: CmpOp.gte, data: from },
    { type: "cmp", sreg: 1, op: CmpOp.lte, data: to },
  ];
}

/** Throws RangeError for an invalid port or range. */
export function portRange(ports: PortRange): Range {
  const [from, to] = typeof ports === "number" ? [ports, ports] : ports;
  if (to < from) throw new RangeError(`not a port range: ${from}-${to}`);
  portBytes(from);
  portBytes(to);
  return { from: BigInt(from), to: BigInt(to) };
}

/** First and last port, in network byte order. */
export function portBounds({ from, to }: Range): [from: Uint8Array, to: Uint8Array] {
  return [numberToBytes(from, 2), numberToBytes(to, 2)];
}

function distinct(ranges: readonly Range[]): Range[] {
  return [...new Set(ranges.map((range) => range.from))]
    .toSorted((a, b) => Number(a - b))
    .map((from) => ({ from, to: from }));
}

export function portText({ from, to }: Range): string {
  return from === to ? String(from) : `${from}-${to}`;
}

/** (loaded & bits) != 0, or == 0 when negated. */
function anyBit(key: "state" | "status", bits: number, names: readonly string[], negate: boolean | undefined): Lowered {
  const text = negate === true ? `ct ${key} & ${flagsText(names)} == 0` : `ct ${key} ${names.join(",")}`;
  const loaded = { type: "ct", key: CtKey[key], dreg: 1 } as const;
  return lowered(text, loaded, masked(hostU32(bits)), compare(hostU32(0), negate !== true));
}

function fib(result: keyof typeof FibResult, flags: number): Expr {
  return { type: "fib", dreg: 1, result: FibResult[result], flags };
}

/** A 32-bit number of the packet or its connection, or some bits of it. */
function number(
  field: Lowered,
  text: (value: number) => string,
): StatementKind<Of<"mark" | "priority"> | Of<"ct-mark">> {
  return (match) => {
    const { value, negate } = match;
    const mask = maskOf(match);
    if (mask === 0xffffffff) return compared(field, hostU32(value), text(value), negate);
    const bits = lowered(`${field.text} & ${text(mask)}`, ...field.exprs, masked(hostU32(mask)));
    return compared(bits, hostU32(value), `${negate === true ? "" : "== "}${text(value)}`, negate);
  };
}

export const MATCHES: { readonly [K in Match["match"]]: StatementKind<Of<K>> } = {
  address({ nets, direction, ct, negate }, context) {
    if (nets.length === 0) throw new RangeError("an address match needs at least one network");
    const networks = nets.map(parseNetwork);
    const { version } = networks[0];
    if (networks.some((network) => network.version !== version))
      throw new RangeError(`an address match takes networks of one family: ${nets.join(", ")}`);
    const bytes = version === 4 ? 4 : 16;
    const ranges = mergeRanges(networks);
    // If the connection is of the other family, the kernel has no such address and ends the rule.
    const guard = ct === undefined || context.family !== "inet" ? requireVersion(context, version) : [];
    const field = addressField(version, direction, ct);
    const text = `${field.text} ${not(negate)}${either(ranges.map((range) => rangeText(range, bytes)))}`;
    const prefix = ranges.length === 1 ? prefixLength(ranges[0], bytes * 8) : undefined;
    if (prefix === undefined) {
      const setId = context.anonymous.push(anonymousSet(ranges, ADDRESS_TYPE[version]));
      return lowered(text, ...guard, ...field.exprs, lookup(ANONYMOUS_NAME, negate, setId));
    }
    // Like nft, a prefix of whole bytes is compared directly. Other prefixes are masked first.
    const isWhole = prefix % 8 === 0 && prefix > 0;
    const len = isWhole ? prefix / 8 : bytes;
    const ones = (1n << BigInt(bytes * 8)) - 1n;
    const mask = isWhole ? [] : [masked(numberToBytes(ones ^ (ones >> BigInt(prefix)), bytes))];
    const data = numberToBytes(ranges[0].from, bytes).slice(0, len);
    // Only the needed bytes of a header are loaded. A connection's address is loaded whole, and its first bytes are compared.
    const beginning = field.exprs.map((expr) => (expr.type === "payload" ? { ...expr, len } : expr));
    return lowered(text, ...guard, ...beginning, ...mask, compare(data, negate));
  },
  port({ ports, direction, negate }, context) {
    if (ports.length === 0) throw new RangeError("a port match needs at least one port");
    const ranges = ports.map(portRange);
    const field = portField(direction);
    const text = `${field.text} ${not(negate)}${either(ranges.map(portText))}`;
    return lowered(text, ...field.exprs, ...portConditions(ranges, negate, context));
  },
  icmp({ version, type, code, negate }, context) {
    const data = code === undefined ? [type] : [type, code];
    if (data.some((byte) => !Number.isInteger(byte) || byte < 0 || byte > 255))
      throw new RangeError(`not an ICMP type and code: ${data.join("/")}`);
    const exprs: readonly Expr[] = [
      ...requireVersion(context, version),
      ...requireL4proto(context, version === 4 ? IpProto.icmp : IpProto.icmpv6),
      { type: "payload", base: PayloadBase.transport, offset: 0, len: data.length, dreg: 1 },
      compare(Uint8Array.from(data), negate),
    ];
    const name = version === 4 ? "icmp" : "icmpv6";
    if (code === undefined) return lowered(`${name} type ${not(negate)}${type}`, ...exprs);
    if (negate !== true) return lowered(`${name} type ${type} ${name} code ${code}`, ...exprs);
    // Two negated conditions, on type and on code, would not mean "another pair".
    const l4proto = version === 4 ? "icmp" : "ipv6-icmp";
    return lowered(
      `${versionText(context, version)}meta l4proto ${l4proto} @th,0,16 != ${hex(type * 256 + code)}`,
      ...exprs,
    );
  },
  interface({ name: pattern, direction, negate }) {
    const isPrefix = pattern.endsWith("*");
    const name = Buffer.from(isPrefix ? pattern.slice(0, -1) : pattern);
    if (name.length > MAX_INTERFACE_BYTES || (name.length === 0 && !isPrefix) || /[\s"/*]/.test(name.toString()))
      throw new RangeError(`not an interface name: ${JSON.stringify(pattern)}`);
    if (name.length === 0) {
      if (negate === true) throw new RangeError("* matches every interface, so its negation never matches");
      return lowered("");
    }
    const data = Uint8Array.from(isPrefix ? name : Buffer.concat([name], 16));
    return compared(metaField(direction === "in" ? "iifname" : "oifname"), data, `"${pattern}"`, negate);
  },
  "tcp-flags"(match, context) {
    const bits = (names: readonly (keyof typeof TcpFlag)[]): number =>
      names.reduce((all, name) => all | TcpFlag[name], 0);
    const [among, set] = [bits(match.among), bits(match.set)];
    if (among === 0) throw new RangeError("a tcp-flags match needs at least one flag");
    if ((set & ~among) !== 0)
      throw new RangeError(`flags ${match.set.join(", ")} are not among ${match.among.join(", ")}`);
    return lowered(
      `tcp flags & ${flagsText(match.among)} == ${set === 0 ? "0x0" : flagsText(match.set)}`,
      ...requireL4proto(context, IpProto.tcp),
      { type: "payload", base: PayloadBase.transport, offset: 13, len: 1, dreg: 1 },
      masked(Uint8Array.of(among)),
      compare(Uint8Array.of(set)),
    );
  },
  mark: number(metaField("mark"), hex),
  "ct-mark": number(CT_MARK, hex),
  priority: number(metaField("priority"), classidText),
  protocol({ protocol, negate }, context) {
    const l4proto = protocolNumber(protocol);
    const other = compared(metaField("l4proto"), Uint8Array.of(l4proto), protocolText(protocol), negate);
    return negate === true ? other : lowered(other.text, ...requireL4proto(context, l4proto));
  },
  "in-set"({ key, set, negate }, context) {
    const { exprs, text } = loadKey(context, key, set);
    return lowered(`${text} ${not(negate)}@${set}`, ...exprs, lookup(set, negate));
  },
  "address-type"({ direction, type, limit, negate }) {
    const name = ADDRESS_NAME[direction];
    const flags = FibFlag[name] | (limit === undefined ? 0 : limit === "in" ? FibFlag.iif : FibFlag.oif);
    const field = lowered(`fib ${name}${limit === undefined ? "" : ` . ${limit[0]}if`} type`, fib("addrtype", flags));
    return compared(field, hostU32(AddressType[type]), type, negate);
  },
  "ct-state"({ states, negate }) {
    if (states.length === 0) throw new RangeError("a ct-state match needs at least one state");
    const bits = states.reduce((all, state) => all | CtState[state], 0);
    return anyBit("state", bits, states, negate);
  },
  "ct-direction"({ direction }) {
    const field = lowered("ct direction", { type: "ct", key: CtKey.direction, dreg: 1 });
    return compared(field, Uint8Array.of(CT_DIRECTION[direction]), direction);
  },
  "ct-status": ({ status, negate }) => anyBit("status", CtStatus[status], [status], negate),
  "reverse-path"({ passed }) {
    // With the "present" flag the result is 1 if a route leads back out of the interface, otherwise 0.
    const field = lowered("fib saddr . iif oif", fib("oif", FibFlag.saddr | FibFlag.iif | FibFlag.present));
    return compared(field, hostU32(passed ? 1 : 0), passed ? "exists" : "missing");
  },
};
