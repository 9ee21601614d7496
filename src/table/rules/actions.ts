/** Every kind of action: the expressions that nft makes of it, and its text. */
import {
  DynsetOp,
  IpProto,
  MetaKey,
  NatFlag,
  NatType,
  register,
  RejectType,
  VERDICT_REGISTER,
} from "../../kernel/constants.js";
import type { Expr, Family } from "../../kernel/types.js";
import { verdictText } from "../elements/verdicts.js";
import {
  connectionAddress,
  headerField,
  hostU32,
  loadKey,
  loadMeta,
  lookUp,
  type LowerContext,
  masked,
  maskOf,
  NFPROTO,
  portBytes,
  printKey,
  requireL4proto,
  requireVersion,
  type StatementKind,
  type StatementOptions,
  versionOf,
} from "./fields.js";
import { boundsOf, portRange, portText } from "./matches.js";
import { addressBytes, addressText } from "../../base/ip-ranges.js";
import { classidText, hex } from "./field-types.js";
import { checkQuotable, MAX_LOG_PREFIX_BYTES } from "./text.js";
import { type Action, LIMIT_SECONDS } from "./types.js";

type Of<K extends Action["action"]> = Extract<Action, { action: K }>;

/** nft's default: it always sends a burst. */
const DEFAULT_BURST = 5;
/** NFT_LIMIT_F_INV and NFT_CONNLIMIT_F_INV: holds beyond the limit. */
const BEYOND = 1;
const LOG_LEVELS = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];

