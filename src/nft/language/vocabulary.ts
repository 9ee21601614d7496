/**
 * The words that statements and sets share, as shapes (base/shape.ts): each is both a type and its check. Those of the kinds of actions are in
 * statements/.
 */
import { addressBytes } from "../../base/ip.js";
import {
  callback,
  either,
  type Fields,
  flag,
  integer,
  isObject,
  list,
  namesOf,
  oneOf,
  optional,
  pair,
  record,
  type Shape,
  text,
  value,
  type ValueOf,
  variants,
} from "../../base/shape.js";
import { parseRange } from "../bytes/ip-ranges.js";
import { isKeyword, isName, isQuotable, MAX_COMMENT_BYTES } from "../bytes/names-and-comments.js";
import { ObjectType } from "../kernel/constants.js";
import { FIELD_TYPES, type FieldType } from "./fields/field-types.js";
import { FIB_OF, FIB_RESULTS, type FieldName, FIELDS, SHORT_FIELDS } from "./fields/packet-fields.js";
import { ORDERED_RANGE, type ValueRange } from "./fields/values.js";

export const LOG_LEVELS = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit"] as const;
/** NF_LOG_*. */
export const LOG_FLAGS = { "tcp sequence": 1, "tcp options": 2, "ip options": 4, skuid: 8, ether: 32 } as const;
/** Seconds in each unit of a rate. */
export const LIMIT_SECONDS = { second: 1, minute: 60, hour: 3600, day: 86400 } as const;

