/** Every kind of action: its expressions, the same that nft generates, and its text. */
import {
  ByteorderOp,
  DynsetOp,
  IpProto,
  NatFlag,
  NatType,
  PayloadBase,
  register,
  RejectType,
  SynproxyFlag,
  VERDICT_REGISTER,
} from "../kernel/constants.js";
import type { Expr, Family } from "../kernel/kernel.js";
import { addressBytes, numberToBytes, parseRange } from "../bytes/ip-ranges.js";
import { protocolNumber } from "../../base/protocols.js";
import {
  IP_NAME,
  knownVersion,
  NFPROTO,
  requireField,
  requireL4proto,
  requireVersion,
  versionOf,
} from "../lowering/dependencies.js";
import {
  bytesOfValue,
  ICMP_CODES,
  ICMPV6_CODES,
  ICMPX_CODES,
  type ValueType,
  type Width,
  widthOf,
} from "../language/fields/field-types.js";
import {
  type FieldEntry,
  type FieldName,
  FIELDS,
  load,
  protocolOfField,
  widthOfField,
} from "../language/fields/packet-fields.js";
import { inlineLookup, packed } from "../lowering/inline-sets.js";
import { loadSetKey, lookUp, operand, versionOfType } from "../lowering/keys.js";
import {
  hostU32,
  immediate,
  type LowerContext,
  lowered,
  type Lowered,
  masked,
  portBytes,
  type StatementKind,
} from "../lowering/lowered.js";
import { portBounds, portRange } from "./matches.js";
import { checkQuotable, MAX_LOG_PREFIX_BYTES } from "../bytes/names-and-comments.js";
import { kindOfMap } from "../language/object-kinds.js";
import { referToObject } from "../lowering/objects.js";
import {
  type Action,
  type AddressSource,
  type DataSource,
  type Field,
  LIMIT_SECONDS,
  type PortSource,
  type SetSpec,
} from "../language/rule.js";
import { GIVEN_TEXT } from "../printing/statement-text.js";
import { LOG_FLAGS, LOG_LEVELS } from "../language/vocabulary.js";
import { parseVerdict } from "../language/verdicts.js";
import { dataFields } from "../language/schema.js";
import { flagsOf, toBytes } from "../language/fields/values.js";

type Of<K extends Action["action"]> = Extract<Action, { action: K }>;

/** nft's default, which it always sends. */
const DEFAULT_BURST = 5;
/** NFT_LIMIT_F_INV and NFT_CONNLIMIT_F_INV: matches above the limit. */
const BEYOND = 1;
const BYTE_UNITS = { bytes: 1n, kbytes: 1024n, mbytes: 1048576n } as const;

export function limited({ rate, per, unit = "packets", burst, over }: Omit<Of<"limit">, "action">): Lowered {
  if (!Number.isSafeInteger(rate) || rate < 1) throw new RangeError(`not a rate: ${rate}`);
  const flags = over === true ? BEYOND : 0;
  const time = { unit: BigInt(LIMIT_SECONDS[per]), flags };
  if (unit === "packets") {
    const packets = burst ?? DEFAULT_BURST;
    // NFT_LIMIT_PKTS
    return lowered({ type: "limit", rate: BigInt(rate), burst: packets, limitType: 0, ...time });
  }
  const bytes = BYTE_UNITS[unit];
  const size = Number(BigInt(burst ?? 0) * bytes);
  // NFT_LIMIT_PKT_BYTES
  const limit = { type: "limit", rate: BigInt(rate) * bytes, burst: size, limitType: 1, ...time } as const;
  return lowered(limit);
}

/** Returns the expression that writes a field. Undefined if nothing does. */
function writer(name: FieldName, { source, bits }: FieldEntry): ((sreg: number) => Expr) | undefined {
  if (source.from === "meta") return (sreg) => ({ type: "meta", key: source.key, sreg });
  if (source.from === "ct") return (sreg) => ({ type: "ct", key: source.key, sreg });
  if (source.from === "exthdr")
    return (sreg) => ({
      type: "exthdr",
      op: source.op,
      hdrType: source.header,
      offset: source.offset / 8,
      len: bits / 8,
      sreg,
    });
  if (source.from !== "payload") return undefined;
  const range = { base: PayloadBase[source.base], offset: source.offset / 8, len: bits / 8 };
  return (sreg) => ({ type: "payload", ...range, sreg, ...checksumOf(name) });
}

