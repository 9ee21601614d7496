/**
 * Connection tracking of the running kernel: ctnetlink, through the addon.
 */
import {
  loadConntrackAddon,
  type NativeConntrack,
  type NativeConntrackAddon,
  type NativeConntrackCallback,
  type NativePiece,
  type NativeRecords,
  type NativeScreen,
} from "../kernel/conntrack-addon.js";
import { KernelError } from "../kernel/errors.js";
import { translate } from "../kernel/native-error.js";
import type { IpFamily } from "../model/types.js";
import { packIdentities, unpackRecords } from "./entry.js";
import { compileFilter, packPatterns } from "./filter.js";
import { AF, checkUpdate, OFFSET, packIdentity, packKey, packNewEntry } from "./record.js";
import { checkScreen } from "./screen.js";
import type {
  ConntrackEntry,
  ConntrackEvents,
  ConntrackFilter,
  ConntrackScreen,
  ConntrackStats,
  ConntrackTable,
  ConntrackTuple,
  ConntrackUpdate,
  DeleteResult,
  DumpResult,
  NewConntrackEntry,
} from "./types.js";

export interface NetlinkConntrackOptions {
  /** Path of a network namespace (`/run/netns/NAME`, `/proc/PID/ns/net`). Absent: the process's own. */
  readonly netns?: string;
  /** Receive buffer of an event stream, bytes. Default 8 MiB, or what net.core.rmem_max allows. */
  readonly receiveBufferBytes?: number;
}

/** Entries in one call to delete. */
const DELETIONS = 65_536;
/** In a record's `event`: it is gone. */
const DESTROYED = 2;

/** ctnetlink in one network namespace. See `ConntrackTable`. */
export class NetlinkConntrack implements ConntrackTable {
  readonly #addon: NativeConntrackAddon;
  readonly #table: NativeConntrack;
  readonly #running = new Set<Promise<unknown>>();
  readonly #streams = new Set<{ close(): Promise<void> }>();
  #closing: Promise<void> | undefined;

  private constructor(addon: NativeConntrackAddon, table: NativeConntrack) {
    this.#addon = addon;
    this.#table = table;
  }

  /**
   * Opens the namespace's table. Fails with "addon", "no-permission" (CAP_NET_ADMIN, or CAP_SYS_ADMIN to enter another
   * namespace), "no-conntrack" or "system" (no such namespace).
   */
  static async open(options: NetlinkConntrackOptions = {}): Promise<NetlinkConntrack> {
    const addon = loadConntrackAddon();
    try {
      return new NetlinkConntrack(addon, await addon.conntrackOpen(options));
    } catch (error) {
      throw translate(error, "open");
    }
  }

