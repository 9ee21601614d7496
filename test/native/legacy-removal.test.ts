/**
 * Removes kube-proxy's chains from tables of the older iptables: checks the bytes for the kernel, and the kernel
 * itself.
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { loadAddon } from "../../src/netlink/addon.js";
import { IPTABLES_TABLES, type IptablesTable, ownChains } from "../../src/migration/leftovers/iptables-names.js";
import { buildHelper } from "../lab/build.js";
import { getLegacyTable, holdLock, putLegacyTable, tableFile } from "../lab/legacy-kernel.ts";
import { legacyRule } from "../lab/legacy-rules.ts";
import {
  decodeTable,
  encodeTable,
  entriesOf,
  LAYOUT,
  type LegacyChain,
  type LegacyFamily,
  type LegacyRule,
  TABLE_CHAINS,
} from "../lab/legacy-table.ts";
import { randomTable, withoutKubeProxy } from "../support/legacy-chains.ts";
import { child, inside as sendInside, kernelError, useLab } from "./lab.js";
import { mutate, Random } from "./spoil.ts";
import { testAddon } from "./test-addon.js";
import { atLength } from "../lab/length.ts";

const lab = useLab();
const FAMILIES: readonly LegacyFamily[] = ["ip", "ip6"];

let directory: string;
/** Whether this kernel has the older iptables. */
let present: boolean;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "nft-proxier-legacy-removal-"));
  present = (await getLegacyTable(inside(), "ip", "filter")) !== undefined;
});
afterAll(() => rm(directory, { recursive: true, force: true }));

const inside = (): string[] => ["nsenter", `--net=${lab().netns}`];
const lockFile = (): string => join(directory, "xtables.lock");

const jump = (to: string): LegacyRule => ({ target: { jump: to }, counters: [7n, 700n] });
/** The chains of a table, without rules except these. */
function chains(table: IptablesTable, rules: Readonly<Record<string, LegacyChain["rules"]>>): LegacyChain[] {
  const base = TABLE_CHAINS[table].map((name): LegacyChain => ({ name, policy: "ACCEPT", rules: rules[name] ?? [] }));
  const users = Object.keys(rules).filter((name) => base.every((chain) => chain.name !== name));
  return [...base, ...users.map((name) => ({ name, rules: rules[name] }))].map((chain) => ({
    ...chain,
    policyCounters: [3n, 300n] as const,
  }));
}

/** Random tables: as bytes, with random bytes in them, and in the kernel. */
const TABLES = atLength({ short: 100, usual: 400 });
const SCRIBBLED = atLength({ short: 100, usual: 1000 });
const IN_KERNEL = atLength({ short: 1, usual: 5 });

