/**
 * Readers for objects that were never validated: any field may contain anything. Each reader reports an invalid value, and
 * continues with the API server's default.
 */
import { counted } from "../../base/counted.js";
import { parseAddress, parseCIDR, type Prefix } from "../../base/ip.js";
import { type Protocol, PROTOCOLS } from "../../base/protocols.js";
import { inPieces, type Pieces } from "../../base/time-slice.js";
import { type Fields, isFields } from "../../base/unknown.js";
import type { DetailPacker } from "../endpoint-details.js";

/** Inputs of decoding other than the object. */
export interface DecodeOptions {
  /** Name of this node. */
  readonly nodeName: string;
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
  /** Returns the same string for equal strings, so that a port name is in memory only once. */
  readonly intern: (text: string) => string;
  readonly details: DetailPacker;
}

/** Maximum of reported fields per object, because each has a line in the log. */
const MOST_PROBLEMS = 100;
/** The path that stands for all further fields. */
const MORE = "…";

/**
 * Collects the parts of one object that cannot be served. Readers name fields relative to the current list item. So no path is
 * built for valid fields, which would take most of the time to read an object.
 */
export class FieldProblems {
  #problems: Map<string, string> | undefined;
  #refused: Set<string> | undefined;
  #list = "";
  #index = 0;
  #more = 0;
  #moreRefused = 0;
  #skipped: string | undefined;

  /** Why the object is not served by rule, as a clause about it. Undefined if it may be served. */
  get skipped(): string | undefined {
    return this.#skipped;
  }

  /** The object is not served by rule, so nothing is missing. */
  skip(reason: string): undefined {
    this.#skipped = reason;
  }

  /** The next fields belong to an item of a list, and start with a dot. `leave` ends this. */
  enter(list: string, index: number): void {
    this.#list = list;
    this.#index = index;
  }

  leave(): void {
    this.#list = "";
  }

