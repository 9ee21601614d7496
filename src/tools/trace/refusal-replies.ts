/** Recognizes replies that refuse a connection: a TCP reset, or an ICMP error. Pure; the caller provides times. */
import { IpProto } from "../../base/protocols.js";
import type { TraceEvent } from "../../nft/kernel/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import type { FoldedPacket } from "./trace-fold.js";
import { readHeaders, readIpHeader, reversed, sameTuple, type TraceHeaders } from "./trace-headers.js";

/** Codes of "destination unreachable" (RFC 792, RFC 1122; RFC 4443). */
const CODES: Readonly<Record<IpFamily, Readonly<Partial<Record<number, string>>>>> = {
  ip: {
    0: "network unreachable",
    1: "host unreachable",
    2: "protocol unreachable",
    3: "port unreachable",
    9: "network prohibited",
    10: "host prohibited",
    13: "administratively prohibited",
  },
  ip6: {
    0: "no route",
    1: "administratively prohibited",
    3: "address unreachable",
    4: "port unreachable",
    5: "source address rejected",
    6: "route rejected",
  },
};

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

/** Remembers recent refusals. */
export class RefusalReplies {
  readonly #seen: Refusal[] = [];

  add(event: TraceEvent, now: number): void {
    const kind = kindOf(event);
    if (kind === undefined) return;
    while (this.#seen.length >= MOST_KEPT || now - (this.#seen[0]?.at ?? now) > KEPT_MS) this.#seen.shift();
    this.#seen.push({ at: now, kind, ctId: event.ctId, headers: readHeaders(event) });
  }

  /** Returns how the packet was refused, or undefined if no refusal of it was seen. Its headers are those that the other side saw. */
  of({ last, ctId }: Pick<FoldedPacket, "last" | "ctId">): string | undefined {
    return this.#seen.findLast(({ headers, ...refusal }) =>
      ctId !== undefined && refusal.ctId !== undefined
        ? refusal.ctId === ctId
        : headers?.protocol === last.protocol && sameTuple(reversed(headers), last),
    )?.kind;
  }
}

/** Returns undefined for a packet that is no refusal, such as an ICMP message that a packet was too big. */
function kindOf(event: TraceEvent): string | undefined {
  const { family = "ip", protocol } = readIpHeader(event) ?? {};
  if (protocol === IpProto.tcp) return "TCP reset";
  const name = CODES[family][event.transport?.[1] ?? -1];
  return name === undefined ? undefined : `ICMP ${name}`;
}
