/**
 * Assembles trace messages into packets: the original packet, its fate, and the rule that decided. Pure; the caller
 * provides times.
 */
import { TraceType } from "../../nft/kernel/constants.js";
import type { TableRef, TraceEvent } from "../../nft/kernel/kernel.js";
import type { TracedVerdict } from "./traced-packet.js";
import { TraceChain } from "./trace-filter.js";
import {
  type PacketFacts,
  readFacts,
  readHeaders,
  readIdentity,
  sameTuple,
  type TraceHeaders,
} from "./trace-headers.js";

/** "dropped" includes rejects; the rule tells them apart. "queued": no later hook saw it. */
type TraceEnd = Exclude<TracedVerdict, "rejected">;

export interface FoldedPacket {
  /** Packets are numbered from 0, in the order in which they were first seen. */
  readonly number: number;
  /** Time at which it was first seen. */
  readonly at: number;
  /** Headers as it came in (`original`), and as it was last seen (`last`). */
  readonly original: TraceHeaders;
  readonly last: TraceHeaders;
  readonly facts: PacketFacts;
  /** It is of the reply direction. */
  readonly isReply: boolean;
  /** Index of the incoming interface. Undefined if this node sent it. */
  readonly iif: number | undefined;
  /** Index of the outgoing interface. */
  readonly oif: number | undefined;
  readonly end: TraceEnd;
  /** The event that dropped or queued it, or else the last one. */
  readonly event: TraceEvent;
  /** The event's evaluation of the base chain. */
  readonly base: TraceEvent;
  /** Conntrack entry (CTA_ID), Linux 6.16. */
  readonly ctId: number | undefined;
}

/** A packet in flight. */
type OpenPacket = { -readonly [K in keyof Omit<FoldedPacket, "end">]: FoldedPacket[K] } & {
  seenAt: number;
  queued: boolean;
  /** It left through the loopback interface, and will come in again with another id. */
  looping: boolean;
  /** Distinguishes it from other packets, and does not change with translation. */
  readonly identity: string;
};

interface FoldOptions {
  /** The table with the marking rules. */
  readonly table: TableRef;
  /** Index of the loopback interface. */
  readonly loopback: number | undefined;
  /** Called once per packet when its fate is known, and so not in the order of numbers. */
  onPacket(packet: FoldedPacket): void;
  /** A reply that refuses a connection was seen. */
  onRefusal(event: TraceEvent): void;
}

/** A packet is complete after this long without a message, because hooks follow each other within microseconds. */
export const QUIET_MS = 1000;
/** After a loss, packets may lack messages for this long. */
const DOUBT_MS = 5000;

export class TraceFold {
  readonly #open = new Map<number, OpenPacket>();
  #lostAt = -Infinity;
  #numbered = 0;

  constructor(private readonly options: FoldOptions) {}

  add(event: TraceEvent, now: number): void {
    // If another program already traces the packet, only the rule that leads to the chain shows the headers.
    const isRefusal = event.chain === TraceChain.refusals || event.verdict?.chain === TraceChain.refusals;
    if (isRefusal && this.#isOwn(event)) return this.options.onRefusal(event);
    const packet = this.#packetOf(event, now);
    if (packet === undefined) return;
    packet.seenAt = now;
    packet.event = event;
    packet.ctId ??= event.ctId;
    const headers = readHeaders(event);
    if (headers !== undefined) {
      packet.last = headers;
      packet.base = event;
      packet.oif = event.oif;
      packet.queued = false;
    }
    this.#judge(event, packet);
  }

  /** Messages were lost around now, so packets that seem to vanish may not have. */
  lost(now: number): void {
    this.#lostAt = now;
  }

  /** Ends packets without recent messages. */
  settle(now: number): void {
    for (const [id, packet] of this.#open) {
      if (now - packet.seenAt < QUIET_MS) continue;
      const doubtful = packet.seenAt > this.#lostAt - QUIET_MS && packet.at < this.#lostAt + DOUBT_MS;
      if (packet.looping) this.#end(id, "accepted");
      else if (packet.queued) this.#end(id, "queued");
      else this.#end(id, doubtful ? "unknown" : "vanished");
    }
  }

  /** Call it after the last message. Reports the packets in flight, with the facts known by then. */
  finish(): void {
    for (const [id, packet] of this.#open) this.#end(id, packet.looping ? "accepted" : "unknown");
  }

  #isOwn({ family, table }: TraceEvent): boolean {
    const own = this.options.table;
    return family === own.family && table === own.table;
  }

  #packetOf(event: TraceEvent, now: number): OpenPacket | undefined {
    const known = this.#open.get(event.id);
    if (event.network === undefined) return known;
    if (!this.#isOwn(event)) return known ?? this.#bridged(event);
    // Only our rules lead to the marking chain. Packets that another program traces also pass our other chains.
    const isIn = (chain: string): boolean => event.chain === chain || event.verdict?.chain === chain;
    const isReply = isIn(TraceChain.replies);
    const marked = isReply || isIn(TraceChain.traced);
    if (known !== undefined && !marked) return known;
    const headers = readHeaders(event);
    if (headers === undefined) return known;
    const looped = this.#looped(event, headers);
    if (looped !== undefined) return looped;
    if (!marked) return this.#bridged(event);
    // The kernel reuses ids.
    if (known !== undefined) this.#end(event.id, known.looping ? "accepted" : "unknown");
    const packet: OpenPacket = {
      ...{ number: this.#numbered++, at: now, seenAt: now, isReply, queued: false, looping: false },
      ...{ original: headers, last: headers, facts: readFacts(headers, event), identity: readIdentity(headers, event) },
      ...{ event, base: event, iif: event.iif, oif: undefined, ctId: undefined },
    };
    this.#open.set(event.id, packet);
    return packet;
  }

  /** Finds the packet that left through the loopback interface and is this one. */
  #looped({ id, iif }: TraceEvent, headers: TraceHeaders): OpenPacket | undefined {
    if (iif === undefined || iif !== this.options.loopback) return undefined;
    const packet = this.#moved(id, ({ looping, last }) => {
      return looping && last.protocol === headers.protocol && sameTuple(last, headers);
    });
    if (packet !== undefined) packet.looping = false;
    return packet;
  }

  /**
   * Finds the open packet that came in through a bridge and is this one. With br_netfilter, the id is derived from the
   * bridge's port at prerouting, and from the bridge itself at later hooks, so it changes.
   */
  #bridged(event: TraceEvent): OpenPacket | undefined {
    const { id, iif } = event;
    const headers = readHeaders(event);
    if (iif === undefined || headers === undefined) return undefined;
    const identity = readIdentity(headers, event);
    return this.#moved(id, (packet) => packet.iif === iif && packet.identity === identity);
  }

  /** Finds an open packet, and gives it a new id. */
  #moved(id: number, isIt: (packet: OpenPacket) => boolean): OpenPacket | undefined {
    for (const [before, packet] of this.#open) {
      if (!isIt(packet)) continue;
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
    if (oif !== undefined && oif === this.options.loopback) packet.looping = true;
    else this.#end(event.id, "accepted");
  }

  #end(id: number, end: TraceEnd): void {
    const packet = this.#open.get(id);
    if (packet === undefined) return;
    this.#open.delete(id);
    this.options.onPacket({ ...packet, end });
  }
}
