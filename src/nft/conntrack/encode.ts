/**
 * An entry as bytes of a fixed layout: the format that the addon returns and accepts, and that filters compare.
 * Little-endian, as is every machine that the addon is built for. native/conntrack/record.h has the same layout.
 *
 *     0 family (2, 10)  1 protocol  2 kind  3 state + 1   4 zone  6, 8 zone of one direction   10 parts that are there
 *    12 status         16 mark     20 id   24 timeout    28, 30 ports, original                32, 34 ports, reply   36 event
 *    40 four addresses of 16 bytes: original source, destination, reply source, destination
 *   104 counters: packets, bytes, original and reply   136 start, ns   144 labels
 */
import type { NativeChange } from "../kernel/conntrack-addon.js";
import { AF } from "../../base/ip-families.js";
import { IpProto } from "../../base/protocols.js";
import { KernelError } from "../kernel/errors.js";
import { type IpFamily, packAddress } from "../../base/ip.js";
import { STATES, WITH_PORTS } from "./protocol-states.js";
import {
  CONNTRACK_STATUS,
  type ConntrackEntry,
  type ConntrackTuple,
  type ConntrackUpdate,
  type NewConntrackEntry,
} from "./conntrack-table.js";

export const OFFSET = {
  family: 0,
  protocol: 1,
  kind: 2,
  state: 3,
  zone: 4,
  originalZone: 6,
  replyZone: 8,
  parts: 10,
  status: 12,
  mark: 16,
  id: 20,
  timeout: 24,
  originalPorts: 28,
  replyPorts: 32,
  event: 36,
  original: 40,
  reply: 72,
  counters: 104,
  start: 136,
  labels: 144,
} as const;

/** Bytes of a record up to and including its addresses: all that filters and keys need. */
export const KEY_BYTES = 104;
/** Bytes of a record with counters, start and labels. */
export const FULL_BYTES = 160;
export const LABEL_BYTES = 16;
/** Bytes of a record from the addon that has IPv4 addresses of 4 bytes and nothing after them. */
export const SHORT_BYTES = 56;

/** Content of the two port fields. An ICMP tuple has its id in the first, and type and code in the second. */
export const KIND = { none: 0, ports: 1, icmp: 2 } as const;

/** Bits of `parts`. */
export const PART = { timeout: 1, counters: 2, start: 4, labels: 8 } as const;

/** For a value that cannot be used. The kernel was not asked. */
export function invalid(action: string, reason: string): KernelError {
  return new KernelError("invalid", `${action}: ${reason}`, { action });
}

/**
 * Returns `value` if it is an integer from 0 to `highest`. Otherwise throws a KernelError "invalid" that names `what`.
 */
export function checkInteger(action: string, what: string, value: unknown, highest: number): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= highest) return value;
  throw invalid(action, `${what}: expected an integer from 0 to ${highest}, found ${display(value)}`);
}

/** Formats an external value for an error message. */
export function display(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 100 ? `${value.slice(0, 100)}…` : value);
  if (typeof value === "object" && value !== null) return Array.isArray(value) ? "an array" : "an object";
  return String(value);
}

export function familyNumber(action: string, family: unknown): number {
  if (family === "ip" || family === "ip6") return AF[family];
  throw invalid(action, `family: expected "ip" or "ip6", found ${display(family)}`);
}

export function kindOf(protocol: number): number {
  if (WITH_PORTS.has(protocol)) return KIND.ports;
  return protocol === IpProto.icmp || protocol === IpProto.icmpv6 ? KIND.icmp : KIND.none;
}

const scratch = new Uint8Array(16);

function packOwnAddress(action: string, into: Uint8Array, offset: number, family: number, text: unknown): void {
  const length = typeof text === "string" ? packAddress(text, scratch, 0) : 0;
  if (length === 0 || (length === 4) !== (family === AF.ip)) {
    throw invalid(action, `expected an IPv${family === AF.ip ? 4 : 6} address, found ${display(text)}`);
  }
  into.set(scratch.subarray(0, length), offset);
}

/** Writes a tuple of either direction into a record. Throws KernelError "invalid". */
function packTuple(
  action: string,
  into: DataView,
  direction: "original" | "reply",
  family: number,
  tuple: ConntrackTuple,
): void {
  const where = `${action}: ${direction}`;
  const bytes = new Uint8Array(into.buffer, into.byteOffset, into.byteLength);
  const at = OFFSET[direction];
  packOwnAddress(`${where}.source`, bytes, at, family, tuple.source);
  packOwnAddress(`${where}.destination`, bytes, at + 16, family, tuple.destination);
  const ports = direction === "original" ? OFFSET.originalPorts : OFFSET.replyPorts;
  const kind = kindOf(tuple.protocol);
  if (kind === KIND.ports) {
    into.setUint16(ports, checkInteger(where, "sourcePort", tuple.sourcePort, 0xffff), true);
    into.setUint16(ports + 2, checkInteger(where, "destinationPort", tuple.destinationPort, 0xffff), true);
  } else if (kind === KIND.icmp) {
    const { icmp } = tuple;
    if (icmp == null) throw invalid(where, `protocol ${tuple.protocol} needs icmp: id, type and code`);
    into.setUint16(ports, checkInteger(where, "icmp.id", icmp.id, 0xffff), true);
    into.setUint8(ports + 2, checkInteger(where, "icmp.code", icmp.code, 0xff));
    into.setUint8(ports + 3, checkInteger(where, "icmp.type", icmp.type, 0xff));
  }
  if (tuple.zone !== undefined) {
    const zone = checkInteger(where, "zone", tuple.zone, 0xffff);
    into.setUint16(direction === "original" ? OFFSET.originalZone : OFFSET.replyZone, zone, true);
  }
}