/** enum nft_payload_csum_types: where the checksum of a header is. */
const CHECKSUMS: Readonly<Record<string, readonly [type: number, offset?: number]>> = {
  ip: [1, 10],
  tcp: [1, 16],
  udp: [1, 6],
  icmp: [1, 2],
  icmpv6: [1, 2],
  igmp: [1, 2],
  sctp: [2, 8],
};
/** Fields that the transport header's checksum covers too. */
const PSEUDO_HEADER = new Set<string>([
  "ip saddr",
  "ip daddr",
  "ip protocol",
  "ip length",
  "ip6 saddr",
  "ip6 daddr",
  "ip6 nexthdr",
  "ip6 length",
]);

function checksumOf(
  name: FieldName,
): Pick<Extract<Expr, { type: "payload" }>, "csumType" | "csumOffset" | "csumFlags"> {
  const [csumType, csumOffset] = CHECKSUMS[protocolOfField(name)] ?? [0];
  const csumFlags = PSEUDO_HEADER.has(name) ? 1 : 0;
  return csumOffset === undefined ? { csumType, csumFlags } : { csumType, csumOffset, csumFlags };
}

/** Writes a field of the packet or its connection. */
function setField(name: FieldName, source: DataSource, context: LowerContext): Lowered {
  const entry: FieldEntry = FIELDS[name];
  if (entry.settable === undefined) throw new RangeError(`${name} cannot be set`);
  requireField(context, name, entry);
  const width = widthOfField(entry);
  if (entry.source.from === "payload" && typeof source !== "object") return setHeader(name, entry, source);
  if (load(entry, 1).isPartial) throw new RangeError(`${name} takes a constant only: it is some bits of a byte`);
  const value = valueOf(entry.type, width, source, context);
  return lowered(...value.exprs, writer(name, entry)!(1));
}

/** Writes a constant to a header. Where a checksum has to be corrected, the kernel writes an even number of bytes at an even place. */
function setHeader(name: FieldName, entry: FieldEntry, value: unknown): Lowered {
  const { expr, shift, isPartial } = load(entry, 1);
  const { base, offset, len } = expr as Extract<Expr, { type: "payload" }>;
  const width = widthOfField(entry);
  const data = bytesOfValue(entry.type, value, width);
  const checksum = checksumOf(name);
  const align = checksum.csumType === 0 ? 1 : 2;
  const first = offset - (offset % align);
  const end = Math.ceil((offset + len) / align) * align;
  if (!isPartial && first === offset && end === offset + len) return lowered(immediate(data), writer(name, entry)!(1));
  const place = BigInt(shift + (end - offset - len) * 8);
  const bytes = end - first;
  const ones = (1n << BigInt(bytes * 8)) - 1n;
  const field = ((1n << BigInt(entry.bits)) - 1n) << place;
  const xor = data.reduce((all, byte) => (all << 8n) | BigInt(byte), 0n) << place;
  const range = { base, offset: first, len: bytes };
  return lowered(
    { type: "payload", ...range, dreg: 1 },
    masked(numberToBytes(ones ^ field, bytes), numberToBytes(xor, bytes)),
    { type: "payload", ...range, sreg: 1, ...checksum },
  );
}

