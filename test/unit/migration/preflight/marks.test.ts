/** Bits of the packet mark that a rule sets, clears and tests. Each rule is given as nft prints it. */
import { describe, expect, test } from "vitest";

import { type MarkUse, markUse } from "../../../../src/migration/preflight/marks.js";
import { CmpOp, MetaKey, RangeOp } from "../../../../src/netlink/constants.js";
import type { Expr } from "../../../../src/netlink/kernel.js";
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

const CASES: readonly (readonly [string, readonly Expr[], MarkUse | undefined])[] = [
  ["mark set 0x4000", [value(0x4000), store], { sets: 0x4000, clears: 0xffffbfff, tests: 0 }],
  ["mark set mark | 0x4000", [load, masked(0xffffbfff, 0x4000), store], { sets: 0x4000, clears: 0, tests: 0 }],
  ["mark set mark & 0xffffbfff", [load, masked(0xffffbfff, 0), store], { sets: 0, clears: 0x4000, tests: 0 }],
  ["mark set mark ^ 0x4000", [load, masked(0xffffffff, 0x4000), store], { sets: 0x4000, clears: 0, tests: 0 }],
  [
    "mark set (mark & 0xff | 0x4000) & 0x40ff",
    [load, masked(0xff, 0x4000), masked(0x40ff, 0), store],
    { sets: 0x4000, clears: 0xffffbf00, tests: 0 },
  ],
  ["mark & 0x4000 == 0x4000", [load, masked(0x4000, 0), equal(0x4000)], { sets: 0, clears: 0, tests: 0x4000 }],
  [
    "mark & 0x4000 in a range",
    [load, masked(0x4000, 0), { type: "range", sreg: REG, op: RangeOp.eq, from: word(1), to: word(0x4000) }],
    { sets: 0, clears: 0, tests: 0x4000 },
  ],
  [
    "mark & 0x4000 @set",
    [load, masked(0x4000, 0), { type: "lookup", sreg: REG, set: "s" }],
    { sets: 0, clears: 0, tests: 0x4000 },
  ],
  // A test of the whole mark is about its value.
  ["mark == 0x4000", [load, equal(0x4000)], undefined],
  // The kernel keeps connection marks; which bits are set there is unknown.
  ["mark set ct mark", [{ type: "ct", key: 3, dreg: REG }, store], { sets: 0, clears: 0xffffffff, tests: 0 }],
  [
    "another field in the register",
    [load, { type: "meta", key: MetaKey.iif, dreg: REG }, masked(0x4000, 0), equal(0)],
    undefined,
  ],
  [
    "another value in the register",
    [load, value(1), { type: "meta", key: MetaKey.iif, dreg: REG }, masked(0x4000, 0), equal(0)],
    undefined,
  ],
  ["a rule without marks", [{ type: "meta", key: MetaKey.iif, dreg: REG }, equal(0x4000)], undefined],
];

describe("markUse", () => {
  test.each(CASES)("%s", (_rule, exprs, use) => {
    expect(markUse(exprs)).toEqual(use);
  });
});
