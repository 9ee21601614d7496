/** Every kind of action: the expressions that nft makes of it, and its text. */
import {
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
import type { Expr, Family, Verdict } from "../../kernel/types.js";
import { targetOf } from "../elements/verdicts.js";
import {
  classidText,
  connectionAddress,
  headerField,
  hex,
  hostU32,
  loadKey,
  type LowerContext,
  masked,
  maskOf,
  portBytes,
  printKey,
  requireL4proto,
  requireNfproto,
  type StatementKind,
  type StatementOptions,
} from "./fields.js";
import { portText } from "./matches.js";
import { addressBytes, addressText } from "../../base/ip-ranges.js";
import { checkQuotable, MAX_LOG_PREFIX_BYTES } from "./text.js";
import { type Action, LIMIT_SECONDS } from "./types.js";

type Of<K extends Action["action"]> = Extract<Action, { action: K }>;

/** nft's default: it always sends a burst. */
const DEFAULT_BURST = 5;
/** NFT_LIMIT_F_INV and NFT_CONNLIMIT_F_INV: holds beyond the limit. */
const BEYOND = 1;
const LOG_LEVELS = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];

export function printVerdict(verdict: Verdict): string {
  const chain = targetOf(verdict);
  return chain === undefined ? verdict.verdict : `${verdict.verdict} ${chain}`;
}