describe.each(FAMILIES)("the bytes of a table, %s", (family) => {
  const rebuild = (table: IptablesTable, before: readonly LegacyChain[]) => {
    const { hooks, bytes } = encodeTable(family, before);
    return testAddon.rebuildLegacyTable(family, hooks, bytes, ownChains(table));
  };

  test.each(IPTABLES_TABLES)("%s, at random: the other programs' rules remain, in their order", (table) => {
    let changed = 0;
    for (let seed = 1; seed <= TABLES; seed++) {
      const before = randomTable(new Random(seed), family, table, { acyclic: false });
      const expected = withoutKubeProxy(table, before);
      const { hooks, bytes, left, ...result } = rebuild(table, before);
      const { removed, jumps, kept } = expected;
      expect({ seed, ...result, kept: result.kept.map(({ chain }) => chain).sort() }).toEqual({
        seed,
        chains: removed,
        jumps,
        kept: [...kept].sort(),
      });
      expect(bytes === undefined).toBe(removed + jumps === 0);
      if (bytes === undefined || hooks === undefined || left === undefined) continue;
      changed++;
      const after = decodeTable(family, { hooks, count: left.length + 1, bytes: Buffer.from(bytes) });
      expect(after, `seed ${seed}`).toEqual(expected.chains);
      // A second run has nothing to do.
      expect(testAddon.rebuildLegacyTable(family, hooks, bytes, ownChains(table)).bytes).toBeUndefined();
    }
    // mangle has one chain of kube-proxy's.
    expect(changed).toBeGreaterThan(TABLES * (table === "mangle" ? 0.02 : 0.375));
  });

  test("report the users of a chain that stays", () => {
    const before = chains("nat", {
      PREROUTING: [jump("KUBE-SERVICES"), jump("KUBE-MARK-MASQ")],
      "CNI-DN": [jump("KUBE-SVC-A")],
      "KUBE-SERVICES": [jump("KUBE-SVC-A")],
      "KUBE-MARK-MASQ": [],
      "KUBE-SEP-A": [],
      "KUBE-SVC-A": [jump("KUBE-SEP-A")],
    });
    expect(rebuild("nat", before)).toMatchObject({
      chains: 1,
      jumps: 1,
      kept: [
        { chain: "KUBE-MARK-MASQ", user: "a rule of chain PREROUTING" },
        { chain: "KUBE-SVC-A", user: "a rule of chain CNI-DN" },
      ],
    });
  });

  describe("are refused if iptables would not have written them:", () => {
    const whole = encodeTable(family, chains("filter", { "KUBE-SERVICES": [], MINE: [jump("KUBE-SERVICES")] }));
    const { hooks } = whole;
    const elsewhere = (offset: number): Buffer => {
      const bytes = Buffer.from(whole.bytes);
      const [rule] = [...entriesOf(family, bytes)].slice(6);
      rule.target.writeInt32LE(rule.target.readInt32LE(32) + offset, 32);
      return bytes;
    };
    const renamed = Buffer.from(whole.bytes);
    [...entriesOf(family, renamed)].at(-1)?.target.write("error", 2);
    const noPolicy = Buffer.from(whole.bytes);
    [...entriesOf(family, noPolicy)][1].target.writeInt32LE(0, 32);

    test.each<[string, Partial<typeof whole>, RegExp]>([
      [
        "a hook between two entries",
        { hooks: { ...hooks, entry: hooks.entry.map((at) => at + 8) } },
        /points to no entry/,
      ],
      ["one hook too few", { hooks: { ...hooks, valid: 0b0110 } }, /rules outside of chains/],
      ["hooks that share a chain", { hooks: { ...hooks, entry: hooks.entry.map(() => 0) } }, /out of place/],
      ["a chain without a policy", { bytes: noPolicy }, /has no policy/],
      ["no end", { bytes: renamed }, /has no end/],
      ["nothing", { bytes: Buffer.alloc(0) }, /has no end/],
      ["a jump to the middle of an entry", { bytes: elsewhere(8) }, /jumps to no chain/],
      ["a jump to the head of a chain", { bytes: elsewhere(-(LAYOUT[family].entry + 64)) }, /jumps to no chain/],
    ])("%s", (_, change, message) => {
      const { bytes, hooks: at } = { ...whole, ...change };
      expect(() => testAddon.rebuildLegacyTable(family, at, bytes, ownChains("filter"))).toThrow(message);
    });
  });

  test("bytes that are overwritten at random are rebuilt or refused, and do no harm", () => {
    const random = new Random(7);
    let rebuilt = 0;
    for (let i = 0; i < SCRIBBLED; i++) {
      const { hooks, bytes } = encodeTable(family, randomTable(random, family, "nat", { acyclic: false }));
      try {
        testAddon.rebuildLegacyTable(family, hooks, mutate(bytes, random), ownChains("nat"));
        rebuilt++;
      } catch (error) {
        expect(String(error)).toMatch(/unsupported iptables table: /);
      }
    }
    expect(rebuilt).toBeGreaterThan(SCRIBBLED / 40);
  });
});

