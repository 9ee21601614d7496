/** docs/nft-to-statements.md: each line of nft, and the library's statement beside it, give the same list. */
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Table, type Statement } from "../../src/nft/nft-exports.js";
import type { Family } from "../../src/nft/kernel/kernel.js";
import type { KernelWorld } from "../support/kernel-world.ts";
import { makeNamespace, openReal, type Namespace } from "../support/real-kernel.ts";
import { nft, runNft } from "./table/load-rules.ts";

const page = readFileSync(new URL("../../docs/nft-to-statements.md", import.meta.url), "utf8");

interface Row {
  readonly nft: string;
  readonly code: string;
}

const sections = page
  .split(/^## /m)
  .slice(1)
  .map((text) => ({
    title: text.split("\n", 1)[0],
    rows: [...text.matchAll(/^\| .* \| `(.*)` \| `(.*)` \|$/gm)].map(([, line, code]): Row => ({ nft: line, code })),
  }));
const declarations = sections[0]?.rows ?? [];
const rulesOf = (family: Family): readonly Row[] =>
  sections
    .slice(1)
    .filter(({ title }) => (/of family `(\w+)`/.exec(title)?.[1] ?? "inet") === family)
    .flatMap(({ rows }) => rows);

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

/** nft's list of each object in the table, by kind and name. */
function listed(family: Family, table: string): Map<string, string> {
  const { stderr, stdout } = runNft(namespace, ["-s", "list", "table", family, table]);
  expect(stderr).toBe("");
  return new Map([...stdout.matchAll(/^\t(\w+ \w+) \{\n(.*?)^\t\}/gms)].map(([, name, text]) => [name, text]));
}

test("the page has its rows", () => {
  expect(sections.flatMap(({ rows }) => rows).length).toBeGreaterThan(80);
  const rows = page.split("\n").filter((line) => /^\| .*`/.test(line));
  expect(sections.flatMap(({ rows }) => rows)).toHaveLength(rows.length);
});

describe.each(["inet", "arp", "bridge", "netdev"] as const)("in a table of family %s", (family) => {
  const rules = rulesOf(family);
  const declared = family === "inet" ? declarations : [];
  let byNft: Map<string, string>;
  let byTable: Map<string, string>;

  beforeAll(async () => {
    const lines = rules.map(({ nft: line }) => `\t\t${line}`);
    const chain = `\tchain rules {\n${lines.join("\n")}\n\t}\n`;
    const objects = declared.map(({ nft: line }) => `\t${line}\n`).join("");
    expect(nft(namespace, `table ${family} by-nft {\n${objects}${chain}}\n`)).toBeUndefined();

    const table = new Table(world.kernel, { family, name: "by-table" });
    // The page's code has no types. The library checks it at run time.
    for (const { code } of declared)
      await (runInThisContext(`async (table) => { ${code} }`) as (table: Table) => Promise<void>)(table);
    const statements = rules.map(({ code }) => runInThisContext(`[${code}]`) as Statement[]);
    table.chain({ chain: "rules", rules: statements.map((each) => ({ statements: each })) });
    await table.apply();
    byNft = listed(family, "by-nft");
    byTable = listed(family, "by-table");
  });

  test("all objects are declared", () => {
    expect([...byTable.keys()].toSorted()).toEqual([...byNft.keys()].toSorted());
    expect(byNft.size).toBe(declared.length + 1);
  });

  test.each(declared.map((row) => [row.nft, row] as const))("%s", (_, { nft: line }) => {
    const [, name = ""] = /^(\w+ \w+)/.exec(line) ?? [];
    expect(byTable.get(name)).toBe(byNft.get(name));
  });

  test.each(rules.map((row, index) => [row.nft, index] as const))("%s", (_, index) => {
    const [ours, theirs] = [byTable, byNft].map((blocks) => (blocks.get("chain rules") ?? "").split("\n")[index]);
    expect(ours).toMatch(/\S/);
    expect(ours).toBe(theirs);
  });
});