/** Checks a tuple from outside, which may be of any type. */
function wantTuple(action: string, direction: "original" | "reply", tuple: ConntrackTuple): void {
  const given: unknown = tuple;
  if (typeof given === "object" && given !== null) return;
  throw invalid(action, `${direction}: expected an object, found ${display(given)}`);
}

function packHead(action: string, into: DataView, family: unknown, protocol: unknown): number {
  const number = familyNumber(action, family);
  into.setUint8(OFFSET.family, number);
  const known = checkInteger(action, "protocol", protocol, 0xff);
  into.setUint8(OFFSET.protocol, known);
  into.setUint8(OFFSET.kind, kindOf(known));
  return number;
}

/** Returns the record that finds an entry by its original tuple. Throws KernelError "invalid". */
export function packKey(action: string, family: IpFamily, original: ConntrackTuple, zone = 0): Uint8Array<ArrayBuffer> {
  wantTuple(action, "original", original);
  const bytes = new Uint8Array(KEY_BYTES);
  const view = new DataView(bytes.buffer);
  packTuple(action, view, "original", packHead(action, view, family, original.protocol), original);
  view.setUint16(OFFSET.zone, checkInteger(action, "zone", zone, 0xffff), true);
  return bytes;
}

/** Returns the record that deletes or changes an entry: its original tuple and its id. Throws KernelError "invalid". */
export function packIdentity(action: string, entry: ConntrackEntry): Uint8Array<ArrayBuffer> {
  const bytes = packKey(action, entry.family, entry.original, entry.zone);
  new DataView(bytes.buffer).setUint32(OFFSET.id, checkInteger(action, "id", entry.id, 0xffffffff), true);
  return bytes;
}

/** Returns the number of a state's name, plus 1. */
function stateCode(action: string, protocol: number, name: string): number {
  const names = STATES.get(protocol);
  const number = names?.indexOf(name) ?? -1;
  if (number >= 0) return number + 1;
  if (names === undefined) throw invalid(action, `state: protocol ${protocol} has no states`);
  throw invalid(
    action,
    `state: protocol ${protocol} has no state ${display(name)}; its states are ${names.join(", ")}`,
  );
}

/** Returns a whole record, FULL_BYTES long, without the counters and the start, which only the kernel sets. Throws KernelError "invalid". */
export function packEntry(action: string, entry: ConntrackEntry | NewConntrackEntry): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(FULL_BYTES);
  const view = new DataView(bytes.buffer);
  const { original, reply } = entry;
  wantTuple(action, "original", original);
  wantTuple(action, "reply", reply);
  const family = packHead(action, view, entry.family, original.protocol);
  if (reply.protocol !== original.protocol) throw invalid(action, "original and reply have different protocols");
  packTuple(action, view, "original", family, original);
  packTuple(action, view, "reply", family, reply);
  view.setUint16(OFFSET.zone, checkInteger(action, "zone", entry.zone ?? 0, 0xffff), true);
  view.setUint32(OFFSET.status, checkInteger(action, "status", entry.status ?? 0, 0xffffffff), true);
  view.setUint32(OFFSET.mark, checkInteger(action, "mark", entry.mark ?? 0, 0xffffffff), true);
  if ("id" in entry) view.setUint32(OFFSET.id, checkInteger(action, "id", entry.id, 0xffffffff), true);
  let parts = 0;
  if (entry.timeout !== undefined) {
    parts |= PART.timeout;
    view.setUint32(OFFSET.timeout, checkInteger(action, "timeout", entry.timeout, 0xffffffff), true);
  }
  if (entry.state !== undefined) view.setUint8(OFFSET.state, stateCode(action, original.protocol, entry.state));
  if (entry.labels !== undefined) {
    const right = entry.labels instanceof Uint8Array && entry.labels.length === LABEL_BYTES;
    if (!right) throw invalid(action, `labels: expected ${LABEL_BYTES} bytes`);
    parts |= PART.labels;
    bytes.set(entry.labels, OFFSET.labels);
  }
  view.setUint16(OFFSET.parts, parts, true);
  return bytes;
}

const { seenReply, assured, confirmed, fixedTimeout, helper } = CONNTRACK_STATUS;
const { sourceNat, destinationNat, sourceNatDone, destinationNatDone } = CONNTRACK_STATUS;
const NAT_BITS = sourceNat | destinationNat | sourceNatDone | destinationNatDone;
/** Bits that the kernel allows to be set when an entry is created. */
const SETTABLE = seenReply | assured | confirmed | fixedTimeout | helper;

/**
 * Returns the whole record of an entry to create. NAT bits are dropped from its status. Throws KernelError "invalid".
 */
export function packNewEntry(action: string, entry: NewConntrackEntry): Uint8Array<ArrayBuffer> {
  const status = checkInteger(action, "status", entry.status ?? 0, 0xffffffff) & ~NAT_BITS;
  if ((status & ~SETTABLE) !== 0) {
    throw invalid(action, `status: bits 0x${((status & ~SETTABLE) >>> 0).toString(16)} cannot be set`);
  }
  return packEntry(action, { ...entry, status, timeout: checkInteger(action, "timeout", entry.timeout, 0xffffffff) });
}

/** Throws KernelError "invalid". */
export function checkUpdate({ timeout, mark }: ConntrackUpdate): NativeChange {
  return {
    ...(timeout !== undefined && { timeout: checkInteger("update", "timeout", timeout, 0xffffffff) }),
    ...(mark !== undefined && {
      mark: checkInteger("update", "mark.value", mark.value, 0xffffffff),
      markMask: checkInteger("update", "mark.mask", mark.mask ?? 0xffffffff, 0xffffffff),
    }),
  };
}
