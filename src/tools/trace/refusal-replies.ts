/** Recognizes replies that refuse a connection: a TCP reset, or an ICMP error. Pure; the caller provides times. */
import { IpProto } from "../../base/protocols.js";
import type { TraceEvent } from "../../netlink/kernel.js";
import { readHeaders, type TraceHeaders } from "./trace-headers.js";

/** Offset of the protocol in an IP header: IPv4, IPv6. */
const PROTOCOL_AT = { 4: 9, 6: 6 } as const;

/** Codes of "destination unreachable" (RFC 792, RFC 1122; RFC 4443). */
const ICMP_CODES: ReadonlyMap<number, string> = new Map([
  [0, "network unreachable"],
  [1, "host unreachable"],
  [2, "protocol unreachable"],
  [3, "port unreachable"],
  [9, "network prohibited"],
  [10, "host prohibited"],
  [13, "administratively prohibited"],
]);
const ICMPV6_CODES: ReadonlyMap<number, string> = new Map([
  [0, "no route"],
  [1, "administratively prohibited"],
  [3, "address unreachable"],
  [4, "port unreachable"],
  [5, "source address rejected"],
  [6, "route rejected"],
]);

/** A packet's fate is known within a second, and refusals of it are asked for up to a second later. */
const KEPT_MS = 5000;
/** More than the kernel can trace in that time. */
const MOST_KEPT = 512;

interface Refusal {
  readonly at: number;
  /** "TCP reset", "ICMP port unreachable". */
  readonly kind: string;
  /** Conntrack entry (CTA_ID), Linux 6.16. */
  readonly ctId: number | undefined;
  /** Header of the reset. An ICMP error does not have the connection's ports where the kernel shows headers. */
  readonly headers: TraceHeaders | undefined;
}

/**
 * Identifies a packet that may have been refused: its headers as the other side saw them, and its conntrack entry if
 * known.
 */
interface Refusable {
  readonly last: TraceHeaders;
  readonly ctId: number | undefined;
}

/** Remembers recent refusals. */
export class RefusalReplies {
  readonly #seen: Refusal[] = [];

  add(event: TraceEvent, now: number): void {
    if (event.network === undefined) return;
    const kind = kindOf(event.network, event.transport);
    if (kind === undefined) return;
    const headers = readHeaders(event.network, event.transport);
    while (this.#seen.length >= MOST_KEPT || now - (this.#seen[0]?.at ?? now) > KEPT_MS) this.#seen.shift();
    this.#seen.push({ at: now, kind, ctId: event.ctId, headers });
  }

  /** Returns how the packet was refused, or undefined if no refusal of it was seen. */
  of({ last, ctId }: Refusable): string | undefined {
    return this.#seen.findLast((refusal) =>
      ctId !== undefined && refusal.ctId !== undefined ? refusal.ctId === ctId : answers(refusal.headers, last),
    )?.kind;
  }
}

/** Whether the reply's header is the reverse of the packet's. */
function answers(reply: TraceHeaders | undefined, packet: TraceHeaders): boolean {
  return (
    reply !== undefined &&
    reply.protocol === packet.protocol &&
    reply.source === packet.destination &&
    reply.sourcePort === packet.destinationPort &&
    reply.destination === packet.source &&
    reply.destinationPort === packet.sourcePort
  );
}

/** Returns undefined for a packet that is no refusal, such as an ICMP message that a packet was too big. */
function kindOf(network: Uint8Array, transport: Uint8Array | undefined): string | undefined {
  const version = (network[0] ?? 0) >>> 4 === 6 ? 6 : 4;
  const protocol = network[PROTOCOL_AT[version]];
  if (protocol === IpProto.tcp) return "TCP reset";
  const code = transport?.[1];
  if (code === undefined) return undefined;
  const name = (version === 6 ? ICMPV6_CODES : ICMP_CODES).get(code);
  return name === undefined ? undefined : `ICMP ${name}`;
}
