/** A large JSON file is most often one list, as `kubectl get -o json` prints it: read item by item, it does not hold the event loop. */
import { Breather } from "../base/turns.js";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const SPACES = new Set([0x20, 0x09, 0x0a, 0x0d]);

/**
 * The object that is all of `text`, its field "items" read object by object. Undefined: it is something else, or not JSON; then
 * JSON.parse says what.
 */
export async function readJsonList(text: string): Promise<unknown> {
  const start = itemsStart(text);
  if (start < 0) return undefined;
  const breather = new Breather();
  const items: unknown[] = [];
  let at = skipSpace(text, start);
  while (text[at] === "{") {
    const end = endOfValue(text, at);
    if (end < 0) return undefined;
    const item = parse(text.slice(at, end));
    if (item === undefined) return undefined;
    items.push(item);
    if (breather.due) await breather.rest();
    at = skipSpace(text, end);
    if (text[at] !== ",") break;
    at = skipSpace(text, at + 1);
    if (text[at] !== "{") return undefined;
  }
  if (text[at] !== "]") return undefined;
  const rest = text.slice(at);
  // Of two fields of one name the last one counts.
  if (rest.includes('"items"')) return undefined;
  const list = parse(text.slice(0, start) + rest);
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
function itemsStart(text: string): number {
  let at = skipSpace(text, 0);
  if (text[at] !== "{") return -1;
  for (;;) {
    const key = skipSpace(text, at + 1);
    const keyEnd = endOfString(text, key);
    if (keyEnd < 0) return -1;
    const colon = skipSpace(text, keyEnd);
    if (text[colon] !== ":") return -1;
    const value = skipSpace(text, colon + 1);
    if (text.slice(key, keyEnd) === '"items"') return text[value] === "[" ? value + 1 : -1;
    const end = endOfValue(text, value);
    if (end < 0) return -1;
    at = skipSpace(text, end);
    if (text[at] !== ",") return -1;
  }
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (SPACES.has(text.charCodeAt(at))) at++;
  return at;
}

/** Offset behind the string that begins at `at`; -1: none does, or it does not end. */
function endOfString(text: string, at: number): number {
  if (text[at] !== '"') return -1;
  for (let quote = text.indexOf('"', at + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let before = quote - 1;
    while (text.charCodeAt(before) === BACKSLASH) before--;
    if ((quote - before) % 2 === 1) return quote + 1;
  }
  return -1;
}

/** Offset behind the value that begins at `at`, if it is one; -1: it does not end. */
function endOfValue(text: string, at: number): number {
  if (text[at] === '"') return endOfString(text, at);
  let depth = 0;
  for (let i = at; i < text.length; i++) {
    switch (text.charCodeAt(i)) {
      case QUOTE:
        i = endOfString(text, i) - 1;
        if (i < 0) return -1;
        break;
      case 0x7b: // {
      case 0x5b: // [
        depth++;
        break;
      case 0x7d: // }
      case 0x5d: // ]
        depth--;
        if (depth === 0) return i + 1;
        if (depth < 0) return i;
        break;
      case 0x2c: // ,
        if (depth === 0) return i;
    }
  }
  return -1;
}
