/** Every expression with every attribute that the codec knows, and the kernel's dump of a plain one. */
import type { Expr, ObjectData } from "../../src/nft/kernel/kernel.js";

const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);
const word = (value: number): Uint8Array => new Uint8Array(Uint32Array.of(value).buffer);

type Sample<T extends Expr["type"]> = Extract<Expr, { type: T }>;

/** One entry per type, so that the compiler finds a missing type; each has all of its fields. */
export const full: { readonly [T in Expr["type"]]: readonly Sample<T>[] } = {
  payload: [
    { type: "payload", base: 1, offset: 12, len: 4, dreg: 1 },
    { type: "payload", base: 2, offset: 2, len: 2, sreg: 9, csumType: 1, csumOffset: 16, csumFlags: 1 },
  ],
  meta: [
    { type: "meta", key: 16, dreg: 1 },
    { type: "meta", key: 3, sreg: 2 },
  ],
  ct: [
    { type: "ct", key: 19, dreg: 1, direction: 1 },
    { type: "ct", key: 3, sreg: 1 },
  ],
  cmp: [{ type: "cmp", sreg: 1, op: 1, data: bytes(1, 2, 3, 4, 5, 6, 7) }],
  range: [{ type: "range", sreg: 1, op: 0, from: bytes(0, 1), to: bytes(255, 254) }],
  bitwise: [
    { type: "bitwise", sreg: 1, dreg: 1, len: 4, op: 0, mask: word(0xff), xor: word(1) },
    { type: "bitwise", sreg: 1, dreg: 9, len: 4, op: 1, data: word(3) },
    { type: "bitwise", sreg: 1, sreg2: 10, dreg: 9, len: 4, op: 4 },
  ],
  byteorder: [{ type: "byteorder", sreg: 1, dreg: 2, op: 1, len: 8, size: 4 }],
  lookup: [{ type: "lookup", set: "s", setId: 7, sreg: 1, dreg: 0, flags: 1 }],
  immediate: [
    { type: "immediate", dreg: 1, data: bytes(10, 0, 0, 1) },
    { type: "immediate", dreg: 0, data: { verdict: "accept" } },
    { type: "immediate", dreg: 0, data: { verdict: "drop" } },
    { type: "immediate", dreg: 0, data: { verdict: "continue" } },
    { type: "immediate", dreg: 0, data: { verdict: "break" } },
    { type: "immediate", dreg: 0, data: { verdict: "return" } },
    { type: "immediate", dreg: 0, data: { verdict: "queue" } },
    { type: "immediate", dreg: 0, data: { verdict: "jump", chain: "a chain" } },
    { type: "immediate", dreg: 0, data: { verdict: "goto", chain: "x".repeat(255) } },
  ],
  counter: [
    { type: "counter", packets: 2n ** 64n - 1n, bytes: 2n ** 63n },
    { type: "counter", packets: 0n },
  ],
  limit: [{ type: "limit", rate: 10n, unit: 60n, burst: 5, limitType: 1, flags: 1 }],
  log: [{ type: "log", group: 65535, prefix: "a prefix: ", snaplen: 64, qthreshold: 2, level: 4, flags: 3 }],
  nat: [
    {
      type: "nat",
      natType: 1,
      family: 2,
      regAddrMin: 1,
      regAddrMax: 2,
      regProtoMin: 9,
      regProtoMax: 10,
      flags: 3,
    },
  ],
  masq: [{ type: "masq", flags: 16, regProtoMin: 1, regProtoMax: 2 }, { type: "masq" }],
  redir: [{ type: "redir", regProtoMin: 1, regProtoMax: 2, flags: 2 }],
  reject: [
    { type: "reject", rejectType: 0, code: 255 },
    { type: "reject", rejectType: 1 },
  ],
  notrack: [{ type: "notrack" }],
  fib: [{ type: "fib", dreg: 1, result: 3, flags: 2 }],
  numgen: [{ type: "numgen", dreg: 1, modulus: 4294967295, ngType: 1, offset: 3 }],
  hash: [{ type: "hash", sreg: 1, dreg: 2, len: 8, modulus: 10, seed: 0xdeadbeef, offset: 100, hashType: 0 }],
  dynset: [
    { type: "dynset", set: "s", setId: 3, op: 1, sregKey: 1, sregData: 2, timeout: 10800000n, flags: 1 },
    { type: "dynset", set: "s", op: 0, sregKey: 1, exprs: [{ type: "counter", packets: 1n, bytes: 2n }] },
    {
      type: "dynset",
      set: "s",
      op: 0,
      sregKey: 1,
      flags: 2,
      exprs: [{ type: "counter" }, { type: "connlimit", count: 3 }],
    },
  ],
  quota: [{ type: "quota", bytes: 25000n, flags: 1, consumed: 3n }],
  connlimit: [{ type: "connlimit", count: 20, flags: 1 }],
  objref: [
    { type: "objref", immType: 1, immName: "counter" },
    { type: "objref", setSreg: 1, setName: "m", setId: 4 },
  ],
  exthdr: [
    { type: "exthdr", dreg: 1, hdrType: 2, offset: 2, len: 2, flags: 1, op: 1 },
    { type: "exthdr", sreg: 1, hdrType: 2, offset: 2, len: 2, op: 1 },
    { type: "exthdr", hdrType: 8, op: 1 },
  ],
  rt: [{ type: "rt", dreg: 1, key: 3 }],
  socket: [{ type: "socket", key: 3, dreg: 1, level: 2 }],
  tproxy: [{ type: "tproxy", family: 2, regAddr: 1, regPort: 2 }],
  queue: [
    { type: "queue", num: 1, total: 4, flags: 3 },
    { type: "queue", sregQnum: 1 },
  ],
  last: [{ type: "last", set: 1, msecs: 12345n }],
  flow_offload: [{ type: "flow_offload", flowtable: "f" }],
  dup: [{ type: "dup", sregAddr: 1, sregDev: 2 }],
  fwd: [{ type: "fwd", sregDev: 1, sregAddr: 2, nfproto: 10 }],
  synproxy: [{ type: "synproxy", mss: 1460, wscale: 7, flags: 3 }],
  osf: [{ type: "osf", dreg: 1, ttl: 2, flags: 1 }],
  xfrm: [{ type: "xfrm", dreg: 1, key: 6, dir: 1, spnum: 2 }],
  tunnel: [{ type: "tunnel", key: 1, dreg: 1, mode: 2 }],
  inner: [
    {
      type: "inner",
      num: 0,
      innerType: 1,
      flags: 15,
      hdrsize: 8,
      exprs: [{ type: "payload", base: 4, offset: 4, len: 3, dreg: 1 }],
    },
  ],
  opaque: [
    { type: "opaque", name: "match", data: bytes(8, 0, 1, 0, 0, 0, 0, 1) },
    { type: "opaque", name: "novel", data: bytes() },
  ],
};

