/**
 * Connection tracking in memory, for tests: the answers of the kernel's ctnetlink without the kernel. The conformance
 * suite runs on both. Entries are created with `create` or `add`, not by packets, and disappear through `delete`,
 * `expire` or their timeout. Rare behaviour of real kernels can be requested: errors, interrupted dumps, lost events,
 * delays.
 */
import { KernelError } from "../../src/nft/kernel/errors.js";
import { type IpFamily, parseAddress } from "../../src/base/ip.js";
import { unpackRecords } from "../../src/nft/conntrack/decode.js";
import { compileFilter, matchesPatterns } from "../../src/nft/conntrack/compile-filter.js";
import {
  checkUpdate,
  FULL_BYTES,
  OFFSET,
  packEntry,
  packIdentity,
  packKey,
  packNewEntry,
  PART,
} from "../../src/nft/conntrack/encode.js";
import { checkPrefilter } from "../../src/nft/conntrack/compile-filter.js";
import { maySkip } from "../support/may-skip.ts";
import {
  CONNTRACK_STATUS,
  type ConntrackEntry,
  type ConntrackEvents,
  type ConntrackFilter,
  type ConntrackPrefilter,
  type ConntrackStats,
  type ConntrackTable,
  type ConntrackTuple,
  type ConntrackUpdate,
  type DeleteAllResult,
  type DeleteResult,
  type DumpResult,
  type NewConntrackEntry,
} from "../../src/nft/conntrack/conntrack-table.js";

export interface FakeConntrackOptions {
  /** ms, for timeouts. Default: performance.now. */
  readonly now?: () => number;
  /** Maximum number of entries. Default 262,144. */
  readonly max?: number;
  /** Entries in one chunk of a dump. Default 64. */
  readonly chunkSize?: number;
}

/** An error to inject. */
export interface InjectedConntrackFault {
  /** The call that fails: "dump", "lookup", "create", "update", "count", "max", "stats", "delete", "events". */
  readonly action: ConntrackAction;
  /** Default "system". */
  readonly code?: KernelError["code"];
  /** Symbolic: "ENOBUFS". */
  readonly errno: string;
}

export type ConntrackAction =
  "dump" | "lookup" | "create" | "update" | "count" | "max" | "stats" | "delete" | "delete matching" | "events";

/** A recorded call. */
export interface FakeConntrackCall {
  readonly action: ConntrackAction;
  /** For a dump and for deleteMatching. */
  readonly filter?: ConntrackFilter;
  /** For a delete: the entries to delete. */
  readonly entries?: readonly ConntrackEntry[];
}

interface Kept {
  readonly entry: ConntrackEntry;
  /** Expiry, on the injected clock. */
  readonly expiresAt: number;
}

const NAT = CONNTRACK_STATUS.sourceNat | CONNTRACK_STATUS.destinationNat;
const NAT_DONE = CONNTRACK_STATUS.sourceNatDone | CONNTRACK_STATUS.destinationNatDone;
const NO_STATS: ConntrackStats = {
  found: 0,
  invalid: 0,
  insert: 0,
  insertFailed: 0,
  drop: 0,
  earlyDrop: 0,
  error: 0,
};

/** Checks an address and returns its canonical text. */
function text(address: string): string {
  return parseAddress(address) ?? address;
}

/** Returns a tuple as a plain object, with its addresses in canonical text. */
function canonical(tuple: ConntrackTuple): ConntrackTuple {
  return { ...tuple, source: text(tuple.source), destination: text(tuple.destination) };
}

/** Returns a tuple as a text. */
function tupleKey(family: IpFamily, tuple: ConntrackTuple, zone: number): string {
  const { protocol, sourcePort, destinationPort, icmp } = tuple;
  const [source, destination] = [text(tuple.source), text(tuple.destination)];
  const l4 = icmp === undefined ? `${sourcePort} ${destinationPort}` : `${icmp.id} ${icmp.type} ${icmp.code}`;
  return `${family} ${protocol} ${source} ${destination} ${l4} ${tuple.zone ?? zone}`;
}

/** Returns the NAT that leads to an entry's reply. */
function natOf(original: ConntrackTuple, reply: ConntrackTuple): number {
  const { sourceNat, destinationNat } = CONNTRACK_STATUS;
  const source = reply.destination !== original.source || reply.destinationPort !== original.sourcePort;
  const destination = reply.source !== original.destination || reply.sourcePort !== original.destinationPort;
  const done = source || destination ? NAT_DONE : 0;
  return (source ? sourceNat : 0) | (destination ? destinationNat : 0) | done;
}

