/** Writes the list of fields in @kubernetes/client-node's models: node_modules/.bin/node test/fields/write.ts */
import { writeFileSync } from "node:fs";
import { knownFieldsFile } from "./list.ts";

writeFileSync(new URL("../../src/objects/manifests/known-fields.ts", import.meta.url), knownFieldsFile());
