import { expect } from "vitest";
import type { BaseChain, Op } from "../../../src/nft/kernel/kernel.js";
import {
  goto,
  input,
  jump,
  newChain,
  newElements,
  newRule,
  newSet,
  newTable,
  noChain,
  noElements,
  noSet,
  T,
  verdict,
  verdictMap,
} from "../../support/operations.ts";
import { runCases, type Case, type Current } from "../cases.js";

const table = newTable();
const nat: BaseChain = { type: "nat", hook: 0, priority: -100 };
const base = (chain: string, change: Partial<BaseChain>): Op => newChain(chain, { ...input, ...change });

export function chains(current: Current): void {
  runCases(current, [...making, ...changing, ...deleting]);
}

const making: Case[] = [
  {
    title: "a regular chain",
    given: [table],
    when: [newChain("a")],
    then: async ({ kernel }) => {
      const [chain] = await kernel.chains(T);
      expect(chain).toMatchObject({ ...T, chain: "a", flags: 0, use: 0 });
      expect(chain.base).toBeUndefined();
    },
  },
  {
    title: "some of the chains, by name; missing ones are not in the answer",
    given: [table, newChain("a"), newChain("in", input), newChain("b")],
    when: [newChain("c")],
    then: async ({ kernel }) => {
      const names = async (asked: string[]): Promise<string[]> =>
        (await kernel.chains(T, asked)).map(({ chain }) => chain).toSorted();
      expect(await names(["none", "in", "c", "a"])).toEqual(["a", "c", "in"]);
      expect(await names([])).toEqual([]);
      expect((await kernel.chains(T, ["in"]))[0]).toEqual((await kernel.chains(T)).find(({ chain }) => chain === "in"));
      expect(await kernel.chains({ ...T, table: "none" }, ["a"])).toEqual([]);
    },
  },
  {
    title: "a base chain with policy accept",
    given: [table],
    when: [newChain("in", input)],
    then: async ({ kernel }) =>
      expect((await kernel.chains(T))[0]).toMatchObject({ flags: 1, base: { ...input, policy: "accept" } }),
  },
  {
    title: "a base chain with policy drop",
    given: [table],
    when: [base("in", { policy: "drop" })],
    then: async ({ kernel }) => expect((await kernel.chains(T))[0].base).toEqual({ ...input, policy: "drop" }),
  },
  {
    title: "a negative priority",
    given: [table],
    when: [newChain("n", nat)],
    then: async ({ kernel }) => expect((await kernel.chains(T))[0].base).toEqual({ ...nat, policy: "accept" }),
  },
  { title: "in a missing table", when: [newChain("a")], faults: [{ op: 0, errno: "ENOENT" }] },
  {
    title: "table and chain in one batch, in kernel order",
    when: [table, newChain("b"), newChain("a")],
    then: async ({ kernel }) => expect((await kernel.chains(T)).map(({ chain }) => chain)).toEqual(["b", "a"]),
  },
  {
    title: "nat before connection tracking",
    realOnly: true,
    given: [table],
    when: [newChain("n", { ...nat, priority: -200 })],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
  },
  {
    title: "nat in forward",
    realOnly: true,
    given: [table],
    when: [newChain("n", { ...nat, hook: 2 })],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
  },
  {
    title: "route in input",
    realOnly: true,
    given: [table],
    when: [base("r", { type: "route" })],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
  },
  {
    title: "nat in a family without nat",
    realOnly: true,
    when: [
      { op: "add", kind: "table", family: "arp", table: "t" },
      { op: "add", kind: "chain", family: "arp", table: "t", chain: "n", base: nat },
    ],
    faults: [{ op: 1, errno: "ENOENT" }],
  },
  { title: "a name of 255 bytes", given: [table], when: [newChain("n".repeat(255))] },
];

const changing: Case[] = [
  { title: "add accepts an existing chain", given: [table, newChain("a")], when: [newChain("a")] },
  {
    title: "create refuses an existing chain",
    given: [table, newChain("a")],
    when: [newChain("a", undefined, "create")],
    faults: [{ op: 0, errno: "EEXIST" }],
  },
  { title: "add of the same base chain", given: [table, newChain("in", input)], when: [newChain("in", input)] },
  { title: "add of a base chain without its hook", given: [table, newChain("in", input)], when: [newChain("in")] },
  {
    title: "another priority",
    given: [table, newChain("in", input)],
    when: [base("in", { priority: 1 })],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
    before: { fact: "otherHookUnsupported", faults: [{ op: 0, errno: "EEXIST" }] },
  },
  {
    title: "another hook",
    given: [table, newChain("in", input)],
    when: [base("in", { hook: 2 })],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
    before: { fact: "otherHookUnsupported", faults: [{ op: 0, errno: "EEXIST" }] },
  },
  {
    title: "another type",
    given: [table, newChain("n", nat)],
    when: [newChain("n", { ...nat, type: "filter" })],
    faults: [{ op: 0, errno: "EEXIST" }],
  },
  {
    title: "a hook for an existing regular chain",
    given: [table, newChain("a")],
    when: [newChain("a", input)],
    faults: [{ op: 0, errno: "EEXIST" }],
  },
  {
    title: "a policy for an existing regular chain",
    given: [table, newChain("a")],
    when: [base("a", { policy: "drop" })],
    faults: [{ op: 0, errno: "EOPNOTSUPP" }],
  },
  {
    title: "another policy",
    given: [table, newChain("in", input)],
    when: [base("in", { policy: "drop" })],
    then: async ({ kernel }) => expect((await kernel.chains(T))[0].base?.policy).toBe("drop"),
  },
  {
    title: "another priority, by delete and add",
    given: [table, newChain("in", input)],
    when: [noChain("in"), base("in", { priority: 7 })],
    then: async ({ kernel }) => expect((await kernel.chains(T))[0].base?.priority).toBe(7),
  },
];

