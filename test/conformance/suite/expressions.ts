import { expect, test } from "vitest";
import {
  BitwiseOp,
  ExthdrOp,
  HashType,
  Hook,
  InnerFlag,
  InnerType,
  IpOption,
  Ipv6Header,
  LogLevel,
  NetdevHook,
  OsfFlag,
  OsfTtl,
  PayloadBase,
  PayloadCsumFlag,
  PayloadCsumType,
  QueueFlag,
  RtKey,
  SctpChunk,
  SocketKey,
  SynproxyFlag,
  TcpOption,
  TunnelKey,
  TunnelMode,
  XfrmDirection,
  XfrmKey,
  CmpOp,
  CtKey,
  CtState,
  DataTypeId,
  DynsetOp,
  FibFlag,
  FibResult,
  MetaKey,
  NatFlag,
  NatType,
  NfProto,
  RangeOp,
  register,
  RejectType,
  SetFlag,
} from "../../../src/nft/kernel/constants.js";
import { KernelError } from "../../../src/nft/kernel/errors.js";
import { FakeKernel } from "../../../src/nft/testing/fake-kernel.js";
import { normalizeExpr, sameExprs } from "../../../src/nft/kernel/normalize.js";
import type { BaseChain, Expr, Family, Op, TableRef } from "../../../src/nft/kernel/kernel.js";
import {
  addressMap,
  addressSet,
  daddr,
  input,
  ip,
  jump,
  lookup,
  newChain,
  newRule,
  newSet,
  newTable,
  T,
  verdict,
  verdictMap,
} from "../../support/operations.ts";
import { faultsOf, runCases, type Case, type Current } from "../cases.js";

const host = (value: number): Uint8Array => new Uint8Array(Uint32Array.of(value).buffer);
const mark: Expr = { type: "meta", key: MetaKey.mark, dreg: 1 };
const address = (data: string, dreg = 1): Expr => ({ type: "immediate", dreg, data: ip(data) });
const port = (value: number, dreg: number): Expr => ({
  type: "immediate",
  dreg,
  data: Uint8Array.of(value >> 8, value & 255),
});

const prerouting: BaseChain = { type: "nat", hook: 0, priority: -100 };
/** At this hook and priority, older kernels can also tell an interface from a route. */
const early: BaseChain = { type: "filter", hook: 0, priority: 0 };
const postrouting: BaseChain = { type: "nat", hook: 4, priority: 100 };

const forward: BaseChain = { type: "filter", hook: Hook.forward, priority: 0 };
const ingress: BaseChain = { type: "filter", hook: NetdevHook.ingress, priority: 0, devices: ["lo"] };

