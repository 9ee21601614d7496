/** The first packet of a connection as nf_tables expressions see it, and the changes that rules make to it. */
import { formatAddress, type IpFamily, packAddress } from "../../../base/ip.js";
import { CtState, IpProto, TcpFlag } from "../../../nft/kernel/constants.js";
import type { PacketSpec, Transport } from "./packet-spec.js";
import { all, type Bits, equals, exactly, hostNumber, isKnown, partOf, textOf } from "./bits.js";
import { type Ternary, unknownBits, withPart } from "./bits.js";
import type { EndedBy } from "./hooks.js";

/** The known facts about a packet. Absent fields are unknown. */
type PacketFacts = Partial<Pick<PacketSpec, "source" | "sourcePort" | "destination" | "destinationPort">> & {
  readonly family: IpFamily;
  /** icmp: an error message, also of ICMPv6. */
  readonly protocol: Transport | "icmp";
};

/** Direction of the packet in its connection. */
export type Direction = "original" | "reply";

/** The connection tracker's state of a packet: not yet seen, has an entry, exempt by `notrack`, or without an entry. */
type Tracking = "not yet" | "tracked" | "untracked" | "invalid";

/** The headers that a connection is known by. */
interface Tuple {
  readonly network: Bits;
  readonly transport: Bits;
}

export type Field = "source" | "destination" | "sourcePort" | "destinationPort";
/** The field of the same header, at the other end of the connection. */
export const OPPOSITE = {
  source: "destination",
  destination: "source",
  sourcePort: "destinationPort",
  destinationPort: "sourcePort",
} as const;
const FIELDS = ["source", "destination", "sourcePort", "destinationPort"] as const;

interface FieldPlace {
  readonly header: keyof Tuple;
  readonly at: number;
  readonly length: number;
}

/** Place of a field in its header. */
export function placeOf(family: IpFamily, field: Field): FieldPlace {
  const isFrom = field === "source" || field === "sourcePort";
  if (field === "sourcePort" || field === "destinationPort")
    return { header: "transport", at: isFrom ? 0 : 2, length: 2 };
  const [at, length] = family === "ip" ? [12, 4] : [8, 16];
  return { header: "network", at: isFrom ? at : at + length, length };
}

export function fieldOf(tuple: Tuple, family: IpFamily, field: Field): Bits {
  const { header, at, length } = placeOf(family, field);
  return partOf(tuple[header], at, length);
}

/** The sets of ipset, among the names of sets that a packet changes. */
export const IP_SETS = "ipset";

/** Why a packet has no direction of its own: it answers one that a rule rejected, or no connection can begin with it. */
type Answer = "reset" | "error" | "handshake";

/** A packet's state. Each branch has its own copy. */
export class PacketState implements Tuple {
  readonly family: IpFamily;
  readonly protocol: Transport | "icmp";
  readonly direction: Direction;
  mark: Bits = hostNumber(0);
  /** Bits of the mark that our rules have set, which ask our last rules to masquerade the packet. */
  ownMark = 0;
  /** The rule of another program that cleared one of these bits. */
  markClearedBy: EndedBy | undefined = undefined;
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

  constructor(facts: PacketFacts, direction: Direction = "original") {
    this.family = facts.family;
    this.protocol = facts.protocol;
    this.direction = direction;
    this.network = networkHeader(facts);
    this.transport = transportHeader(facts, direction);
    for (const field of FIELDS) this.setValue(field, facts[field]);
    this.tuple = this.headers;
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
    return keyOf(Object.values(this));
  }

  get headers(): Tuple {
    return { network: this.network, transport: this.transport };
  }

  get(field: Field): Bits {
    return fieldOf(this, this.family, field);
  }

  set(field: Field, bits: Bits): void {
    const { header, at } = placeOf(this.family, field);
    this[header] = withPart(this[header], at, bits);
  }

  /** @param value an address or a port. undefined: unknown. */
  setValue(field: Field, value: string | number | undefined): void {
    const bytes = typeof value === "number" ? portBytes(value) : value && bytesOf(value);
    this.set(field, bytes ? exactly(bytes) : unknownBits(placeOf(this.family, field).length));
  }

  /** Canonical. Undefined if unknown. */
  get source(): string | undefined {
    return addressIn(this.get("source"));
  }

  get destination(): string | undefined {
    return addressIn(this.get("destination"));
  }

  get destinationPort(): number | undefined {
    const port = this.get("destinationPort");
    return isKnown(port) ? port.bytes[0] * 256 + port.bytes[1] : undefined;
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
    this.tuple = this.headers;
  }

  /** Translates a packet of a known connection back, as the kernel does at the hooks for destinations and for sources. */
  translateBack(ofDestination: boolean): void {
    if (this.tracking !== "tracked" || this.connection === undefined) return;
    const { original } = this.connection;
    // A reply goes to the source of the first packet, and comes from its destination.
    const [end, port] = ofDestination
      ? (["destination", "destinationPort"] as const)
      : (["source", "sourcePort"] as const);
    // The node chooses the source of an ICMP error, which has no ports.
    if (ofDestination || this.answers !== "error") this.set(end, fieldOf(original, this.family, OPPOSITE[end]));
    if (this.protocol !== "icmp") this.set(port, fieldOf(original, this.family, OPPOSITE[port]));
  }