export const everyExpr: readonly Expr[] = Object.values(full).flat();

/** Every kind of named object's data with its NFT_OBJECT_*. */
export const everyObject: readonly (readonly [objType: number, data: ObjectData])[] = [
  [1, { type: "counter", packets: 1n, bytes: 2n }],
  [2, full.quota[0]],
  [3, { type: "ct helper", name: "ftp", l3proto: 10, l4proto: 6 }],
  [4, full.limit[0]],
  [5, full.connlimit[0]],
  [7, { type: "ct timeout", l3proto: 2, l4proto: 6, timeouts: [1, undefined, 4294967295] }],
  [8, { type: "secmark", context: "system_u:object_r:ssh_server_packet_t:s0" }],
  [9, { type: "ct expectation", l3proto: 2, l4proto: 17, dport: 9876, timeout: 120_000, size: 255 }],
  [10, { type: "synproxy", mss: 1460, wscale: 14, flags: 15 }],
  [6, { type: "opaque", name: "object-6", data: bytes(8, 0, 1, 0, 0, 0, 0, 1) }],
];

/** A rule as sent, and the additions in the kernel's dump of its last expression. */
export interface KernelSample {
  readonly title: string;
  readonly before?: readonly Expr[];
  readonly expr: Expr;
  /** Defaults that the kernel fills in, and initial counters. */
  readonly adds?: Readonly<Record<string, unknown>>;
  /** Fields that the kernel does not return. */
  readonly drops?: readonly string[];
  /** Changes that the dump needs before the kernel accepts it again. */
  readonly mend?: Readonly<Record<string, unknown>>;
}