/** Rules as sent, with their chains, and the name of what kernels may be built without. */
type RoundTrip = [title: string, exprs: Expr[], base?: BaseChain, family?: Family, optional?: string];
const ROUND_TRIPS: RoundTrip[] = [
  ["payload", [daddr, { type: "cmp", sreg: 1, op: CmpOp.eq, data: ip("10.0.0.1") }]],
  [
    "payload, written",
    [
      { type: "immediate", dreg: 1, data: Uint8Array.of(0, 80) },
      { type: "payload", base: 2, offset: 2, len: 2, sreg: 1, csumType: 1, csumOffset: 16 },
    ],
  ],
  [
    "payload, written without a checksum",
    [
      { type: "immediate", dreg: 1, data: Uint8Array.of(1) },
      { type: "payload", base: 1, offset: 8, len: 1, sreg: 1 },
    ],
  ],
  [
    "registers by their 32-bit names",
    [
      { type: "payload", base: 1, offset: 16, len: 4, dreg: 8 },
      { type: "cmp", sreg: 8, op: CmpOp.neq, data: ip("10.0.0.1") },
    ],
  ],
  [
    "meta, each size",
    [mark, { type: "meta", key: MetaKey.l4proto, dreg: 1 }, { type: "meta", key: MetaKey.iifname, dreg: 2 }],
  ],
  ["meta, written", [address("0.0.0.1"), { type: "meta", key: MetaKey.mark, sreg: 1 }]],
  [
    "ct state",
    [
      { type: "ct", key: CtKey.state, dreg: 1 },
      { type: "bitwise", sreg: 1, dreg: 1, len: 4, mask: host(CtState.new), xor: host(0) },
      { type: "cmp", sreg: 1, op: CmpOp.neq, data: host(0) },
    ],
  ],
  [
    "ct of one direction",
    [
      { type: "ct", key: CtKey.srcIp, direction: 0, dreg: 1 },
      { type: "ct", key: CtKey.protoDst, direction: 1, dreg: 2 },
    ],
  ],
  ["ct mark, written", [address("0.0.0.1"), { type: "ct", key: CtKey.mark, sreg: 1 }]],
  [
    "cmp of the start of a name",
    [
      { type: "meta", key: MetaKey.iifname, dreg: 1 },
      { type: "cmp", sreg: 1, op: CmpOp.eq, data: Uint8Array.from(Buffer.from("eth")) },
    ],
  ],
  ["cmp, ordered", [mark, { type: "cmp", sreg: 1, op: CmpOp.lte, data: host(7) }]],
  ["range", [daddr, { type: "range", sreg: 1, op: RangeOp.neq, from: ip("10.0.0.1"), to: ip("10.0.0.9") }]],
  [
    "bitwise, mask and xor",
    [mark, { type: "bitwise", sreg: 1, dreg: 2, len: 4, mask: host(0xffffbfff), xor: host(0x4000) }],
  ],
  ["bitwise, shift", [mark, { type: "bitwise", sreg: 1, dreg: 1, len: 4, op: BitwiseOp.lshift, data: host(3) }]],
  [
    "bitwise, shift to the right",
    [mark, { type: "bitwise", sreg: 1, dreg: 1, len: 4, op: BitwiseOp.rshift, data: host(31) }],
  ],
  ...(["and", "or", "xor"] as const).flatMap((op): RoundTrip[] => [
    [
      `bitwise, ${op} of two registers`,
      [
        mark,
        { type: "ct", key: CtKey.mark, dreg: 2 },
        { type: "bitwise", sreg: 1, sreg2: 2, dreg: 1, len: 4, op: BitwiseOp[op] },
      ],
      input,
      "ip",
      "bitwise operations on two registers",
    ],
    [
      `bitwise, ${op} with a value`,
      [mark, { type: "bitwise", sreg: 1, dreg: 1, len: 4, op: BitwiseOp[op], data: host(7) }],
      input,
      "ip",
      "bitwise operations on two registers",
    ],
  ]),
  ["byteorder", [mark, { type: "byteorder", sreg: 1, dreg: 1, op: 1, len: 4, size: 4 }]],
  ["lookup", [daddr, lookup("s")]],
  ["lookup, inverted", [daddr, { type: "lookup", set: "s", sreg: 1, flags: 1 }]],
  ["lookup in a map", [daddr, lookup("m", { dreg: 1 })]],
  ["lookup in a verdict map", [daddr, lookup("v", { dreg: 0 })]],
  ["verdicts", [jump("a")]],
  ["drop", [verdict("drop")]],
  ["return", [{ type: "immediate", dreg: 0, data: { verdict: "return" } }]],
  ["a counter", [{ type: "counter" }]],
  ["a counter that has counted", [{ type: "counter", packets: 3n, bytes: 180n }]],
  ["limit", [{ type: "limit", rate: 5n, unit: 60n }]],
  ["limit with a burst, inverted", [{ type: "limit", rate: 10n, unit: 1n, burst: 20, flags: 1 }]],
  ["limit of bytes", [{ type: "limit", rate: 1000n, unit: 1n, limitType: 1 }]],
  ["log", [{ type: "log", prefix: "seen: " }]],
  ["log with a level and flags", [{ type: "log", level: 6, flags: 2 }]],
  ["log with all flags", [{ type: "log", prefix: "x".repeat(127), flags: 47 }]],
  ["log for the audit", [{ type: "log", level: LogLevel.audit }]],
  ["log to group 0", [{ type: "log", group: 0, snaplen: 0, qthreshold: 0 }]],
  ["log to a group", [{ type: "log", group: 7, snaplen: 64, qthreshold: 2, prefix: "x" }]],
  [
    "dnat to an address",
    [address("10.0.0.1"), { type: "nat", natType: NatType.dnat, family: NfProto.ip, regAddrMin: 1 }],
    prerouting,
  ],
  [
    "dnat to an address and a port",
    [
      address("10.0.0.1"),
      port(80, 2),
      { type: "nat", natType: NatType.dnat, family: NfProto.ip, regAddrMin: 1, regProtoMin: 2 },
    ],
    prerouting,
  ],
  [
    "dnat to a port",
    [port(80, 1), { type: "nat", natType: NatType.dnat, family: NfProto.ip, regProtoMin: 1 }],
    prerouting,
  ],
  [
    "dnat to a range",
    [
      address("10.0.0.1"),
      address("10.0.0.9", 2),
      {
        type: "nat",
        natType: NatType.dnat,
        family: NfProto.ip,
        regAddrMin: 1,
        regAddrMax: 2,
        flags: NatFlag.persistent,
      },
    ],
    prerouting,
  ],
  [
    "snat, fully random",
    [
      address("10.0.0.1"),
      { type: "nat", natType: NatType.snat, family: NfProto.ip, regAddrMin: 1, flags: NatFlag.protoRandomFully },
    ],
    postrouting,
  ],
  [
    "snat in inet",
    [address("10.0.0.1"), { type: "nat", natType: NatType.snat, family: NfProto.ip, regAddrMin: 1 }],
    postrouting,
    "inet",
  ],
  ["masquerade", [{ type: "masq" }], postrouting],
  ["masquerade, fully random", [{ type: "masq", flags: NatFlag.protoRandomFully }], postrouting],
  [
    "masquerade to ports",
    [port(1024, 1), port(2048, 2), { type: "masq", regProtoMin: 1, regProtoMax: 2 }],
    postrouting,
  ],
  ["redirect", [{ type: "redir" }], prerouting],
  ["redirect to a port", [port(8080, 1), { type: "redir", regProtoMin: 1 }], prerouting],
  ["reject", [{ type: "reject", rejectType: RejectType.icmpUnreachable, code: 3 }]],
  ["reject by reset", [{ type: "reject", rejectType: RejectType.tcpReset }]],
  ["reject by reset, with a code", [{ type: "reject", rejectType: RejectType.tcpReset, code: 0 }]],
  ["reject in inet", [{ type: "reject", rejectType: RejectType.icmpxUnreachable, code: 1 }], input, "inet"],
  ["notrack", [{ type: "notrack" }], { type: "filter", hook: 0, priority: -300 }],
  ["fib type", [{ type: "fib", dreg: 1, result: FibResult.addrtype, flags: FibFlag.daddr }]],
  ["fib interface", [{ type: "fib", dreg: 1, result: FibResult.oif, flags: FibFlag.saddr | FibFlag.iif }], early],
  [
    "fib interface name",
    [{ type: "fib", dreg: 1, result: FibResult.oifname, flags: FibFlag.saddr | FibFlag.mark }],
    early,
  ],
  ["numgen", [{ type: "numgen", dreg: 1, modulus: 3, ngType: 1 }]],
  [
    "numgen with an offset, into the last word of a concatenation",
    [{ type: "numgen", dreg: register(3), modulus: 3, ngType: 0, offset: 65536 }],
  ],
  ["hash", [daddr, { type: "hash", sreg: 1, dreg: 2, len: 4, modulus: 7, seed: 5 }]],
  ["hash with an offset, symmetric", [{ type: "hash", dreg: 1, modulus: 7, offset: 9, hashType: 1 }]],
  [
    "hash, symmetric, with attributes of the other hash",
    [daddr, { type: "hash", sreg: 1, dreg: 1, len: 4, modulus: 7, seed: 5, hashType: HashType.sym }],
  ],
  ["log with attributes of groups", [{ type: "log", snaplen: 64, qthreshold: 2 }]],
  ["ct protocol of a direction", [{ type: "ct", key: CtKey.protocol, dreg: 1, direction: 1 }]],
  [
    "nat with the end of a range alone",
    [
      address("10.0.0.1"),
      port(80, 2),
      { type: "nat", natType: NatType.dnat, family: NfProto.ip, regAddrMin: 1, regProtoMax: 2 },
    ],
    prerouting,
  ],
  ["redirect with the end of a range alone", [port(80, 1), { type: "redir", regProtoMax: 1 }], prerouting],
  ["update of a set", [daddr, { type: "dynset", set: "d", op: DynsetOp.update, sregKey: 1 }]],
  ["update with a timeout", [daddr, { type: "dynset", set: "d", op: DynsetOp.update, sregKey: 1, timeout: 30_000n }]],
  [
    "update of a map",
    [daddr, address("10.0.0.9", 2), { type: "dynset", set: "e", op: DynsetOp.add, sregKey: 1, sregData: 2 }],
  ],
  [
    "update with a limit",
    [
      daddr,
      { type: "dynset", set: "d", op: DynsetOp.update, sregKey: 1, exprs: [{ type: "limit", rate: 5n, unit: 1n }] },
    ],
  ],
  ["quota", [{ type: "quota", bytes: 1000n }]],
  ["quota, inverted", [{ type: "quota", bytes: 1000n, flags: 1 }]],
  ["connlimit", [{ type: "connlimit", count: 10 }]],
  ["connlimit, inverted", [{ type: "connlimit", count: 10, flags: 1 }]],
  ["exthdr, of TCP", [{ type: "exthdr", dreg: 1, hdrType: 2, offset: 2, len: 2, op: 1 }]],
  [
    "exthdr, written",
    [port(1400, 1), { type: "exthdr", sreg: 1, hdrType: TcpOption.mss, offset: 2, len: 2, op: ExthdrOp.tcpopt }],
  ],
  [
    "exthdr, removed",
    [{ type: "exthdr", hdrType: TcpOption.timestamp, op: ExthdrOp.tcpopt }],
    input,
    "ip",
    "removal of TCP options",
  ],
  ["exthdr, of IPv6", [{ type: "exthdr", dreg: 1, hdrType: Ipv6Header.fragment, offset: 2, len: 2 }], input, "ip6"],
  ...Object.entries(IpOption).map(([name, hdrType]): RoundTrip => [
    `exthdr, ${name} of IPv4`,
    [{ type: "exthdr", dreg: 1, hdrType, offset: 1, len: 1, op: ExthdrOp.ipv4 }],
  ]),
  [
    "exthdr, of SCTP",
    [{ type: "exthdr", dreg: 1, hdrType: SctpChunk.init, offset: 4, len: 4, op: ExthdrOp.sctp }],
    input,
    "inet",
    "SCTP chunks",
  ],
  [
    "exthdr, of DCCP",
    [{ type: "exthdr", dreg: 1, hdrType: 10, offset: 0, len: 1, flags: 1, op: ExthdrOp.dccp }],
    input,
    "ip",
    "DCCP options",
  ],
  ["exthdr, presence", [{ type: "exthdr", dreg: 1, hdrType: 2, offset: 0, len: 1, flags: 1, op: 1 }]],
  ...Object.entries(RtKey).map(([name, key]): RoundTrip => [`rt ${name}`, [{ type: "rt", dreg: 1, key }], forward]),
  ...Object.entries(SocketKey).map(([name, key]): RoundTrip => [
    `socket ${name}`,
    [{ type: "socket", key, dreg: 1, ...(name === "cgroupv2" && { level: 2 }) }],
    input,
    "ip",
    `socket ${name}`,
  ]),
  ...Object.entries(XfrmKey).map(([name, key]): RoundTrip => [
    `xfrm ${name}`,
    [{ type: "xfrm", dreg: 1, key, dir: XfrmDirection.in }],
    input,
    "ip",
    "xfrm",
  ]),
  [
    "xfrm of the second policy, sent",
    [{ type: "xfrm", dreg: 1, key: XfrmKey.spi, dir: XfrmDirection.out, spnum: 1 }],
    forward,
    "inet",
    "xfrm",
  ],
  ["osf", [{ type: "osf", dreg: 1 }], input, "ip", "osf"],
  ["osf, with version", [{ type: "osf", dreg: 1, ttl: OsfTtl.nocheck, flags: OsfFlag.version }], input, "inet", "osf"],
  [
    "synproxy",
    [
      {
        type: "synproxy",
        mss: 1460,
        wscale: 7,
        flags: SynproxyFlag.mss | SynproxyFlag.wscale | SynproxyFlag.timestamp,
      },
    ],
    input,
    "inet",
    "synproxy",
  ],
  ["synproxy without options", [{ type: "synproxy" }], forward, "ip", "synproxy"],
  ["dup", [address("10.0.0.1"), { type: "dup", sregAddr: 1 }], input, "ip", "dup"],
  [
    "dup to a device",
    [address("10.0.0.1"), { type: "immediate", dreg: 2, data: host(1) }, { type: "dup", sregAddr: 1, sregDev: 2 }],
    early,
    "ip",
    "dup",
  ],
  [
    "dup in netdev",
    [
      { type: "immediate", dreg: 1, data: host(1) },
      { type: "dup", sregDev: 1 },
    ],
    ingress,
    "netdev",
    "dup",
  ],
  [
    "fwd",
    [
      { type: "immediate", dreg: 1, data: host(1) },
      { type: "fwd", sregDev: 1 },
    ],
    ingress,
    "netdev",
    "fwd",
  ],
  [
    "fwd to a neighbour",
    [
      { type: "immediate", dreg: 1, data: host(1) },
      address("10.0.0.1", 2),
      { type: "fwd", sregDev: 1, sregAddr: 2, nfproto: NfProto.ip },
    ],
    ingress,
    "netdev",
    "fwd",
  ],
  [
    "tunnel",
    [
      { type: "tunnel", dreg: 1, key: TunnelKey.id },
      { type: "tunnel", dreg: 2, key: TunnelKey.path, mode: TunnelMode.rx },
    ],
    ingress,
    "netdev",
    "tunnel",
  ],
  [
    "inner",
    [
      {
        type: "inner",
        num: 0,
        innerType: InnerType.vxlan,
        flags: 15,
        hdrsize: 8,
        exprs: [{ type: "payload", base: PayloadBase.tunnel, offset: 4, len: 3, dreg: 1 }],
      },
    ],
    input,
    "ip",
    "inner",
  ],
  [
    "inner meta",
    [
      {
        type: "inner",
        num: 0,
        innerType: InnerType.geneve,
        flags: InnerFlag.ll | InnerFlag.nh,
        hdrsize: 0,
        exprs: [{ type: "meta", key: MetaKey.protocol, dreg: 9 }],
      },
    ],
    input,
    "inet",
    "inner",
  ],
  [
    "payload of the data",
    [{ type: "payload", base: PayloadBase.inner, offset: 0, len: 4, dreg: 1 }],
    input,
    "ip",
    "payload of the data",
  ],
  [
    "payload, written with the checksums of two layers",
    [
      port(80, 1),
      {
        type: "payload",
        base: 1,
        offset: 4,
        len: 2,
        sreg: 1,
        csumType: PayloadCsumType.inet,
        csumOffset: 10,
        csumFlags: PayloadCsumFlag.l4csumPseudohdr,
      },
    ],
  ],
  ["fib, presence", [{ type: "fib", dreg: 1, result: FibResult.oif, flags: FibFlag.daddr | FibFlag.present }], early],
  ["queue", [{ type: "queue", num: 3, total: 2, flags: QueueFlag.bypass | QueueFlag.cpuFanout }], input, "ip", "queue"],
  ["queue by register", [port(3, 1), { type: "queue", sregQnum: 1, flags: QueueFlag.bypass }], input, "ip", "queue"],
  ["tproxy to a port, in inet", [port(80, 1), { type: "tproxy", family: 0, regPort: 1 }], early, "inet", "tproxy"],
  [
    "tproxy",
    [address("127.0.0.1"), port(80, 2), { type: "tproxy", family: NfProto.ip, regAddr: 1, regPort: 2 }],
    { type: "filter", hook: 0, priority: -150 },
  ],
  ["last", [{ type: "last" }]],
];

