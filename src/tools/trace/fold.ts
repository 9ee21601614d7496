/** Trace messages put together to packets: what came in, what became of it, and who decided so. Pure; times are the caller's. */
import { TraceType } from "../../netlink/constants.js";
import type { TableRef, TraceEvent } from "../../netlink/kernel.js";
import { TraceChain } from "./filter.js";
import { readHeaders, readIdentity, sameTuple, type TraceHeaders } from "./headers.js";

/**
 * accepted: it left this node; delivered: to a socket of this node; dropped: by a rule or a policy (a reject is one, too: its rule
 * tells); queued: to a program, and no hook saw it behind that; vanished: accepted by every rule so far, and seen by no hook behind;
 * unknown: messages about it are missing.
 */
export type TraceEnd = "accepted" | "delivered" | "dropped" | "queued" | "vanished" | "unknown";

export interface FoldedPacket {
  /** Counts packets from 0, in the order in which they were first seen. */
  readonly number: number;
  /** When it was first seen. */
  readonly at: number;
  /** As it came in, and as it was last seen. */
  readonly original: TraceHeaders;
  readonly last: TraceHeaders;
  /** Index of the interface that it came in by; undefined: this node sent it. */
  readonly iif: number | undefined;
  /** Index of the interface that it left by. */
  readonly oif: number | undefined;
  readonly end: TraceEnd;
  /** What dropped or queued it; else the last that saw it. */
  readonly event: TraceEvent;
  /** Base chain of that event's evaluation. */
  readonly base: TraceEvent;
  /** Conntrack entry (CTA_ID), Linux 6.16. */
  readonly ctId: number | undefined;
  /** Rules of other tables that matched, and ends of their chains. */
  readonly events: readonly TraceEvent[];
}

/** A packet under way. */
type OpenPacket = { -readonly [K in keyof Omit<FoldedPacket, "end" | "events">]: FoldedPacket[K] } & {
  seenAt: number;
  queued: boolean;
  /** It left by the loopback interface, and comes in again with another id. */
  looping: boolean;
  /** Tells it from other packets, whatever has been translated. */
  readonly identity: string;
  readonly events: TraceEvent[];
};

export interface FoldOptions {
  /** The table that marks. */
  readonly table: TableRef;
  /** Index of the loopback interface. */
  readonly loopback: number | undefined;
  /** Called once for each packet, when its fate is known: not in the order of their numbers. */
  onPacket(packet: FoldedPacket): void;
  /** A reply that refuses a connection was seen. */
  onRefusal(event: TraceEvent): void;
}

/** Nothing of a packet for so long, and it comes no more: hooks follow each other within microseconds. */
export const QUIET_MS = 1000;
/** Behind a loss, packets may lack messages for as long. */
const DOUBT_MS = 5000;
/** A packet's way is some forty messages; one that is traced by another program, too, and never ends, has no more kept. */
const MOST_EVENTS = 256;

export class TraceFold {
  readonly #options: FoldOptions;
  readonly #open = new Map<number, OpenPacket>();
  #lostAt = -Infinity;
  #numbered = 0;

  constructor(options: FoldOptions) {
    this.#options = options;
  }

  /** Packets under way. */
  get open(): number {
    return this.#open.size;
  }

