/** The register machine of `explain`: each expression and its outcome, and the order of chains at a hook. */
import { describe, expect, test } from "vitest";
import {
  AddressType,
  CmpOp,
  CtKey,
  DynsetOp,
  Hook,
  LookupFlag,
  MetaKey,
  NatType,
  NfProto,
  PayloadBase,
  Priority,
  RangeOp,
  RejectType,
  SetFlag,
} from "../../../../src/nft/kernel/constants.js";
import type { BaseChain, ElementBatch, Expr, RuleInfo, SetInfo } from "../../../../src/nft/kernel/kernel.js";
import { hostNumber } from "../../../../src/tools/explain/machine/bits.js";
import { branchOf } from "../../../../src/tools/explain/machine/branch.js";
import { Elements } from "../../../../src/tools/explain/machine/elements.js";
import type { HookedChain } from "../../../../src/tools/explain/machine/hooks.js";
import type { World } from "../../../../src/tools/explain/machine/machine-world.js";
import { PacketState } from "../../../../src/tools/explain/machine/packet-state.js";
import { runHook } from "../../../../src/tools/explain/machine/run-hook.js";
import { type Final, runRule } from "../../../../src/tools/explain/machine/run-chain.js";
import { addressSet, addressMap, type Element, ip, pack, verdict, verdictMap } from "../../../support/operations.ts";

const THEIRS = { family: "ip", table: "theirs" } as const;
const OURS = { family: "ip", table: "ours" } as const;

/** Sets by name, with their elements. */
const SETS: Readonly<Record<string, readonly [SetInfo, readonly Element[]]>> = {
  addresses: [addressSet("addresses"), [{ key: "10.0.0.2" }, { key: "10.0.0.3" }]],
  ranges: [
    addressSet("ranges", { flags: SetFlag.interval }),
    [
      { key: "10.0.0.0", flags: 0 },
      { key: "10.0.1.0", flags: 1 },
    ],
  ],
  limited: [addressSet("limited", { exprs: [{ type: "limit", rate: 1n, unit: 1n }] }), [{ key: "10.0.0.2" }]],
  verdicts: [verdictMap("verdicts"), [{ key: "10.0.0.2", data: { verdict: "drop" } }]],
  values: [addressMap("values"), [{ key: "10.0.0.2", data: "0.0.0.7" }]],
};
const LINKS = [
  { index: 1, name: "lo", kind: "", group: 0 },
  { index: 7, name: "eth0", kind: "veth", group: 5 },
];

/** The kernel's answers are plain bytes. */
function batchOf(elements: readonly Element[]): ElementBatch {
  const batch = pack(elements);
  return { ...batch, bytes: new Uint8Array(batch.bytes) };
}

function worldWith(hooked: readonly HookedChain[] = [], rules: readonly RuleInfo[] = []): World {
  return {
    rules: {
      hooked: () => Promise.resolve(hooked),
      rules: ({ table }, chain) =>
        Promise.resolve(rules.filter((rule) => rule.table === table && rule.chain === chain)),
      set: (ref, name) => Promise.resolve(SETS[name] && { ...ref, ...SETS[name][0], handle: 1n }),
      elements: (_, set) => Promise.resolve(new Elements(set, batchOf(SETS[set.set]?.[1] ?? []))),
    },
    routes: {
      addressType: (address) => Promise.resolve(address === "10.0.0.1" ? AddressType.local : AddressType.unicast),
      policyRoute: () => Promise.resolve("unknown"),
      interfaceTo: () => Promise.resolve(undefined),
      linkNamed: (name) => Promise.resolve(LINKS.find((link) => link.name === name)),
      addressesOf: () => Promise.resolve([]),
      portsOf: () => Promise.resolve(undefined),
      isBridged: () => Promise.resolve(false),
    },
    isOurs: ({ table }) => table === OURS.table,
    isInIpSet: () => Promise.resolve(undefined),
    ruleText: ({ handle }) => `rule ${handle}`,
    elementText: ({ set }) => `found in ${set}`,
    ...{ draw: 1, onDraw: () => undefined },
  };
}

