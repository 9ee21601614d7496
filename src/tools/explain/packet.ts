/** The first packet of a connection as nf_tables expressions see it, and the changes that rules make to it. */
import { isLoopback } from "../../node/node-facts.js";
import { formatAddress, type IpFamily, packAddress } from "../../base/ip.js";
import { AddressType, CtState, IpProto, TcpFlag } from "../../netlink/constants.js";
import {
  type Bits,
  equals,
  exactly,
  hostNumber,
  isKnown,
  partOf,
  type Ternary,
  textOf,
  unknownBits,
  withPart,
} from "./bits.js";

export const TRANSPORTS = ["tcp", "udp", "sctp"] as const satisfies readonly (keyof typeof IpProto)[];
export type Transport = (typeof TRANSPORTS)[number];

/** The known facts about a packet. Addresses are canonical. Absent fields are unknown. */
interface PacketFields {
  readonly family: IpFamily;
  /** icmp: an error message, also of ICMPv6. */
  readonly protocol: Transport | "icmp";
  readonly source?: string;
  readonly sourcePort?: number;
  readonly destination?: string;
  readonly destinationPort?: number;
}

/** The packet to explain. */
export interface PacketSpec extends PacketFields {
  readonly protocol: Transport;
  readonly source: string;
  readonly destination: string;
  readonly destinationPort: number;
  /** Incoming interface. "" if the packet is from this node or the interface is unknown. */
  readonly inInterface: string;
}

/** Direction of the packet in its connection. */
export type Direction = "original" | "reply";

/** The connection tracker's state of a packet: not yet seen, has an entry, exempt by `notrack`, or without an entry. */
type Tracking = "not yet" | "tracked" | "untracked" | "invalid";

/** The headers that a connection is known by. */
interface Tuple {
  readonly network: Bits;
  readonly transport: Bits;
}

/** Why a packet has no direction of its own: it answers one that a rule rejected, or no connection can begin with it. */
type Answer = "reset" | "error" | "handshake";

/** A packet's state. Each branch has its own copy. */
export class PacketState {
  readonly family: IpFamily;
  readonly protocol: Transport | "icmp";
  readonly direction: Direction;
  mark: Bits = hostNumber(0);
  priority: Bits = hostNumber(0);
  packetType: Bits = exactly(Uint8Array.of(0));
  ctMark: Bits = hostNumber(0);
  ctLabels: Bits = exactly(new Uint8Array(16));
  network: Bits;
  transport: Bits;
  /** The headers as the connection tracker first saw them. */
  tuple: Tuple;
  tracking: Tracking = "not yet";
  translated = false;
  masqueraded = false;
  /** Bits of `ct status`: whether the destination or source of the connection was changed, and not only rewritten. */
  destinationChanged: Ternary = false;
  sourceChanged: Ternary = false;
  /** A reply's connection, if its first packet is known. */
  connection: { readonly original: Tuple; readonly reply: Tuple } | undefined = undefined;
  answers: Answer | undefined = undefined;
  /** Set by the rule that rejects the packet. */
  rejectedWith: "reset" | "error" | undefined = undefined;
  /** Redirected to an address of this node by `redirect`. */
  redirected = false;
  /** The packet has passed its first NAT hook for destinations, or for sources. No later hook can rewrite them. */
  destinationBound = false;
  sourceBound = false;
  /** "" if there is none. Undefined if unknown. */
  inInterface: string | undefined = undefined;
  outInterface: string | undefined = undefined;
  /** Names of the sets that the packet changed. Their content is no longer known. */
  changedSets: ReadonlySet<string> = new Set();

  constructor(spec: PacketFields, direction: Direction = "original") {
    this.family = spec.family;
    this.protocol = spec.protocol;
    this.direction = direction;
    this.network = networkHeader(spec);
    this.transport = transportHeader(spec, direction);
    this.tuple = { network: this.network, transport: this.transport };
    if (direction === "reply") {
      this.ctMark = unknownBits(4);
      this.ctLabels = unknownBits(16);
    }
  }

  clone(): PacketState {
    return Object.assign(Object.create(PacketState.prototype) as PacketState, this);
  }

  /** Equal for states that rules treat alike from here on. */
  get key(): string {
    const { mark, priority, packetType, ctMark, ctLabels, network, transport, inInterface, outInterface } = this;
    const { tuple, connection } = this;
    const all = [mark, priority, packetType, ctMark, ctLabels, network, transport, tuple.network, tuple.transport];
    if (connection !== undefined) all.push(connection.original.network, connection.reply.network);
    const bits = all.map(textOf);
    const flags = [
      this.tracking,
      this.translated,
      this.masqueraded,
      this.destinationChanged,
      this.sourceChanged,
      this.rejectedWith,
      this.redirected,
      this.destinationBound,
      this.sourceBound,
    ];
    return [...bits, ...flags, inInterface, outInterface, ...[...this.changedSets].sort()].join("\n");
  }

