/** Values of kube-proxy's flags as Go's pflag reads them; all that is wrong with them at once. */
import { parseDuration } from "../config/duration.js";
import { type FlagName, type FlagSpec, type FlagType, KUBE_PROXY_FLAGS } from "./kube-proxy-flags.js";

/** One `pattern=level` of --vmodule, as KubeProxyConfiguration writes it. */
export interface ModuleLevel {
  readonly filePattern: string;
  readonly verbosity: number;
}

interface ValueTypes {
  bool: boolean;
  string: string;
  /** As written. */
  duration: string;
  integer: number;
  number: number;
  strings: readonly string[];
  gates: Readonly<Record<string, boolean>>;
  levels: readonly ModuleLevel[];
  version: "true" | "false" | "raw" | `v${string}`;
}

type SpecOf<N extends FlagName> = Extract<(typeof KUBE_PROXY_FLAGS)[number], { readonly name: N }>;

/** The flags that were given, with their values. */
export type FlagValues = { readonly [N in FlagName]?: ValueTypes[SpecOf<N>["type"]] };

const SPECS: ReadonlyMap<string, FlagSpec> = new Map(KUBE_PROXY_FLAGS.map((spec) => [spec.name, spec]));

/** The flag of that name; undefined when kube-proxy has none. */
export function flagSpec(name: string): FlagSpec | undefined {
  return SPECS.get(name);
}

/** Why a value is not one of its type. */
class BadValue extends Error {}

/**
 * @param given name and value of each flag in the order of the command line; of a flag given twice the last counts,
 *   lists and key=value pairs add up.
 * @returns the values of the flags that have one, and a sentence for each text that is none.
 */
export function readFlags(given: readonly (readonly [name: string, value: string])[]): {
  readonly values: FlagValues;
  readonly problems: readonly string[];
} {
  const values: Record<string, ValueTypes[FlagType]> = {};
  const problems: string[] = [];
  for (const name of new Set(given.map(([flag]) => flag))) {
    const spec = flagSpec(name);
    if (spec === undefined) continue;
    const texts = given.filter(([flag]) => flag === name).map(([, text]) => text);
    const wrong = texts.flatMap((text) => problemOf(spec, text) ?? []);
    problems.push(...wrong);
    if (wrong.length === 0) values[name] = readValue(spec.type, texts);
  }
  return { values, problems };
}

/** What is wrong with the value of a flag, as a sentence; undefined: nothing. */
export function problemOf({ name, type }: FlagSpec, text: string): string | undefined {
  try {
    readValue(type, [text]);
    return undefined;
  } catch (error) {
    if (!(error instanceof BadValue)) throw error;
    return `--${name}=${text}: ${error.message}`;
  }
}

/** @param texts at least one */
function readValue(type: FlagType, texts: readonly string[]): ValueTypes[FlagType] {
  const last = texts.at(-1) ?? "";
  switch (type) {
    case "bool":
      return readBool(last);
    case "string":
      return last;
    case "integer":
      return readInteger(last);
    case "number":
      return readNumber(last);
    case "duration":
      return readDuration(last);
    case "strings":
      return texts.flatMap(readList);
    case "gates":
      return Object.fromEntries(texts.flatMap(readGates));
    case "levels":
      return texts.flatMap(readLevels);
    case "version":
      return readVersion(last);
  }
}

/** strconv.ParseBool. Throws for what is neither. */
export function readBool(text: string): boolean {
  if (["1", "t", "T", "TRUE", "true", "True"].includes(text)) return true;
  if (["0", "f", "F", "FALSE", "false", "False"].includes(text)) return false;
  throw new BadValue("must be true or false");
}

const INT32 = 2 ** 31;

function readInteger(text: string): number {
  const value = Number(text);
  if (!/^[+-]?(\d+|0[xX][0-9a-fA-F]+)$/.test(text) || value < -INT32 || value >= INT32) {
    throw new BadValue("must be a whole number of 32 bits");
  }
  return value;
}

function readNumber(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new BadValue("must be a number");
  return value;
}

function readDuration(text: string): string {
  if (parseDuration(text) === undefined) throw new BadValue('must be a duration such as "30s" or "1m30s"');
  return text;
}

/** pflag's StringSlice: one line of CSV. */
function readList(text: string): string[] {
  if (text === "") return [];
  return text.split(",").map((part) => part.replace(/^"(.*)"$/, "$1"));
}

function readGates(text: string): [gate: string, on: boolean][] {
  return text
    .split(",")
    .filter((part) => part.trim() !== "")
    .map((part) => {
      const [name = "", value, ...rest] = part.split("=");
      if (value === undefined || rest.length > 0 || name.trim() === "") {
        throw new BadValue(`${JSON.stringify(part)} is not of the form gate=true or gate=false`);
      }
      return [name.trim(), readBool(value.trim())];
    });
}

function readLevels(text: string): ModuleLevel[] {
  return text
    .split(",")
    .filter((part) => part !== "")
    .map((part) => {
      const [filePattern = "", level = "", ...rest] = part.split("=");
      if (filePattern === "" || !/^\d+$/.test(level) || rest.length > 0) {
        throw new BadValue(`${JSON.stringify(part)} is not of the form pattern=level`);
      }
      return { filePattern, verbosity: readInteger(level) };
    });
}

function readVersion(text: string): ValueTypes["version"] {
  if (text === "raw") return text;
  if (text.startsWith("v")) return text as `v${string}`;
  return readBool(text) ? "true" : "false";
}