export function durationText(ms: number): string {
  return ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`;
}

const log: StatementKind<Of<"log">> = {
  lower({ prefix, level, group }) {
    if (Buffer.byteLength(prefix) > MAX_LOG_PREFIX_BYTES)
      throw new RangeError(`a log prefix has at most ${MAX_LOG_PREFIX_BYTES} bytes: ${prefix}`);
    checkQuotable("log prefix", prefix);
    if (group !== undefined && level !== undefined)
      throw new RangeError("a log action has a level or a group, not both");
    const to = group !== undefined ? { group } : level !== undefined ? { level } : {};
    return [{ type: "log", prefix, ...to }];
  },
  print({ prefix, level, group }) {
    const severity = level === undefined ? "" : ` level ${LOG_LEVELS[level] ?? level}`;
    return `log prefix "${prefix}"${severity}${group === undefined ? "" : ` group ${group}`}`;
  },
};

function packetRate({ rate, per, burst = DEFAULT_BURST }: Omit<Of<"limit">, "action">, flags: number): Expr {
  if (!Number.isSafeInteger(rate) || rate < 1) throw new RangeError(`not a rate: ${rate}`);
  // NFT_LIMIT_PKTS
  return { type: "limit", rate: BigInt(rate), unit: BigInt(LIMIT_SECONDS[per]), burst, limitType: 0, flags };
}

/** mark = (mark & mask) ^ xor */
function changeMark(mask: number, xor: number): Expr[] {
  return [loadMeta("mark"), masked(hostU32(mask), hostU32(xor)), setMeta("mark")];
}

function setMeta(key: "mark" | "priority"): Expr {
  return { type: "meta", key: MetaKey[key], sreg: 1 };
}

const setMark: StatementKind<Of<"set-mark">> = {
  lower(action) {
    const mask = maskOf(action);
    if (mask !== 0xffffffff) return changeMark(~mask >>> 0, action.value);
    return [immediate(hostU32(action.value)), setMeta("mark")];
  },
  print({ mask = 0xffffffff, value }) {
    if (mask === 0xffffffff) return `meta mark set ${hex(value)}`;
    if (mask === value) return `meta mark set meta mark | ${hex(value)}`;
    const kept = `meta mark set meta mark & ${hex(~mask)}`;
    return value === 0 ? kept : `${kept} | ${hex(value)}`;
  },
};

function immediate(data: Uint8Array, dreg = 1): Expr {
  return { type: "immediate", dreg, data };
}

type Constants = Pick<Of<"dnat">, "address" | "port">;

/** Constants go to registers 1 (address) and 2 (port), or 1 alone. */
function natTo(natType: number, { address, port }: Constants, flags: number, context: LowerContext): Expr[] {
  if (address === undefined && port === undefined) throw new RangeError("a nat action without address and port");
  const bytes = address === undefined ? undefined : addressBytes(address);
  const version = bytes === undefined ? context.version : bytes.length === 4 ? 4 : 6;
  if (version === undefined) throw new RangeError("a nat action without an address, in a rule of no one family");
  const exprs = versionOf(context.family) === undefined ? [] : requireVersion(context, version);
  const registers: { regAddrMin?: number; regProtoMin?: number } = {};
  if (bytes !== undefined) exprs.push(immediate(bytes, (registers.regAddrMin = 1)));
  if (port !== undefined) {
    registers.regProtoMin = bytes === undefined ? 1 : 2;
    exprs.push(immediate(portBytes(port), registers.regProtoMin));
  }
  const all = flags | (port === undefined ? 0 : NatFlag.protoSpecified);
  return [
    ...exprs,
    { type: "nat", natType, family: NFPROTO[version], ...registers, ...(all === 0 ? {} : { flags: all }) },
  ];
}

function printNat(how: string, { address, port }: Constants, { family }: StatementOptions): string {
  const bytes = address === undefined ? undefined : addressBytes(address);
  const text = bytes === undefined ? "" : addressText(bytes);
  const target = port === undefined ? text : `${text.includes(":") ? `[${text}]` : text}:${port}`;
  return `${how} ${family !== "inet" || bytes === undefined ? "" : bytes.length === 4 ? "ip " : "ip6 "}to ${target}`;
}

const dnatMap: StatementKind<Of<"dnat-map">> = {
  /** The look-up's result replaces its key: the address at word 0, the port at the first word behind it. */
  lower({ key, map, data }, context) {
    const exprs = lookUp(context, key, map, 1);
    const type = context.setSpec?.(map)?.data?.[0];
    const version = context.version ?? (type === "ipv4_addr" ? 4 : type === "ipv6_addr" ? 6 : undefined);
    if (version === undefined)
      throw new RangeError(
        `map ${map}: dnat in a table of family ${context.family} needs a map that is declared before the rule`,
      );
    const port = data === "address-port" ? { regProtoMin: register(version === 4 ? 1 : 4) } : {};
    return [...exprs, { type: "nat", natType: NatType.dnat, family: NFPROTO[version], regAddrMin: 1, ...port }];
  },
  print({ key, map, data }, options) {
    const v6 = options.family === "ip6" || options.setSpec?.(map)?.data?.[0] === "ipv6_addr";
    const ip = v6 ? "ip6 " : "ip ";
    const what = data === "address-port" ? `${ip}addr . port ` : options.family === "inet" ? ip : "";
    return `dnat ${what}to ${printKey(key, map, options)} map @${map}`;
  },
};

const masquerade: StatementKind<Of<"masquerade">> = {
  lower({ ports, random, fullyRandom }) {
    const flags = (random === true ? NatFlag.protoRandom : 0) | (fullyRandom === true ? NatFlag.protoRandomFully : 0);
    if (ports === undefined) return [{ type: "masq", ...(flags === 0 ? {} : { flags }) }];
    const range = portRange(ports);
    const [from, to] = boundsOf(range);
    const masq = { type: "masq", regProtoMin: 1, flags: flags | NatFlag.protoSpecified } as const;
    if (range.from === range.to) return [immediate(from), masq];
    return [immediate(from), immediate(to, 2), { ...masq, regProtoMax: 2 }];
  },
  print({ ports, random, fullyRandom }) {
    const flags = [...(random === true ? ["random"] : []), ...(fullyRandom === true ? ["fully-random"] : [])].join(",");
    return `masquerade${ports === undefined ? "" : ` to :${portText(ports)}`}${flags === "" ? "" : ` ${flags}`}`;
  },
};

/** ICMP_UNREACH codes, ICMPV6_UNREACH codes, NFT_REJECT_ICMPX codes. */
const REJECT_CODES = {
  "port-unreachable": { ip: 3, ip6: 4, inet: 1 },
  "admin-prohibited": { ip: 13, ip6: 1, inet: 3 },
  "host-unreachable": { ip: 1, ip6: 3, inet: 2 },
} as const;

const single = (family: Family): "ip" | "ip6" | "inet" => (family === "ip" || family === "ip6" ? family : "inet");

const reject: StatementKind<Of<"reject">> = {
  lower({ with: how = "port-unreachable" }, context) {
    if (how === "tcp-reset")
      return [...requireL4proto(context, IpProto.tcp), { type: "reject", rejectType: RejectType.tcpReset, code: 0 }];
    const family = single(context.family);
    const rejectType = family === "inet" ? RejectType.icmpxUnreachable : RejectType.icmpUnreachable;
    return [{ type: "reject", rejectType, code: REJECT_CODES[how][family] }];
  },
  print({ with: how = "port-unreachable" }, { family }) {
    if (how === "port-unreachable") return "reject";
    if (how === "tcp-reset") return "reject with tcp reset";
    const protocol = { ip: "icmp", ip6: "icmpv6", inet: "icmpx" }[single(family)];
    return `reject with ${protocol} type ${how === "host-unreachable" && family === "ip6" ? "addr-unreachable" : how}`;
  },
};

const update: StatementKind<Of<"update">> = {
  /** The key from word 0 on, constant data on the next 16-byte register behind it. */
  lower({ key, set, timeoutMs, data }, context) {
    const { exprs, words } = loadKey(context, key, set);
    const timeout = timeoutMs === undefined ? {} : { timeout: BigInt(timeoutMs) };
    const dynset = { type: "dynset", set, op: DynsetOp.update, sregKey: 1, ...timeout } as const;
    if (data === undefined) return [...exprs, dynset];
    const word = Math.ceil(words / 4) * 4;
    const address = addressBytes(data.address);
    const portWord = word + address.length / 4;
    if (portWord > 15) throw new RangeError(`map ${set}: key and data do not fit the kernel's registers`);
    const port = data.port === undefined ? [] : [immediate(portBytes(data.port), register(portWord))];
    return [...exprs, immediate(address, register(word)), ...port, { ...dynset, sregData: register(word) }];
  },
  print({ key, set, timeoutMs, data }, options) {
    const timeout = timeoutMs === undefined ? "" : ` timeout ${durationText(timeoutMs)}`;
    const value = data === undefined ? "" : ` : ${data.address}${data.port === undefined ? "" : ` . ${data.port}`}`;
    return `update @${set} { ${printKey(key, set, options)}${timeout}${value} }`;
  },
};