describe("in the kernel", () => {
  const remove = (family: LegacyFamily, table: IptablesTable, file = lockFile()) =>
    lab().kernel.legacy.remove(family, table, ownChains(table), file);
  const put = (family: LegacyFamily, table: string, all: readonly LegacyChain[]) =>
    putLegacyTable(inside(), family, table, all);
  const get = (family: LegacyFamily, table: string) => getLegacyTable(inside(), family, table);
  const needsLegacy = (context: { skip: (reason: string) => void }): void => {
    if (!present) context.skip("this kernel does not have the older iptables");
  };

  test("a kernel without the older iptables only returns an error", async () => {
    if (!present) expect(await kernelError(remove("ip", "nat"))).toMatchObject({ code: "system" });
    expect(await kernelError(lab().kernel.legacy.remove("ip", "x".repeat(40), ownChains("nat"), "/"))).toMatchObject({
      code: "invalid",
    });
  });

  test.for(FAMILIES)(
    "at random, %s: other programs' rules and their counters stay the same",
    async (family, context) => {
      needsLegacy(context);
      for (const table of IPTABLES_TABLES) {
        for (let seed = 1; seed <= IN_KERNEL; seed++) {
          await put(family, table, randomTable(new Random(seed), family, table, { acyclic: true }));
          const before = (await get(family, table)) ?? [];
          const { removed, jumps, kept, chains: left } = withoutKubeProxy(table, before);
          const outcome = await remove(family, table);
          expect({ seed, ...outcome }).toMatchObject({ seed, chains: removed, jumps, countersKept: true });
          expect(outcome.kept.map(({ chain }) => chain).sort()).toEqual([...kept].sort());
          expect(await get(family, table), `${table}, seed ${seed}`).toEqual(left);
        }
      }
    },
  );

  test("packets are still counted, and meet the remaining rules", async (context) => {
    needsLegacy(context);
    const before = chains("filter", {
      OUTPUT: [jump("KUBE-SERVICES"), jump("MINE")],
      "KUBE-SERVICES": [legacyRule("ip", "ip daddr 127.0.0.1 drop")],
      MINE: [{ ...legacyRule("ip", "ip daddr 127.0.0.1 # mine return"), counters: [5n, 500n] }],
    });
    await put("ip", "filter", before);
    const send = (): Promise<void> =>
      sendInside(
        lab().netns,
        "ip link set lo up; exec 3>/dev/udp/127.0.0.1/9; for i in 1 2 3; do echo >&3; done || true",
      );
    await send();
    expect((await get("ip", "filter"))?.find(({ name }) => name === "MINE")?.rules[0].counters?.[0]).toBe(5n);
    expect(await remove("ip", "filter")).toMatchObject({ chains: 1, jumps: 1, kept: [] });
    await send();
    const mine = (await get("ip", "filter"))?.find(({ name }) => name === "MINE");
    expect(mine?.rules[0].counters?.[0]).toBeGreaterThanOrEqual(8n);
  });

  test("a table without kube-proxy's chains is not written", async (context) => {
    needsLegacy(context);
    await put("ip", "nat", chains("nat", { OUTPUT: [jump("DOCKER")], DOCKER: [] }));
    const before = await get("ip", "nat");
    expect(await remove("ip", "nat")).toMatchObject({ chains: 0, jumps: 0, kept: [] });
    expect(await get("ip", "nat")).toEqual(before);
  });

  test("a table is kept if there is no memory to rewrite it", async (context) => {
    needsLegacy(context);
    const connection = await loadAddon().open({ netns: lab().netns });
    const options = { lockFile: lockFile(), mostBytes: 500 };
    const nat = { family: "ip", table: "nat" } as const;
    await put("ip", "nat", chains("nat", { "KUBE-SVC-A": [] }));
    await expect(loadAddon().removeLegacyChains(connection, nat, ownChains("nat"), options)).rejects.toMatchObject({
      code: "too-large",
    });
    await expect(loadAddon().legacyChains(connection, nat, 500)).rejects.toMatchObject({ code: "too-large" });
    loadAddon().close(connection);
    expect(await lab().kernel.legacy.chains("ip", "nat")).toEqual(["KUBE-SVC-A"]);
  });

  describe("the lock of iptables", () => {
    test("the caller waits for it, and meanwhile the table is unchanged", async (context) => {
      needsLegacy(context);
      await put("ip", "nat", chains("nat", { "KUBE-SVC-A": [] }));
      const lock = await holdLock(lockFile());
      try {
        expect(await kernelError(remove("ip", "nat"))).toMatchObject({ code: "system", errno: "EAGAIN" });
        expect(await lab().kernel.legacy.chains("ip", "nat")).toEqual(["KUBE-SVC-A"]);
        // A table without kube-proxy's chains needs no lock.
        expect(await remove("ip", "mangle")).toMatchObject({ chains: 0 });
      } finally {
        await lock.release();
      }
      const outcome = await remove("ip", "nat");
      expect(outcome).toMatchObject({ chains: 1 });
      expect(outcome.unlocked).toBeUndefined();
      // The lock was released.
      await (await holdLock(lockFile())).release();
    });

    test("is reported if it is missing, and the removal continues", async (context) => {
      needsLegacy(context);
      await put("ip", "nat", chains("nat", { "KUBE-SVC-A": [] }));
      const file = join(directory, "none/xtables.lock");
      expect(await remove("ip", "nat", file)).toMatchObject({
        chains: 1,
        unlocked: `${file}: ENOENT (No such file or directory)`,
      });
    });
  });

  describe("a table that another process changes", () => {
    const before = chains("nat", {
      PREROUTING: [jump("KUBE-SERVICES")],
      "KUBE-SERVICES": [],
      MINE: [legacyRule("ip", "ip daddr 192.0.2.1 return")],
    });
    const other = chains("nat", {
      PREROUTING: [jump("KUBE-SERVICES"), jump("MINE")],
      "KUBE-SERVICES": [],
      "KUBE-SVC-A": [],
      MINE: [legacyRule("ip", "ip daddr 192.0.2.2 return"), legacyRule("ip", "accept")],
    });

    /** The other process replaces the table right before this many calls. */
    async function race(
      option: 64 | 65,
      times: number,
      others: readonly (readonly LegacyChain[])[] = [other],
    ): Promise<Record<string, unknown>> {
      await put("ip", "nat", before);
      const files = others.map((_, index) => join(directory, `other-${index}`));
      for (const [index, all] of others.entries()) await writeFile(files[index], tableFile("ip", all));
      const preload = [process.env["LD_PRELOAD"], buildHelper("legacy-race")].filter((one) => one !== undefined);
      const environment = [
        `LD_PRELOAD=${preload.join(":")}`,
        `LEGACY_RACE_OPTION=${option}`,
        `LEGACY_RACE_TIMES=${times}`,
        `LEGACY_RACE_TABLES=${files.join(":")}`,
      ];
      return (await child("legacy-removal.mjs", [lockFile()], [...inside(), "env", ...environment])) as never;
    }
    const { match: everything } = legacyRule("ip", "");
    const uncounted = (all: readonly LegacyChain[]): unknown =>
      all.map(({ name, rules }) => ({
        name,
        rules: rules.map(({ match = everything, target }) => ({ match, target })),
      }));
    const left = async (): Promise<unknown> => uncounted((await get("ip", "nat")) ?? []);

    test("the table is read again after a change during the removal, and that process's rules stay", async (context) => {
      needsLegacy(context);
      expect(await race(64, 1)).toMatchObject({ outcome: { chains: 2, jumps: 1, countersKept: true } });
      expect(await left()).toEqual(uncounted(withoutKubeProxy("nat", other).chains));
    });

    test("it stays as the other process left it if that process never stops", async (context) => {
      needsLegacy(context);
      expect(await race(64, 5, [other, before])).toMatchObject({
        code: "system",
        message: expect.stringMatching(/changed by another process/) as string,
      });
      expect(await left()).toEqual(uncounted(other));
    });

    test("a change right after the removal does not mix up counters, and the result says so", async (context) => {
      needsLegacy(context);
      expect(await race(65, 1)).toMatchObject({ outcome: { chains: 1, jumps: 1, countersKept: false } });
      const mine = (await get("ip", "nat"))?.find(({ name }) => name === "MINE");
      expect(mine?.rules.map(({ counters }) => counters)).toEqual([
        [0n, 0n],
        [0n, 0n],
      ]);
    });
  });
});
