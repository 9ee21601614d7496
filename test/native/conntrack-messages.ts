/** Hand-written ctnetlink messages, in the kernel's form. */

/** Big-endian bytes of an integer. */
export function be(length: number, value: number | bigint): number[] {
  return Array.from({ length }, (_, i) => Number((BigInt(value) >> BigInt(8 * (length - 1 - i))) & 0xffn));
}

export function attr(type: number, payload: readonly number[]): number[] {
  const length = payload.length + 4;
  const bytes = [length & 0xff, length >> 8, type & 0xff, type >> 8, ...payload];
  while (bytes.length % 4 !== 0) bytes.push(0);
  return bytes;
}

const NESTED = 0x8000;
export const nest = (type: number, ...inner: readonly (readonly number[])[]): number[] =>
  attr(type | NESTED, inner.flat());

export interface MessageOptions {
  readonly type?: number;
  readonly flags?: number;
  readonly seq?: number;
}

/** A netlink message in host order, which is little-endian, like the addon's. */
export function message(payload: readonly number[], options: MessageOptions = {}): number[] {
  const { type = 0x100, flags = 2, seq = 1 } = options;
  const header = Buffer.alloc(16);
  header.writeUInt32LE(16 + payload.length, 0);
  header.writeUInt16LE(type, 4);
  header.writeUInt16LE(flags, 6);
  header.writeUInt32LE(seq, 8);
  return [...header, ...payload];
}

/** A message with nfgenmsg and attributes. */
export function entryMessage(
  family: number,
  attrs: readonly (readonly number[])[],
  options: MessageOptions = {},
): number[] {
  return message([family, 0, 0, 0, ...attrs.flat()], options);
}

/** NLMSG_DONE with a status. */
export function doneMessage(status = 0, options: MessageOptions = {}): number[] {
  const body = Buffer.alloc(4);
  body.writeInt32LE(status, 0);
  return message([...body], { type: 3, ...options });
}

/** NLMSG_ERROR. */
export function errorMessage(errno: number): number[] {
  const body = Buffer.alloc(20);
  body.writeInt32LE(-errno, 0);
  return message([...body], { type: 2, flags: 0x100 });
}

export const v4 = (text: string): number[] => text.split(".").map(Number);

const addresses4 = (source: string, destination: string): number[] =>
  nest(1, attr(1, v4(source)), attr(2, v4(destination)));

export interface TupleParts {
  readonly protocol?: number;
  readonly zone?: number;
}

/** CTA_TUPLE_ORIG (1) or CTA_TUPLE_REPLY (2) for IPv4 with ports. */
export function tuple4(
  type: number,
  source: string,
  destination: string,
  ports: readonly [number, number],
  { protocol = 17, zone }: TupleParts = {},
): number[] {
  const l4 = nest(2, attr(1, [protocol]), attr(2, be(2, ports[0])), attr(3, be(2, ports[1])));
  return nest(type, addresses4(source, destination), l4, zone === undefined ? [] : attr(3, be(2, zone)));
}

/** The same for ICMP. */
export function icmp4(type: number, source: string, destination: string, id: number, icmpType: number): number[] {
  return nest(
    type,
    addresses4(source, destination),
    nest(2, attr(1, [1]), attr(4, be(2, id)), attr(5, [icmpType]), attr(6, [0])),
  );
}

export const UDP = [
  tuple4(1, "10.0.0.7", "10.96.0.10", [40_000, 53]),
  tuple4(2, "10.1.0.3", "10.0.0.7", [5353, 40_000]),
];

/** All attributes that an entry may have, CTA_* by number. */
export const FULL = [
  tuple4(1, "10.0.0.7", "10.96.0.10", [40_000, 80], { protocol: 6, zone: 5 }),
  tuple4(2, "10.1.0.3", "10.0.0.7", [8080, 40_000], { protocol: 6 }),
  attr(18, be(2, 9)),
  attr(3, be(4, 0x1ae)),
  attr(8, be(4, 0xdead_beef)),
  attr(12, be(4, 0xf000_0001)),
  attr(11, be(4, 1)),
  attr(7, be(4, 431_999)),
  nest(4, nest(1, attr(1, [3]), attr(2, [7]), attr(3, [7]), attr(4, [10, 10]))),
  nest(9, attr(1, be(8, 2n ** 40n)), attr(2, be(8, 2n ** 63n))),
  nest(10, attr(1, be(8, 3)), attr(2, be(8, 4))),
  nest(20, attr(1, be(8, 1_700_000_000_123_456_789n))),
  attr(
    22,
    Array.from({ length: 16 }, (_, i) => i + 1),
  ),
  // A helper and a security context, which we do not report.
  nest(5, attr(1, [...Buffer.from("ftp\0")])),
  nest(19, attr(1, [...Buffer.from("unlabeled\0")])),
  // An attribute that does not exist yet.
  attr(900, [1, 2, 3]),
];
