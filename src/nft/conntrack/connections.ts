/**
 * `@nft-proxier/nft/conntrack`: dumps, gets, deletes, watches and counts entries of the kernel's connection tracking table, through
 * ctnetlink.
 *
 * @module
 */
import { familyOf, parseAddress } from "../../base/ip.js";
import { callback, handlers, integer, oneOf, optional, record, type Shape, text, value } from "../../base/shape.js";
import { plainEntry } from "./decode.js";
import { NetlinkConntrack, type NetlinkConntrackOptions } from "./netlink-conntrack.js";
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
} from "./conntrack-table.js";
import { conntrackOptions } from "../statements/checks.js";
import { check } from "../language/fields/field-error.js";
import { protocolOf } from "../language/fields/field-types.js";
import { FieldError, type Protocol } from "../handles/field-codec.js";

export { CONNTRACK_STATUS } from "./conntrack-table.js";
export type { NetlinkConntrackOptions } from "./netlink-conntrack.js";
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
} from "./conntrack-table.js";
export type { IpFamily } from "../../base/ip.js";
export { KernelError, type Fault, type KernelErrorCode } from "../kernel/errors.js";
export { FieldError, type Protocol, type ProtocolName } from "../handles/field-codec.js";

/** Selects the entries that match every given part. An empty filter selects all. */
export interface ConntrackFilter extends Omit<FullFilter, "protocol"> {
  readonly protocol?: Protocol;
}

/** A connection as its client sees it. The addresses determine the family. */
export interface Connection extends Omit<ConntrackTuple, "protocol" | "sourcePort" | "destinationPort" | "zone"> {
  readonly protocol: Protocol;
  /** Default 0, for protocols without ports. */
  readonly sourcePort?: number;
  readonly destinationPort?: number;
  /** Default 0. */
  readonly zone?: number;
}

/**
 * Opens the connection tracking table of a network namespace (the process's own, or `netns`). Needs CAP_NET_ADMIN there. Rejects with
 * KernelError: "addon", "no-permission", "no-conntrack" or "system" (no such namespace).
 */
export async function openConntrack(options: NetlinkConntrackOptions = {}): Promise<Conntrack> {
  check(conntrackOptions, "options", options);
  return new Conntrack(await NetlinkConntrack.open(options));
}

/** The table of one namespace, from `openConntrack`. All methods reject with KernelError, or with FieldError for an invalid value or key. */
export class Conntrack {
  readonly #table: NetlinkConntrack;

  /** @internal */
  constructor(table: NetlinkConntrack) {
    this.#table = table;
  }

  /**
   * Passes the matching entries to `onEntries`, some hundred at a time. The next chunk is read when its promise resolves, so memory stays
   * bounded for a table of any size. Entries are plain objects, and may be kept.
   */
  async dump(
    filter: ConntrackFilter,
    onEntries: (entries: readonly ConntrackEntry[]) => void | Promise<void>,
  ): Promise<DumpResult> {
    return this.#table.dump(fullFilter(filter), (entries) => onEntries(entries.map(printableEntry)));
  }

  /** Resolves to undefined if there is no such connection. */
  async get(connection: Connection): Promise<ConntrackEntry | undefined> {
    check(CONNECTION, "connection", connection);
    const { zone = 0, protocol, sourcePort = 0, destinationPort = 0, ...rest } = connection;
    const source = parseAddress(rest.source)!;
    const tuple = { ...rest, source, protocol: numberOf(protocol), sourcePort, destinationPort };
    const found = await this.#table.lookup(familyOf(source), tuple, zone);
    return found && printableEntry(found);
  }

  /** Deletes by connection and id, so a later connection with the same addresses and ports stays. Resolves to false if the entry was already gone. */
  async delete(entry: ConntrackEntry): Promise<boolean> {
    return this.#table.delete(entry);
  }

  /** Like `delete`, for many entries, in batches. */
  async deleteAll(entries: readonly ConntrackEntry[]): Promise<DeleteAllResult> {
    return this.#table.deleteAll(entries);
  }

  /** Deletes each matching entry as the dump reads it, without creating JavaScript objects. */
  async deleteMatching(filter: ConntrackFilter): Promise<DeleteResult> {
    return this.#table.deleteMatching(fullFilter(filter));
  }

