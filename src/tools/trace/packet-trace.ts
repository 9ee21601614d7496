/**
 * Traces live packets: our own table marks those that match a filter, and the kernel reports what rules do with them.
 * Our netlink socket owns the table (NFT_TABLE_F_OWNER), so the table disappears with the socket, however this process
 * ends.
 */
import { UserError } from "../../base/user-error.js";
import { release } from "node:os";
import type { ConntrackTable } from "../../nft/conntrack/conntrack-table.js";
import { AddressType } from "../../nft/kernel/constants.js";
import { KernelError } from "../../nft/kernel/errors.js";
import type { NetworkInterfaces } from "../../nft/kernel/network-interfaces.js";
import type { NftKernel } from "../../nft/kernel/nft-kernel.js";
import type { Monitor, TableRef, TraceEvent } from "../../nft/kernel/kernel.js";
import type { NetlinkExchange } from "../../nft/kernel/netlink-message.js";
import { RouteTable } from "../../netlink/route-table.js";
import { markingChains, type TraceFilter, traceOps, traceTable } from "./trace-filter.js";
import { type FoldedPacket, TraceFold } from "./trace-fold.js";
import { reversed, sameTuple, type TraceTuple } from "./trace-headers.js";
import { RefusalReplies } from "./refusal-replies.js";
import { SegmentHints, tooBigOf } from "./trace-hints.js";
import { awaitReply } from "./replies.js";
import type { TracedPacket, TraceTotals } from "./traced-packet.js";
import { verdictOf } from "./verdicts.js";

interface TraceHandlers {
  /** Called in the order in which the packets were first seen. */
  onPacket(packet: TracedPacket): void;
  /** The kernel dropped messages. Packets around this time may be missing, or reported as unknown. */
  onLost(): void;
  /** Something hints at the cause of lost packets. Only with `allPackets`. */
  onHint?(text: string): void;
  /** Reporting has stopped. No packet is reported afterwards. */
  onError(error: Error): void;
}

/** The part of nf_tables that a trace needs. */
export type TraceKernel = Pick<NftKernel, "portId" | "commit" | "chains" | "rules" | "trace"> & {
  readonly interfaces: Pick<NetworkInterfaces, "names">;
  /** Absent: routes are unknown. */
  readonly connection?: NetlinkExchange;
};

/** Maximum number of addresses and pairs of them to remember. */
const MOST_ADDRESSES = 5000;

/** The kernel cannot remove the table with its owner. Nothing was written. */
export class NoOwnedTables extends UserError {
  override readonly name = "NoOwnedTables";
}

const SETTLE_MS = 100;

export class PacketTrace {
  readonly #table: TableRef;
  readonly #ended = new AbortController();
  readonly #telling = new Set<Promise<void>>();
  readonly #names: Map<number, string>;
  readonly #fold: TraceFold;
  readonly #refusals = new RefusalReplies();
  /** Packets whose fate is known, by number. They wait for those with lower numbers. Undefined if it could not be read. */
  readonly #early = new Map<number, TracedPacket | undefined>();
  #next = 0;
  readonly #segments = new SegmentHints();
  /** Addresses of the traced packets, and pairs of them whose routes were compared. */
  readonly #addresses = new Set<string>();
  readonly #told = new Set<string>();
  #monitor: Monitor | undefined;
  #timer: NodeJS.Timeout | undefined;
  #losses = 0;

