import { expect } from "vitest";
import { CmpOp } from "../../../src/nft/kernel/constants.js";
import { sameExprs } from "../../../src/nft/kernel/normalize.js";
import type { Expr, Kernel, Op } from "../../../src/nft/kernel/kernel.js";
import {
  addressSet,
  daddr,
  goto,
  input,
  ip,
  jump,
  lookup,
  newChain,
  newElements,
  newRule,
  newSet,
  newTable,
  noChain,
  noRule,
  noSet,
  T,
  verdict,
  verdictMap,
} from "../../support/operations.ts";
import { runCases, type Case, type Current } from "../cases.js";

/** A rule with an address that no other has. */
const to = (last: number): Expr[] => [
  daddr,
  { type: "cmp", sreg: 1, op: CmpOp.eq, data: ip(`10.0.0.${last}`) },
  verdict("drop"),
];

/** The last bytes of the addresses in a chain's rules, in order. */
async function order(kernel: Kernel): Promise<number[]> {
  const rules = await kernel.rules(T, "c");
  return rules.map(({ exprs }) => {
    const cmp = exprs.find((expr) => expr.type === "cmp");
    return cmp?.type === "cmp" ? cmp.data[3] : -1;
  });
}

async function handleOf(kernel: Kernel, index: number): Promise<bigint> {
  return (await kernel.rules(T, "c"))[index].handle;
}

const room = [newTable(), newChain("c")];
const three = [...room, newRule("c", ...to(1)), newRule("c", ...to(2)), newRule("c", ...to(3))];
const rule = (op: "add" | "insert", last: number, position?: bigint): Op => ({
  op,
  kind: "rule",
  ...T,
  chain: "c",
  exprs: to(last),
  position,
});
const replace = (handle: bigint, exprs: Expr[]): Op => ({
  op: "replace",
  kind: "rule",
  ...T,
  chain: "c",
  exprs,
  handle,
});

export function rules(current: Current): void {
  runCases(current, [...placing, ...removing, ...references, ...loops]);
}