const setsOf = (ref: TableRef): Op[] =>
  [
    newSet(addressSet("s")),
    newSet(addressMap("m")),
    newSet(verdictMap("v")),
    newSet(addressSet("d", { flags: SetFlag.timeout | SetFlag.eval, timeout: 60_000n })),
    newSet(addressMap("e", { flags: SetFlag.map | SetFlag.timeout | SetFlag.eval })),
  ].map((op) => ({ ...op, ...ref }));

/** Fields of a dump beyond a normal form: numbers that packets change. */
const VOLATILE = new Set(["packets", "bytes", "consumed", "msecs", "set"]);

function steady(expr: Expr): Expr {
  if (expr.type !== "counter" && expr.type !== "quota" && expr.type !== "last") return expr;
  return Object.fromEntries(
    Object.entries(expr).filter(([key]) => !VOLATILE.has(key) || (expr.type === "quota" && key === "bytes")),
  ) as Expr;
}

/** The kernel rejects its own dump of `osf`, and of a TCP option that is written or removed. */
function sendable(expr: Expr): Expr {
  const { flags: _flags, ...others } = { flags: undefined, ...expr };
  if (expr.type === "osf" && expr.flags === 0) return others as Expr;
  if (expr.type !== "exthdr" || expr.dreg !== undefined) return expr;
  const { type, hdrType, op } = expr;
  return expr.sreg === undefined ? { type, hdrType, op } : (others as Expr);
}