/** Loads a value into register 1: a constant, another field, or what a map holds. */
function valueOf(type: ValueType, width: Width, source: DataSource, context: LowerContext): Lowered {
  if (typeof source !== "object" || Array.isArray(source)) {
    const data = Array.isArray(source) ? hostU32(flagsOf({ type, width }, source)) : bytesOfValue(type, source, width);
    return lowered(immediate(data));
  }
  if (isFromMap(source)) {
    return lookUpOrMake(context, source.key, source.map, [type], [width]);
  }
  const { from, mask, xor } = source as { from: Field; mask?: number; xor?: number };
  const one = operand(context, from, type === "integer" ? undefined : type);
  const isNumber = one.type === "index" || one.type === "integer" || type === "integer";
  if (one.type !== type && !(isNumber && one.width.bits === width.bits))
    throw new RangeError(`${one.text} has type ${one.type}, which does not fit ${type}`);
  if (one.loaded.isPartial) throw new RangeError(`${one.text} cannot be copied: it is some bits of a byte`);
  const { length } = width;
  const isSwapped = one.width.hostOrder !== width.hostOrder && length > 1;
  const op = one.width.hostOrder ? ByteorderOp.hton : ByteorderOp.ntoh;
  const swap: Expr[] = isSwapped ? [{ type: "byteorder", sreg: 1, dreg: 1, op, len: length, size: length }] : [];
  if (mask === undefined && xor === undefined) return lowered(...one.load(1), ...swap);
  const all = (1n << BigInt(length * 8)) - 1n;
  if (BigInt(mask ?? 0) > all || BigInt(xor ?? 0) > all)
    throw new RangeError(`${one.text} has only ${width.bits} bits`);
  const bits = [masked(toBytes(mask === undefined ? all : BigInt(mask), width), toBytes(BigInt(xor ?? 0), width))];
  return lowered(...one.load(1), ...swap, ...bits);
}

/** Loads the data for a key, from a named map or from one that comes with the rule. */
function lookUpOrMake(
  context: LowerContext,
  key: readonly Field[],
  map: string | readonly (readonly [unknown, unknown])[],
  types: readonly ValueType[],
  widths: readonly Width[] = types.map((type) => widthOf(type)),
): Lowered {
  if (typeof map === "string") {
    const data = context.setSpec?.(map)?.data;
    const fields = dataFields({ data });
    const fits = fields.length === types.length && fields.every((one, i) => one === types[i] || types[i] === "integer");
    if (data !== undefined && !fits) {
      const what = fields.length > 0 ? fields.join(" . ") : (kindOfMap({ data }) ?? "verdict");
      throw new RangeError(`map ${map} has data of ${what}, not of ${types.join(" . ")}`);
    }
    return lookUp(context, key, map, 1);
  }
  const fields = types.map((type, index) => ({ type, width: widths[index] }));
  const rows = map.map(([from, to]) => ({ key: from, data: packed(fields, to) }));
  return inlineLookup(context, key, rows, { dreg: 1 }, { fields });
}

/** Applies the verdict that a named map, or one that comes with the rule, holds. */
function verdictMap({ key, map }: Of<"vmap">, context: LowerContext): Lowered {
  if (typeof map === "string") {
    const spec = context.setSpec?.(map);
    if (spec !== undefined && spec.data !== "verdict") throw new RangeError(`${map} is not a map of verdicts`);
    return lookUp(context, key, map, VERDICT_REGISTER);
  }
  const verdicts = map.map(([, verdict]) => parseVerdict(verdict));
  const rows = map.map(([row], index) => ({ key: row, data: hostU32(index) }));
  return inlineLookup(context, key, rows, { dreg: VERDICT_REGISTER }, { verdicts });
}

interface NatOptions {
  readonly random?: boolean;
  readonly fullyRandom?: boolean;
  readonly persistent?: boolean;
}

function natFlags({ random, fullyRandom, persistent }: NatOptions): number {
  return (
    (random === true ? NatFlag.protoRandom : 0) |
    (fullyRandom === true ? NatFlag.protoRandomFully : 0) |
    (persistent === true ? NatFlag.persistent : 0)
  );
}

const withFlags = (flags: number): { readonly flags?: number } => (flags === 0 ? {} : { flags });

interface Target extends NatOptions {
  readonly address?: AddressSource;
  readonly port?: PortSource;
}

function isFromMap<S>(source: S): source is Extract<S, { key: unknown }> {
  return typeof source === "object" && source !== null && !Array.isArray(source) && "map" in source;
}

const WITH_PORTS: ReadonlySet<number> = new Set(
  ["tcp", "udp", "udplite", "sctp", "dccp"].map((name) => protocolNumber(name)),
);

function requirePorts({ facts }: LowerContext): void {
  if (facts.l4proto !== undefined && !WITH_PORTS.has(facts.l4proto))
    throw new RangeError(`packets of protocol ${facts.l4proto} have no ports`);
  if (!facts.hasTransport)
    throw new RangeError(
      'ports need a match of the protocol before them, such as { field: "meta l4proto", value: "tcp" }',
    );
}