const U32 = 0xffffffff;
export const u32 = integer("a number from 0 to 4294967295", 0, U32);
export const port = integer("a port from 0 to 65535", 0, 0xffff);
export const positive = integer("a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER);
export const positiveU32 = integer("a number from 1 to 4294967295", 1, U32);
export const milliseconds = integer("milliseconds, a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER);
const anyName = text(
  "a name: a letter or _, then letters, digits, _ / \\ . -, at most 255 bytes, and no keyword of nft",
  isName,
);
export const name: Shape<string> = {
  ...anyName,
  find: (path, given) =>
    isKeyword(given)
      ? { path, expected: "a name that is not a keyword of nft", value: given }
      : anyName.find(path, given),
};
/** Shown by nft. */
export const comment = text("a comment of at most 128 bytes without quotes and control characters", (given) =>
  isQuotable(given, MAX_COMMENT_BYTES),
);
export const address = text("an IP address", (given) => addressBytes(given) !== undefined);
/** An address, a network, or all addresses between two. */
export const addressRange = text(
  'an address, a network ("192.0.2.0/24") or a range ("FROM-TO")',
  (given) => parseRange(given) !== undefined,
);

/** All values between two, both included. */
export function rangeShape(expected: string, end: Shape<number>): Shape<ValueRange<number>> {
  const ends = record({ from: end, to: end }, expected);
  return {
    expected,
    find: (path, given) =>
      ends.find(path, given) ??
      ((given as ValueRange<number>).to < (given as ValueRange<number>).from
        ? { path, expected: ORDERED_RANGE, value: given }
        : undefined),
  };
}

export const rateUnit = oneOf(...namesOf(LIMIT_SECONDS));

const NUMBER_RANGE = { modulus: positiveU32, offset: optional(u32) } as const;
const anyField = oneOf<FieldName | keyof typeof SHORT_FIELDS>(...namesOf(FIELDS), ...namesOf(SHORT_FIELDS));
export const plainField: typeof anyField = {
  ...anyField,
  find(path, given) {
    const problem = anyField.find(path, given);
    // nft prints these without "meta".
    const short = typeof given === "string" ? given.replace(/^meta /, "") : "";
    return problem !== undefined && Object.hasOwn(FIELDS, short) ? { ...problem, nearest: short } : problem;
  },
};
const bits = integer("a number of bits from 0 to 16384", 0, 16384);

/** Values that no header has. */
export const GENERATED_FIELDS = {
  /** A number from `offset` (default 0) to less than `offset + modulus`. */
  numgen: { mode: oneOf("random", "inc"), ...NUMBER_RANGE },
  /**
   * A number in the same range, which only depends on the values of the fields `of` and on the machine's byte order. Must be last in a key: nft would
   * read the next field as one more of `of`.
   */
  jhash: { of: list(plainField, 1), seed: u32, ...NUMBER_RANGE },
  /** A hash of the packet's flow, the same in both directions. */
  symhash: NUMBER_RANGE,
  /** The routing table's answer about some of the packet's properties. check: whether there is a route. */
  fib: { of: list(oneOf(...namesOf(FIB_OF)), 1), result: oneOf(...namesOf(FIB_RESULTS)) },
  /** The id of the socket's control group, at this level of the tree. */
  "socket-cgroup": { level: integer("a level from 1 to 255", 1, 255) },
  /** Bits of a header, by place: nft's `@th,16,16`. `offset` and `length` are in bits. */
  raw: {
    base: oneOf("link", "network", "transport", "inner"),
    offset: bits,
    length: integer("a number of bits from 1 to 64", 1, 64),
  },
} as const satisfies Record<string, Fields>;

export const generatedField = variants("field", GENERATED_FIELDS);
/** A rule reads this: a field by nft's name ("ip saddr", "ct mark"), an address of either IP version ("saddr"), or a generated value. */
export const field = either('a field ("ip saddr"), or an object with "field"', plainField, generatedField);
export const anything = value<unknown>("a value", (given) => given !== undefined && given !== null);
type Mask = string | number | readonly (string | number)[];
/** Some bits of a field. The others are 0. */
const maskedField = record({ field: plainField, mask: anything as Shape<Mask> });
const partOrNumber: Shape<MaskedField | GeneratedField> = {
  expected: generatedField.expected,
  find: (path, given) => (isObject(given) && "mask" in given ? maskedField : generatedField).find(path, given),
};
/** A field of a key: whole, or `{ field: "ip6 saddr", mask: "ffff:ffff:ffff:ffff::" }`. */
const keyPart = either('a field ("ip saddr"), or an object with "field" (and "mask")', plainField, partOrNumber);
export const key = list(keyPart, 1);
export type MaskedField = ValueOf<typeof maskedField>;
export type KeyPart = ValueOf<typeof keyPart>;
export type Field = ValueOf<typeof field>;
export type GeneratedField = ValueOf<typeof generatedField>;
/** "in" and "not in": of a list, of a named set ("@name"), or any of some flags. */
export const comparison = oneOf("==", "!=", "<", "<=", ">", ">=", "in", "not in");
export type Comparison = ValueOf<typeof comparison>;

/** A named map, or the pairs of one that comes with the rule. */
export const mapOf = <D>(
  data: string,
  shape: Shape<D>,
): Shape<string | readonly (readonly [key: unknown, data: D])[]> =>
  either(`a map's name, or a list of [key, ${data}]`, name, list(pair(`[key, ${data}]`, anything, shape), 1));
/** Whether a source of values is a map. */
export function isFromMap<S>(source: S): source is Extract<S, { readonly key: unknown }> {
  return isObject(source) && "map" in source;
}

/** A source of values that is a map, or not. */
export function orMap<A, B>(expected: string, other: Shape<A>, map: Shape<B>): Shape<A | B> {
  return { expected, find: (path, given) => (isFromMap(given) ? map : other).find(path, given) };
}

/** NFT_OBJECT_* of the kinds of named objects, in nft's words. */
export const OBJECT_TYPES = {
  counter: ObjectType.counter,
  quota: ObjectType.quota,
  limit: ObjectType.limit,
  "ct helper": ObjectType.ctHelper,
  "ct timeout": ObjectType.ctTimeout,
  "ct expectation": ObjectType.ctExpect,
  synproxy: ObjectType.synproxy,
  secmark: ObjectType.secmark,
} as const;
export type ObjectKind = keyof typeof OBJECT_TYPES;
export const objectKind = oneOf(...namesOf(OBJECT_TYPES));

/** The type of one field of a key or of data. `integer` has no width of its own. */
export const fieldType = oneOf<FieldType>(...namesOf(FIELD_TYPES).filter((type) => type !== "integer"));

export type MapData = "verdict" | readonly ValueOf<typeof fieldType>[] | { readonly object: ObjectKind };
/** The type of a map's values: a verdict, named objects of one kind, or a list of field types. */
const data: Shape<MapData> = {
  expected: '"verdict", { object: kind }, or a list of field types',
  find(path, given) {
    if (isObject(given)) return record({ object: objectKind }).find(path, given);
    return either(this.expected, oneOf("verdict"), list(fieldType, 1)).find(path, given);
  },
};

const COUNTERS = {
  /** Gets the data before and after, as views. Default: the count always carries over. */
  carries: optional(callback<(before: Uint8Array, after: Uint8Array) => boolean>()),
} as const satisfies Fields;
export const counters = record(COUNTERS);

export const SET = {
  set: name,
  key: list(fieldType, 1),
  /** Absent: a set. "verdict": a verdict map. { object: "counter" }: a map of named counters. Otherwise a data map. */
  data: optional(data),
  /** Each key is a range, or a range of each field of a concatenation. */
  interval: optional(flag),
  /** Packets fill the set (`update`). The Table does not manage its elements and keeps them. */
  dynamic: optional(flag),
  /**
   * Default timeout of an element in ms. 0: no default, but elements may have a timeout (the `timeout` flag). Absent: no timeouts. An expired element
   * that the Table added is no longer desired.
   */
  timeoutMs: optional(integer("milliseconds, a whole number of at least 0", 0, Number.MAX_SAFE_INTEGER)),
  /**
   * The bound of the kernel's set. "auto": the Table picks a bound from the number of elements when it creates the set, because the kernel's fixed
   * hash loads twice as fast. It creates a larger set before that one overflows. Absent: no bound.
   */
  size: optional(either('a number from 1 to 4294967295, or "auto"', oneOf("auto"), positiveU32)),
  /**
   * Each element counts the packets that find it (Linux 5.7). An element that replaces another starts from the count that was read right before the
   * commit: packets in between are not counted. It starts at 0 if `carries` returns false for the two.
   */
  counters: optional(counters),
  comment: optional(comment),
} as const satisfies Fields;
