/** Every kind of match: the expressions that nft makes of it, and its text. */
import {
  AddressType,
  CmpOp,
  CtKey,
  CtState,
  CtStatus,
  DataTypeId,
  FibFlag,
  FibResult,
  IpProto,
  PayloadBase,
  RangeOp,
  SetFlag,
  TcpFlag,
} from "../../kernel/constants.js";
import type { ElementBatch, Expr } from "../../kernel/types.js";
import {
  ANONYMOUS_NAME,
  compare,
  connectionAddress,
  CT_DIRECTION,
  headerField,
  hostU32,
  loadKey,
  loadMeta,
  lookup,
  type LowerContext,
  masked,
  maskOf,
  portBytes,
  printKey,
  requireL4proto,
  requireVersion,
  type StatementKind,
} from "./fields.js";
import { protocolNumber, protocolText } from "../../base/protocols.js";
import {
  mergeRanges,
  type Network,
  numberToBytes,
  parseNetwork,
  prefixLength,
  type Range,
  rangeText,
} from "../../base/ip-ranges.js";
import { classidText, hex } from "./field-types.js";
import { intervalRecords } from "./intervals.js";
import { MAX_INTERFACE_BYTES } from "./text.js";
import type { Match, PortRange } from "./types.js";

type Of<K extends Match["match"]> = Extract<Match, { match: K }>;

const not = (negate: boolean | undefined): string => (negate === true ? "!= " : "");
const either = (items: readonly string[]): string => (items.length === 1 ? items[0] : `{ ${items.join(", ")} }`);
const flagsText = (flags: readonly string[]): string => (flags.length === 1 ? flags[0] : `(${flags.join(" | ")})`);

/** `version`: of the first network. Throws RangeError for none, and for networks of both families. */
function networksOf({ nets }: Of<"address">): { version: 4 | 6; bytes: 4 | 16; ranges: Range[] } {
  if (nets.length === 0) throw new RangeError("an address match without networks");
  const networks: Network[] = nets.map(parseNetwork);
  const { version } = networks[0];
  if (networks.some((network) => network.version !== version))
    throw new RangeError(`networks of both families in one match: ${nets.join(", ")}`);
  return { version, bytes: version === 4 ? 4 : 16, ranges: mergeRanges(networks) };
}

const address: StatementKind<Of<"address">> = {
  lower(match, context) {
    const { version, bytes, ranges } = networksOf(match);
    // Of a connection of the other family the kernel has no such address, and ends the rule.
    const guarded = match.ct === undefined || context.family !== "inet";
    const guard = guarded ? requireVersion(context, version) : [];
    const source = match.direction === "source";
    const field = match.ct === undefined ? headerField(version, source) : connectionAddress(version, source, match.ct);
    const prefix = ranges.length === 1 ? prefixLength(ranges[0], bytes * 8) : undefined;
    if (prefix === undefined) {
      const type = version === 4 ? DataTypeId.ipv4_addr : DataTypeId.ipv6_addr;
      return [...guard, field, lookupAmong(ranges, type, bytes, match.negate, context)];
    }
    // Whole bytes are compared as such, as nft does; other prefixes are masked first.
    const isWhole = prefix % 8 === 0 && prefix > 0;
    const len = isWhole ? prefix / 8 : bytes;
    const ones = (1n << BigInt(bytes * 8)) - 1n;
    const mask = isWhole ? [] : [masked(numberToBytes(ones ^ (ones >> BigInt(prefix)), bytes))];
    const data = numberToBytes(ranges[0].from, bytes).slice(0, len);
    // A part of the header can be loaded; a connection's address is loaded whole, and its beginning compared.
    return [...guard, field.type === "payload" ? { ...field, len } : field, ...mask, compare(data, match.negate)];
  },
  print(match) {
    const { version, bytes, ranges } = networksOf(match);
    const texts = ranges.map((range) => rangeText(range, bytes));
    const of = match.ct === undefined ? "" : `ct ${match.ct} `;
    return `${of}${version === 4 ? "ip" : "ip6"} ${match.direction === "source" ? "saddr" : "daddr"} ${not(match.negate)}${either(texts)}`;
  },
};

/** A look-up in an anonymous set of the ranges, a plain one when all are single values. */
function lookupAmong(
  ranges: readonly Range[],
  keyType: number,
  keyLen: number,
  negate: boolean | undefined,
  { anonymous }: LowerContext,
): Expr {
  const single = ranges.every((range) => range.from === range.to);
  const records = single ? ranges.map((range) => numberToBytes(range.from, keyLen)) : intervalRecords(ranges, keyLen);
  const elements: ElementBatch = {
    count: records.length,
    keyLen,
    dataLen: 0,
    ...(single ? {} : { flags: true }),
    bytes: Uint8Array.from(Buffer.concat(records)),
  };
  const flags = SetFlag.anonymous | SetFlag.constant | (single ? 0 : SetFlag.interval);
  const info = { set: ANONYMOUS_NAME, flags, keyType, keyLen, size: records.length };
  return lookup(ANONYMOUS_NAME, negate, anonymous.push({ info, elements }));
}

