/** Parses answers of the API server as they arrive. */
import { type Fields, isFields, reasonOf } from "../../base/unknown.js";
import { GrowingBytes } from "../growing-bytes.js";
import { JsonListReader } from "../json-list.js";
import { ProtobufListReader } from "./protobuf-list.js";
import { readEvent } from "./protobuf-objects.js";
import type { Resource } from "./resources.js";
import { ProtocolError, type StatusError, statusError } from "./errors.js";

/** A list's metadata. */
export interface ListMeta {
  readonly resourceVersion: string;
  /** Token of the next page; "" after the last one. */
  readonly continue: string;
  /** Number of objects still to come. Undefined if the server does not report it. */
  readonly remaining: number | undefined;
}

/** Kind and version of a collection's items. */
export type ObjectType = Pick<Resource, "kind" | "apiVersion">;

/**
 * Size limit of an object, in bytes of JSON. etcd accepts requests of 1.5 MiB by default, and JSON can be a few times as long.
 * A larger object is a fault of the server or a proxy, or a compressed body made to fill the memory.
 */
const MAX_OBJECT_BYTES = 8 << 20;

function tooLarge(what: string): ProtocolError {
  return new ProtocolError(`${what} exceeds ${MAX_OBJECT_BYTES >> 20} MiB, more than any object can have`);
}

/** The format of an answer, which the server chooses. */
export type BodyFormat = "JSON" | "protobuf";

/** A list. No page is ever in memory as a whole, however large the pages that the server sends. */
export class ListBody {
  readonly #reader: JsonListReader | ProtobufListReader;
  /** Fields of the list before its items; undefined until the first item arrives. */
  #head: Fields | undefined;

  /** @param type of the items. */
  constructor(
    private readonly type: ObjectType,
    private readonly format: BodyFormat,
  ) {
    this.#reader = new (format === "JSON" ? JsonListReader : ProtobufListReader)(MAX_OBJECT_BYTES);
  }

  /** The items that end in this chunk, in order. Throws `ProtocolError`. */
  *push(chunk: Buffer): Generator<unknown, void, undefined> {
    const items = this.#reader.push(chunk);
    for (;;) {
      const next = this.#read(() => items.next());
      if (next.done === true) return;
      this.#checkItem(next.value);
      yield next.value;
    }
  }

  /** Call it at the end of the body. Throws `ProtocolError`. */
  end(): ListMeta {
    const list = this.#read(() => this.#reader.end());
    if (!isFields(list))
      throw new ProtocolError("the answer is not an object, so it is not a list of the Kubernetes API");
    this.#checkList(list, true);
    if (!this.#reader.found && list["items"] !== null) {
      const problem = "items" in list ? "field items is not a list of objects" : "field items is missing";
      throw new ProtocolError(`the answer is not a list of ${this.type.kind} objects: its ${problem}`);
    }
    const metadata = isFields(list["metadata"]) ? list["metadata"] : {};
    const { resourceVersion, continue: token, remainingItemCount: remaining } = metadata;
    return {
      resourceVersion: typeof resourceVersion === "string" ? resourceVersion : "",
      continue: typeof token === "string" ? token : "",
      remaining: typeof remaining === "number" ? remaining : undefined,
    };
  }

  /**
   * Items of a typed list do not contain their kind. A server that writes the list's kind after the items writes it into each
   * item.
   */
  #checkItem(item: unknown): void {
    if (this.#head === undefined) {
      const head = this.#read(() => this.#reader.head());
      this.#head = isFields(head) ? head : {};
      this.#checkList(this.#head, false);
    }
    const complete = "kind" in this.#head && "apiVersion" in this.#head;
    checkType(isFields(item) ? item : {}, this.type, "an item of the list", complete ? "if given" : "required");
  }

  #checkList(list: Fields, whole: boolean): void {
    const { kind, apiVersion } = this.type;
    checkType(list, { kind: `${kind}List`, apiVersion }, "the answer", whole ? "required" : "if given");
  }

  #read<T>(read: () => T): T {
    try {
      return read();
    } catch (error) {
      if (error instanceof RangeError) throw tooLarge("a value in the list");
      throw new ProtocolError(`the answer is not ${this.format}: ${reasonOf(error)}`, { cause: error });
    }
  }
}

