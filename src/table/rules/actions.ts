/** Every kind of action: its expressions, the same that nft generates, and its text. */
import {
  CtKey,
  DynsetOp,
  IpProto,
  MetaKey,
  NatFlag,
  NatType,
  register,
  RejectType,
  VERDICT_REGISTER,
} from "../../netlink/constants.js";
import type { Expr, Family } from "../../netlink/kernel.js";
import { verdictText } from "../elements/verdict-registry.js";
import {
  addressField,
  CT_MARK,
  headerField,
  hostU32,
  loadKey,
  lookUp,
  IP_NAME,
  type LowerContext,
  lowered,
  type Lowered,
  masked,
  maskOf,
  metaField,
  NFPROTO,
  portBytes,
  requireL4proto,
  requireVersion,
  type StatementKind,
  versionOf,
  versionOfType,
} from "./lowered.js";
import { portBounds, portRange, portText } from "./matches.js";
import { addressBytes, addressText } from "../../base/ip-ranges.js";
import { classidText, hex } from "./field-types.js";
import { checkQuotable, MAX_LOG_PREFIX_BYTES } from "./names-and-comments.js";
import { type Action, LIMIT_SECONDS } from "./rule.js";

type Of<K extends Action["action"]> = Extract<Action, { action: K }>;

/** nft's default, which it always sends. */
const DEFAULT_BURST = 5;
/** NFT_LIMIT_F_INV and NFT_CONNLIMIT_F_INV: matches above the limit. */
const BEYOND = 1;
const LOG_LEVELS = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];

export function durationText(ms: number): string {
  return ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`;
}

function packetRate({ rate, per, burst = DEFAULT_BURST }: Omit<Of<"limit">, "action">, flags: number): Lowered {
  if (!Number.isSafeInteger(rate) || rate < 1) throw new RangeError(`not a rate: ${rate}`);
  const unit = BigInt(LIMIT_SECONDS[per]);
  return lowered(
    `limit rate ${flags === BEYOND ? "over " : ""}${rate}/${per} burst ${burst} packets`,
    // NFT_LIMIT_PKTS
    { type: "limit", rate: BigInt(rate), unit, burst, limitType: 0, flags },
  );
}

function setMeta(key: "mark" | "priority", { exprs, text }: Lowered): Lowered {
  return lowered(`meta ${key} set ${text}`, ...exprs, { type: "meta", key: MetaKey[key], sreg: 1 });
}

/** How to load a mark, and how to set it. */
interface Mark {
  readonly field: Lowered;
  readonly set: (value: Lowered) => Lowered;
}

const PACKET_MARK: Mark = { field: metaField("mark"), set: (value) => setMeta("mark", value) };
const CONNECTION_MARK: Mark = {
  field: CT_MARK,
  set: ({ exprs, text }) => lowered(`ct mark set ${text}`, ...exprs, { type: "ct", key: CtKey.mark, sreg: 1 }),
};

/** mark = (mark & mask) ^ xor. `how` is the nft notation. */
function changeMark({ field, set }: Mark, mask: number, xor: number, how: string): Lowered {
  return set(lowered(`${field.text} ${how}`, ...field.exprs, masked(hostU32(mask), hostU32(xor))));
}

/** mark = (mark & ~mask) | value. */
function setMark(mark: Mark, action: { readonly mask?: number; readonly value: number }): Lowered {
  const { value } = action;
  const mask = maskOf(action);
  if (mask === 0xffffffff) return mark.set(lowered(hex(value), immediate(hostU32(value))));
  const or = value === 0 ? "" : ` | ${hex(value)}`;
  return changeMark(mark, ~mask >>> 0, value, mask === value ? `| ${hex(value)}` : `& ${hex(~mask)}${or}`);
}

function immediate(data: Uint8Array, dreg = 1): Expr {
  return { type: "immediate", dreg, data };
}

type Constants = Pick<Of<"dnat">, "address" | "port"> & Pick<Of<"snat">, "fullyRandom">;

/** Constants go to registers 1 (address) and 2 (port), or the only one to register 1. */
function natTo(how: "dnat" | "snat", { address, port, fullyRandom }: Constants, context: LowerContext): Lowered {
  if (address === undefined && port === undefined) throw new RangeError("a nat action needs an address or a port");
  const bytes = address === undefined ? undefined : addressBytes(address);
  const version = bytes === undefined ? (context.version ?? context.assumed) : bytes.length === 4 ? 4 : 6;
  if (version === undefined) throw new RangeError("a nat action without an address needs a rule for one IP family");
  const exprs = versionOf(context.family) === undefined ? [] : requireVersion(context, version);
  const registers: { regAddrMin?: number; regProtoMin?: number } = {};
  if (bytes !== undefined) exprs.push(immediate(bytes, (registers.regAddrMin = 1)));
  if (port !== undefined) {
    registers.regProtoMin = bytes === undefined ? 1 : 2;
    exprs.push(immediate(portBytes(port), registers.regProtoMin));
  }
  const flags =
    (fullyRandom === true ? NatFlag.protoRandomFully : 0) | (port === undefined ? 0 : NatFlag.protoSpecified);
  const name = bytes === undefined ? "" : addressText(bytes);
  const destination = port === undefined ? name : `${name.includes(":") ? `[${name}]` : name}:${port}`;
  const ip = context.family === "inet" && bytes !== undefined ? `${IP_NAME[version]} ` : "";
  return lowered(`${how} ${ip}to ${destination}${fullyRandom === true ? " fully-random" : ""}`, ...exprs, {
    type: "nat",
    natType: NatType[how],
    family: NFPROTO[version],
    ...registers,
    ...(flags === 0 ? {} : { flags }),
  });
}

/** ICMP_UNREACH codes, ICMPV6_UNREACH codes, NFT_REJECT_ICMPX codes. */
const REJECT_CODES = {
  "port-unreachable": { ip: 3, ip6: 4, inet: 1 },
  "admin-prohibited": { ip: 13, ip6: 1, inet: 3 },
  "host-unreachable": { ip: 1, ip6: 3, inet: 2 },
} as const;

const single = (family: Family): "ip" | "ip6" | "inet" => (family === "ip" || family === "ip6" ? family : "inet");

type IntoSet = Pick<Of<"update">, "key" | "set" | "timeoutMs" | "data">;

/** Puts the key, from word 0 on, into a dynamic set. Constant data is in the next 16-byte register. `counts`: the element's statement. */
function intoSet(
  op: "add" | "update",
  { key, set, timeoutMs, data }: IntoSet,
  context: LowerContext,
  counts?: Lowered,
): Lowered {
  const { exprs, text, words } = loadKey(context, key, set);
  const timeout = timeoutMs === undefined ? {} : { timeout: BigInt(timeoutMs) };
  const time = timeoutMs === undefined ? "" : ` timeout ${durationText(timeoutMs)}`;
  const element = `${op} @${set} { ${text}${time}`;
  const dynset = { type: "dynset", set, op: DynsetOp[op], sregKey: 1, ...timeout } as const;
  if (counts !== undefined) return lowered(`${element} ${counts.text} }`, ...exprs, { ...dynset, exprs: counts.exprs });
  if (data === undefined) return lowered(`${element} }`, ...exprs, dynset);
  const word = Math.ceil(words / 4) * 4;
  const address = addressBytes(data.address);
  const portWord = word + address.length / 4;
  if (portWord > 15) throw new RangeError(`map ${set}: key and data do not fit the kernel's registers`);
  const port = data.port === undefined ? [] : [immediate(portBytes(data.port), register(portWord))];
  return lowered(
    `${element} : ${data.address}${data.port === undefined ? "" : ` . ${data.port}`} }`,
    ...exprs,
    immediate(address, register(word)),
    ...port,
    { ...dynset, sregData: register(word) },
  );
}