interface LoadedPorts {
  readonly exprs: readonly Expr[];
  readonly registers: { readonly regProtoMin: number; readonly regProtoMax?: number };
}

/** Loads ports into registers of 16 bytes, from `first` on. Ports of a map need the first one. */
function portsAt(ports: PortSource, first: number, context: LowerContext): LoadedPorts {
  if (isFromMap(ports)) {
    requirePorts(context);
    if (first !== 1) throw new RangeError("ports of a map take no address: use a map of address and port");
    const data = lookUpOrMake(context, ports.key, ports.map, ["inet_service"]);
    return { ...data, registers: { regProtoMin: 1 } };
  }
  requirePorts(context);
  const range = portRange(ports);
  const [from, to] = portBounds(range);
  if (range.from === range.to) return { exprs: [immediate(from, first)], registers: { regProtoMin: first } };
  const registers = { regProtoMin: first, regProtoMax: first + 1 };
  return { exprs: [immediate(from, first), immediate(to, first + 1)], registers };
}

/** The address or its range, then the port or its range. */
function natTo(how: "dnat" | "snat", target: Target, context: LowerContext): Lowered {
  const { address, port } = target;
  if (address === undefined && port === undefined) throw new RangeError("a nat action needs an address or a port");
  if (isFromMap(address)) return natThrough(how, target, address, context);
  const range =
    address === undefined ? undefined : parseRange(typeof address === "string" ? address : address.join("-"));
  const version = range?.version ?? knownVersion(context) ?? context.assumed;
  if (version === undefined) throw new RangeError("a nat action without an address needs a rule for one IP family");
  if (versionOf(context.family) !== undefined) requireVersion(context, version);
  const bytes = version === 4 ? 4 : 16;
  const ends = range === undefined ? [] : range.from === range.to ? [range.from] : [range.from, range.to];
  const isPrefix = ends.length === 2 && typeof address === "string" && address.includes("/");
  const ports = port === undefined ? undefined : portsAt(port, ends.length + 1, context);
  const options = natFlags(target);
  const flags = options | (ports === undefined ? 0 : NatFlag.protoSpecified) | (isPrefix ? NatFlag.netmap : 0);
  return lowered(
    ...ends.map((end, index) => immediate(numberToBytes(end, bytes), index + 1)),
    ...(ports?.exprs ?? []),
    {
      type: "nat",
      natType: NatType[how],
      family: NFPROTO[version],
      ...(ends.length > 0 ? { regAddrMin: 1 } : {}),
      ...(ends.length > 1 ? { regAddrMax: 2 } : {}),
      ...ports?.registers,
      ...withFlags(flags),
    },
  );
}

/** The result of the look-up replaces its key: the address is at word 0, the port at the first word after it. */
function natThrough(
  how: "dnat" | "snat",
  { port, ...options }: Target,
  { key, map, data = "address" }: Extract<AddressSource, { key: unknown }>,
  context: LowerContext,
): Lowered {
  if (port !== undefined) throw new RangeError("an address of a map takes no port: use a map of address and port");
  const type = typeof map === "string" ? dataFields({ data: context.setSpec?.(map)?.data })[0] : undefined;
  const given = typeof map === "string" ? undefined : String([map[0]?.[1]].flat()[0]).includes(":") ? 6 : 4;
  const version = versionOf(context.family) ?? versionOfType(type) ?? given ?? knownVersion(context) ?? context.assumed;
  if (version === undefined)
    throw new RangeError(
      `map ${String(map)}: declare the map before the rule, because ${how} in a table of family ${context.family} needs its types`,
    );
  const address = version === 4 ? "ipv4_addr" : "ipv6_addr";
  const { exprs } = lookUpOrMake(context, key, map, data === "address" ? [address] : [address, "inet_service"]);
  const flags = natFlags(options);
  const nat = {
    type: "nat",
    natType: NatType[how],
    family: NFPROTO[version],
    regAddrMin: 1,
    ...withFlags(flags),
  } as const;
  if (data === "address") return lowered(...exprs, nat);
  return lowered(...exprs, {
    ...nat,
    regProtoMin: register(version === 4 ? 1 : 4),
  });
}