  /** Canonical. Undefined if unknown. */
  get source(): string | undefined {
    const [at, length] = SOURCE[this.family];
    return addressIn(partOf(this.network, at, length));
  }

  get destination(): string | undefined {
    const [at, length] = DESTINATION[this.family];
    return addressIn(partOf(this.network, at, length));
  }

  set destination(address: string | undefined) {
    const bits = address === undefined ? unknownBits(DESTINATION[this.family][1]) : exactly(bytesOf(address));
    this.network = withPart(this.network, DESTINATION[this.family][0], bits);
  }

  get sourceBits(): Bits {
    return partOf(this.network, ...SOURCE[this.family]);
  }

  get destinationBits(): Bits {
    return partOf(this.network, ...DESTINATION[this.family]);
  }

  get destinationPort(): number | undefined {
    const port = partOf(this.transport, 2, 2);
    return isKnown(port) ? port.bytes[0] * 256 + port.bytes[1] : undefined;
  }

  set destinationPort(port: number | undefined) {
    this.transport = withPart(this.transport, 2, port === undefined ? unknownBits(2) : exactly(portBytes(port)));
  }

  /** Whether the packet answers one that a rule rejected. */
  get isError(): boolean {
    return this.answers === "reset" || this.answers === "error";
  }

  /** Bits of `ct state`. */
  get ctState(): number {
    if (this.tracking === "untracked") return CtState.untracked;
    if (this.tracking !== "tracked") return CtState.invalid;
    if (this.answers !== undefined) return CtState.related;
    return this.direction === "original" ? CtState.new : CtState.established;
  }

  /** The connection tracker sees the packet. */
  track(): void {
    if (this.tracking !== "not yet") return;
    this.tracking = this.answers === undefined ? "tracked" : "invalid";
    this.tuple = { network: this.network, transport: this.transport };
  }

  /** Translates a packet of a known connection back, as the kernel does at the hooks for destinations and for sources. */
  translateBack(ofDestination: boolean): void {
    if (this.tracking !== "tracked" || this.connection === undefined) return;
    const { network, transport } = this.connection.original;
    const { family } = this;
    // A reply goes to the source of the first packet, and comes from its destination.
    if (ofDestination)
      this.network = withPart(this.network, DESTINATION[family][0], partOf(network, ...SOURCE[family]));
    else if (this.answers !== "error") {
      this.network = withPart(this.network, SOURCE[family][0], partOf(network, ...DESTINATION[family]));
    }
    if (this.protocol === "icmp") return;
    const [to, from] = ofDestination ? [2, 0] : [0, 2];
    this.transport = withPart(this.transport, to, partOf(transport, from, 2));
  }

  /** The answer to this packet from the place where it has arrived, or from the node whose rule rejects it. */
  answer(kind: "reply" | "reset" | "error"): PacketState {
    const { family, tracking } = this;
    const fields = { family, protocol: kind === "error" ? "icmp" : this.protocol } as const;
    const isTracked = tracking === "tracked";
    const answer = new PacketState(fields, isTracked ? "reply" : "original");
    // The node chooses the source of an ICMP error.
    const ends = kind === "error" ? [] : [[DESTINATION, SOURCE] as const];
    for (const [from, to] of [...ends, [SOURCE, DESTINATION] as const]) {
      answer.network = withPart(answer.network, to[family][0], partOf(this.network, ...from[family]));
    }
    if (kind !== "error") {
      for (const [from, to] of [[2, 0] as const, [0, 2] as const])
        answer.transport = withPart(answer.transport, to, partOf(this.transport, from, 2));
    }
    if (answer.protocol === "tcp") {
      const flags = kind === "reply" ? TcpFlag.syn | TcpFlag.ack : TcpFlag.rst | TcpFlag.ack;
      answer.transport = withPart(answer.transport, 13, {
        bytes: Uint8Array.of(flags),
        known: Uint8Array.of(~ECN & 0xff),
      });
    }
    answer.changedSets = this.changedSets;
    if (kind !== "reply") answer.answers = kind;
    // Without an entry, the tracker cannot know what a handshake answers.
    else if (!isTracked && answer.protocol !== "udp") answer.answers = "handshake";
    if (!isTracked) return answer;
    if (kind !== "reply") answer.tracking = "tracked";
    const reply = { network: answer.network, transport: answer.transport };
    const { ctMark, ctLabels, translated, masqueraded, destinationChanged, sourceChanged, tuple } = this;
    const { destinationBound, sourceBound } = this;
    const connection = { original: this.connection?.original ?? tuple, reply };
    return Object.assign(answer, {
      ...{ ctMark, ctLabels, translated, masqueraded, destinationChanged, sourceChanged, connection },
      ...{ destinationBound, sourceBound },
    });
  }

