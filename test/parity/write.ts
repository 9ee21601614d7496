/** Writes the table of test/parity/list.ts into docs/parity.md: node test/parity/write.ts */
import { readFileSync, writeFileSync } from "node:fs";
import { withTable } from "./table.ts";

const document = new URL("../../docs/parity.md", import.meta.url);
writeFileSync(document, withTable(readFileSync(document, "utf8")));
