/**
 * Descriptions of a configuration's fields. A description is both the type and the reader of a field: it converts the value as
 * written, and collects every problem with its path. (`base/shape.ts` describes values that are used as they are, and stops at
 * the first problem.) Fields that a section does not have are collected apart, because they cause only a warning.
 */
import { isFields } from "../base/unknown.js";
import type { ConfigProblem } from "./config-error.js";

/** The reason why a value cannot be used: "must be a string". */
export class Invalid {
  readonly message: string;

  constructor(message: string) {
    this.message = message;
  }
}

export interface UnknownField {
  /** Path of the field's section with a final dot; "" for the whole configuration. */
  readonly prefix: string;
  readonly name: string;
  /** The fields that the section has. */
  readonly known: readonly string[];
}

export interface Findings {
  readonly problems: ConfigProblem[];
  readonly unknown: UnknownField[];
}

export interface Field<T> {
  /** Returns undefined if the value cannot be used. */
  read(given: unknown, path: string, findings: Findings): T | undefined;
  readonly required?: boolean;
  /** The fields of a section. */
  readonly section?: Sections;
  /** The items of a list. */
  readonly item?: Field<unknown>;
}

type Sections = Readonly<Record<string, Field<unknown>>>;
/** The type of the values that a description reads. */
export type ValueOf<F> = F extends Field<infer T> ? T : never;

/** A value without parts. @param convert returns the value in the form that the program uses. */
export function scalar<T>(convert: (given: unknown) => T | Invalid): Field<T> {
  return {
    read(given, path, { problems }) {
      const value = convert(given);
      if (!(value instanceof Invalid)) return value;
      problems.push({ path, message: given === undefined ? `is missing: it ${value.message}` : value.message });
      return undefined;
    },
  };
}

export function required<T>(field: Field<T>): Field<T> {
  return { ...field, required: true };
}

export function section<S extends Sections>(fields: S, otherwise = "must be an object") {
  type Value = { readonly [K in keyof S]?: ValueOf<S[K]> };
  const known = Object.keys(fields);
  return {
    section: fields,
    read(given: unknown, path: string, findings: Findings): Value | undefined {
      if (!isFields(given)) return invalid(path, otherwise, findings);
      const prefix = path === "" ? "" : `${path}.`;
      for (const name of Object.keys(given)) {
        if (!Object.hasOwn(fields, name)) findings.unknown.push({ prefix, name, known });
      }
      const entries = Object.entries(fields)
        .filter(([name, field]) => given[name] !== undefined || field.required === true)
        .map(([name, field]) => [name, field.read(given[name], `${prefix}${name}`, findings)]);
      return Object.fromEntries(entries) as Value;
    },
  };
}

export function list<T>(item: Field<T>): Field<readonly T[]> {
  return {
    item,
    read(given, path, findings) {
      if (!Array.isArray(given)) return invalid(path, "must be a list", findings);
      return given.map((value, index) => item.read(value, `${path}[${index}]`, findings)).filter(isRead);
    },
  };
}

/** An object with any names. @param otherwise message about another value. */
export function namedValues<T>(item: Field<T>, otherwise: string): Field<Readonly<Record<string, T>>> {
  return {
    read(given, path, findings) {
      if (!isFields(given)) return invalid(path, otherwise, findings);
      const entries = Object.entries(given).map(([name, value]) => [
        name,
        item.read(value, `${path}.${name}`, findings),
      ]);
      return Object.fromEntries(entries) as Record<string, T>;
    },
  };
}

function invalid(path: string, message: string, { problems }: Findings): undefined {
  problems.push({ path, message });
}

function isRead<T>(value: T | undefined): value is T {
  return value !== undefined;
}
