/**
 * The types of fields, under nft's names: widths, byte orders, names of values, and their conversions to bytes and text. Types of values, checks at run time,
 * keys of sets, and nft's text all come from this table.
 */
import { LITTLE_ENDIAN } from "../../../base/byte-order.js";
import { addressBytes, formatAddress } from "../../../base/ip.js";
import { closest } from "../../../base/closest.js";
import { protocolNames, protocolNumber } from "../../../base/protocols.js";
import { AddressType, CtEvent, CtState, CtStatus, DataTypeId, TcpFlag } from "../../kernel/constants.js";
import { FieldError } from "./field-error.js";
import { isInterfaceName } from "../../bytes/names-and-comments.js";

/** How the bytes of a type look. "flags": a number whose bits have names. */
type Kind = "address" | "ether" | "text" | "number" | "flags" | "protocol" | "class" | "port";

interface FieldTypeTerms<K extends Kind = Kind, Name extends string = string> {
  /** The number of the type in nft. */
  readonly id: number;
  readonly kind: K;
  /** Width. A key has whole bytes. */
  readonly bits: number;
  /** Whether the kernel has it in the machine's own byte order. Absent for integers, which have the order of their field. */
  readonly hostOrder?: boolean;
  /** Values by nft's names. */
  readonly names: Readonly<Record<Name, number>>;
  /** An expression of this type for nft's `typeof`. Only for types that nft cannot name. */
  readonly example?: string;
}

const type =
  (hostOrder: boolean | undefined) =>
  <K extends Kind, Name extends string = never>(
    id: number,
    kind: K,
    bits: number,
    names: Readonly<Record<Name, number>> = {} as Readonly<Record<Name, number>>,
    example?: string,
  ): FieldTypeTerms<K, Name> => ({ id, kind, bits, names, hostOrder, ...(example === undefined ? {} : { example }) });
const network = type(false);
const host = type(true);
const either = type(undefined);

// prettier-ignore
const ICMP_TYPES = {
  "echo-reply": 0, "destination-unreachable": 3, "source-quench": 4, redirect: 5, "echo-request": 8, "router-advertisement": 9,
  "router-solicitation": 10, "time-exceeded": 11, "parameter-problem": 12, "timestamp-request": 13, "timestamp-reply": 14, "info-request": 15,
  "info-reply": 16, "address-mask-request": 17, "address-mask-reply": 18,
} as const;
// prettier-ignore
const ICMPV6_TYPES = {
  "destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "parameter-problem": 4, "echo-request": 128, "echo-reply": 129,
  "mld-listener-query": 130, "mld-listener-report": 131, "mld-listener-done": 132, "nd-router-solicit": 133, "nd-router-advert": 134,
  "nd-neighbor-solicit": 135, "nd-neighbor-advert": 136, "nd-redirect": 137, "router-renumbering": 138, "ind-neighbor-solicit": 141,
  "ind-neighbor-advert": 142, "mld2-listener-report": 143,
} as const;
/** ICMP_UNREACH codes. */
// prettier-ignore
export const ICMP_CODES = {
  "net-unreachable": 0, "host-unreachable": 1, "prot-unreachable": 2, "port-unreachable": 3, "frag-needed": 4, "net-prohibited": 9,
  "host-prohibited": 10, "admin-prohibited": 13,
} as const;
/** ICMPV6_UNREACH codes. */
// prettier-ignore
export const ICMPV6_CODES = {
  "no-route": 0, "admin-prohibited": 1, "addr-unreachable": 3, "port-unreachable": 4, "policy-fail": 5, "reject-route": 6,
} as const;
/** NFT_REJECT_ICMPX codes, for tables of both IP families. */
export const ICMPX_CODES = {
  "no-route": 0,
  "port-unreachable": 1,
  "host-unreachable": 2,
  "admin-prohibited": 3,
} as const;
// prettier-ignore
const CT_STATUS = {
  expected: CtStatus.expected, "seen-reply": CtStatus.seenReply, assured: CtStatus.assured, confirmed: CtStatus.confirmed, snat: CtStatus.snat,
  dnat: CtStatus.dnat, dying: CtStatus.dying,
} as const;
const ETHER_TYPES = { ip: 0x0800, arp: 0x0806, ip6: 0x86dd, "8021q": 0x8100, "8021ad": 0x88a8 } as const;
// prettier-ignore
const DSCP = {
  cs0: 0, lephb: 1, cs1: 8, af11: 10, af12: 12, af13: 14, cs2: 16, af21: 18, af22: 20, af23: 22, cs3: 24, af31: 26, af32: 28, af33: 30, cs4: 32,
  af41: 34, af42: 36, af43: 38, cs5: 40, va: 44, ef: 46, cs6: 48, cs7: 56,
} as const;
const ARP_OPERATIONS = { request: 1, reply: 2, rrequest: 3, rreply: 4, inrequest: 8, inreply: 9, nak: 10 } as const;
const DAYS = { Sunday: 0, Monday: 1, Tuesday: 2, Wednesday: 3, Thursday: 4, Friday: 5, Saturday: 6 } as const;
// prettier-ignore
const IGMP_TYPES = {
  "membership-query": 0x11, "membership-report-v1": 0x12, "membership-report-v2": 0x16, "leave-group": 0x17, "membership-report-v3": 0x22,
} as const;
// prettier-ignore
const DCCP_TYPES = {
  request: 0, response: 1, data: 2, ack: 3, dataack: 4, closereq: 5, close: 6, reset: 7, sync: 8, syncack: 9,
} as const;

