/**
 * The vocabulary of rules and sets as shapes (base/shape.ts). `rule.ts` derives its types from them, and the library uses them to check its input.
 * The proxier's own rules are typed, and are not checked again.
 */
import { addressBytes } from "../../base/ip.js";
import { parseNetwork, parseRange } from "../bytes/ip-ranges.js";
import { protocolNames } from "../../base/protocols.js";
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
import { ObjectType } from "../kernel/constants.js";
import { closest } from "../../base/closest.js";
import {
  expectedValue,
  FIELD_TYPES,
  type FieldType,
  ICMP_CODES,
  ICMPV6_CODES,
  namesOf as valueNames,
} from "./fields/field-types.js";
import {
  FIB_OF,
  FIB_RESULTS,
  type FieldEntry,
  type FieldName,
  FIELDS,
  SHORT_FIELDS,
  widthOfField,
} from "./fields/packet-fields.js";
import { firstWrong } from "./fields/values.js";
import type { Expr } from "../kernel/kernel.js";
import { VERDICT } from "./verdicts.js";
import { EXPR_TYPES } from "../kernel/normalize.js";
import { isKeyword, isName, isQuotable, MAX_COMMENT_BYTES, MAX_LOG_PREFIX_BYTES } from "../bytes/names-and-comments.js";

export const LOG_LEVELS = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit"] as const;
/** NF_LOG_*. */
export const LOG_FLAGS = { "tcp sequence": 1, "tcp options": 2, "ip options": 4, skuid: 8, ether: 32 } as const;
/** Seconds in each unit of a rate. */
export const LIMIT_SECONDS = { second: 1, minute: 60, hour: 3600, day: 86400 } as const;

