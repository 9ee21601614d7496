/** Parses addresses and ports from the start of a packet's headers, as the kernel reports them. Pure. */
import { isDeepStrictEqual } from "node:util";
import { formatAddress, type IpFamily } from "../../base/ip.js";
import { IpProto } from "../../base/protocols.js";
import { type Transport, TRANSPORTS } from "../explain/machine/packet-spec.js";
import type { TraceEvent } from "../../nft/kernel/kernel.js";

export interface TraceTuple {
  /** Canonical. */
  readonly source: string;
  readonly sourcePort: number;
  readonly destination: string;
  readonly destinationPort: number;
}

export interface TraceHeaders extends TraceTuple {
  readonly family: IpFamily;
  readonly protocol: Transport;
}

/** Offsets in the IP header: protocol (for IPv6: next header), source, destination (RFC 791, RFC 8200). */
const LAYOUT = { ip: { protocol: 9, source: 12, length: 4 }, ip6: { protocol: 6, source: 8, length: 16 } } as const;

/** The headers as the kernel reports them. */
type Headers = Pick<TraceEvent, "network" | "transport">;

export interface IpHeader {
  readonly family: IpFamily;
  readonly protocol: number;
  readonly source: string;
  readonly destination: string;
}

/** Returns undefined if the header is truncated, or there is none. An IPv6 packet with extension headers has the protocol of the first. */
export function readIpHeader({ network = new Uint8Array() }: Headers): IpHeader | undefined {
  const family = ({ 4: "ip", 6: "ip6" } as const)[network[0] >>> 4];
  if (family === undefined) return undefined;
  const { protocol, source: at, length } = LAYOUT[family];
  if (network.length < at + 2 * length) return undefined;
  const [source, destination] = [at, at + length].map((from) => formatAddress(network.subarray(from, from + length)));
  return { family, protocol: network[protocol], source, destination };
}

/** Returns undefined if the headers are truncated, or the protocol is not one of services. */
export function readHeaders(headers: Headers): TraceHeaders | undefined {
  const ip = readIpHeader(headers);
  const { transport } = headers;
  const protocol = TRANSPORTS.find((name) => IpProto[name] === ip?.protocol);
  if (ip === undefined || protocol === undefined || transport === undefined || transport.length < 4) return undefined;
  const ports = new DataView(transport.buffer, transport.byteOffset);
  return { ...ip, protocol, sourcePort: ports.getUint16(0), destinationPort: ports.getUint16(2) };
}

/**
 * Returns values that no translation of the destination changes, and that the next packet of the same source does not
 * repeat. These are the source, the IPv4 identification or IPv6 payload length, and the TCP sequence number, SCTP
 * verification tag or UDP length.
 */
export function readIdentity(
  { family, protocol, source, sourcePort }: TraceHeaders,
  { network = new Uint8Array(), transport = new Uint8Array() }: Headers,
): string {
  const [ip, inner] = [network.subarray(4, 6), transport.subarray(4, protocol === "udp" ? 6 : 8)];
  return [family, protocol, source, sourcePort, ...ip, ...inner].join(" ");
}

/** Facts of a packet besides its addresses. */
export interface PacketFacts {
  /** Length of the IP packet, in bytes. Segmentation offload joins several segments to one packet. */
  readonly length: number;
  /** Bits of IPv4: "DF" (do not fragment), "MF" (more fragments), or both. Absent if none is set, and for IPv6. */
  readonly fragment?: string;
  /** Absent for other protocols. */
  readonly tcp?: {
    /** In the order of the header: "FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR". */
    readonly flags: readonly string[];
    readonly sequence: number;
    readonly acknowledgement: number;
    /** Bytes of data. */
    readonly payload: number;
  };
}

const TCP_FLAGS = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"] as const;
/** IPv4: bits of the byte that begins the fragment's offset. */
const FRAGMENT_BITS = [
  [0x40, "DF"],
  [0x20, "MF"],
] as const;
const IPV6_HEADER = 40;

export function readFacts(
  { family, protocol }: TraceHeaders,
  { network = new Uint8Array(), transport = new Uint8Array() }: Headers,
): PacketFacts {
  const ip = new DataView(network.buffer, network.byteOffset);
  const isIPv6 = family === "ip6";
  const length = isIPv6 ? IPV6_HEADER + ip.getUint16(4) : ip.getUint16(2);
  const bits = FRAGMENT_BITS.flatMap(([bit, name]) => (!isIPv6 && (network[6] & bit) !== 0 ? [name] : []));
  const facts = { length, fragment: bits.join(" ") || undefined };
  if (protocol !== "tcp" || transport.length < 20) return facts;
  const header = new DataView(transport.buffer, transport.byteOffset);
  const ipHeader = isIPv6 ? IPV6_HEADER : 4 * (network[0] & 15);
  return {
    ...facts,
    tcp: {
      flags: TCP_FLAGS.filter((_, bit) => ((transport[13] >>> bit) & 1) === 1),
      sequence: header.getUint32(4),
      acknowledgement: header.getUint32(8),
      payload: length - ipHeader - 4 * (transport[12] >>> 4),
    },
  };
}

export function sameTuple(a: TraceTuple, b: TraceTuple): boolean {
  return isDeepStrictEqual(reversed(a), reversed(b));
}

/** The tuple of the packets in the other direction. */
export function reversed({ source, sourcePort, destination, destinationPort }: TraceTuple): TraceTuple {
  return { source: destination, sourcePort: destinationPort, destination: source, destinationPort: sourcePort };
}
