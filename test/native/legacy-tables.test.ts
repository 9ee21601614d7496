/** Chains of the older iptables, as read by the addon. */
import { describe, expect, test } from "vitest";
import { addLegacyChains, putLegacyTable } from "../lab/legacy-kernel.ts";
import { legacyRule } from "../lab/legacy-rules.ts";
import { TABLE_CHAINS } from "../lab/legacy-table.ts";
import { mutate, Random } from "./fuzz.js";
import { useLab } from "./lab.js";
import { testAddon } from "./test-addon.js";
import { atLength } from "../lab/length.ts";

const lab = useLab();
const FAMILIES = ["ip", "ip6"] as const;
type Family = (typeof FAMILIES)[number];

const TARGET_HEADER = 32;
const ENTRY = { ip: { size: 112, offsets: 88 }, ip6: { size: 168, offsets: 140 } } as const;

interface EntrySpec {
  /** An ERROR target with a name begins a chain. */
  readonly name?: string;
  readonly target?: string;
  readonly targetOffset?: number;
  readonly nextOffset?: number;
}

/** One entry in the format of ip_tables. */
function entry(family: Family, spec: EntrySpec): Buffer {
  const { size, offsets } = ENTRY[family];
  const bytes = Buffer.alloc(size + TARGET_HEADER + 32);
  bytes.writeUInt16LE(spec.targetOffset ?? size, offsets);
  bytes.writeUInt16LE(spec.nextOffset ?? bytes.length, offsets + 2);
  bytes.write(spec.target ?? (spec.name === undefined ? "" : "ERROR"), size + 2, "latin1");
  bytes.write(spec.name ?? "", size + TARGET_HEADER, "latin1");
  return bytes;
}

const decode = (family: Family, ...entries: readonly Uint8Array[]): string[] =>
  testAddon.decodeLegacyChains(family, Buffer.concat(entries)).names;

describe.each(FAMILIES)("the entries of a table, %s", (family) => {
  const end = entry(family, { name: "ERROR" });

  test("give the names of its chains, without the final entry's", () => {
    const rule = entry(family, {});
    expect(decode(family)).toEqual([]);
    expect(decode(family, rule, end)).toEqual([]);
    expect(
      decode(family, rule, entry(family, { name: "A" }), rule, entry(family, { name: "KUBE-SVC-X" }), end),
    ).toEqual(["A", "KUBE-SVC-X"]);
    const longest = "L".repeat(30);
    expect(decode(family, entry(family, { name: longest }), end)).toEqual([longest]);
  });

  test("are counted per chain, without the final return", () => {
    const rule = entry(family, {});
    const table = Buffer.concat([
      ...[rule, rule],
      ...[entry(family, { name: "A" }), rule, rule, rule],
      ...[entry(family, { name: "EMPTY" }), rule],
      end,
    ]);
    expect(testAddon.decodeLegacyChains(family, table)).toEqual({ names: ["A", "EMPTY"], rules: Uint32Array.of(2, 0) });
    const cut = table.subarray(0, table.length - 1);
    expect(() => testAddon.decodeLegacyChains(family, cut)).toThrow(/iptables entry/);
  });

  test("end with the policy of a built-in chain", () => {
    const verdict = (value: number): Buffer => {
      const last = entry(family, {});
      last.writeInt32LE(value, ENTRY[family].size + TARGET_HEADER);
      return last;
    };
    const rule = entry(family, {});
    const drops = (offset: number, ...entries: readonly Buffer[]): boolean =>
      testAddon.decodeLegacyDrop(family, Buffer.concat(entries), offset);
    // NF_DROP is 0, NF_ACCEPT 1.
    expect(drops(rule.length, rule, verdict(-1), end)).toBe(true);
    expect(drops(rule.length, rule, verdict(-2), end)).toBe(false);
    expect(() => drops(rule.length, rule)).toThrow(/truncated/);
    expect(() => drops(1_000_000, rule)).toThrow(/truncated/);
    expect(() => drops(0, entry(family, { targetOffset: 5000 }))).toThrow(/wrong offset/);
    expect(() => drops(0, entry(family, { targetOffset: 8 }))).toThrow(/wrong offset/);
  });

  test.each<[string, EntrySpec]>([
    ["an entry that exceeds the table", { nextOffset: 60_000 }],
    ["an entry of zero length", { nextOffset: 0 }],
    ["a target that begins inside the match", { targetOffset: 8 }],
    ["a target that begins after the entry", { targetOffset: 5000 }],
  ])("%s is refused", (_, spec) => {
    expect(() => decode(family, entry(family, spec))).toThrow(/iptables entry/);
  });

  test("truncated or randomly overwritten entries are read or refused, and do no harm", () => {
    const whole = Buffer.concat([entry(family, { name: "A" }), entry(family, {}), end]);
    for (let length = 0; length < whole.length; length++) {
      const cut = whole.subarray(0, length);
      // A cut between two entries is not an error.
      if (length % end.length === 0) continue;
      expect(() => decode(family, cut)).toThrow(/iptables entry/);
    }
    const random = new Random(1);
    for (let i = 0; i < atLength({ short: 100, usual: 2000 }); i++) {
      try {
        for (const name of decode(family, mutate(whole, random))) expect(name.length).toBeLessThanOrEqual(30);
      } catch (error) {
        expect(String(error)).toMatch(/iptables entry/);
      }
    }
  });
});