const port: StatementKind<Of<"port">> = {
  lower({ ports, direction, negate }, context) {
    if (ports.length === 0) throw new RangeError("a port match without ports");
    const ranges = ports.map(portRange);
    const field = headerField("port", direction === "source");
    if (ranges.length > 1) {
      // Single ports stay single, so that nft lists them as they were given.
      const merged = ranges.every((range) => range.from === range.to) ? distinct(ranges) : mergeRanges(ranges);
      return [field, lookupAmong(merged, DataTypeId.inet_service, 2, negate, context)];
    }
    const [from, to] = boundsOf(ranges[0]);
    if (ranges[0].from === ranges[0].to) return [field, compare(from, negate)];
    if (negate === true) return [field, { type: "range", sreg: 1, op: RangeOp.neq, from, to }];
    return [
      field,
      { type: "cmp", sreg: 1, op: CmpOp.gte, data: from },
      { type: "cmp", sreg: 1, op: CmpOp.lte, data: to },
    ];
  },
  print: ({ ports, direction, negate }) =>
    `th ${direction === "source" ? "sport" : "dport"} ${not(negate)}${either(ports.map(portText))}`,
};

/** Throws RangeError for what is no port, or no range. */
export function portRange(ports: PortRange): Range {
  const [from, to] = typeof ports === "number" ? [ports, ports] : ports;
  if (to < from) throw new RangeError(`not a port range: ${from}-${to}`);
  portBytes(from);
  portBytes(to);
  return { from: BigInt(from), to: BigInt(to) };
}

/** First and last port, in network byte order. */
export function boundsOf({ from, to }: Range): [from: Uint8Array, to: Uint8Array] {
  return [portBytes(Number(from)), portBytes(Number(to))];
}

function distinct(ranges: readonly Range[]): Range[] {
  return [...new Set(ranges.map((range) => range.from))]
    .toSorted((a, b) => Number(a - b))
    .map((from) => ({ from, to: from }));
}

export function portText(ports: PortRange): string {
  const { from, to } = portRange(ports);
  return from === to ? String(from) : `${from}-${to}`;
}

const icmp: StatementKind<Of<"icmp">> = {
  lower({ version, type, code, negate }, context) {
    const data = code === undefined ? [type] : [type, code];
    if (data.some((byte) => !Number.isInteger(byte) || byte < 0 || byte > 255))
      throw new RangeError(`not an ICMP type and code: ${data.join("/")}`);
    return [
      ...requireVersion(context, version),
      ...requireL4proto(context, version === 4 ? IpProto.icmp : IpProto.icmpv6),
      { type: "payload", base: PayloadBase.transport, offset: 0, len: data.length, dreg: 1 },
      compare(Uint8Array.from(data), negate),
    ];
  },
  print({ version, type, code, negate }, { family }) {
    const name = version === 4 ? "icmp" : "icmpv6";
    if (code === undefined) return `${name} type ${not(negate)}${type}`;
    if (negate !== true) return `${name} type ${type} ${name} code ${code}`;
    // Neither type != nor code != says that the pair is another one.
    const nfproto = family === "inet" ? `meta nfproto ${version === 4 ? "ipv4" : "ipv6"} ` : "";
    return `${nfproto}meta l4proto ${version === 4 ? "icmp" : "ipv6-icmp"} @th,0,16 != ${hex(type * 256 + code)}`;
  },
};

/** (loaded & bits) != 0, or == 0 when negated. */
function anyBit(key: number, bits: number, negate: boolean | undefined): Expr[] {
  return [{ type: "ct", key, dreg: 1 }, masked(hostU32(bits)), compare(hostU32(0), negate !== true)];
}

