/**
 * Most large JSON texts are one list, as the API server sends it and `kubectl get -o json` prints it. The reader splits it into
 * items. It never parses the whole text at once, so it does not block the event loop. A list that arrives in chunks is never in
 * memory as a whole.
 */

import { GrowingBytes } from "./growing-bytes.js";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const SPACES = new Set([0x20, 0x09, 0x0a, 0x0d]);

const BEGINS_ITEMS = /"items"\s*:\s*\[$/;
/** Placeholder in the frame for the items already returned. */
const HANDED_OUT = "items that were handed out";

/** Reads an object whose field "items" is a list of objects, from UTF-8 that may be split anywhere. */
export class JsonListReader {
  /** The text outside the list of items. */
  #frame = "";
  /** The start of an item, or of a part of the frame, from earlier chunks. */
  readonly #begun = new GrowingBytes();
  #place: "frame" | "item" | "between items" = "frame";
  #expects: "item or end" | "comma or end" | "item" = "item or end";
  #found = false;
  #depth = 0;
  #inString = false;
  #escaped = false;
  /** Bytes in earlier chunks. */
  #before = 0;
  #offset = 0;
  #end = 0;

  /**
   * @param maxValue maximum size of an item, and of the text around the items, that may be parsed at once, in bytes. Default:
   * no limit.
   */
  constructor(private readonly maxValue = Infinity) {}

  /** Start of the item, or of the text around the items, that was read last: bytes from the beginning. */
  get offset(): number {
    return this.#offset;
  }

  /** End of the item that was read last. */
  get endOffset(): number {
    return this.#end;
  }

  /** The items that end in this chunk, in order. Throws `SyntaxError`, or `RangeError` for a value larger than `maxValue`. */
  *push(chunk: Buffer): Generator<unknown, void, undefined> {
    yield* this.#read(chunk);
    this.#before += chunk.length;
  }

  *#read(chunk: Buffer): Generator<unknown, void, undefined> {
    let at = 0;
    while (at < chunk.length) {
      if (this.#place === "between items") {
        at = this.#passBetween(chunk, at);
        continue;
      }
      if (this.#begun.length === 0) this.#offset = this.#before + at;
      const end = this.#scan(chunk, at);
      this.#checkSize((end < 0 ? chunk.length : end) - at);
      if (end < 0) {
        this.#begun.append(chunk.subarray(at));
        return;
      }
      const text = this.#begun.take(chunk.subarray(at, end)).toString();
      at = end;
      this.#end = this.#before + at;
      if (this.#place === "item") {
        this.#place = "between items";
        this.#expects = "comma or end";
        yield JSON.parse(text);
      } else {
        this.#frame += text;
        // The first top-level list of this name.
        if (this.#found || !BEGINS_ITEMS.test(text)) continue;
        this.#found = true;
        this.#frame += JSON.stringify(HANDED_OUT);
        this.#place = "between items";
      }
    }
  }

  /**
   * Call it at the end of the text. Returns the object without the items already returned. Any other value is returned
   * unchanged. Throws `SyntaxError`.
   */
  end(): unknown {
    if (this.#place !== "frame") throw new SyntaxError("the list ends too early");
    const value: unknown = JSON.parse(this.#frame + this.#begun.take(Buffer.alloc(0)).toString());
    if (!this.#found) return value;
    const { items, ...list } = value as { items: unknown };
    // If a field occurs twice, JSON.parse returns the last one.
    const own = Array.isArray(items) && items.length === 1 && items[0] === HANDED_OUT;
    if (!own) throw new SyntaxError('the list has the field "items" twice');
    return list;
  }

  /** Whether there was a list of items. If not, `end` returns everything. */
  get found(): boolean {
    return this.#found;
  }

  /** The fields before the items. Call it only while the items are read. */
  head(): unknown {
    return JSON.parse(`${this.#frame}]}`);
  }

  /** Position of the next item, of the "]" after the last one, or the end of the chunk. */
  #passBetween(chunk: Buffer, from: number): number {
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at];
      if (byte === undefined || SPACES.has(byte)) continue;
      if (byte === OPEN_BRACE && this.#expects !== "comma or end") {
        this.#place = "item";
        return at;
      }
      if (byte === CLOSE_BRACKET && this.#expects !== "item") {
        this.#place = "frame";
        return at;
      }
      if (byte !== COMMA || this.#expects !== "comma or end") {
        throw new SyntaxError(`${JSON.stringify(String.fromCharCode(byte))} is not expected among the items of a list`);
      }
      this.#expects = "item";
    }
    return chunk.length;
  }

  /**
   * Position after the next relevant byte, searched from `from`; -1 if none is in this chunk. In an item, it is the "}" at its
   * end. Outside the items, it is the "[" of a list that is a field of the object.
   */
  #scan(chunk: Buffer, from: number): number {
    const inItem = this.#place === "item";
    let depth = this.#depth;
    let inString = this.#inString;
    let escaped = this.#escaped;
    let end = -1;
    const until = Math.min(chunk.length, from + this.maxValue + 1);
    for (let at = from; at < until; at++) {
      const byte = chunk[at];
      if (inString) {
        if (escaped) escaped = false;
        else if (byte === BACKSLASH) escaped = true;
        else if (byte === QUOTE) inString = false;
      } else if (byte === QUOTE) {
        inString = true;
      } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        depth++;
        if (!inItem && byte === OPEN_BRACKET && depth === 2) end = at + 1;
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        depth--;
        if (inItem && depth === 2) end = at + 1;
      }
      if (end >= 0) break;
    }
    this.#depth = depth;
    this.#inString = inString;
    this.#escaped = escaped;
    return end;
  }

  /** @param more bytes that this chunk adds to the next value to parse. */
  #checkSize(more: number): void {
    const earlier = this.#begun.length + (this.#place === "frame" ? this.#frame.length : 0);
    if (earlier + more > this.maxValue) throw new RangeError(`a value exceeds ${this.maxValue} bytes`);
  }
}