/**
 * Returns an entry over bytes, like those from the kernel: its fields are accessors of its class, and a spread copies
 * none of them.
 */
function asRecord(entry: ConntrackEntry): ConntrackEntry {
  const bytes = packEntry("dump", entry);
  const view = new DataView(bytes.buffer);
  const { counters, startedAt } = entry;
  let parts = view.getUint16(OFFSET.parts, true);
  if (counters !== undefined) {
    parts |= PART.counters;
    const counts = [counters.original, counters.reply].flatMap((of) => [of.packets, of.bytes]);
    for (const [i, count] of counts.entries()) view.setBigUint64(OFFSET.counters + 8 * i, count, true);
  }
  if (startedAt !== undefined) {
    parts |= PART.start;
    view.setBigUint64(OFFSET.start, BigInt(startedAt) * 1_000_000n, true);
  }
  view.setUint16(OFFSET.parts, parts, true);
  return unpackRecords({ stride: FULL_BYTES, bytes })[0];
}

/** See the top of this file. */
export class FakeConntrack implements ConntrackTable {
  readonly calls: FakeConntrackCall[] = [];
  readonly #now: () => number;
  readonly #chunkSize: number;
  /** By original tuple, in order of creation. */
  readonly #entries = new Map<string, Kept>();
  /** Every tuple in use, of either direction. */
  readonly #tuples = new Map<string, Kept>();
  readonly #listeners = new Set<ConntrackEvents>();
  readonly #faults: InjectedConntrackFault[] = [];
  readonly #running = new Set<Promise<unknown>>();
  #max: number;
  #stats: ConntrackStats = NO_STATS;
  #nextId = 1;
  #interruptions = 0;
  #latency: ((action: ConntrackAction) => Promise<void> | void) | undefined;
  #closed = false;

  constructor(options: FakeConntrackOptions = {}) {
    this.#now = options.now ?? (() => performance.now());
    this.#max = options.max ?? 262_144;
    this.#chunkSize = options.chunkSize ?? 64;
  }

