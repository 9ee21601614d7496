import { expect, test } from "vitest";
import { SetFlag } from "../../../src/nft/kernel/constants.js";
import { KernelError } from "../../../src/nft/kernel/errors.js";
import type { Kernel, Op, SetInfo } from "../../../src/nft/kernel/kernel.js";
import {
  addressSet,
  daddr,
  goto,
  lookup,
  newChain,
  newElements,
  newRule,
  newSet,
  newTable,
  noSet,
  T,
  unpack,
  verdictMap,
  type Element,
} from "../../support/operations.ts";
import { faultsOf, type Current } from "../cases.js";

const flags = SetFlag.anonymous | SetFlag.constant;
const anonymousSet: SetInfo = addressSet("__set%d", { flags });
const anonymousMap: SetInfo = verdictMap("__map%d", { flags: flags | SetFlag.map });
const room = [newTable(), newChain("c"), newChain("a")];
const fill = (set: string, setId: number, elements: readonly Element[]): Op =>
  ({ ...newElements(set, elements), setId }) as Op;

/** A rule with its own set, as one batch. */
const ruleWithSet = (id: number, ...keys: string[]): Op[] => [
  newSet(anonymousSet, "add", id),
  fill(
    "__set%d",
    id,
    keys.map((key) => ({ key })),
  ),
  newRule("c", daddr, lookup("__set%d", { setId: id })),
];

const names = async (kernel: Kernel): Promise<string[]> => (await kernel.sets(T)).map(({ set }) => set);

export function anonymous(current: Current): void {
  test("get a name, which their rule uses", async () => {
    const { kernel } = current();
    await kernel.commit([...room, ...ruleWithSet(1, "1.1.1.1", "2.2.2.2")]);
    const [set] = await kernel.sets(T);
    expect(set).toMatchObject({ set: "__set0", flags });
    expect(unpack(await kernel.elements(T, set)).map(({ key }) => key)).toEqual(["01010101", "02020202"]);
    const [rule] = await kernel.rules(T);
    expect(rule.exprs[1]).toMatchObject({ type: "lookup", set: "__set0" });
    expect(await kernel.tables()).toMatchObject([{ use: 2 }]);
  });

  test("several sets and maps fit in one batch", async () => {
    const { kernel } = current();
    await kernel.commit([
      ...room,
      ...ruleWithSet(1, "1.1.1.1"),
      ...ruleWithSet(2, "2.2.2.2"),
      newSet(anonymousMap, "add", 3),
      fill("__map%d", 3, [{ key: "3.3.3.3", data: goto("a") }]),
      newRule("c", daddr, lookup("__map%d", { setId: 3, dreg: 0 })),
    ]);
    expect(await names(kernel)).toEqual(["__set0", "__set1", "__map0"]);
    const used = (await kernel.rules(T)).map(({ exprs }) => exprs.find((expr) => expr.type === "lookup")?.set);
    expect(used).toEqual(["__set0", "__set1", "__map0"]);
  });

  test("are deleted with their rule, and release their chains and their number", async () => {
    const { kernel } = current();
    await kernel.commit([
      ...room,
      newSet(anonymousMap, "add", 1),
      fill("__map%d", 1, [{ key: "3.3.3.3", data: goto("a") }]),
      newRule("c", daddr, lookup("__map%d", { setId: 1, dreg: 0 })),
      ...ruleWithSet(2, "1.1.1.1"),
    ]);
    await kernel.commit([{ op: "flush", kind: "rule", ...T, chain: "c" }]);
    expect(await names(kernel)).toEqual([]);
    await kernel.commit([{ op: "delete", kind: "chain", ...T, chain: "a" }, ...ruleWithSet(9, "1.1.1.1")]);
    expect(await names(kernel)).toEqual(["__set0"]);
  });

  test("must be used by a rule of the same batch", async () => {
    const { kernel } = current();
    await kernel.commit(room);
    const error: unknown = await kernel.commit([newSet(anonymousSet, "add", 1)]).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(KernelError);
    expect(error).toMatchObject({ code: "refused", errno: "EINVAL" });
    expect(await names(kernel)).toEqual([]);
  });

  test("belong to one rule, and cannot be changed or deleted separately", async () => {
    const { kernel } = current();
    await kernel.commit([...room, ...ruleWithSet(1, "1.1.1.1")]);
    const ops = [
      newRule("c", daddr, lookup("__set0")),
      newElements("__set0", [{ key: "3.3.3.3" }]),
      noSet("__set0"),
      { op: "flush", kind: "elements", ...T, set: "__set0" } as const,
    ];
    expect(await faultsOf(kernel, ops)).toEqual([
      { op: 0, errno: "EBUSY" },
      { op: 1, errno: "EBUSY" },
      { op: 2, errno: "EBUSY" },
      { op: 3, errno: "EOPNOTSUPP" },
    ]);
  });

  test("are not left over by a refused batch", async () => {
    const { kernel } = current();
    await kernel.commit(room);
    const ops = [...ruleWithSet(1, "1.1.1.1"), newRule("x")];
    expect(await faultsOf(kernel, ops)).toEqual([{ op: 3, errno: "ENOENT" }]);
    expect(await names(kernel)).toEqual([]);
    await kernel.commit(ruleWithSet(1, "1.1.1.1"));
    expect(await names(kernel)).toEqual(["__set0"]);
  });
}