  add(event: TraceEvent, now: number): void {
    if (event.chain === TraceChain.refusals && this.#isOwn(event)) return this.#options.onRefusal(event);
    const packet = this.#packetOf(event, now);
    if (packet === undefined) return;
    packet.seenAt = now;
    packet.event = event;
    packet.ctId ??= event.ctId;
    const headers = event.network === undefined ? undefined : readHeaders(event.network, event.transport);
    if (headers !== undefined) {
      packet.last = headers;
      packet.base = event;
      packet.oif = event.oif;
      packet.queued = false;
    }
    if (!this.#isOwn(event) && packet.events.length < MOST_EVENTS) packet.events.push(event);
    this.#judge(event, packet);
  }

  /** Messages were lost, a moment ago or a moment from now: packets that seem to vanish may not have. */
  lost(now: number): void {
    this.#lostAt = now;
  }

  /** Ends packets of which nothing was heard for a while. */
  settle(now: number): void {
    for (const [id, packet] of this.#open) {
      if (now - packet.seenAt < QUIET_MS) continue;
      const doubtful = packet.seenAt > this.#lostAt - QUIET_MS && packet.at < this.#lostAt + DOUBT_MS;
      if (packet.looping) this.#end(id, "accepted");
      else if (packet.queued) this.#end(id, "queued");
      else this.#end(id, doubtful ? "unknown" : "vanished");
    }
  }

  /** Nothing comes any more: what is under way ends as it is known. */
  finish(): void {
    for (const [id, packet] of this.#open) this.#end(id, packet.looping ? "accepted" : "unknown");
  }

  #isOwn({ family, table }: TraceEvent): boolean {
    const own = this.#options.table;
    return family === own.family && table === own.table;
  }

  #packetOf(event: TraceEvent, now: number): OpenPacket | undefined {
    const known = this.#open.get(event.id);
    if (event.network === undefined) return known;
    if (!this.#isOwn(event)) return known ?? this.#bridged(event);
    // Only our rules lead to the chain that marks: another program's traces pass our other chains, too.
    const marked = event.chain === TraceChain.traced || event.verdict?.chain === TraceChain.traced;
    if (known !== undefined && !marked) return known;
    const headers = readHeaders(event.network, event.transport);
    if (headers === undefined) return known;
    const looped = this.#looped(event, headers);
    if (looped !== undefined) return looped;
    if (!marked) return this.#bridged(event);
    // The kernel uses ids again.
    if (known !== undefined) this.#end(event.id, known.looping ? "accepted" : "unknown");
    const packet: OpenPacket = {
      number: this.#numbered++,
      at: now,
      original: headers,
      last: headers,
      iif: event.iif,
      oif: undefined,
      event,
      base: event,
      ctId: undefined,
      events: [],
      seenAt: now,
      queued: false,
      looping: false,
      identity: readIdentity(headers, event),
    };
    this.#open.set(event.id, packet);
    return packet;
  }

  /** The packet that left by the loopback interface, and is this one. */
  #looped({ id, iif }: TraceEvent, headers: TraceHeaders): OpenPacket | undefined {
    if (iif === undefined || iif !== this.#options.loopback) return undefined;
    for (const [before, packet] of this.#open) {
      const { looping, last } = packet;
      if (!looping || last.protocol !== headers.protocol || !sameTuple(last, headers)) continue;
      this.#open.delete(before);
      this.#open.set(id, packet);
      packet.looping = false;
      return packet;
    }
    return undefined;
  }

  /**
   * The open packet that came in by a bridge, and is this one. With br_netfilter the bridge's port is what the id is made of at
   * prerouting, and the bridge itself at later hooks, so the id changes.
   */
  #bridged(event: TraceEvent): OpenPacket | undefined {
    const { id, iif, network, transport } = event;
    if (iif === undefined || network === undefined) return undefined;
    const headers = readHeaders(network, transport);
    if (headers === undefined) return undefined;
    const identity = readIdentity(headers, event);
    for (const [before, packet] of this.#open) {
      if (packet.iif !== iif || packet.identity !== identity) continue;
      this.#open.delete(before);
      this.#open.set(id, packet);
      return packet;
    }
    return undefined;
  }

  #judge(event: TraceEvent, packet: OpenPacket): void {
    const { type, verdict, policy, network, chain, oif } = event;
    if (type === TraceType.policy ? policy === 0 : verdict?.verdict === "drop") return this.#end(event.id, "dropped");
    if (verdict?.verdict === "queue") packet.queued = true;
    if (network === undefined || !this.#isOwn(event)) return;
    if (chain === TraceChain.inputLast) this.#end(event.id, "delivered");
    if (chain !== TraceChain.postroutingLast) return;
    if (oif !== undefined && oif === this.#options.loopback) packet.looping = true;
    else this.#end(event.id, "accepted");
  }

  #end(id: number, end: TraceEnd): void {
    const packet = this.#open.get(id);
    if (packet === undefined) return;
    this.#open.delete(id);
    const { number, at, original, last, iif, oif, event, base, ctId, events } = packet;
    this.#options.onPacket({ number, at, original, last, iif, oif, end, event, base, ctId, events });
  }
}
