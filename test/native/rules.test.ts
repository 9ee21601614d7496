import { beforeAll, describe, expect, test } from "vitest";
import { DATA_VERDICT, SetFlag } from "../../src/nft/kernel/constants.js";
import { KernelError } from "../../src/nft/kernel/errors.js";
import type { Expr, RuleInfo } from "../../src/nft/kernel/kernel.js";
import { addChain, addresses, addRule, addSet, addTable, ip, useLab } from "./lab.js";
import { kernelSamples } from "./samples.js";

const lab = useLab();
const ref = ip("rules");

beforeAll(async () => {
  await lab().kernel.commit([
    addTable(ref),
    { op: "add", kind: "chain", ...ref, chain: "base", base: { type: "nat", hook: 3, priority: -100 } },
    addChain(ref, "leaf"),
    addSet(ref, addresses("s", { flags: SetFlag.timeout | SetFlag.eval, size: 100 })),
    addSet(ref, addresses("m", { flags: SetFlag.map, dataType: DATA_VERDICT })),
  ]);
});

/** Sends a rule and reads it back. Returns undefined if this kernel lacks one of the expressions. */
async function sendAndRead(exprs: readonly Expr[]): Promise<RuleInfo | undefined> {
  const { kernel } = lab();
  await kernel.commit([{ op: "flush", kind: "rule", ...ref, chain: "base" }]);
  try {
    await kernel.commit([addRule(ref, "base", exprs)]);
  } catch (error) {
    if (!(error instanceof KernelError) || error.errno !== "ENOENT") throw error;
    // The message must tell a person which expression is missing.
    expect(error.message).toContain(`expression ${exprs.length - 1} (${exprs.at(-1)?.type})`);
    return undefined;
  }
  const [rule] = await kernel.rules(ref, "base");
  return rule;
}

describe("the kernel returns a rule as it was sent, except for the listed defaults", () => {
  test.each(kernelSamples)("$title", async ({ before = [], expr, adds = {}, drops = [], mend = {} }) => {
    const rule = await sendAndRead([...before, expr]);
    if (rule === undefined) return;
    const expected: Record<string, unknown> = { ...expr, ...adds };
    for (const field of drops) delete expected[field];
    expect(rule.exprs.at(-1)).toEqual(expected);
    expect(rule.exprs).toHaveLength(before.length + 1);
    // The dumped rule can be sent, and is dumped identically.
    const last = { ...expected, ...mend } as Expr;
    const again = await sendAndRead([...rule.exprs.slice(0, -1), last]);
    expect(again?.exprs).toEqual(rule.exprs);
  });
});

describe("in other chains", () => {
  const filter = async (type: "filter" | "nat", hook: number, exprs: readonly Expr[]): Promise<readonly Expr[]> => {
    const { kernel } = lab();
    const other = ip(`other-${type}-${hook}`);
    await kernel.commit([
      addTable(other),
      { op: "add", kind: "chain", ...other, chain: "c", base: { type, hook, priority: 0 } },
      addRule(other, "c", exprs),
    ]);
    const [rule] = await kernel.rules(other);
    await kernel.commit([{ op: "delete", kind: "table", ...other }]);
    return rule.exprs;
  };

  test("reject", async () => {
    expect(await filter("filter", 1, [{ type: "reject", rejectType: 0, code: 3 }])).toEqual([
      { type: "reject", rejectType: 0, code: 3 },
    ]);
  });

  test("masq", async () => {
    const port: Expr = { type: "immediate", dreg: 1, data: Uint8Array.of(4, 0) };
    const tcp: Expr[] = [
      { type: "meta", key: 16, dreg: 1 },
      { type: "cmp", sreg: 1, op: 0, data: Uint8Array.of(6) },
    ];
    expect(await filter("nat", 4, [{ type: "masq" }])).toEqual([{ type: "masq" }]);
    const exprs = await filter("nat", 4, [...tcp, port, { type: "masq", flags: 16, regProtoMin: 1 }]);
    expect(exprs.at(-1)).toEqual({ type: "masq", flags: 16, regProtoMin: 1, regProtoMax: 1 });
  });

  test("notrack", async () => {
    expect(await filter("filter", 0, [{ type: "notrack" }])).toEqual([{ type: "notrack" }]);
  });
});

test("an expression that the codec does not know is opaque, and can be sent back", async () => {
  const { kernel } = lab();
  // iptables' `mark`, revision 1, with struct xt_mark_mtinfo1: mark 1, mask 255.
  const data = Buffer.from(
    "\x09\0\x01\0mark\0\0\0\0\x08\0\x02\0\0\0\0\x01\x14\0\x03\0\x01\0\0\0\xff".padEnd(40, "\0"),
    "latin1",
  );
  const exprs: Expr[] = [
    { type: "counter", packets: 0n, bytes: 0n },
    { type: "opaque", name: "match", data: new Uint8Array(data) },
  ];
  await kernel.commit([{ op: "flush", kind: "rule", ...ref, chain: "leaf" }]);
  const outcome = await kernel.commit([addRule(ref, "leaf", exprs)]).then(
    () => "taken",
    (error: unknown) => error,
  );
  if (outcome === "taken") {
    expect((await kernel.rules(ref, "leaf"))[0].exprs).toEqual(exprs);
  } else {
    expect(outcome).toMatchObject({ code: "refused", errno: "ENOENT" });
    expect(String(outcome)).toContain("expression 1 (match)");
  }
});

test("rules of a chain, and of all chains of a table, are read in order and with their userdata", async () => {
  const { kernel } = lab();
  const t = ip("order");
  const userdata = Uint8Array.of(0, 2, 104, 0);
  const mark = (value: number): Expr[] => [{ type: "immediate", dreg: 1, data: Uint8Array.of(value, 0, 0, 0) }];
  await kernel.commit([
    addTable(t),
    addChain(t, "a"),
    addChain(t, "b"),
    { ...addRule(t, "a", mark(2)), userdata } as never,
    addRule(t, "a", mark(3)),
    { op: "insert", kind: "rule", ...t, chain: "a", exprs: mark(1) },
    addRule(t, "b", mark(9)),
  ]);
  const rules = await kernel.rules(t, "a");
  expect(rules.map(({ exprs }) => exprs)).toEqual([mark(1), mark(2), mark(3)]);
  expect(rules[1]).toMatchObject({ ...t, chain: "a", userdata });
  expect((await kernel.rules(t)).map(({ chain }) => chain)).toEqual(["a", "a", "a", "b"]);
  await kernel.commit([
    { op: "add", kind: "rule", ...t, chain: "a", exprs: mark(5), position: rules[1].handle },
    { op: "replace", kind: "rule", ...t, chain: "a", exprs: mark(6), handle: rules[0].handle },
    { op: "delete", kind: "rule", ...t, chain: "a", handle: rules[2].handle },
  ]);
  expect((await kernel.rules(t, "a")).map(({ exprs }) => exprs)).toEqual([mark(6), mark(2), mark(5)]);
  expect(await kernel.rules(t, "no such chain")).toEqual([]);
});
