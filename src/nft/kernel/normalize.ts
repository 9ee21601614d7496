/**
 * Normal forms of expressions, as the kernel dumps them: the sent fields, plus the defaults that its `init` sets, minus the fields that it
 * never dumps. Two rules do the same if their normal forms are equal.
 *
 * Each entry follows the expression's own dump function in net/netfilter/nft_*.c (Linux 6.18). The conformance suite compares it with a
 * real dump.
 */
import { isDeepStrictEqual } from "node:util";
import { CtKey, HashType, NatFlag, register, SocketKey } from "./constants.js";
import type { Expr, NatPorts } from "./kernel.js";

type ExprOf<T extends Expr["type"]> = Extract<Expr, { type: T }>;
type Normalizers = { readonly [T in Expr["type"]]: (expr: ExprOf<T>) => ExprOf<T> };

/** Returns the index of a register's first 32-bit word (0..15), or -1 for the verdict register and unknown numbers. */
export function registerWord(reg: number): number {
  if (reg >= 1 && reg <= 4) return (reg - 1) * 4;
  if (reg >= 8 && reg <= 23) return reg - 8;
  return -1;
}

/** Returns a register in the dumped form. */
function dumped(reg: number): number {
  const word = registerWord(reg);
  return word < 0 ? reg : register(word);
}

/** The names of all fields that hold registers. */
const REGISTER_FIELD = /^(set)?[ds]?reg/i;

/** Converts registers to the dumped form, and Buffers to plain arrays. Removes undefined values, which count as absent. */
function tidy<E extends Expr>(expr: E): E {
  const out: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(expr)) {
    if (value === undefined) continue;
    if (Buffer.isBuffer(value)) out[key] = new Uint8Array(value);
    else out[key] = typeof value === "number" && REGISTER_FIELD.test(key) ? dumped(value) : value;
  }
  return out as E;
}

/** Returns `expr` without some of its keys. */
function without<E extends Expr>(expr: E, ...keys: string[]): E {
  return Object.fromEntries(Object.entries(expr).filter(([key]) => !keys.includes(key))) as E;
}

/** Returns `expr` without a key if its value is zero, because the kernel does not dump it then. */
function dropZero<E extends Expr>(expr: E, key: keyof E & string): E {
  const value: unknown = expr[key];
  return value === 0 || value === 0n ? without(expr, key) : expr;
}

/** Normalizes a range of ports: the upper register defaults to the lower one, and the kernel sets the flag. */
function portRange<E extends ExprOf<"nat"> | ExprOf<"masq"> | ExprOf<"redir">>(expr: E, flag: number): E {
  const { regProtoMin, regProtoMax, flags }: NatPorts = expr;
  const range =
    regProtoMin === undefined ? { regProtoMax: undefined } : { regProtoMin, regProtoMax: regProtoMax ?? regProtoMin };
  const all = (flags ?? 0) | (regProtoMin === undefined ? 0 : flag);
  return dropZero({ ...expr, ...range, flags: all }, "flags");
}

/** For expressions that the kernel dumps unchanged. */
const same = <E>(expr: E): E => expr;

