/** The effect of every nf_tables expression on a packet, and on the registers of its rule. */
import { counted } from "../../../base/counted.js";
import { formatAddress, type IpFamily } from "../../../base/ip.js";
import {
  BitwiseOp,
  CtKey,
  DynsetOp,
  LookupFlag,
  MetaKey,
  PayloadBase,
  RangeOp,
  RejectType,
  VERDICT_REGISTER,
} from "../../../nft/kernel/constants.js";
import type { Expr, SetDump } from "../../../nft/kernel/kernel.js";
import { type Bits, common, compares, exactly, hostNumber, isKnown, isWithin, masked, not } from "./bits.js";
import { numberUpTo, partOf, shifted, swapped, type Ternary, textOf, unknownBits, withPart, wordOf } from "./bits.js";
import { type Found, isGuarded } from "./elements.js";
import { jhash } from "./jhash.js";
import { placeOf } from "./packet-state.js";
import { ctValue, fibValue, metaValue } from "./packet-values.js";
import { type Done, judged, type RuleContext } from "./rule-context.js";
import { exempt, masquerade, MASQUERADED, nat, RANDOM, redirect, reject } from "./statements.js";
import { extensionOf } from "./xt-extension.js";
import { matches } from "./xt-match.js";
import { runTarget } from "./xt-target.js";

type Of<T extends Expr["type"]> = Extract<Expr, { type: T }>;
type Evaluations = { readonly [T in Expr["type"]]: (expr: Of<T>, rule: RuleContext) => Done | Promise<Done> };

/** Length of the result of an expression unknown to this program, bytes. */
const LONGEST = 16;
/** NFT_OBJECT_*: object kinds that match every packet. The other kinds match only in excess. */
const HOLDING = new Set([1, 3, 6, 7, 8, 9]);
/** NFT_OBJECT_SYNPROXY */
const SYNPROXY = 10;
/** Maximum size of a packet, bytes. */
const LARGEST_PACKET = 65_536n;
/** NFT_LIMIT_F_INV, NFT_QUOTA_F_INV, NFT_CONNLIMIT_F_INV: match in excess. */
const INVERTED = 1;
/** Maximum number of verdicts of one map to follow if its key is unknown. */
const MOST_VERDICTS = 17;

const EVALUATIONS: Evaluations = {
  payload,
  meta: async ({ key, dreg, sreg = 0 }, rule) => {
    if (dreg === undefined) return setMeta(key, sreg, rule);
    return load(dreg, await metaValue(key, rule.state, rule.place.ref.family, rule.world.routes), rule);
  },
  ct: ({ key, direction, dreg, sreg = 0 }, rule) =>
    dreg === undefined
      ? setCt(key, sreg, rule)
      : load(dreg, ctValue(key, direction, rule.state, rule.place.ref.family), rule),
  cmp: ({ sreg, op, data }, rule) => judged(compares(rule.read(sreg, data.length), op, data)),
  range: ({ sreg, op, from, to }, rule) =>
    judged(not(isWithin(rule.read(sreg, from.length), from, to), op !== RangeOp.eq)),
  bitwise,
  byteorder: ({ sreg, dreg, len, size }, rule) => rule.write(dreg, swapped(rule.read(sreg, len), size)),
  lookup,
  immediate: ({ dreg, data }, rule) => ("verdict" in data ? data : rule.write(dreg, exactly(data))),
  numgen: ({ dreg, modulus, offset }, rule) => draw(dreg, modulus, offset, rule),
  hash,
  fib: async (expr, rule) => rule.write(expr.dreg, await fibValue(expr, rule.state, rule.world)),
  nat,
  masq: ({ flags = 0 }, rule) => masquerade(MASQUERADED, rule, undefined, (flags & RANDOM) !== 0),
  redir: redirect,
  reject: ({ rejectType }, rule) => reject(rejectType === RejectType.tcpReset ? "reset" : "error", rule),
  notrack: (_, rule) => exempt(rule),
  limit,
  connlimit: limit,
  quota,
  objref,
  dynset,
  counter: () => "next",
  log: () => "next",
  last: () => "next",
  // Applies only to established connections.
  flow_offload: (_, { state }) => (state.direction === "original" ? "break" : "maybe"),
  // Reads an unknown header option. Writing one changes nothing that is decided here.
  exthdr: ({ dreg, len = 0 }, rule) => (dreg === undefined ? "maybe" : rule.writeUnknown(dreg, len)),
  rt: ({ dreg }, rule) => rule.writeUnknown(dreg, LONGEST),
  socket: ({ dreg }, rule) => rule.writeUnknown(dreg, LONGEST),
  queue: () => ({ verdict: "queue" }),
  tproxy: (_, rule) => rule.maybeGone(),
  synproxy: (_, rule) => rule.maybeGone(),
  dup: () => "next",
  fwd: () => "unknown",
  osf: ({ dreg }, rule) => rule.writeUnknown(dreg, LONGEST),
  xfrm: ({ dreg }, rule) => rule.writeUnknown(dreg, LONGEST),
  tunnel: ({ dreg }, rule) => rule.writeUnknown(dreg, LONGEST),
  inner: (_, rule) => rule.writeUnknown(),
  opaque,
};

