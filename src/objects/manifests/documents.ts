/** Parses the text of a manifest file into plain values, and locates errors. */
import { isUtf8 } from "node:buffer";
import type { Document, LineCounter, ScalarTag } from "yaml";
import { TimeSlice } from "../../base/time-slice.js";
import { reasonOf } from "../../base/unknown.js";
import { GO_INTEGERS, OLD_BOOLEANS } from "../../base/yaml-scalars.js";
import { JsonListReader } from "../json-list.js";

/** Why a file cannot be used. Line and column of the place, from 1, if there is one. */
export class FileFault extends Error {
  readonly code = "EFILE";

  /** @param remedy how to fix it, if correcting the place is not enough. */
  constructor(
    reason: string,
    readonly line?: number,
    readonly column?: number,
    readonly remedy?: string,
  ) {
    super(reason);
    this.name = "FileFault";
  }
}

/**
 * Bytes of JSON to parse at once. This takes much less time than the event loop may be held, and V8 does not treat the string
 * as a large object.
 */
const PARSED_AT_ONCE = 1 << 18;
/**
 * Maximum bytes of one YAML document. It is parsed at once, which takes a second or two for a list of this size. The library
 * reads about 1 MB of short lines per second, and needs sixty times the text in memory. A mounted ConfigMap has at most 1 MiB
 * in total.
 */
const MAX_YAML_DOCUMENT = 2 << 20;
/**
 * Maximum bytes of JSON that are parsed at once: a value other than a list of objects, or one object of such a list (the API
 * server accepts 3 MiB).
 */
const MAX_JSON_VALUE = 16 << 20;

export type Syntax = "json" | "yaml";

/** The values of a file, without empty documents. */
interface FileValues {
  readonly values: unknown[];
  /** Actual syntax: a YAML file may contain JSON. */
  readonly syntax: Syntax;
}

/** The values of a file's documents, without empty documents. `timeSlice` starts again. Throws `FileFault`. */
export async function readDocuments(content: Buffer, format: Syntax, timeSlice = new TimeSlice()): Promise<unknown[]> {
  return (await readValues(utf8Of(content), format, timeSlice)).values;
}

/** Like `readDocuments`, for a body that `utf8Of` returned. */
export async function readValues(body: Buffer, format: Syntax, timeSlice = new TimeSlice()): Promise<FileValues> {
  timeSlice.begin();
  if (format === "json") return { values: await readJson(body, timeSlice), syntax: "json" };
  if (beginsAsJson(body)) {
    try {
      // As in kubectl, JSON values may follow one another without a separator, which YAML does not allow.
      return { values: await readJson(body, timeSlice), syntax: "json" };
    } catch (error) {
      // It is a YAML flow mapping, or invalid in both syntaxes: let the YAML parser decide.
      if (!(error instanceof FileFault)) throw error;
    }
  }
  checkDocuments(body);
  return { values: await readYaml(body.toString(), timeSlice), syntax: "yaml" };
}

const SAVE_AS_UTF8 = "save it as UTF-8";

/**
 * Converts the text of a file to UTF-8 without a byte order mark, if it is UTF-8 or UTF-16. Throws `FileFault` for other
 * encodings.
 */
export function utf8Of(content: Buffer): Buffer {
  const mark = content.subarray(0, 4).toString("hex");
  if (mark === "fffe0000" || mark === "0000feff")
    throw new FileFault("is UTF-32, which is not supported", 1, 1, SAVE_AS_UTF8);
  if (mark.startsWith("fffe")) return fromUtf16(content.subarray(2));
  if (mark.startsWith("feff")) return fromUtf16(content.subarray(2), true);
  if (content.subarray(0, 4).includes(0)) {
    throw new FileFault("has no byte order mark, and looks like UTF-16 or UTF-32", 1, 1, SAVE_AS_UTF8);
  }
  if (!isUtf8(content)) throw new FileFault("is not UTF-8 text", firstLineNotUtf8(content), 1, SAVE_AS_UTF8);
  return mark.startsWith("efbbbf") ? content.subarray(3) : content;
}

