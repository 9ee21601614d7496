/** The same table written by us and, from its text, by the machine's nft: the kernel must hold the same objects. */
import { spawnSync } from "node:child_process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { normalizeExpr } from "../../src/nft/kernel/normalize.js";
import type { BaseChain, Expr, Family, Kernel, TableRef } from "../../src/nft/kernel/kernel.js";
import { Table } from "../../src/nft/engine-exports.js";
import { type Rule as LibraryRule, Table as LibraryTable } from "../../src/nft/nft-exports.js";
import { anonymousContent } from "../../src/nft/sync/diff.js";
import { endpoint, indexed, serviceTable, vip } from "./table/build.js";
import { CASES, setsOf, type Case } from "./table/statements.js";
import { makeNamespace, openReal, type Namespace } from "../support/real-kernel.ts";
import type { KernelWorld } from "../support/kernel-world.ts";

let namespace: Namespace;
let world: KernelWorld;
beforeAll(async () => {
  namespace = await makeNamespace();
  world = await openReal(() => namespace)();
});
afterAll(async () => {
  await world.close();
  await namespace.remove();
});

function nft(input: string | undefined, ...args: string[]): string {
  const run = spawnSync("nsenter", [`--net=${namespace.path}`, "nft", ...args], {
    input: input ?? "",
    encoding: "utf8",
  });
  if (run.status !== 0) throw new Error(`nft ${args.join(" ")}: ${run.status} ${run.signal} ${run.stderr} ${input}`);
  return run.stdout;
}

const BASES: Record<NonNullable<Case["chain"]>, BaseChain> = {
  filter: { type: "filter", hook: 0, priority: 0 },
  input: { type: "filter", hook: 1, priority: 0 },
  raw: { type: "filter", hook: 0, priority: -300 },
  dstnat: { type: "nat", hook: 0, priority: -100 },
  srcnat: { type: "nat", hook: 4, priority: 100 },
};

function probeOf(item: Case): string {
  return `probe-${CASES.indexOf(item)}`;
}

/** A table with a base chain for each case. */
function tableOf(name: string, family: Family, cases: readonly Case[]): Table {
  const table = new Table(world.kernel, { family, name });
  for (const spec of setsOf(family)) table.packedSet(spec);
  table.chain({ chain: "target", rules: [] });
  for (const item of cases) {
    const base = BASES[item.chain ?? "filter"];
    table.chain({ chain: probeOf(item), base, rules: [{ statements: item.statements, comment: "a comment" }] });
  }
  return table;
}

/** nft's listing of each chain, by table and name. */
function listChains(family: Family): ReadonlyMap<string, string> {
  const tables = nft(undefined, "list", "ruleset", family).matchAll(/^table \S+ (\S+) {$(.*?)^}$/gms);
  return new Map(
    [...tables].flatMap(([, table = "", text = ""]) =>
      [...text.matchAll(/^\tchain (\S+) {\n(.*?)^\t}$/gms)].map(([, chain = "", rules = ""]): [string, string] => [
        `${table} ${chain}`,
        rules,
      ]),
    ),
  );
}

/** The rule's expressions with anonymous sets by content. */
async function heldExprs(kernel: Kernel, ref: TableRef, chain: string): Promise<Expr[]> {
  const [rule] = await kernel.rules(ref, chain);
  const sets = new Map((await kernel.sets(ref)).map((set) => [set.set, set]));
  const exprs: Expr[] = [];
  for (const expr of rule.exprs) {
    const set = expr.type === "lookup" ? sets.get(expr.set) : undefined;
    const anonymous =
      set !== undefined && (set.flags & 1) !== 0 ? anonymousContent(set, await kernel.elements(ref, set)) : undefined;
    exprs.push(normalizeExpr(expr.type === "lookup" && anonymous !== undefined ? { ...expr, set: anonymous } : expr));
  }
  return exprs;
}

describe.each(["ip", "ip6", "inet"] as const)("rules in a table of family %s", (family) => {
  const cases = CASES.filter((item) => item.family === family);
  let tables: readonly Table[] = [];
  let listed: ReadonlyMap<string, string> = new Map();

  // All at once: starting nft takes far longer than its work for a rule.
  beforeAll(async () => {
    const ours = tableOf("ours", family, cases);
    const forNft = cases.filter((item) => item.listOnly !== true);
    const theirs = tableOf("theirs", family, forNft);
    tables = [ours, theirs];
    await ours.apply();
    nft(theirs.render(), "-f", "-");
    listed = listChains(family);
  });
  afterAll(async () => {
    for (const table of tables) await table.destroy();
  });

  it.each(cases)("$name", async (item) => {
    const chain = probeOf(item);
    const ours = listed.get(`ours ${chain}`);
    expect(ours).toContain("a comment");
    if (item.listOnly === true) {
      const [, rule] = /\t\t(update .*) comment/.exec(tableOf("theirs", family, [item]).render()) ?? [];
      expect(ours).toContain(rule ?? expect.fail("the text has no such rule"));
      return;
    }
    const held = (table: string): Promise<Expr[]> => heldExprs(world.kernel, { family, table }, chain);
    expect(await held("ours")).toEqual(await held("theirs"));
    expect(ours).toBe(listed.get(`theirs ${chain}`));
  });

  it("are found in the kernel as they were applied", async () => {
    expect((await tableOf("ours", family, cases).apply()).transactions).toBe(0);
  });
});