  /** The answer to this packet from the place where it has arrived, or from the node whose rule rejects it. */
  answer(kind: "reply" | "reset" | "error"): PacketState {
    const { family, tracking, changedSets } = this;
    const isTracked = tracking === "tracked";
    const protocol = kind === "error" ? "icmp" : this.protocol;
    const answer = new PacketState({ family, protocol }, isTracked ? "reply" : "original");
    // The node chooses the source of an ICMP error.
    for (const field of kind === "error" ? (["destination"] as const) : FIELDS)
      answer.set(field, this.get(OPPOSITE[field]));
    if (protocol === "tcp")
      answer.transport = withFlags(answer.transport, (kind === "reply" ? TcpFlag.syn : TcpFlag.rst) | TcpFlag.ack);
    answer.changedSets = changedSets;
    if (kind !== "reply") answer.answers = kind;
    // Without an entry, the tracker cannot know what a handshake answers.
    else if (!isTracked && protocol !== "udp") answer.answers = "handshake";
    if (!isTracked) return answer;
    if (kind !== "reply") answer.tracking = "tracked";
    const { ctMark, ctLabels, translated, masqueraded, destinationChanged, sourceChanged } = this;
    const { destinationBound, sourceBound } = this;
    const connection = { original: this.connection?.original ?? this.tuple, reply: answer.headers };
    return Object.assign(answer, {
      ...{ ctMark, ctLabels, translated, masqueraded, destinationChanged, sourceChanged, connection },
      ...{ destinationBound, sourceBound },
    });
  }

  /** Whether the packet goes from one address and port to another address. */
  goes(from: { readonly address: string; readonly port: number }, to: string): Ternary {
    return all([
      equals(this.get("source"), bytesOf(from.address)),
      equals(this.get("destination"), bytesOf(to)),
      equals(this.get("sourcePort"), portBytes(from.port)),
    ]);
  }
}

/** Bits, sets of names, tuples and plain values as one text. */
function keyOf(value: unknown): string {
  if (typeof value !== "object" || value === null) return String(value);
  if (value instanceof Set) return [...(value as ReadonlySet<string>)].sort().join("\n");
  return "known" in value ? textOf(value as Bits) : Object.values(value).map(keyOf).join("\n");
}

function addressIn(bits: Bits): string | undefined {
  return isKnown(bits) ? formatAddress(bits.bytes) : undefined;
}

/** Returns an address in network order. Throws a RangeError if the text is not an address. */
export function bytesOf(text: string): Uint8Array {
  const bytes = new Uint8Array(16);
  const length = packAddress(text, bytes, 0);
  if (length === 0) throw new RangeError(`not an address: ${text}`);
  return bytes.slice(0, length);
}

/** A client's port: 32768 or higher, where the kernel's own choices begin (net.ipv4.ip_local_port_range). */
export const CLIENT_PORT: Bits = { bytes: Uint8Array.of(0x80, 0), known: Uint8Array.of(0x80, 0) };

export function portBytes(port: number): Uint8Array {
  return Uint8Array.of(port >>> 8, port & 0xff);
}

/** Fields of the IP header at their offsets (RFC 791, RFC 8200), without addresses. The packet is not a fragment. */
function networkHeader(facts: PacketFacts): Bits {
  const isIp4 = facts.family === "ip";
  const { bytes, known } = unknownBits(isIp4 ? 20 : 40);
  const put = (at: number, byte: number, isKnown = 0xff): void => void ([bytes[at], known[at]] = [byte, isKnown]);
  put(0, isIp4 ? 0x40 : 0x60, 0xf0);
  put(isIp4 ? 9 : 6, protocolNumberOf(facts));
  if (!isIp4) return { bytes, known };
  // The sender chooses the flag "don't fragment".
  put(6, 0, 0xbf);
  put(7, 0);
  return { bytes, known };
}

export function protocolNumberOf({ family, protocol }: Pick<PacketFacts, "family" | "protocol">): number {
  return IpProto[protocol === "icmp" && family === "ip6" ? "icmpv6" : protocol];
}

const HEADER_LENGTH = { tcp: 20, udp: 8, sctp: 12, icmp: 8 } as const;
/** The sender chooses the ECN flags of a SYN or SYN ACK. */
const ECN = TcpFlag.ecn | TcpFlag.cwr;

/** For TCP the flags: the first packet is a SYN, its answer a SYN ACK. */
function transportHeader({ protocol }: PacketFacts, direction: Direction): Bits {
  const header = unknownBits(HEADER_LENGTH[protocol]);
  return protocol === "tcp" ? withFlags(header, TcpFlag.syn | (direction === "reply" ? TcpFlag.ack : 0)) : header;
}

function withFlags(header: Bits, flags: number): Bits {
  return withPart(header, 13, { bytes: Uint8Array.of(flags), known: Uint8Array.of(~ECN & 0xff) });
}