export function evaluate(expr: Expr, rule: RuleContext): Done | Promise<Done> {
  if ("extra" in expr && expr.extra !== undefined && expr.extra.length > 0) return rule.writeUnknown();
  const evaluation = EVALUATIONS[expr.type] as (expr: Expr, rule: RuleContext) => Done | Promise<Done>;
  return evaluation(expr, rule);
}

/** "break": the value does not exist. "maybe": it may not exist. */
function load(register: number, value: Bits | "break" | "maybe", rule: RuleContext): Done {
  if (value === "break") return "break";
  return value === "maybe" ? rule.writeUnknown(register, LONGEST) : rule.write(register, value);
}

function payload({ base, offset, len, dreg, sreg }: Of<"payload">, rule: RuleContext): Done {
  if (dreg === undefined) return sreg === undefined ? "next" : rewrite(base, offset, rule.read(sreg, len), rule);
  const name = HEADERS[base];
  if (name === undefined || offset + len > rule.state[name].bytes.length) return rule.writeUnknown(dreg, len);
  return rule.write(dreg, partOf(rule.state[name], offset, len));
}

const HEADERS: Readonly<Partial<Record<number, "network" | "transport">>> = {
  [PayloadBase.network]: "network",
  [PayloadBase.transport]: "transport",
};

/** Data beyond the headers does not affect any decision here. */
function rewrite(base: number, offset: number, bits: Bits, rule: RuleContext): Done {
  // The next device may not accept the packet.
  if (base === PayloadBase.link) return "unknown";
  const { family } = rule.state;
  const name = HEADERS[base];
  if (name === undefined || offset + bits.bytes.length > rule.state[name].bytes.length) return "next";
  const header = rule.state[name];
  // An address or port may change the route or the connection, and any other field may make the packet invalid.
  const isHarmless = bits.bytes.every((_, i) => {
    const at = offset + i;
    const { free, hops } = name === "network" ? FREE[family] : NOTHING_FREE;
    const [old, value] = [partOf(header, at, 1), partOf(bits, i, 1)];
    const fixed = Uint8Array.of(0xff & ~(free[at] ?? 0));
    if (textOf(masked(old, fixed)) === textOf(masked(value, fixed))) return true;
    return at === hops && isKnown(value) && value.bytes[0] > 1;
  });
  if (!rule.isOurs && !isHarmless) return "unknown";
  rule.own[name] = withPart(header, offset, bits);
  for (const field of ["source", "destination"] as const) {
    const { header: of, at, length } = placeOf(family, field);
    if (of === name && offset === at && bits.bytes.length === length && isKnown(bits))
      rule.step(`${field} set to ${formatAddress(bits.bytes)} for routing`);
  }
  return "next";
}

/** Bits of a header that rules may change, by offset of their byte, and the offset of the hop limit. */
interface FreeFields {
  readonly free: Readonly<Partial<Record<number, number>>>;
  readonly hops?: number;
}
/** The type of service, the flow label, and the checksum. */
const FREE: Readonly<Record<IpFamily, FreeFields>> = {
  ip: { free: { 1: 0xff, 10: 0xff, 11: 0xff }, hops: 8 },
  ip6: { free: { 0: 0x0f, 1: 0xff, 2: 0xff, 3: 0xff }, hops: 7 },
};
const NOTHING_FREE: FreeFields = { free: {} };

