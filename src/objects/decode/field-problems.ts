/**
 * Reading objects that were never validated: any field may hold anything. Every reader reports what it cannot take and
 * carries on with the API server's default.
 */
import { counted } from "../../base/counted.js";
import { parseAddress, parseCIDR, type Prefix } from "../../base/ip.js";
import { type Protocol, PROTOCOLS } from "../../base/protocols.js";
import { type Fields, isFields } from "../../base/unknown.js";
import type { DetailPacker } from "../endpoint-details.js";

/** What decoding depends on besides the object. */
export interface DecodeOptions {
  /** This node. */
  readonly nodeName: string;
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
  /** One string for equal strings: a port name is in memory once. */
  readonly intern: (text: string) => string;
  readonly details: DetailPacker;
}

/** Fields of one object that are reported: each has a line in the log. */
const MOST_PROBLEMS = 100;
/** The path of all others. */
const MORE = "…";

/**
 * Gathers what cannot be served of one object. Readers name fields relative to the list item that was entered, so that
 * no path is spelt out for the fields that are in order: that was most of the time it took to read an object.
 */
export class FieldProblems {
  #problems: Map<string, string> | undefined;
  #refused: Set<string> | undefined;
  #list = "";
  #index = 0;
  #more = 0;
  #moreRefused = 0;

  /** From here on fields are those of an item of a list, and start with a dot; `leave` ends it. */
  enter(list: string, index: number): void {
    this.#list = list;
    this.#index = index;
  }

  leave(): void {
    this.#list = "";
  }

  /** The value is understood, and not to be served by rule: as it is, nothing is missing. */
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
    // What a reader says of a value goes before what is then missing for want of it.
    if (this.#problems.has(path)) return;
    if (this.#problems.size < MOST_PROBLEMS) this.#problems.set(path, reason);
    else {
      this.#problems.set(MORE, counted(++this.#more, "more field cannot be served", "more fields cannot be served"));
      this.#refused?.delete(MORE);
    }
  }

  /** Reasons by path; undefined when all is well. */
  get all(): ReadonlyMap<string, string> | undefined {
    return this.#problems;
  }

  /** Paths of what was refused. */
  get refused(): ReadonlySet<string> | undefined {
    return this.#refused;
  }

  #pathOf(field: string): string {
    return this.#list === "" ? field : `${this.#list}[${this.#index}]${field}`;
  }
}

const NOTHING: Fields = Object.freeze({});
const NO_ITEMS: readonly unknown[] = Object.freeze([]);
const NO_PREFIXES: readonly Prefix[] = Object.freeze([]);

/**
 * An empty array with room for `length` items, to be filled from the front and cut to what came. Growing one item by item
 * leaves room for seventeen at least, which is most of the memory of a short list.
 */
export function sized<T>(length: number): T[] {
  // oxlint-disable-next-line unicorn/no-new-array
  return new Array<T>(length);
}

/** Cuts such an array to what came; where all came V8 would take a slow way to do nothing. */
export function cut(items: unknown[], length: number): void {
  if (items.length !== length) items.length = length;
}

/** How a value appears in a reason: short, and never a whole object. */
export function show(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object" && value !== null) return "an object";
  const text = JSON.stringify(value) ?? typeof value;
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** An object; absent, null and (with a report) anything else read as one without fields. */
export function fieldsOf(value: unknown, field: string, problems: FieldProblems): Fields {
  if (value === undefined || value === null) return NOTHING;
  if (isFields(value)) return value;
  problems.report(field, `${show(value)} is not an object`);
  return NOTHING;
}

/** A list; absent, null and (with a report) anything else read as an empty one. */
export function listOf(value: unknown, field: string, problems: FieldProblems): readonly unknown[] {
  if (value === undefined || value === null) return NO_ITEMS;
  if (Array.isArray(value)) return value as readonly unknown[];
  problems.report(field, `${show(value)} is not a list`);
  return NO_ITEMS;
}

/** A string; absent and null read as "", anything else too, with a report. */
export function textOf(value: unknown, field: string, problems: FieldProblems): string {
  if (typeof value === "string") return value;
  if (value !== undefined && value !== null) problems.report(field, `${show(value)} is not a string`);
  return "";
}

/** A condition of three states: `unset` when absent or null; what is no boolean is false, with a report: it never makes anything ready. */
export function booleanOf(value: unknown, unset: boolean, field: string, problems: FieldProblems): boolean {
  if (typeof value === "boolean") return value;
  if (value === undefined || value === null) return unset;
  problems.report(field, `${show(value)} is not true or false; false is assumed`);
  return false;
}

/** One of `allowed`; absent, null and "" read as the default, anything else too, with a report. */
export function choiceOf<T extends string>(
  value: unknown,
  allowed: readonly T[],
  unset: T,
  field: string,
  problems: FieldProblems,
): T {
  if (value === undefined || value === null || value === "" || value === unset) return unset;
  const choice = allowed.find((one) => one === value);
  if (choice !== undefined) return choice;
  problems.report(field, `${show(value)} is none of ${allowed.join(", ")}; ${unset} is assumed`);
  return unset;
}

/** A protocol; absent, null and "" read as TCP; undefined, with a report, when it is none that can be served. */
export function protocolOf(value: unknown, field: string, problems: FieldProblems): Protocol | undefined {
  if (value === undefined || value === null || value === "" || value === "TCP") return "TCP";
  const protocol = PROTOCOLS.find((one) => one === value);
  if (protocol === undefined) problems.report(field, `${show(value)} is not TCP, UDP or SCTP`);
  return protocol;
}

/** A port, 1 to 65535; 0 when absent, null or 0, and with a report when it is none. */
export function portOf(value: unknown, field: string, problems: FieldProblems): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= 65535) return value;
  if (value !== undefined && value !== null) problems.report(field, `${show(value)} is not a port (1 to 65535)`);
  return 0;
}

/** Canonical text of an address; undefined, with a report, when it is none. */
export function addressOf(value: unknown, field: string, problems: FieldProblems): string | undefined {
  const address = typeof value === "string" ? parseAddress(value) : undefined;
  if (address === undefined) problems.report(field, `${show(value)} is not an IP address`);
  return address;
}

/** Milliseconds since 1970 of metadata.creationTimestamp; Infinity when absent or (with a report) unreadable. */
export function creationTimeOf(metadata: Fields, problems: FieldProblems): number {
  const value = metadata["creationTimestamp"];
  if (value === undefined || value === null) return Infinity;
  const time = value instanceof Date ? value.getTime() : typeof value === "string" ? Date.parse(value) : NaN;
  if (!Number.isNaN(time)) return time;
  problems.report("metadata.creationTimestamp", `${show(value)} is not a time`);
  return Infinity;
}

/** metadata; without a namespace that is text it is read as having none. */
export function metadataOf(object: Fields, problems: FieldProblems): Fields {
  const metadata = fieldsOf(object["metadata"], "metadata", problems);
  textOf(metadata["namespace"], "metadata.namespace", problems);
  return metadata;
}

/** The networks of a list; those that are none are reported. */
export function cidrsOf(value: unknown, field: string, problems: FieldProblems): readonly Prefix[] {
  const items = listOf(value, field, problems);
  if (items.length === 0) return NO_PREFIXES;
  return items.flatMap((item, i) => {
    const prefix = typeof item === "string" ? parseCIDR(item.trim()) : undefined;
    if (prefix === undefined) problems.report(`${field}[${i}]`, `${show(item)} is not a CIDR`);
    return prefix ?? [];
  });
}
