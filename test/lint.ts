/**
 * `npm run lint` and `npm run format`: every check of the sources, in both languages.
 *
 *   node test/lint.ts [--cpp] [--fix]
 */
import { parseArgs } from "node:util";
import { checks, failing } from "./checks.ts";

const { values } = parseArgs({
  options: { cpp: { type: "boolean", default: false }, fix: { type: "boolean", default: false } },
});
const list = checks({ cpp: values.cpp ? "all" : "none", fix: values.fix });
// Fixers of the same files run one after the other.
const failed = await failing(list, values.fix ? 1 : undefined);
console.log(failed.length === 0 ? "all checks passed" : `failed: ${failed.map((check) => check.name).join(", ")}`);
process.exitCode = failed.length === 0 ? 0 : 1;
