/** Parses the text of a configuration file as plain data. */
import { isScalar, LineCounter, parseAllDocuments } from "yaml";
import { GO_INTEGERS, OLD_BOOLEANS } from "../base/yaml-scalars.js";
import { KIND } from "./schema.js";
import { ConfigError, type ConfigProblem } from "./config-error.js";

/**
 * Fields without a value are ignored: they get their defaults, like missing fields.
 * @param repeated receives the fields that occur twice, of which the last one counts.
 * @throws {ConfigError} with line and column of the parse error.
 */
export function parseText(text: string, file: string, repeated: ConfigProblem[]): unknown {
  const lines = new LineCounter();
  const documents = parseAllDocuments(text, {
    lineCounter: lines,
    prettyErrors: false,
    stringKeys: true,
    merge: true,
    logLevel: "error",
    customTags: (tags) => [GO_INTEGERS, ...tags, OLD_BOOLEANS],
    uniqueKeys: (a, b) => {
      if (isScalar(a) && isScalar(b) && a.value === b.value && a.value !== "<<") {
        const { line } = lines.linePos(b.range[0]);
        repeated.push({ path: String(b.value), message: `is set twice (line ${line}); the last value is used` });
      }
      return false;
    },
  });
  const list = Array.isArray(documents) ? documents : [];
  const errors = list.flatMap((document) => document.errors);
  if (errors.length > 0) {
    const problems = errors.map((error): ConfigProblem => {
      const { line, col } = lines.linePos(error.pos[0]);
      return { path: "", message: `line ${line}, column ${col}: ${error.message}` };
    });
    throw new ConfigError(file, problems);
  }
  const values = list.map((document): unknown => document.toJS()).filter((value) => value !== null);
  if (values.length === 1) return withoutNulls(values[0]);
  const message =
    values.length === 0 ? `is empty; expected a ${KIND}` : `contains ${values.length} documents; expected one`;
  throw new ConfigError(file, [{ path: "", message }]);
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, field]) => field !== null);
  return Object.fromEntries(entries.map(([key, field]) => [key, withoutNulls(field)]));
}