const U32 = 0xffffffff;
const u32 = integer("a number from 0 to 4294967295", 0, U32);
const port = integer("a port from 0 to 65535", 0, 0xffff);
const positive = integer("a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER);
const positiveU32 = integer("a number from 1 to 4294967295", 1, U32);
const milliseconds = integer("milliseconds, a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER);
const exprType = oneOf(...EXPR_TYPES);
/** Only the type is checked: the kernel checks the other keys. */
const expression: Shape<Expr> = {
  expected: 'a kernel expression, with "type"',
  find(path, given) {
    if (!isObject(given)) return { path, expected: expression.expected, value: given };
    return exprType.find(`${path}, type`, given["type"]);
  },
};
const exprs: Shape<readonly Expr[]> = { ...list(expression), expected: "a list of kernel expressions" };

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
const address = text("an IP address", (given) => addressBytes(given) !== undefined);
const network = text('an address or a network ("192.0.2.0/24")', (given) => isReadable(() => parseNetwork(given)));
function isReadable(read: () => unknown): boolean {
  try {
    read();
    return true;
  } catch {
    return false;
  }
}

/** One of a packet's two ends. */
export const direction = oneOf("source", "destination");
/** The direction of a packet in its connection, or one of the connection's two tuples. */
export const ctDirection = oneOf("original", "reply");
const rateUnit = oneOf(...namesOf(LIMIT_SECONDS));

/** A port or an inclusive range of ports. */
export const portRange: Shape<number | readonly [from: number, to: number]> = either(
  "a port from 0 to 65535, or [from, to]",
  port,
  value<readonly [from: number, to: number]>(
    "a port from 0 to 65535, or [from, to]",
    (given) =>
      Array.isArray(given) &&
      given.length === 2 &&
      given.every((end) => port.find("", end) === undefined) &&
      given[0] <= given[1],
  ),
);

const NUMBER_RANGE = { modulus: positiveU32, offset: optional(u32) } as const;
const anyField = oneOf<FieldName | keyof typeof SHORT_FIELDS>(...namesOf(FIELDS), ...namesOf(SHORT_FIELDS));
const plainField: typeof anyField = {
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
export const field = either('a field ("ip saddr"), or an object with "field"', plainField, generatedField);
const key = list(field, 1);
export const comparison = oneOf("==", "!=", "<", "<=", ">", ">=", "in", "not in");

const anything = value<unknown>("a value", (given) => given !== undefined && given !== null);
const constant = value<string | number | readonly string[]>("a value", (given) =>
  Array.isArray(given) ? given.length > 0 : typeof given === "string" || typeof given === "number",
);
/** A named map, or the pairs of one that comes with the rule. */
const mapOf = <D>(data: string, shape: Shape<D>): Shape<string | readonly (readonly [key: unknown, data: D])[]> =>
  either(`a map's name, or a list of [key, ${data}]`, name, list(pair(`[key, ${data}]`, anything, shape), 1));
const fromMap = record({ key, map: mapOf("data", anything) }, "an object with key and map");
const fromField = record({ from: field, mask: optional(u32), xor: optional(u32) }, "an object with from");
const source: Shape<ValueOf<typeof fromField> | ValueOf<typeof fromMap>> = {
  expected: "{ from } or { key, map }",
  find: (path, given) => (isObject(given) && "map" in given ? fromMap : fromField).find(path, given),
};
export const dataSource = either("a value, { from }, or { key, map }", constant, source);
export const portSource = either("a port, [from, to], or { key, map }", portRange, fromMap);
export const addressSource = either(
  "an address, a network, [from, to], or { key, map }",
  either("an address or a network", network, value<readonly [from: string, to: string]>("[from, to]", isAddressRange)),
  record(
    { key, map: mapOf("data", anything), data: optional(oneOf("address", "address-port")) },
    "an object with key and map",
  ),
);

function isAddressRange(given: unknown): boolean {
  return (
    Array.isArray(given) &&
    given.length === 2 &&
    given.every((end) => typeof end === "string") &&
    isReadable(() => parseRange(given.join("-")))
  );
}

const NAT_OPTIONS = { random: optional(flag), fullyRandom: optional(flag), persistent: optional(flag) } as const;
const queueNumber = integer("a queue from 0 to 65535", 0, 0xffff);
const queueRange = value<readonly [from: number, to: number]>(
  "[from, to]",
  (given) =>
    Array.isArray(given) && given.length === 2 && given.every((end) => queueNumber.find("", end) === undefined),
);
const queueTarget: Shape<readonly [from: number, to: number] | ValueOf<typeof generatedField>> = {
  expected: "[from, to], or a field",
  find: (path, given) => (Array.isArray(given) ? queueRange : generatedField).find(path, given),
};

function settableFields(): FieldName[] {
  return namesOf(FIELDS).filter((one) => (FIELDS[one] as FieldEntry).settable !== undefined);
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
const objectKind = oneOf(...namesOf(OBJECT_TYPES));

/** Actions of a rule, by `action`. */
export const ACTIONS = {
  /** Ends the rule, or continues in another chain. */
  verdict: { verdict: VERDICT },
  /** Counts the packets and bytes that reach it. */
  counter: {},
  /** Records when a packet last reached it. */
  last: {},
  /** Writes to the kernel's log, or sends the packet to a group of listeners (`group`). */
  log: {
    prefix: optional(
      // nft reads $name as a variable.
      text(
        "a prefix of 1 to 127 bytes without quotes, control characters and $ before a letter",
        (given) => given !== "" && isQuotable(given, MAX_LOG_PREFIX_BYTES) && !/\$[A-Za-z_]/.test(given),
      ),
    ),
    level: optional(either("a syslog level, by name or from 0 to 8", integer("", 0, 8), oneOf(...LOG_LEVELS))),
    flags: optional(list(oneOf(...namesOf(LOG_FLAGS)), 1)),
    group: optional(integer("a group from 0 to 65535", 0, 0xffff)),
    /** Bytes of the packet that the group gets. */
    snaplen: optional(u32),
    /** Packets that the kernel collects before it sends them to the group. */
    queueThreshold: optional(integer("a number from 0 to 65535", 0, 0xffff)),
  },
  /** Holds for packets up to the rate, or above it (`over`). `burst` has the same unit as the rate. */
  limit: {
    rate: positive,
    per: rateUnit,
    unit: optional(oneOf("packets", "bytes", "kbytes", "mbytes")),
    burst: optional(positiveU32),
    over: optional(flag),
  },
  /** Holds until so many bytes have passed, or afterwards (`over`). */
  quota: { bytes: positive, over: optional(flag) },
  /** Holds if the rule's connections are at most `count`, or more (`over`). */
  connections: { count: positiveU32, over: optional(flag) },
  /** Writes a field of the packet or its connection. A source that is no constant must have the field's type. */
  set: { field: oneOf<FieldName>(...settableFields()), value: dataSource },
  /** Uses the named object `name`, or the one that a map of objects holds for the fields. Without an entry, the rule ends. */
  object: { kind: objectKind, name: optional(name), key: optional(key), map: optional(name) },
  /** The packet gets no connection. Only before connection tracking, at priority raw. */
  notrack: {},
  /**
   * Rewrites an address in the packet's header, with its checksums. Connection tracking and the connection's other packets are not affected.
   */
  "set-address": {
    direction,
    /** A constant, or the connection's address in one direction. Only in a table of family ip or ip6. */
    to: either("an IP address, or { ct, direction }", address, record({ ct: ctDirection, direction })),
  },
  /** Applies the verdict that a verdict map holds for the concatenated fields. Without an entry, continues. */
  vmap: { key, map: mapOf("verdict", VERDICT) },
  /** Rewrites the destination of the connection. A network as address: each address gets the one at its place. */
  dnat: { address: optional(addressSource), port: optional(portSource), ...NAT_OPTIONS },
  /** Rewrites the source of the connection. */
  snat: { address: optional(addressSource), port: optional(portSource), ...NAT_OPTIONS },
  /** Rewrites the source of the connection to the address of the outgoing interface. */
  masquerade: { ports: optional(portSource), ...NAT_OPTIONS },
  /** Rewrites the destination of the connection to this machine. */
  redirect: { ports: optional(portSource), ...NAT_OPTIONS },
  /** Gives the packet to a local socket, and does not change it. Only for tcp and udp. */
  tproxy: { address: optional(address), port: optional(port) },
  /** Drops the packet, and answers with an error. Families differ: ip has ICMP's codes, ip6 has ICMPv6's, the others have the four that both share. Default: port-unreachable. */
  reject: { with: optional(oneOf(...namesOf({ ...ICMP_CODES, ...ICMPV6_CODES }), "tcp-reset")) },
  /** Gives the packet to a program. `fanout`: by CPU. `bypass`: accepts the packet if no program listens. */
  queue: {
    num: either("a queue, [from, to], or a field", queueNumber, queueTarget),
    bypass: optional(flag),
    fanout: optional(flag),
  },
  /** Sends a copy: in ip and ip6 to an address (out of a device), in netdev out of a device. Devices are interface indices. */
  dup: { address: optional(address), device: optional(positiveU32) },
  /** Sends the packet out of a device, with an address to that neighbour. Only in netdev. */
  fwd: { device: positiveU32, address: optional(address) },
  /** Answers for the server until the handshake is complete. Only for tcp, of connections that are not tracked yet. */
  synproxy: {
    mss: optional(integer("a number from 0 to 65535", 0, 0xffff)),
    wscale: optional(integer("a number from 0 to 14", 0, 14)),
    sackPerm: optional(flag),
    timestamp: optional(flag),
  },
  /** The connection skips the hooks from now on. Only at the forward hook. */
  flow: { flowtable: name },
  /** The kernel's own expressions, compared as the kernel returns them. `text`: what nft says; without it, the table cannot be printed. */
  raw: {
    exprs,
    text: optional(
      value<string>("nft's text, in one line", (given) => typeof given === "string" && !/[\n\r\0]/.test(given)),
    ),
  },
  /** Adds the key to a dynamic set (or renews its timeout). timeoutMs overrides the set's default. */
  update: {
    /** add: does not renew an element. delete: removes it. Default: update. */
    op: optional(oneOf("add", "update", "delete")),
    set: name,
    key,
    timeoutMs: optional(milliseconds),
    /**
     * Maps only: the constant data of the key, an address with or without a port. An existing entry keeps its data. nft 0.9.8 aborts when it lists an
     * address with a port here. Later versions print it.
     */
    data: optional(record({ address, port: optional(port) })),
  },
  /**
   * Holds if more than `count` open connections came here with this key. Otherwise the rule ends. A dynamic set without timeouts counts them. An element
   * keeps the `count` that it was created with. A NAT chain only sees the first packet of a connection: there, exactly `count` connections pass.
   */
  "connections-over": { set: name, key, count: positiveU32 },
  /** Holds if packets came here with this key above the rate. Otherwise the rule ends. An element that waits longer than `timeoutMs` starts again. */
  "rate-over": { set: name, key, timeoutMs: milliseconds, rate: positive, per: rateUnit, burst: positiveU32 },
} as const satisfies Record<string, Fields>;

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

/** The keys of a comparison. */
export const FIELD_MATCH = {
  field: either(field.expected, plainField, {
    expected: "a field, or a list of fields",
    find: (path, given) => (Array.isArray(given) ? key : generatedField).find(path, given),
  } satisfies Shape<unknown>),
  /** Default: `==`, but for flags `in`: one of them is set. */
  op: optional(comparison),
  /** Or a list of values and [from, to], or the name of a set, as `"@NAME"`. */
  value: anything,
  /** Compares these bits only. */
  mask: optional(anything),
};

/** The general condition. Values are checked against the field's type. */
export const fieldMatch: Shape<unknown> = {
  expected: 'a comparison, with "field" and "value"',
  find(path, given) {
    const problem = record(FIELD_MATCH).find(path, given);
    if (problem !== undefined) return problem;
    const { field: name, value: values } = given as { readonly field: unknown; readonly value: unknown };
    const entry: FieldEntry | undefined = typeof name === "string" ? FIELDS[name as FieldName] : undefined;
    if (entry === undefined || (typeof values === "string" && values.startsWith("@"))) return undefined;
    return wrongValue(`${path}, value`, entry, values);
  },
};

/** Returns the problem of a value, or of a list, for this field. */
function wrongValue(path: string, entry: FieldEntry, values: unknown): ReturnType<Shape<unknown>["find"]> {
  const { type } = entry;
  const wrong = firstWrong({ type, width: widthOfField(entry) }, values);
  if (wrong === undefined) return undefined;
  const names =
    typeof wrong === "string" ? closest(wrong, type === "inet_proto" ? protocolNames() : valueNames(type)) : undefined;
  const nearest = names === undefined ? {} : { nearest: names };
  return { path, expected: expectedValue(type, entry.bits), value: wrong, ...nearest };
}

/** Returns the problem of an action that every one of its parts allows: a value that the field cannot have. */
export function problemOfAction(path: string, action: unknown): ReturnType<Shape<unknown>["find"]> {
  const { action: kind, field: name, value: given } = action as Readonly<Record<string, unknown>>;
  if (kind !== "set" || isObject(given)) return undefined;
  return wrongValue(`${path}, value`, FIELDS[name as FieldName], given);
}
