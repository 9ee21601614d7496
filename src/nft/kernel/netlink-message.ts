/**
 * Encodes and decodes netlink messages of rare requests (linux/netlink.h). `NetlinkConnection.exchange` sends them. Numbers are in the
 * host's byte order unless a function's name says otherwise. Decoding checks all lengths, and throws KernelError "system" (EBADMSG) for a
 * malformed message.
 */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { KernelError } from "./errors.js";

/** linux/netlink.h: the protocols that `NetlinkConnection.exchange` accepts. */
export const NetlinkProtocol = { route: 0, netfilter: 12, generic: 16 } as const;

/** linux/netlink.h: flags of requests. */
export const RequestFlag = {
  request: 0x1,
  ack: 0x4,
  dump: 0x300,
  replace: 0x100,
  exclusive: 0x200,
  create: 0x400,
} as const;

const HEADER = 16;
const ATTRIBUTE_HEADER = 4;
/** Flags of an attribute's type: it contains attributes (NLA_F_NESTED), its numbers are in network order (NLA_F_NET_BYTEORDER). */
const NESTED = 0x8000;
const NETWORK_ORDER = 0x4000;

const padded = (length: number): number => (length + 3) & ~3;

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Concatenates bytes. */
export function joined(parts: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(parts);
}

/** Encodes a number in 1, 2 or 4 bytes. */
export function number(value: number, length: 1 | 2 | 4): Uint8Array {
  const bytes = new Uint8Array(length);
  const view = viewOf(bytes);
  if (length === 1) view.setUint8(0, value);
  else if (length === 2) view.setUint16(0, value, LITTLE_ENDIAN);
  else view.setUint32(0, value, LITTLE_ENDIAN);
  return bytes;
}

/** Encodes a number in network byte order. */
export function networkNumber(value: number, length: 2 | 4): Uint8Array {
  const bytes = number(value, length);
  return LITTLE_ENDIAN ? bytes.toReversed() : bytes;
}

/** Encodes text with a final NUL. */
export function text(value: string): Uint8Array {
  return Buffer.from(`${value}\0`, "latin1");
}

/** Encodes an attribute, padded. Throws RangeError beyond 65,535 bytes. */
export function attribute(type: number, data: Uint8Array): Uint8Array {
  const length = ATTRIBUTE_HEADER + data.length;
  if (length > 0xffff) throw new RangeError(`attribute ${type} is too long: ${data.length} bytes`);
  const bytes = new Uint8Array(padded(length));
  viewOf(bytes).setUint16(0, length, LITTLE_ENDIAN);
  viewOf(bytes).setUint16(2, type, LITTLE_ENDIAN);
  bytes.set(data, ATTRIBUTE_HEADER);
  return bytes;
}

/** Encodes an attribute whose type says that its number is in network order, as ipset requires. */
export function networkAttribute(type: number, data: Uint8Array): Uint8Array {
  return attribute(type | NETWORK_ORDER, data);
}

/** Encodes an attribute that contains attributes. */
export function nest(type: number, attributes: readonly Uint8Array[]): Uint8Array {
  return attribute(type | NESTED, joined(attributes));
}

interface Request {
  /** nlmsg_type. */
  readonly type: number;
  /** A combination of `RequestFlag`. `request` is added. */
  readonly flags: number;
  /** The header of the message's own kind: nfgenmsg, genlmsghdr, rtmsg. */
  readonly header: Uint8Array;
  readonly attributes: readonly Uint8Array[];
}

/** Encodes a request, with sequence number 1. */
export function encodeRequest({ type, flags, header, attributes }: Request): Uint8Array {
  const body = joined([header, new Uint8Array(padded(header.length) - header.length), ...attributes]);
  const bytes = new Uint8Array(HEADER + body.length);
  const view = viewOf(bytes);
  view.setUint32(0, bytes.length, LITTLE_ENDIAN);
  view.setUint16(4, type, LITTLE_ENDIAN);
  view.setUint16(6, RequestFlag.request | flags, LITTLE_ENDIAN);
  view.setUint32(8, 1, LITTLE_ENDIAN);
  bytes.set(body, HEADER);
  return bytes;
}

/** Sends requests to the kernel: a `NetlinkConnection`. */
export interface NetlinkExchange {
  /** Returns the messages of the answer to one request. See `NetlinkConnection.exchange`. */
  exchange(protocol: number, request: Uint8Array): Promise<Uint8Array>;
}

