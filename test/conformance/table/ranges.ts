/** Ranges of one or more fields, and catch-all elements. */
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { FieldError } from "../../../src/nft/language/fields/field-error.js";
import type { SetEntry, SetSpec } from "../../../src/nft/handles/set-spec.js";
import type { Kernel } from "../../../src/nft/kernel/kernel.js";
import { CATCH_ALL } from "../../../src/nft/elements/rows.js";
import { Table } from "../../../src/nft/engine-exports.js";
import { atLength } from "../../lab/length.ts";
import { Dice } from "../../support/dice.ts";
import { ip } from "../../support/operations.ts";
import { NAME, operations } from "./build.js";

const ROUNDS = atLength({ short: 40, usual: 100, nightly: 1000 });
const SEED = Number(process.env.FUZZ_SEED ?? 20_261_128);

export function catchAlls(kernel: () => Kernel): void {
  it("ranges of a concatenation, and the catch-all element, change one by one", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    const spec = { set: "boxes", key: ["ipv4_addr", "mark"], data: ["mark"], interval: true } as const;
    const boxes = table.packedSet(spec);
    const box = (first: string, from: number, last: string, to: number): Uint8Array =>
      Uint8Array.from([...ip(first), 0, 0, 0, from, ...ip(last), 0, 0, 0, to]);
    boxes.put(box("10.0.0.0", 1, "10.0.0.255", 9), ip("0.0.0.1"));
    boxes.put(box("10.0.0.0", 10, "10.0.0.255", 10), ip("0.0.0.2"));
    boxes.put(CATCH_ALL, ip("0.0.0.3"));
    expect(operations(await table.apply())).toBe("table +1 set +1 element +3");
    expect(() => boxes.put(box("10.0.0.9", 9, "10.0.0.9", 9), ip("0.0.0.1"))).toThrow(
      "10.0.0.9 . 0x00000009 overlaps 10.0.0.0/24 . 0x00000001-0x00000009",
    );
    boxes.put(CATCH_ALL, ip("0.0.0.4"));
    boxes.delete(box("10.0.0.0", 1, "10.0.0.255", 9));
    boxes.put(box("10.0.0.0", 1, "10.0.0.127", 9), ip("0.0.0.1"));
    expect(operations(await table.apply())).toBe("element +2 -2");
    expect(await table.check()).toBe("same");
    const again = new Table(kernel(), { family: "ip", name: NAME });
    const same = again.packedSet(spec);
    boxes.forEach((key, data) => void same.put(key, data));
    expect((await again.apply()).transactions).toBe(0);
    boxes.clear();
    expect(operations(await table.apply())).toBe("element -3");
  });

  it("a set that has keys may have a catch-all element", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    const marks = table.packedSet({ set: "marks", key: ["ipv4_addr"], data: ["mark"], counters: {} });
    marks.put(ip("10.0.0.1"), ip("0.0.0.1"));
    await table.apply();
    marks.put(CATCH_ALL, ip("0.0.0.2"));
    expect(operations(await table.apply())).toBe("element +1");
    expect([marks.size, marks.has(CATCH_ALL), await table.check()]).toEqual([2, true, "same"]);
    marks.put(CATCH_ALL, ip("0.0.0.3"));
    expect(operations(await table.apply())).toBe("element +1 -1");
    const again = new Table(kernel(), { family: "ip", name: NAME });
    again
      .packedSet({ set: "marks", key: ["ipv4_addr"], data: ["mark"], counters: {} })
      .put(ip("10.0.0.1"), ip("0.0.0.1"));
    expect(operations(await again.apply())).toBe("element -1");
    expect(await table.check()).toBe("different");
    expect(operations(await table.apply())).toBe("element +1");
  });
}

/** Since Linux 6.3 (`destroy`). */
export function expiredCatchAlls(kernel: () => Kernel): void {
  it("a catch-all element can be put again after it expired", async () => {
    const table = new Table(kernel(), { family: "ip", name: NAME });
    const rest = table.packedSet({ set: "rest", key: ["ipv4_addr"], data: ["mark"], interval: true, timeoutMs: 0 });
    rest.put(CATCH_ALL, ip("0.0.0.1"), 100);
    await table.apply();
    await sleep(200);
    expect([rest.has(CATCH_ALL), await table.check()]).toEqual([false, "same"]);
    rest.put(CATCH_ALL, ip("0.0.0.2"), 60_000);
    expect(operations(await table.apply())).toBe("element +1");
    expect(await table.check()).toBe("same");
    const again = new Table(kernel(), { family: "ip", name: NAME });
    const kept = again.packedSet({ ...rest.spec, keep: true });
    expect((await again.apply()).transactions).toBe(0);
    expect(kept.get(CATCH_ALL)).toEqual(ip("0.0.0.2"));
  });
}