function setMeta(key: number, sreg: number, rule: RuleContext): Done {
  if (key === MetaKey.mark) return rule.change("mark", rule.read(sreg, 4));
  if (key === MetaKey.priority) return rule.change("priority", rule.read(sreg, 4));
  if (key !== MetaKey.pkttype) return "next";
  const type = rule.read(sreg, 1);
  rule.own.packetType = type;
  // ip_rcv_core, ip_forward and tcp_v4_rcv drop packets for other hosts, or for several.
  return !isKnown(type) || type.bytes[0] !== 0 ? "unknown" : "next";
}

/** Has no effect on a packet without an entry (nft_ct_set_eval). */
function setCt(key: number, sreg: number, rule: RuleContext): Done {
  const { tracking } = rule.state;
  // The connection is another one in each zone, and a reply has to be in the same one.
  if (key === CtKey.zone && tracking === "not yet") return "unknown";
  if (tracking === "tracked" && key === CtKey.mark) rule.own.ctMark = rule.read(sreg, 4);
  if (tracking === "tracked" && key === CtKey.labels) rule.own.ctLabels = unknownBits(16);
  return "next";
}

function bitwise(expr: Of<"bitwise">, rule: RuleContext): Done {
  const { sreg, dreg, len, op = BitwiseOp.maskXor, mask, xor, data } = expr;
  const value = rule.read(sreg, len);
  if (op === BitwiseOp.maskXor && mask !== undefined) return rule.write(dreg, masked(value, mask, xor));
  const isShift = op === BitwiseOp.lshift || op === BitwiseOp.rshift;
  if (!isShift || data?.length !== 4 || len % 4 !== 0) return rule.write(dreg, unknownBits(len));
  return rule.write(dreg, shifted(value, wordOf(exactly(data))[0], op === BitwiseOp.lshift));
}

/** Our rules draw an endpoint, and each number is tried. For other programs' rules any number is possible. */
function draw(dreg: number, modulus: number, offset = 0, rule: RuleContext): Done {
  const { world } = rule;
  if (!rule.isOurs) return rule.write(dreg, offset === 0 ? numberUpTo(modulus - 1) : unknownBits(4));
  world.onDraw(modulus);
  return rule.write(dreg, hostNumber(offset + (world.draw % modulus)));
}

/** nft_jhash_eval: scales the hash to a number below the modulus. A seed that the kernel chose is not reported. */
function hash({ sreg, dreg, len = 0, modulus, seed, offset = 0 }: Of<"hash">, rule: RuleContext): Done {
  const key = sreg === undefined ? undefined : rule.read(sreg, len);
  if (seed === undefined || key === undefined || !isKnown(key)) return draw(dreg, modulus, offset, rule);
  return rule.write(dreg, hostNumber(Number((BigInt(jhash(key.bytes, seed)) * BigInt(modulus)) >> 32n) + offset));
}

async function lookup({ set: name, sreg, dreg, flags = 0 }: Of<"lookup">, rule: RuleContext): Promise<Done> {
  const { place, world } = rule;
  const set = await world.rules.set(place.ref, name);
  const key = rule.read(sreg, set?.keyLen ?? 0);
  const { found, none } = (set && (await world.rules.elements(place.ref, set)).find(key)) ?? {};
  if (set === undefined || found === undefined || rule.state.changedSets.has(setId(name, rule)))
    return dreg === VERDICT_REGISTER ? "unknown" : rule.writeUnknown(dreg, set?.dataLen);
  const isMiss = found.length === 0;
  // An element may count or limit, and so match only some packets.
  const guarded = !isMiss && !rule.isOurs && isGuarded(set);
  const hit: Ternary = isMiss ? false : none === true || guarded ? undefined : true;
  if ((flags & LookupFlag.invert) !== 0) return judged(not(hit));
  if (isMiss) return "break";
  // Anonymous sets are part of their rule and are not reported.
  const isTold = found.length === 1 && isKnown(key) && !name.startsWith("__");
  if (isTold) rule.step(world.elementText(set, key.bytes, found[0]));
  if (hit === undefined) rule.fork();
  return dreg === undefined ? "next" : apply(set, dreg, found, rule);
}