/** The first packet of a TCP connection from 10.0.0.1 to 10.0.0.2, port 80, at the forward hook. Its source port is unknown. */
function packet(): PacketState {
  const ends = { source: "10.0.0.1", destination: "10.0.0.2", destinationPort: 80 };
  const state = new PacketState({ family: "ip", protocol: "tcp", ...ends });
  state.track();
  state.inInterface = "eth0";
  return state;
}

/** The ends of a rule, in order: "next" if it matches to its end, "break" if it does not; both if that is unknown. */
async function endsOf(exprs: readonly Expr[], ref: typeof OURS | typeof THEIRS = THEIRS): Promise<string[]> {
  const rule: RuleInfo = { ...ref, chain: "c", handle: 1n, exprs };
  const ends = await runRule(worldWith(), { hook: "forward", ref, chain: "c", rule }, branchOf(packet()));
  return ends.map(({ effect }) => (typeof effect === "object" ? effect.verdict : effect));
}

const REG = 1;
const word = (value: number): Uint8Array => new Uint8Array(Uint32Array.of(value).buffer);
const meta = (key: number): Expr => ({ type: "meta", key, dreg: REG });
const ct = (key: number): Expr => ({ type: "ct", key, dreg: REG });
const payload = (base: number, offset: number, len: number): Expr => ({
  type: "payload",
  base,
  offset,
  len,
  dreg: REG,
});
const daddr = payload(PayloadBase.network, 16, 4);
const dport = payload(PayloadBase.transport, 2, 2);
const sport = payload(PayloadBase.transport, 0, 2);
const is = (data: Uint8Array, op: number = CmpOp.eq): Expr => ({ type: "cmp", sreg: REG, op, data });
const lookup = (set: string, more: object = {}): Expr => ({ type: "lookup", set, sreg: REG, ...more });
const not = { flags: LookupFlag.invert };
const port = (number: number): Uint8Array => Uint8Array.of(number >> 8, number & 255);

const MATCHES = ["next"];
const DIFFERS = ["break"];
const UNKNOWN = ["break", "next"];