function fromUtf16(body: Buffer, bigEndian = false): Buffer {
  const cutOff = body.length % 2 !== 0;
  const text = cutOff ? "" : (bigEndian ? Buffer.from(body).swap16() : body).toString("utf16le");
  if (cutOff || !text.isWellFormed()) {
    throw new FileFault("begins as UTF-16, but contains invalid UTF-16", 1, 1, SAVE_AS_UTF8);
  }
  return Buffer.from(text);
}

function firstLineNotUtf8(content: Buffer): number {
  let line = 1;
  for (let from = 0; ; line++) {
    const end = content.indexOf(0x0a, from);
    // In UTF-8, no byte of a multi-byte character is a line feed.
    if (end < 0 || !isUtf8(content.subarray(from, end))) return line;
    from = end + 1;
  }
}

function beginsAsJson(body: Buffer): boolean {
  return /^\s*\{/.test(body.toString("latin1", 0, 512));
}

/** Throws `FileFault` if a document is too large to be parsed at once. */
function checkDocuments(body: Buffer): void {
  for (let at = 0; body.length - at > MAX_YAML_DOCUMENT;) {
    const end = documentEnd(body, at);
    if (end - at > MAX_YAML_DOCUMENT) {
      const reason = `a YAML document of ${mebibytes(end - at)} exceeds the limit of ${mebibytes(MAX_YAML_DOCUMENT)}`;
      const remedy = 'split it into documents with lines "---", or into several files, or write it as JSON';
      throw new FileFault(reason, lineAt(body, at), 1, remedy);
    }
    at = end;
  }
}

/** Start of the next document: after a line "---", which may continue after a space. */
function documentEnd(body: Buffer, from: number): number {
  for (let at = body.indexOf("\n---", from); at >= 0; at = body.indexOf("\n---", at + 1)) {
    const next = body[at + 4];
    if (next === undefined || " \t\r\n".includes(String.fromCharCode(next))) return at + 1;
  }
  return body.length;
}

function lineAt(body: Buffer, offset: number): number {
  let line = 1;
  for (let at = body.indexOf(0x0a); at >= 0 && at < offset; at = body.indexOf(0x0a, at + 1)) line++;
  return line;
}

/** Formats a size for people. */
export function mebibytes(bytes: number): string {
  return `${Number((bytes / (1 << 20)).toFixed(1))} MiB`;
}

/**
 * Reads text that is a single value, with the items of a list one by one. Returns undefined if it is several values, not JSON,
 * or a list of other things than objects. It never makes a string of a whole list. V8 returns such large strings to the system
 * in the pause at the end of a collection, which takes 15 ms for 150 MB.
 */
async function readLargeJson(text: Buffer, timeSlice: TimeSlice): Promise<unknown> {
  const reader = new JsonListReader(MAX_JSON_VALUE);
  const items: unknown[] = [];
  try {
    for (const item of reader.push(text)) {
      if (timeSlice.spent) await timeSlice.yield();
      checkKeys(item, text, reader.offset, reader.endOffset);
      items.push(item);
      if (timeSlice.spent) await timeSlice.yield();
    }
    const value = reader.end();
    if (reader.found) return Object.assign(value as object, { items });
    checkKeys(value, text, 0, text.length);
    return value;
  } catch (error) {
    if (error instanceof RangeError) throw tooLarge(text, reader.offset);
    if (!(error instanceof SyntaxError)) throw error;
    if (text.length <= MAX_JSON_VALUE) return undefined;
    // The text is too large to search for the place character by character.
    const where = reader.found ? `items[${items.length}]` : "the text around the list of items";
    throw new FileFault(`${where}: ${error.message}`, lineAt(text, reader.offset), 1);
  }
}

function tooLarge(text: Buffer, offset: number): FileFault {
  const reason = `a JSON value exceeds the limit of ${mebibytes(MAX_JSON_VALUE)}`;
  const remedy = 'write it as a List of smaller objects ("items"), or split it into several files';
  return new FileFault(reason, lineAt(text, offset), 1, remedy);
}

async function readJson(body: Buffer, timeSlice: TimeSlice): Promise<unknown[]> {
  const list = body.length > PARSED_AT_ONCE ? await readLargeJson(body, timeSlice) : undefined;
  if (list !== undefined) return [list];
  const values = parseJson(body.toString());
  checkKeys(values, body, 0, body.length);
  return values;
}

/** Reads one value, or several in sequence, as kubectl does. */
function parseJson(text: string): unknown[] {
  try {
    return [JSON.parse(text)];
  } catch {
    // The error does not always contain the position. Find it, or the second value, below.
  }
  const starts: number[] = [];
  for (const { at, around } of jsonSteps(text)) if (around.length === 0) starts.push(at);
  return starts.map((at, i) => JSON.parse(text.slice(at, starts[i + 1])) as unknown);
}

function faultAt(text: string, offset: number): FileFault {
  const before = text.slice(0, offset);
  const line = before.split("\n").length;
  const column = offset - before.lastIndexOf("\n");
  const found =
    offset < text.length ? `${JSON.stringify(text[offset])} is not expected here` : "the file ends too early";
  return new FileFault(found, line, column);
}

/**
 * Throws `FileFault` if an object has a key twice, because JSON.parse silently takes the last one. To save time, it compares
 * the number of keys in the value with the number of colons in the text. It tokenizes the text only if they differ.
 */
function checkKeys(value: unknown, text: Buffer, from: number, end: number): void {
  if (colonsIn(text, from, end) === keysIn(value)) return;
  const part = text.toString("utf8", from, end);
  const { key, at } = repeatedKey(part) ?? { key: '""', at: 0 };
  const line = lineAt(text, from) + part.slice(0, at).split("\n").length - 1;
  throw new FileFault(`an object has the key ${key} twice`, line, at - part.lastIndexOf("\n", at));
}

/** Colons outside strings. */
function colonsIn(text: Buffer, from: number, end: number): number {
  let count = 0;
  let inString = false;
  for (let at = from; at < end; at++) {
    const byte = text[at];
    if (byte === 0x22) inString = !inString;
    else if (inString && byte === 0x5c) at++;
    else if (!inString && byte === 0x3a) count++;
  }
  return count;
}

/** Keys at all levels. Uses its own stack, because values may be nested as deeply as a file is long. */
function keysIn(value: unknown): number {
  let count = 0;
  const open: unknown[] = [value];
  for (let one = open.pop(); one !== undefined; one = open.pop()) {
    if (Array.isArray(one)) {
      for (const item of one as unknown[]) if (typeof item === "object" && item !== null) open.push(item);
    } else if (typeof one === "object" && one !== null) {
      for (const key in one) {
        count++;
        const field = (one as Record<string, unknown>)[key];
        if (typeof field === "object" && field !== null) open.push(field);
      }
    }
  }
  return count;
}

/** The first repeated key in a valid text. */
function repeatedKey(text: string): { readonly key: string; readonly at: number } | undefined {
  const known = new WeakMap<JsonPlace, Set<string | number>>();
  for (const { token, at, key, around } of jsonSteps(text)) {
    const inside = around.at(-1);
    if (!key || inside === undefined) continue;
    const keys = known.get(inside) ?? new Set();
    if (keys.has(inside.next)) return { key: token, at };
    known.set(inside, keys.add(inside.next));
  }
  return undefined;
}

function skipSpace(text: string, at: number): number {
  while (at < text.length && " \t\r\n".includes(text[at] ?? "")) at++;
  return at;
}

const JSON_TOKEN =
  /[[\]{}:,]|"(?:[^"\\\p{Cc}]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[\x7f-\x9f])*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|(?:true|false|null)(?!\w)/uy;