  /**
   * Reports new and destroyed entries, from when the promise resolves. The event loop stays alive until the stream is closed. The kernel sends no
   * events if net.netfilter.nf_conntrack_events is 0.
   */
  async watch(handlers: ConntrackEvents): Promise<{ close(): Promise<void> }> {
    check(EVENTS, "handlers", handlers);
    return this.#table.events({
      ...(handlers.onNew !== undefined && { onNew: (entry) => handlers.onNew?.(printableEntry(entry)) }),
      ...(handlers.onDestroy !== undefined && { onDestroy: (entry) => handlers.onDestroy?.(printableEntry(entry)) }),
      onLost: () => handlers.onLost(),
      onError: (error) => handlers.onError(error),
    });
  }

  /** Returns the number of entries in the table. */
  count(): Promise<number> {
    return this.#table.count();
  }

  /** Returns the maximum number of entries. */
  max(): Promise<number> {
    return this.#table.max();
  }

  /** The kernel's counters since boot, summed over CPUs. */
  stats(): Promise<ConntrackStats> {
    return this.#table.stats();
  }

  /** Creates an entry. Fails with EEXIST if there is an entry with either tuple. */
  async create(entry: NewConntrackEntry): Promise<void> {
    check(NEW_ENTRY, "entry", entry);
    return this.#table.create(entry);
  }

  /** Sets timeout or mark. Fails with ENOENT if the entry no longer exists. */
  async update(entry: ConntrackEntry, change: ConntrackUpdate): Promise<void> {
    check(UPDATE, "change", change);
    return this.#table.update(entry, change);
  }

  /** Waits for running calls, and ends watches. */
  close(): Promise<void> {
    return this.#table.close();
  }
}

/** Packets and bytes of one direction. In JSON, they are decimal strings, because JSON has no bigint. */
class Traffic {
  constructor(
    readonly packets: bigint,
    readonly bytes: bigint,
  ) {}

  toJSON(): { readonly packets: string; readonly bytes: string } {
    return { packets: String(this.packets), bytes: String(this.bytes) };
  }
}

/** Returns a plain object, which can be kept, printed, spread and cloned. */
function printableEntry(entry: ConntrackEntry): ConntrackEntry {
  const plain = plainEntry(entry);
  const { counters } = plain;
  if (counters === undefined) return plain;
  const traffic = ({ packets, bytes }: { packets: bigint; bytes: bigint }): Traffic => new Traffic(packets, bytes);
  return { ...plain, counters: { original: traffic(counters.original), reply: traffic(counters.reply) } };
}

function numberOf(protocol: unknown): number {
  const number = protocolOf(protocol);
  if (number === undefined) throw new FieldError("protocol", 'a protocol ("tcp", or a number from 0 to 255)', protocol);
  return number;
}

function fullFilter(filter: ConntrackFilter): FullFilter {
  // A copy loses the fields that an object has from its class, and the filter would then match more entries.
  const prototype: unknown = typeof filter === "object" && filter !== null ? Object.getPrototypeOf(filter) : undefined;
  if (prototype !== Object.prototype && prototype !== null) throw new FieldError("filter", "a plain object", filter);
  // The compiler of filters checks all other fields as strictly.
  const { protocol, ...rest } = filter;
  return "protocol" in filter ? { ...rest, protocol: numberOf(protocol) } : rest;
}

const ADDRESS = text("an IP address", (given) => parseAddress(given) !== undefined);
const PORT = integer("a port from 0 to 65535", 0, 0xffff);
const ZONE = integer("a zone from 0 to 65535", 0, 0xffff);
const U32 = integer("a number from 0 to 4294967295", 0, 0xffffffff);
const PROTOCOL = value('a protocol ("tcp", or a number from 0 to 255)', (given) => protocolOf(given) !== undefined);
const BYTE = integer("a number from 0 to 255", 0, 0xff);
const ICMP = optional(record({ id: integer("a number from 0 to 65535", 0, 0xffff), type: BYTE, code: BYTE }));

function tupleOf(protocol: Shape<unknown>, port: Shape<unknown>): Shape<unknown> {
  return record({
    source: ADDRESS,
    destination: ADDRESS,
    protocol,
    sourcePort: port,
    destinationPort: port,
    icmp: ICMP,
    zone: optional(ZONE),
  });
}
const CONNECTION = tupleOf(PROTOCOL, optional(PORT));
const TUPLE = tupleOf(BYTE, PORT);
const NEW_ENTRY = record({
  family: oneOf("ip", "ip6"),
  original: TUPLE,
  reply: TUPLE,
  timeout: U32,
  status: optional(U32),
  mark: optional(U32),
  zone: optional(ZONE),
  state: optional(text("a state's name", (given) => given !== "")),
  labels: optional(value("16 bytes", (given) => given instanceof Uint8Array && given.length === 16)),
});
const UPDATE = record({ timeout: optional(U32), mark: optional(record({ value: U32, mask: optional(U32) })) });
const EVENTS = handlers({
  onNew: optional(callback()),
  onDestroy: optional(callback()),
  onLost: callback(),
  onError: callback(),
});