describe("insertions", () => {
  const theirs = { family: "ip", table: "theirs" } as const;

  it("render as lines that nft loads into other programs' chains, where apply() finds them", async () => {
    const table = new LibraryTable(world.kernel, { family: "ip", name: "own", ownerMark: "test" });
    const rule = (comment: string): LibraryRule => ({
      statements: [
        { field: "meta l4proto", value: "udplite" },
        { field: "th sport", value: [80, 443] },
        { action: "counter" },
      ],
      comment,
    });
    table.insertions({ ...theirs, chain: "forward", mode: "insert", rules: [rule("a"), rule("b")] });
    table.insertions({ ...theirs, chain: "forward", mode: "append", rules: [rule("y"), rule("z")] });
    nft("add table ip theirs; add chain ip theirs forward; add rule ip theirs forward counter", "-f", "-");
    try {
      nft(table.render(), "-f", "-");
      const listed = nft(undefined, "list", "chain", "ip", "theirs", "forward");
      expect([...listed.matchAll(/counter.*?(?:comment "test:\S+ (\w)")?$/gm)].map(([, name]) => name)).toEqual([
        "a",
        "b",
        undefined,
        "y",
        "z",
      ]);
      expect((await table.apply()).operations.rule).toEqual({ add: 0, delete: 0 });
    } finally {
      await table.destroy();
      expect(await world.kernel.rules(theirs, "forward")).toHaveLength(1);
      await world.kernel.commit([{ op: "delete", kind: "table", ...theirs }]);
    }
  });
});

describe("a whole table", () => {
  it("renders as text that nft loads with the same rules and elements", async () => {
    const { table, service, endpoints } = serviceTable(world.kernel);
    service(1, 3);
    service(2, 1);
    table
      .packedSet({ set: "cidrs", key: ["ipv4_addr"], interval: true, comment: "ranges" })
      .replaceNets(["10.0.0.0/8", "0.0.0.0/8", "255.0.0.0/8", "172.16.0.1"]);
    const draws = table.packedSet({ set: "draws", key: ["index"], data: "verdict" });
    draws.put(
      new Uint8Array(Uint32Array.of(7).buffer),
      new Uint8Array(Uint32Array.of(table.verdictId({ verdict: "jump", chain: "draw-1" })).buffer),
    );
    const marks = table.packedSet({ set: "marks", key: ["ifname", "mark"], timeoutMs: 0 });
    marks.put(
      Uint8Array.from([...Buffer.concat([Buffer.from("eth0")], 16), ...new Uint8Array(Uint32Array.of(0x4000).buffer)]),
    );
    table.chain({
      chain: "with-policy",
      base: { type: "filter", hook: 1, priority: -5, policy: "drop" },
      rules: [],
      comment: "a chain",
    });
    const text = table.render();
    expect(text).toBe(table.render());
    nft(text, "-f", "-");
    const loaded = nft(undefined, "list", "table", "ip", "own");
    expect(loaded).toContain("10.96.0.1 . tcp . 80 : goto draw-3");
    expect(loaded).toMatch(/10\.96\.0\.1 \. tcp \. 80 \. 2 : 10\.0\.1\.3 \. 8080/);
    expect(loaded).toContain("10.0.0.0/8");
    expect(loaded).toContain("7 : jump draw-1");
    // nft's table is taken over: sets keyed by an index have other type ids there and are recreated, the rest stays.
    await table.load();
    expect(endpoints.kernelValue(vipKey())).toBeUndefined();
    const result = await table.apply();
    expect(result.operations.chain).toEqual({ add: 0, delete: 0 });
    expect(result.operations.set).toEqual({ add: 2, delete: 2 });
    expect(endpoints.kernelValue(vipKey())).toEqual(endpoint("10.0.1.3"));
    expect((await table.apply()).transactions).toBe(0);
    const listed = nft(undefined, "list", "table", "ip", "own");
    expect(listed).toMatch(/10\.96\.0\.1 \. tcp \. 80 \. 0x0*2 : 10\.0\.1\.3 \. 8080/);
    expect(listed).toContain('comment "where packets go"');
    expect(listed).toContain('comment "ranges"');
    expect(listed).toContain('comment "a chain"');
    expect(listed).toContain('comment "made for a test"');
    expect(listed).toContain("elements = { 0.0.0.0/8, 10.0.0.0/8,");
    expect(listed).toContain('"eth0" . 0x00004000');
    expect(listed).toContain("policy drop");
    expect(vip(1)).toHaveLength(12);
    await table.destroy();
  });
});

function vipKey(): Uint8Array {
  return indexed(1, 2);
}

describe("changes that nft makes to a table", () => {
  it.each([
    ["objects", []],
    ["a rule that uses them", ["insert rule ip own services counter name used quota name limited drop"]],
    [
      "a map of them",
      [
        'add map ip own objects { type mark : counter; elements = { 1 : "used" }; }',
        "insert rule ip own services counter name meta mark map @objects",
      ],
    ],
    ["a bound chain that uses them", ["insert rule ip own services jump { counter name used; jump draw-2; }"]],
  ])("%s: removed by the next apply", async (_what, lines) => {
    const { table, service } = serviceTable(world.kernel);
    service(1, 2);
    await table.apply();
    const list = (): string => nft(undefined, "-s", "list", "table", "ip", "own");
    const before = list();
    const objects = [
      "add counter ip own used",
      "add quota ip own limited { over 10 mbytes; }",
      "add limit ip own rare { rate 400/minute; }",
      'add ct helper ip own ftp { type "ftp" protocol tcp; }',
    ];
    nft([...objects, ...lines].join("\n"), "-f", "-");
    expect(list()).toContain("counter used");
    expect(await world.kernel.objects({ family: "ip", table: "own" })).toHaveLength(4);
    try {
      expect(await table.check()).toBe("different");
      const repaired = await table.apply();
      expect(repaired.operations.object).toEqual({ add: 0, delete: 4 });
      expect(repaired.drift?.changes).toContain("counter used: added");
      expect(list()).toBe(before);
      expect((await table.apply()).transactions).toBe(0);
    } finally {
      await table.destroy();
    }
  });
});
