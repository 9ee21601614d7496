/** Recognizes what hints at packets that are too long for a part of their way. Pure. */
import type { TraceEvent } from "../../netlink/kernel.js";
import { formatAddress } from "../../base/ip.js";
import { IpProto } from "../../base/protocols.js";
import type { TracedPacket } from "./traced-packet.js";

/** A segment that is sent so often without an acknowledgement is a hint. */
const SENT = 3;
/** Maximum number of connections, and of segments of one, to remember. */
const MOST_KEPT = 1000;

/** Times and longest packet of each segment that one side has sent and that is not acknowledged, by its sequence number. */
type Unacknowledged = Map<number, { times: number; length: number }>;

/** Follows the segments of TCP connections. */
export class SegmentHints {
  readonly #connections = new Map<string, Record<"original" | "reply", Unacknowledged>>();

  /** Returns a hint when a segment has just been sent for the third time without an acknowledgement. */
  of({ packet, direction = "original", length = 0, tcp }: TracedPacket): string | undefined {
    if (tcp === undefined) return undefined;
    const key = JSON.stringify(packet);
    const sides = this.#connections.get(key) ?? { original: new Map(), reply: new Map() };
    this.#connections.set(key, sides);
    const [oldest = ""] = this.#connections.keys();
    if (this.#connections.size > MOST_KEPT) this.#connections.delete(oldest);
    const other = sides[direction === "reply" ? "original" : "reply"];
    // Sequence numbers wrap.
    for (const sequence of other.keys()) if ((tcp.acknowledgement - sequence) >> 0 > 0) other.delete(sequence);
    const unacknowledged = sides[direction];
    if (tcp.payload === 0 || unacknowledged.size >= MOST_KEPT) return undefined;
    const segment = unacknowledged.get(tcp.sequence) ?? { times: 0, length: 0 };
    segment.times++;
    segment.length = Math.max(segment.length, length);
    unacknowledged.set(tcp.sequence, segment);
    if (segment.times !== SENT) return undefined;
    const [from, to] = direction === "reply" ? ["endpoint", "client"] : ["client", "endpoint"];
    return (
      `the ${from} has sent the same segment three times (sequence ${tcp.sequence}, ${segment.length} bytes), and no acknowledgement was seen. ` +
      `If shorter packets pass, an MTU on the way to the ${to} is smaller`
    );
  }
}

/** Types of the messages: "destination unreachable", of which code 4 is "fragmentation needed" (RFC 1191), and "packet too big" (RFC 4443). */
const TOO_BIG = {
  4: { type: 3, code: 4, name: "fragmentation needed" },
  6: { type: 2, code: 0, name: "packet too big" },
} as const;

export interface TooBig {
  readonly source: string;
  /** The sender of the packet that was too long. */
  readonly destination: string;
  readonly text: string;
}

/** Returns undefined for another message. */
export function tooBigOf({
  network = new Uint8Array(),
  transport = new Uint8Array(),
  iif,
}: TraceEvent): TooBig | undefined {
  const version = network[0] >>> 4 === 6 ? 6 : 4;
  const [at, length, protocol, mtuAt] = version === 6 ? [8, 16, network[6], 4] : [12, 4, network[9], 6];
  const { type, code, name } = TOO_BIG[version];
  const isICMP = protocol === (version === 6 ? IpProto.icmpv6 : IpProto.icmp);
  if (!isICMP || transport[0] !== type || transport[1] !== code || transport.length < 8) return undefined;
  const [source, destination] = [at, at + length].map((from) => formatAddress(network.subarray(from, from + length)));
  const bytes = new DataView(transport.buffer, transport.byteOffset);
  const mtu = version === 6 ? bytes.getUint32(mtuAt) : bytes.getUint16(mtuAt);
  const sender = iif === undefined ? "this node" : source;
  return {
    source,
    destination,
    text: `ICMP "${name}" from ${sender} to ${destination}: the next link takes ${mtu} bytes`,
  };
}
