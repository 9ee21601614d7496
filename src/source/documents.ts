/** From the text of a manifest file to plain values, with the place of what is wrong. */
import type { Document, LineCounter } from "yaml";
import { Breather } from "../base/turns.js";
import { reasonOf } from "../base/unknown.js";
import { JsonListReader } from "./json-list.js";

/** A file that cannot be read as what it claims to be. Lines and columns count from 1. */
export class SyntaxFault extends Error {
  readonly code = "ESYNTAX";
  readonly line: number;
  readonly column: number;

  constructor(reason: string, line: number, column: number) {
    super(reason);
    this.name = "SyntaxFault";
    this.line = line;
    this.column = column;
  }
}

/** Bytes of JSON that are parsed in well below the time that the event loop may be held, and make a string that is no large object in V8's heap. */
const PARSED_AT_ONCE = 1 << 18;
const BYTE_ORDER_MARK = Buffer.from("\ufeff");

/** The values of a file's documents, empty documents left out. `content` is UTF-8. `breather` begins anew. Throws `SyntaxFault`. */
export async function readDocuments(
  content: Buffer,
  format: "json" | "yaml",
  breather = new Breather(),
): Promise<unknown[]> {
  breather.begin();
  const marked = content.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK);
  const body = marked ? content.subarray(BYTE_ORDER_MARK.length) : content;
  if (format === "yaml") return readYaml(body.toString(), breather);
  const list = body.length > PARSED_AT_ONCE ? await readLargeJson(body, breather) : undefined;
  return list === undefined ? readJson(body.toString()) : [list];
}

/**
 * The value that is all of the text, the items of a list one by one. Undefined: it is more than one value, or not JSON, or a list of
 * something else than objects. The text of a list is never a string as a whole: V8 gives such large strings back to the system in
 * the pause that ends a collection, and 150 MB of them take 15 ms.
 */
async function readLargeJson(text: Buffer, breather: Breather): Promise<unknown> {
  const reader = new JsonListReader();
  const items: unknown[] = [];
  try {
    for (const item of reader.push(text)) {
      items.push(item);
      if (breather.due) await breather.rest();
    }
    const value = reader.end();
    return reader.found ? Object.assign(value as object, { items }) : value;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** One value, or several one after another, as kubectl takes them. */
function readJson(text: string): unknown[] {
  try {
    return [JSON.parse(text)];
  } catch {
    // Its message does not always say where: find the place, or the second value, below.
  }
  const values: unknown[] = [];
  for (let at = skipSpace(text, 0); at < text.length;) {
    const end = scanValue(text, at);
    if (end < 0) throw faultAt(text, ~end);
    values.push(JSON.parse(text.slice(at, end)) as unknown);
    at = skipSpace(text, end);
  }
  return values;
}

function faultAt(text: string, offset: number): SyntaxFault {
  const before = text.slice(0, offset);
  const line = before.split("\n").length;
  const column = offset - before.lastIndexOf("\n");
  const found =
    offset < text.length ? `${JSON.stringify(text[offset])} is not expected here` : "the file ends too early";
  return new SyntaxFault(found, line, column);
}

function skipSpace(text: string, at: number): number {
  while (at < text.length && " \t\r\n".includes(text[at] ?? "")) at++;
  return at;
}

const JSON_TOKEN =
  /[[\]{}:,]|"(?:[^"\\\p{Cc}]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[\x7f-\x9f])*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|(?:true|false|null)(?!\w)/uy;

/**
 * End of the JSON value at `start`, or the bitwise complement of the offset of the first thing that is wrong. Keeps its
 * own stack: a file of a million brackets is no reason to run out of ours.
 */
function scanValue(text: string, start: number): number {
  const open: ("{" | "[")[] = [];
  type State = "value" | "value or end" | "key" | "key or end" | "colon" | "comma or end";
  let state: State = "value";
  for (let at = start; ; at = skipSpace(text, JSON_TOKEN.lastIndex)) {
    JSON_TOKEN.lastIndex = at;
    const token = JSON_TOKEN.exec(text)?.[0];
    if (token === undefined) return ~at;
    const inside = open.at(-1);
    const closes = (token === "}" && inside === "{") || (token === "]" && inside === "[");
    if (closes && (state === "comma or end" || state === "value or end" || state === "key or end")) {
      open.pop();
      state = "comma or end";
    } else if (state === "comma or end" && token === ",") {
      state = inside === "{" ? "key" : "value";
    } else if (state === "colon" && token === ":") {
      state = "value";
    } else if ((state === "key" || state === "key or end") && token.startsWith('"')) {
      state = "colon";
    } else if ((state === "value" || state === "value or end") && (token === "{" || token === "[")) {
      open.push(token);
      state = token === "{" ? "key or end" : "value or end";
    } else if ((state === "value" || state === "value or end") && !"]}:,".includes(token)) {
      state = "comma or end";
    } else {
      return ~at;
    }
    if (open.length === 0) return at + token.length;
  }
}

async function readYaml(text: string, breather: Breather): Promise<unknown[]> {
  // 9 MB that JSON alone has no use for.
  const { Composer, LineCounter, Parser } = await import("yaml");
  const lines = new LineCounter();
  const parser = new Parser(lines.addNewLine);
  const composer = new Composer({
    lineCounter: lines,
    prettyErrors: false,
    stringKeys: true,
    merge: true,
    logLevel: "error",
  });
  const values: unknown[] = [];
  const take = (document: Document.Parsed) => {
    const value = toValue(document, lines);
    if (value !== null) values.push(value);
  };
  for (const token of parser.parse(text)) {
    for (const document of composer.next(token)) take(document);
    if (breather.due) await breather.rest();
  }
  for (const document of composer.end()) take(document);
  return values;
}

function toValue(document: Document.Parsed, lines: LineCounter): unknown {
  const fault = (reason: string, offset: number) => {
    const { line, col } = lines.linePos(offset);
    return new SyntaxFault(reason, Math.max(1, line), Math.max(1, col));
  };
  const [error] = document.errors;
  if (error !== undefined) throw fault(error.message, error.pos[0]);
  try {
    const value: unknown = document.toJS({ maxAliasCount: 1000 });
    // The round trip cuts the strings loose from the file's text, which they would keep in memory otherwise, and
    // turns away what JSON cannot say.
    return value === undefined || value === null ? null : JSON.parse(JSON.stringify(value));
  } catch (thrown) {
    throw fault(reasonOf(thrown), document.range[0]);
  }
}