test.each<readonly [string, readonly Expr[], readonly string[]]>([
  ["ip daddr 10.0.0.2", [daddr, is(ip("10.0.0.2"))], MATCHES],
  ["ip daddr 10.0.0.9", [daddr, is(ip("10.0.0.9"))], DIFFERS],
  ["ip daddr != 10.0.0.9", [daddr, is(ip("10.0.0.9"), CmpOp.neq)], MATCHES],
  ["tcp dport < 80", [dport, is(port(80), CmpOp.lt)], DIFFERS],
  ["tcp dport <= 80", [dport, is(port(80), CmpOp.lte)], MATCHES],
  ["tcp dport > 79", [dport, is(port(79), CmpOp.gt)], MATCHES],
  ["tcp dport >= 81", [dport, is(port(81), CmpOp.gte)], DIFFERS],
  ["tcp sport 80, which the client chooses", [sport, is(port(80))], UNKNOWN],
  ["tcp dport 80-90", [dport, { type: "range", sreg: REG, op: RangeOp.eq, from: port(80), to: port(90) }], MATCHES],
  ["tcp dport != 80-90", [dport, { type: "range", sreg: REG, op: RangeOp.neq, from: port(80), to: port(90) }], DIFFERS],
  ["ip daddr @addresses", [daddr, lookup("addresses")], MATCHES],
  ["ip daddr != @addresses", [daddr, lookup("addresses", not)], DIFFERS],
  ["ip saddr @addresses", [payload(PayloadBase.network, 12, 4), lookup("addresses")], DIFFERS],
  ["ip saddr != @addresses", [payload(PayloadBase.network, 12, 4), lookup("addresses", not)], MATCHES],
  ["ip daddr @ranges", [daddr, lookup("ranges")], MATCHES],
  ["ip daddr != @ranges", [daddr, lookup("ranges", not)], DIFFERS],
  ["an unknown value @addresses", [payload(PayloadBase.transport, 4, 4), lookup("addresses")], UNKNOWN],
  ["an unknown value != @addresses", [payload(PayloadBase.transport, 4, 4), lookup("addresses", not)], UNKNOWN],
  ["ip daddr @limited, whose element may count", [daddr, lookup("limited")], UNKNOWN],
  ["ip daddr @unread, a set that cannot be read", [daddr, lookup("unread")], UNKNOWN],
  ["ip daddr vmap @verdicts", [daddr, lookup("verdicts", { dreg: 0 })], ["drop"]],
  ["ip daddr map @values == 0.0.0.7", [daddr, lookup("values", { dreg: REG }), is(ip("0.0.0.7"))], MATCHES],
  ["ip daddr map @values == 0.0.0.8", [daddr, lookup("values", { dreg: REG }), is(ip("0.0.0.8"))], DIFFERS],
  ["iifname eth0", [meta(MetaKey.iifname), is(Buffer.from("eth0\0"))], MATCHES],
  ["iif eth0", [meta(MetaKey.iif), is(word(7))], MATCHES],
  ["iif lo", [meta(MetaKey.iif), is(word(1))], DIFFERS],
  ["iif != lo", [meta(MetaKey.iif), is(word(1), CmpOp.neq)], MATCHES],
  ["iifgroup 5", [meta(MetaKey.iifgroup), is(word(5))], MATCHES],
  ["iifgroup 0", [meta(MetaKey.iifgroup), is(word(0))], DIFFERS],
  ["oif eth0, which is not known", [meta(MetaKey.oif), is(word(7))], [...UNKNOWN.slice(0, 1), ...UNKNOWN]],
  ["mark 0", [meta(MetaKey.mark), is(word(0))], MATCHES],
  ["mark & 0x10 == 0x10", [meta(MetaKey.mark), mask(0x10), is(word(0x10))], DIFFERS],
  ["length > 100", [meta(MetaKey.len), is(word(100), CmpOp.gt)], ["break", ...UNKNOWN]],
  ["ct state new", [ct(CtKey.state), mask(8), is(word(0), CmpOp.neq)], MATCHES],
  ["ct state established", [ct(CtKey.state), mask(2), is(word(0), CmpOp.neq)], DIFFERS],
  ["ct zone 0", [ct(CtKey.zone), is(Uint8Array.of(0, 0))], MATCHES],
  ["ct zone 7", [ct(CtKey.zone), is(new Uint8Array(Uint16Array.of(7).buffer))], DIFFERS],
  ["limit rate 5/second", [{ type: "limit", rate: 5n, unit: 1n }], UNKNOWN],
  ["quota over 100 bytes, of which 200 are used", [quota(100n, 200n, 1)], MATCHES],
  ["quota 100 bytes, of which 200 are used", [quota(100n, 200n, 0)], DIFFERS],
  ["quota 100 bytes, of which 99 are used", [quota(100n, 99n, 0)], UNKNOWN],
  ["numgen random mod 2 == 2, which cannot be drawn", [numgen(2), is(word(2))], DIFFERS],
  ["numgen random mod 2 == 1", [numgen(2), is(word(1))], UNKNOWN],
  [
    "add @addresses { ip daddr }",
    [daddr, { type: "dynset", set: "addresses", sregKey: REG, op: DynsetOp.add }],
    MATCHES,
  ],
  ["counter log drop", [{ type: "counter" }, { type: "log" }, verdict("drop")], ["drop"]],
  ["reject", [{ type: "reject", rejectType: RejectType.icmpUnreachable, code: 3 }], ["reject"]],
  ["queue", [{ type: "queue", num: 0, total: 1, flags: 0 }], ["queue"]],
])("%s", async (_, exprs, ends) => {
  expect(await endsOf(exprs)).toEqual(ends);
});

