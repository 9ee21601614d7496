/**
 * Netlink messages as bytes, for what is asked seldom (linux/netlink.h). `NetlinkConnection.exchange` sends them. Numbers are in
 * the host's byte order unless a function's name says otherwise. What is read is checked: a message that does not keep to its
 * own lengths throws KernelError "system" (EBADMSG).
 */
import { endianness } from "node:os";
import { KernelError } from "./errors.js";

/** linux/netlink.h: the protocols that `NetlinkConnection.exchange` takes. */
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
/** Of an attribute's type: it has attributes inside (NLA_F_NESTED), its numbers are in network order (NLA_F_NET_BYTEORDER). */
const NESTED = 0x8000;
const NETWORK_ORDER = 0x4000;

const LITTLE = endianness() === "LE";

const padded = (length: number): number => (length + 3) & ~3;

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Bytes behind each other. */
export function joined(parts: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(parts);
}

/** A number of 1, 2 or 4 bytes. */
export function number(value: number, length: 1 | 2 | 4): Uint8Array {
  const bytes = new Uint8Array(length);
  const view = viewOf(bytes);
  if (length === 1) view.setUint8(0, value);
  else if (length === 2) view.setUint16(0, value, LITTLE);
  else view.setUint32(0, value, LITTLE);
  return bytes;
}

/** The same in network byte order. */
export function networkNumber(value: number, length: 2 | 4): Uint8Array {
  const bytes = number(value, length);
  return LITTLE ? bytes.toReversed() : bytes;
}

/** Text with a NUL behind it. */
export function text(value: string): Uint8Array {
  return Buffer.from(`${value}\0`, "latin1");
}

/** One attribute, padded. Throws RangeError beyond 65,535 bytes. */
export function attribute(type: number, data: Uint8Array): Uint8Array {
  const length = ATTRIBUTE_HEADER + data.length;
  if (length > 0xffff) throw new RangeError(`attribute ${type} of ${data.length} bytes`);
  const bytes = new Uint8Array(padded(length));
  viewOf(bytes).setUint16(0, length, LITTLE);
  viewOf(bytes).setUint16(2, type, LITTLE);
  bytes.set(data, ATTRIBUTE_HEADER);
  return bytes;
}

/** One whose number is in network order, and marked so, as ipset wants it. */
export function networkAttribute(type: number, data: Uint8Array): Uint8Array {
  return attribute(type | NETWORK_ORDER, data);
}

/** An attribute of attributes. */
export function nest(type: number, attributes: readonly Uint8Array[]): Uint8Array {
  return attribute(type | NESTED, joined(attributes));
}

export interface Request {
  /** nlmsg_type. */
  readonly type: number;
  /** Of `RequestFlag`, beside `request`. */
  readonly flags: number;
  /** The header of the message's own kind: nfgenmsg, genlmsghdr, rtmsg. */
  readonly header: Uint8Array;
  readonly attributes: readonly Uint8Array[];
}

/** The bytes of a request; its sequence number is 1. */
export function encodeRequest({ type, flags, header, attributes }: Request): Uint8Array {
  const body = joined([header, new Uint8Array(padded(header.length) - header.length), ...attributes]);
  const bytes = new Uint8Array(HEADER + body.length);
  const view = viewOf(bytes);
  view.setUint32(0, bytes.length, LITTLE);
  view.setUint16(4, type, LITTLE);
  view.setUint16(6, RequestFlag.request | flags, LITTLE);
  view.setUint32(8, 1, LITTLE);
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

/** Attributes by type; of a type that comes more than once, in their order. */
export type Attributes = ReadonlyMap<number, readonly Uint8Array[]>;

/** One message of an answer. */
export interface Reply {
  readonly type: number;
  readonly header: Uint8Array;
  readonly attributes: Attributes;
}

/** The messages of an answer, each with a header of `headerLength` bytes in front of its attributes. */
export function decodeReplies(bytes: Uint8Array, headerLength: number): Reply[] {
  const view = viewOf(bytes);
  const replies: Reply[] = [];
  for (let at = 0; at < bytes.length;) {
    const left = bytes.length - at;
    const length = left < HEADER ? 0 : view.getUint32(at, LITTLE);
    if (length < HEADER + headerLength || length > left) throw malformed("message length out of bounds");
    const body = bytes.subarray(at + HEADER, at + length);
    replies.push({
      type: view.getUint16(at + 4, LITTLE),
      header: body.subarray(0, headerLength),
      attributes: decodeAttributes(body.subarray(padded(headerLength))),
    });
    at += padded(length);
  }
  return replies;
}

/** The attributes in the bytes of a nest. */
export function decodeAttributes(bytes: Uint8Array): Attributes {
  const view = viewOf(bytes);
  const found = new Map<number, Uint8Array[]>();
  for (let at = 0; at < bytes.length;) {
    const left = bytes.length - at;
    const length = left < ATTRIBUTE_HEADER ? 0 : view.getUint16(at, LITTLE);
    if (length < ATTRIBUTE_HEADER || length > left) throw malformed("attribute length out of bounds");
    const type = view.getUint16(at + 2, LITTLE) & ~(NESTED | NETWORK_ORDER);
    const data = bytes.subarray(at + ATTRIBUTE_HEADER, at + length);
    const before = found.get(type);
    if (before === undefined) found.set(type, [data]);
    else before.push(data);
    at += padded(length);
  }
  return found;
}

/** The first attribute of a type; undefined: there is none. */
export function dataOf(attributes: Attributes, type: number): Uint8Array | undefined {
  return attributes.get(type)?.[0];
}

/** The attributes inside one; none when it is not there. */
export function nestOf(attributes: Attributes, type: number): Attributes {
  return decodeAttributes(dataOf(attributes, type) ?? new Uint8Array());
}

/** A number of 1, 2 or 4 bytes; undefined: the attribute is not there. */
export function numberOf(attributes: Attributes, type: number): number | undefined {
  const data = dataOf(attributes, type);
  return data === undefined ? undefined : readNumber(data, LITTLE, type);
}

/** The same of a number in network byte order. */
export function networkNumberOf(attributes: Attributes, type: number): number | undefined {
  const data = dataOf(attributes, type);
  return data === undefined ? undefined : readNumber(data, false, type);
}

/** Text up to its NUL; undefined: the attribute is not there. */
export function textOf(attributes: Attributes, type: number): string | undefined {
  const data = dataOf(attributes, type);
  if (data === undefined) return undefined;
  const end = data.indexOf(0);
  return Buffer.from(end < 0 ? data : data.subarray(0, end)).toString("latin1");
}

/** A number inside a header, in the host's byte order. */
export function headerNumber(header: Uint8Array, offset: number, length: 1 | 2 | 4): number {
  return readNumber(header.subarray(offset, offset + length), LITTLE, offset);
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
      throw malformed(`attribute ${where} is no number`);
  }
}

function malformed(what: string): KernelError {
  return new KernelError("system", `malformed netlink message: ${what}`, { action: "decode", errno: "EBADMSG" });
}