/** Own ports: a masquerade or a redirect. */
function ownPorts(
  how: "masquerade" | "redirect",
  { ports, ...options }: Omit<Of<"redirect">, "action">,
  context: LowerContext,
): Lowered {
  const flags = natFlags(options);
  const type = how === "masquerade" ? "masq" : "redir";
  if (ports === undefined) return lowered({ type, ...withFlags(flags) });
  const loaded = portsAt(ports, 1, context);
  const all = { ...loaded.registers, flags: flags | NatFlag.protoSpecified };
  return lowered(...loaded.exprs, { type, ...all });
}

const single = (family: Family): "ip" | "ip6" | "inet" => (family === "ip" || family === "ip6" ? family : "inet");

const REJECTS = {
  ip: { protocol: "icmp", codes: ICMP_CODES, rejectType: RejectType.icmpUnreachable },
  ip6: { protocol: "icmpv6", codes: ICMPV6_CODES, rejectType: RejectType.icmpUnreachable },
  inet: { protocol: "icmpx", codes: ICMPX_CODES, rejectType: RejectType.icmpxUnreachable },
} as const;

function reject({ with: how = "port-unreachable" }: Of<"reject">, context: LowerContext): Lowered {
  if (how === "tcp-reset") {
    requireL4proto(context, IpProto.tcp);
    return lowered({ type: "reject", rejectType: RejectType.tcpReset, code: 0 });
  }
  const { protocol, codes, rejectType } = REJECTS[single(context.family)];
  const known: Readonly<Record<string, number>> = codes;
  const name = how === "host-unreachable" && protocol === "icmpv6" ? "addr-unreachable" : how;
  if (!Object.hasOwn(known, name))
    throw new RangeError(
      `a table of family ${context.family} rejects with one of ${Object.keys(known).join(", ")}, tcp-reset, not ${how}`,
    );
  return lowered({ type: "reject", rejectType, code: known[name] });
}

function log({ prefix, level, group, snaplen, queueThreshold, flags }: Of<"log">): Lowered {
  if (prefix !== undefined) {
    if (Buffer.byteLength(prefix) > MAX_LOG_PREFIX_BYTES)
      throw new RangeError(`a log prefix must not exceed ${MAX_LOG_PREFIX_BYTES} bytes: ${prefix}`);
    checkQuotable("log prefix", prefix);
  }
  const base = { type: "log", ...(prefix === undefined ? {} : { prefix }) } as const;
  if (group !== undefined) {
    if (level !== undefined || flags !== undefined)
      throw new RangeError("a log action takes a level and flags, or a group, not both");
    return lowered({
      ...base,
      group,
      ...(snaplen === undefined ? {} : { snaplen }),
      ...(queueThreshold === undefined ? {} : { qthreshold: queueThreshold }),
    });
  }
  if (snaplen !== undefined || queueThreshold !== undefined)
    throw new RangeError("snaplen and queueThreshold need a group");
  const number = typeof level === "string" ? LOG_LEVELS.indexOf(level) : level;
  const bits = flags?.reduce((all, flag) => all | LOG_FLAGS[flag], 0) ?? 0;
  return lowered({ ...base, ...(number === undefined ? {} : { level: number }), ...withFlags(bits) });
}

type IntoSet = Pick<Of<"update">, "key" | "set" | "timeoutMs" | "data">;

/** Puts the key, from word 0 on, into a dynamic set. Constant data is in the next 16-byte register. `counts`: the element's statement. */
function intoSet(
  op: keyof typeof DynsetOp,
  { key, set, timeoutMs, data }: IntoSet,
  context: LowerContext,
  counts?: Lowered,
): Lowered {
  const spec = context.setSpec?.(set);
  if (spec !== undefined && spec.dynamic !== true)
    throw new RangeError(`set ${set} is not dynamic: declare it with dynamic: true`);
  // NFT_EXPR_GC: the kernel removes the set's elements without connections.
  if (spec?.timeoutMs !== undefined && counts?.exprs[0].type === "connlimit")
    throw new RangeError(`set ${set} has timeouts, which the kernel does not support with counts of connections`);
  if (spec !== undefined && timeoutMs !== undefined && spec.timeoutMs === undefined)
    throw new RangeError(`set ${set} has no timeouts: declare it with timeoutMs`);
  if (spec !== undefined) checkData(spec, data);
  const { exprs, words } = loadSetKey(context, key, set);
  const timeout = timeoutMs === undefined ? {} : { timeout: BigInt(timeoutMs) };
  const dynset = { type: "dynset", set, op: DynsetOp[op], sregKey: 1, ...timeout } as const;
  if (counts !== undefined) return lowered(...exprs, { ...dynset, exprs: counts.exprs });
  if (data === undefined) return lowered(...exprs, dynset);
  const word = Math.ceil(words / 4) * 4;
  const address = addressBytes(data.address);
  const portWord = word + address.length / 4;
  if (portWord > 15) throw new RangeError(`map ${set}: key and data do not fit the kernel's registers`);
  const port = data.port === undefined ? [] : [immediate(portBytes(data.port), register(portWord))];
  return lowered(...exprs, immediate(address, register(word)), ...port, { ...dynset, sregData: register(word) });
}