  /** Whether the packet goes from one address and port to another address. */
  goes(from: { readonly address: string; readonly port: number }, to: string): Ternary {
    const checks = [
      equals(this.sourceBits, bytesOf(from.address)),
      equals(this.destinationBits, bytesOf(to)),
      equals(partOf(this.transport, 0, 2), portBytes(from.port)),
    ];
    return checks.includes(false) ? false : checks.includes(undefined) ? undefined : true;
  }
}

/** Addresses of loopback interfaces. */
export const LOOPBACK = { ip: "127.0.0.1", ip6: "::1" } as const;

/** Offset and length of the address in the IP header. */
type Place = Readonly<Record<IpFamily, readonly [at: number, length: number]>>;
export const SOURCE: Place = { ip: [12, 4], ip6: [8, 16] };
export const DESTINATION: Place = { ip: [16, 4], ip6: [24, 16] };

function addressIn(bits: Bits): string | undefined {
  return isKnown(bits) ? formatAddress(bits.bytes) : undefined;
}

/** Returns an address in network order. Throws a RangeError if the text is not an address. */
export function bytesOf(address: string): Uint8Array {
  const bytes = new Uint8Array(16);
  const length = packAddress(address, bytes, 0);
  if (length === 0) throw new RangeError(`not an address: ${address}`);
  return bytes.slice(0, length);
}

/** A client's port: 32768 or higher, where the kernel's own choices begin (net.ipv4.ip_local_port_range). */
export const CLIENT_PORT: Bits = { bytes: Uint8Array.of(0x80, 0), known: Uint8Array.of(0x80, 0) };

export function portBytes(port: number): Uint8Array {
  return Uint8Array.of(port >>> 8, port & 0xff);
}

/**
 * Fields of the IP header at their offsets (RFC 791, RFC 8200): version, protocol and addresses. The packet is not a
 * fragment.
 */
function networkHeader({ family, protocol, source, destination }: PacketFields): Bits {
  const ip4 = family === "ip";
  let header = unknownBits(ip4 ? 20 : 40);
  const put = (at: number, byte: number, known = 0xff): void => {
    header = withPart(header, at, { bytes: Uint8Array.of(byte), known: Uint8Array.of(known) });
  };
  put(0, ip4 ? 0x40 : 0x60, 0xf0);
  put(ip4 ? 9 : 6, protocolNumberOf({ family, protocol }));
  if (ip4) {
    // The sender chooses the flag "don't fragment".
    put(6, 0, 0xbf);
    put(7, 0);
  }
  if (source !== undefined) header = withPart(header, SOURCE[family][0], exactly(bytesOf(source)));
  if (destination !== undefined) header = withPart(header, DESTINATION[family][0], exactly(bytesOf(destination)));
  return header;
}

export function protocolNumberOf({ family, protocol }: Pick<PacketFields, "family" | "protocol">): number {
  return IpProto[protocol === "icmp" && family === "ip6" ? "icmpv6" : protocol];
}

const HEADER_LENGTH = { tcp: 20, udp: 8, sctp: 12, icmp: 8 } as const;
/** The sender chooses the ECN flags of a SYN or SYN ACK. */
const ECN = TcpFlag.ecn | TcpFlag.cwr;

/** The ports, and for TCP the flags: the first packet is a SYN, its answer a SYN ACK. */
function transportHeader({ protocol, sourcePort, destinationPort }: PacketFields, direction: Direction): Bits {
  let header = unknownBits(HEADER_LENGTH[protocol]);
  if (sourcePort !== undefined) header = withPart(header, 0, exactly(portBytes(sourcePort)));
  if (destinationPort !== undefined) header = withPart(header, 2, exactly(portBytes(destinationPort)));
  if (protocol !== "tcp") return header;
  const flags = TcpFlag.syn | (direction === "reply" ? TcpFlag.ack : 0);
  return withPart(header, 13, { bytes: Uint8Array.of(flags), known: Uint8Array.of(~ECN & 0xff) });
}

/**
 * Returns the routing type of a canonical address (RTN_*), as in `fib … type`, judged only by this node's addresses.
 */
export function addressTypeOf(address: string, local: ReadonlySet<string>): number {
  if (local.has(address) || isLoopback(address)) return AddressType.local;
  if (address === "255.255.255.255") return AddressType.broadcast;
  const first = bytesOf(address)[0] ?? 0;
  const multicast = address.includes(":") ? first === 0xff : first >= 224 && first < 240;
  return multicast ? AddressType.multicast : AddressType.unicast;
}
