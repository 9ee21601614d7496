/** Generated pages of the documentation. */
import { globSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { pages } from "../../reference/pages.ts";

test.each(Object.entries(pages()))("%s is up to date (`node test/reference/write.ts` writes it)", (name, text) => {
  expect(readFileSync(new URL(`../../../${name}`, import.meta.url), "utf8")).toBe(text);
});

test("docs/metrics.md has every metric of the sources", () => {
  const sources = globSync("src/**/*.ts", { cwd: new URL("../../..", import.meta.url) }).map((file) =>
    readFileSync(new URL(`../../../${file}`, import.meta.url), "utf8"),
  );
  const names = new Set(sources.flatMap((text) => text.match(/(?<=["`])nftproxier_[a-z_]+(?=["`])/g) ?? []));
  expect(names.size).toBeGreaterThan(20);
  const page = readFileSync(new URL("../../../docs/metrics.md", import.meta.url), "utf8");
  expect([...names].filter((name) => !page.includes(`| \`${name}\` |`))).toEqual([]);
});