const interfaceName: StatementKind<Of<"interface">> = {
  lower({ name: pattern, direction, negate }) {
    const isPrefix = pattern.endsWith("*");
    const name = Buffer.from(isPrefix ? pattern.slice(0, -1) : pattern);
    if (name.length > MAX_INTERFACE_BYTES || (name.length === 0 && !isPrefix) || /[\s"/*]/.test(name.toString()))
      throw new RangeError(`not an interface name: ${JSON.stringify(pattern)}`);
    if (name.length === 0) {
      if (negate === true) throw new RangeError("no interface is outside of *");
      return [];
    }
    const data = Uint8Array.from(isPrefix ? name : Buffer.concat([name], 16));
    return [loadMeta(direction === "in" ? "iifname" : "oifname"), compare(data, negate)];
  },
  print: ({ name, direction, negate }) =>
    name === "*" ? "" : `${direction === "in" ? "iifname" : "oifname"} ${not(negate)}"${name}"`,
};

function fib(result: keyof typeof FibResult, flags: number): Expr {
  return { type: "fib", dreg: 1, result: FibResult[result], flags };
}

const tcpFlags: StatementKind<Of<"tcp-flags">> = {
  lower(match, context) {
    const bits = (names: readonly (keyof typeof TcpFlag)[]): number =>
      names.reduce((all, name) => all | TcpFlag[name], 0);
    const [among, set] = [bits(match.among), bits(match.set)];
    if (among === 0) throw new RangeError("a tcp-flags match without flags");
    if ((set & ~among) !== 0)
      throw new RangeError(`flags ${match.set.join(", ")} are not among ${match.among.join(", ")}`);
    const flags: Expr = { type: "payload", base: PayloadBase.transport, offset: 13, len: 1, dreg: 1 };
    const compared = [masked(Uint8Array.of(among)), compare(Uint8Array.of(set))];
    return [...requireL4proto(context, IpProto.tcp), flags, ...compared];
  },
  print: ({ among, set }) => `tcp flags & ${flagsText(among)} == ${set.length === 0 ? "0x0" : flagsText(set)}`,
};

/** A number of 32 bits that comes with the packet, or some bits of it. */
function number(key: "mark" | "priority", text: (value: number) => string): StatementKind<Of<"mark" | "priority">> {
  return {
    lower(match) {
      const mask = maskOf(match);
      const bits = mask === 0xffffffff ? [] : [masked(hostU32(mask))];
      return [loadMeta(key), ...bits, compare(hostU32(match.value), match.negate)];
    },
    print: ({ mask = 0xffffffff, value, negate }) =>
      mask === 0xffffffff
        ? `meta ${key} ${not(negate)}${text(value)}`
        : `meta ${key} & ${text(mask)} ${negate === true ? "!=" : "=="} ${text(value)}`,
  };
}

export const MATCHES: { readonly [K in Match["match"]]: StatementKind<Of<K>> } = {
  address,
  port,
  icmp,
  interface: interfaceName,
  "tcp-flags": tcpFlags,
  mark: number("mark", hex),
  priority: number("priority", classidText),
  protocol: {
    lower({ protocol, negate }, context) {
      const l4proto = protocolNumber(protocol);
      if (negate !== true) return requireL4proto(context, l4proto);
      return [loadMeta("l4proto"), compare(Uint8Array.of(l4proto), true)];
    },
    print: ({ protocol, negate }) => `meta l4proto ${not(negate)}${protocolText(protocol)}`,
  },
  "in-set": {
    lower: ({ key, set, negate }, context) => [...loadKey(context, key, set).exprs, lookup(set, negate)],
    print: ({ key, set, negate }, options) => `${printKey(key, set, options)} ${not(negate)}@${set}`,
  },
  "address-type": {
    lower({ direction, type, limit, negate }) {
      const address = direction === "source" ? FibFlag.saddr : FibFlag.daddr;
      const flags = address | (limit === undefined ? 0 : limit === "in" ? FibFlag.iif : FibFlag.oif);
      return [fib("addrtype", flags), compare(hostU32(AddressType[type]), negate)];
    },
    print: ({ direction, type, limit, negate }) =>
      `fib ${direction === "source" ? "saddr" : "daddr"}${limit === undefined ? "" : ` . ${limit[0]}if`} type ${not(negate)}${type}`,
  },
  "ct-state": {
    lower({ states, negate }) {
      if (states.length === 0) throw new RangeError("a ct-state match without states");
      const bits = states.reduce((all, state) => all | CtState[state], 0);
      return anyBit(CtKey.state, bits, negate);
    },
    print: ({ states, negate }) =>
      negate === true ? `ct state & ${flagsText(states)} == 0` : `ct state ${states.join(",")}`,
  },
  "ct-direction": {
    lower: ({ direction }) => [
      { type: "ct", key: CtKey.direction, dreg: 1 },
      compare(Uint8Array.of(CT_DIRECTION[direction])),
    ],
    print: ({ direction }) => `ct direction ${direction}`,
  },
  "ct-status": {
    lower: ({ status, negate }) => anyBit(CtKey.status, CtStatus[status], negate),
    print: ({ status, negate }) => (negate === true ? `ct status & ${status} == 0` : `ct status ${status}`),
  },
  "reverse-path": {
    // With the "present" flag the result is 1 when there is a route back out of the interface, else 0.
    lower: ({ passed }) => [
      fib("oif", FibFlag.saddr | FibFlag.iif | FibFlag.present),
      compare(hostU32(passed ? 1 : 0)),
    ],
    print: ({ passed }) => `fib saddr . iif oif ${passed ? "exists" : "missing"}`,
  },
};