function mask(bits: number): Expr {
  return { type: "bitwise", sreg: REG, dreg: REG, len: 4, mask: word(bits), xor: word(0) };
}
function quota(bytes: bigint, consumed: bigint, flags: number): Expr {
  return { type: "quota", bytes, consumed, flags };
}
function numgen(modulus: number): Expr {
  return { type: "numgen", dreg: REG, modulus, ngType: 1 };
}

test("our own rules draw the given number, and are assumed not to exceed a limit", async () => {
  expect(await endsOf([numgen(2), is(word(1))], OURS)).toEqual(MATCHES);
  expect(await endsOf([numgen(2), is(word(0))], OURS)).toEqual(DIFFERS);
  expect(await endsOf([{ type: "limit", rate: 5n, unit: 1n, flags: 1 }], OURS)).toEqual(DIFFERS);
});

describe("the packet mark", () => {
  const set = (value: number): Expr[] => [{ type: "immediate", dreg: REG, data: word(value) }, store];
  const store: Expr = { type: "meta", key: MetaKey.mark, sreg: REG };
  const after = async (
    ...rules: readonly (readonly [ref: typeof OURS | typeof THEIRS, exprs: readonly Expr[]])[]
  ): Promise<PacketState> => {
    let branch = branchOf(packet());
    for (const [i, [ref, exprs]] of rules.entries()) {
      const rule: RuleInfo = { ...ref, chain: "c", handle: BigInt(i), exprs };
      const [end] = await runRule(worldWith(), { hook: "forward", ref, chain: "c", rule }, branch);
      if (end !== undefined) branch = end.branch;
    }
    expect(branch.steps.map(({ table }) => table)).toEqual(branch.steps.map(() => "ip theirs"));
    return branch.state;
  };

  test("a rule of another program that clears our bit is remembered", async () => {
    const state = await after([OURS, set(0x4000)], [THEIRS, set(0x20)]);
    expect(state.mark).toEqual(hostNumber(0x20));
    expect(state.markClearedBy).toEqual({ hook: "forward", ref: THEIRS, chain: "c", rule: "rule 1" });
  });

  test("a rule that keeps our bit, clears another one, or ran before ours is not", async () => {
    expect((await after([OURS, set(0x4000)], [THEIRS, set(0x4020)])).markClearedBy).toBeUndefined();
    expect(
      (await after([THEIRS, set(0x20)], [OURS, set(0x4020)], [THEIRS, set(0x4000)])).markClearedBy,
    ).toBeUndefined();
    expect((await after([THEIRS, set(0x20)], [OURS, set(0x4000)])).markClearedBy).toBeUndefined();
    expect((await after([OURS, set(0x4000)], [OURS, set(0)])).markClearedBy).toBeUndefined();
  });
});