export function durationText(ms: number): string {
  return ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`;
}

const log: StatementKind<Of<"log">> = {
  lower({ exprs }, { prefix, level, group }) {
    if (Buffer.byteLength(prefix) > MAX_LOG_PREFIX_BYTES)
      throw new RangeError(`a log prefix has at most ${MAX_LOG_PREFIX_BYTES} bytes: ${prefix}`);
    checkQuotable("log prefix", prefix);
    if (group !== undefined && level !== undefined)
      throw new RangeError("a log action has a level or a group, not both");
    exprs.push({
      type: "log",
      prefix,
      ...(level === undefined ? {} : { level }),
      ...(group === undefined ? {} : { group }),
    });
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

const limit: StatementKind<Of<"limit">> = {
  lower({ exprs }, action) {
    exprs.push(packetRate(action, 0));
  },
  print: ({ rate, per, burst = DEFAULT_BURST }) => `limit rate ${rate}/${per} burst ${burst} packets`,
};

/** mark = (mark & mask) ^ xor */
function markExprs(mask: number, xor: number): Expr[] {
  const key = MetaKey.mark;
  return [{ type: "meta", key, dreg: 1 }, masked(hostU32(mask), hostU32(xor)), { type: "meta", key, sreg: 1 }];
}

const setMark: StatementKind<Of<"set-mark">> = {
  lower({ exprs }, action) {
    const mask = maskOf(action);
    if (mask !== 0xffffffff) exprs.push(...markExprs(~mask >>> 0, action.value));
    else exprs.push(immediate(hostU32(action.value)), { type: "meta", key: MetaKey.mark, sreg: 1 });
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

/** Constants go to registers 1 (address) and 2 (port), or 1 alone. */
function lowerNat(context: LowerContext, natType: number, { address, port }: Of<"dnat">, flags: number): void {
  if (address === undefined && port === undefined) throw new RangeError("a nat action without address and port");
  const bytes = address === undefined ? undefined : addressBytes(address);
  const family = bytes === undefined ? context.nfproto : bytes.length === 4 ? NfProto.ip : NfProto.ip6;
  if (family === undefined) throw new RangeError("a nat action without an address, in a rule of no one family");
  if (bytes !== undefined && (context.family === "ip" || context.family === "ip6")) requireNfproto(context, family);
  const registers: { regAddrMin?: number; regProtoMin?: number } = {};
  if (bytes !== undefined) context.exprs.push(immediate(bytes, (registers.regAddrMin = 1)));
  if (port !== undefined) {
    registers.regProtoMin = bytes === undefined ? 1 : 2;
    context.exprs.push(immediate(portBytes(port), registers.regProtoMin));
  }
  const all = flags | (port === undefined ? 0 : NatFlag.protoSpecified);
  context.exprs.push({ type: "nat", natType, family, ...registers, ...(all === 0 ? {} : { flags: all }) });
}

function printNat(how: string, { address, port }: Of<"dnat">, { family }: StatementOptions): string {
  const bytes = address === undefined ? undefined : addressBytes(address);
  const text = bytes === undefined ? "" : addressText(bytes);
  const target = port === undefined ? text : `${text.includes(":") ? `[${text}]` : text}:${port}`;
  return `${how} ${family !== "inet" || bytes === undefined ? "" : bytes.length === 4 ? "ip " : "ip6 "}to ${target}`;
}

const dnatMap: StatementKind<Of<"dnat-map">> = {
  /** The look-up's result replaces its key: the address at word 0, the port at the first word behind it. */
  lower(context, { key, map, data }) {
    loadKey(context, key, map);
    const type = context.setSpec?.(map)?.data?.[0];
    const family =
      context.nfproto ?? (type === "ipv4_addr" ? NfProto.ip : type === "ipv6_addr" ? NfProto.ip6 : undefined);
    if (family === undefined)
      throw new RangeError(
        `map ${map}: dnat in a table of family ${context.family} needs a map that is declared before the rule`,
      );
    context.exprs.push({ type: "lookup", set: map, sreg: 1, dreg: 1 });
    const port = data === "address-port" ? { regProtoMin: register(family === NfProto.ip ? 1 : 4) } : {};
    context.exprs.push({ type: "nat", natType: NatType.dnat, family, regAddrMin: 1, ...port });
  },
  print({ key, map, data }, options) {
    const v6 = options.family === "ip6" || options.setSpec?.(map)?.data?.[0] === "ipv6_addr";
    const ip = v6 ? "ip6 " : "ip ";
    const what = data === "address-port" ? `${ip}addr . port ` : options.family === "inet" ? ip : "";
    return `dnat ${what}to ${printKey(key, map, options)} map @${map}`;
  },
};

const masquerade: StatementKind<Of<"masquerade">> = {
  lower({ exprs }, { ports, random, fullyRandom }) {
    let flags = (random === true ? NatFlag.protoRandom : 0) | (fullyRandom === true ? NatFlag.protoRandomFully : 0);
    let registers = {};
    if (ports !== undefined) {
      const [from, to] = typeof ports === "number" ? [ports, ports] : ports;
      if (to < from) throw new RangeError(`not a port range: ${from}-${to}`);
      exprs.push(immediate(portBytes(from)));
      if (to !== from) exprs.push(immediate(portBytes(to), 2));
      registers = { regProtoMin: 1, ...(to === from ? {} : { regProtoMax: 2 }) };
      flags |= NatFlag.protoSpecified;
    }
    exprs.push({ type: "masq", ...registers, ...(flags === 0 ? {} : { flags }) });
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
  lower(context, { with: how = "port-unreachable" }) {
    if (how === "tcp-reset") {
      requireL4proto(context, IpProto.tcp);
      return void context.exprs.push({ type: "reject", rejectType: RejectType.tcpReset, code: 0 });
    }
    const family = single(context.family);
    const rejectType = family === "inet" ? RejectType.icmpxUnreachable : RejectType.icmpUnreachable;
    context.exprs.push({ type: "reject", rejectType, code: REJECT_CODES[how][family] });
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
  lower(context, { key, set, timeoutMs, data }) {
    const word = Math.ceil(loadKey(context, key, set) / 4) * 4;
    const expr: Expr = {
      type: "dynset",
      set,
      op: DynsetOp.update,
      sregKey: 1,
      ...(data === undefined ? {} : { sregData: register(word) }),
      ...(timeoutMs === undefined ? {} : { timeout: BigInt(timeoutMs) }),
    };
    if (data !== undefined) {
      const address = addressBytes(data.address);
      const port = word + address.length / 4;
      if (port > 15) throw new RangeError(`map ${set}: key and data do not fit the kernel's registers`);
      context.exprs.push(immediate(address, register(word)));
      if (data.port !== undefined) context.exprs.push(immediate(portBytes(data.port), register(port)));
    }
    context.exprs.push(expr);
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
  lower(context, { direction, to }) {
    const { family, exprs } = context;
    if (family !== "ip" && family !== "ip6") throw new RangeError(`set-address in a table of family ${family}`);
    const version = family === "ip" ? 4 : 6;
    if (typeof to !== "string") exprs.push(connectionAddress(version, to.direction === "source", to.ct));
    else {
      const bytes = addressBytes(to);
      if ((bytes.length === 4) !== (version === 4))
        throw new RangeError(`an address of the other family in a table of family ${family}: ${to}`);
      exprs.push(immediate(bytes));
    }
    const { base, offset, len } = headerField(version, direction === "source");
    const checksum = version === 4 ? { csumType: CSUM_INET, csumOffset: IPV4_CHECKSUM_OFFSET } : { csumType: 0 };
    exprs.push({ type: "payload", base, offset, len, sreg: 1, ...checksum, csumFlags: CSUM_PSEUDO_HEADER });
  },
  print({ direction, to }, { family }) {
    const ip = family === "ip6" ? "ip6" : "ip";
    const end = (which: "source" | "destination"): string => `${ip} ${which === "source" ? "saddr" : "daddr"}`;
    const value = typeof to === "string" ? addressText(addressBytes(to)) : `ct ${to.ct} ${end(to.direction)}`;
    return `${end(direction)} set ${value}`;
  },
};

