/** Connection tracking of the running kernel, through ctnetlink and the addon. */
import { AF } from "../../base/ip-families.js";
import { loadAddon, type NativeAddon } from "../kernel/addon.js";
import type {
  NativeConntrack,
  NativeConntrackCallback,
  NativePiece,
  NativeRecords,
  NativePrefilter,
} from "../kernel/conntrack-addon.js";
import { KernelError } from "../kernel/errors.js";
import { NativeCalls, rethrowLater } from "../kernel/native-calls.js";
import { translate } from "../kernel/native-error.js";
import type { IpFamily } from "../../base/ip.js";
import { packIdentities, unpackRecords } from "./decode.js";
import { checkPrefilter, compileFilter, packPatterns } from "./compile-filter.js";
import { checkUpdate, OFFSET, packIdentity, packKey, packNewEntry } from "./encode.js";
import type {
  ConntrackEntry,
  ConntrackEvents,
  ConntrackFilter,
  ConntrackPrefilter,
  ConntrackStats,
  ConntrackTable,
  ConntrackTuple,
  ConntrackUpdate,
  DeleteAllResult,
  DeleteResult,
  DumpResult,
  NewConntrackEntry,
} from "./conntrack-table.js";

export interface NetlinkConntrackOptions {
  /** Path of a network namespace (`/run/netns/NAME`, `/proc/PID/ns/net`). Default: that of the process. */
  readonly netns?: string;
  /** Receive buffer of an event stream, bytes. Default 8 MiB, or the limit of net.core.rmem_max. */
  readonly receiveBufferBytes?: number;
}

/** Maximum number of entries in one call to delete. */
const DELETIONS = 65_536;
/** Value of a record's `event`: the entry is gone. */
const DESTROYED = 2;

/** ctnetlink in one network namespace. See `ConntrackTable`. */
export class NetlinkConntrack implements ConntrackTable {
  readonly #calls: NativeCalls<NativeConntrack>;

  private constructor(addon: NativeAddon, table: NativeConntrack) {
    this.#calls = new NativeCalls("table", addon, table);
  }

  /**
   * Opens the namespace's table. Fails with "addon", "no-permission" (CAP_NET_ADMIN, or CAP_SYS_ADMIN to enter another
   * namespace), "no-conntrack" or "system" (no such namespace).
   */
  static async open(options: NetlinkConntrackOptions = {}): Promise<NetlinkConntrack> {
    const addon = loadAddon();
    try {
      return new NetlinkConntrack(addon, await addon.conntrackOpen(options));
    } catch (error) {
      throw translate(error, "open");
    }
  }

