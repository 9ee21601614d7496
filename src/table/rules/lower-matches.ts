import {
  AddressType,
  BitwiseOp,
  CmpOp,
  CtKey,
  CtState,
  CtStatus,
  DataTypeId,
  FibFlag,
  IpProto,
  MetaKey,
  NfProto,
  PayloadBase,
  RangeOp,
  SetFlag,
  TcpFlag,
} from "../../kernel/constants.js";
import type { ElementBatch, Expr } from "../../kernel/types.js";
import { mergeRanges, numberToBytes, parseNetwork, prefixLength, type Range } from "./ranges.js";
import { intervalRecords } from "./ranges.js";
import {
  addressOffset,
  ANONYMOUS_NAME,
  fibExpr,
  hostU32,
  loadKey,
  lookupExpr,
  portBytes,
  requireL4proto,
  requireNfproto,
  type LowerContext,
} from "./lower-context.js";
import { protocolNumber } from "./protocols.js";
import { MAX_INTERFACE_BYTES } from "./text.js";
import type { Match, PortRange } from "./types.js";

type Of<T extends Match["match"]> = Extract<Match, { match: T }>;

/** Appends the expressions that a match is made of. Throws a RangeError for one that says nothing sensible. */
export function lowerMatch(context: LowerContext, match: Match): void {
  switch (match.match) {
    case "address":
      return lowerAddress(context, match);
    case "port":
      return lowerPort(context, match);
    case "protocol":
      return lowerProtocol(context, match);
    case "in-set":
      loadKey(context, match.key, match.set);
      context.exprs.push(lookupExpr(match.set, match.negate));
      return;
    case "address-type":
      return lowerAddressType(context, match);
    case "icmp":
      return lowerIcmp(context, match);
    case "tcp-flags":
      return lowerTcpFlags(context, match);
    case "ct-state":
      return lowerCtState(context, match);
    case "ct-status":
      return pushBits(context, { type: "ct", key: CtKey.status, dreg: 1 }, CtStatus[match.status], match.negate);
    case "mark":
      return lowerMark(context, match);
    case "priority":
      context.exprs.push({ type: "meta", key: MetaKey.priority, dreg: 1 });
      if (match.mask !== undefined) context.exprs.push(masked(hostU32(match.mask)));
      context.exprs.push(compare(hostU32(match.value), match.negate));
      return;
    case "interface":
      return lowerInterface(context, match);
    case "reverse-path":
      // With the "present" flag the result is 1 when there is a route back out of the interface, else 0.
      context.exprs.push(
        fibExpr("oif", FibFlag.saddr | FibFlag.iif | FibFlag.present),
        compare(hostU32(match.passed ? 1 : 0)),
      );
  }
}

function compare(data: Uint8Array, negate?: boolean): Expr {
  return { type: "cmp", sreg: 1, op: negate === true ? CmpOp.neq : CmpOp.eq, data };
}

function masked(mask: Uint8Array): Expr {
  return {
    type: "bitwise",
    sreg: 1,
    dreg: 1,
    len: mask.length,
    op: BitwiseOp.maskXor,
    mask,
    xor: new Uint8Array(mask.length),
  };
}

/** (loaded & bits) != 0, or == 0 when negated. */
function pushBits(context: LowerContext, load: Expr, bits: number, negate: boolean | undefined): void {
  context.exprs.push(load, masked(hostU32(bits)), compare(hostU32(0), negate !== true));
}

function lowerAddress(context: LowerContext, match: Of<"address">): void {
  if (match.nets.length === 0) throw new RangeError("an address match without networks");
  const networks = match.nets.map(parseNetwork);
  const { version } = networks[0];
  if (networks.some((network) => network.version !== version))
    throw new RangeError(`networks of both families in one match: ${match.nets.join(", ")}`);
  requireNfproto(context, version === 4 ? NfProto.ip : NfProto.ip6);
  const offset = addressOffset(version, match.direction === "source");
  const bytes = version === 4 ? 4 : 16;
  const ranges = mergeRanges(networks);
  const prefix = ranges.length === 1 ? prefixLength(ranges[0], bytes * 8) : undefined;
  if (prefix !== undefined) return pushPrefix(context, offset, ranges[0].from, prefix, bytes, match.negate);
  const type = version === 4 ? DataTypeId.ipv4_addr : DataTypeId.ipv6_addr;
  context.exprs.push({ type: "payload", base: PayloadBase.network, offset, len: bytes, dreg: 1 });
  context.exprs.push(lookupExpr(ANONYMOUS_NAME, match.negate, addAnonymous(context, type, bytes, ranges)));
}

/** Whole bytes are compared as such, as nft does; other prefixes are masked first. */
function pushPrefix(
  context: LowerContext,
  offset: number,
  from: bigint,
  prefix: number,
  bytes: number,
  negate: boolean | undefined,
): void {
  const address = numberToBytes(from, bytes);
  const whole = prefix % 8 === 0 && prefix > 0;
  const len = whole ? prefix / 8 : bytes;
  context.exprs.push({ type: "payload", base: PayloadBase.network, offset, len, dreg: 1 });
  if (!whole) {
    const ones = (1n << BigInt(bytes * 8)) - 1n;
    context.exprs.push(masked(numberToBytes(ones ^ (ones >> BigInt(prefix)), bytes)));
  }
  context.exprs.push(compare(address.slice(0, len), negate));
}

/** Adds an anonymous set of the ranges (a plain one when all are single values) and returns its id. */
function addAnonymous(context: LowerContext, keyType: number, keyLen: number, ranges: readonly Range[]): number {
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
  return context.anonymous.push({
    info: { set: ANONYMOUS_NAME, flags, keyType, keyLen, size: records.length },
    elements,
  });
}

