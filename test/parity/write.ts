/** Writes the tables of test/parity/list.ts and later.ts into docs/parity.md: node test/parity/write.ts */
import { readFileSync, writeFileSync } from "node:fs";
import { withTables } from "./table.ts";

const document = new URL("../../docs/parity.md", import.meta.url);
writeFileSync(document, withTables(readFileSync(document, "utf8")));
