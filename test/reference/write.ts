/** Writes docs/fields.md, docs/metrics.md and docs/statements.md from the sources: node_modules/.bin/node test/reference/write.ts */
import { writeFileSync } from "node:fs";
import { pages } from "./pages.ts";

for (const [name, text] of Object.entries(pages())) writeFileSync(new URL(`../../docs/${name}`, import.meta.url), text);