  async dump(
    filter: ConntrackFilter,
    onEntries: (entries: readonly ConntrackEntry[]) => void | Promise<void>,
    prefilter?: ConntrackPrefilter,
  ): Promise<DumpResult> {
    return this.#calls.run("dump", async (addon, table) => {
      const patterns = packPatterns(compileFilter(filter, "dump"));
      const dump = addon.conntrackDump(table, patterns, packPrefilter(filter, prefilter));
      const read = (): Promise<NativePiece> => {
        const piece = addon.conntrackRead(dump);
        // It may fail while `onEntries` still processes the previous piece and nothing awaits this one yet.
        piece.catch(() => undefined);
        return piece;
      };
      // Read two at a time: the kernel works on the next while one is on its way to the main thread. They may overtake
      // each other, which is fine because entries have no order.
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
        return { entries, seen, interrupted, ...(prefilter !== undefined && { matched, answered }) };
      } finally {
        // If `onEntries` or a read failed, workers are still reading.
        await Promise.allSettled(reading);
      }
    });
  }

  async lookup(family: IpFamily, original: ConntrackTuple, zone = 0): Promise<ConntrackEntry | undefined> {
    return this.#calls.run("lookup", async (addon, table) => {
      const key = packKey("lookup", family, original, zone);
      const found = await addon.conntrackLookup(table, key);
      return found === undefined ? undefined : unpackRecords(found)[0];
    });
  }

  async create(entry: NewConntrackEntry): Promise<void> {
    return this.#calls.run("create", async (addon, table) =>
      addon.conntrackCreate(table, packNewEntry("create", entry)),
    );
  }

  async update(entry: ConntrackEntry, change: ConntrackUpdate): Promise<void> {
    return this.#calls.run("update", async (addon, table) =>
      addon.conntrackChange(table, packIdentity("update", entry), checkUpdate(change)),
    );
  }

  async count(): Promise<number> {
    return this.#calls.run("count", async (addon, table) => (await addon.conntrackTotals(table)).entries);
  }

  async max(): Promise<number> {
    return this.#calls.run("max", async (addon, table) => {
      const { max } = await addon.conntrackTotals(table);
      if (max !== undefined) return max;
      throw new KernelError("system", "max: unknown to ctnetlink, and net.netfilter.nf_conntrack_max cannot be read", {
        action: "max",
      });
    });
  }

  async stats(): Promise<ConntrackStats> {
    return this.#calls.run("stats", async (addon, table) => addon.conntrackCounts(table));
  }

  async delete(entry: ConntrackEntry): Promise<boolean> {
    return (await this.deleteAll([entry])).deleted === 1;
  }

  async deleteAll(entries: readonly ConntrackEntry[]): Promise<DeleteAllResult> {
    return this.#calls.run("delete", async (addon, table) => {
      const keys: Uint8Array[] = [];
      // Encode all before the first deletion, so that an invalid entry deletes nothing.
      for (let from = 0; from < entries.length; from += DELETIONS) {
        keys.push(packIdentities(entries.slice(from, from + DELETIONS)));
      }
      let deleted = 0;
      const absentAt: number[] = [];
      for (const [call, some] of keys.entries()) {
        const done = await addon.conntrackDelete(table, some);
        deleted += done.deleted;
        for (const at of done.absentAt) absentAt.push(call * DELETIONS + at);
      }
      return { deleted, absent: absentAt.length, interrupted: false, absentAt };
    });
  }

  async deleteMatching(filter: ConntrackFilter): Promise<DeleteResult> {
    return this.#calls.run("delete matching", async (addon, table) => {
      const patterns = packPatterns(compileFilter(filter, "delete matching"));
      return addon.conntrackDeleteMatching(table, patterns);
    });
  }

  /**
   * The subscription is active when the promise resolves. Handlers must not throw: an error surfaces as an uncaught
   * exception. The event loop stays alive until the stream is closed.
   */
  async events(handlers: ConntrackEvents): Promise<{ close(): Promise<void> }> {
    return this.#calls.run("events", async (addon, table) => {
      let closed = false;
      const monitor = await addon.conntrackWatch(
        table,
        { created: handlers.onNew !== undefined, destroyed: handlers.onDestroy !== undefined },
        deliver(handlers, () => !closed),
      );
      return this.#calls.stream(() => {
        closed = true;
        addon.closeMonitor(monitor);
      });
    });
  }

  /** Waits for running calls, then closes event streams and sockets. Later calls fail with "closed". */
  async close(): Promise<void> {
    const { addon, handle } = this.#calls;
    return this.#calls.end(() => addon.conntrackClose(handle));
  }
}

function packPrefilter(
  filter: ConntrackFilter,
  prefilter: ConntrackPrefilter | undefined,
): NativePrefilter | undefined {
  if (prefilter === undefined) return undefined;
  checkPrefilter(filter, prefilter);
  const { family, destinations, lists, endpoints } = prefilter;
  const listBytes = new Uint8Array(lists.buffer, lists.byteOffset, lists.byteLength);
  return { family: AF[family], destinations, lists: listBytes, endpoints };
}

/** Calls handlers one after the other. An error in one does not keep the next from its event. */
function deliver(handlers: ConntrackEvents, open: () => boolean): NativeConntrackCallback {
  return (kind, value) => {
    if (kind === "lost") return rethrowLater(() => handlers.onLost());
    if (kind === "error") return rethrowLater(() => handlers.onError(translate(value, "events") as Error));
    for (const block of value as readonly NativeRecords[]) {
      unpackRecords(block).forEach((entry, i) => {
        if (!open()) return;
        const destroyed = block.bytes[i * block.stride + OFFSET.event] === DESTROYED;
        rethrowLater(() => (destroyed ? handlers.onDestroy?.(entry) : handlers.onNew?.(entry)));
      });
    }
  };
}