const placing: Case[] = [
  {
    title: "add appends, insert prepends",
    given: room,
    when: [rule("add", 1), rule("add", 2), rule("insert", 3)],
    then: async ({ kernel }) => expect(await order(kernel)).toEqual([3, 1, 2]),
  },
  {
    title: "add after and insert before a rule",
    given: three,
    when: async ({ kernel }) => {
      const middle = await handleOf(kernel, 1);
      return [rule("add", 7, middle), rule("insert", 8, middle)];
    },
    then: async ({ kernel }) => expect(await order(kernel)).toEqual([1, 8, 2, 7, 3]),
  },
  {
    title: "a rule is dumped as it was sent",
    given: room,
    when: [{ op: "add", kind: "rule", ...T, chain: "c", exprs: to(5), userdata: Uint8Array.of(0, 2, 120, 0) }],
    then: async ({ kernel }) => {
      const [found] = await kernel.rules(T);
      expect(found).toMatchObject({ ...T, chain: "c" });
      expect(sameExprs(found.exprs, to(5))).toBe(true);
      expect([...(found.userdata ?? [])]).toEqual([0, 2, 120, 0]);
    },
  },
  {
    title: "add next to a missing rule",
    given: three,
    when: [rule("add", 4, 999n)],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "replace keeps the place and the handle",
    given: three,
    when: async ({ kernel }) => [replace(await handleOf(kernel, 1), to(9))],
    then: async ({ kernel }) => expect(await order(kernel)).toEqual([1, 9, 3]),
  },
  {
    title: "replace of a missing rule",
    given: three,
    when: [replace(999n, to(9))],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "replace with a refused rule",
    given: three,
    when: async ({ kernel }) => [replace(await handleOf(kernel, 1), [jump("nowhere")])],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "an empty rule",
    given: room,
    when: [newRule("c")],
    then: async ({ kernel }) => expect(await kernel.rules(T)).toHaveLength(1),
  },
  { title: "in a missing table", when: [newRule("c", ...to(1))], faults: [{ op: 0, errno: "ENOENT" }] },
  {
    title: "in a missing chain",
    given: [newTable()],
    when: [newRule("c", ...to(1))],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
];

const removing: Case[] = [
  {
    title: "delete",
    given: three,
    when: async ({ kernel }) => [noRule("c", await handleOf(kernel, 1))],
    then: async ({ kernel }) => expect(await order(kernel)).toEqual([1, 3]),
  },
  { title: "delete of a missing rule", given: three, when: [noRule("c", 999n)], faults: [{ op: 0, errno: "ENOENT" }] },
  { title: "destroy of a missing rule", given: three, when: [noRule("c", 999n, "destroy")] },
  { title: "destroy in a missing chain", given: room, when: [noRule("x", 999n, "destroy")] },
  {
    title: "delete twice in one batch",
    given: three,
    when: async ({ kernel }) => {
      const handle = await handleOf(kernel, 1);
      return [noRule("c", handle), noRule("c", handle)];
    },
    faults: [{ op: 1, errno: "ENOENT" }],
  },
  {
    title: "flush of a chain",
    given: [...three, newChain("d"), newRule("d", ...to(4))],
    when: [{ op: "flush", kind: "rule", ...T, chain: "c" }],
    then: async ({ kernel }) => expect((await kernel.rules(T)).map(({ chain }) => chain)).toEqual(["d"]),
  },
  {
    title: "flush of a table",
    given: [...three, newChain("d"), newRule("d", ...to(4))],
    when: [{ op: "flush", kind: "rule", ...T }],
    then: async ({ kernel }) => expect(await kernel.rules(T)).toEqual([]),
  },
  {
    title: "flush of a missing chain",
    given: room,
    when: [{ op: "flush", kind: "rule", ...T, chain: "x" }],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "flush and add in one batch",
    given: three,
    when: [{ op: "flush", kind: "rule", ...T, chain: "c" }, rule("add", 6)],
    then: async ({ kernel }) => expect(await order(kernel)).toEqual([6]),
  },
];

const references: Case[] = [
  {
    title: "jump to a missing chain",
    given: room,
    when: [newRule("c", jump("x"))],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "goto to a missing chain",
    given: room,
    when: [newRule("c", { type: "immediate", dreg: 0, data: goto("x") })],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "jump to a base chain",
    given: [...room, newChain("in", input)],
    when: [newRule("c", jump("in"))],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
  },
  {
    title: "lookup in a missing set",
    given: room,
    when: [newRule("c", daddr, lookup("x"))],
    faults: [{ op: 0, errno: "ENOENT" }],
  },
  {
    title: "a set is busy while a rule uses it",
    given: [...room, newSet(addressSet("s")), newRule("c", daddr, lookup("s"))],
    when: [noSet("s")],
    faults: [{ op: 0, errno: "EBUSY" }],
  },
  {
    title: "a set is not busy after the deletion of its rule",
    given: [...room, newSet(addressSet("s")), newRule("c", daddr, lookup("s"))],
    when: [{ op: "flush", kind: "rule", ...T, chain: "c" }, noSet("s")],
    then: async ({ kernel }) => expect(await kernel.sets(T)).toEqual([]),
  },
  {
    title: "chain, set, element and rule in one batch",
    when: [
      newTable(),
      newChain("in", input),
      newChain("a"),
      newSet(verdictMap("m")),
      newElements("m", [{ key: "1.2.3.4", data: goto("a") }]),
      newRule("in", daddr, lookup("m", { dreg: 0 })),
    ],
    then: async ({ kernel }) => expect(await kernel.rules(T, "in")).toHaveLength(1),
  },
  {
    title: "deletion of everything in one batch, users first",
    given: [
      newTable(),
      newChain("in", input),
      newChain("a"),
      newSet(verdictMap("m")),
      newElements("m", [{ key: "1.2.3.4", data: goto("a") }]),
      newRule("in", daddr, lookup("m", { dreg: 0 })),
    ],
    when: [noChain("in"), noSet("m"), noChain("a")],
    then: async ({ kernel }) => expect((await kernel.tables())[0].use).toBe(0),
  },
];

const hooked = [newTable(), newChain("in", input), newChain("a"), newChain("b")];
const chainOf = (count: number): Op[] => [
  newTable(),
  ...Array.from({ length: count }, (_, i) => newChain(`c${i}`)),
  ...Array.from({ length: count - 1 }, (_, i) => newRule(`c${i}`, jump(`c${i + 1}`))),
];

const loops: Case[] = [
  {
    title: "a jump to itself",
    realOnly: true,
    given: [...hooked, newRule("in", jump("a"))],
    when: [newRule("a", jump("a"))],
    faults: [{ op: 0, errno: "EMLINK" }],
    before: { fact: "loopsFromHooks", faults: [{ op: 0, errno: "ELOOP" }] },
  },
  {
    title: "a loop of two chains, found when it closes",
    realOnly: true,
    given: [...hooked, newRule("in", jump("a"))],
    when: [newRule("a", jump("b")), newRule("b", jump("a"))],
    faults: [{ op: 1, errno: "EMLINK" }],
    before: { fact: "loopsFromHooks", faults: [{ op: 1, errno: "ELOOP" }] },
  },
  {
    title: "a loop through a verdict map",
    realOnly: true,
    given: [
      ...hooked,
      newSet(verdictMap("m")),
      newRule("in", daddr, lookup("m", { dreg: 0 })),
      newRule("a", daddr, lookup("m", { dreg: 0 })),
    ],
    when: [
      newElements("m", [{ key: "1.1.1.1", data: goto("b") }]),
      newElements("m", [{ key: "2.2.2.2", data: goto("a") }]),
    ],
    faults: [{ op: 1, errno: "EMLINK" }],
    before: { fact: "loopsFromHooks", faults: [{ op: 1, errno: "ELOOP" }] },
  },
  { title: "the maximum depth of jumps", given: chainOf(15), when: [newChain("in", input), newRule("in", jump("c0"))] },
  {
    title: "jumps that are too deep",
    realOnly: true,
    given: chainOf(16),
    when: [newChain("in", input), newRule("in", jump("c0"))],
    faults: [{ op: 1, errno: "EMLINK" }],
  },
];