  async dump(
    filter: ConntrackFilter,
    onEntries: (entries: readonly ConntrackEntry[]) => void | Promise<void>,
    screen?: ConntrackScreen,
  ): Promise<DumpResult> {
    return this.#run("dump", async () => {
      const patterns = packPatterns(compileFilter(filter, "dump"));
      const dump = this.#addon.conntrackDump(this.#table, patterns, packScreen(filter, screen));
      const read = (): Promise<NativePiece> => {
        const piece = this.#addon.conntrackRead(dump);
        // It may fail while `onEntries` still has the piece before, and nobody waits for it yet.
        piece.catch(() => undefined);
        return piece;
      };
      // Two at a time: while one is read and on its way to the main thread, the kernel goes on with the next. They may
      // overtake each other; entries have no order.
      const reading = [read(), read()];
      let [entries, seen, matched, answered] = [0, 0, 0, 0];
      let [done, interrupted] = [false, false];
      try {
        while (reading.length > 0) {
          const piece = await reading[0];
          void reading.shift();
          done ||= piece.done;
          interrupted ||= piece.interrupted;
          seen = Math.max(seen, piece.seen);
          matched += piece.matched;
          answered += piece.answered;
          if (!done) reading.push(read());
          for (const block of piece.blocks) {
            const chunk = unpackRecords(block);
            entries += chunk.length;
            const waiting = onEntries(chunk);
            if (waiting !== undefined) await waiting;
          }
        }
        return { entries, seen, interrupted, ...(screen !== undefined && { matched, answered }) };
      } finally {
        // Where `onEntries` or a read failed, workers are still reading.
        await Promise.allSettled(reading);
      }
    });
  }

  async lookup(family: IpFamily, original: ConntrackTuple, zone = 0): Promise<ConntrackEntry | undefined> {
    return this.#run("lookup", async () => {
      const key = packKey("lookup", family, original, zone);
      const found = await this.#addon.conntrackLookup(this.#table, key);
      return found === undefined ? undefined : unpackRecords(found)[0];
    });
  }

  async create(entry: NewConntrackEntry): Promise<void> {
    return this.#run("create", async () => this.#addon.conntrackCreate(this.#table, packNewEntry("create", entry)));
  }

  async update(entry: ConntrackEntry, change: ConntrackUpdate): Promise<void> {
    return this.#run("update", async () =>
      this.#addon.conntrackChange(this.#table, packIdentity("update", entry), checkUpdate("update", change)),
    );
  }

  async count(): Promise<number> {
    return this.#run("count", async () => (await this.#addon.conntrackTotals(this.#table)).entries);
  }

  async max(): Promise<number> {
    return this.#run("max", async () => {
      const { max } = await this.#addon.conntrackTotals(this.#table);
      if (max !== undefined) return max;
      throw new KernelError("system", "max: neither ctnetlink nor net.netfilter.nf_conntrack_max tells", {
        action: "max",
      });
    });
  }

  async stats(): Promise<ConntrackStats> {
    return this.#run("stats", async () => this.#addon.conntrackCounts(this.#table));
  }

  async delete(entry: ConntrackEntry): Promise<boolean> {
    return (await this.deleteAll([entry])).deleted === 1;
  }

  async deleteAll(entries: readonly ConntrackEntry[]): Promise<DeleteResult> {
    return this.#run("delete", async () => {
      const keys: Uint8Array[] = [];
      // All are read before the first goes: an entry that is none deletes nothing.
      for (let from = 0; from < entries.length; from += DELETIONS) {
        keys.push(packIdentities("delete", entries.slice(from, from + DELETIONS)));
      }
      let deleted = 0;
      let absent = 0;
      for (const some of keys) {
        const done = await this.#addon.conntrackDelete(this.#table, some);
        deleted += done.deleted;
        absent += done.absent;
      }
      return { deleted, absent, interrupted: false };
    });
  }

  async deleteMatching(filter: ConntrackFilter): Promise<DeleteResult> {
    return this.#run("delete matching", async () => {
      const patterns = packPatterns(compileFilter(filter, "delete matching"));
      return this.#addon.conntrackDeleteMatching(this.#table, patterns);
    });
  }

  /**
   * Subscribed when the promise resolves. Handlers must not throw: what they throw surfaces as an uncaught exception.
   * The event loop stays alive until the stream is closed.
   */
  async events(handlers: ConntrackEvents): Promise<{ close(): Promise<void> }> {
    return this.#run("events", async () => {
      let closed = false;
      const monitor = await this.#addon.conntrackWatch(
        this.#table,
        { created: handlers.onNew !== undefined, destroyed: handlers.onDestroy !== undefined },
        deliver(handlers, () => !closed),
      );
      const stream = {
        close: async (): Promise<void> => {
          closed = true;
          if (this.#streams.delete(stream)) this.#addon.closeMonitor(monitor);
        },
      };
      this.#streams.add(stream);
      return stream;
    });
  }

  /** Waits for what runs, closes event streams and sockets. Calls after this fail with "closed". */
  async close(): Promise<void> {
    this.#closing ??= (async () => {
      await Promise.allSettled(this.#running);
      await Promise.all([...this.#streams].map(async (stream) => stream.close()));
      this.#addon.conntrackClose(this.#table);
    })();
    return this.#closing;
  }

  async #run<T>(action: string, call: () => Promise<T>): Promise<T> {
    if (this.#closing !== undefined) {
      throw new KernelError("closed", `${action}: the table is closed`, { action });
    }
    const running = call();
    this.#running.add(running);
    try {
      return await running;
    } catch (error) {
      throw translate(error, action);
    } finally {
      this.#running.delete(running);
    }
  }
}

function packScreen(filter: ConntrackFilter, screen: ConntrackScreen | undefined): NativeScreen | undefined {
  if (screen === undefined) return undefined;
  checkScreen("dump", filter, screen);
  const { family, destinations, lists, endpoints } = screen;
  const listBytes = new Uint8Array(lists.buffer, lists.byteOffset, lists.byteLength);
  return { family: AF[family], destinations, lists: listBytes, endpoints };
}

/** Calls handlers one after the other; what one throws does not keep the next from its event. */
function deliver(handlers: ConntrackEvents, open: () => boolean): NativeConntrackCallback {
  const guarded = (call: () => void): void => {
    try {
      call();
    } catch (error) {
      // In its own turn, so that the events behind this one are told as well.
      queueMicrotask(() => {
        throw error;
      });
    }
  };
  return (kind, value) => {
    if (kind === "lost") return guarded(() => handlers.onLost());
    if (kind === "error") return guarded(() => handlers.onError(translate(value, "events") as Error));
    for (const block of value as readonly NativeRecords[]) {
      unpackRecords(block).forEach((entry, i) => {
        if (!open()) return;
        const destroyed = block.bytes[i * block.stride + OFFSET.event] === DESTROYED;
        guarded(() => (destroyed ? handlers.onDestroy?.(entry) : handlers.onNew?.(entry)));
      });
    }
  };
}
