/**
 * `nft-proxier/conntrack`: the kernel's connection tracking table from a Node program, through ctnetlink: dump, get, delete,
 * watch, count.
 *
 * @module
 */
import { familyOf, parseAddress } from "../base/ip.js";
import { NetlinkConntrack, type NetlinkConntrackOptions } from "../conntrack/table/netlink-conntrack.js";
import type {
  ConntrackEntry,
  ConntrackEvents,
  ConntrackFilter as FullFilter,
  ConntrackStats,
  ConntrackTuple,
  ConntrackUpdate,
  DeleteAllResult,
  DeleteResult,
  DumpResult,
  NewConntrackEntry,
} from "../conntrack/table/types.js";
import { FieldError, type Protocol, protocolOf } from "./fields.js";

export { CONNTRACK_STATUS } from "../conntrack/table/types.js";
export type { NetlinkConntrackOptions } from "../conntrack/table/netlink-conntrack.js";
export type {
  ConntrackEntry,
  ConntrackEvents,
  ConntrackStats,
  ConntrackTuple,
  ConntrackUpdate,
  DeleteAllResult,
  DeleteResult,
  DumpResult,
  NewConntrackEntry,
  TupleFilter,
} from "../conntrack/table/types.js";
export type { IpFamily } from "../base/ip.js";
export { KernelError, type Fault, type KernelErrorCode } from "../kernel/errors.js";
export { FieldError, type Protocol, type ProtocolName } from "./fields.js";

/** Which entries are meant: every part given must hold; an empty filter means all. */
export interface ConntrackFilter extends Omit<FullFilter, "protocol"> {
  readonly protocol?: Protocol;
}

/** A connection as its client sees it. The family is the addresses'. */
export interface Connection extends Omit<ConntrackTuple, "protocol" | "sourcePort" | "destinationPort" | "zone"> {
  readonly protocol: Protocol;
  /** Default 0, for protocols that have no ports. */
  readonly sourcePort?: number;
  readonly destinationPort?: number;
  /** Default 0. */
  readonly zone?: number;
}

/**
 * Opens the connection tracking table of a network namespace (the process's own, or `netns`). Needs CAP_NET_ADMIN there. Throws
 * KernelError: "addon", "no-permission", "no-conntrack" or "system" (no such namespace).
 */
export async function openConntrack(options: NetlinkConntrackOptions = {}): Promise<Conntrack> {
  return new Conntrack(await NetlinkConntrack.open(options));
}

/** The table of one namespace, from `openConntrack`. All methods throw KernelError, and FieldError for a value that is none. */
export class Conntrack {
  readonly #table: NetlinkConntrack;

  /** @internal */
  constructor(table: NetlinkConntrack) {
    this.#table = table;
  }

  /**
   * Hands over the entries that match, in chunks of some hundred: the next one is read when the promise of `onEntries` is done, so memory
   * stays bounded whatever the table's size.
   */
  dump(
    filter: ConntrackFilter,
    onEntries: (entries: readonly ConntrackEntry[]) => void | Promise<void>,
  ): Promise<DumpResult> {
    return this.#table.dump(fullFilter(filter), onEntries);
  }

  /** Undefined: there is no such connection. */
  get(connection: Connection): Promise<ConntrackEntry | undefined> {
    const { zone = 0, protocol, sourcePort = 0, destinationPort = 0, ...rest } = connection;
    const source = parseAddress(rest.source);
    if (source === undefined) throw new FieldError("source", "an IP address", rest.source);
    const tuple = { ...rest, source, protocol: numberOf(protocol), sourcePort, destinationPort };
    return this.#table.lookup(familyOf(source), tuple, zone);
  }

  /** By connection and id: a later connection with the same addresses and ports stays. False: it was not there any more. */
  delete(entry: ConntrackEntry): Promise<boolean> {
    return this.#table.delete(entry);
  }

  /** As `delete`, in batches. */
  deleteAll(entries: readonly ConntrackEntry[]): Promise<DeleteAllResult> {
    return this.#table.deleteAll(entries);
  }

  /** Deletes what matches when the dump meets it, without a way through JavaScript. */
  deleteMatching(filter: ConntrackFilter): Promise<DeleteResult> {
    return this.#table.deleteMatching(fullFilter(filter));
  }

  /**
   * Tells new and destroyed entries. Subscribed when the promise resolves; the event loop stays alive until the stream is closed. Nothing is told
   * where net.netfilter.nf_conntrack_events is 0.
   */
  watch(handlers: ConntrackEvents): Promise<{ close(): Promise<void> }> {
    return this.#table.events(handlers);
  }

  /** Entries in the table. */
  count(): Promise<number> {
    return this.#table.count();
  }

  /** Most entries that the table takes. */
  max(): Promise<number> {
    return this.#table.max();
  }

  /** The kernel's counters since boot, summed over CPUs. */
  stats(): Promise<ConntrackStats> {
    return this.#table.stats();
  }

  /** Fails with EEXIST when there is an entry with either tuple. */
  create(entry: NewConntrackEntry): Promise<void> {
    return this.#table.create(entry);
  }

  /** Sets timeout or mark. Fails with ENOENT when the entry is not there any more. */
  update(entry: ConntrackEntry, change: ConntrackUpdate): Promise<void> {
    return this.#table.update(entry, change);
  }

  /** Waits for what runs, and ends watches. */
  close(): Promise<void> {
    return this.#table.close();
  }
}

function numberOf(protocol: unknown): number {
  const number = protocolOf(protocol);
  if (number === undefined) throw new FieldError("protocol", 'a protocol ("tcp", or a number from 0 to 255)', protocol);
  return number;
}

function fullFilter(filter: ConntrackFilter): FullFilter {
  const { protocol, ...rest } = filter;
  return "protocol" in filter ? { ...rest, protocol: numberOf(protocol) } : rest;
}