describe("chains at one hook", () => {
  const chain = (table: string, name: string, base: BaseChain): HookedChain => {
    return { ref: { family: "ip", table }, chain: name, base, point: base.hook };
  };
  const rule = (table: string, name: string, ...exprs: Expr[]): RuleInfo => {
    return { family: "ip", table, chain: name, handle: 1n, exprs };
  };
  const filter = (priority: number): BaseChain => ({ type: "filter", hook: Hook.forward, priority });
  const nat = (priority: number): BaseChain => ({ type: "nat", hook: Hook.prerouting, priority });
  const dnat = (to: string): Expr[] => [
    { type: "immediate", dreg: REG, data: ip(to) },
    { type: "nat", natType: NatType.dnat, family: NfProto.ip, regAddrMin: REG },
  ];
  const fate = async (
    begin: PacketState,
    chains: readonly HookedChain[],
    ...rules: readonly RuleInfo[]
  ): Promise<{
    readonly passed: readonly (string | undefined)[];
    readonly finals: readonly string[];
    readonly guesses: number;
  }> => {
    const finals: Final[] = [];
    const passed = await runHook(worldWith(chains, rules), chains, chains[0].point, [branchOf(begin)], finals);
    const all = [...passed, ...finals.map(({ branch }) => branch)];
    return {
      passed: passed.map(({ state }) => state.destination),
      finals: finals.map(({ verdict: end }) => end),
      guesses: new Set(all.flatMap(({ guesses }) => [...guesses.keys()])).size,
    };
  };

  test("the first NAT chain that rewrites decides", async () => {
    const chains = [chain("a", "first", nat(Priority.dstnat)), chain("b", "second", nat(Priority.dstnat + 1))];
    const rules = [rule("a", "first", ...dnat("10.0.0.3")), rule("b", "second", ...dnat("10.0.0.4"))];
    expect(await fate(packet(), chains, ...rules)).toMatchObject({ passed: ["10.0.0.3"], finals: [] });
  });

  test.each<readonly [string, (state: PacketState) => unknown]>([
    ["whose destination an earlier hook fixed", (state) => (state.destinationBound = true)],
    ["that is not tracked", (state) => (state.tracking = "untracked")],
  ])("no NAT chain rewrites a packet %s", async (_, change) => {
    const state = packet();
    change(state);
    const chains = [chain("a", "first", nat(Priority.dstnat))];
    const rewrite = rule("a", "first", ...dnat("10.0.0.3"));
    expect(await fate(state, chains, rewrite)).toMatchObject({ passed: ["10.0.0.2"] });
    expect(await fate(packet(), chains, rewrite)).toMatchObject({ passed: ["10.0.0.3"] });
  });

  test("a source that is fixed does not keep the destination from being rewritten", async () => {
    const state = packet();
    state.sourceBound = true;
    const chains = [chain("a", "first", nat(Priority.dstnat))];
    expect(await fate(state, chains, rule("a", "first", ...dnat("10.0.0.3")))).toMatchObject({ passed: ["10.0.0.3"] });
  });

  const [first, second] = [chain("a", "c", filter(0)), chain("b", "c", filter(0))];
  const drop = rule("a", "c", verdict("drop"));

  test("the order of chains of one priority does not matter if one drops and the other passes", async () => {
    expect(await fate(packet(), [first, second], drop)).toEqual({ passed: [], finals: ["drop"], guesses: 0 });
  });

  test("it matters if they end the packet in different ways", async () => {
    const reject = rule("b", "c", { type: "reject", rejectType: RejectType.icmpUnreachable, code: 3 });
    const { finals, guesses } = await fate(packet(), [first, second], drop, reject);
    expect([finals.toSorted(), guesses]).toEqual([["drop", "reject"], 1]);
  });

  test("it matters if one changes what the other compares", async () => {
    const mark = rule(
      "b",
      "c",
      { type: "immediate", dreg: REG, data: word(1) },
      { type: "meta", key: MetaKey.mark, sreg: REG },
    );
    const dropMarked = rule("a", "c", meta(MetaKey.mark), is(word(1)), verdict("drop"));
    const { passed, finals, guesses } = await fate(packet(), [first, second], dropMarked, mark);
    expect([passed, finals, guesses]).toEqual([["10.0.0.2"], ["drop"], 1]);
  });

  test("chains of other priorities run in their order", async () => {
    const early = chain("b", "c", filter(-1));
    const mark = rule(
      "b",
      "c",
      { type: "immediate", dreg: REG, data: word(1) },
      { type: "meta", key: MetaKey.mark, sreg: REG },
    );
    const dropMarked = rule("a", "c", meta(MetaKey.mark), is(word(1)), verdict("drop"));
    expect(await fate(packet(), [first, early], dropMarked, mark)).toEqual({
      passed: [],
      finals: ["drop"],
      guesses: 0,
    });
  });
});