/** Throws RangeError if packets cannot put this data into the set or map. */
function checkData(spec: SetSpec, data: IntoSet["data"]): void {
  const given =
    data === undefined
      ? []
      : [data.address.includes(":") ? "ipv6_addr" : "ipv4_addr", ...(data.port === undefined ? [] : ["inet_service"])];
  const desired = dataFields(spec);
  if (given.join(" . ") === desired.join(" . ")) return;
  const what = desired.length === 0 ? "no data" : `data of ${desired.join(" . ")}`;
  throw new RangeError(`set ${spec.set} has ${what}, but the action has ${given.join(" . ") || "none"}`);
}

function connections({ count, over }: { readonly count: number; readonly over?: boolean }): Lowered {
  if (!Number.isSafeInteger(count) || count < 1) throw new RangeError(`not a number of connections: ${count}`);
  return lowered({ type: "connlimit", count, flags: over === true ? BEYOND : 0 });
}

/** NFT_QUEUE_FLAG_*. */
const QUEUE = { bypass: 1, fanout: 2 } as const;

function queue({ num, bypass, fanout }: Of<"queue">, context: LowerContext): Lowered {
  const flags = (bypass === true ? QUEUE.bypass : 0) | (fanout === true ? QUEUE.fanout : 0);
  if (typeof num === "object" && "field" in num) {
    const one = operand(context, num);
    return lowered(...one.load(1), { type: "queue", sregQnum: 1, flags });
  }
  const [from, to] = typeof num === "number" ? [num, num] : num;
  if (to < from) throw new RangeError(`not a range of queues: ${from}-${to}`);
  return lowered({ type: "queue", num: from, total: to - from + 1, flags });
}

function tproxy({ address, port }: Of<"tproxy">, context: LowerContext): Lowered {
  if (address === undefined && port === undefined) throw new RangeError("tproxy needs an address or a port");
  const bytes = address === undefined ? undefined : addressBytes(address);
  const version = bytes === undefined ? versionOf(context.family) : bytes.length === 4 ? 4 : 6;
  // In inet, packets of the other version end the rule.
  if (version !== undefined && context.family !== "inet") requireVersion(context, version);
  if (context.facts.l4proto !== IpProto.tcp && context.facts.l4proto !== IpProto.udp)
    throw new RangeError(
      'tproxy needs a match of tcp or udp before it, such as { field: "meta l4proto", value: "tcp" }',
    );
  const portReg = bytes === undefined ? 1 : 2;
  return lowered(
    ...(bytes === undefined ? [] : [immediate(bytes)]),
    ...(port === undefined ? [] : [immediate(portBytes(port), portReg)]),
    {
      type: "tproxy",
      family: version === undefined ? 0 : NFPROTO[version],
      ...(bytes === undefined ? {} : { regAddr: 1 }),
      ...(port === undefined ? {} : { regPort: portReg }),
    },
  );
}

/** Sends a copy: in ip and ip6 to an address, in netdev out of a device. */
function dup({ address, device }: Of<"dup">, { family }: LowerContext): Lowered {
  if (family === "netdev" ? address !== undefined || device === undefined : address === undefined)
    throw new RangeError(
      `dup in a table of family ${family} needs ${family === "netdev" ? "a device and no address" : "an address"}`,
    );
  const to = address === undefined ? [] : [immediate(ownAddress(address, family, "dup"))];
  const dreg = to.length + 1;
  const out = device === undefined ? [] : [immediate(hostU32(device), dreg)];
  const registers = {
    ...(address === undefined ? {} : { sregAddr: 1 }),
    ...(device === undefined ? {} : { sregDev: dreg }),
  };
  return lowered(...to, ...out, { type: "dup", ...registers });
}

