import { DynsetOp, FibFlag, FibResult, NatType, NfProto, RejectType, SetFlag } from "../../../netlink/constants.js";
import { Refusal, type ChainState, type Link, type SetState, type TableState } from "../state.js";
import type { Transaction } from "../transaction.js";
import { normalizeExpr, registerWord } from "../../../netlink/normalize.js";
import type { Expr, Verdict } from "../../../netlink/kernel.js";
import { findSet } from "./find.js";
import { ctLength, fibLength, metaLength, rtLength, socketLength } from "./lengths.js";

/** Total number of words in all registers (NFT_REG32_NUM). */
const WORDS = 16;
/** NFT_DATA_VALUE_MAXLEN */
const MAX_LENGTH = 64;
/** NF_NAT_RANGE_MASK */
const NAT_FLAGS = 0x7f;

/** The 32-bit words of the register file that have been written so far; loading any other is rejected. */
export class Registers {
  private written = 0;

  /** nft_parse_register_load */
  load(reg: number, length: number): void {
    const mask = this.words(reg, length);
    if ((this.written & mask) !== mask) throw new Refusal("ENODATA");
  }
  /** nft_parse_register_store, for values */
  store(reg: number, length: number): void {
    this.written |= this.words(reg, length);
  }
  /** For expressions whose registers are unknown here. */
  trustAll(): void {
    this.written = (1 << WORDS) - 1;
  }

  private words(reg: number, length: number): number {
    const word = registerWord(reg);
    if (word < 0) throw new Refusal(reg === 0 ? "EINVAL" : "ERANGE");
    if (length === 0) throw new Refusal("EINVAL");
    const count = Math.ceil(length / 4);
    if (word + count > WORDS) throw new Refusal("ERANGE");
    return ((1 << count) - 1) << word;
  }
}

export interface ExprContext {
  readonly tx: Transaction;
  readonly table: TableState;
  readonly chain: ChainState;
  readonly registers: Registers;
  /** Links of the rule's expressions so far. */
  readonly bound: readonly (Link | undefined)[];
}

interface Inited {
  readonly link?: Link;
  /** Name of the set that an expression resolved to. */
  readonly set?: string;
}

type ExprOf<T extends Expr["type"]> = Extract<Expr, { type: T }>;
type Initializers = { readonly [T in Expr["type"]]: (ctx: ExprContext, expr: ExprOf<T>) => Inited };

/** An expression's `init`: checks it, takes its references and returns the kernel's dump of it. */
export function initExpr(ctx: ExprContext, expr: Expr): { readonly dumped: Expr; readonly link: Link | undefined } {
  const init = INITIALIZERS[expr.type] as (ctx: ExprContext, expr: Expr) => Inited;
  const { link, set } = init(ctx, expr);
  const normal = normalizeExpr(expr);
  const named: Expr =
    set !== undefined && (normal.type === "lookup" || normal.type === "dynset") ? { ...normal, set } : normal;
  if (expr.type !== "counter") return { dumped: named, link };
  return { dumped: { ...expr, packets: expr.packets ?? 0n, bytes: expr.bytes ?? 0n }, link };
}

/** nft_verdict_init: the chain that a verdict names. */
export function verdictTarget(table: TableState, verdict: Verdict): ChainState | undefined {
  if (verdict.verdict !== "jump" && verdict.verdict !== "goto") return undefined;
  const chain = table.chains.get(verdict.chain);
  if (chain === undefined) throw new Refusal("ENOENT");
  if (chain.base !== undefined) throw new Refusal("EOPNOTSUPP");
  return chain;
}

/** Loads this many bytes from `sreg`, or stores them to `dreg`. */
function through(ctx: ExprContext, expr: { readonly sreg?: number; readonly dreg?: number }, length: number): Inited {
  if (expr.sreg !== undefined) ctx.registers.load(expr.sreg, length);
  else if (expr.dreg !== undefined) ctx.registers.store(expr.dreg, length);
  else throw new Refusal("EINVAL");
  return {};
}

function storeNumber(
  ctx: ExprContext,
  expr: { readonly dreg: number; readonly modulus: number; readonly offset?: number },
): Inited {
  if (expr.modulus === 0) throw new Refusal("ERANGE");
  if ((expr.offset ?? 0) + expr.modulus - 1 > 0xffffffff) throw new Refusal("EOVERFLOW");
  ctx.registers.store(expr.dreg, 4);
  return {};
}

function initImmediate(ctx: ExprContext, expr: ExprOf<"immediate">): Inited {
  const { data } = expr;
  if (data instanceof Uint8Array) {
    if (data.length > MAX_LENGTH) throw new Refusal("EINVAL");
    ctx.registers.store(expr.dreg, data.length);
    return {};
  }
  const chain = verdictTarget(ctx.table, data);
  if (expr.dreg !== 0) throw new Refusal("EINVAL");
  if (chain === undefined) return {};
  return { link: { kind: "chain", chain } };
}

