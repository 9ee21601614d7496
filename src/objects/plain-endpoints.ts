/**
 * Endpoints of an EndpointSlice in protobuf, read into columns. Large clusters have hundreds of thousands of endpoints, and
 * nearly all are plain: an IPv4 address, conditions, a node, a zone and a pod. So no objects are made for them. Any other
 * endpoint makes objects of all endpoints of its slice, like those of JSON.
 */
import type { Fields } from "../base/unknown.js";
import { READY, SERVING, TERMINATING } from "./endpoint-state.js";
import {
  type FieldType,
  FLAG,
  LENGTH_DELIMITED,
  listOf,
  type Message,
  one,
  type ProtobufReader,
  TEXT,
} from "./protobuf-reader.js";

const NAMES = listOf(one({ 1: ["name", TEXT] }));

const ENDPOINT: Message = {
  1: ["addresses", listOf(TEXT)],
  2: ["conditions", one({ 1: ["ready", FLAG], 2: ["serving", FLAG], 3: ["terminating", FLAG] })],
  4: ["targetRef", one({ 1: ["kind", TEXT], 2: ["namespace", TEXT], 3: ["name", TEXT] })],
  6: ["nodeName", TEXT],
  7: ["zone", TEXT],
  8: ["hints", one({ 1: ["forZones", NAMES], 2: ["forNodes", NAMES] })],
};

/** Number and wire type of the fields. */
const ADDRESSES = 0x0a;
const CONDITIONS = 0x12;
const TARGET_REF = 0x22;
const NODE_NAME = 0x32;
const ZONE = 0x3a;
const HINTS = 0x42;
/** Number and wire type of the fields of a reference. */
const KIND = 0x0a;
const NAMESPACE = 0x12;
const NAME = 0x1a;
/** By field number: the states that a condition changes. */
const STATES = [0, READY, SERVING, TERMINATING];

const DOT = 0x2e;
const ZERO = 0x30;

export class PlainEndpoints {
  /** Addresses, as in `EndpointList`. */
  readonly words: number[] = [];
  readonly states: number[] = [];
  /** "" if unknown. */
  readonly nodes: string[] = [];
  /** "" if unknown. */
  readonly zones: string[] = [];
  /** Names of pods from index 1 on; "" if unknown. */
  readonly pods: string[] = [""];
  /** The namespace of all pods; "" if there are none. */
  namespace = "";
  /** Start and end of each endpoint. */
  readonly #places: number[] = [];
  #items: Fields[] | undefined;

  constructor(private readonly reader: ProtobufReader) {}

  /** Whether the columns have all endpoints. */
  get isPlain(): boolean {
    return this.#items === undefined;
  }

  /** The endpoints as objects. */
  items(): readonly Fields[] {
    if (this.#items !== undefined) return this.#items;
    const { reader } = this;
    this.#items = [];
    for (let i = 0; i < this.#places.length; i += 2) {
      reader.at = this.#places[i];
      this.#items.push(reader.message(ENDPOINT, this.#places[i + 1]));
    }
    return this.#items;
  }

  /** Reads the next endpoint. */
  add(end: number): void {
    const { reader } = this;
    if (this.#items !== undefined) {
      this.#items.push(reader.message(ENDPOINT, end));
      return;
    }
    this.#places.push(reader.at, end);
    if (!this.#readPlain(end)) this.items();
  }

  #readPlain(end: number): boolean {
    const { reader } = this;
    let address: number | undefined;
    let state = READY | SERVING;
    let node = "";
    let zone = "";
    let pod = "";
    while (reader.at < end) {
      const tag = reader.tag();
      if (tag === ADDRESSES) {
        const word = this.#readIPv4(reader.endOf(end));
        address ??= word;
        if (address === undefined) return false;
      } else if (tag === CONDITIONS) {
        state = this.#readState(reader.endOf(end));
      } else if (tag === TARGET_REF) {
        const name = this.#readPod(reader.endOf(end));
        if (name === undefined) return false;
        pod = name;
      } else if (tag === NODE_NAME) node = reader.name(reader.endOf(end));
      else if (tag === ZONE) zone = reader.name(reader.endOf(end));
      else if (tag === HINTS) return false;
      else reader.skip(tag, end);
    }
    reader.checkEnd(end);
    if (address === undefined) return false;
    this.words.push(address);
    this.states.push(state);
    this.nodes.push(node);
    this.zones.push(zone);
    this.pods.push(pod);
    return true;
  }

  /** Returns undefined for any other text. */
  #readIPv4(end: number): number | undefined {
    const { at: start, buffer } = this.reader;
    this.reader.at = end;
    let address = 0;
    let octet = -1;
    let octets = 0;
    for (let at = start; at < end; at++) {
      const digit = buffer[at] - ZERO;
      if (digit >= 0 && digit <= 9 && octet !== 0) octet = octet < 0 ? digit : octet * 10 + digit;
      else if (buffer[at] !== DOT || octet < 0 || ++octets > 3) return undefined;
      else {
        address |= octet << (8 * (octets - 1));
        octet = -1;
      }
      if (octet > 255) return undefined;
    }
    return octets === 3 && octet >= 0 ? address | (octet << 24) : undefined;
  }

  #readState(end: number): number {
    const { reader } = this;
    let state = READY | SERVING;
    while (reader.at < end) {
      const tag = reader.tag();
      const changed = (tag & 7) === 0 ? (STATES[tag >>> 3] ?? 0) : 0;
      if (changed === 0) reader.skip(tag, end);
      else if (reader.varint() === 0) state &= ~changed;
      else state |= changed;
    }
    reader.checkEnd(end);
    return state;
  }

  /** The pod's name, or "" if it is no pod. Returns undefined if the pod has another namespace than earlier ones. */
  #readPod(end: number): string | undefined {
    const { reader } = this;
    let kind = "";
    let namespace = "";
    let name = "";
    while (reader.at < end) {
      const tag = reader.tag();
      if (tag === KIND) kind = reader.name(reader.endOf(end));
      else if (tag === NAMESPACE) namespace = reader.name(reader.endOf(end));
      else if (tag === NAME) name = reader.text(reader.endOf(end));
      else reader.skip(tag, end);
    }
    reader.checkEnd(end);
    if (kind !== "Pod") return "";
    if (namespace === "" || (this.namespace !== "" && namespace !== this.namespace)) return undefined;
    this.namespace = namespace;
    return name;
  }
}

/** Type of a slice's field. */
export const ENDPOINTS: FieldType = {
  wire: LENGTH_DELIMITED,
  read: (reader, end, before) => {
    const endpoints = (before ?? new PlainEndpoints(reader)) as PlainEndpoints;
    endpoints.add(end);
    return endpoints;
  },
};