const NORMALIZERS: Normalizers = {
  payload: (expr) =>
    expr.sreg === undefined
      ? expr
      : { ...expr, csumType: expr.csumType ?? 0, csumOffset: expr.csumOffset ?? 0, csumFlags: expr.csumFlags ?? 0 },
  meta: same,
  ct: (expr) => (expr.key === CtKey.l3protocol || expr.key === CtKey.protocol ? without(expr, "direction") : expr),
  cmp: same,
  range: same,
  bitwise: (expr) => ({ ...expr, op: expr.op ?? 0 }),
  byteorder: same,
  lookup: (expr) => ({ ...without(expr, "setId"), flags: expr.flags ?? 0 }),
  immediate: same,
  counter: (expr) => without(expr, "packets", "bytes"),
  limit: (expr) => {
    const limitType = expr.limitType ?? 0;
    // NFT_LIMIT_PKT_BURST_DEFAULT: a packet limit never has a burst of 0.
    const burst = expr.burst || (limitType === 0 ? 5 : 0);
    return { ...expr, limitType, burst, flags: expr.flags ?? 0 };
  },
  log: (expr) => {
    if (expr.group !== undefined) return dropZero(expr, "qthreshold");
    // LOGLEVEL_WARNING
    return dropZero({ ...without(expr, "snaplen", "qthreshold"), level: expr.level ?? 4 }, "flags");
  },
  nat: (expr) => {
    if (expr.regAddrMin === undefined) return portRange(without(expr, "regAddrMax"), NatFlag.protoSpecified);
    const flags = (expr.flags ?? 0) | NatFlag.mapIps;
    return portRange({ ...expr, regAddrMax: expr.regAddrMax ?? expr.regAddrMin, flags }, NatFlag.protoSpecified);
  },
  masq: (expr) => portRange(expr, 0),
  redir: (expr) => portRange(expr, NatFlag.protoSpecified),
  reject: (expr) => (expr.rejectType === 1 ? without(expr, "code") : expr),
  notrack: same,
  fib: same,
  numgen: (expr) => ({ ...expr, offset: expr.offset ?? 0 }),
  hash: (expr) => {
    const used = expr.hashType === HashType.sym ? without(expr, "sreg", "len", "seed") : expr;
    return dropZero({ ...used, hashType: expr.hashType ?? 0 }, "offset");
  },
  dynset: (expr) => {
    const base = { ...without(expr, "setId"), flags: expr.flags ?? 0, timeout: expr.timeout ?? 0n };
    return expr.exprs === undefined ? base : { ...base, exprs: expr.exprs.map(normalizeExpr) };
  },
  quota: (expr) => ({ ...without(expr, "consumed"), flags: expr.flags ?? 0 }),
  connlimit: (expr) => dropZero(expr, "flags"),
  objref: (expr) => without(expr, "setId"),
  exthdr: (expr) => {
    const { offset = 0, len = 0, flags = 0, op = 0 } = expr;
    return { ...expr, offset, len, flags, op };
  },
  rt: same,
  socket: (expr) => (expr.key === SocketKey.cgroupv2 ? expr : without(expr, "level")),
  tproxy: same,
  queue: (expr) =>
    expr.sregQnum === undefined
      ? { ...expr, num: expr.num ?? 0, total: expr.total ?? 1, flags: expr.flags ?? 0 }
      : { ...expr, flags: expr.flags ?? 0 },
  last: (expr) => without(expr, "set", "msecs"),
  flow_offload: same,
  dup: same,
  fwd: (expr) => (expr.sregAddr === undefined ? without(expr, "nfproto") : expr),
  synproxy: (expr) => ({ ...expr, mss: expr.mss ?? 0, wscale: expr.wscale ?? 0, flags: expr.flags ?? 0 }),
  osf: (expr) => ({ ...expr, ttl: expr.ttl ?? 0, flags: expr.flags ?? 0 }),
  xfrm: (expr) => ({ ...expr, spnum: expr.spnum ?? 0 }),
  tunnel: (expr) => ({ ...expr, mode: expr.mode ?? 0 }),
  inner: (expr) => ({ ...expr, exprs: [normalizeExpr(expr.exprs[0])] }),
  opaque: same,
};

/** Types of all expressions. */
export const EXPR_TYPES = Object.keys(NORMALIZERS);

/**
 * Returns the normal form of an expression, with the kernel's defaults and registers as dumped. It has no values that change by themselves
 * (counters, a quota's use, `last`), and no references to a set of the same batch (`setId`).
 */
export function normalizeExpr(expr: Expr): Expr {
  const normalize = NORMALIZERS[expr.type] as (expr: Expr) => Expr;
  return tidy(normalize(tidy(expr)));
}

/** The kernel keeps timeouts in jiffies, so those that differ by less than one (10 ms at HZ=100) are the same. */
function withTimeoutLike(other: Expr, expr: Expr): Expr {
  if (expr.type !== "dynset" || other.type !== "dynset" || !expr.timeout || !other.timeout) return expr;
  const difference = Number(expr.timeout - other.timeout);
  return Math.abs(difference) < 10 ? { ...expr, timeout: other.timeout } : expr;
}

/** Whether both lists do the same, in the same order. */
export function sameExprs(a: readonly Expr[], b: readonly Expr[]): boolean {
  return sameNormalExprs(a.map(normalizeExpr), b.map(normalizeExpr));
}

/** The same for expressions in their normal form. */
export function sameNormalExprs(a: readonly Expr[], b: readonly Expr[]): boolean {
  return a.length === b.length && a.every((expr, i) => isDeepStrictEqual(expr, withTimeoutLike(expr, b[i])));
}
