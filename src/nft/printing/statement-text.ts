/** Statements of a rule that are no conditions, in nft's notation: one entry for each kind of expression. */
import { bytesToNumber, prefixLength } from "../bytes/ip-ranges.js";
import {
  DynsetOp,
  LimitType,
  NatFlag,
  NatType,
  NfProto,
  ObjectType,
  QueueFlag,
  RejectType,
  SetFlag,
  SynproxyFlag,
} from "../kernel/constants.js";
import type { Expr } from "../kernel/kernel.js";
import { ICMP_CODES, ICMPV6_CODES, ICMPX_CODES, type ValueType } from "../language/fields/field-types.js";
import { verdictText } from "../language/verdicts.js";
import { LIMIT_SECONDS, LOG_FLAGS, LOG_LEVELS } from "../language/vocabulary.js";
import { fieldAt, type KnownField, otherField } from "./field-index.js";
import {
  constantText,
  keyAt,
  operandOf,
  placeOf,
  rawOperand,
  type Reading,
  UNKNOWN_TEXT,
  valueBytes,
  writtenText,
} from "./operands.js";
import type { Of, Term } from "./registers.js";
import { dataFormsOf, type ListedSet, setText } from "./set-text.js";
import { addressText, durationText, formOf } from "./value-text.js";

/** Stands for expressions whose text a program has given. No expression of the kernel has a space in its name. */
export const GIVEN_TEXT = "given text";

type Texts = { readonly [T in Expr["type"]]?: (expr: Of<T>, reading: Reading) => string };

const words = (...parts: readonly (string | false | undefined)[]): string =>
  parts.filter((part) => part !== false && part !== undefined && part !== "").join(" ");
/** The names of the bits that are set. */
const namesOf = (bits: Readonly<Record<string, number>>, flags = 0): string[] =>
  Object.keys(bits).filter((name) => (flags & bits[name]) !== 0);
const over = (flags = 0): string | false => (flags & 1) !== 0 && "over";

/** A statement in nft's words. */
export function statementText(expr: Expr, reading: Reading): string {
  const text = TEXTS[expr.type] as ((expr: Expr, reading: Reading) => string) | undefined;
  return text?.(expr, reading) ?? `${expr.type} ${UNKNOWN_TEXT}`;
}

const TEXTS: Texts = {
  immediate: ({ data }) =>
    data instanceof Uint8Array ? UNKNOWN_TEXT : verdictText(data).replace(/(?<=^(?:jump|goto) )__chain\d+$/, "{ … }"),
  counter: () => "counter",
  last: () => "last",
  notrack: () => "notrack",
  limit: limitText,
  quota: ({ bytes, flags }) => words("quota", over(flags), bytesText(bytes)),
  connlimit: ({ count, flags }) => words("ct count", over(flags), String(count)),
  log: logText,
  queue: queueText,
  reject: rejectText,
  nat: natText,
  masq: (expr, reading) => ownPorts("masquerade", expr, reading),
  redir: (expr, reading) => ownPorts("redirect", expr, reading),
  tproxy: tproxyText,
  dynset: dynsetText,
  objref: objrefText,
  flow_offload: ({ flowtable }) => `flow add @${flowtable}`,
  meta: ({ sreg = 0, ...expr }, reading) => setField(otherField({ ...expr, dreg: 1 }), sreg, reading),
  ct: ({ sreg = 0, ...expr }, reading) => setField(otherField({ ...expr, dreg: 1 }), sreg, reading),
  payload: setHeader,
  exthdr: exthdrText,
  dup: ({ sregAddr, sregDev }, reading) => {
    const device = writtenAt(sregDev, "iface_index", reading);
    const address = sregAddr === undefined ? undefined : addressAt(sregAddr, reading);
    return words("dup to", address ?? device, address !== undefined && device !== undefined && `device ${device}`);
  },
  fwd: ({ sregDev, sregAddr, nfproto }, reading) => {
    const device = writtenAt(sregDev, "iface_index", reading) ?? UNKNOWN_TEXT;
    if (sregAddr === undefined) return `fwd to ${device}`;
    return `fwd ${versionText(nfproto)} to ${addressAt(sregAddr, reading)} device ${device}`;
  },
  synproxy: ({ mss = 0, wscale = 0, flags = 0 }) => {
    const hasSizes = (flags & (SynproxyFlag.mss | SynproxyFlag.wscale)) !== 0;
    const { timestamp, sackPerm } = SynproxyFlag;
    const options = namesOf({ timestamp, "sack-perm": sackPerm }, flags);
    return words("synproxy", hasSizes && `mss ${mss} wscale ${wscale}`, ...options);
  },
  // The name is the first attribute of a match or target of iptables.
  opaque: ({ name, data }) => {
    if (name === GIVEN_TEXT) return Buffer.from(data).toString();
    if (name !== "match" && name !== "target") return `${name} ${UNKNOWN_TEXT}`;
    return `xt ${name} ${Buffer.from(data.subarray(4)).toString("latin1").replace(/\0.*$/s, "")}`;
  },
};

