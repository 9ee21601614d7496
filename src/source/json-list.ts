/** A large JSON file is most often one list, as `kubectl get -o json` prints it: read item by item, it does not hold the event loop. */
import { Breather } from "../base/turns.js";
import { BACKSLASH, CLOSE_BRACE, CLOSE_BRACKET, COLON, COMMA, OPEN_BRACE, OPEN_BRACKET, QUOTE } from "./json-bytes.js";

const SPACES = new Set([0x20, 0x09, 0x0a, 0x0d]);
const ITEMS = '"items"';

/**
 * The object that is all of the text, its field "items" read object by object. Undefined: it is something else, or not JSON; then
 * JSON.parse says what. Its text is never a string as a whole: V8 gives such large strings back to the system in the pause that
 * ends a collection, and 150 MB of them take 15 ms.
 */
export async function readJsonList(text: Buffer): Promise<unknown> {
  const start = itemsStart(text);
  if (start < 0) return undefined;
  const breather = new Breather();
  const items: unknown[] = [];
  let at = skipSpace(text, start);
  while (text[at] === OPEN_BRACE) {
    const end = endOfValue(text, at);
    if (end < 0) return undefined;
    const item = parse(text.toString("utf8", at, end));
    if (item === undefined) return undefined;
    items.push(item);
    if (breather.due) await breather.rest();
    at = skipSpace(text, end);
    if (text[at] !== COMMA) break;
    at = skipSpace(text, at + 1);
    if (text[at] !== OPEN_BRACE) return undefined;
  }
  if (text[at] !== CLOSE_BRACKET) return undefined;
  // Of two fields of one name the last one counts.
  if (text.includes(ITEMS, at)) return undefined;
  const list = parse(text.toString("utf8", 0, start) + text.toString("utf8", at));
  return typeof list === "object" && list !== null ? Object.assign(list, { items }) : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Offset behind the bracket that opens the field "items" of the object that begins the text; -1: there is none. */
function itemsStart(text: Buffer): number {
  let at = skipSpace(text, 0);
  if (text[at] !== OPEN_BRACE) return -1;
  for (;;) {
    const key = skipSpace(text, at + 1);
    const keyEnd = endOfString(text, key);
    if (keyEnd < 0) return -1;
    const colon = skipSpace(text, keyEnd);
    if (text[colon] !== COLON) return -1;
    const value = skipSpace(text, colon + 1);
    if (text.toString("latin1", key, keyEnd) === ITEMS) return text[value] === OPEN_BRACKET ? value + 1 : -1;
    const end = endOfValue(text, value);
    if (end < 0) return -1;
    at = skipSpace(text, end);
    if (text[at] !== COMMA) return -1;
  }
}

function skipSpace(text: Buffer, from: number): number {
  let at = from;
  while (SPACES.has(text[at])) at++;
  return at;
}

/** Offset behind the string that begins at `at`; -1: none does, or it does not end. */
function endOfString(text: Buffer, at: number): number {
  if (text[at] !== QUOTE) return -1;
  for (let i = at + 1; i < text.length; i++) {
    const byte = text[i];
    if (byte === QUOTE) return i + 1;
    if (byte === BACKSLASH) i++;
  }
  return -1;
}

/** Offset behind the value that begins at `at`, if it is one; -1: it does not end. */
function endOfValue(text: Buffer, at: number): number {
  if (text[at] === QUOTE) return endOfString(text, at);
  let depth = 0;
  for (let i = at; i < text.length; i++) {
    switch (text[i]) {
      case QUOTE:
        i = endOfString(text, i) - 1;
        if (i < 0) return -1;
        break;
      case OPEN_BRACE:
      case OPEN_BRACKET:
        depth++;
        break;
      case CLOSE_BRACE:
      case CLOSE_BRACKET:
        depth--;
        if (depth === 0) return i + 1;
        if (depth < 0) return i;
        break;
      case COMMA:
        if (depth === 0) return i;
    }
  }
  return -1;
}