/** Throws RangeError unless the address belongs to the table's family. */
function ownAddress(address: string, family: Family, what: string): Uint8Array {
  const bytes = addressBytes(address);
  if (versionOf(family) !== (bytes.length === 4 ? 4 : 6))
    throw new RangeError(
      `${what} to ${address} needs a table of family ${bytes.length === 4 ? "ip" : "ip6"}, not ${family}`,
    );
  return bytes;
}

/** Sends the packet out of a device, to a neighbour there if there is an address. */
function fwd({ device, address }: Of<"fwd">): Lowered {
  const out = immediate(hostU32(device));
  if (address === undefined) return lowered(out, { type: "fwd", sregDev: 1 });
  const bytes = addressBytes(address);
  const version = bytes.length === 4 ? 4 : 6;
  const to = { type: "fwd", sregDev: 1, sregAddr: 2, nfproto: NFPROTO[version] } as const;
  return lowered(out, immediate(bytes, 2), to);
}

function synproxy({ mss, wscale, sackPerm, timestamp }: Of<"synproxy">): Lowered {
  const flags =
    (mss === undefined ? 0 : SynproxyFlag.mss) |
    (wscale === undefined ? 0 : SynproxyFlag.wscale) |
    (sackPerm === true ? SynproxyFlag.sackPerm : 0) |
    (timestamp === true ? SynproxyFlag.timestamp : 0);
  return lowered({ type: "synproxy", mss: mss ?? 0, wscale: wscale ?? 0, flags });
}

export const ACTIONS: { readonly [K in Action["action"]]: StatementKind<Of<K>> } = {
  log,
  masquerade: (action, context) => ownPorts("masquerade", action, context),
  redirect: (action, context) => ownPorts("redirect", action, context),
  reject,
  queue,
  tproxy,
  dup,
  fwd,
  synproxy,
  update: ({ op = "update", ...action }, context) => intoSet(op, action, context),
  "connections-over": (action, context) => intoSet("add", action, context, connections({ ...action, over: true })),
  "rate-over": (action, context) => intoSet("update", action, context, limited({ ...action, over: true })),
  connections,
  set: ({ field, value }, context) => setField(field, value, context),
  "set-address"({ direction, to }, context) {
    const { family } = context;
    const version = versionOf(family);
    if (version === undefined) throw new RangeError(`set-address needs a table of family ip or ip6, not ${family}`);
    const end = (one: string): string => (one === "source" ? "saddr" : "daddr");
    const name = `${IP_NAME[version]} ${end(direction)}` as "ip saddr";
    if (typeof to !== "string")
      return setField(name, { from: `ct ${to.ct} ${IP_NAME[version]} ${end(to.direction)}` as Field }, context);
    if (addressBytes(to).length !== (version === 4 ? 4 : 16))
      throw new RangeError(`address ${to} belongs to another family than the table (${family})`);
    return setField(name, to, context);
  },
  counter: () => lowered({ type: "counter" }),
  last: () => lowered({ type: "last" }),
  quota({ bytes, over }) {
    const quota = { type: "quota", bytes: BigInt(bytes), flags: over === true ? BEYOND : 0 } as const;
    return lowered(quota);
  },
  object: referToObject,
  notrack: () => lowered({ type: "notrack" }),
  limit: limited,
  flow: ({ flowtable }) => lowered({ type: "flow_offload", flowtable }),
  verdict: ({ verdict }) => lowered({ type: "immediate", dreg: VERDICT_REGISTER, data: parseVerdict(verdict) }),
  vmap: verdictMap,
  dnat: (action, context) => natTo("dnat", action, context),
  snat: (action, context) => natTo("snat", action, context),
  raw: ({ exprs, text }, { isForText }) => ({
    exprs: isForText === true ? [{ type: "opaque", name: GIVEN_TEXT, data: Buffer.from(text ?? "") }] : exprs,
    isUnprintable: text === undefined,
  }),
};