/** enum nft_payload_csum_types, nft_payload_csum_flags. Only the IPv4 header has a checksum of its own (RFC 791). */
const CSUM_INET = 1;
const CSUM_PSEUDO_HEADER = 1;
const IPV4_CHECKSUM_OFFSET = 10;

export const ACTIONS: { readonly [K in Action["action"]]: StatementKind<Of<K>> } = {
  log({ prefix, level, group }) {
    if (Buffer.byteLength(prefix) > MAX_LOG_PREFIX_BYTES)
      throw new RangeError(`a log prefix must not exceed ${MAX_LOG_PREFIX_BYTES} bytes: ${prefix}`);
    checkQuotable("log prefix", prefix);
    if (group !== undefined && level !== undefined)
      throw new RangeError("a log action takes a level or a group, not both");
    const text = `log prefix "${prefix}"`;
    if (group !== undefined) return lowered(`${text} group ${group}`, { type: "log", prefix, group });
    if (level === undefined) return lowered(text, { type: "log", prefix });
    return lowered(`${text} level ${LOG_LEVELS[level] ?? level}`, { type: "log", prefix, level });
  },
  masquerade({ ports, random, fullyRandom }) {
    const flags = (random === true ? NatFlag.protoRandom : 0) | (fullyRandom === true ? NatFlag.protoRandomFully : 0);
    const words = [...(random === true ? ["random"] : []), ...(fullyRandom === true ? ["fully-random"] : [])];
    const how = flags === 0 ? "" : ` ${words.join(",")}`;
    if (ports === undefined) return lowered(`masquerade${how}`, { type: "masq", ...(flags === 0 ? {} : { flags }) });
    const range = portRange(ports);
    const [from, to] = portBounds(range);
    const text = `masquerade to :${portText(range)}${how}`;
    const masq = { type: "masq", regProtoMin: 1, flags: flags | NatFlag.protoSpecified } as const;
    if (range.from === range.to) return lowered(text, immediate(from), masq);
    return lowered(text, immediate(from), immediate(to, 2), { ...masq, regProtoMax: 2 });
  },
  reject({ with: how = "port-unreachable" }, context) {
    if (how === "tcp-reset") {
      const reset = { type: "reject", rejectType: RejectType.tcpReset, code: 0 } as const;
      return lowered("reject with tcp reset", ...requireL4proto(context, IpProto.tcp), reset);
    }
    const family = single(context.family);
    const rejectType = family === "inet" ? RejectType.icmpxUnreachable : RejectType.icmpUnreachable;
    const protocol = { ip: "icmp", ip6: "icmpv6", inet: "icmpx" }[family];
    const type = how === "host-unreachable" && family === "ip6" ? "addr-unreachable" : how;
    const text = how === "port-unreachable" ? "reject" : `reject with ${protocol} type ${type}`;
    return lowered(text, { type: "reject", rejectType, code: REJECT_CODES[how][family] });
  },
  update: (action, context) => intoSet("update", action, context),
  "connections-over"(action, context) {
    const { count } = action;
    if (!Number.isSafeInteger(count) || count < 1) throw new RangeError(`not a number of connections: ${count}`);
    const over = lowered(`ct count over ${count}`, { type: "connlimit", count, flags: BEYOND });
    return intoSet("add", action, context, over);
  },
  "rate-over": (action, context) => intoSet("update", action, context, packetRate(action, BEYOND)),
  "set-mark": (action) => setMark(PACKET_MARK, action),
  "set-ct-mark": (action) => setMark(CONNECTION_MARK, action),
  "xor-mark": ({ value }) => changeMark(PACKET_MARK, 0xffffffff, value, `^ ${hex(value)}`),
  /** The result of the look-up replaces its key: the address is at word 0, the port at the first word after it. */
  "dnat-map"({ key, map, data }, context) {
    const { exprs, text } = lookUp(context, key, map, 1);
    const version = context.version ?? versionOfType(context.setSpec?.(map)?.data?.[0]) ?? context.assumed;
    if (version === undefined)
      throw new RangeError(
        `map ${map}: declare the map before the rule, because dnat in a table of family ${context.family} needs its types`,
      );
    const ip = IP_NAME[version];
    const nat = { type: "nat", natType: NatType.dnat, family: NFPROTO[version], regAddrMin: 1 } as const;
    if (data === "address")
      return lowered(`dnat ${context.family === "inet" ? `${ip} ` : ""}to ${text}`, ...exprs, nat);
    const regProtoMin = register(version === 4 ? 1 : 4);
    return lowered(`dnat ${ip} addr . port to ${text}`, ...exprs, { ...nat, regProtoMin });
  },
  "set-address"({ direction, to }, { family }) {
    const version = versionOf(family);
    if (version === undefined) throw new RangeError(`set-address needs a table of family ip or ip6, not ${family}`);
    const { base, offset, len } = headerField(version, direction);
    const checksum = version === 4 ? { csumType: CSUM_INET, csumOffset: IPV4_CHECKSUM_OFFSET } : { csumType: 0 };
    const write = { type: "payload", base, offset, len, sreg: 1, ...checksum, csumFlags: CSUM_PSEUDO_HEADER } as const;
    const text = `${addressField(version, direction).text} set`;
    if (typeof to !== "string") {
      const value = addressField(version, to.direction, to.ct);
      return lowered(`${text} ${value.text}`, ...value.exprs, write);
    }
    const bytes = addressBytes(to);
    if (bytes.length !== len)
      throw new RangeError(`address ${to} belongs to another family than the table (${family})`);
    return lowered(`${text} ${addressText(bytes)}`, immediate(bytes), write);
  },
  counter: () => lowered("counter", { type: "counter" }),
  notrack: () => lowered("notrack", { type: "notrack" }),
  limit: (action) => packetRate(action, 0),
  "set-priority": ({ value }) => setMeta("priority", lowered(classidText(value), immediate(hostU32(value)))),
  "priority-map": ({ key, map }, context) => setMeta("priority", lookUp(context, key, map, 1)),
  verdict: ({ verdict }) => lowered(verdictText(verdict), { type: "immediate", dreg: VERDICT_REGISTER, data: verdict }),
  vmap: ({ key, map }, context) => lookUp(context, key, map, VERDICT_REGISTER),
  dnat: (action, context) => natTo("dnat", action, context),
  snat: (action, context) => natTo("snat", action, context),
};
