/**
 * A large JSON text is most often one list, as the API server sends it and `kubectl get -o json` prints it. It is taken apart item
 * by item: none is parsed in one go, so reading does not hold the event loop, and a list that arrives in chunks is never in
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
/** What stands in the frame for the items that were handed out. */
const HANDED_OUT = "items that were handed out";

/** Reads an object whose field "items" is a list of objects, from UTF-8 that may be cut anywhere. */
export class JsonListReader {
  /** What is not in the list of items. */
  #frame = "";
  /** Beginning of an item, or of a part of the frame, that earlier chunks brought. */
  readonly #begun = new GrowingBytes();
  #place: "frame" | "item" | "between items" = "frame";
  #expects: "item or end" | "comma or end" | "item" = "item or end";
  #found = false;
  #depth = 0;
  #inString = false;
  #escaped = false;
  readonly #maxValue: number;
  /** Bytes in earlier chunks. */
  #before = 0;
  #offset = 0;
  #end = 0;

  /** `maxValue`: bytes of an item, and of all that is around the items, that may be parsed in one go. Default: any number. */
  constructor(maxValue = Infinity) {
    this.#maxValue = maxValue;
  }

  /** Where the item, or the text around the items, begins that was read last: bytes from the beginning. */
  get offset(): number {
    return this.#offset;
  }

  /** Where the item ends that was read last. */
  get endOffset(): number {
    return this.#end;
  }

  /** The items that end in this chunk, in order. Throws `SyntaxError`, and `RangeError` for what is larger than `maxValue`. */
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
      const text = this.#begun.take(chunk.subarray(at, end));
      at = end;
      this.#end = this.#before + at;
      if (this.#place === "item") {
        this.#place = "between items";
        this.#expects = "comma or end";
        yield JSON.parse(text);
      } else {
        this.#frame += text;
        // The first list at the top that is called so.
        if (this.#found || !BEGINS_ITEMS.test(text)) continue;
        this.#found = true;
        this.#frame += JSON.stringify(HANDED_OUT);
        this.#place = "between items";
      }
    }
  }

  /**
   * To be called when the text is over: the object without the items that were handed out. A text that is another value is
   * returned as it is. Throws `SyntaxError`.
   */
  end(): unknown {
    if (this.#place !== "frame") throw new SyntaxError("the list breaks off");
    const value: unknown = JSON.parse(this.#frame + this.#begun.take(Buffer.alloc(0)));
    if (!this.#found) return value;
    const { items, ...list } = value as { items: unknown };
    // Of two fields of one name the last one counts.
    const own = Array.isArray(items) && items.length === 1 && items[0] === HANDED_OUT;
    if (!own) throw new SyntaxError('the list has the field "items" twice');
    return list;
  }

  /** Whether there was a list of items; if not, `end` returns all that there is. */
  get found(): boolean {
    return this.#found;
  }

  /** The fields that come before the items. Call it only while the items are read. */
  head(): unknown {
    return JSON.parse(`${this.#frame}]}`);
  }

  /** Position of the next item, of the "]" that ends them, or the end of the chunk. */
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
   * Position behind the next byte that matters, from `from`; -1: none in this chunk. In an item: the "}" that ends it; outside the
   * items: the "[" of a list that is a field of the object.
   */
  #scan(chunk: Buffer, from: number): number {
    const inItem = this.#place === "item";
    let depth = this.#depth;
    let inString = this.#inString;
    let escaped = this.#escaped;
    let end = -1;
    const until = Math.min(chunk.length, from + this.#maxValue + 1);
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

  /** `more`: bytes that this chunk adds to what is parsed in one go. */
  #checkSize(more: number): void {
    const earlier = this.#begun.length + (this.#place === "frame" ? this.#frame.length : 0);
    if (earlier + more > this.#maxValue) throw new RangeError(`a value of more than ${this.#maxValue} bytes`);
  }
}