/** @param catchAll whether the kernel has catch-all elements. */
export function ranges(kernel: () => Kernel, catchAll: boolean): void {
  it(`random changes leave what is desired (seed ${SEED})`, async () => {
    const dice = new Dice(SEED);
    let { table, sets } = declared(kernel());
    for (let round = 0; round < ROUNDS; round++) {
      for (let change = dice.below(8); change > 0; change--) {
        const index = dice.below(SPECS.length);
        const key = catchAll && dice.chance(10) ? "*" : keyOf(dice, SPECS[index].key);
        const known = sets[index].keys();
        if (dice.chance(30)) sets[index].delete(known.length > 0 && dice.chance(90) ? dice.pick(known) : key);
        else putRandom(dice, index, sets[index], known.length > 0 && dice.chance(30) ? dice.pick(known) : key);
      }
      await table.apply();
      expect([round, await table.check()]).toEqual([round, "same"]);
      table.invalidate("test");
      expect([round, (await table.apply()).transactions]).toEqual([round, 0]);
      if (dice.chance(80)) continue;
      const before = { table, sets };
      ({ table, sets } = declared(kernel()));
      for (const [index, set] of sets.entries()) copy(SPECS[index], before.sets[index], set);
      expect([round, operations(await table.apply())]).toEqual([round, ""]);
    }
    await table.destroy();
  });
}

const SPECS: readonly SetSpec[] = [
  { set: "ports", key: ["inet_service"], interval: true },
  { set: "marks", key: ["mark"], data: ["mark"], interval: true, counters: {} },
  { set: "boxes", key: ["ipv4_addr", "inet_service"], data: "verdict", interval: true },
  { set: "mixed", key: ["ifname", "mark", "inet_proto"], interval: true, timeoutMs: 0 },
  { set: "nets", key: ["ipv4_addr"], interval: true, timeoutMs: 3_600_000 },
  { set: "protocols", key: ["inet_proto"], data: ["ipv4_addr"], interval: true },
  { set: "names", key: ["ifname"], interval: true },
  { set: "keys", key: ["mark"], data: ["mark"] },
];

/** The methods that all handles share. */
interface AnySet {
  put(key: unknown, ...more: unknown[]): boolean;
  delete(key: unknown): boolean;
  has(key: unknown): boolean;
  keys(): readonly unknown[];
  get(key: unknown): unknown;
  entries(): readonly { key: unknown; data?: unknown; comment?: string; timeoutMs?: number }[];
}

function declared(kernel: Kernel): { table: Table; sets: AnySet[] } {
  const table = new Table(kernel, { family: "inet", name: NAME });
  return { table, sets: SPECS.map((spec) => table.set(spec) as unknown as AnySet) };
}

function keyOf(dice: Dice, key: SetSpec["key"]): unknown {
  const from = (limit: number, most: number): unknown => {
    const first = dice.below(limit);
    return dice.chance(50) ? first : { from: first, to: Math.min(most, first + dice.below(10)) };
  };
  const values = key.map((field) => {
    if (field === "inet_service")
      return dice.chance(10) ? { from: 65_530 + dice.below(6), to: 65_535 } : from(60, 65_535);
    if (field === "mark") return dice.chance(10) ? 0xffffffff : from(300, 0xffffffff);
    if (field === "inet_proto") return from(30, 255);
    if (field === "ifname") return dice.pick(["eth0", "eth1", "w0", "w*", "lo"]);
    return dice.pick([
      "0.0.0.0/8",
      "255.0.0.0/8",
      "10.0.1.0/24",
      `10.0.0.${dice.below(50)}-10.0.0.${dice.below(50) + 50}`,
    ]);
  });
  return values.length === 1 ? values[0] : values;
}

function putRandom(dice: Dice, index: number, set: AnySet, key: unknown): void {
  const { data, interval } = SPECS[index];
  const plain = interval !== true && key !== "*" ? dice.below(6) : key;
  // `get` of a map returns no comment.
  const options =
    dice.chance(30) && !(key === "*" && data !== undefined) ? [{ comment: `number ${dice.below(3)}` }] : [];
  const value =
    data === "verdict"
      ? dice.pick(["accept", "drop"])
      : Array.isArray(data) && data[0] === "mark"
        ? dice.below(5)
        : "192.0.2.1";
  try {
    set.put(plain, ...(data === undefined ? [] : [value]), ...options);
  } catch (error) {
    if (!(error instanceof FieldError) || !error.message.includes("overlaps")) throw error;
  }
}

function copy({ data }: SetSpec, from: AnySet, to: AnySet): void {
  for (const { key, data: value, comment } of from.entries())
    to.put(key, ...(data === undefined ? [] : [value]), { ...(comment !== undefined && { comment }) });
  if (!from.has("*")) return;
  if (data !== undefined) to.put("*", from.get("*"));
  else to.put("*", { ...("comment" in (from.get("*") as object) && { comment: (from.get("*") as SetEntry).comment }) });
}
