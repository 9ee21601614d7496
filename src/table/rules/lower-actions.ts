import {
  BitwiseOp,
  DynsetOp,
  IpProto,
  MetaKey,
  NatFlag,
  NatType,
  NfProto,
  register,
  RejectType,
  VERDICT_REGISTER,
} from "../../kernel/constants.js";
import type { Expr } from "../../kernel/types.js";
import { addressBytes } from "./ranges.js";
import { hostU32, loadKey, portBytes, requireL4proto, requireNfproto, type LowerContext } from "./lower-context.js";
import { checkQuotable, MAX_LOG_PREFIX_BYTES } from "./text.js";
import type { Action } from "./types.js";

type Of<T extends Action["action"]> = Extract<Action, { action: T }>;

/** nft's default: it always sends a burst. */
export const DEFAULT_BURST = 5;

const LIMIT_SECONDS = { second: 1, minute: 60, hour: 3600, day: 86400 } as const;

/** Appends the expressions that an action is made of. Throws a RangeError for one that says nothing sensible. */
export function lowerAction(context: LowerContext, action: Action): void {
  const { exprs } = context;
  switch (action.action) {
    case "counter":
      exprs.push({ type: "counter" });
      return;
    case "log":
      exprs.push(logExpr(action));
      return;
    case "limit":
      exprs.push(limitExpr(action));
      return;
    case "set-mark":
      return lowerSetMark(context, action);
    case "xor-mark":
      return pushMark(context, 0xffffffff, action.value);
    case "set-priority":
      exprs.push({ type: "immediate", dreg: 1, data: hostU32(action.value) });
      exprs.push({ type: "meta", key: MetaKey.priority, sreg: 1 });
      return;
    case "priority-map":
      loadKey(context, action.key, action.map);
      exprs.push({ type: "lookup", set: action.map, sreg: 1, dreg: 1 });
      exprs.push({ type: "meta", key: MetaKey.priority, sreg: 1 });
      return;
    case "notrack":
      exprs.push({ type: "notrack" });
      return;
    case "verdict":
      exprs.push({ type: "immediate", dreg: VERDICT_REGISTER, data: action.verdict });
      return;
    case "vmap":
      loadKey(context, action.key, action.map);
      exprs.push({ type: "lookup", set: action.map, sreg: 1, dreg: VERDICT_REGISTER });
      return;
    case "dnat":
      return lowerNat(context, NatType.dnat, action.address, action.port, 0);
    case "snat":
      return lowerNat(
        context,
        NatType.snat,
        action.address,
        action.port,
        action.fullyRandom === true ? NatFlag.protoRandomFully : 0,
      );
    case "dnat-map":
      return lowerDnatMap(context, action);
    case "masquerade":
      return lowerMasquerade(context, action);
    case "reject":
      return lowerReject(context, action);
    case "update":
      return lowerUpdate(context, action);
  }
}

function logExpr(action: Of<"log">): Expr {
  if (Buffer.byteLength(action.prefix) > MAX_LOG_PREFIX_BYTES)
    throw new RangeError(`a log prefix has at most ${MAX_LOG_PREFIX_BYTES} bytes: ${action.prefix}`);
  checkQuotable("log prefix", action.prefix);
  if (action.group !== undefined && action.level !== undefined)
    throw new RangeError("a log action has a level or a group, not both");
  return {
    type: "log",
    prefix: action.prefix,
    ...(action.level === undefined ? {} : { level: action.level }),
    ...(action.group === undefined ? {} : { group: action.group }),
  };
}

function limitExpr(action: Of<"limit">): Expr {
  if (!Number.isSafeInteger(action.rate) || action.rate < 1) throw new RangeError(`not a rate: ${action.rate}`);
  // NFT_LIMIT_PKTS
  return {
    type: "limit",
    rate: BigInt(action.rate),
    unit: BigInt(LIMIT_SECONDS[action.per]),
    burst: action.burst ?? DEFAULT_BURST,
    limitType: 0,
    flags: 0,
  };
}

function lowerSetMark(context: LowerContext, action: Of<"set-mark">): void {
  const mask = action.mask ?? 0xffffffff;
  if ((action.value & ~mask) >>> 0 !== 0)
    throw new RangeError(`mark 0x${action.value.toString(16)} has bits outside its mask 0x${mask.toString(16)}`);
  if (mask === 0xffffffff) {
    context.exprs.push(
      { type: "immediate", dreg: 1, data: hostU32(action.value) },
      { type: "meta", key: MetaKey.mark, sreg: 1 },
    );
  } else pushMark(context, ~mask >>> 0, action.value);
}

/** mark = (mark & mask) ^ xor */
function pushMark(context: LowerContext, mask: number, xor: number): void {
  context.exprs.push(
    { type: "meta", key: MetaKey.mark, dreg: 1 },
    { type: "bitwise", sreg: 1, dreg: 1, len: 4, op: BitwiseOp.maskXor, mask: hostU32(mask), xor: hostU32(xor) },
    { type: "meta", key: MetaKey.mark, sreg: 1 },
  );
}