  /** Makes the next such call fail; a failed delete deletes nothing. */
  failNext(fault: InjectedConntrackFault): void {
    this.#faults.push(fault);
  }
  /** Marks the next `count` dumps, and deletions by filter, as interrupted; they are complete all the same. */
  interruptDumps(count = 1): void {
    this.#interruptions += count;
  }
  /** Reports lost events to all listeners. */
  loseEvents(): void {
    for (const listener of this.#listeners) queueMicrotask(() => listener.onLost());
  }
  /** Ends the event streams with this error. */
  breakEvents(error: Error): void {
    for (const listener of this.#listeners) queueMicrotask(() => listener.onError(error));
    this.#listeners.clear();
  }
  /** Sets a function that is called and awaited before each call takes effect, and before each chunk of a dump. */
  setLatency(wait: ((action: ConntrackAction) => Promise<void> | void) | undefined): void {
    this.#latency = wait;
  }
  setStats(stats: Partial<ConntrackStats>): void {
    this.#stats = { ...this.#stats, ...stats };
  }
  setMax(max: number): void {
    this.#max = max;
  }

  /** Like `create`, but synchronous. Returns the entry as a dump shows it, as a plain object. */
  add(entry: NewConntrackEntry): ConntrackEntry {
    return this.#insert(entry, "add");
  }
  /** The contents of the table, as plain objects. */
  entries(): readonly ConntrackEntry[] {
    this.#purge();
    return [...this.#entries.values()].map((kept) => this.#show(kept));
  }
  /** Ends an entry, like a kernel whose connection has ended. */
  expire(entry: ConntrackEntry): void {
    const kept = this.#entries.get(tupleKey(entry.family, entry.original, entry.zone));
    if (kept !== undefined && kept.entry.id === entry.id) this.#remove(kept);
  }
  /** Changes an entry as packets would. */
  change(
    entry: ConntrackEntry,
    change: Partial<Pick<ConntrackEntry, "status" | "state" | "counters" | "timeout" | "labels">>,
  ): void {
    const kept = this.#find(entry, "change");
    this.#replace(kept, { ...kept.entry, ...change }, change.timeout);
  }

  async dump(
    filter: ConntrackFilter,
    onEntries: (entries: readonly ConntrackEntry[]) => void | Promise<void>,
    prefilter?: ConntrackPrefilter,
  ): Promise<DumpResult> {
    return this.#run({ action: "dump", filter }, async () => {
      const patterns = compileFilter(filter, "dump");
      if (prefilter !== undefined) checkPrefilter(filter, prefilter);
      let [entries, seen, matched, answered] = [0, 0, 0, 0];
      const interrupted = this.#takeInterruption();
      let chunk: ConntrackEntry[] = [];
      for (const key of [...this.#entries.keys()]) {
        const kept = this.#entries.get(key);
        if (kept === undefined || kept.expiresAt <= this.#now()) continue;
        seen++;
        if (!matchesPatterns(patterns, packEntry("dump", kept.entry))) continue;
        matched++;
        if ((kept.entry.status & CONNTRACK_STATUS.seenReply) !== 0) answered++;
        if (prefilter !== undefined && maySkip(prefilter, kept.entry)) continue;
        entries++;
        chunk.push(this.#handOver(kept));
        if (chunk.length < this.#chunkSize) continue;
        await onEntries(chunk);
        chunk = [];
        await this.#latency?.("dump");
      }
      if (chunk.length > 0) await onEntries(chunk);
      return { entries, seen, interrupted, ...(prefilter !== undefined && { matched, answered }) };
    });
  }

  async lookup(family: IpFamily, original: ConntrackTuple, zone = 0): Promise<ConntrackEntry | undefined> {
    return this.#run({ action: "lookup" }, () => {
      packKey("lookup", family, original, zone);
      const kept = this.#tuples.get(tupleKey(family, original, zone));
      return kept === undefined ? undefined : this.#handOver(kept);
    });
  }

  async create(entry: NewConntrackEntry): Promise<void> {
    return this.#run({ action: "create" }, () => {
      this.#insert(entry, "create");
    });
  }

  async update(entry: ConntrackEntry, change: ConntrackUpdate): Promise<void> {
    return this.#run({ action: "update" }, () => {
      packIdentity("update", entry);
      const { timeout, mark = 0, markMask = 0 } = checkUpdate(change);
      const kept = this.#find(entry, "update");
      const marked = ((kept.entry.mark & ~markMask) | (mark & markMask)) >>> 0;
      this.#replace(kept, { ...kept.entry, mark: marked }, timeout);
    });
  }

  async count(): Promise<number> {
    return this.#run({ action: "count" }, () => this.#entries.size);
  }
  async max(): Promise<number> {
    return this.#run({ action: "max" }, () => this.#max);
  }
  async stats(): Promise<ConntrackStats> {
    return this.#run({ action: "stats" }, () => this.#stats);
  }

  async delete(entry: ConntrackEntry): Promise<boolean> {
    return (await this.deleteAll([entry])).deleted === 1;
  }

  async deleteAll(entries: readonly ConntrackEntry[]): Promise<DeleteAllResult> {
    return this.#run({ action: "delete", entries: [...entries] }, () => {
      for (const entry of entries) packIdentity("delete", entry);
      const absentAt: number[] = [];
      for (const [at, { family, original, zone, id }] of entries.entries()) {
        const kept = this.#entries.get(tupleKey(family, original, zone));
        if (kept === undefined || kept.entry.id !== id) absentAt.push(at);
        else this.#remove(kept);
      }
      const absent = absentAt.length;
      return { deleted: entries.length - absent, absent, interrupted: false, absentAt };
    });
  }

  async deleteMatching(filter: ConntrackFilter): Promise<DeleteResult> {
    return this.#run({ action: "delete matching", filter }, () => {
      const patterns = compileFilter(filter, "delete matching");
      const interrupted = this.#takeInterruption();
      let deleted = 0;
      for (const kept of [...this.#entries.values()]) {
        if (!matchesPatterns(patterns, packEntry("delete matching", kept.entry))) continue;
        this.#remove(kept);
        deleted++;
      }
      return { deleted, absent: 0, interrupted };
    });
  }

  async events(handlers: ConntrackEvents): Promise<{ close(): Promise<void> }> {
    return this.#run({ action: "events" }, () => {
      this.#listeners.add(handlers);
      return {
        close: async () => {
          this.#listeners.delete(handlers);
        },
      };
    });
  }

  /** Waits for running calls. Later calls fail with "closed". */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.allSettled(this.#running);
    this.#listeners.clear();
  }

  async #run<T>(call: FakeConntrackCall, work: () => T | Promise<T>): Promise<T> {
    const { action } = call;
    if (this.#closed) throw new KernelError("closed", `${action}: the table is closed`, { action });
    const running = (async () => {
      this.calls.push(call);
      await this.#latency?.(action);
      const at = this.#faults.findIndex((fault) => fault.action === action);
      if (at >= 0) {
        const [{ code = "system", errno }] = this.#faults.splice(at, 1);
        throw new KernelError(code, `${action}: ${errno}`, { action, errno });
      }
      this.#purge();
      return work();
    })();
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  #insert(entry: NewConntrackEntry, action: string): ConntrackEntry {
    packNewEntry(action, entry);
    const { family, timeout, state, labels } = entry;
    const original = canonical(entry.original);
    const reply = canonical(entry.reply);
    this.#purge();
    const zone = entry.zone ?? 0;
    const keys = [tupleKey(family, original, zone), tupleKey(family, reply, zone)];
    if (keys.some((key) => this.#tuples.has(key))) {
      throw new KernelError("system", `${action}: EEXIST (File exists)`, { action, errno: "EEXIST" });
    }
    if (this.#entries.size >= this.#max) {
      throw new KernelError("system", `${action}: ENOMEM (the table is full)`, { action, errno: "ENOMEM" });
    }
    const given = (entry.status ?? 0) & ~(NAT | NAT_DONE);
    const made: ConntrackEntry = {
      family,
      original,
      reply,
      id: this.#nextId++,
      status: (given | CONNTRACK_STATUS.confirmed | natOf(original, reply)) >>> 0,
      mark: entry.mark ?? 0,
      zone,
      ...(state !== undefined && { state }),
      ...(labels !== undefined && { labels }),
    };
    const kept: Kept = { entry: made, expiresAt: this.#now() + timeout * 1000 };
    this.#entries.set(keys[0], kept);
    for (const key of keys) this.#tuples.set(key, kept);
    const told = this.#handOver(kept);
    this.#tell((listener) => listener.onNew?.(told));
    return this.#show(kept);
  }

  /** Throws ENOENT. */
  #find(entry: ConntrackEntry, action: string): Kept {
    const kept = this.#entries.get(tupleKey(entry.family, entry.original, entry.zone));
    if (kept !== undefined && kept.entry.id === entry.id) return kept;
    throw new KernelError("not-found", `${action}: the entry does not exist`, { action, errno: "ENOENT" });
  }

  #replace(kept: Kept, entry: ConntrackEntry, timeout: number | undefined): void {
    const expiresAt = timeout === undefined ? kept.expiresAt : this.#now() + timeout * 1000;
    const changed: Kept = { entry, expiresAt };
    this.#entries.set(tupleKey(entry.family, entry.original, entry.zone), changed);
    for (const tuple of [entry.original, entry.reply]) {
      this.#tuples.set(tupleKey(entry.family, tuple, entry.zone), changed);
    }
  }

  #remove(kept: Kept): void {
    const { entry } = kept;
    this.#entries.delete(tupleKey(entry.family, entry.original, entry.zone));
    for (const tuple of [entry.original, entry.reply]) this.#tuples.delete(tupleKey(entry.family, tuple, entry.zone));
    // Nobody can see the entry any more; the kernel's event has no remaining time.
    const told = asRecord(entry);
    this.#tell((listener) => listener.onDestroy?.(told));
  }

  #purge(): void {
    const now = this.#now();
    for (const kept of this.#entries.values()) if (kept.expiresAt <= now) this.#remove(kept);
  }

  /** Returns the entry in the form of the table's own methods. */
  #handOver(kept: Kept): ConntrackEntry {
    return asRecord(this.#show(kept));
  }

  /** Returns a plain object, for tests to compare. */
  #show({ entry, expiresAt }: Kept): ConntrackEntry {
    return { ...entry, timeout: Math.floor((expiresAt - this.#now()) / 1000) };
  }

  #takeInterruption(): boolean {
    if (this.#interruptions === 0) return false;
    this.#interruptions--;
    return true;
  }

  #tell(event: (listener: ConntrackEvents) => void): void {
    for (const listener of this.#listeners) {
      queueMicrotask(() => {
        if (this.#listeners.has(listener)) event(listener);
      });
    }
  }
}