const map = newSet(verdictMap("m"));
const toA = [{ key: "1.1.1.1", data: goto("a") }];

const deleting: Case[] = [
  { title: "delete of a missing chain", given: [table], when: [noChain("a")], faults: [{ op: 0, errno: "ENOENT" }] },
  { title: "destroy of a missing chain", given: [table], when: [noChain("a", "destroy")] },
  { title: "destroy in a missing table", when: [noChain("a", "destroy")], faults: [{ op: 0, errno: "ENOENT" }] },
  { title: "destroy deletes the chain", given: [table, newChain("a")], when: [noChain("a", "destroy")], then: none },
  {
    title: "delete deletes the chain's rules, too",
    given: [table, newChain("a"), newRule("a", verdict("drop"))],
    when: [noChain("a")],
    then: none,
  },
  {
    title: "a chain in use by a rule",
    given: [table, newChain("a"), newChain("b"), newRule("b", jump("a"))],
    when: [noChain("a")],
    faults: [{ op: 0, errno: "EBUSY" }],
  },
  {
    title: "a chain in use by an element",
    given: [table, newChain("a"), map, newElements("m", toA)],
    when: [noChain("a")],
    faults: [{ op: 0, errno: "EBUSY" }],
  },
  {
    title: "destroy of a chain in use by an element",
    given: [table, newChain("a"), map, newElements("m", toA)],
    when: [noChain("a", "destroy")],
    faults: [{ op: 0, errno: "EBUSY" }],
  },
  {
    title: "after the deletion of the element",
    given: [table, newChain("a"), map, newElements("m", toA)],
    when: [noElements("m", toA), noChain("a")],
    then: none,
  },
  {
    title: "after the flush of the map",
    given: [table, newChain("a"), map, newElements("m", toA)],
    when: [{ op: "flush", kind: "elements", ...T, set: "m" }, noChain("a")],
    then: none,
  },
  {
    title: "after the deletion of the map",
    given: [table, newChain("a"), map, newElements("m", toA)],
    when: [noSet("m"), noChain("a")],
    then: none,
  },
  {
    title: "after the flush of the rules that jump to it",
    given: [table, newChain("a"), newChain("b"), newRule("b", jump("a"))],
    when: [{ op: "flush", kind: "rule", ...T, chain: "b" }, noChain("a"), noChain("b")],
    then: none,
  },
  {
    title: "after the deletion of the chain that jumps to it",
    given: [table, newChain("a"), newChain("b"), newRule("b", jump("a"))],
    when: [noChain("b"), noChain("a")],
    then: none,
  },
  {
    title: "before the deletion of the chain that jumps to it",
    given: [table, newChain("a"), newChain("b"), newRule("b", jump("a"))],
    when: [noChain("a"), noChain("b")],
    faults: [{ op: 0, errno: "EBUSY" }],
  },
  {
    title: "a chain that jumps to itself",
    given: [table, newChain("a")],
    when: [newRule("a", jump("a")), noChain("a")],
    faults: [{ op: 1, errno: "EBUSY" }],
    before: { fact: "loopsFromHooks", faults: [{ op: 0, errno: "ELOOP" }] },
  },
  {
    title: "a chain that jumps to itself, after a flush",
    given: [table, newChain("a")],
    when: [newRule("a", jump("a")), { op: "flush", kind: "rule", ...T, chain: "a" }, noChain("a")],
    then: none,
    before: { fact: "loopsFromHooks", faults: [{ op: 0, errno: "ELOOP" }] },
  },
  {
    title: "delete and add of one name in one batch",
    given: [table, newChain("a"), newRule("a", verdict("drop"))],
    when: [noChain("a"), newChain("a", undefined, "create")],
    then: async ({ kernel }) => {
      expect(await kernel.rules(T)).toEqual([]);
      expect(await kernel.chains(T)).toHaveLength(1);
    },
  },
  {
    title: "by handle",
    given: [table, newChain("a"), newChain("b")],
    when: async ({ kernel }) => {
      const chain = (await kernel.chains(T)).find((candidate) => candidate.chain === "b");
      return [{ op: "delete", kind: "chain", ...T, chain: "b", handle: chain?.handle ?? 0n }];
    },
    then: async ({ kernel }) => expect((await kernel.chains(T)).map(({ chain }) => chain)).toEqual(["a"]),
  },
  {
    title: "use counts rules and references",
    given: [table, newChain("a"), newChain("b"), map],
    when: [newRule("a", verdict("drop")), newRule("b", jump("a")), newElements("m", toA)],
    then: async ({ kernel }) => {
      const uses = Object.fromEntries((await kernel.chains(T)).map(({ chain, use }) => [chain, use]));
      expect(uses).toEqual({ a: 3, b: 1 });
    },
  },
];

async function none({ kernel }: { kernel: { chains(ref: typeof T): Promise<unknown[]> } }): Promise<void> {
  expect(await kernel.chains(T)).toEqual([]);
}