  private constructor(
    private readonly kernel: TraceKernel,
    private readonly conntrack: Pick<ConntrackTable, "lookup">,
    names: ReadonlyMap<number, string>,
    private readonly handlers: TraceHandlers,
    private readonly allPackets: boolean,
  ) {
    this.#table = traceTable(kernel.portId);
    this.#names = new Map(names);
    this.#fold = new TraceFold({
      table: this.#table,
      loopback: [...names].find(([, name]) => name === "lo")?.[0],
      onPacket: (packet) => this.#settled(packet),
      onRefusal: (event) => this.#refused(event),
    });
  }

  /**
   * Packets are reported from the moment that the promise resolves. Closes neither socket; the table disappears with
   * `stop`, or with the kernel's socket. Rejects with NoOwnedTables before Linux 5.12, and with KernelError.
   */
  static async start(
    kernel: TraceKernel,
    conntrack: Pick<ConntrackTable, "lookup">,
    filter: TraceFilter,
    handlers: TraceHandlers,
  ): Promise<PacketTrace> {
    const trace = new PacketTrace(kernel, conntrack, await kernel.interfaces.names(), handlers, filter.allPackets);
    const monitor = await kernel.trace({
      onEvents: (events) => {
        const now = Date.now();
        for (const event of events) trace.#fold.add(event, now);
      },
      onLost: () => {
        trace.#losses++;
        trace.#fold.lost(Date.now());
        handlers.onLost();
      },
      onError: (error) => handlers.onError(error),
    });
    trace.#monitor = monitor;
    try {
      await kernel.commit(traceOps(trace.#table, filter));
    } catch (error) {
      await monitor.close();
      throw isFlagRefused(error) ? new NoOwnedTables(NO_OWNER) : error;
    }
    trace.#timer = setInterval(() => trace.#fold.settle(Date.now()), SETTLE_MS);
    return trace;
  }

  /** Removes the table, reports packets in flight with the known facts, and resolves when all are reported. */
  async stop(): Promise<TraceTotals> {
    clearInterval(this.#timer);
    const matched = await this.#matched();
    // Another program may have removed it by having our socket closed.
    await this.kernel.commit([{ op: "delete", kind: "table", ...this.#table }]).catch(ignoreAbsent);
    await this.#monitor?.close();
    this.#fold.finish();
    this.#ended.abort();
    await Promise.all(this.#telling);
    return { matched, losses: this.#losses };
  }

  /** Reads the counter before the limit. */
  async #matched(): Promise<number> {
    let matched = 0;
    for (const chain of markingChains(this.allPackets)) {
      const [first] = await this.kernel.rules(this.#table, chain).catch(() => []);
      matched += Number(first?.exprs.find((expr) => expr.type === "counter")?.packets ?? 0n);
    }
    return matched;
  }

  #settled(packet: FoldedPacket): void {
    if (this.#addresses.size > MOST_ADDRESSES) this.#addresses.clear();
    // An ICMP message about a packet may follow at once.
    for (const { source, destination } of [packet.original, packet.last]) this.#addresses.add(source).add(destination);
    const telling = this.#tell(packet)
      .catch((error: unknown) => {
        // If the sockets were closed meanwhile, the caller has ended the trace.
        if (!this.#ended.signal.aborted) this.handlers.onError(error as Error);
        return undefined;
      })
      .then((traced) => this.#put(packet.number, traced))
      .finally(() => this.#telling.delete(telling));
    this.#telling.add(telling);
  }

  /** Packets are numbered as they arrive, but their fates become known in another order. */
  #put(number: number, traced: TracedPacket | undefined): void {
    this.#early.set(number, traced);
    for (; this.#early.has(this.#next); this.#next++) {
      const next = this.#early.get(this.#next);
      this.#early.delete(this.#next);
      if (next === undefined) continue;
      this.handlers.onPacket(next);
      this.#hint(this.#segments.of(next));
    }
  }

  async #tell(packet: FoldedPacket): Promise<TracedPacket> {
    const { at, iif, oif, end, isReply } = packet;
    const { family, protocol, ...original } = packet.original;
    const last = reversed(reversed(packet.last));
    const arrived = end === "accepted" || end === "delivered";
    const judged = await verdictOf(packet, this.kernel);
    const isAnswerable = !isReply && (arrived || end === "unknown");
    const answer = isAnswerable
      ? await awaitReply(this.conntrack, this.#refusals, packet, this.#ended.signal)
      : undefined;
    // If the headers that would show the translation were lost, take it from the conntrack entry.
    const seen = end === "unknown" && answer?.entry !== undefined ? reversed(answer.entry.reply) : last;
    const [asked, translated] = isReply ? [reversed(last), reversed(original)] : [original, seen];
    if (this.allPackets) await this.#noteRoutes(asked.source, translated, end === "delivered");
    return {
      at,
      family,
      protocol,
      ...(this.allPackets && { direction: isReply ? "reply" : "original", ...packet.facts }),
      packet: asked,
      translated: sameTuple(asked, translated) ? undefined : translated,
      masqueraded: asked.source !== translated.source || asked.sourcePort !== translated.sourcePort,
      in: await this.#interface(iif),
      out: end === "accepted" ? await this.#interface(oif) : undefined,
      ...judged,
      ...(arrived && { reply: answer?.reply, refusal: answer?.refusal }),
    };
  }

  #refused(event: TraceEvent): void {
    const tooBig = tooBigOf(event);
    if (tooBig === undefined) this.#refusals.add(event, Date.now());
    else if (this.#addresses.has(tooBig.destination)) this.#hint(tooBig.text);
  }

  /** Each hint is given once. */
  #hint(text: string | undefined): void {
    if (!this.allPackets || text === undefined || this.#told.has(text)) return;
    this.#told.add(text);
    this.handlers.onHint?.(text);
  }

  /** Compares the routes to both sides of a connection. A side that is a program of this node has none. */
  async #noteRoutes(client: string, { destination }: TraceTuple, isLocal: boolean): Promise<void> {
    const pair = `${client} ${destination}`;
    const { connection } = this.kernel;
    if (this.#addresses.has(pair) || connection === undefined || isLocal) return;
    this.#addresses.add(pair);
    const routes = new RouteTable(connection);
    const [toClient = 0, toEndpoint = 0] = await Promise.all(
      [client, destination].map(async (address) => {
        const route = await routes.to(address);
        return route === "none" || route.type !== AddressType.unicast ? undefined : route.mtu;
      }),
    );
    if (toEndpoint === 0 || toEndpoint >= toClient) return;
    this.#hint(
      `the route to the endpoint ${destination} takes ${toEndpoint} bytes, the one to the client ${client} ${toClient}. ` +
        "Longer packets of the client pass only if ICMP messages of this node reach it",
    );
  }

  /** New pods bring new interfaces, so names are read again for an unknown index. */
  async #interface(index: number | undefined): Promise<string | undefined> {
    if (index === undefined) return undefined;
    if (!this.#names.has(index)) {
      for (const [each, name] of await this.kernel.interfaces.names()) this.#names.set(each, name);
    }
    return this.#names.get(index) ?? `interface ${index}`;
  }
}

const NO_OWNER =
  `Linux ${release()} cannot remove a table when its owner exits (Linux 5.12 can), so rules of trace could remain. ` +
  "Instead, add `meta nftrace set 1` to a table of your own, and run `nft monitor trace`";

/**
 * In the message that creates the table, only the flag can be rejected, because no other program has a table of this
 * name.
 */
function isFlagRefused(error: unknown): boolean {
  return (
    error instanceof KernelError &&
    error.code === "refused" &&
    error.faults.some(({ op, errno }) => op === 0 && (errno === "EINVAL" || errno === "EOPNOTSUPP"))
  );
}

function ignoreAbsent(error: unknown): void {
  if (!(error instanceof KernelError) || error.faults[0]?.errno !== "ENOENT") throw error;
}