const versionText = (family: number | undefined): string | undefined =>
  family === NfProto.ip ? "ip" : family === NfProto.ip6 ? "ip6" : undefined;

/** "limit rate 10/second burst 20 packets" */
export function limitText({ rate, unit, burst = 0, limitType, flags }: Of<"limit">): string {
  const per = Object.entries({ ...LIMIT_SECONDS, week: 604_800 }).find(([, seconds]) => BigInt(seconds) === unit)?.[0];
  const isBytes = limitType === LimitType.pktBytes;
  const amount = isBytes ? `${bytesText(rate)}/` : `${rate}/`;
  const more = isBytes
    ? burst !== 0 && `burst ${bytesText(BigInt(burst))}`
    : burst !== 0 && burst !== 5 && `burst ${burst} packets`;
  return words("limit rate", over(flags), `${amount}${per ?? UNKNOWN_TEXT}`, more);
}

function bytesText(bytes: bigint): string {
  const units = { mbytes: 1_048_576n, kbytes: 1024n };
  const [unit, size] = Object.entries(units).find(([, one]) => bytes > 0n && bytes % one === 0n) ?? ["bytes", 1n];
  return `${bytes / size} ${unit}`;
}

function logText({ prefix, group, snaplen, qthreshold, level, flags = 0 }: Of<"log">): string {
  const names = namesOf(LOG_FLAGS, flags);
  const isAll = names.length === Object.keys(LOG_FLAGS).length;
  const text = names
    .map((name) => `flags ${name}`)
    .join(" ")
    .replace("flags tcp sequence flags tcp options", "flags tcp sequence,options");
  return words(
    "log",
    prefix !== undefined && `prefix "${prefix}"`,
    group !== undefined && `group ${group}`,
    snaplen !== undefined && `snaplen ${snaplen}`,
    qthreshold !== undefined && `queue-threshold ${qthreshold}`,
    level !== undefined && level !== LOG_LEVELS.indexOf("warn") && `level ${LOG_LEVELS[level] ?? level}`,
    isAll ? "flags all" : text,
  );
}

function queueText({ num = 0, total = 1, flags = 0, sregQnum }: Of<"queue">, reading: Reading): string {
  const how = namesOf({ bypass: QueueFlag.bypass, fanout: QueueFlag.cpuFanout }, flags);
  const numbers = total > 1 ? `${num}-${num + total - 1}` : String(num);
  const to = sregQnum === undefined ? numbers : operandOf(reading.registers.get(sregQnum), reading).text;
  return words("queue", how.length > 0 && `flags ${how.join(",")}`, `to ${to}`);
}

function rejectText({ rejectType, code = 0 }: Of<"reject">, { context }: Reading): string {
  context.useReject(rejectType === RejectType.tcpReset);
  if (rejectType === RejectType.tcpReset) return "reject with tcp reset";
  const isAny = rejectType === RejectType.icmpxUnreachable;
  const protocol = isAny ? "icmpx" : ({ ip: "icmp", ip6: "icmpv6" } as const)[context.network ?? ""];
  const codes: Readonly<Record<string, number>> = { icmp: ICMP_CODES, icmpx: ICMPX_CODES, icmpv6: ICMPV6_CODES }[
    protocol ?? "icmp"
  ];
  const name = Object.keys(codes).find((one) => codes[one] === code) ?? String(code);
  const isDefault = name === "port-unreachable" && (isAny || context.hasOneVersion);
  return isDefault ? "reject" : `reject with ${protocol ?? UNKNOWN_TEXT} ${name}`;
}

type Nat = Of<"nat"> | Of<"masq"> | Of<"redir">;