/** nf_tables_bind_set: an anonymous set belongs to one expression. */
function bind(ctx: ExprContext, set: SetState, map: boolean): Link {
  const boundHere = ctx.bound.some((link) => link?.kind === "set" && link.set === set);
  if (set.anonymous && (set.bindings.length > 0 || boundHere)) throw new Refusal("EBUSY");
  return { kind: "set", set, map };
}

function initLookup(ctx: ExprContext, expr: ExprOf<"lookup">): Inited {
  const set = findSet(ctx.tx, ctx.table, expr.set, expr.setId);
  ctx.registers.load(expr.sreg, set.info.keyLen);
  const flags = expr.flags ?? 0;
  if ((flags & ~1) !== 0) throw new Refusal("EINVAL");
  if (expr.dreg !== undefined) {
    if ((flags & 1) !== 0 || !set.isMap) throw new Refusal("EINVAL");
    if (set.isVerdictMap !== (expr.dreg === 0)) throw new Refusal("EINVAL");
    if (expr.dreg !== 0) ctx.registers.store(expr.dreg, set.info.dataLen ?? 0);
  } else if (set.isMap && set.anonymous) {
    throw new Refusal("EINVAL");
  }
  return { link: bind(ctx, set, set.isMap), set: set.name };
}

/** Sets that packets can add to: only the kernel's resizable hash (its `update` operation). */
function takesUpdates(set: SetState): boolean {
  if (set.has(SetFlag.interval)) return false;
  if (set.has(SetFlag.eval) || set.has(SetFlag.timeout)) return true;
  const bitmap = set.info.keyLen <= 2 && !set.isMap;
  return set.info.size === undefined && !bitmap;
}

function initDynset(ctx: ExprContext, expr: ExprOf<"dynset">): Inited {
  const set = findSet(ctx.tx, ctx.table, expr.set, expr.setId);
  if (set.has(SetFlag.object) || !takesUpdates(set)) throw new Refusal("EOPNOTSUPP");
  if (set.has(SetFlag.constant)) throw new Refusal("EBUSY");
  const known: readonly number[] = Object.values(DynsetOp);
  if (!known.includes(expr.op)) throw new Refusal("EOPNOTSUPP");
  if (expr.timeout !== undefined && !set.has(SetFlag.timeout)) throw new Refusal("EOPNOTSUPP");
  ctx.registers.load(expr.sregKey, set.info.keyLen);
  if (expr.sregData !== undefined) {
    if (!set.isMap || set.isVerdictMap) throw new Refusal("EOPNOTSUPP");
    ctx.registers.load(expr.sregData, set.info.dataLen ?? 0);
  } else if (set.isMap) {
    throw new Refusal("EINVAL");
  }
  if ((expr.exprs?.length ?? 0) > 0 && !set.has(SetFlag.eval)) throw new Refusal("EINVAL");
  const link = bind(ctx, set, false);
  // The kernel limits a set that packets fill, at once and even if the batch fails later.
  set.size ??= 0xffff;
  return { link, set: set.name };
}

function loadAll(ctx: ExprContext, registers: readonly (number | undefined)[], length: number): void {
  for (const reg of registers) if (reg !== undefined) ctx.registers.load(reg, length);
}

function initNat(ctx: ExprContext, expr: ExprOf<"nat">): Inited {
  if (expr.regAddrMin === undefined && expr.regProtoMin === undefined) throw new Refusal("EINVAL");
  if (expr.natType !== NatType.snat && expr.natType !== NatType.dnat) throw new Refusal("EOPNOTSUPP");
  if (ctx.table.ref.family !== "inet" && NfProto[ctx.table.ref.family] !== expr.family) throw new Refusal("EOPNOTSUPP");
  const length = expr.family === NfProto.ip ? 4 : 16;
  if (expr.family !== NfProto.ip && expr.family !== NfProto.ip6 && expr.regAddrMin !== undefined)
    throw new Refusal("EAFNOSUPPORT");
  if (expr.regAddrMin !== undefined) loadAll(ctx, [expr.regAddrMin, expr.regAddrMax], length);
  if (expr.regProtoMin !== undefined) loadAll(ctx, [expr.regProtoMin, expr.regProtoMax], 2);
  if (((expr.flags ?? 0) & ~NAT_FLAGS) !== 0) throw new Refusal("EOPNOTSUPP");
  return {};
}

function initMasq(ctx: ExprContext, expr: ExprOf<"masq"> | ExprOf<"redir">): Inited {
  if (((expr.flags ?? 0) & ~NAT_FLAGS) !== 0) throw new Refusal("EINVAL");
  if (expr.regProtoMin !== undefined) loadAll(ctx, [expr.regProtoMin, expr.regProtoMax], 2);
  return {};
}

