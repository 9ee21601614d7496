/**
 * The vocabulary of rules and sets as shapes (base/shape.ts): `rule.ts` takes its types from here, the library its checks of what programs
 * hand over. The proxier's own rules are typed, and are not checked again.
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

/** Units of a rate, in seconds. */
export const LIMIT_SECONDS = { second: 1, minute: 60, hour: 3600, day: 86400 } as const;

const U32 = 0xffffffff;
const u32 = integer("a number from 0 to 4294967295", 0, U32);
const port = integer("a port from 0 to 65535", 0, 0xffff);
const byte = integer("a number from 0 to 255", 0, 0xff);
const positive = integer("a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER);
const positiveU32 = integer("a number from 1 to 4294967295", 1, U32);
const milliseconds = integer("milliseconds, a whole number of at least 1", 1, Number.MAX_SAFE_INTEGER);
const negate = optional(flag);

/** Name of a table, chain, set or map. */
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
/** Names are taken in whatever case; only a wrong one is compared with the list, for the nearest. */
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

/** Of a packet's two ends. */
export const direction = oneOf("source", "destination");
/** Direction of a packet, or of one of the two tuples, of a connection. */
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

/** A field that a packet carries. `saddr`/`daddr` are of the table's family (16 bytes in ip6). */
export const carriedField = oneOf(
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

/** Fields that are made, not carried. */
export const GENERATED_FIELDS = {
  /** A number from 0 (or `offset`) up, below `offset + modulus`. */
  numgen: { mode: oneOf("random", "inc"), ...NUMBER_RANGE },
  /**
   * A number of the same range that is always the same for the same fields `of` the packet, on every machine of the same byte order. Stands
   * last in a key: nft would read what follows as one more field of `of`.
   */
  jhash: { of: list(carriedField, 1), seed: u32, ...NUMBER_RANGE },
} as const satisfies Record<string, Fields>;

/** What a lookup key is made of. */
export const field = either(
  `${carriedField.expected}, or an object with "field"`,
  carriedField,
  variants("field", GENERATED_FIELDS),
);
const key = list(field, 1);

/** Conditions, by `match`: the rule goes on to its next statement only when they hold. */
export const MATCHES = {
  /** Address inside any of the networks (CIDR or single address). Several networks become an anonymous interval set. */
  address: {
    direction,
    nets: list(network, 1),
    negate,
    /** Of the packet's connection as it was before any rewriting (original), or as its answers are (reply), instead of the packet's own. */
    ct: optional(ctDirection),
  },
  /** Transport port in any of the ranges; any number of them. Implies nothing about the protocol. */
  port: { direction, ports: list(portRange, 1), negate },
  /** Transport protocol by number, or by a name of /etc/protocols ("tcp", "gre", "UDPLite": protocols.ts). */
  protocol: { protocol: anyProtocol, negate },
  /** The fields, concatenated, are an element of the named set (or a key of the named map). */
  "in-set": { key, set: name, negate },
  /** Routing type of an address (fib), optionally limited to the incoming or outgoing interface. */
  "address-type": { direction, type: addressTypeName, negate, limit: optional(oneOf("in", "out")) },
  icmp: {
    version: value<4 | 6>("4 or 6", (given) => given === 4 || given === 6),
    type: byte,
    code: optional(byte),
    negate,
  },
  /** Of these flags of a TCP segment, just those of `set` are set; other protocols never match. */
  "tcp-flags": { among: list(tcpFlagName, 1), set: list(tcpFlagName) },
  "ct-state": { states: list(ctStateName, 1), negate },
  /** original: the packet goes from who opened the connection; reply: to it. */
  "ct-direction": { direction: ctDirection },
  "ct-status": { status: oneOf("dnat", "snat"), negate },
  /** (connection mark & mask) == value. mask defaults to all ones. */
  "ct-mark": { mask: optional(u32), value: u32, negate },
  /** (packet mark & mask) == value. mask defaults to all ones. A bit clear: value 0; not clear: value 0 with negate. */
  mark: { mask: optional(u32), value: u32, negate },
  /** (priority & mask) == value, of the packet's priority, 32 bits (skb->priority). mask defaults to all ones. */
  priority: { mask: optional(u32), value: u32, negate },
  /** A name, or a prefix followed by `*`. */
  interface: { direction: oneOf("in", "out"), name: interfacePattern, negate },
  /** Reverse path filter: the source would be routed out of the interface it came in by (or not). */
  "reverse-path": { passed: flag },
} as const satisfies Record<string, Fields>;

/** What a rule does, by `action`; all but verdicts, which the library writes as text and the Table as objects. */
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
  /** The same of the connection's mark, which all of its packets share. */
  "set-ct-mark": { mask: optional(u32), value: u32 },
  "set-priority": { value: u32 },
  /**
   * Priority set to what a map holds for the fields, a classid; goes on to the next rule when it holds nothing. The next statement may
   * look the priority up: nft prints that, but no key that comes from a look-up directly.
   */
  "priority-map": { key, map: name },
  notrack: {},
  /**
   * An address in the packet's header rewritten, with its checksums, and nothing else: the connection is tracked as it was, and its other packets
   * stay as they are.
   */
  "set-address": {
    direction,
    /** A constant, or an address that the connection has in one direction. In a table of family ip or ip6. */
    to: either("an IP address, or { ct, direction }", address, record({ ct: ctDirection, direction })),
  },
  /** The verdict that a verdict map holds for the concatenated fields; goes on when there is none. */
  vmap: { key, map: name },
  /** Destination rewritten to a constant. */
  dnat: { address: optional(address), port: optional(port) },
  /** Destination rewritten to what a map holds for the fields: an address, or address . port. */
  "dnat-map": { key, map: name, data: oneOf("address", "address-port") },
  snat: { address, port: optional(port), fullyRandom: optional(flag) },
  masquerade: { ports: optional(portRange), random: optional(flag), fullyRandom: optional(flag) },
  reject: { with: optional(oneOf("port-unreachable", "admin-prohibited", "host-unreachable", "tcp-reset")) },
  /** Adds the key to a dynamic set (or renews its timeout). timeoutMs overrides the set's own. */
  update: {
    set: name,
    key,
    timeoutMs: optional(milliseconds),
    /** Maps only: the constant that the key maps to, an address with or without a port. An entry that is there keeps its data. nft 0.9.8 aborts on listing address and port here; later ones print it. */
    data: optional(record({ address, port: optional(port) })),
  },
  /**
   * The connection is one of more than `count` open ones that came here with the same key: else the rule ends. Counted in a dynamic set; the
   * element keeps the count that it began with. In a NAT chain, which sees the first packet of a connection alone, just `count` are let by.
   */
  "connections-over": { set: name, key, count: positiveU32 },
  /** More packets than the rate came here with the same key: else the rule ends. An element that waits for longer than `timeoutMs` begins anew. */
  "rate-over": { set: name, key, timeoutMs: milliseconds, rate: positive, per: rateUnit, burst: u32 },
} as const satisfies Record<string, Fields>;

/**
 * Type of one field of a key or of data. `index` is the 32-bit host-order number that `numgen` gives: declared to
 * the kernel as nft's `mark`, printed as `typeof numgen random mod 2` (nft refuses a plain mark there). `classid` is a packet's
 * priority, 32 bits in host order, printed as two numbers in hex: `15:3`.
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
  /** Of the data before and after, as views; default: always. */
  carries: optional(callback<(before: Uint8Array, after: Uint8Array) => boolean>()),
} as const satisfies Fields;
export const counters = record(COUNTERS);

