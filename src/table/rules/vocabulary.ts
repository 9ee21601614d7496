/**
 * The vocabulary of rules and sets as shapes (base/shape.ts). `rule.ts` derives its types from them, and the library uses them to check its input.
 * The proxier's own rules are typed, and are not checked again.
 */
import { addressBytes } from "../../base/ip.js";
import { parseNetwork } from "../../base/ip-ranges.js";
import { protocolNames, protocolNumber } from "../../base/protocols.js";
import {
  callback,
  either,
  type Fields,
  flag,
  integer,
  list,
  namesOf,
  oneOf,
  optional,
  record,
  type Shape,
  text,
  value,
  variants,
} from "../../base/shape.js";
import { AddressType, CtState, TcpFlag } from "../../netlink/constants.js";
import { isInterfaceName, isName, isQuotable, MAX_COMMENT_BYTES, MAX_LOG_PREFIX_BYTES } from "./names-and-comments.js";

/** Seconds in each unit of a rate. */
export const LIMIT_SECONDS = { second: 1, minute: 60, hour: 3600, day: 86400 } as const;

const U32 = 0xffffffff;
const u32 = integer("a number from 0 to 4294967295", 0, U32);
const port = integer("a port from 0 to 65535", 0, 0xffff);
const byte = integer("a number from 0 to 255", 0, 0xff);
const positive = integer("a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER);
const positiveU32 = integer("a number from 1 to 4294967295", 1, U32);
const milliseconds = integer("milliseconds, a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER);
const negate = optional(flag);

export const name = text("a name: a letter or _, then letters, digits, _ / \\ . -, at most 255 bytes", isName);
/** Shown by nft. */
export const comment = text("a comment of at most 128 bytes without quotes and control characters", (given) =>
  isQuotable(given, MAX_COMMENT_BYTES),
);
const address = text("an IP address", (given) => addressBytes(given) !== undefined);
const network = text('an address or a network ("192.0.2.0/24")', (given) => isReadable(() => parseNetwork(given)));
const interfacePattern = text(
  "an interface's name of 1 to 15 bytes, or a prefix followed by *",
  (given) => given === "*" || isInterfaceName(given.endsWith("*") ? given.slice(0, -1) : given),
);
const protocolName = oneOf<string>(...protocolNames());
const protocol = either(
  'a protocol ("tcp", or a number from 0 to 255)',
  byte,
  value<string>('a protocol ("tcp", or a number from 0 to 255)', () => false),
);
/** Names are accepted in any case. Only an invalid one is compared with the list, for a suggestion. */
const anyProtocol: typeof protocol = {
  ...protocol,
  find(path, given) {
    if (typeof given !== "string") return protocol.find(path, given);
    if (isReadable(() => protocolNumber(given))) return undefined;
    return { ...protocolName.find(path, given)!, expected: protocol.expected };
  },
};

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
export const tcpFlagName = oneOf(...namesOf(TcpFlag));
export const ctStateName = oneOf(...namesOf(CtState));
export const addressTypeName = oneOf(...namesOf(AddressType));
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

/** A field that a packet carries. `saddr` and `daddr` have the table's family (16 bytes in ip6). */
const carriedField = oneOf(
  "saddr",
  "daddr",
  "l4proto",
  "sport",
  "dport",
  "iifname",
  "oifname",
  "mark",
  "priority",
  // Original source / destination address of the connection.
  "ct-saddr",
  "ct-daddr",
);

const NUMBER_RANGE = { modulus: positiveU32, offset: optional(u32) } as const;

const GENERATED_FIELDS = {
  /** A number from `offset` (default 0) to less than `offset + modulus`. */
  numgen: { mode: oneOf("random", "inc"), ...NUMBER_RANGE },
  /**
   * A number in the same range, which only depends on the values of the fields `of` and on the machine's byte order. Must be last in a key: nft would
   * read the next field as one more of `of`.
   */
  jhash: { of: list(carriedField, 1), seed: u32, ...NUMBER_RANGE },
} as const satisfies Record<string, Fields>;

export const field = either(
  `${carriedField.expected}, or an object with "field"`,
  carriedField,
  variants("field", GENERATED_FIELDS),
);
const key = list(field, 1);

/** Conditions, by `match`: the rule continues with its next statement only if they hold. */
export const MATCHES = {
  /** The address is in one of the networks (CIDR or single address). Several networks become an anonymous interval set. */
  address: {
    direction,
    nets: list(network, 1),
    negate,
    /** Compares an address of the packet's connection instead: before any rewriting (original), or as its replies have it (reply). */
    ct: optional(ctDirection),
  },
  /** The transport port is in one of the ranges, of which there may be any number. Implies nothing about the protocol. */
  port: { direction, ports: list(portRange, 1), negate },
  /** The transport protocol, by number or by a name in /etc/protocols ("tcp", "gre", "UDPLite": protocols.ts). */
  protocol: { protocol: anyProtocol, negate },
  /** The concatenated fields are an element of the named set (or a key of the named map). */
  "in-set": { key, set: name, negate },
  /** The routing type of an address (fib), optionally limited to the incoming or outgoing interface. */
  "address-type": { direction, type: addressTypeName, negate, limit: optional(oneOf("in", "out")) },
  icmp: {
    version: value<4 | 6>("4 or 6", (given) => given === 4 || given === 6),
    type: byte,
    code: optional(byte),
    negate,
  },
  /** Among the TCP flags in `among`, exactly those in `set` are set. Other protocols never match. */
  "tcp-flags": { among: list(tcpFlagName, 1), set: list(tcpFlagName) },
  "ct-state": { states: list(ctStateName, 1), negate },
  /** original: the packet comes from the client that opened the connection. reply: it goes to that client. */
  "ct-direction": { direction: ctDirection },
  "ct-status": { status: oneOf("dnat", "snat", "assured"), negate },
  /** (connection mark & mask) == value. mask defaults to all ones. */
  "ct-mark": { mask: optional(u32), value: u32, negate },
  /** (packet mark & mask) == value. mask defaults to all ones. To test a bit, use value 0 (clear), or value 0 with negate (set). */
  mark: { mask: optional(u32), value: u32, negate },
  /** (priority & mask) == value, for the packet's 32-bit priority (skb->priority). mask defaults to all ones. */
  priority: { mask: optional(u32), value: u32, negate },
  /** A name, or a prefix followed by `*`. */
  interface: { direction: oneOf("in", "out"), name: interfacePattern, negate },
  /** Reverse path filter: the source would be routed out of the packet's incoming interface (or not). */
  "reverse-path": { passed: flag },
} as const satisfies Record<string, Fields>;

/** Actions of a rule, by `action`, except verdicts: the library writes these as text, the Table as objects. */
export const ACTIONS = {
  counter: {},
  log: {
    prefix: text("a prefix of at most 127 bytes without quotes and control characters", (given) =>
      isQuotable(given, MAX_LOG_PREFIX_BYTES),
    ),
    level: optional(integer("a syslog level from 0 to 7", 0, 7)),
    group: optional(integer("a group from 0 to 65535", 0, 0xffff)),
  },
  limit: { rate: positive, per: rateUnit, burst: optional(u32) },
  /** mark = (mark & ~mask) | value. mask defaults to all ones (a plain set); value 0 clears the masked bits. */
  "set-mark": { mask: optional(u32), value: u32 },
  /** mark = mark ^ value. */
  "xor-mark": { value: u32 },
  /** The same for the connection's mark, which all its packets share. */
  "set-ct-mark": { mask: optional(u32), value: u32 },
  "set-priority": { value: u32 },
  /**
   * Sets the priority to the classid that a map holds for the fields. Without an entry, continues with the next rule. The next statement may use the
   * priority as a key, because nft cannot print a key that comes directly from a look-up.
   */
  "priority-map": { key, map: name },
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
  vmap: { key, map: name },
  dnat: { address: optional(address), port: optional(port) },
  /** Rewrites the destination to the data that a map holds for the fields: an address, or address . port. */
  "dnat-map": { key, map: name, data: oneOf("address", "address-port") },
  snat: { address, port: optional(port), fullyRandom: optional(flag) },
  masquerade: { ports: optional(portRange), random: optional(flag), fullyRandom: optional(flag) },
  reject: { with: optional(oneOf("port-unreachable", "admin-prohibited", "host-unreachable", "tcp-reset")) },
  /** Adds the key to a dynamic set (or renews its timeout). timeoutMs overrides the set's default. */
  update: {
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
   * Holds if more than `count` open connections came here with this key. Otherwise the rule ends. A dynamic set counts them. An element keeps the
   * `count` that it was created with. A NAT chain only sees the first packet of a connection: there, exactly `count` connections pass.
   */
  "connections-over": { set: name, key, count: positiveU32 },
  /** Holds if packets came here with this key above the rate. Otherwise the rule ends. An element that waits longer than `timeoutMs` starts again. */
  "rate-over": { set: name, key, timeoutMs: milliseconds, rate: positive, per: rateUnit, burst: u32 },
} as const satisfies Record<string, Fields>;

/**
 * The type of one field of a key or of data.
 *
 * - `index` is the 32-bit host-order number that `numgen` generates. The kernel gets nft's type `mark`. It is printed as
 *   `typeof numgen random mod 2`, because nft refuses a plain mark there.
 * - `classid` is a packet's priority, 32 bits in host order. It is printed as two numbers in hex: `15:3`.
 */
export const fieldType = oneOf(
  "ipv4_addr",
  "ipv6_addr",
  "inet_proto",
  "inet_service",
  "mark",
  "classid",
  "ifname",
  "index",
);

const COUNTERS = {
  /** Gets the data before and after, as views. Default: the count always carries over. */
  carries: optional(callback<(before: Uint8Array, after: Uint8Array) => boolean>()),
} as const satisfies Fields;
export const counters = record(COUNTERS);

export const SET = {
  set: name,
  key: list(fieldType, 1),
  /** Absent: a set. "verdict": a verdict map. Otherwise a data map. */
  data: optional(either('"verdict", or a list of field types', oneOf("verdict"), list(fieldType, 1))),
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
