import { expect, test } from "vitest";
import { CmpOp, FibFlag, FibResult, MetaKey, register } from "../../../src/nft/kernel/constants.js";
import type { Expr } from "../../../src/nft/kernel/kernel.js";
import { ruleText } from "../../../src/nft/printing/rule-text.js";

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
  [FibResult.addrtype, FibFlag.daddr, is(2, 0, 0, 0), "fib daddr type local"],
])("what firewalls ask about routes is printed in nft's notation: %d, %d", (result, flags, compare, text) => {
  const exprs: Expr[] = [{ type: "fib", dreg: 1, result, flags }, compare, drop];
  expect(ruleText(exprs, { family: "ip" })).toBe(`${text} drop`);
});

const unknown: Expr = { type: "meta", key: 99, dreg: 1 };
const saddr: Expr = { type: "payload", base: 1, offset: 12, len: 4, dreg: 1 };
const daddr: Expr = { type: "payload", base: 1, offset: 16, len: 4, dreg: register(1) };

test.each<[what: string, exprs: Expr[], text: string]>([
  ["a field that is not in the table", [unknown, is(1, 0, 0, 0), drop], "meta … … drop"],
  ["a register that nothing has loaded", [is(1), drop], "… … drop"],
  ["an unknown expression", [{ type: "opaque", name: "news", data: Uint8Array.of(1) }, drop], "news … drop"],
  [
    "an unknown set with a key of several fields",
    [saddr, daddr, { type: "lookup", set: "__set0", sreg: 1 }, drop],
    "ip saddr { … } drop",
  ],
  ["an unknown named set", [saddr, daddr, { type: "lookup", set: "denied", sreg: 1 }, drop], "ip saddr … @denied drop"],
])("%s is printed as …", (_, exprs, text) => {
  expect(ruleText(exprs, { family: "ip" })).toBe(text);
});

test("a key of several fields is printed whole if the set is known", () => {
  const info = { set: "denied", flags: 0, keyType: (7 << 6) | 7, keyLen: 8 };
  const exprs: Expr[] = [saddr, daddr, { type: "lookup", set: "denied", sreg: 1 }, drop];
  expect(ruleText(exprs, { family: "ip", set: () => ({ info }) })).toBe("ip saddr . ip daddr @denied drop");
});

test("a condition before a statement stays, because the statement only sees packets that match it", () => {
  const tcp: Expr[] = [{ type: "meta", key: MetaKey.l4proto, dreg: 1 }, is(6)];
  const port: Expr[] = [{ type: "payload", base: 2, offset: 2, len: 2, dreg: 1 }, is(0, 80)];
  expect(ruleText([...tcp, ...port], { family: "inet" })).toBe("tcp dport 80");
  expect(ruleText([...tcp, { type: "counter" }, ...port], { family: "inet" })).toBe(
    "meta l4proto tcp counter tcp dport 80",
  );
});