/**
 * - `integer` has the width and the byte order of its field. nft has no name for such types, so sets cannot have them.
 * - `index` is the 32-bit number in host order that `numgen` generates. The kernel gets nft's type `mark`. It is printed as
 *   `typeof numgen random mod 2`, because nft refuses a plain mark there.
 * - `classid` is a packet's priority, printed as two numbers in hex: `15:3`.
 */
export const FIELD_TYPES = {
  ipv4_addr: network(DataTypeId.ipv4_addr, "address", 32),
  ipv6_addr: network(DataTypeId.ipv6_addr, "address", 128),
  nf_proto: host(DataTypeId.nf_proto, "number", 8, { ipv4: 2, ipv6: 10 }),
  integer: either(DataTypeId.integer, "number", 32),
  ether_addr: network(DataTypeId.ether_addr, "ether", 48),
  ether_type: network(DataTypeId.ether_type, "number", 16, ETHER_TYPES),
  arp_op: network(DataTypeId.arp_op, "number", 16, ARP_OPERATIONS),
  inet_proto: network(DataTypeId.inet_proto, "protocol", 8),
  inet_service: network(DataTypeId.inet_service, "port", 16),
  icmp_type: network(DataTypeId.icmp_type, "number", 8, ICMP_TYPES),
  tcp_flag: network(DataTypeId.tcp_flag, "flags", 8, TcpFlag),
  dccp_pkttype: network(DataTypeId.dccp_pkttype, "number", 4, DCCP_TYPES),
  /** Milliseconds. */
  time: host(DataTypeId.time, "number", 32),
  mark: host(DataTypeId.mark, "number", 32),
  iface_index: host(DataTypeId.iface_index, "number", 32),
  iface_type: host(DataTypeId.iface_type, "number", 16, {
    ether: 1,
    ppp: 512,
    ipip: 768,
    ipip6: 769,
    loopback: 772,
    sit: 776,
    ipgre: 778,
  }),
  realm: host(DataTypeId.realm, "number", 32),
  classid: host(DataTypeId.classid, "class", 32),
  uid: host(DataTypeId.uid, "number", 32),
  gid: host(DataTypeId.gid, "number", 32),
  ct_state: host(DataTypeId.ct_state, "flags", 32, CtState),
  ct_dir: host(DataTypeId.ct_dir, "number", 8, { original: 0, reply: 1 }),
  ct_status: host(DataTypeId.ct_status, "flags", 32, CT_STATUS),
  icmpv6_type: network(DataTypeId.icmpv6_type, "number", 8, ICMPV6_TYPES),
  pkt_type: host(DataTypeId.pkt_type, "number", 8, { host: 0, broadcast: 1, multicast: 2, other: 3 }),
  icmp_code: network(DataTypeId.icmp_code, "number", 8, ICMP_CODES),
  icmpv6_code: network(DataTypeId.icmpv6_code, "number", 8, ICMPV6_CODES),
  devgroup: host(DataTypeId.devgroup, "number", 32),
  dscp: network(DataTypeId.dscp, "number", 6, DSCP),
  ecn: network(DataTypeId.ecn, "number", 2, { "not-ect": 0, ect1: 1, ect0: 2, ce: 3 }),
  fib_addrtype: host(DataTypeId.fib_addrtype, "number", 32, AddressType),
  boolean: host(DataTypeId.boolean, "number", 8, { missing: 0, exists: 1 }),
  ct_event: host(DataTypeId.ct_event, "flags", 32, CtEvent),
  ifname: host(DataTypeId.ifname, "text", 128),
  igmp_type: network(DataTypeId.igmp_type, "number", 8, IGMP_TYPES),
  day: host(DataTypeId.time_day, "number", 3, DAYS),
  /** Seconds since midnight, in UTC. */
  hour: host(DataTypeId.time_hour, "number", 32),
  index: host(DataTypeId.mark, "number", 32, {}, "numgen random mod 2"),
};

