/** Declares flags, and reads them in the syntax of Go's pflag, which kube-proxy uses. */
import { closest } from "../base/closest.js";
import { parseDuration } from "../config/duration.js";

/** Why a text is not a value of a flag. The message is the end of a sentence: "must be true or false". */
export class BadValue extends Error {}

/** One `pattern=level` of --vmodule, in the form of KubeProxyConfiguration. */
interface ModuleLevel {
  readonly filePattern: string;
  readonly verbosity: number;
}

const INT32 = 2 ** 31;

/** strconv.ParseBool. */
function readBool(text: string): boolean {
  if (["1", "t", "T", "TRUE", "true", "True"].includes(text)) return true;
  if (["0", "f", "F", "FALSE", "false", "False"].includes(text)) return false;
  throw new BadValue("must be true or false");
}

function readInteger(text: string): number {
  const value = Number(text);
  if (!/^[+-]?(\d+|0[xX][0-9a-fA-F]+)$/.test(text) || value < -INT32 || value >= INT32) {
    throw new BadValue("must be a 32-bit integer");
  }
  return value;
}

function readNumber(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new BadValue("must be a number");
  return value;
}

/** Checks a duration. Returns the text unchanged. */
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
  const parts = text.split(",").filter((part) => part.trim() !== "");
  return parts.map((part) => {
    const [name = "", value, ...rest] = part.split("=");
    if (value === undefined || rest.length > 0 || name.trim() === "") {
      throw new BadValue(`${JSON.stringify(part)} is not of the form gate=true or gate=false`);
    }
    return [name.trim(), readBool(value.trim())];
  });
}

function readLevels(text: string): ModuleLevel[] {
  const parts = text.split(",").filter((part) => part !== "");
  return parts.map((part) => {
    const [filePattern = "", level = "", ...rest] = part.split("=");
    if (filePattern === "" || !/^\d+$/.test(level) || rest.length > 0) {
      throw new BadValue(`${JSON.stringify(part)} is not of the form pattern=level`);
    }
    return { filePattern, verbosity: readInteger(level) };
  });
}

/** verflag: a boolean, "raw", or a version to report. */
function readVersion(text: string): "true" | "false" | "raw" | `v${string}` {
  if (text === "raw") return text;
  if (text.startsWith("v")) return text as `v${string}`;
  return readBool(text) ? "true" : "false";
}

/** If a flag is given more than once, the last value counts. */
const last =
  <T>(read: (text: string) => T) =>
  (texts: readonly string[]): T =>
    read(texts.at(-1) ?? "");

/** Readers of all values given for one flag. Lists and pairs accumulate. */
const READERS = {
  bool: last(readBool),
  string: last((text) => text),
  integer: last(readInteger),
  number: last(readNumber),
  duration: last(readDuration),
  strings: (texts: readonly string[]) => texts.flatMap(readList),
  gates: (texts: readonly string[]) => Object.fromEntries(texts.flatMap(readGates)),
  levels: (texts: readonly string[]) => texts.flatMap(readLevels),
  version: last(readVersion),
} satisfies Record<string, (texts: readonly string[]) => unknown>;

export type FlagType = keyof typeof READERS;
export type ValueOf<T extends FlagType> = ReturnType<(typeof READERS)[T]>;

export interface Flag {
  /** Without hyphens. */
  readonly name: string;
  /** One letter. */
  readonly short?: string;
  readonly type: FlagType;
  /** The value's name in the help. */
  readonly placeholder: string;
  readonly usage: string;
  /** Parses the value beyond its type. Throws `BadValue`. */
  readonly read?: (text: string) => unknown;
  /** All values, if they are few. */
  readonly choices?: readonly string[];
  /** The value if the flag is not given. */
  readonly default?: unknown;
  /** The default, for the help, if it is not the text of `default`. */
  readonly defaultText?: string;
  readonly required?: true;
  /** Name of a flag that cannot be given together with this one. */
  readonly conflicts?: string;
}

