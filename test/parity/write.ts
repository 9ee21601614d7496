/** Writes the table of test/parity/list.ts into the README: node test/parity/write.ts */
import { readFileSync, writeFileSync } from "node:fs";
import { withTable } from "./table.ts";

const readme = new URL("../../README.md", import.meta.url);
writeFileSync(readme, withTable(readFileSync(readme, "utf8")));