const NAT_FLAGS = {
  random: NatFlag.protoRandom,
  "fully-random": NatFlag.protoRandomFully,
  persistent: NatFlag.persistent,
};

function portsText({ regProtoMin, regProtoMax }: Nat, reading: Reading): string | undefined {
  if (regProtoMin === undefined) return undefined;
  reading.context.keepConditions();
  const [from, to] = [regProtoMin, regProtoMax ?? regProtoMin].map((register) =>
    writtenAt(register, "inet_service", reading),
  );
  return from === to ? `:${from}` : `:${from}-${to}`;
}

function ownPorts(how: string, expr: Of<"masq"> | Of<"redir">, reading: Reading): string {
  const ports = portsText(expr, reading);
  return words(how, ports !== undefined && `to ${ports}`, namesOf(NAT_FLAGS, expr.flags).join(","));
}

function natText(expr: Of<"nat">, reading: Reading): string {
  const { natType, family, flags = 0, regAddrMin } = expr;
  const how = natType === NatType.snat ? "snat" : "dnat";
  const first = regAddrMin === undefined ? undefined : reading.registers.get(regAddrMin);
  // A map of addresses and ports gives both.
  const isPair = first?.kind === "map" && expr.regProtoMin !== undefined;
  const version = isPair || reading.context.isInet ? versionText(family) : undefined;
  const ports = isPair ? undefined : portsText(expr, reading);
  const addresses = first === undefined ? "" : addressesText(expr, ports !== undefined, reading);
  return words(
    how,
    version,
    (flags & NatFlag.netmap) !== 0 && "prefix",
    `to ${addresses}${ports ?? ""}`,
    namesOf(NAT_FLAGS, flags).join(","),
  );
}

function addressesText(
  { family, regAddrMin = 0, regAddrMax = regAddrMin }: Of<"nat">,
  hasPorts: boolean,
  reading: Reading,
): string {
  const [from, to] = [regAddrMin, regAddrMax].map((register) => reading.registers.get(register));
  if (from.kind !== "constant" || to.kind !== "constant") {
    const text = operandOf(from, reading).text;
    return regAddrMin === regAddrMax || from.kind === "map" ? text : `${text}-${operandOf(to, reading).text}`;
  }
  const quoted = ({ data }: { readonly data: Uint8Array }): string =>
    family === NfProto.ip6 && hasPorts ? `[${addressText(data)}]` : addressText(data);
  if (regAddrMin === regAddrMax) return quoted(from);
  const prefix = prefixLength({ from: bytesToNumber(from.data), to: bytesToNumber(to.data) }, from.data.length * 8);
  return prefix === undefined ? `${quoted(from)}-${quoted(to)}` : `${addressText(from.data)}/${prefix}`;
}

function tproxyText({ family, regAddr, regPort }: Of<"tproxy">, reading: Reading): string {
  const isSix = family === NfProto.ip6;
  const address = writtenAt(regAddr, isSix ? "ipv6_addr" : "ipv4_addr", reading) ?? "";
  const port = writtenAt(regPort, "inet_service", reading);
  const version = reading.context.isInet ? versionText(family) : undefined;
  const to = isSix && address !== "" ? `[${address}]` : address;
  return words("tproxy", version, `to ${to}${port === undefined ? "" : `:${port}`}`);
}

function dynsetText(
  { set, setId, op, sregKey, sregData, timeout = 0n, exprs = [] }: Of<"dynset">,
  reading: Reading,
): string {
  const found = reading.set(set, setId);
  const key = operandOf(keyAt(reading, sregKey, set, setId, sregData), reading);
  const inner = [
    key.text,
    timeout > 0n && `timeout ${durationText(timeout)}`,
    ...exprs.map((expr) => statementText(expr, reading)),
    sregData !== undefined && `: ${writtenText(dataAt(reading, sregData, found), dataFormsOf(found?.info), reading)}`,
  ];
  if (((found?.info.flags ?? 0) & SetFlag.anonymous) !== 0)
    return `meter ${set} size ${found?.info.size} { ${words(...inner)} }`;
  const how = Object.entries(DynsetOp).find(([, number]) => number === op)?.[0];
  return `${how ?? UNKNOWN_TEXT} ${setText(reading, set, setId, [])} { ${words(...inner)} }`;
}