/** What a set or map is. */
export const SET = {
  set: name,
  key: list(fieldType, 1),
  /** Absent: a set. "verdict": a verdict map. Else a data map. */
  data: optional(either('"verdict", or a list of field types', oneOf("verdict"), list(fieldType, 1))),
  /** Elements are ranges. A key of one field only. */
  interval: optional(flag),
  /** Filled by packets (`update`), its elements are not the Table's and are kept. */
  dynamic: optional(flag),
  /**
   * Default timeout of an element in ms; 0: elements may have one (the `timeout` flag) but none by default. Absent: no timeouts. An element
   * of the Table's that has expired is no longer desired.
   */
  timeoutMs: optional(integer("milliseconds, a whole number of at least 0", 0, Number.MAX_SAFE_INTEGER)),
  /**
   * How the kernel's set is sized. A number: that bound. "auto": the Table picks a bound from what it holds when it
   * creates the set (the kernel's fixed hash loads twice as fast), and creates a larger one when it would overflow.
   * Absent: no bound.
   */
  size: optional(either('a number from 1 to 4294967295, or "auto"', oneOf("auto"), positiveU32)),
  /**
   * Each element counts the packets that find it (Linux 5.7). An element that replaces another begins with the count of the former one, read
   * right before the commit: packets that come in between are not counted. It begins at 0 if `carries` says that the two do not belong together.
   */
  counters: optional(counters),
  comment: optional(comment),
} as const satisfies Fields;