/** enum nft_payload_csum_types, nft_payload_csum_flags; of the IPv4 header, which has one of its own (RFC 791). */
const CSUM_INET = 1;
const CSUM_PSEUDO_HEADER = 1;
const IPV4_CHECKSUM_OFFSET = 10;

const setAddress: StatementKind<Of<"set-address">> = {
  lower({ direction, to }, { family }) {
    const version = versionOf(family);
    if (version === undefined) throw new RangeError(`set-address in a table of family ${family}`);
    const { base, offset, len } = headerField(version, direction === "source");
    const checksum = version === 4 ? { csumType: CSUM_INET, csumOffset: IPV4_CHECKSUM_OFFSET } : { csumType: 0 };
    const write = { type: "payload", base, offset, len, sreg: 1, ...checksum, csumFlags: CSUM_PSEUDO_HEADER } as const;
    if (typeof to !== "string") return [connectionAddress(version, to.direction === "source", to.ct), write];
    const bytes = addressBytes(to);
    if (bytes.length !== len)
      throw new RangeError(`an address of the other family in a table of family ${family}: ${to}`);
    return [immediate(bytes), write];
  },
  print({ direction, to }, { family }) {
    const ip = family === "ip6" ? "ip6" : "ip";
    const end = (which: "source" | "destination"): string => `${ip} ${which === "source" ? "saddr" : "daddr"}`;
    const value = typeof to === "string" ? addressText(addressBytes(to)) : `ct ${to.ct} ${end(to.direction)}`;
    return `${end(direction)} set ${value}`;
  },
};