/** Throws `ProtocolError` unless `object` has this kind and version. */
function checkType(
  object: Fields,
  type: { kind: string; apiVersion: string },
  what: string,
  need: "required" | "if given",
): void {
  for (const field of ["kind", "apiVersion"] as const) {
    const found = object[field];
    if (found === type[field] || (found === undefined && need === "if given")) continue;
    const shown = found === undefined ? "missing" : (JSON.stringify(found) ?? "").slice(0, MAX_SHOWN);
    throw new ProtocolError(`${what} is not a ${type.kind} of ${type.apiVersion}: its ${field} is ${shown}`);
  }
}

/** Maximum characters of a server's value in a message. */
const MAX_SHOWN = 100;

export interface WatchEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK";
  readonly object: unknown;
}

const NEWLINE = 0x0a;
const SPACE = 0x20;
/** Bytes of the length before each event in protobuf. */
const LENGTH_BYTES = 4;

/** A watch: in JSON one event per line, in protobuf each after its length. */
export class WatchBody {
  readonly #begun = new GrowingBytes();
  /** Bytes of protobuf to wait for. */
  #needed = LENGTH_BYTES;

  /** @param type of the objects in the events. */
  constructor(
    private readonly type: ObjectType,
    private readonly format: BodyFormat,
  ) {}

  /** Whether the last event is incomplete. */
  get midEvent(): boolean {
    return this.#begun.length > 0;
  }

  /** The events that end in this chunk, in order. Throws `ProtocolError`, and `StatusError` for an ERROR event. */
  *push(chunk: Buffer): Generator<WatchEvent, void, undefined> {
    for (const bytes of this.format === "JSON" ? this.#lines(chunk) : this.#frames(chunk)) {
      yield checkEvent(this.#parse(bytes), this.type);
    }
  }

  *#lines(chunk: Buffer): Generator<Buffer, void, undefined> {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      checkSize(this.#begun.length + end - start);
      const line = this.#begun.take(chunk.subarray(start, end));
      start = end + 1;
      if (line.some((byte) => byte > SPACE)) yield line;
    }
    checkSize(this.#begun.length + chunk.length - start);
    if (start < chunk.length) this.#begun.append(chunk.subarray(start));
  }

  *#frames(chunk: Buffer): Generator<Buffer, void, undefined> {
    if (this.#begun.length + chunk.length < this.#needed) return this.#begun.append(chunk);
    const bytes = this.#begun.take(chunk);
    let at = 0;
    for (;;) {
      this.#needed = LENGTH_BYTES;
      if (bytes.length - at < this.#needed) break;
      const length = bytes.readUInt32BE(at);
      checkSize(length);
      this.#needed += length;
      if (bytes.length - at < this.#needed) break;
      const start = at + LENGTH_BYTES;
      at += this.#needed;
      yield bytes.subarray(start, at);
    }
    this.#begun.append(bytes.subarray(at));
  }

  #parse(bytes: Buffer): unknown {
    try {
      return this.format === "JSON" ? JSON.parse(bytes.toString()) : readEvent(bytes);
    } catch (error) {
      throw new ProtocolError(`an event is not ${this.format}: ${reasonOf(error)}`, { cause: error });
    }
  }
}

function checkSize(bytes: number): void {
  if (bytes > MAX_OBJECT_BYTES) throw tooLarge("an event of a watch");
}

function checkEvent(event: unknown, expected: ObjectType): WatchEvent {
  const { type, object }: Fields = isFields(event) ? event : {};
  switch (type) {
    case "ADDED":
    case "MODIFIED":
    case "DELETED":
    case "BOOKMARK":
      checkType(isFields(object) ? object : {}, expected, "the object of an event", "required");
      return { type, object };
    case "ERROR":
      throw errorEvent(object);
    default:
      throw new ProtocolError(`an event has an unknown type: ${JSON.stringify(type)?.slice(0, MAX_SHOWN) ?? "none"}`);
  }
}

function errorEvent(object: unknown): StatusError {
  const code = isFields(object) ? object["code"] : undefined;
  return statusError(typeof code === "number" ? code : 500, object);
}