function lowerPort(context: LowerContext, match: Of<"port">): void {
  if (match.ports.length === 0) throw new RangeError("a port match without ports");
  context.exprs.push({
    type: "payload",
    base: PayloadBase.transport,
    offset: match.direction === "source" ? 0 : 2,
    len: 2,
    dreg: 1,
  });
  const ranges = match.ports.map(portRange);
  const [from, to] = [portBytes(Number(ranges[0].from)), portBytes(Number(ranges[0].to))];
  if (ranges.length > 1) {
    // Single ports stay single, so that nft lists them as they were given.
    const merged = ranges.every((range) => range.from === range.to) ? distinct(ranges) : mergeRanges(ranges);
    context.exprs.push(
      lookupExpr(ANONYMOUS_NAME, match.negate, addAnonymous(context, DataTypeId.inet_service, 2, merged)),
    );
  } else if (ranges[0].from === ranges[0].to) context.exprs.push(compare(from, match.negate));
  else if (match.negate === true) context.exprs.push({ type: "range", sreg: 1, op: RangeOp.neq, from, to });
  else
    context.exprs.push(
      { type: "cmp", sreg: 1, op: CmpOp.gte, data: from },
      { type: "cmp", sreg: 1, op: CmpOp.lte, data: to },
    );
}

function portRange(ports: PortRange): Range {
  const [from, to] = typeof ports === "number" ? [ports, ports] : ports;
  if (to < from) throw new RangeError(`not a port range: ${from}-${to}`);
  portBytes(from);
  portBytes(to);
  return { from: BigInt(from), to: BigInt(to) };
}

function distinct(ranges: readonly Range[]): Range[] {
  return [...new Set(ranges.map((range) => range.from))]
    .toSorted((a, b) => Number(a - b))
    .map((from) => ({ from, to: from }));
}

function lowerProtocol(context: LowerContext, match: Of<"protocol">): void {
  const number = protocolNumber(match.protocol);
  if (match.negate !== true) return requireL4proto(context, number);
  context.exprs.push({ type: "meta", key: MetaKey.l4proto, dreg: 1 }, compare(Uint8Array.of(number), true));
}

function lowerAddressType(context: LowerContext, match: Of<"address-type">): void {
  const address = match.direction === "source" ? FibFlag.saddr : FibFlag.daddr;
  const limit = match.limit === undefined ? 0 : match.limit === "in" ? FibFlag.iif : FibFlag.oif;
  context.exprs.push(fibExpr("addrtype", address | limit), compare(hostU32(AddressType[match.type]), match.negate));
}

function lowerIcmp(context: LowerContext, match: Of<"icmp">): void {
  requireNfproto(context, match.version === 4 ? NfProto.ip : NfProto.ip6);
  requireL4proto(context, match.version === 4 ? IpProto.icmp : IpProto.icmpv6);
  const data = match.code === undefined ? [match.type] : [match.type, match.code];
  if (data.some((byte) => !Number.isInteger(byte) || byte < 0 || byte > 255))
    throw new RangeError(`not an ICMP type and code: ${data.join("/")}`);
  context.exprs.push(
    { type: "payload", base: PayloadBase.transport, offset: 0, len: data.length, dreg: 1 },
    compare(Uint8Array.from(data), match.negate),
  );
}

function lowerTcpFlags(context: LowerContext, match: Of<"tcp-flags">): void {
  const bits = (names: readonly (keyof typeof TcpFlag)[]): number =>
    names.reduce((all, name) => all | TcpFlag[name], 0);
  const [among, set] = [bits(match.among), bits(match.set)];
  if (among === 0) throw new RangeError("a tcp-flags match without flags");
  if ((set & ~among) !== 0)
    throw new RangeError(`flags ${match.set.join(", ")} are not among ${match.among.join(", ")}`);
  requireL4proto(context, IpProto.tcp);
  context.exprs.push(
    { type: "payload", base: PayloadBase.transport, offset: 13, len: 1, dreg: 1 },
    masked(Uint8Array.of(among)),
    compare(Uint8Array.of(set)),
  );
}

function lowerCtState(context: LowerContext, match: Of<"ct-state">): void {
  if (match.states.length === 0) throw new RangeError("a ct-state match without states");
  const bits = match.states.reduce((all, state) => all | CtState[state], 0);
  pushBits(context, { type: "ct", key: CtKey.state, dreg: 1 }, bits, match.negate);
}

function lowerMark(context: LowerContext, match: Of<"mark">): void {
  const mask = match.mask ?? 0xffffffff;
  if ((match.value & ~mask) >>> 0 !== 0)
    throw new RangeError(`mark 0x${match.value.toString(16)} has bits outside its mask 0x${mask.toString(16)}`);
  context.exprs.push({ type: "meta", key: MetaKey.mark, dreg: 1 });
  if (mask !== 0xffffffff) context.exprs.push(masked(hostU32(mask)));
  context.exprs.push(compare(hostU32(match.value), match.negate));
}

function lowerInterface(context: LowerContext, match: Of<"interface">): void {
  const wildcard = match.name.endsWith("*");
  const name = Buffer.from(wildcard ? match.name.slice(0, -1) : match.name);
  if (name.length > MAX_INTERFACE_BYTES || (name.length === 0 && !wildcard) || /[\s"/*]/.test(name.toString()))
    throw new RangeError(`not an interface name: ${JSON.stringify(match.name)}`);
  if (name.length === 0) {
    if (match.negate === true) throw new RangeError("no interface is outside of *");
    return;
  }
  const data = wildcard ? Uint8Array.from(name) : Uint8Array.from(Buffer.concat([name], 16));
  context.exprs.push(
    { type: "meta", key: match.direction === "in" ? MetaKey.iifname : MetaKey.oifname, dreg: 1 },
    compare(data, match.negate),
  );
}