/** The type of a field's value. */
export type ValueType = keyof typeof FIELD_TYPES;
/** The type of a part of a set's key or data. */
export type FieldType = Exclude<ValueType, "integer">;
type Terms = (typeof FIELD_TYPES)[ValueType];

/** Names of transport protocols, as in /etc/protocols. Other protocols have only numbers. */
export type ProtocolName =
  "tcp" | "udp" | "sctp" | "icmp" | "icmpv6" | "udplite" | "dccp" | "gre" | "esp" | "ah" | "igmp" | "vrrp" | "ipip";
export type Protocol = ProtocolName | number;

type ValueOfTerms<T extends Terms> = T["kind"] extends "address" | "ether" | "text"
  ? string
  : T["kind"] extends "protocol"
    ? Protocol
    : T["kind"] extends "class"
      ? number | `${string}:${string}`
      : number | (keyof T["names"] & string);

/**
 * The readable value of each type: "192.0.2.1", "02:00:00:00:00:01", "tcp", 443, "eth0", "15:3", a number or one of the type's names. Interface names have
 * at most 15 bytes; sets reject prefixes (`*`).
 */
export type FieldValues = { readonly [T in ValueType]: ValueOfTerms<(typeof FIELD_TYPES)[T]> };

/** Bytes of the type in a key, without padding. */
export function bytesOf(field: ValueType): number {
  return Math.ceil(FIELD_TYPES[field].bits / 8);
}

/** An expression of the type, for nft's `typeof`. */
export function exampleOf(field: FieldType): string {
  const { id, example }: FieldTypeTerms = FIELD_TYPES[field];
  return example ?? TYPEOF[id];
}

/** Types that may stand beside an index. */
const TYPEOF: Readonly<Record<number, string>> = {
  [DataTypeId.ipv4_addr]: "ip daddr",
  [DataTypeId.ipv6_addr]: "ip6 daddr",
  [DataTypeId.inet_proto]: "meta l4proto",
  [DataTypeId.inet_service]: "th dport",
  [DataTypeId.ifname]: "meta iifname",
  [DataTypeId.mark]: "meta mark",
  [DataTypeId.classid]: "meta priority",
  [DataTypeId.ether_addr]: "ether saddr",
};

const EXAMPLES: Partial<Record<ValueType, string>> = {
  ipv4_addr: 'an IPv4 address ("192.0.2.1")',
  ipv6_addr: 'an IPv6 address ("2001:db8::1")',
  ether_addr: 'an Ethernet address ("02:00:00:00:00:01")',
  inet_proto: 'a protocol ("tcp", or a number from 0 to 255)',
  inet_service: "a port from 0 to 65535",
  mark: "a mark from 0 to 4294967295",
  classid: 'a class ("15:3", or a number from 0 to 4294967295)',
  ifname: "an interface's name of 1 to 15 bytes, without * (prefixes need a set with interval: true)",
  index: "an index from 0 to 4294967295",
};

/** The values of a type, for messages. */
export function expectedValue(field: ValueType, bits: number = FIELD_TYPES[field].bits): string {
  const names = namesOf(field);
  const numbers = `a number from 0 to ${(1n << BigInt(bits)) - 1n}`;
  return EXAMPLES[field] ?? (names.length === 0 ? numbers : `${numbers}, or one of ${names.join(", ")}`);
}

export function namesOf(field: ValueType): readonly string[] {
  return Object.keys(FIELD_TYPES[field].names);
}

/** Returns the number that a value means, if it is valid. */
function numberOf(terms: FieldTypeTerms, value: unknown): number | bigint | undefined {
  if (terms.kind === "protocol") return protocolOf(value);
  if (typeof value === "number") return Number.isSafeInteger(value) && value >= 0 ? value : undefined;
  if (typeof value === "bigint") return value >= 0n ? value : undefined;
  if (typeof value !== "string") return undefined;
  return terms.kind === "class" ? classOf(value) : Object.hasOwn(terms.names, value) ? terms.names[value] : undefined;
}

/** Returns the number of a protocol given by number or name, or undefined if it is invalid. */
export function protocolOf(value: unknown): number | undefined {
  if (typeof value !== "string" && typeof value !== "number") return undefined;
  try {
    return protocolNumber(value);
  } catch {
    return undefined;
  }
}

