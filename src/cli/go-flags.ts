/** Flags as Go's pflag takes, reads and prints them; all that is wrong with them at once. */
import { parseDuration } from "../config/duration.js";
import { type FlagName, type FlagSpec, type FlagType, KUBE_PROXY_FLAGS, type TypeOfFlag } from "./kube-proxy-flags.js";

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

/** The flags that were given, with their values. */
export type FlagValues = { readonly [N in FlagName]?: ValueTypes[TypeOfFlag<N>] };

const SPECS: ReadonlyMap<string, FlagSpec> = new Map(KUBE_PROXY_FLAGS.map((spec) => [spec.name, spec]));

/** The flag of that name; undefined when kube-proxy has none. */
export function flagSpec(name: string): FlagSpec | undefined {
  return SPECS.get(name);
}

/**
 * Rewrites the flags ahead of the first sub-command: `--flag value` becomes `--flag=value`, `--bool` becomes
 * `--bool=true` (a boolean never takes the next word), `-v4`, `-v=4` and `-v 4` become `--v=4`, underscores in names
 * become hyphens (component-base's WordSepNormalizeFunc), and empty words are dropped, as kube-proxy drops them.
 * @param typeOf type of the flag of that name; undefined when there is none.
 * @returns the words, and the flags ahead of the first sub-command that there are not, without their values.
 */
export function fromGo(
  argv: readonly string[],
  typeOf: (name: string) => FlagType | undefined,
): { readonly words: readonly string[]; readonly unknown: readonly string[] } {
  const words: string[] = [];
  const unknown: string[] = [];
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i] ?? "";
    if (word === "") continue;
    if (!word.startsWith("-") || word === "-" || word === "--") return { words: [...words, ...argv.slice(i)], unknown };
    const [, written, value] = /^--([^=]+)(=.*)?$/s.exec(longVerbosity(word)) ?? [];
    const name = written?.replaceAll("_", "-");
    const type = name === undefined ? undefined : typeOf(name);
    if (name === undefined || type === undefined) {
      if (name !== undefined && name !== "help") unknown.push(`--${name}`);
      words.push(word);
    } else if (value !== undefined) {
      words.push(`--${name}${value}`);
    } else if (type === "bool" || type === "version") {
      words.push(`--${name}=true`);
    } else if (i + 1 < argv.length) {
      words.push(`--${name}=${argv[++i] ?? ""}`);
    } else {
      words.push(`--${name}`);
    }
  }
  return { words, unknown };
}

/**
 * The same behind a command's name: flags of kube-proxy's are spelled out wherever they stand, and other words are kept.
 * Their values may be words of their own.
 */
export function fromGoBehind(argv: readonly string[]): readonly string[] {
  return argv.map((word) => {
    const [, written, value] = /^--([^=]+)(=.*)?$/s.exec(longVerbosity(word)) ?? [];
    const spec = written === undefined ? undefined : flagSpec(written.replaceAll("_", "-"));
    if (spec === undefined) return word;
    return `--${spec.name}${value ?? (spec.type === "bool" || spec.type === "version" ? "=true" : "")}`;
  });
}

/** `-v`, the only flag with a short form that takes a value, in its long form. */
function longVerbosity(word: string): string {
  const value = /^-v=?(.*)$/s.exec(word)?.[1];
  if (value === undefined) return word;
  return word === "-v" ? "--v" : `--v=${value}`;
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
export function problemOf({ name, type }: Pick<FlagSpec, "name" | "type">, text: string): string | undefined {
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

const ZERO: Readonly<Record<FlagType, string>> = {
  bool: "false",
  string: "",
  integer: "0",
  number: "0",
  duration: "0s",
  strings: "[]",
  gates: "",
  levels: "",
  version: "false",
};

/** A line "name=value" for every flag, given or not, in the order of their names: what /flagz shows. */
export function toFlagz(flags: FlagValues): string {
  const values = KUBE_PROXY_FLAGS.map((spec): [name: string, value: string] => {
    const value = flags[spec.name as FlagName];
    return [spec.name, value === undefined ? spec.initial || ZERO[spec.type] : show(value)];
  });
  const sorted = [...values, ["help", "false"] as const].sort(([a], [b]) => (a < b ? -1 : 1));
  return sorted.map(([name, value]) => `${name}=${value.replaceAll("\n", "\\n")}\n`).join("");
}

/** As Go's flags print themselves. */
function show(value: NonNullable<FlagValues[FlagName]>): string {
  if (typeof value !== "object") return String(value);
  if (!Array.isArray(value)) {
    const gates = Object.entries(value).map(([gate, on]) => `${gate}=${String(on)}`);
    return gates.sort().join(",");
  }
  const [first] = value;
  if (typeof first !== "object") return `[${value.join(",")}]`;
  return value.map(({ filePattern, verbosity }) => `${filePattern}=${verbosity}`).join(",");
}
