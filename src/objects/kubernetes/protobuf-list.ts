/** Reads a list in protobuf while it arrives. It has the same interface as the reader of JSON lists. */
import type { Fields } from "../../base/unknown.js";
import { GrowingBytes } from "../growing-bytes.js";
import { fieldAt, LENGTH_DELIMITED } from "./protobuf-reader.js";
import { LIST_META, MAGIC, readFields, readMessage, TYPE_META } from "./protobuf-objects.js";

/** Fields of the envelope, and of the list in it. */
const TYPE = 1;
const LIST = 2;
const METADATA = 1;
const ITEMS = 2;
/** Fields with a higher number are skipped. */
const LAST_KNOWN = 2;

export class ProtobufListReader {
  /** Bytes from earlier chunks, up to an incomplete field. */
  readonly #begun = new GrowingBytes();
  /** Number of bytes to wait for. */
  #needed = MAGIC.length;
  #begins = true;
  /** Kind and version of the list. */
  #type: Fields = {};
  #metadata: Fields = {};
  /** Bytes of the list that are still to come. */
  #left = 0;
  #found = false;

  /** @param maxValue maximum size of a field that is read at once, in bytes. */
  constructor(private readonly maxValue: number) {}

  /** The items that end in this chunk, in order. Throws `SyntaxError`, or `RangeError` for an item larger than `maxValue`. */
  *push(chunk: Buffer): Generator<unknown, void, undefined> {
    if (this.#begun.length + chunk.length < this.#needed) return this.#begun.append(chunk);
    const bytes = this.#begun.take(chunk);
    let at = this.#begins ? this.#passMagic(bytes) : 0;
    for (;;) {
      const field = fieldAt(bytes, at);
      if (field === undefined) {
        this.#needed = bytes.length - at + 1;
        break;
      }
      if (field.wire !== LENGTH_DELIMITED && field.number <= LAST_KNOWN)
        throw new SyntaxError(`field ${field.number} has wire type ${field.wire}`);
      const inList = this.#left > 0;
      if (!inList && field.number === LIST) {
        this.#enter(field.end - field.start);
        at = field.start;
        continue;
      }
      const size = field.end - at;
      if (size > this.maxValue) throw new RangeError(`a value exceeds ${this.maxValue} bytes`);
      if (inList && size > this.#left) throw new SyntaxError("a field exceeds the list");
      if (field.end > bytes.length) {
        this.#needed = size;
        break;
      }
      at = field.end;
      const value = bytes.subarray(field.start, field.end);
      if (inList) {
        this.#left -= size;
        if (field.number === METADATA) this.#metadata = readMessage(LIST_META, value);
        else if (field.number === ITEMS) yield readFields(this.#itemKind, value);
      } else if (field.number === TYPE) {
        this.#type = readMessage(TYPE_META, value);
      }
    }
    this.#begun.append(bytes.subarray(at));
  }

  /** Call it at the end of the answer. Returns the list without its items. Throws `SyntaxError`. */
  end(): unknown {
    if (this.#begins || this.#left > 0 || this.#begun.length > 0) throw new SyntaxError("the list ends too early");
    return { ...this.#type, metadata: this.#metadata };
  }

  /** Whether there was a list. It may have been empty. */
  get found(): boolean {
    return this.#found;
  }

  /** The fields before the items. */
  head(): unknown {
    return this.#type;
  }

  get #itemKind(): string {
    const { kind } = this.#type;
    return typeof kind === "string" ? kind.replace(/List$/, "") : "";
  }

  #passMagic(bytes: Buffer): number {
    if (!bytes.subarray(0, MAGIC.length).equals(MAGIC)) throw new SyntaxError('it does not start with "k8s"');
    this.#begins = false;
    return MAGIC.length;
  }

  #enter(length: number): void {
    if (this.#found) throw new SyntaxError("there are two lists");
    this.#found = true;
    this.#left = length;
  }
}