function initFib(ctx: ExprContext, expr: ExprOf<"fib">): Inited {
  const all = Object.values(FibFlag).reduce((sum, flag) => sum | flag, 0);
  const sides = expr.flags & (FibFlag.saddr | FibFlag.daddr);
  if (expr.flags === 0 || (expr.flags & ~all) !== 0) throw new Refusal("EINVAL");
  if (sides === 0 || sides === (FibFlag.saddr | FibFlag.daddr)) throw new Refusal("EINVAL");
  const length = fibLength(expr.result);
  if (length === 0) throw new Refusal("EINVAL");
  if (expr.result === FibResult.oif && (expr.flags & FibFlag.oif) !== 0) throw new Refusal("EINVAL");
  ctx.registers.store(expr.dreg, length);
  return {};
}

function initReject(ctx: ExprContext, expr: ExprOf<"reject">): Inited {
  const { rejectType, code } = expr;
  if (rejectType === RejectType.icmpxUnreachable) {
    if (ctx.table.ref.family !== "inet" || code === undefined || code > 3) throw new Refusal("EINVAL");
  } else if (rejectType === RejectType.icmpUnreachable) {
    if (code === undefined) throw new Refusal("EINVAL");
  } else if (rejectType !== RejectType.tcpReset) {
    throw new Refusal("EINVAL");
  }
  return {};
}

/** Loads from one register and stores as many bytes to another. */
function transform(
  ctx: ExprContext,
  expr: { readonly sreg: number; readonly dreg: number; readonly len: number },
): Inited {
  ctx.registers.load(expr.sreg, expr.len);
  ctx.registers.store(expr.dreg, expr.len);
  return {};
}

function checkOp(op: number, last: number): void {
  if (op > last) throw new Refusal("EINVAL");
}

const accept = (): Inited => ({});

const INITIALIZERS: Initializers = {
  payload: (ctx, expr) => {
    if (expr.base > 4) throw new Refusal("EOPNOTSUPP");
    return through(ctx, expr, expr.len);
  },
  meta: (ctx, expr) => through(ctx, expr, metaLength(expr.key)),
  ct: (ctx, expr) => through(ctx, expr, ctLength(expr.key, ctx.table.ref.family)),
  cmp: (ctx, expr) => {
    checkOp(expr.op, 5);
    ctx.registers.load(expr.sreg, expr.data.length);
    return {};
  },
  range: (ctx, expr) => {
    if (expr.from.length !== expr.to.length) throw new Refusal("EINVAL");
    checkOp(expr.op, 1);
    ctx.registers.load(expr.sreg, expr.from.length);
    return {};
  },
  bitwise: transform,
  byteorder: transform,
  lookup: initLookup,
  immediate: initImmediate,
  counter: accept,
  limit: (_ctx, expr) => {
    if (expr.rate === 0n || expr.unit === 0n) throw new Refusal("EINVAL");
    return {};
  },
  log: (_ctx, expr) => {
    if (expr.group !== undefined && (expr.level !== undefined || expr.flags !== undefined)) throw new Refusal("EINVAL");
    return {};
  },
  nat: initNat,
  masq: initMasq,
  redir: initMasq,
  reject: initReject,
  notrack: accept,
  fib: initFib,
  numgen: (ctx, expr) => {
    if (expr.ngType > 1) throw new Refusal("EINVAL");
    return storeNumber(ctx, expr);
  },
  hash: (ctx, expr) => {
    if (expr.sreg !== undefined) ctx.registers.load(expr.sreg, expr.len ?? 0);
    return storeNumber(ctx, expr);
  },
  dynset: initDynset,
  quota: accept,
  connlimit: accept,
  // Stateful objects cannot be created through this port, so a name never refers to one.
  objref: () => {
    throw new Refusal("ENOENT");
  },
  exthdr: (ctx, expr) => {
    if (expr.sreg === undefined && expr.dreg === undefined) return {};
    return through(ctx, expr, expr.len);
  },
  rt: (ctx, expr) => through(ctx, expr, rtLength(expr.key)),
  socket: (ctx, expr) => through(ctx, expr, socketLength(expr.key)),
  tproxy: (ctx, expr) => {
    if (expr.regAddr !== undefined) ctx.registers.load(expr.regAddr, expr.family === NfProto.ip6 ? 16 : 4);
    if (expr.regPort !== undefined) ctx.registers.load(expr.regPort, 2);
    return {};
  },
  queue: (ctx, expr) => {
    if (expr.sregQnum !== undefined) ctx.registers.load(expr.sregQnum, 2);
    return {};
  },
  last: accept,
  flow_offload: (ctx, expr) => {
    if (!ctx.table.flowtables.has(expr.flowtable)) throw new Refusal("ENOENT");
    return {};
  },
  opaque: (ctx, expr) => {
    if (!OTHER_EXPRESSIONS.has(expr.name)) throw new Refusal("ENOENT");
    ctx.registers.trustAll();
    return {};
  },
};

/** Names of the kernel's expressions without their own type in `Expr`. */
const OTHER_EXPRESSIONS = new Set(["synproxy", "tunnel", "xfrm", "osf", "dup", "fwd", "inner", "match", "target"]);