type Details = Partial<Omit<Flag, "name" | "short" | "placeholder" | "usage">>;
type NameIn<T> = T extends `${string}--${infer Rest}` ? (Rest extends `${infer N} ${string}` ? N : Rest) : never;
type TypeIn<T, M> = M extends { type: infer F } ? F : T extends `${string}>` ? "string" : "bool";
/** A flag with the types of its name and its value. */
type Declared<T, M> = Omit<Flag, "name" | "type" | keyof M> & { name: NameIn<T>; type: TypeIn<T, M> } & M;

/**
 * Declares a flag. It has a value, of type string unless `details` has another, if its term has a placeholder.
 * @param term as in the help: "-o, --output <format>".
 */
export function flag<const T extends string, const M extends Details = object>(
  term: T,
  usage: string,
  details?: M,
): Declared<T, M> {
  const [, short, name = "", placeholder = ""] = /^(?:-(.), )?--(\S+)(?: <(.+)>)?$/.exec(term) ?? [];
  const type = placeholder === "" ? "bool" : "string";
  return { name, short, type, placeholder, usage, ...details } as unknown as Declared<T, M>;
}

type CamelCase<S extends string> = S extends `${infer A}-${infer B}` ? `${A}${Capitalize<CamelCase<B>>}` : S;
type ValueIn<F> = F extends { read: (text: string) => infer T }
  ? T
  : F extends { choices: readonly (infer C)[] }
    ? C
    : F extends { type: infer Y extends FlagType }
      ? ValueOf<Y>
      : never;
type Always = { readonly default: unknown } | { readonly required: true };

/** The values of flags, by their names: "own-table" is `ownTable`. */
export type OptionsOf<F extends readonly Flag[]> = {
  readonly [G in F[number] as G extends Always ? CamelCase<G["name"]> : never]: ValueIn<G>;
} & { readonly [G in F[number] as G extends Always ? never : CamelCase<G["name"]>]?: ValueIn<G> };

/** Returns the values of these flags from the result of `readFlags`, with the defaults of flags that are not given. */
export function optionsOf<const F extends readonly Flag[]>(values: FlagsGiven["values"], flags: F): OptionsOf<F> {
  const options = flags.flatMap(({ name, default: initial }) => {
    const value = Object.hasOwn(values, name) ? values[name] : initial;
    return value === undefined ? [] : [[name.replaceAll(/-(.)/g, (_, letter: string) => letter.toUpperCase()), value]];
  });
  return Object.fromEntries(options) as OptionsOf<F>;
}

/** Returns the flag as in the help: "--cluster-cidr <cidr,...>". */
export function flagTerm({ name, short, type, placeholder }: Flag): string {
  const value = type === "bool" ? "" : type === "version" ? `[=${placeholder}]` : ` <${placeholder}>`;
  return `${short === undefined ? "" : `-${short}, `}--${name}${value}`;
}

export interface FlagsGiven {
  /** The valid values, by the names of their flags. */
  readonly values: Readonly<Record<string, unknown>>;
  /** One sentence per flag that is unknown, lacks its value, or has an invalid one. */
  readonly problems: readonly string[];
  /** The words that are neither flags nor their values. */
  readonly rest: readonly string[];
}

/**
 * Reads flags like pflag: `--flag=value`, `--flag value`, `-v4`, `-v=4`, `-v 4`, `-wA`. A boolean never takes the next word. Underscores in names count as
 * hyphens (component-base's WordSepNormalizeFunc). Empty words are ignored, as in kube-proxy.
 * @param isCommand flags may also follow other words. Otherwise, all words after the first one of these are not read.
 */
