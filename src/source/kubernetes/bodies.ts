/** Answers of the API server as they arrive. */
import { type Fields, isFields, reasonOf } from "../../base/unknown.js";
import { JsonListReader } from "../json-list.js";
import { ProtocolError, type StatusError, statusError } from "./errors.js";

/** What a list says besides its items. */
export interface ListMeta {
  readonly resourceVersion: string;
  /** Token of the next page; "": that was the last one. */
  readonly continue: string;
  /** Objects that follow; undefined when the server does not say. */
  readonly remaining: number | undefined;
}

/** A list: no page is ever in memory as a whole, however large a page the server chooses to send. */
export class ListBody {
  readonly #reader = new JsonListReader();

  /** The items that end in this chunk, in order. Throws `ProtocolError`. */
  *push(chunk: Buffer): Generator<unknown, void, undefined> {
    try {
      yield* this.#reader.push(chunk);
    } catch (error) {
      throw noJson(error);
    }
  }

  /** To be called when the body is over. Throws `ProtocolError`. */
  end(): ListMeta {
    let list: unknown;
    try {
      list = this.#reader.end();
    } catch (error) {
      throw noJson(error);
    }
    const metadata = isFields(list) ? list["metadata"] : undefined;
    if (!isFields(metadata)) throw new ProtocolError("the answer is no list of the Kubernetes API");
    const { resourceVersion, continue: token, remainingItemCount: remaining } = metadata;
    return {
      resourceVersion: typeof resourceVersion === "string" ? resourceVersion : "",
      continue: typeof token === "string" ? token : "",
      remaining: typeof remaining === "number" ? remaining : undefined,
    };
  }
}

function noJson(error: unknown): ProtocolError {
  return new ProtocolError(`the answer is no JSON: ${reasonOf(error)}`, { cause: error });
}

export interface WatchEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK";
  readonly object: unknown;
}

const NEWLINE = 0x0a;
/** An object in etcd has at most 1.5 MB; what is far larger is no event. */
const MAX_LINE_BYTES = 32 << 20;

/** A watch: one event on each line. */
export class WatchBody {
  #pieces: Buffer[] = [];
  #bytes = 0;

  /** Whether a line has begun that is not over. */
  get midLine(): boolean {
    return this.#bytes > 0;
  }

  /** The events that end in this chunk, in order. Throws `ProtocolError`, and `StatusError` for an ERROR event. */
  *push(chunk: Buffer): Generator<WatchEvent, void, undefined> {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      const line = this.#take(chunk.subarray(start, end));
      start = end + 1;
      if (line !== "") yield parseEvent(line);
    }
    if (start === chunk.length) return;
    this.#pieces.push(chunk.subarray(start));
    this.#bytes += chunk.length - start;
    if (this.#bytes > MAX_LINE_BYTES) throw new ProtocolError("an event is longer than any object can be");
  }

  #take(last: Buffer): string {
    if (this.#bytes === 0) return last.toString().trim();
    const line = Buffer.concat([...this.#pieces, last]);
    this.#pieces = [];
    this.#bytes = 0;
    return line.toString().trim();
  }
}

function parseEvent(line: string): WatchEvent {
  let event: unknown;
  try {
    event = JSON.parse(line);
  } catch (error) {
    throw new ProtocolError("an event is no JSON", { cause: error });
  }
  const { type, object }: Fields = isFields(event) ? event : {};
  switch (type) {
    case "ADDED":
    case "MODIFIED":
    case "DELETED":
    case "BOOKMARK":
      return { type, object };
    case "ERROR":
      throw errorEvent(object);
    default:
      throw new ProtocolError(`an event of an unknown type: ${JSON.stringify(type) ?? "none"}`);
  }
}

function errorEvent(object: unknown): StatusError {
  const code = isFields(object) ? object["code"] : undefined;
  return statusError(typeof code === "number" ? code : 500, object);
}