export function expressions(current: Current): void {
  test.for(ROUND_TRIPS)("dumped in its normal form: %s", async (row, { skip }) => {
    const [, exprs, base = input, family = "ip", optional] = row;
    const { kernel, facts } = current();
    const ref: TableRef = { family, table: T.table };
    const chain: Op = { op: "add", kind: "chain", ...ref, chain: "c", base };
    const other: Op = { op: "add", kind: "chain", ...ref, chain: "a" };
    await kernel.commit([{ op: "add", kind: "table", ...ref }, chain, other, ...setsOf(ref)]);
    const add: Op = { op: "add", kind: "rule", ...ref, chain: "c", exprs };
    if (!facts.last && exprs.some(({ type }) => type === "last")) {
      expect(await faultsOf(kernel, [add])).toMatchObject([{ op: 0, errno: "ENOENT" }]);
      return;
    }
    if (optional !== undefined) {
      const lacks = await kernel.commit([add], { dryRun: true }).then(
        () => false,
        (error: unknown) => error instanceof KernelError && /^(ENOENT|EOPNOTSUPP)$/.test(error.errno ?? ""),
      );
      skip(lacks && !(kernel instanceof FakeKernel), `this kernel has no ${optional}`);
    }
    await kernel.commit([add]);
    const [rule] = await kernel.rules(ref, "c");
    expect(rule.exprs.map(steady)).toEqual(exprs.map(normalizeExpr));
    expect(sameExprs(rule.exprs, exprs)).toBe(true);
    // A dumped rule can be sent, and is dumped identically.
    await kernel.commit([
      { op: "replace", kind: "rule", ...ref, chain: "c", exprs: rule.exprs.map(sendable), handle: rule.handle },
    ]);
    const [again] = await kernel.rules(ref, "c");
    expect(sameExprs(again.exprs, rule.exprs)).toBe(true);
  });

  runCases(
    current,
    REFUSED.map((each) => ({ ...each, realOnly: true })),
  );

  test("a set that packets fill is given a size", async () => {
    const { kernel } = current();
    await kernel.commit(given);
    await kernel.commit([newRule("c", daddr, { type: "dynset", set: "d", op: DynsetOp.update, sregKey: 1 })]);
    expect((await kernel.sets(T)).find(({ set }) => set === "d")?.size).toBe(65535);
  });
}

