/** Bits of the packet mark that a rule sets. Each rule is given as nft prints it. */
import { describe, expect, test } from "vitest";

import { markBitsSet } from "../../../../src/tools/explain/firewall/foreign-chains.js";
import { settingProblems } from "../../../../src/tools/explain/firewall/masquerade-bit.js";
import { worldOf } from "../../../../src/tools/explain/world/node-world.js";
import { Routing } from "../../../../src/tools/explain/world/routing.js";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import { CmpOp, Hook, MetaKey } from "../../../../src/nft/kernel/constants.js";
import type { Expr } from "../../../../src/nft/kernel/kernel.js";
import { packNumber } from "../../../../src/ruleset/key-packer.js";

const REG = 8;
const word = (bits: number): Uint8Array => packNumber(bits).slice();
const load: Expr = { type: "meta", key: MetaKey.mark, dreg: REG };
const store: Expr = { type: "meta", key: MetaKey.mark, sreg: REG };
const value = (bits: number): Expr => ({ type: "immediate", dreg: REG, data: word(bits) });
const masked = (mask: number, xor: number): Expr => ({
  type: "bitwise",
  sreg: REG,
  dreg: REG,
  len: 4,
  mask: word(mask),
  xor: word(xor),
});
const equal = (bits: number): Expr => ({ type: "cmp", sreg: REG, op: CmpOp.eq, data: word(bits) });

const CONNTRACK_MARK: Expr = { type: "ct", key: 3, dreg: REG };
/** nft_compat's attributes: NAME, REV and INFO. */
function target(name: string, revision: number, ...words: number[]): Expr {
  const data = Buffer.alloc(36 + 8 + 4 + words.length * 4);
  const header = (at: number, length: number, type: number): void => {
    data.set(new Uint8Array(Uint16Array.of(length, type).buffer), at);
  };
  header(0, 36, 1);
  data.write(name, 4);
  header(36, 8, 2);
  data.writeUInt32BE(revision, 40);
  header(44, 4 + words.length * 4, 3);
  for (const [i, one] of words.entries()) data.set(word(one), 48 + i * 4);
  return { type: "opaque", name: "target", data: new Uint8Array(data) };
}

test.each<readonly [string, readonly Expr[], number]>([
  ["mark set 0x4000", [value(0x4000), store], 0x4000],
  ["mark set mark | 0x4000", [load, masked(0xffffbfff, 0x4000), store], 0x4000],
  ["mark set mark & 0xffffbfff", [load, masked(0xffffbfff, 0), store], 0],
  ["mark set mark ^ 0x4000", [load, masked(0xffffffff, 0x4000), store], 0x4000],
  ["mark set (mark & 0xff | 0x4000) & 0x40ff", [load, masked(0xff, 0x4000), masked(0x40ff, 0), store], 0x4000],
  ["mark & 0x4000 == 0x4000", [load, masked(0x4000, 0), equal(0x4000)], 0],
  // Which bits the connection's mark has is unknown.
  ["mark set ct mark", [CONNTRACK_MARK, store], 0],
  ["ct mark set mark | 0x4000", [load, masked(0xffffbfff, 0x4000), { type: "ct", key: 3, sreg: REG }], 0],
  ["another field in the register", [load, value(0x4000), { type: "meta", key: MetaKey.iif, dreg: REG }, store], 0],
  [
    "mark set ip protocol map @marks",
    [value(0x4000), { type: "lookup", set: "marks", sreg: REG, dreg: REG }, store],
    0,
  ],
  [
    "mark set 0x4000 ip protocol vmap @verdicts",
    [value(0x4000), store, { type: "lookup", set: "verdicts", sreg: REG, dreg: 0 }],
    0x4000,
  ],
  ["iptables' MARK", [target("MARK", 2, 0x4000, 0x4000)], 0x4000],
  ["an older MARK, whose layout is unknown", [target("MARK", 1, 0x4000, 0x4000)], 0],
  ["iptables' CONNMARK", [target("CONNMARK", 1, 0x4000, 0x4000, 0x4000)], 0],
])("%s", async (_, exprs, bits) => {
  const kernel = new FakeKernel();
  const world = worldOf(kernel, "ip", new Routing(kernel), () => false);
  const rule = { family: "ip", table: "cni", chain: "c", handle: 1n, exprs } as const;
  expect(await markBitsSet(rule, world)).toBe(bits);
});

describe("rules that set the masquerade bit are a problem", () => {
  const ref = { family: "ip", table: "cni" } as const;
  const chain = {
    ref,
    chain: "base",
    markBits: new Map([["marks", 0x14000]]),
  };
  const what =
    "rules of table ip cni set bit 14 of the packet mark (0x4000) (chain marks, from base), so nft-proxier masquerades the service connections that they mark";
  test.each<readonly [string, hook: number, priority: number, bit: number, expected: readonly string[]]>([
    ["before masquerading", Hook.forward, 0, 14, [what]],
    ["but not at input, where nothing is masqueraded", Hook.input, 0, 14, []],
    ["but not after masquerading", Hook.postrouting, 200, 14, []],
    ["but not if it is another bit", Hook.forward, 0, 15, []],
  ])("%s", (_, hook, priority, bit, expected) => {
    const problems = settingProblems([{ ...chain, base: { type: "filter", hook, priority } }], bit);
    expect(problems.map((problem) => problem.what)).toEqual(expected);
  });
});