test("a family unknown to iptables is an error", () => {
  // @ts-expect-error: what a caller without types might pass
  expect(() => testAddon.decodeLegacyChains("inet", new Uint8Array())).toThrow(/ip or ip6/);
});

test.each(FAMILIES)("the kernel's own tables, %s", async (family) => {
  const { kernel, netns } = lab();
  const chains = ["KUBE-SERVICES", "KUBE-SVC-TCOU7JCQXEZGVUNU", "MINE"];
  const here = await addLegacyChains(["nsenter", `--net=${netns}`], family, "nat", chains);
  // A kernel without the older iptables has no chains; asking it is only an error.
  if (here) expect(await kernel.legacy.chains(family, "nat")).toEqual(chains);
  else await expect(kernel.legacy.chains(family, "nat")).rejects.toMatchObject({ name: "KernelError" });
});

test.each(FAMILIES)("the rules of a chain in the kernel's own tables, %s", async (family) => {
  const { kernel, netns } = lab();
  const rules = ["tcp dport 30080", "udp dport 30053"].map((match) => legacyRule(family, `${match} return`));
  const chains = [
    ...TABLE_CHAINS.nat.map((name) => ({ name, policy: "ACCEPT", rules: [] }) as const),
    { name: "EMPTY", rules: [] },
    { name: "KUBE-NODEPORTS", rules },
  ];
  if (!(await putLegacyTable(["nsenter", `--net=${netns}`], family, "nat", chains))) {
    await expect(kernel.legacy.rules(family, "nat", "EMPTY")).rejects.toMatchObject({ name: "KernelError" });
    return;
  }
  const count = (chain: string): Promise<number> => kernel.legacy.rules(family, "nat", chain);
  expect([await count("KUBE-NODEPORTS"), await count("EMPTY"), await count("NONE")]).toEqual([2, 0, 0]);
});

test.each(FAMILIES)("the policy of the kernel's own chain FORWARD, %s", async (family) => {
  const { kernel, netns } = lab();
  const set = (...chains: string[]): Promise<boolean> =>
    addLegacyChains(["nsenter", `--net=${netns}`], family, "filter", chains);
  if (!(await set("MINE"))) {
    await expect(kernel.legacy.forwardDrops(family, "filter")).rejects.toMatchObject({ name: "KernelError" });
    return;
  }
  expect(await kernel.legacy.forwardDrops(family, "filter")).toBe(false);
  await set("FORWARD:drop");
  expect(await kernel.legacy.forwardDrops(family, "filter")).toBe(true);
  expect(await kernel.legacy.chains(family, "filter")).toEqual(["MINE"]);
  await set("LATER");
  expect(await kernel.legacy.forwardDrops(family, "nat")).toBe(false);
});

test.each(FAMILIES)("the layout of the kernel's own table, %s", async (family) => {
  const { kernel, netns } = lab();
  const enter = ["nsenter", `--net=${netns}`];
  if (!(await addLegacyChains(enter, family, "mangle", ["MINE"]))) {
    await expect(kernel.legacy.layout(family, "mangle")).rejects.toMatchObject({ name: "KernelError" });
    return;
  }
  const layout = await kernel.legacy.layout(family, "mangle");
  expect(layout).toMatch(/^(\d+ ){12}\d+$/);
  expect(await kernel.legacy.layout(family, "mangle")).toBe(layout);
  await addLegacyChains(enter, family, "mangle", ["LATER"]);
  expect(await kernel.legacy.layout(family, "mangle")).not.toBe(layout);
});

test("a missing table is an error", async () => {
  await expect(lab().kernel.legacy.chains("ip", "no-such-table")).rejects.toMatchObject({ name: "KernelError" });
  await expect(lab().kernel.legacy.chains("ip", "n".repeat(40))).rejects.toMatchObject({ code: "invalid" });
});
