import {
  BitwiseOp,
  ByteorderOp,
  ConnlimitFlag,
  HashType,
  InnerFlag,
  IcmpxUnreachable,
  LimitFlag,
  LimitType,
  LogFlag,
  LogLevel,
  MetaKey,
  PayloadBase,
  PayloadCsumFlag,
  PayloadCsumType,
  QuotaFlag,
  SocketKey,
  DynsetOp,
  ExthdrFlag,
  ExthdrOp,
  FibFlag,
  FibResult,
  IpOption,
  NatType,
  NfProto,
  OsfFlag,
  OsfTtl,
  RejectType,
  SetFlag,
  SynproxyFlag,
  TunnelKey,
  TunnelMode,
  XfrmDirection,
} from "../../kernel/constants.js";
import { Refusal, type ChainState, type Link, type SetState, type TableState } from "../state/state.js";
import type { Transaction } from "../state/transaction.js";
import { normalizeExpr, registerWord } from "../../kernel/normalize.js";
import type { Expr, Family, Verdict } from "../../kernel/kernel.js";
import { findSet } from "./find.js";
import { findObject } from "./objects.js";
import { ctLength, fibLength, metaLength, rtLength, socketLength, xfrmLength } from "./lengths.js";

/** Total number of words in all registers (NFT_REG32_NUM). */
const WORDS = 16;
/** NFT_DATA_VALUE_MAXLEN */
const MAX_LENGTH = 64;
const XFRM_MAX_DEPTH = 6;
/** NF_NAT_RANGE_MASK */
const NAT_FLAGS = 0x7f;
const bits = (flags: Readonly<Record<string, number>>): number =>
  Object.values(flags).reduce((all, bit) => all | bit, 0);
const SYNPROXY_FLAGS = bits(SynproxyFlag);
const LOG_FLAGS = bits(LogFlag);

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

const INTERNET = ["ip", "ip6", "inet"] as const;
/** Expressions that only these families have, and the error of the others. */
const FAMILIES: Partial<Record<Expr["type"], { readonly families: readonly Family[]; readonly errno: string }>> = {
  ct: { families: [...INTERNET, "bridge"], errno: "EPROTO" },
  connlimit: { families: [...INTERNET, "bridge"], errno: "EPROTO" },
  dup: { families: ["ip", "ip6", "netdev"], errno: "ENOENT" },
  fib: { families: [...INTERNET, "netdev"], errno: "ENOENT" },
  fwd: { families: ["netdev"], errno: "ENOENT" },
  masq: { families: INTERNET, errno: "ENOENT" },
  osf: { families: ["ip", "inet"], errno: "EOPNOTSUPP" },
  redir: { families: INTERNET, errno: "ENOENT" },
  reject: { families: [...INTERNET, "bridge", "netdev"], errno: "ENOENT" },
  rt: { families: INTERNET, errno: "EOPNOTSUPP" },
  socket: { families: INTERNET, errno: "EOPNOTSUPP" },
  synproxy: { families: INTERNET, errno: "EPROTO" },
  tproxy: { families: INTERNET, errno: "EOPNOTSUPP" },
  tunnel: { families: ["netdev"], errno: "ENOENT" },
  xfrm: { families: INTERNET, errno: "EOPNOTSUPP" },
};