const connectionsOver: StatementKind<Of<"connections-over">> = {
  lower({ key, set, count }, context) {
    if (!Number.isSafeInteger(count) || count < 1) throw new RangeError(`not a number of connections: ${count}`);
    const exprs: Expr[] = [{ type: "connlimit", count, flags: BEYOND }];
    return [...loadKey(context, key, set).exprs, { type: "dynset", set, op: DynsetOp.add, sregKey: 1, exprs }];
  },
  print: ({ key, set, count }, options) => `add @${set} { ${printKey(key, set, options)} ct count over ${count} }`,
};

const rateOver: StatementKind<Of<"rate-over">> = {
  lower(action, context) {
    const { key, set, timeoutMs } = action;
    const dynset = { type: "dynset", set, op: DynsetOp.update, sregKey: 1, timeout: BigInt(timeoutMs) } as const;
    return [...loadKey(context, key, set).exprs, { ...dynset, exprs: [packetRate(action, BEYOND)] }];
  },
  print({ key, set, timeoutMs, rate, per, burst }, options) {
    const limited = `limit rate over ${rate}/${per} burst ${burst} packets`;
    return `update @${set} { ${printKey(key, set, options)} timeout ${durationText(timeoutMs)} ${limited} }`;
  },
};

export const ACTIONS: { readonly [K in Action["action"]]: StatementKind<Of<K>> } = {
  log,
  masquerade,
  reject,
  update,
  "connections-over": connectionsOver,
  "rate-over": rateOver,
  "set-mark": setMark,
  "dnat-map": dnatMap,
  "set-address": setAddress,
  counter: { lower: () => [{ type: "counter" }], print: () => "counter" },
  notrack: { lower: () => [{ type: "notrack" }], print: () => "notrack" },
  limit: {
    lower: (action) => [packetRate(action, 0)],
    print: ({ rate, per, burst = DEFAULT_BURST }) => `limit rate ${rate}/${per} burst ${burst} packets`,
  },
  "xor-mark": {
    lower: ({ value }) => changeMark(0xffffffff, value),
    print: ({ value }) => `meta mark set meta mark ^ ${hex(value)}`,
  },
  "set-priority": {
    lower: ({ value }) => [immediate(hostU32(value)), setMeta("priority")],
    print: ({ value }) => `meta priority set ${classidText(value)}`,
  },
  "priority-map": {
    lower: ({ key, map }, context) => [...lookUp(context, key, map, 1), setMeta("priority")],
    print: ({ key, map }, options) => `meta priority set ${printKey(key, map, options)} map @${map}`,
  },
  verdict: {
    lower: ({ verdict }) => [{ type: "immediate", dreg: VERDICT_REGISTER, data: verdict }],
    print: ({ verdict }) => verdictText(verdict),
  },
  vmap: {
    lower: ({ key, map }, context) => lookUp(context, key, map, VERDICT_REGISTER),
    print: ({ key, map }, options) => `${printKey(key, map, options)} vmap @${map}`,
  },
  dnat: {
    lower: (action, context) => natTo(NatType.dnat, action, 0, context),
    print: (action, options) => printNat("dnat", action, options),
  },
  snat: {
    lower: (action, context) =>
      natTo(NatType.snat, action, action.fullyRandom === true ? NatFlag.protoRandomFully : 0, context),
    print: (action, options) =>
      `${printNat("snat", action, options)}${action.fullyRandom === true ? " fully-random" : ""}`,
  },
};