const tcp: readonly Expr[] = [
  { type: "meta", key: 16, dreg: 1 },
  { type: "cmp", sreg: 1, op: 0, data: bytes(6) },
];
const address: Expr = { type: "immediate", dreg: 1, data: bytes(10, 0, 0, 1) };
const port: Expr = { type: "immediate", dreg: 2, data: bytes(0, 80) };

/**
 * For a chain of type nat at output. The table has a set `s` of addresses that packets may add to, with the `timeout`
 * flag, and a map `m` of address to verdict.
 */
export const kernelSamples: readonly KernelSample[] = [
  { title: "payload", expr: { type: "payload", base: 1, offset: 12, len: 4, dreg: 1 } },
  {
    title: "payload set",
    before: [port],
    expr: { type: "payload", base: 1, offset: 4, len: 2, sreg: 2, csumType: 1, csumOffset: 10, csumFlags: 0 },
  },
  {
    title: "payload without a checksum",
    before: [port],
    expr: { type: "payload", base: 1, offset: 4, len: 2, sreg: 2 },
    adds: { csumType: 0, csumOffset: 0, csumFlags: 0 },
  },
  { title: "meta", expr: { type: "meta", key: 16, dreg: 1 } },
  { title: "meta on a 32-bit register", expr: { type: "meta", key: 16, dreg: 9 } },
  { title: "meta set", before: [address], expr: { type: "meta", key: 3, sreg: 1 } },
  { title: "ct", expr: { type: "ct", key: 0, dreg: 1 } },
  { title: "ct of a direction", expr: { type: "ct", key: 19, dreg: 1, direction: 0 } },
  { title: "cmp", before: tcp.slice(0, 1), expr: { type: "cmp", sreg: 1, op: 1, data: bytes(17) } },
  {
    title: "range",
    before: [address],
    expr: { type: "range", sreg: 1, op: 0, from: bytes(10, 0, 0, 0), to: bytes(10, 255, 255, 255) },
  },
  {
    title: "bitwise",
    before: [address],
    expr: { type: "bitwise", sreg: 1, dreg: 1, len: 4, mask: word(0xff), xor: word(0) },
    adds: { op: 0 },
  },
  {
    title: "bitwise shift",
    before: [address],
    expr: { type: "bitwise", sreg: 1, dreg: 1, len: 4, op: 1, data: word(3) },
  },
  { title: "byteorder", before: [address], expr: { type: "byteorder", sreg: 1, dreg: 1, op: 0, len: 4, size: 4 } },
  { title: "lookup", before: [address], expr: { type: "lookup", set: "s", sreg: 1 }, adds: { flags: 0 } },
  { title: "lookup inverted", before: [address], expr: { type: "lookup", set: "s", sreg: 1, flags: 1 } },
  {
    title: "lookup of a verdict",
    before: [address],
    expr: { type: "lookup", set: "m", sreg: 1, dreg: 0 },
    adds: { flags: 0 },
  },
  {
    title: "immediate value",
    expr: { type: "immediate", dreg: 1, data: bytes(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16) },
  },
  { title: "immediate accept", expr: { type: "immediate", dreg: 0, data: { verdict: "accept" } } },
  { title: "immediate drop", expr: { type: "immediate", dreg: 0, data: { verdict: "drop" } } },
  { title: "immediate return", expr: { type: "immediate", dreg: 0, data: { verdict: "return" } } },
  { title: "immediate continue", expr: { type: "immediate", dreg: 0, data: { verdict: "continue" } } },
  { title: "immediate jump", expr: { type: "immediate", dreg: 0, data: { verdict: "jump", chain: "leaf" } } },
  { title: "immediate goto", expr: { type: "immediate", dreg: 0, data: { verdict: "goto", chain: "leaf" } } },
  { title: "counter", expr: { type: "counter" }, adds: { packets: 0n, bytes: 0n } },
  { title: "counter with a start value", expr: { type: "counter", packets: 7n, bytes: 700n } },
  { title: "limit", expr: { type: "limit", rate: 10n, unit: 60n, burst: 5 }, adds: { limitType: 0, flags: 0 } },
  { title: "limit of bytes", expr: { type: "limit", rate: 1000n, unit: 1n, burst: 100, limitType: 1, flags: 1 } },
  { title: "log", expr: { type: "log", prefix: "dropped: ", level: 4, flags: 0 }, drops: ["flags"] },
  { title: "log to a group", expr: { type: "log", group: 5, prefix: "seen ", snaplen: 64, qthreshold: 2 } },
  {
    title: "nat",
    before: [...tcp, address, port],
    expr: { type: "nat", natType: 1, family: 2, regAddrMin: 1, regProtoMin: 2 },
    adds: { regAddrMax: 1, regProtoMax: 2, flags: 3 },
  },
  {
    title: "redir",
    before: [...tcp, port],
    expr: { type: "redir", regProtoMin: 2 },
    adds: { regProtoMax: 2, flags: 2 },
  },
  { title: "fib", expr: { type: "fib", dreg: 1, result: 3, flags: 2 } },
  { title: "numgen random", expr: { type: "numgen", dreg: 1, modulus: 3, ngType: 1 }, adds: { offset: 0 } },
  { title: "numgen inc", expr: { type: "numgen", dreg: 1, modulus: 3, ngType: 0, offset: 10 } },
  {
    title: "hash",
    before: [address],
    expr: { type: "hash", sreg: 1, dreg: 2, len: 4, modulus: 10, seed: 5, offset: 1, hashType: 0 },
  },
  { title: "symhash", expr: { type: "hash", dreg: 2, modulus: 10, offset: 1, hashType: 1 } },
  {
    title: "dynset",
    before: [address],
    expr: { type: "dynset", set: "s", op: 1, sregKey: 1, timeout: 5000n },
    adds: { flags: 0 },
  },
  {
    title: "dynset with an expression",
    before: [address],
    expr: {
      type: "dynset",
      set: "s",
      op: 0,
      sregKey: 1,
      timeout: 5000n,
      exprs: [{ type: "counter", packets: 0n, bytes: 0n }],
    },
    adds: { flags: 0 },
  },
  {
    title: "dynset with expressions",
    before: [address],
    expr: {
      type: "dynset",
      set: "s",
      op: 0,
      sregKey: 1,
      timeout: 5000n,
      flags: 2,
      exprs: [
        { type: "counter", packets: 0n, bytes: 0n },
        { type: "limit", rate: 10n, unit: 1n, burst: 5, limitType: 0, flags: 0 },
      ],
    },
    // The kernel does not dump NFT_DYNSET_F_EXPR, and rejects several expressions without it.
    adds: { flags: 0 },
    mend: { flags: 2 },
  },
  { title: "quota", expr: { type: "quota", bytes: 25000n }, adds: { flags: 0, consumed: 0n } },
  { title: "connlimit", expr: { type: "connlimit", count: 20, flags: 1 } },
  { title: "exthdr", expr: { type: "exthdr", dreg: 1, hdrType: 43, offset: 0, len: 1, flags: 1, op: 0 } },
  {
    title: "exthdr set",
    before: [port],
    expr: { type: "exthdr", sreg: 2, hdrType: 2, offset: 2, len: 2, op: 1 },
    adds: { flags: 0 },
    // The kernel rejects the flags of its own dump.
    mend: { flags: undefined },
  },
  {
    title: "exthdr removed",
    expr: { type: "exthdr", hdrType: 8, op: 1 },
    adds: { offset: 0, len: 0, flags: 0 },
    mend: { offset: undefined, len: undefined, flags: undefined },
  },
  { title: "rt", expr: { type: "rt", dreg: 1, key: 1 } },
  { title: "queue", expr: { type: "queue", num: 3, total: 1, flags: 1 } },
  { title: "queue by register", before: [port], expr: { type: "queue", sregQnum: 2 }, adds: { flags: 0 } },
  { title: "dup", before: [address], expr: { type: "dup", sregAddr: 1 } },
  {
    title: "bitwise of two registers",
    before: [address, { ...address, dreg: 3 }],
    expr: { type: "bitwise", sreg: 1, sreg2: 3, dreg: 1, len: 4, op: 4 },
  },
  { title: "tunnel", expr: { type: "tunnel", key: 1, dreg: 1 }, adds: { mode: 0 } },
  {
    title: "inner",
    before: [
      { type: "meta", key: 16, dreg: 1 },
      { type: "cmp", sreg: 1, op: 0, data: bytes(17) },
    ],
    expr: full.inner[0],
  },
  { title: "last", expr: { type: "last" }, adds: { set: 0, msecs: 0n } },
];
