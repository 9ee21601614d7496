/**
 * Reading objects that nobody has validated: any field may hold anything. Every reader names what it cannot take and
 * carries on with the API server's default.
 */
import { type Fields, isFields } from "../base/unknown.js";
import { parseAddress } from "../base/ip.js";
import type { Problem, Protocol } from "./types.js";

/**
 * Gathers what cannot be served of one object. Readers name fields relative to the list item that was entered, so that
 * no path is spelt out for the fields that are in order: that was most of the time it took to read an object.
 */
export class Findings {
  #found: Map<string, string> | undefined;
  #list = "";
  #index = 0;

  /** From here on fields are those of an item of a list, and start with a dot; `leave` ends it. */
  enter(list: string, index: number): void {
    this.#list = list;
    this.#index = index;
  }

  leave(): void {
    this.#list = "";
  }

  report(field: string, reason: string): void {
    const path = this.#list === "" ? field : `${this.#list}[${this.#index}]${field}`;
    this.#found ??= new Map();
    // What a reader says of a value goes before what is then missing for want of it.
    if (!this.#found.has(path)) this.#found.set(path, reason);
  }

  /** Reasons by path; undefined when all is well. */
  get all(): ReadonlyMap<string, string> | undefined {
    return this.#found;
  }
}

const NOTHING: Fields = Object.freeze({});
const NO_ITEMS: readonly unknown[] = Object.freeze([]);

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
export function fieldsOf(value: unknown, field: string, found: Findings): Fields {
  if (value === undefined || value === null) return NOTHING;
  if (isFields(value)) return value;
  found.report(field, `${show(value)} is not an object`);
  return NOTHING;
}

/** A list; absent, null and (with a report) anything else read as an empty one. */
export function listOf(value: unknown, field: string, found: Findings): readonly unknown[] {
  if (value === undefined || value === null) return NO_ITEMS;
  if (Array.isArray(value)) return value as readonly unknown[];
  found.report(field, `${show(value)} is not a list`);
  return NO_ITEMS;
}

/** A string; absent and null read as "", anything else too, with a report. */
export function textOf(value: unknown, field: string, found: Findings): string {
  if (typeof value === "string") return value;
  if (value !== undefined && value !== null) found.report(field, `${show(value)} is not a string`);
  return "";
}

/** A condition of three states: `unset` when absent or null; what is no boolean is false, with a report: it never makes anything ready. */
export function booleanOf(value: unknown, unset: boolean, field: string, found: Findings): boolean {
  if (typeof value === "boolean") return value;
  if (value === undefined || value === null) return unset;
  found.report(field, `${show(value)} is not true or false; false is assumed`);
  return false;
}

/** One of `allowed`; absent, null and "" read as the default, anything else too, with a report. */
export function choiceOf<T extends string>(
  value: unknown,
  allowed: readonly T[],
  unset: T,
  field: string,
  found: Findings,
): T {
  if (value === undefined || value === null || value === "" || value === unset) return unset;
  const choice = allowed.find((one) => one === value);
  if (choice !== undefined) return choice;
  found.report(field, `${show(value)} is none of ${allowed.join(", ")}; ${unset} is assumed`);
  return unset;
}

const PROTOCOLS: readonly Protocol[] = ["TCP", "UDP", "SCTP"];

/** A protocol; absent, null and "" read as TCP; undefined, with a report, when it is none that can be served. */
export function protocolOf(value: unknown, field: string, found: Findings): Protocol | undefined {
  if (value === undefined || value === null || value === "" || value === "TCP") return "TCP";
  const protocol = PROTOCOLS.find((one) => one === value);
  if (protocol === undefined) found.report(field, `${show(value)} is not TCP, UDP or SCTP`);
  return protocol;
}

/** A port, 1 to 65535; 0 when absent, null or 0, and with a report when it is none. */
export function portOf(value: unknown, field: string, found: Findings): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= 65535) return value;
  if (value !== undefined && value !== null) found.report(field, `${show(value)} is not a port (1 to 65535)`);
  return 0;
}

/** Canonical text of an address; undefined, with a report, when it is none. */
export function addressOf(value: unknown, field: string, found: Findings): string | undefined {
  const address = typeof value === "string" ? parseAddress(value) : undefined;
  if (address === undefined) found.report(field, `${show(value)} is not an IP address`);
  return address;
}

/** Milliseconds since 1970 of metadata.creationTimestamp; Infinity when absent or (with a report) unreadable. */
export function creationTimeOf(metadata: Fields, found: Findings): number {
  const value = metadata["creationTimestamp"];
  if (value === undefined || value === null) return Infinity;
  const time = value instanceof Date ? value.getTime() : typeof value === "string" ? Date.parse(value) : NaN;
  if (!Number.isNaN(time)) return time;
  found.report("metadata.creationTimestamp", `${show(value)} is not a time`);
  return Infinity;
}

/** "namespace/name" ("default" when there is no namespace); undefined, with a report, when it has no name. */
export function namespacedName(metadata: Fields, found: Findings): string | undefined {
  const name = clusterName(metadata, found);
  if (name === undefined) return undefined;
  return `${textOf(metadata["namespace"], "metadata.namespace", found) || "default"}/${name}`;
}

/** metadata.name; undefined, with a report, when there is none. */
export function clusterName(metadata: Fields, found: Findings): string | undefined {
  const name = metadata["name"];
  if (typeof name === "string" && name !== "") return name;
  found.report("metadata.name", name === undefined || name === null ? "is missing" : `${show(name)} is not a name`);
  return undefined;
}

/**
 * Says each problem of an object once: a new version of the object repeats none that the version before had.
 */
export class ProblemLog {
  /** Reasons by field, by kind and object. */
  readonly #said = new Map<string, ReadonlyMap<string, string>>();
  readonly #say: (problem: Problem) => void;

  constructor(say: (problem: Problem) => void) {
    this.#say = say;
  }

  /** No object has a problem as it is. */
  get silent(): boolean {
    return this.#said.size === 0;
  }

  /** Those that objects have as they are. */
  *present(): Iterable<Problem> {
    for (const [key, problems] of this.#said) {
      const space = key.indexOf(" ");
      const [kind, object] = [key.slice(0, space), key.slice(space + 1)];
      for (const [field, reason] of problems) yield { kind, object, field, reason };
    }
  }

  /** `problems` are all that the present version has. */
  update(kind: string, object: string, problems: ReadonlyMap<string, string> | undefined): void {
    const none = problems === undefined || problems.size === 0;
    if (none && this.silent) return;
    const key = `${kind} ${object}`;
    if (none) {
      this.#said.delete(key);
      return;
    }
    const before = this.#said.get(key);
    for (const [field, reason] of problems) {
      if (before?.get(field) !== reason) this.#say({ kind, object, field, reason });
    }
    this.#said.set(key, problems);
  }
}
