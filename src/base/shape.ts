/**
 * Shapes of values that callers pass in: one description is both the type and the check at run time. Checks are strict: a
 * key that is not described, or a value that is not listed, is a problem.
 */
import { closest } from "./closest.js";

interface Problem {
  /** "chain input, rule 0, statement 1, direction" */
  readonly path: string;
  /** "one of source, destination" */
  readonly expected: string;
  readonly value: unknown;
  /** The valid name that was probably meant. */
  readonly nearest?: string;
}

declare const VALUE: unique symbol;

export interface Shape<T> {
  readonly expected: string;
  /** The first problem of the value. Returns undefined if there is none. */
  find(path: string, value: unknown): Problem | undefined;
  readonly [VALUE]?: T;
}

/** A field that may be absent, or undefined. */
export interface Optional<T> extends Shape<T> {
  readonly optional: true;
}

export type Fields = Readonly<Record<string, Shape<unknown>>>;

/** The type of the values that a shape describes. */
export type ValueOf<S> = S extends Shape<infer T> ? T : never;

type Flat<T> = { [K in keyof T]: T[K] };
/** The type of an object with these fields. */
export type RecordOf<F extends Fields> = Flat<
  { readonly [K in keyof F as F[K] extends Optional<unknown> ? never : K]: ValueOf<F[K]> } & {
    readonly [K in keyof F as F[K] extends Optional<unknown> ? K : never]?: ValueOf<F[K]>;
  }
>;
/** The type of an object whose `tag` decides its other fields. */
export type VariantOf<Tag extends string, V extends Readonly<Record<string, Fields>>> = {
  [K in keyof V]: Flat<{ readonly [T in Tag]: K } & RecordOf<V[K]>>;
}[keyof V];

export function value<T>(expected: string, accepts: (value: unknown) => boolean): Shape<T> {
  return { expected, find: (path, given) => (accepts(given) ? undefined : { path, expected, value: given }) };
}

export const flag = value<boolean>("true or false", (given) => typeof given === "boolean");

export function integer(expected: string, least: number, most: number): Shape<number> {
  return value(
    expected,
    (given) => typeof given === "number" && Number.isInteger(given) && given >= least && given <= most,
  );
}

export function text(expected: string, accepts: (text: string) => boolean): Shape<string> {
  return value(expected, (given) => typeof given === "string" && accepts(given));
}

export function callback<F>(): Shape<F> {
  return value("a function", (given) => typeof given === "function");
}

export function oneOf<const Name extends string>(...names: readonly Name[]): Shape<Name> {
  const expected = names.length === 1 ? `"${names[0]}"` : `one of ${names.join(", ")}`;
  return {
    expected,
    find: (path, given) =>
      names.some((name) => name === given) ? undefined : { path, expected, value: given, ...nearest(given, names) },
  };
}

/** Keys of an object, typed for `oneOf`. */
export function namesOf<Name extends string>(object: Readonly<Record<Name, unknown>>): Name[] {
  return Object.keys(object) as Name[];
}

export function list<T>(item: Shape<T>, least = 0): Shape<readonly T[]> {
  const expected = `a list of ${least > 0 ? `at least ${least}: each ` : ""}${item.expected}`;
  return {
    expected,
    find(path, given) {
      if (!Array.isArray(given) || given.length < least) return { path, expected, value: given };
      for (let index = 0; index < given.length; index++) {
        const problem = item.find(`${path}[${index}]`, given[index]);
        if (problem !== undefined) return problem;
      }
      return undefined;
    },
  };
}

/** A tuple of two. */
export function pair<A, B>(expected: string, first: Shape<A>, second: Shape<B>): Shape<readonly [A, B]> {
  return {
    expected,
    find(path, given) {
      if (!Array.isArray(given) || given.length !== 2) return { path, expected, value: given };
      return first.find(`${path}[0]`, given[0]) ?? second.find(`${path}[1]`, given[1]);
    },
  };
}

export function optional<T>(shape: Shape<T>): Optional<T> {
  return {
    expected: shape.expected,
    optional: true,
    find: (path, given) => (given === undefined ? undefined : shape.find(path, given)),
  };
}

/** One shape or the other. An object is checked against the last shape, so that a problem names the wrong part of it. */
export function either<A, B>(expected: string, simple: Shape<A>, other: Shape<B>): Shape<A | B> {
  return {
    expected,
    find(path, given) {
      const problem = simple.find(path, given);
      if (problem === undefined) return undefined;
      const inOther = other.find(path, given);
      if (inOther === undefined || (typeof given === "object" && given !== null)) return inOther;
      return { ...problem, expected };
    },
  };
}

export function record<F extends Fields>(fields: F, what = "an object"): Shape<RecordOf<F>> {
  return {
    expected: what,
    find: (path, given) =>
      isObject(given) ? findInFields(path, given, fields) : { path, expected: what, value: given },
  };
}

/** An object with these functions. It may have other fields, because an instance of a class has its own state. */
export function handlers<F extends Fields>(fields: F): Shape<RecordOf<F>> {
  const plain = record(fields);
  return {
    expected: plain.expected,
    find(path, given) {
      const prototype: unknown = isObject(given) ? Object.getPrototypeOf(given) : undefined;
      if (!isObject(given) || prototype === Object.prototype || prototype === null) return plain.find(path, given);
      return plain.find(path, Object.fromEntries(Object.keys(fields).map((name) => [name, given[name]])));
    },
  };
}

export function variants<Tag extends string, V extends Readonly<Record<string, Fields>>>(
  tag: Tag,
  kinds: V,
): Shape<VariantOf<Tag, V>> {
  const name = oneOf(...Object.keys(kinds));
  const expected = `an object with "${tag}"`;
  return {
    expected,
    find(path, given) {
      if (!isObject(given)) return { path, expected, value: given };
      const kind = given[tag];
      const problem = name.find(`${path}, ${tag}`, kind);
      return problem ?? findInFields(path, given, { [tag]: name, ...kinds[kind as string] });
    },
  };
}

export function isObject(given: unknown): given is Readonly<Record<string, unknown>> {
  return typeof given === "object" && given !== null && !Array.isArray(given);
}

function findInFields(path: string, given: Readonly<Record<string, unknown>>, fields: Fields): Problem | undefined {
  const known = Object.keys(fields);
  for (const key of Object.keys(given)) {
    if (Object.hasOwn(fields, key)) continue;
    const expected = `no such key; the keys are ${known.join(", ")}`;
    return { path: `${path}, ${key}`, expected, value: given[key], ...nearest(key, known) };
  }
  for (const [key, shape] of Object.entries(fields)) {
    const problem = shape.find(`${path}, ${key}`, given[key]);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function nearest(given: unknown, names: readonly string[]): { readonly nearest?: string } {
  const name = typeof given === "string" ? closest(given, names) : undefined;
  return name === undefined ? {} : { nearest: name };
}