function dataAt({ registers }: Reading, register: number, found: ListedSet | undefined): Term {
  return found === undefined ? registers.from(register) : registers.get(register, found.info.dataLen);
}

const OBJECTS: Readonly<Record<number, string>> = {
  [ObjectType.counter]: "counter name",
  [ObjectType.quota]: "quota name",
  [ObjectType.limit]: "limit name",
  [ObjectType.ctHelper]: "ct helper set",
  [ObjectType.ctTimeout]: "ct timeout set",
  [ObjectType.ctExpect]: "ct expectation set",
  [ObjectType.synproxy]: "synproxy name",
  [ObjectType.secmark]: "meta secmark set",
};

function objrefText({ immType, immName, setSreg, setName = "", setId }: Of<"objref">, reading: Reading): string {
  const found = immName === undefined ? reading.set(setName, setId) : undefined;
  const what = OBJECTS[immType ?? found?.info.objType ?? 0] ?? UNKNOWN_TEXT;
  if (immName !== undefined) return `${what} "${immName}"`;
  const key = setSreg === undefined ? undefined : operandOf(keyAt(reading, setSreg, setName, setId), reading);
  return `${what} ${key?.text ?? UNKNOWN_TEXT} map ${setText(reading, setName, setId, key?.forms ?? [])}`;
}

function setField(field: KnownField | undefined, sreg: number, reading: Reading): string {
  if (field === undefined) return `${UNKNOWN_TEXT} set ${UNKNOWN_TEXT}`;
  const text = writtenText(reading.registers.get(sreg), [field.form], reading);
  return `${field.text} set ${field.name === "ct event" ? text.replaceAll(" | ", ",") : text}`;
}

function exthdrText({ sreg, ...expr }: Of<"exthdr">, reading: Reading): string {
  if (sreg !== undefined) return setField(otherField({ ...expr, dreg: 1 }), sreg, reading);
  return `reset ${otherField({ ...expr, dreg: 1, flags: 1 })?.text ?? UNKNOWN_TEXT}`;
}

/** Writes a field of a header. Where nft has to keep bits around it, it writes `(old & mask) ^ value`. */
function setHeader({ sreg = 0, ...load }: Of<"payload">, reading: Reading): string {
  const term = reading.registers.get(sreg);
  const change = changeOf(term, load.len);
  const bits = load.len * 8;
  if (change !== undefined) {
    const { from, width, value } = change;
    const place = placeOf(load, reading.context);
    const field = fieldAt(place.protocol, place.offset + from, width);
    if (field?.form.bits === width) {
      reading.context.use(field);
      return `${field.text} set ${constantText(field.form, valueBytes(value, width), reading.style)}`;
    }
  }
  const { text, forms } = operandOf({ kind: "header", load, length: load.len }, reading);
  const written = forms.length === 0 ? rawOperand(load.base, load.offset * 8, bits) : { text, forms };
  return `${written.text} set ${writtenText(term, written.forms, reading)}`;
}

interface Change {
  /** The first changed bit, and how many are changed. */
  readonly from: number;
  readonly width: number;
  readonly value: bigint;
}

/** The bits of a loaded header that a calculation sets. Undefined if it is no such calculation. */
function changeOf(term: Term, length: number): Change | undefined {
  if (term.kind !== "binary") return undefined;
  const bits = length * 8;
  const all = (1n << BigInt(bits)) - 1n;
  let set = 0n;
  let kept = all;
  for (let one: Term = term; one.kind === "binary"; one = one.of) {
    if (one.operator === "|") set = bytesToNumber(one.operand);
    else if (one.operator === "&") kept = bytesToNumber(one.operand);
    else return undefined;
  }
  const changed = (all ^ kept) | set;
  const text = changed.toString(2);
  const width = text.replace(/0+$/, "").length;
  if (changed === 0n || text.slice(0, width).includes("0")) return undefined;
  return { from: bits - text.length, width, value: set >> BigInt(text.length - width) };
}

function writtenAt(register: number | undefined, type: ValueType, reading: Reading): string | undefined {
  return register === undefined ? undefined : writtenText(reading.registers.get(register), [formOf(type)], reading);
}

function addressAt(register: number, reading: Reading): string {
  const term = reading.registers.get(register);
  return term.kind === "constant" ? addressText(term.data) : operandOf(term, reading).text;
}
