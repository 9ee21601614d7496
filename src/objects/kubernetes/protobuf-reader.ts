/**
 * Reads protobuf messages into plain objects, with the same fields as the JSON of the same data. A table names the fields that
 * are read; the reader skips all others. An absent field is absent in the object.
 */
import type { Fields } from "../../base/unknown.js";

/** Wire types (protobuf.dev/programming-guides/encoding). Groups (3 and 4) do not occur in Kubernetes. */
const VARINT = 0;
const FIXED64 = 1;
export const LENGTH_DELIMITED = 2;
const FIXED32 = 5;
/** A longer varint has more than 64 bits. */
const MAX_VARINT_BYTES = 10;
/**
 * More than the API server accepts in an object: an address takes five bytes or more. An item can take two bytes here, and
 * fifty times as much memory.
 */
const MAX_ITEMS = 1 << 20;

/** Names of nodes, zones and namespaces that were read before, by their hash. Reading one again allocates nothing. */
const KNOWN = Array<string>(1 << 12).fill("");
const MAX_NAME_BYTES = 63;

/** Type of a field. */
export interface FieldType {
  readonly wire: typeof VARINT | typeof LENGTH_DELIMITED;
  /**
   * Reads a value, which starts at the reader's position.
   * @param end its end, if it is length-delimited.
   * @param before what earlier occurrences of the field yielded, in the same message.
   */
  read(reader: ProtobufReader, end: number, before: unknown): unknown;
}

/** The fields of a message that are read, by number. */
export type Message = Readonly<Record<number, readonly [name: string, type: FieldType]>>;

export const TEXT: FieldType = { wire: LENGTH_DELIMITED, read: (reader, end) => reader.text(end) };
/** Text that many objects share. */
export const NAME: FieldType = { wire: LENGTH_DELIMITED, read: (reader, end) => reader.name(end) };
export const BYTES: FieldType = { wire: LENGTH_DELIMITED, read: (reader, end) => reader.bytes(end) };
export const INTEGER: FieldType = { wire: VARINT, read: (reader) => reader.varint() };
export const FLAG: FieldType = { wire: VARINT, read: (reader) => reader.varint() !== 0 };

/** A message. Occurrences of it in the same message are merged. */
export function one(message: Message): FieldType {
  return { wire: LENGTH_DELIMITED, read: (reader, end, before) => reader.message(message, end, before) };
}

export function listOf(type: FieldType): FieldType {
  return {
    wire: type.wire,
    read: (reader, end, before) => {
      const item = type.read(reader, end, undefined);
      // An array that grows from a literal has no room to spare. Most lists are short.
      if (before === undefined) return [item];
      const items = before as unknown[];
      if (items.push(item) > MAX_ITEMS) throw new SyntaxError(`a list has more than ${MAX_ITEMS} items`);
      return items;
    },
  };
}

const ENTRY: Message = { 1: ["key", NAME], 2: ["value", TEXT] };

/** Texts by name. */
export const TEXTS_BY_NAME: FieldType = {
  wire: LENGTH_DELIMITED,
  read: (reader, end, before) => {
    // Without a prototype, no name has a special meaning.
    const texts = (before ?? Object.create(null)) as Record<string, unknown>;
    const { key = "", value = "" } = reader.message(ENTRY, end);
    texts[key as string] = value;
    return texts;
  },
};

const TIMESTAMP: Message = { 1: ["seconds", INTEGER] };

/** A time is in whole seconds, and empty if it is unset; JSON has null then (k8s.io/apimachinery/pkg/apis/meta/v1/time_proto.go). */
export const TIME: FieldType = {
  wire: LENGTH_DELIMITED,
  read: (reader, end) => {
    const { seconds } = reader.message(TIMESTAMP, end);
    return typeof seconds === "number" ? new Date(seconds * 1000) : null;
  },
};

/** Reads from a buffer. All its functions throw `SyntaxError` for bytes that are not the expected message. */
export class ProtobufReader {
  /** Position of the next byte. */
  at = 0;

  constructor(readonly buffer: Buffer) {}

