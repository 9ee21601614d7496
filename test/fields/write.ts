/** Writes the fields that @kubernetes/client-node's models have: node_modules/.bin/node test/fields/write.ts */
import { writeFileSync } from "node:fs";
import { knownFieldsFile } from "./list.ts";

writeFileSync(new URL("../../src/objects/manifests/known-fields.ts", import.meta.url), knownFieldsFile());