/** Applies the verdict or value of the elements that may have been found. */
function apply({ set }: SetDump, dreg: number, found: readonly Found[], rule: RuleContext): Done {
  if (dreg !== VERDICT_REGISTER) {
    const values = found.flatMap(({ data }) => (data === undefined ? [] : [data]));
    return values.length === 0 ? "next" : rule.write(dreg, common(values));
  }
  const verdicts = new Map(
    found.flatMap(({ verdict }) => (verdict === undefined ? [] : [[JSON.stringify(verdict), verdict]])),
  );
  const [first = "next"] = verdicts.values();
  if (verdicts.size < 2) return first;
  if (verdicts.size > MOST_VERDICTS) return "unknown";
  for (const [i, verdict] of [...verdicts.values()].entries()) {
    const branch = rule.guess(`the matching element of ${set}`, String(i));
    rule.ends.push({ branch, effect: verdict.verdict === "continue" ? "next" : verdict });
  }
  return "ended";
}

function limit(expr: Of<"limit" | "connlimit">, rule: RuleContext, set?: string): Done {
  if (!rule.isOurs) return "maybe";
  if (!isExcess(expr)) return "next";
  const what = expr.type === "limit" ? "rate" : `limit of ${counted(expr.count, "connection")}`;
  rule.step(`${set === undefined ? "" : `${set}: `}assuming that the ${what} is not exceeded`);
  rule.branch = { ...rule.branch, limited: true };
  return "break";
}

const isExcess = ({ flags = 0 }: Of<"limit" | "connlimit" | "quota">): boolean => (flags & INVERTED) !== 0;

/** nft_quota_do_eval, based on the usage at the time of reading, which can only grow. */
function quota(expr: Of<"quota">): Done {
  const { bytes, consumed } = expr;
  if (consumed === undefined) return "maybe";
  const isOver: Ternary = consumed >= bytes ? true : consumed + LARGEST_PACKET < bytes ? false : undefined;
  return judged(not(isOver, !isExcess(expr)));
}

/** nft_dynset_eval: breaks if the set is full, or if an expression of the element breaks. */
async function dynset({ set: name, op, exprs = [] }: Of<"dynset">, rule: RuleContext): Promise<Done> {
  if (rule.isOurs) {
    const limits = exprs.filter((expr) => expr.type === "limit" || expr.type === "connlimit");
    const excess = limits.find(isExcess);
    return excess === undefined ? "next" : limit(excess, rule, name);
  }
  const { world, place } = rule;
  rule.changeSet(setId(name, rule));
  if (op === DynsetOp.delete) return "next";
  const set = await world.rules.set(place.ref, name);
  if (set === undefined || exprs.some(({ type }) => type !== "counter" && type !== "last")) return "maybe";
  // An existing element has its own expressions.
  if (exprs.length > 0 && isGuarded(set)) return "maybe";
  const hasRoom = set.size === undefined || (await world.rules.elements(place.ref, set)).count < set.size;
  return hasRoom ? "next" : "maybe";
}

function setId(name: string, { place: { ref } }: RuleContext): string {
  return `${ref.family} ${ref.table} ${name}`;
}

async function objref({ immType, setName, setSreg }: Of<"objref">, rule: RuleContext): Promise<Done> {
  if (setName === undefined || setSreg === undefined) return ofObject(immType, true, rule);
  const { world, place } = rule;
  const set = await world.rules.set(place.ref, setName);
  if (set === undefined) return "maybe";
  const { found, none } = (await world.rules.elements(place.ref, set)).find(rule.read(setSreg, set.keyLen));
  return found?.length === 0 ? "break" : ofObject(set.objType, !none, rule);
}

/** A synproxy answers the packet itself. */
function ofObject(type = 0, isFound: boolean, rule: RuleContext): Done {
  if (isFound && HOLDING.has(type)) return "next";
  return type === SYNPROXY ? rule.maybeGone() : "maybe";
}

/** Expressions without attributes of their own here, among them those of iptables. */
async function opaque({ name, data }: Of<"opaque">, rule: RuleContext): Promise<Done> {
  if (name === "match") return judged(await matches(extensionOf(data), rule.state, rule.world));
  return name === "target" ? runTarget(extensionOf(data), rule) : rule.writeUnknown();
}
