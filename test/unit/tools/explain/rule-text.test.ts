import { expect, test } from "vitest";
import { ruleText } from "../../../../src/tools/explain/text/rule-text.js";
import { CmpOp, FibFlag, FibResult } from "../../../../src/netlink/constants.js";
import type { Expr } from "../../../../src/netlink/kernel.js";

const drop: Expr = { type: "immediate", dreg: 0, data: { verdict: "drop" } };
const is = (...data: number[]): Expr => ({ type: "cmp", sreg: 1, op: CmpOp.eq, data: Uint8Array.from(data) });

test.each([
  [
    FibResult.oif,
    FibFlag.saddr | FibFlag.mark | FibFlag.iif | FibFlag.present,
    is(0),
    "fib saddr . mark . iif oif missing",
  ],
  [FibResult.oif, FibFlag.saddr | FibFlag.iif | FibFlag.present, is(1), "fib saddr . iif oif exists"],
  [FibResult.addrtype, FibFlag.daddr, is(2, 0, 0, 0), "fib daddr type 0x2"],
])("what firewalls ask about routes is printed in nft's notation: %d, %d", (result, flags, compare, text) => {
  const exprs: Expr[] = [{ type: "fib", dreg: 1, result, flags }, compare, drop];
  expect(ruleText({ exprs, handle: 7n })).toBe(`${text} drop (handle 7)`);
});