/** An object or list around a step, and the key or position of its next value. */
interface JsonPlace {
  readonly list: boolean;
  next: string | number;
}

/** A key, or the first token of a value. */
interface JsonStep {
  readonly token: string;
  readonly at: number;
  readonly key: boolean;
  /** The outermost first. Valid until the next step. */
  readonly around: readonly JsonPlace[];
}

/**
 * Walks through one JSON value, or several in sequence. Throws `FileFault` at the first error. Uses its own stack, so that a
 * file of a million brackets cannot overflow ours.
 */
export function* jsonSteps(text: string): Generator<JsonStep, void> {
  const around: JsonPlace[] = [];
  let expected: "value" | "value or end" | "key" | "key or end" | "colon" | "comma or end" = "value";
  for (let at = skipSpace(text, 0), end; at < text.length || around.length > 0; at = skipSpace(text, end)) {
    JSON_TOKEN.lastIndex = at;
    const token = JSON_TOKEN.exec(text)?.[0] ?? "";
    end = at + token.length;
    const inside = around.at(-1);
    const closes = inside !== undefined && token === (inside.list ? "]" : "}");
    if (closes && expected.endsWith("end")) {
      around.pop();
      expected = "comma or end";
    } else if (expected === "comma or end" && token === "," && inside !== undefined) {
      if (inside.list) inside.next = Number(inside.next) + 1;
      expected = inside.list ? "value" : "key";
    } else if (expected === "colon" && token === ":") {
      expected = "value";
    } else if (expected.startsWith("key") && token.startsWith('"') && inside !== undefined) {
      inside.next = JSON.parse(token) as string;
      yield { token, at, key: true, around };
      expected = "colon";
    } else if (expected.startsWith("value") && token !== "" && !"]}:,".includes(token)) {
      yield { token, at, key: false, around };
      const list = token === "[";
      if (list || token === "{") around.push({ list, next: list ? 0 : "" });
      expected = list ? "value or end" : token === "{" ? "key or end" : "comma or end";
    } else {
      throw faultAt(text, at);
    }
    if (around.length === 0) expected = "value";
  }
}