/** An expression's `init`: checks it, takes its references and returns the kernel's dump of it. */
export function initExpr(ctx: ExprContext, expr: Expr): { readonly dumped: Expr; readonly link: Link | undefined } {
  const only = FAMILIES[expr.type];
  if (only !== undefined && !only.families.includes(ctx.table.ref.family)) throw new Refusal(only.errno);
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

/** nft_objref_select_ops */
function initObjref(ctx: ExprContext, expr: ExprOf<"objref">): Inited {
  const { immType, immName, setSreg, setName } = expr;
  if (setSreg !== undefined && (setName !== undefined || expr.setId !== undefined)) {
    const set = findSet(ctx.tx, ctx.table, setName ?? "", expr.setId);
    if (!set.has(SetFlag.object)) throw new Refusal("EINVAL");
    ctx.registers.load(setSreg, set.info.keyLen);
    return { link: bind(ctx, set, false), set: set.name };
  }
  if (immName === undefined || immType === undefined) throw new Refusal("EOPNOTSUPP");
  return { link: { kind: "object", object: findObject(ctx.table, immType, immName) } };
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
  const length = fibLength(expr.result);
  if (length === 0) throw new Refusal("EOPNOTSUPP");
  const sides = expr.flags & (FibFlag.saddr | FibFlag.daddr);
  if (expr.flags === 0 || (expr.flags & ~bits(FibFlag)) !== 0) throw new Refusal("EINVAL");
  if (sides === 0 || sides === (FibFlag.saddr | FibFlag.daddr)) throw new Refusal("EINVAL");
  if ((expr.flags & FibFlag.iif) !== 0 && (expr.flags & FibFlag.oif) !== 0) throw new Refusal("EINVAL");
  if (expr.result !== FibResult.addrtype && (expr.flags & FibFlag.oif) !== 0) throw new Refusal("EINVAL");
  if (expr.result !== FibResult.oif && (expr.flags & FibFlag.present) !== 0) throw new Refusal("EINVAL");
  ctx.registers.store(expr.dreg, length);
  return {};
}

function initReject(_ctx: ExprContext, expr: ExprOf<"reject">): Inited {
  const { rejectType, code } = expr;
  if (rejectType === RejectType.icmpxUnreachable) {
    if (code === undefined || code > IcmpxUnreachable.adminProhibited) throw new Refusal("EINVAL");
  } else if (rejectType === RejectType.icmpUnreachable) {
    if (code === undefined) throw new Refusal("EINVAL");
  } else if (rejectType !== RejectType.tcpReset) {
    throw new Refusal("EINVAL");
  }
  return {};
}

function initDup(ctx: ExprContext, expr: ExprOf<"dup">): Inited {
  const { family } = ctx.table.ref;
  if ((family === "netdev" ? expr.sregDev : expr.sregAddr) === undefined) throw new Refusal("EINVAL");
  if (family !== "netdev") loadAll(ctx, [expr.sregAddr], family === "ip" ? 4 : 16);
  loadAll(ctx, [expr.sregDev], 4);
  return {};
}

function initFwd(ctx: ExprContext, expr: ExprOf<"fwd">): Inited {
  loadAll(ctx, [expr.sregDev], 4);
  if (expr.sregAddr === undefined) return {};
  if (expr.nfproto === undefined) throw new Refusal("EINVAL");
  if (expr.nfproto !== NfProto.ip && expr.nfproto !== NfProto.ip6) throw new Refusal("EOPNOTSUPP");
  loadAll(ctx, [expr.sregAddr], expr.nfproto === NfProto.ip ? 4 : 16);
  return {};
}

/** nft_exthdr_select_ops: without a register, an expression removes a TCP option, and has no other attributes. */
function initExthdr(ctx: ExprContext, expr: ExprOf<"exthdr">): Inited {
  const { dreg, sreg, hdrType, offset, len, flags, op = ExthdrOp.ipv6 } = expr;
  if ((offset ?? 0) > 255 || (len ?? 0) > 255) throw new Refusal("ERANGE");
  if (sreg !== undefined && dreg !== undefined) throw new Refusal("EOPNOTSUPP");
  if (dreg === undefined && op !== ExthdrOp.tcpopt) throw new Refusal("EOPNOTSUPP");
  if (op > ExthdrOp.dccp || (op === ExthdrOp.ipv4 && ctx.table.ref.family === "ip6")) throw new Refusal("EOPNOTSUPP");
  if (dreg === undefined && flags !== undefined) throw new Refusal("EINVAL");
  if (dreg === undefined && sreg === undefined) {
    if (offset !== undefined || len !== undefined) throw new Refusal("EINVAL");
    return {};
  }
  if (offset === undefined || len === undefined || (flags ?? 0) > ExthdrFlag.present) throw new Refusal("EINVAL");
  if (flags === ExthdrFlag.present && len !== 1) throw new Refusal("EINVAL");
  if (sreg !== undefined && (offset < 2 || (len !== 2 && len !== 4))) throw new Refusal("EOPNOTSUPP");
  const option: readonly number[] = Object.values(IpOption);
  if (op === ExthdrOp.ipv4 && !option.includes(hdrType)) throw new Refusal("EOPNOTSUPP");
  return through(ctx, expr, len);
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

function initBitwise(ctx: ExprContext, expr: ExprOf<"bitwise">): Inited {
  const { op = BitwiseOp.maskXor, len, mask, xor, data, sreg2 } = expr;
  if (op > BitwiseOp.xor) throw new Refusal("EOPNOTSUPP");
  const [isMask, isShift] = [op === BitwiseOp.maskXor, op === BitwiseOp.lshift || op === BitwiseOp.rshift];
  const fits = isMask
    ? mask?.length === len && xor?.length === len && data === undefined && sreg2 === undefined
    : mask === undefined && xor === undefined && (data === undefined) !== (sreg2 === undefined);
  const shift = data?.length === 4 ? Buffer.from(data).readUInt32LE() : 0;
  if (!fits || (isShift && (shift === 0 || shift > 31))) throw new Refusal("EINVAL");
  if (data !== undefined && !isShift && data.length !== len) throw new Refusal("EINVAL");
  if (sreg2 !== undefined) ctx.registers.load(sreg2, len);
  return transform(ctx, expr);
}

function checkOp(op: number, last: number): void {
  if (op > last) throw new Refusal("EINVAL");
}

const accept = (): Inited => ({});

const INITIALIZERS: Initializers = {
  payload: (ctx, expr) => {
    const { base, csumType = PayloadCsumType.none, csumFlags = 0 } = expr;
    if (base > PayloadBase.inner || csumType > PayloadCsumType.sctp) throw new Refusal("EOPNOTSUPP");
    if (csumFlags > PayloadCsumFlag.l4csumPseudohdr) throw new Refusal("EINVAL");
    return through(ctx, expr, expr.len);
  },
  meta: (ctx, expr) => through(ctx, expr, metaLength(expr.key, expr.sreg !== undefined)),
  ct: (ctx, expr) =>
    through(ctx, expr, ctLength(expr.key, ctx.table.ref.family, expr.sreg !== undefined, expr.direction)),
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
  bitwise: initBitwise,
  byteorder: (ctx, expr) => {
    if (expr.op > ByteorderOp.hton || ![2, 4, 8].includes(expr.size)) throw new Refusal("EINVAL");
    return transform(ctx, expr);
  },
  lookup: initLookup,
  immediate: initImmediate,
  counter: accept,
  limit: (_ctx, expr) => {
    if ((expr.limitType ?? 0) > LimitType.pktBytes || (expr.flags ?? 0) > LimitFlag.invert)
      throw new Refusal("EOPNOTSUPP");
    if (expr.rate === 0n) throw new Refusal("EINVAL");
    return {};
  },
  log: (_ctx, expr) => {
    const { group, level, flags = 0, prefix = "" } = expr;
    if (prefix.length > 127) throw new Refusal("ERANGE");
    if (group !== undefined && (level !== undefined || expr.flags !== undefined)) throw new Refusal("EINVAL");
    if ((level ?? 0) > LogLevel.audit || (flags & ~LOG_FLAGS) !== 0) throw new Refusal("EINVAL");
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
    const { hashType = HashType.jenkins, sreg, len } = expr;
    if (hashType > HashType.sym) throw new Refusal("EOPNOTSUPP");
    if (hashType === HashType.jenkins) {
      if (sreg === undefined || len === undefined) throw new Refusal("EINVAL");
      if (len === 0 || len > 255) throw new Refusal("ERANGE");
      ctx.registers.load(sreg, len);
    }
    return storeNumber(ctx, expr);
  },
  dynset: initDynset,
  quota: (_ctx, expr) => {
    if ((expr.flags ?? 0) > QuotaFlag.invert) throw new Refusal("EINVAL");
    return {};
  },
  connlimit: (_ctx, expr) => {
    if ((expr.flags ?? 0) > ConnlimitFlag.invert) throw new Refusal("EOPNOTSUPP");
    return {};
  },
  objref: initObjref,
  exthdr: initExthdr,
  rt: (ctx, expr) => through(ctx, expr, rtLength(expr.key)),
  socket: (ctx, expr) => {
    if ((expr.level ?? 0) > 255) throw new Refusal("ERANGE");
    if (expr.key === SocketKey.cgroupv2 && expr.level === undefined) throw new Refusal("EINVAL");
    return through(ctx, expr, socketLength(expr.key));
  },
  tproxy: (ctx, expr) => {
    const { family } = ctx.table.ref;
    const fits = family === "inet" || NfProto[family] === expr.family;
    if (!fits || (expr.regAddr ?? expr.regPort) === undefined) throw new Refusal("EINVAL");
    if (expr.regAddr !== undefined) ctx.registers.load(expr.regAddr, expr.family === NfProto.ip6 ? 16 : 4);
    if (expr.regPort !== undefined) ctx.registers.load(expr.regPort, 2);
    return {};
  },
  queue: (ctx, expr) => {
    if (expr.sregQnum !== undefined) ctx.registers.load(expr.sregQnum, 2);
    return {};
  },
  last: accept,
  dup: initDup,
  fwd: initFwd,
  synproxy: (_ctx, expr) => {
    if (((expr.flags ?? 0) & ~SYNPROXY_FLAGS) !== 0) throw new Refusal("EOPNOTSUPP");
    return {};
  },
  osf: (ctx, expr) => {
    if ((expr.ttl ?? 0) > OsfTtl.nocheck || (expr.flags ?? 1) !== OsfFlag.version) throw new Refusal("EINVAL");
    return through(ctx, expr, 16);
  },
  xfrm: (ctx, expr) => {
    if (expr.dir > XfrmDirection.out) throw new Refusal("EINVAL");
    const length = xfrmLength(expr.key);
    if ((expr.spnum ?? 0) >= XFRM_MAX_DEPTH) throw new Refusal("ERANGE");
    return through(ctx, expr, length);
  },
  tunnel: (ctx, expr) => {
    if (expr.key > TunnelKey.id || (expr.mode ?? 0) > TunnelMode.tx) throw new Refusal("EOPNOTSUPP");
    return through(ctx, expr, expr.key === TunnelKey.path ? 1 : 4);
  },
  inner: (ctx, expr) => {
    const { num, flags, hdrsize, exprs } = expr;
    const [inside] = exprs;
    const fits = (flags & InnerFlag.hdrsize) === 0 || (hdrsize > 0 && hdrsize <= 64);
    if (num !== 0 || flags > 15 || !fits) throw new Refusal("EOPNOTSUPP");
    if (inside.type === "meta" && (inside.key === MetaKey.protocol || inside.key === MetaKey.l4proto))
      return through(ctx, inside, metaLength(inside.key, false));
    if (inside.type !== "payload" || inside.base === PayloadBase.inner || inside.base > PayloadBase.tunnel)
      throw new Refusal("EOPNOTSUPP");
    return through(ctx, { dreg: inside.dreg }, inside.len);
  },
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
const OTHER_EXPRESSIONS = new Set(["match", "target"]);
