/** Recognizes what hints at packets that are too long for a part of their way. Pure. */
import type { TraceEvent } from "../../nft/kernel/kernel.js";
import { IpProto } from "../../base/protocols.js";
import { readIpHeader } from "./trace-headers.js";
import type { TracedPacket } from "./traced-packet.js";

/** A segment that is sent so often without an acknowledgement is a hint. */
const SENT = 3;
/** Maximum number of directions of connections, and of segments of one, to remember. */
const MOST_KEPT = 1000;

/** Follows the segments of TCP connections. */
export class SegmentHints {
  /** Times and shortest packet of each segment that is not acknowledged, by its sequence number, by connection and direction. */
  readonly #sent = new Map<string, Map<number, { times: number; length: number }>>();

  /** Returns a hint when a segment has just been sent for the third time without an acknowledgement. */
  of({ packet, direction = "original", length = 0, tcp }: TracedPacket): string | undefined {
    if (tcp === undefined) return undefined;
    const [from, to] = direction === "reply" ? ["endpoint", "client"] : ["client", "endpoint"];
    const keyOf = (side: string): string => JSON.stringify([packet, side]);
    const others = this.#sent.get(keyOf(to)) ?? new Map<number, never>();
    // Sequence numbers wrap.
    for (const sequence of others.keys()) if ((tcp.acknowledgement - sequence) >> 0 > 0) others.delete(sequence);
    const unacknowledged = this.#sent.get(keyOf(from)) ?? new Map<number, { times: number; length: number }>();
    if (tcp.payload === 0 || unacknowledged.size >= MOST_KEPT) return undefined;
    this.#sent.set(keyOf(from), unacknowledged);
    const [oldest = ""] = this.#sent.keys();
    if (this.#sent.size > MOST_KEPT) this.#sent.delete(oldest);
    const segment = unacknowledged.get(tcp.sequence) ?? { times: 0, length };
    segment.times++;
    // The first packet may be one of several that the kernel has merged.
    segment.length = Math.min(segment.length, length);
    unacknowledged.set(tcp.sequence, segment);
    if (segment.times !== SENT) return undefined;
    return (
      `the ${from} has sent the same segment three times (sequence ${tcp.sequence}, ${segment.length} bytes), and no acknowledgement was seen. ` +
      `If shorter packets pass, an MTU on the way to the ${to} is smaller`
    );
  }
}

/** The messages: "destination unreachable", of which code 4 is "fragmentation needed" (RFC 1191), and "packet too big" (RFC 4443). */
const TOO_BIG = {
  ip: { protocol: IpProto.icmp, type: 3, code: 4, name: "fragmentation needed" },
  ip6: { protocol: IpProto.icmpv6, type: 2, code: 0, name: "packet too big" },
} as const;

/** Returns the sender of the packet that was too long, and a hint. Returns undefined for another message. */
export function tooBigOf(event: TraceEvent): { readonly destination: string; readonly text: string } | undefined {
  const { transport = new Uint8Array(), iif } = event;
  const header = readIpHeader(event);
  if (header === undefined || transport.length < 8) return undefined;
  const { family, source, destination } = header;
  const { protocol, type, code, name } = TOO_BIG[family];
  if (header.protocol !== protocol || transport[0] !== type || transport[1] !== code) return undefined;
  const bytes = new DataView(transport.buffer, transport.byteOffset);
  const mtu = family === "ip6" ? bytes.getUint32(4) : bytes.getUint16(6);
  const from = iif === undefined ? "this node" : source;
  return { destination, text: `ICMP "${name}" from ${from} to ${destination}: the next link takes ${mtu} bytes` };
}