/** Boolean fields that the program reads. */
const BOOLEAN_FIELDS = new Set(["ready", "serving", "terminating"]);

/**
 * An unquoted "no" or similar word. Where kubectl expects a boolean, it is one. Elsewhere it stays text, although kubectl would
 * reject the object.
 */
class OldBoolean {
  constructor(private readonly text: string) {}

  /** For JSON.stringify. */
  toJSON(field: string): unknown {
    if (!BOOLEAN_FIELDS.has(field)) return this.text;
    return /^(?:y|on)/i.test(this.text);
  }
}

const OLD_WORDS: ScalarTag = {
  ...OLD_BOOLEANS,
  identify: (value) => value instanceof OldBoolean,
  resolve: (text) => new OldBoolean(text),
};

async function readYaml(text: string, timeSlice: TimeSlice): Promise<unknown[]> {
  // The library takes 9 MB, which JSON does not need.
  const { Composer, LineCounter, Parser } = await import("yaml");
  const lines = new LineCounter();
  const parser = new Parser(lines.addNewLine);
  const composer = new Composer({
    lineCounter: lines,
    prettyErrors: false,
    stringKeys: true,
    merge: true,
    logLevel: "error",
    customTags: (tags) => [GO_INTEGERS, ...tags, OLD_WORDS],
  });
  const values: unknown[] = [];
  const add = (document: Document.Parsed) => {
    const value = toValue(document, lines);
    if (value !== null) values.push(value);
  };
  for (const token of parser.parse(text)) {
    for (const document of composer.next(token)) add(document);
    if (timeSlice.spent) await timeSlice.yield();
  }
  for (const document of composer.end()) add(document);
  return values;
}

function toValue(document: Document.Parsed, lines: LineCounter): unknown {
  const fault = (reason: string, offset: number) => {
    const { line, col } = lines.linePos(offset);
    return new FileFault(reason, Math.max(1, line), Math.max(1, col));
  };
  const [error] = document.errors;
  if (error !== undefined) throw fault(error.message, error.pos[0]);
  try {
    const value: unknown = document.toJS({ maxAliasCount: 1000 });
    // The round trip resolves the old booleans and rejects values that JSON cannot express. It also copies the strings, which
    // would otherwise keep the file's text in memory.
    return value === undefined || value === null ? null : JSON.parse(JSON.stringify(value));
  } catch (thrown) {
    throw fault(reasonOf(thrown), document.range[0]);
  }
}