const given = [
  newTable(),
  newChain("c", input),
  newChain("pre", prerouting),
  newChain("post", postrouting),
  newChain("a"),
  ...setsOf(T),
];
const refused = (title: string, errno: string, chain: string, ...exprs: Expr[]): Case => ({
  title,
  given,
  when: [newRule(chain, ...exprs)],
  faults: [{ op: 0, errno }],
});
const dnat: Expr = { type: "nat", natType: NatType.dnat, family: NfProto.ip, regAddrMin: 1 };

/** Rejected only by kernels that track loaded registers. */
const unloaded = (title: string, ...exprs: Expr[]): Case => ({
  ...refused(title, "ENODATA", "c", ...exprs),
  before: { fact: "unloadedRegisters" },
});

const REFUSED: Case[] = [
  refused("an expression that does not exist", "ENOENT", "c", {
    type: "opaque",
    name: "nosuch",
    data: new Uint8Array(),
  }),
  unloaded("a register that nothing was loaded into", {
    type: "cmp",
    sreg: 1,
    op: CmpOp.eq,
    data: host(1),
  }),
  unloaded(
    "half of what is read was loaded",
    { type: "payload", base: 1, offset: 16, len: 4, dreg: 1 },
    { type: "cmp", sreg: 1, op: CmpOp.eq, data: new Uint8Array(8) },
  ),
  unloaded(
    "a set with a longer key than was loaded",
    { type: "payload", base: 2, offset: 2, len: 2, dreg: 2 },
    lookup("s"),
  ),
  refused("beyond the last register", "ERANGE", "c", { type: "payload", base: 1, offset: 0, len: 32, dreg: 4 }),
  refused("no such register", "ERANGE", "c", { type: "payload", base: 1, offset: 0, len: 4, dreg: 40 }),
  refused("a value into the verdict register", "EINVAL", "c", { type: "payload", base: 1, offset: 0, len: 4, dreg: 0 }),
  refused("a verdict into a value register", "EINVAL", "c", { type: "immediate", dreg: 1, data: { verdict: "drop" } }),
  refused("a verdict map into a value register", "EINVAL", "c", daddr, lookup("v", { dreg: 1 })),
  refused("a data map into the verdict register", "EINVAL", "c", daddr, lookup("m", { dreg: 0 })),
  refused("data from a set", "EINVAL", "c", daddr, lookup("s", { dreg: 1 })),
  refused("an inverted look-up of data", "EINVAL", "c", daddr, {
    type: "lookup",
    set: "m",
    sreg: 1,
    dreg: 1,
    flags: 1,
  }),
  refused("dnat in a filter chain", "EOPNOTSUPP", "c", address("1.1.1.1"), dnat),
  refused("dnat in postrouting", "EOPNOTSUPP", "post", address("1.1.1.1"), dnat),
  refused("dnat of the other family", "EOPNOTSUPP", "pre", address("1.1.1.1"), {
    ...dnat,
    family: NfProto.ip6,
  }),
  refused("nat without a target", "EINVAL", "pre", { type: "nat", natType: NatType.dnat, family: NfProto.ip }),
  refused("masquerade in prerouting", "EOPNOTSUPP", "pre", { type: "masq" }),
  refused("redirect in postrouting", "EOPNOTSUPP", "post", { type: "redir" }),
  refused("reject in postrouting", "EOPNOTSUPP", "post", {
    type: "reject",
    rejectType: RejectType.icmpUnreachable,
    code: 3,
  }),
  refused("numgen with modulus 0", "ERANGE", "c", { type: "numgen", dreg: 1, modulus: 0, ngType: 1 }),
  refused("numgen beyond 32 bits", "EOVERFLOW", "c", {
    type: "numgen",
    dreg: 1,
    modulus: 2,
    ngType: 1,
    offset: 0xffffffff,
  }),
  refused("fib with both addresses", "EINVAL", "c", {
    type: "fib",
    dreg: 1,
    result: FibResult.addrtype,
    flags: FibFlag.saddr | FibFlag.daddr,
  }),
  refused("a key of meta that is read only", "EOPNOTSUPP", "c", address("1.1.1.1"), {
    type: "meta",
    key: MetaKey.iif,
    sreg: 1,
  }),
  refused("a key of meta that is write only", "EOPNOTSUPP", "c", { type: "meta", key: MetaKey.nftrace, dreg: 1 }),
  refused("packet type, set at input", "EOPNOTSUPP", "c", address("1.1.1.1"), {
    type: "meta",
    key: MetaKey.pkttype,
    sreg: 1,
  }),
  refused("a key of ct that is read only", "EOPNOTSUPP", "c", address("1.1.1.1"), {
    type: "ct",
    key: CtKey.state,
    sreg: 1,
  }),
  refused("ct address without a direction", "EINVAL", "c", { type: "ct", key: CtKey.srcIp, dreg: 1 }),
  refused("ct state of a direction", "EINVAL", "c", { type: "ct", key: CtKey.state, direction: 0, dreg: 1 }),
  refused("an option of IPv4 that the kernel does not find", "EOPNOTSUPP", "c", {
    type: "exthdr",
    dreg: 1,
    hdrType: 1,
    offset: 0,
    len: 1,
    op: ExthdrOp.ipv4,
  }),
  refused("a shift by 32", "EINVAL", "c", mark, {
    type: "bitwise",
    sreg: 1,
    dreg: 1,
    len: 4,
    op: BitwiseOp.lshift,
    data: host(32),
  }),
  refused("tcpmss of a route at input", "EOPNOTSUPP", "c", { type: "rt", dreg: 1, key: RtKey.tcpmss }),
  refused("fwd outside netdev", "ENOENT", "c", address("1.1.1.1"), { type: "fwd", sregDev: 1 }),
  refused("update of a set of intervals or fixed size", "EOPNOTSUPP", "c", daddr, {
    type: "dynset",
    set: "fixed",
    op: DynsetOp.add,
    sregKey: 1,
  }),
  refused("a timeout for a set without timeouts", "EOPNOTSUPP", "c", daddr, {
    type: "dynset",
    set: "s",
    op: DynsetOp.update,
    sregKey: 1,
    timeout: 1000n,
  }),
  refused("update of a map without data", "EINVAL", "c", daddr, {
    type: "dynset",
    set: "e",
    op: DynsetOp.add,
    sregKey: 1,
  }),
  {
    title: "masquerade after a jump from the wrong hook",
    given: [...given, newRule("a", { type: "masq" }), newRule("post", jump("a"))],
    when: [newRule("pre", jump("a"))],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
  },
  {
    title: "masquerade in a chain that a wrong hook already jumps to",
    given: [...given, newRule("pre", jump("a"))],
    when: [newRule("post", { type: "masq" }), newRule("a", { type: "masq" })],
    faults: [{ op: 1, errno: "EOPNOTSUPP" }],
  },
].map((entry) =>
  entry.title.includes("fixed size")
    ? { ...entry, given: [...given, newSet(addressSet("fixed", { size: 8, keyType: DataTypeId.ipv4_addr }))] }
    : entry,
);
