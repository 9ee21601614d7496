/** Writes the generated pages of docs/ and deploy/chart from the sources: node_modules/.bin/node test/reference/write.ts */
import { writeFileSync } from "node:fs";
import { pages } from "./pages.ts";

for (const [name, text] of Object.entries(pages())) writeFileSync(new URL(`../../${name}`, import.meta.url), text);