  /** Reports a value that is valid but not served by rule. Nothing is missing then. */
  refuse(field: string, reason: string): void {
    const path = this.#pathOf(field);
    if (this.#problems?.has(path) === true) return;
    this.report(field, reason);
    this.#refused ??= new Set();
    if (this.#problems?.has(path) === true) this.#refused.add(path);
    else if (++this.#moreRefused === this.#more) this.#refused.add(MORE);
    else this.#refused.delete(MORE);
  }

  report(field: string, reason: string): void {
    const path = this.#pathOf(field);
    this.#problems ??= new Map();
    // The first report counts: it is about the value, and later ones are about its absence.
    if (this.#problems.has(path)) return;
    if (this.#problems.size < MOST_PROBLEMS) this.#problems.set(path, reason);
    else {
      this.#problems.set(MORE, counted(++this.#more, "more field cannot be served", "more fields cannot be served"));
      this.#refused?.delete(MORE);
    }
  }

  /** Reasons by path. Undefined if there are no problems. */
  get all(): ReadonlyMap<string, string> | undefined {
    return this.#problems;
  }

  /** Paths of values passed to `refuse`. */
  get refused(): ReadonlySet<string> | undefined {
    return this.#refused;
  }

  #pathOf(field: string): string {
    return this.#list === "" ? field : `${this.#list}[${this.#index}]${field}`;
  }
}

const NOTHING: Fields = Object.freeze({});
const NO_ITEMS: readonly unknown[] = Object.freeze([]);
const NO_VALUES: readonly never[] = Object.freeze([]);
const NO_PREFIXES: readonly Prefix[] = Object.freeze([]);

/**
 * An empty array with room for `length` items. Fill it from the front, and cut it to the number of items. An array that grows
 * item by item has room for at least seventeen, which would be most of the memory of a short list.
 */
export function sized<T>(length: number): T[] {
  // oxlint-disable-next-line unicorn/no-new-array
  return new Array<T>(length);
}

/** Cuts such an array to its number of items. If it is full, V8 would take a slow path to do nothing. */
export function cut(items: unknown[], length: number): void {
  if (items.length !== length) items.length = length;
}

/** Reads a list in pieces, without the items for which `read` returns undefined. */
export function* readList<Item, Value>(
  items: readonly Item[],
  read: (item: Item, index: number) => Value | undefined,
): Pieces<readonly Value[]> {
  if (items.length === 0) return NO_VALUES;
  const values = sized<Value>(items.length);
  let count = 0;
  yield* inPieces(items.length, (from, to) => {
    for (let i = from; i < to; i++) {
      const value = read(items[i], i);
      if (value !== undefined) values[count++] = value;
    }
  });
  cut(values, count);
  return values;
}

/** Short text for a value in a reason; never a whole object. */
export function show(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object" && value !== null) return "an object";
  const text = JSON.stringify(value) ?? typeof value;
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** An object. Absent and null yield one without fields, and so does anything else, with a report. */
export function fieldsOf(value: unknown, field: string, problems: FieldProblems): Fields {
  if (value === undefined || value === null) return NOTHING;
  if (isFields(value)) return value;
  problems.report(field, `${show(value)} is not an object`);
  return NOTHING;
}

/** A list. Absent and null yield an empty one, and so does anything else, with a report. */
export function listOf(value: unknown, field: string, problems: FieldProblems): readonly unknown[] {
  if (value === undefined || value === null) return NO_ITEMS;
  if (Array.isArray(value)) return value as readonly unknown[];
  problems.report(field, `${show(value)} is not a list`);
  return NO_ITEMS;
}

/** A string. Absent and null yield "", and so does anything else, with a report. */
export function textOf(value: unknown, field: string, problems: FieldProblems): string {
  if (typeof value === "string") return value;
  if (value !== undefined && value !== null) problems.report(field, `${show(value)} is not a string`);
  return "";
}

/**
 * A condition with three states. Absent and null yield `unset`. Anything but a boolean yields false, with a report, so that it
 * never makes anything ready.
 */
export function booleanOf(value: unknown, unset: boolean, field: string, problems: FieldProblems): boolean {
  if (typeof value === "boolean") return value;
  if (value === undefined || value === null) return unset;
  problems.report(field, `${show(value)} is not true or false; using false`);
  return false;
}

/**
 * One of `allowed`. Absent, null and "" yield the default. Anything else yields `invalid`, with a report: if the field restricts
 * access, that is the choice that restricts it most.
 */
export function choiceOf<T extends string>(
  value: unknown,
  allowed: readonly T[],
  unset: T,
  field: string,
  problems: FieldProblems,
  invalid: T = unset,
): T {
  if (value === undefined || value === null || value === "" || value === unset) return unset;
  const choice = allowed.find((one) => one === value);
  if (choice !== undefined) return choice;
  problems.report(field, `${show(value)} is not one of ${allowed.join(", ")}; using ${invalid}`);
  return invalid;
}

/** A port's protocol. Absent, null and "" yield TCP. Returns undefined, with a report, if the protocol cannot be served. */
export function protocolOf(value: unknown, problems: FieldProblems): Protocol | undefined {
  if (value === undefined || value === null || value === "" || value === "TCP") return "TCP";
  const protocol = PROTOCOLS.find((one) => one === value);
  if (protocol === undefined) problems.report(".protocol", `${show(value)} is not TCP, UDP or SCTP`);
  return protocol;
}

/** A port from 1 to 65535. Absent, null and 0 yield 0, and so does anything else, with a report. */
export function portOf(value: unknown, field: string, problems: FieldProblems): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= 65535) return value;
  if (value !== undefined && value !== null) problems.report(field, `${show(value)} is not a port (1 to 65535)`);
  return 0;
}

/** Canonical text of an address. Returns undefined, with a report, if the value is not an address. */
export function addressOf(value: unknown, field: string, problems: FieldProblems): string | undefined {
  const address = typeof value === "string" ? parseAddress(value) : undefined;
  if (address === undefined) problems.report(field, `${show(value)} is not an IP address`);
  return address;
}

/** metadata.creationTimestamp in milliseconds since 1970. Returns Infinity if it is absent or (with a report) invalid. */
export function creationTimeOf(metadata: Fields, problems: FieldProblems): number {
  const value = metadata["creationTimestamp"];
  if (value === undefined || value === null) return Infinity;
  const time = value instanceof Date ? value.getTime() : typeof value === "string" ? Date.parse(value) : NaN;
  if (!Number.isNaN(time)) return time;
  problems.report("metadata.creationTimestamp", `${show(value)} is not a time`);
  return Infinity;
}

/** metadata. Removes a namespace that is not text. */
export function metadataOf(object: Fields, problems: FieldProblems): Fields {
  const metadata = fieldsOf(object["metadata"], "metadata", problems);
  textOf(metadata["namespace"], "metadata.namespace", problems);
  return metadata;
}

/** The networks of a list. Invalid ones are reported. @param effect of an invalid one, for the report. */
export function cidrsOf(value: unknown, field: string, problems: FieldProblems, effect = ""): readonly Prefix[] {
  const items = listOf(value, field, problems);
  if (items.length === 0) return NO_PREFIXES;
  return items.flatMap((item, i) => cidrOf(item, `${field}[${i}]`, problems, effect) ?? []);
}

/** A network. Returns undefined, with a report, if the value is none. @param effect of that, for the report. */
export function cidrOf(value: unknown, field: string, problems: FieldProblems, effect = ""): Prefix | undefined {
  const prefix = typeof value === "string" ? parseCIDR(value.trim()) : undefined;
  if (prefix === undefined) problems.report(field, `${show(value)} is not a CIDR${effect}`);
  return prefix;
}
