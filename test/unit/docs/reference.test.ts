/** Generated pages of the library's documentation. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { pages } from "../../reference/pages.ts";

test.each(Object.entries(pages()))("docs/%s is up to date (`node test/reference/write.ts` writes it)", (name, text) => {
  expect(readFileSync(new URL(`../../../docs/${name}`, import.meta.url), "utf8")).toBe(text);
});