/** Sends a request and returns the messages of the kernel's answer. `headerLength` is the length of each one's own header. */
export async function ask(
  netlink: NetlinkExchange,
  protocol: number,
  request: Request,
  headerLength: number,
): Promise<Reply[]> {
  return decodeReplies(await netlink.exchange(protocol, encodeRequest(request)), headerLength);
}

/** Attributes by type. Several attributes of one type keep their order. */
export type Attributes = ReadonlyMap<number, readonly Uint8Array[]>;

/** One message of an answer. */
export interface Reply {
  readonly type: number;
  readonly header: Uint8Array;
  readonly attributes: Attributes;
}

/** Decodes the messages of an answer, each with a header of `headerLength` bytes before its attributes. */
export function decodeReplies(bytes: Uint8Array, headerLength: number): Reply[] {
  const view = viewOf(bytes);
  const replies: Reply[] = [];
  for (let at = 0; at < bytes.length;) {
    const left = bytes.length - at;
    const length = left < HEADER ? 0 : view.getUint32(at, LITTLE_ENDIAN);
    if (length < HEADER + headerLength || length > left) throw malformed("the message's length is out of bounds");
    const body = bytes.subarray(at + HEADER, at + length);
    replies.push({
      type: view.getUint16(at + 4, LITTLE_ENDIAN),
      header: body.subarray(0, headerLength),
      attributes: decodeAttributes(body.subarray(padded(headerLength))),
    });
    at += padded(length);
  }
  return replies;
}

/** Decodes the attributes in a nest's bytes. */
export function decodeAttributes(bytes: Uint8Array): Attributes {
  const view = viewOf(bytes);
  const found = new Map<number, Uint8Array[]>();
  for (let at = 0; at < bytes.length;) {
    const left = bytes.length - at;
    const length = left < ATTRIBUTE_HEADER ? 0 : view.getUint16(at, LITTLE_ENDIAN);
    if (length < ATTRIBUTE_HEADER || length > left) throw malformed("an attribute's length is out of bounds");
    const type = view.getUint16(at + 2, LITTLE_ENDIAN) & ~(NESTED | NETWORK_ORDER);
    const data = bytes.subarray(at + ATTRIBUTE_HEADER, at + length);
    const before = found.get(type);
    if (before === undefined) found.set(type, [data]);
    else before.push(data);
    at += padded(length);
  }
  return found;
}

/** Returns the first attribute of a type, or undefined if there is none. */
export function dataOf(attributes: Attributes, type: number): Uint8Array | undefined {
  return attributes.get(type)?.[0];
}

/** Returns the attributes inside an attribute, or none if it is absent. */
export function nestOf(attributes: Attributes, type: number): Attributes {
  return decodeAttributes(dataOf(attributes, type) ?? new Uint8Array());
}

/** Returns a number of 1, 2 or 4 bytes, or undefined if the attribute is absent. */
export function numberOf(attributes: Attributes, type: number): number | undefined {
  const data = dataOf(attributes, type);
  return data === undefined ? undefined : readNumber(data, LITTLE_ENDIAN, type);
}

/** Like numberOf, for a number in network byte order. */
export function networkNumberOf(attributes: Attributes, type: number): number | undefined {
  const data = dataOf(attributes, type);
  return data === undefined ? undefined : readNumber(data, false, type);
}

/** Returns the text up to its NUL, or undefined if the attribute is absent. */
export function textOf(attributes: Attributes, type: number): string | undefined {
  const data = dataOf(attributes, type);
  if (data === undefined) return undefined;
  const end = data.indexOf(0);
  return Buffer.from(end < 0 ? data : data.subarray(0, end)).toString("latin1");
}

/** Returns a number inside a header, in the host's byte order. */
export function headerNumber(header: Uint8Array, offset: number, length: 1 | 2 | 4): number {
  return readNumber(header.subarray(offset, offset + length), LITTLE_ENDIAN, offset);
}

function readNumber(data: Uint8Array, little: boolean, where: number): number {
  const view = viewOf(data);
  switch (data.length) {
    case 1:
      return view.getUint8(0);
    case 2:
      return view.getUint16(0, little);
    case 4:
      return view.getUint32(0, little);
    default:
      throw malformed(`attribute ${where} is not a number`);
  }
}

function malformed(what: string): KernelError {
  return new KernelError("system", `malformed netlink message: ${what}`, { action: "decode", errno: "EBADMSG" });
}