export function readFlags(argv: readonly string[], flags: readonly Flag[], isCommand = false): FlagsGiven {
  const long = new Map(flags.map((flag) => [flag.name, flag]));
  const short = new Map(flags.map((flag) => [flag.short, flag]));
  const given = new Map<Flag, string[]>();
  const rest: string[] = [];
  const problems: string[] = [];
  const words = [...argv];
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? "";
    const [, name = "", value] = /^--([^=]+)(?:=(.*))?$/s.exec(word) ?? [];
    const [, letter, equals, attached] = /^-([^=-])(=?)(.+)?$/s.exec(word) ?? [];
    const flag = letter === undefined ? long.get(name.replaceAll("_", "-")) : short.get(letter);
    if (flag !== undefined) {
      const bare = flag.type === "bool" || flag.type === "version" ? "true" : undefined;
      // "-wA" is "-w -A".
      const isGroup = bare !== undefined && attached !== undefined && equals === "";
      if (isGroup) words.splice(i + 1, 0, `-${attached}`);
      const text = value ?? (isGroup ? bare : (attached ?? bare ?? words[++i]));
      if (text === undefined) problems.push(`option '${flagTerm(flag)}' argument missing`);
      else given.set(flag, [...(given.get(flag) ?? []), text]);
    } else if (word === "--") {
      rest.push(...words.slice(i + 1));
      break;
    } else if (word.startsWith("-") && word !== "-") {
      problems.push(unknownFlag(word, flags));
    } else if (isCommand && word !== "") {
      rest.push(word);
    } else if (word !== "") {
      rest.push(...words.slice(i));
      break;
    }
  }
  const { values, problems: wrong } = valuesOf(given);
  problems.push(...wrong);
  for (const one of given.keys()) {
    const other = long.get(one.conflicts ?? "");
    if (other !== undefined && given.has(other))
      problems.push(`option '${flagTerm(one)}' cannot be used with option '${flagTerm(other)}'`);
  }
  const missing = flags.find((one) => one.required === true && !given.has(one));
  // A missing option may be mistyped, which is reported already.
  if (missing !== undefined && problems.length === 0)
    problems.push(`required option '${flagTerm(missing)}' not specified`);
  return { values, problems, rest };
}

function unknownFlag(word: string, flags: readonly Flag[]): string {
  const [name = ""] = word.replaceAll("_", "-").split("=");
  const names = flags.map((flag) => `--${flag.name}`);
  return `unknown option '${name}'${didYouMean(name, name.startsWith("--") ? names : [])}`;
}

/** Returns the end of a message about an unknown name. */
export function didYouMean(name: string, known: readonly string[]): string {
  const guess = closest(name, known);
  return guess === undefined ? "" : `\n(Did you mean ${guess}?)`;
}

function valuesOf(given: ReadonlyMap<Flag, readonly string[]>): Pick<FlagsGiven, "values" | "problems"> {
  const values: Record<string, unknown> = {};
  const problems: string[] = [];
  for (const [flag, texts] of given) {
    const wrong = texts.flatMap((text) => {
      const reason = problemOf(flag, text);
      return reason === undefined ? [] : `--${flag.name}=${text}: ${reason}`;
    });
    problems.push(...wrong);
    if (wrong.length === 0) values[flag.name] = readValue(flag, texts);
  }
  return { values, problems };
}

/** @param texts the values of one flag, at least one. */
function readValue({ type, read, choices }: Readable, texts: readonly string[]): unknown {
  const value = READERS[type](texts);
  const text = texts.at(-1) ?? "";
  if (choices?.includes(text) === false) throw new BadValue(`must be one of ${choices.join(", ")}`);
  return read === undefined ? value : read(text);
}

type Readable = Pick<Flag, "type" | "read" | "choices">;

/** Says why the text is not a value of the flag: "must be true or false". Returns undefined if it is one. */
export function problemOf(flag: Readable, text: string): string | undefined {
  try {
    readValue(flag, [text]);
    return undefined;
  } catch (error) {
    if (!(error instanceof BadValue)) throw error;
    return error.message;
  }
}