  /** Reads the fields up to `end`. Adds them to `before`, which this function returned. */
  message(fields: Message, end: number, before?: unknown): Fields {
    const object = (before ?? {}) as Record<string, unknown>;
    while (this.at < end) {
      const tag = this.tag();
      const field = fields[tag >>> 3];
      if (field === undefined) {
        this.skip(tag, end);
        continue;
      }
      const [name, type] = field;
      if ((tag & 7) !== type.wire) throw new SyntaxError(`field ${name} has wire type ${tag & 7}`);
      const valueEnd = type.wire === LENGTH_DELIMITED ? this.endOf(end) : end;
      object[name] = type.read(this, valueEnd, object[name]);
    }
    if (this.at > end) throw new SyntaxError("a field exceeds its message");
    return object;
  }

  /** Number and wire type of a field. */
  tag(): number {
    const tag = this.varint();
    if (tag < 8 || tag > 0xffffffff) throw new SyntaxError(`${tag} is not a field's tag`);
    return tag;
  }

  /** A signed integer of 64 bits. It is exact if a number can hold it. */
  varint(): number {
    const { buffer } = this;
    const first = buffer[this.at];
    if (first < 0x80) {
      this.at++;
      return first;
    }
    let low = 0;
    let high = 0;
    for (let i = 0; i < MAX_VARINT_BYTES; i++) {
      const byte = buffer[this.at++];
      if (byte === undefined) throw new SyntaxError("the message ends in the middle of a number");
      if (i < 4) low |= (byte & 0x7f) << (7 * i);
      else high += (byte & 0x7f) * 2 ** (7 * (i - 4));
      if (byte < 0x80) return high === 0 ? low : low + 2 ** 28 * (high < 2 ** 35 ? high : high - 2 ** 36);
    }
    throw new SyntaxError(`a number has more than ${MAX_VARINT_BYTES} bytes`);
  }

  text(end: number): string {
    const text = this.buffer.toString("utf8", this.at, end);
    this.at = end;
    return text;
  }

  /** Like `text`, for names that many objects share. */
  name(end: number): string {
    const { buffer, at } = this;
    const length = end - at;
    if (length > MAX_NAME_BYTES) return this.text(end);
    let hash = length;
    for (let i = at; i < end; i++) hash = (Math.imul(hash, 31) + buffer[i]) | 0;
    const slot = (hash ^ (hash >>> 12)) & (KNOWN.length - 1);
    const known = KNOWN[slot];
    let same = 0;
    while (same < length && buffer[at + same] < 0x80 && known.charCodeAt(same) === buffer[at + same]) same++;
    if (same < length || known.length !== length) return (KNOWN[slot] = this.text(end));
    this.at = end;
    return known;
  }

  /** A view of the buffer. */
  bytes(end: number): Buffer {
    const bytes = this.buffer.subarray(this.at, end);
    this.at = end;
    return bytes;
  }

  /** Reads a length. Returns the end of the value. */
  endOf(end: number): number {
    const length = this.varint();
    if (length < 0 || length > end - this.at) throw new SyntaxError("a field exceeds its message");
    return this.at + length;
  }

  /** Skips the value of a field. */
  skip(tag: number, end: number): void {
    const wire = tag & 7;
    if (wire === VARINT) this.varint();
    else if (wire === LENGTH_DELIMITED) this.at = this.endOf(end);
    else if (wire === FIXED64) this.at += 8;
    else if (wire === FIXED32) this.at += 4;
    else throw new SyntaxError(`a field has wire type ${wire}`);
  }
}

/** A field's number and wire type, and the bytes of its value, which may end after the buffer. */
interface FieldPlace {
  readonly number: number;
  readonly wire: number;
  readonly start: number;
  readonly end: number;
}

/** The field at this position. Returns undefined if the buffer ends before the value. Throws `SyntaxError`. */
export function fieldAt(buffer: Buffer, at: number): FieldPlace | undefined {
  const header = buffer.subarray(at, at + 2 * MAX_VARINT_BYTES);
  const wire = header[0] & 7;
  // A tag, and its length or number.
  const numbers = wire === VARINT || wire === LENGTH_DELIMITED ? 2 : 1;
  if (header.length < 2 * MAX_VARINT_BYTES && header.filter((byte) => byte < 0x80).length < numbers) return undefined;
  const reader = new ProtobufReader(header);
  const tag = reader.tag();
  const end = wire === LENGTH_DELIMITED ? reader.endOf(Infinity) : undefined;
  const start = at + reader.at;
  if (end === undefined) reader.skip(tag, Infinity);
  return { number: tag >>> 3, wire, start, end: at + (end ?? reader.at) };
}
