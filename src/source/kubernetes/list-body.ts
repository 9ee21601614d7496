/**
 * A list as it arrives, taken apart item by item: no page is ever in memory as a whole, and none is parsed in one go, however
 * large a page the server chooses to send.
 */
import { type Fields, isFields, reasonOf } from "../../base/unknown.js";
import { BACKSLASH, CLOSE_BRACE, CLOSE_BRACKET, COMMA, OPEN_BRACE, OPEN_BRACKET, QUOTE } from "../json-bytes.js";
import { ProtocolError } from "./errors.js";

/** What a list says besides its items. */
export interface ListMeta {
  readonly resourceVersion: string;
  /** Token of the next page; "": that was the last one. */
  readonly continue: string;
  /** Objects that follow; undefined when the server does not say. */
  readonly remaining: number | undefined;
}

export class ListBody {
  /** What is not in the list of items. */
  #frame = "";
  /** Beginning of an item, or of the frame, that earlier chunks brought. */
  #pieces: Buffer[] = [];
  #depth = 0;
  #inString = false;
  #escaped = false;
  #inItems = false;
  #done = false;

  /** The items that end in this chunk, in order. Throws `ProtocolError`. */
  *push(chunk: Buffer): Generator<unknown, void, undefined> {
    let start = 0;
    let at = 0;
    while (at < chunk.length) {
      const stop = this.#scan(chunk, at);
      if (stop < 0) break;
      at = stop + 1;
      const byte = chunk[stop];
      if (byte === OPEN_BRACKET) {
        this.#frame += this.#take(chunk.subarray(start, at));
        start = at;
        // The first list at the top that is called "items".
        this.#inItems = !this.#done && /"items"\s*:\s*\[$/.test(this.#frame);
      } else if (byte === CLOSE_BRACE) {
        yield parse(this.#take(chunk.subarray(start, at)));
        start = at;
      } else {
        // Between items, or after the last one: at most white space was held.
        this.#pieces = [];
        start = byte === COMMA ? at : stop;
        if (byte === CLOSE_BRACKET) {
          this.#inItems = false;
          this.#done = true;
        }
      }
    }
    if (start < chunk.length) this.#pieces.push(chunk.subarray(start));
  }

  /** To be called when the body is over. Throws `ProtocolError`. */
  end(): ListMeta {
    if (this.#inItems) throw new ProtocolError("the list breaks off");
    const list = parse(this.#frame + this.#take(Buffer.alloc(0)));
    const metadata = fieldsOf(fieldsOf(list)?.["metadata"]);
    if (metadata === undefined) throw new ProtocolError("the answer is no list of the Kubernetes API");
    const { resourceVersion, continue: token, remainingItemCount: remaining } = metadata;
    return {
      resourceVersion: typeof resourceVersion === "string" ? resourceVersion : "",
      continue: typeof token === "string" ? token : "",
      remaining: typeof remaining === "number" ? remaining : undefined,
    };
  }

  /**
   * Position of the next byte that matters, from `at`; -1: none in this chunk. Outside the items: the "[" of a list that is a
   * field of the list object; inside: the "}" that ends an item, the "," between two, the "]" that ends them.
   */
  #scan(chunk: Buffer, at: number): number {
    let depth = this.#depth;
    let inString = this.#inString;
    let escaped = this.#escaped;
    const inItems = this.#inItems;
    let found = -1;
    for (let i = at; i < chunk.length; i++) {
      const byte = chunk[i];
      if (inString) {
        if (escaped) escaped = false;
        else if (byte === BACKSLASH) escaped = true;
        else if (byte === QUOTE) inString = false;
      } else if (byte === QUOTE) {
        inString = true;
      } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        depth++;
        if (!inItems && byte === OPEN_BRACKET && depth === 2) found = i;
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        depth--;
        if (inItems && ((byte === CLOSE_BRACE && depth === 2) || depth === 1)) found = i;
      } else if (inItems && byte === COMMA && depth === 2) {
        found = i;
      }
      if (found >= 0) break;
    }
    this.#depth = depth;
    this.#inString = inString;
    this.#escaped = escaped;
    return found;
  }

  /** What earlier chunks brought, and this. */
  #take(last: Buffer): string {
    if (this.#pieces.length === 0) return last.toString();
    const all = Buffer.concat([...this.#pieces, last]);
    this.#pieces = [];
    return all.toString();
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ProtocolError(`the answer is no JSON: ${reasonOf(error)}`, { cause: error });
  }
}

function fieldsOf(value: unknown): Fields | undefined {
  return isFields(value) ? value : undefined;
}