/** Constants go to registers 1 (address) and 2 (port), or 1 alone. */
function lowerNat(
  context: LowerContext,
  natType: number,
  address: string | undefined,
  port: number | undefined,
  flags: number,
): void {
  if (address === undefined && port === undefined) throw new RangeError("a nat action without address and port");
  const bytes = address === undefined ? undefined : addressBytes(address);
  const family = bytes === undefined ? context.nfproto : bytes.length === 4 ? NfProto.ip : NfProto.ip6;
  if (family === undefined) throw new RangeError("a nat action without an address, in a rule of no one family");
  if (bytes !== undefined && (context.family === "ip" || context.family === "ip6")) requireNfproto(context, family);
  let next = 1;
  const registers: { regAddrMin?: number; regProtoMin?: number } = {};
  if (bytes !== undefined) {
    registers.regAddrMin = next;
    context.exprs.push({ type: "immediate", dreg: next++, data: bytes });
  }
  if (port !== undefined) {
    registers.regProtoMin = next;
    context.exprs.push({ type: "immediate", dreg: next, data: portBytes(port) });
  }
  const all = flags | (port === undefined ? 0 : NatFlag.protoSpecified);
  context.exprs.push({ type: "nat", natType, family, ...registers, ...(all === 0 ? {} : { flags: all }) });
}

/** The look-up's result replaces its key: the address at word 0, the port at the first word behind it. */
function lowerDnatMap(context: LowerContext, action: Of<"dnat-map">): void {
  loadKey(context, action.key, action.map);
  const family = dnatFamily(context, action.map);
  context.exprs.push({ type: "lookup", set: action.map, sreg: 1, dreg: 1 });
  const port = action.data === "address-port" ? { regProtoMin: register(family === NfProto.ip ? 1 : 4) } : {};
  context.exprs.push({ type: "nat", natType: NatType.dnat, family, regAddrMin: 1, ...port });
}

function dnatFamily(context: LowerContext, map: string): number {
  const data = context.setSpec?.(map)?.data;
  const type = data === undefined || data === "verdict" ? undefined : data[0];
  const family =
    context.nfproto ?? (type === "ipv4_addr" ? NfProto.ip : type === "ipv6_addr" ? NfProto.ip6 : undefined);
  if (family === undefined)
    throw new RangeError(
      `map ${map}: dnat in a table of family ${context.family} needs a map that is declared before the rule`,
    );
  return family;
}

function lowerMasquerade(context: LowerContext, action: Of<"masquerade">): void {
  let flags =
    (action.random === true ? NatFlag.protoRandom : 0) | (action.fullyRandom === true ? NatFlag.protoRandomFully : 0);
  let registers = {};
  if (action.ports !== undefined) {
    const [from, to] = typeof action.ports === "number" ? [action.ports, action.ports] : action.ports;
    if (to < from) throw new RangeError(`not a port range: ${from}-${to}`);
    context.exprs.push({ type: "immediate", dreg: 1, data: portBytes(from) });
    if (to !== from) context.exprs.push({ type: "immediate", dreg: 2, data: portBytes(to) });
    registers = { regProtoMin: 1, ...(to === from ? {} : { regProtoMax: 2 }) };
    flags |= NatFlag.protoSpecified;
  }
  context.exprs.push({ type: "masq", ...registers, ...(flags === 0 ? {} : { flags }) });
}

/** ICMP_UNREACH codes, ICMPV6_UNREACH codes, NFT_REJECT_ICMPX codes. */
const REJECT_CODES = {
  "port-unreachable": { ip: 3, ip6: 4, any: 1 },
  "admin-prohibited": { ip: 13, ip6: 1, any: 3 },
  "host-unreachable": { ip: 1, ip6: 3, any: 2 },
} as const;

function lowerReject(context: LowerContext, action: Of<"reject">): void {
  const how = action.with ?? "port-unreachable";
  if (how === "tcp-reset") {
    requireL4proto(context, IpProto.tcp);
    context.exprs.push({ type: "reject", rejectType: RejectType.tcpReset, code: 0 });
    return;
  }
  const codes = REJECT_CODES[how];
  if (context.family === "ip")
    context.exprs.push({ type: "reject", rejectType: RejectType.icmpUnreachable, code: codes.ip });
  else if (context.family === "ip6")
    context.exprs.push({ type: "reject", rejectType: RejectType.icmpUnreachable, code: codes.ip6 });
  else context.exprs.push({ type: "reject", rejectType: RejectType.icmpxUnreachable, code: codes.any });
}

/** The key from word 0 on, constant data on the next 16-byte register behind it. */
function lowerUpdate(context: LowerContext, action: Of<"update">): void {
  const keyWords = loadKey(context, action.key, action.set);
  const timeout = action.timeoutMs === undefined ? {} : { timeout: BigInt(action.timeoutMs) };
  const data =
    action.data === undefined
      ? {}
      : { sregData: loadData(context, action.set, action.data, Math.ceil(keyWords / 4) * 4) };
  context.exprs.push({ type: "dynset", set: action.set, op: DynsetOp.update, sregKey: 1, ...data, ...timeout });
}

function loadData(context: LowerContext, set: string, data: NonNullable<Of<"update">["data"]>, word: number): number {
  const address = addressBytes(data.address);
  const port = word + address.length / 4;
  if (port > 15) throw new RangeError(`map ${set}: key and data do not fit the kernel's registers`);
  context.exprs.push({ type: "immediate", dreg: register(word), data: address });
  if (data.port !== undefined)
    context.exprs.push({ type: "immediate", dreg: register(port), data: portBytes(data.port) });
  return register(word);
}