const connectionsOver: StatementKind<Of<"connections-over">> = {
  lower(context, { key, set, count }) {
    if (!Number.isSafeInteger(count) || count < 1) throw new RangeError(`not a number of connections: ${count}`);
    loadKey(context, key, set);
    const exprs: Expr[] = [{ type: "connlimit", count, flags: BEYOND }];
    context.exprs.push({ type: "dynset", set, op: DynsetOp.add, sregKey: 1, exprs });
  },
  print: ({ key, set, count }, options) => `add @${set} { ${printKey(key, set, options)} ct count over ${count} }`,
};

const rateOver: StatementKind<Of<"rate-over">> = {
  lower(context, action) {
    const { key, set, timeoutMs } = action;
    loadKey(context, key, set);
    const exprs = [packetRate(action, BEYOND)];
    const timeout = BigInt(timeoutMs);
    context.exprs.push({ type: "dynset", set, op: DynsetOp.update, sregKey: 1, timeout, exprs });
  },
  print({ key, set, timeoutMs, rate, per, burst }, options) {
    const limited = `limit rate over ${rate}/${per} burst ${burst} packets`;
    return `update @${set} { ${printKey(key, set, options)} timeout ${durationText(timeoutMs)} ${limited} }`;
  },
};

export const ACTIONS: { readonly [K in Action["action"]]: StatementKind<Of<K>> } = {
  log,
  limit,
  masquerade,
  reject,
  update,
  "connections-over": connectionsOver,
  "rate-over": rateOver,
  "set-mark": setMark,
  "dnat-map": dnatMap,
  "set-address": setAddress,
  counter: {
    lower: ({ exprs }) => void exprs.push({ type: "counter" }),
    print: () => "counter",
  },
  notrack: {
    lower: ({ exprs }) => void exprs.push({ type: "notrack" }),
    print: () => "notrack",
  },
  "xor-mark": {
    lower: ({ exprs }, { value }) => void exprs.push(...markExprs(0xffffffff, value)),
    print: ({ value }) => `meta mark set meta mark ^ ${hex(value)}`,
  },
  "set-priority": {
    lower: ({ exprs }, { value }) =>
      void exprs.push(immediate(hostU32(value)), { type: "meta", key: MetaKey.priority, sreg: 1 }),
    print: ({ value }) => `meta priority set ${classidText(value)}`,
  },
  "priority-map": {
    lower(context, { key, map }) {
      loadKey(context, key, map);
      const value: Expr = { type: "lookup", set: map, sreg: 1, dreg: 1 };
      context.exprs.push(value, { type: "meta", key: MetaKey.priority, sreg: 1 });
    },
    print: ({ key, map }, options) => `meta priority set ${printKey(key, map, options)} map @${map}`,
  },
  verdict: {
    lower: ({ exprs }, { verdict }) => void exprs.push({ type: "immediate", dreg: VERDICT_REGISTER, data: verdict }),
    print: ({ verdict }) => printVerdict(verdict),
  },
  vmap: {
    lower(context, { key, map }) {
      loadKey(context, key, map);
      context.exprs.push({ type: "lookup", set: map, sreg: 1, dreg: VERDICT_REGISTER });
    },
    print: ({ key, map }, options) => `${printKey(key, map, options)} vmap @${map}`,
  },
  dnat: {
    lower: (context, action) => lowerNat(context, NatType.dnat, action, 0),
    print: (action, options) => printNat("dnat", action, options),
  },
  snat: {
    lower: (context, { address, port, fullyRandom }) =>
      lowerNat(
        context,
        NatType.snat,
        { action: "dnat", address, ...(port === undefined ? {} : { port }) },
        fullyRandom === true ? NatFlag.protoRandomFully : 0,
      ),
    print: ({ address, port, fullyRandom }, options) =>
      `${printNat("snat", { action: "dnat", address, ...(port === undefined ? {} : { port }) }, options)}${fullyRandom === true ? " fully-random" : ""}`,
  },
};