function classOf(text: string): number | undefined {
  const [, major, minor] = /^([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i.exec(text) ?? [];
  return major === undefined ? undefined : Number.parseInt(major, 16) * 0x10000 + Number.parseInt(minor, 16);
}

const ETHER = /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i;

/**
 * Writes a value in the kernel's form, at `at`. Returns false, and writes nothing, if it is invalid for such a field.
 * @param length bytes of the value; integers have those of their field.
 */
export function writeValue(
  field: ValueType,
  value: unknown,
  words: DataView,
  at: number,
  { length, bits, hostOrder }: Width = widthOf(field),
): boolean {
  const terms: FieldTypeTerms = FIELD_TYPES[field];
  const copy = (bytes: Uint8Array | undefined): boolean => {
    if (bytes === undefined || bytes.length > length) return false;
    new Uint8Array(words.buffer, words.byteOffset + at, length).set(bytes);
    return true;
  };
  switch (terms.kind) {
    case "address": {
      const bytes = typeof value === "string" ? addressBytes(value) : undefined;
      return copy(bytes?.length === length ? bytes : undefined);
    }
    case "ether":
      return copy(
        typeof value === "string" && ETHER.test(value) ? Buffer.from(value.replaceAll(":", ""), "hex") : undefined,
      );
    case "text":
      return copy(typeof value === "string" && isInterfaceName(value) ? Buffer.from(value) : undefined);
    default: {
      const number = numberOf(terms, value);
      if (number === undefined || number >= 2 ** bits) return false;
      writeNumber(words, at, length, number, hostOrder && LITTLE_ENDIAN);
      return true;
    }
  }
}

function writeNumber(words: DataView, at: number, length: number, number: number | bigint, little: boolean): void {
  if (length === 4) return words.setUint32(at, Number(number), little);
  if (length === 2) return words.setUint16(at, Number(number), little);
  let rest = BigInt(number);
  for (let i = 0; i < length; i++, rest >>= 8n)
    words.setUint8(at + (little ? i : length - 1 - i), Number(rest & 0xffn));
}

/** The form of one field's value. */
export interface Width {
  readonly length: number;
  readonly bits: number;
  readonly hostOrder: boolean;
}

const WIDTHS = Object.fromEntries(
  Object.entries(FIELD_TYPES).map(([name, { bits, hostOrder }]) => [
    name,
    { bits, length: Math.ceil(bits / 8), hostOrder: hostOrder === true },
  ]),
) as Readonly<Record<ValueType, Width>>;

export function widthOf(field: ValueType): Width {
  return WIDTHS[field];
}

/** Returns a value in the kernel's form. Throws FieldError. */
export function bytesOfValue(field: ValueType, value: unknown, width: Width = widthOf(field)): Uint8Array {
  const bytes = new Uint8Array(width.length);
  if (writeValue(field, value, new DataView(bytes.buffer), 0, width)) return bytes;
  const names = field === "inet_proto" ? protocolNames() : namesOf(field);
  const nearest = typeof value === "string" ? closest(value, names) : undefined;
  throw new FieldError("", expectedValue(field, width.bits), value, nearest);
}

function readNumber(bytes: Uint8Array, hostOrder: boolean): number {
  const inOrder = hostOrder && LITTLE_ENDIAN ? bytes.toReversed() : bytes;
  return inOrder.reduce((all, byte) => all * 256 + byte, 0);
}

/** Reads a value. Types with numbers give numbers. */
export function readValue(field: ValueType, bytes: Uint8Array): string | number {
  const { kind, hostOrder }: FieldTypeTerms = FIELD_TYPES[field];
  switch (kind) {
    case "address":
      return formatAddress(bytes);
    case "ether":
      return Buffer.from(bytes)
        .toString("hex")
        .replaceAll(/(..)(?=.)/g, "$1:");
    case "text":
      return Buffer.from(bytes).toString().replace(/\0+$/, "");
    default:
      return readNumber(bytes, hostOrder === true);
  }
}

/** Whether the type's values are numbers. */
export function isNumeric(field: ValueType): boolean {
  const { kind } = FIELD_TYPES[field];
  return kind !== "address" && kind !== "ether" && kind !== "text";
}

export function hex(value: number | bigint): string {
  return `0x${(typeof value === "bigint" ? value : value >>> 0).toString(16)}`;
}

/** Prints a class as tc and nft do: major and minor number in hex. The smallest and the largest value have names. */
export function classidText(value: number): string {
  if (value === 0) return "none";
  return value === 0xffffffff ? "root" : classNumbers(value);
}

export function classNumbers(value: number): string {
  return `${(value >>> 16).toString(16)}:${(value & 0xffff).toString(16)}`;
}
