/**
 * nf_tables of the running kernel, through the addon.
 */
import { freemem } from "node:os";
import { yieldToEventLoop } from "../base/time-slice.js";
import { loadAddon, type NativeAddon } from "./addon.js";
import type { LegacyChainNames, LegacyRemoval } from "./legacy-tables.js";
import { NativeCalls, rethrowLater } from "./native-calls.js";
import { translate } from "./native-error.js";
import { readObjects } from "./objects.js";
import type {
  NativeAddressCallback,
  NativeBatch,
  NativeConnection,
  NativeMonitor,
  NativeMonitorCallback,
  NativeOpenOptions,
  NativeTraceCallback,
} from "./nft-addon.js";
import type {
  AddressHandlers,
  ChainInfo,
  ChangeBatch,
  CommitOptions,
  CommitResult,
  ElementBatch,
  Family,
  Generation,
  InterfaceAddress,
  Kernel,
  LinkHandlers,
  Monitor,
  MonitorHandlers,
  MonitorOptions,
  ObjectInfo,
  Op,
  RuleInfo,
  SetDump,
  SetInfo,
  TableInfo,
  TableRef,
  TraceEvent,
  TraceHandlers,
} from "./kernel.js";

export interface NftKernelOptions {
  /** Path of a network namespace (`/run/netns/NAME`, `/proc/PID/ns/net`). Absent: the process's own. */
  readonly netns?: string;
  /** Listeners to nf_tables events are told this name with each commit; at most 15 bytes. Default "nft-proxier". */
  readonly programName?: string;
  /** Send buffer to begin with, bytes; it grows with the batches as far as the kernel lets it. */
  readonly sendBufferBytes?: number;
  /** Receive buffer of a monitor, bytes. Default 64 MiB (1 MiB to watch addresses), or what net.core.rmem_max allows. */
  readonly receiveBufferBytes?: number;
}

/** Time that reading operations may take before the event loop gets its turn, ms. */
const SLICE_MS = 5;

/**
 * How long a table of the older iptables may be, bytes: it is read whole, and in the worst case written whole. Of the memory that this
 * process may still use, by its control group's limit as well; a process that is ended for its size would be ended again and again.
 */
function memoryForTables(): number {
  const available = process.availableMemory();
  // Where the kernel has no control groups Node says 0 (libuv 1.51 asks /proc/self/cgroup first), as it does for a limit that is used up.
  const unlimited = available === 0 && process.constrainedMemory() === 0;
  return Math.floor((unlimited ? freemem() : available) / 3);
}

/** nf_tables in one network namespace. See `Kernel`. */
export class NftKernel implements Kernel {
  readonly #addon: NativeAddon;
  readonly #connection: NativeConnection;
  readonly #calls = new NativeCalls("connection");
  /** Settles when the last commit so far is done: commits keep the order of their calls. */
  #lastCommit: Promise<unknown> = Promise.resolve();
  #portId: number;

  private constructor(addon: NativeAddon, connection: NativeConnection) {
    this.#addon = addon;
    this.#connection = connection;
    this.#portId = addon.portId(connection);
  }

  /**
   * Opens the namespace's nf_tables. Fails with "addon", "no-permission" (CAP_NET_ADMIN, or CAP_SYS_ADMIN to enter
   * another namespace), "no-nftables" or "system" (no such namespace).
   */
  static async open(options: NftKernelOptions = {}): Promise<NftKernel> {
    const addon = loadAddon();
    const { programName: name, ...rest } = options;
    const native: NativeOpenOptions = name === undefined ? rest : { ...rest, name };
    try {
      return new NftKernel(addon, await addon.open(native));
    } catch (error) {
      throw translate(error, "open");
    }
  }

  get portId(): number {
    if (!this.#calls.closed) this.#portId = this.#addon.portId(this.#connection);
    return this.#portId;
  }

  async commit(ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> {
    return this.#calls.run("commit", async () => {
      const previous = this.#lastCommit;
      const prepared = this.#prepare(ops, options);
      const commit = (async () => {
        // Both at once: the bytes are copied while the kernel is busy with the commit before.
        const [batch] = await Promise.all([prepared, previous]);
        return this.#addon.commit(this.#connection, batch);
      })();
      this.#lastCommit = commit.catch(() => undefined);
      return commit;
    });
  }

  /** Reads the operations, and yields to the event loop when there are many. What is synchronous stays synchronous. */
  async #prepare(ops: readonly Op[], options?: CommitOptions): Promise<NativeBatch> {
    const batch = this.#addon.createBatch(ops, options);
    while (!this.#addon.prepareBatch(batch, SLICE_MS)) await yieldToEventLoop();
    return batch;
  }

  async generation(): Promise<Generation> {
    return this.#calls.run("generation", async () => this.#addon.generation(this.#connection));
  }

  async tables(family?: Family): Promise<TableInfo[]> {
    return this.#calls.run("dump tables", async () => this.#addon.tables(this.#connection, family));
  }

  async chains(table: TableRef, names?: readonly string[]): Promise<ChainInfo[]> {
    return this.#calls.run("dump chains", async () => this.#addon.chains(this.#connection, table, names));
  }

  async rules(table: TableRef, chain?: string): Promise<RuleInfo[]> {
    return this.#calls.run("dump rules", async () => this.#addon.rules(this.#connection, table, chain));
  }

  async sets(table: TableRef): Promise<SetDump[]> {
    return this.#calls.run("dump sets", async () => this.#addon.sets(this.#connection, table));
  }

  async objects(table: TableRef): Promise<ObjectInfo[]> {
    return readObjects(this, table);
  }

  async elements(table: TableRef, set: SetInfo): Promise<ElementBatch> {
    return this.#calls.run("dump elements", async () => this.#addon.elements(this.#connection, table, set));
  }

  async addresses(): Promise<InterfaceAddress[]> {
    return this.#calls.run("dump addresses", async () => this.#addon.addresses(this.#connection));
  }

  /**
   * Sends one netlink message to the kernel and returns the messages that it answers, padded, without the last one that says
   * that it is done; empty for an acknowledgement. `protocol` is of `NetlinkProtocol`. A dump that was interrupted is read again.
   * Fails with the kernel's errno, "invalid" where `request` is not one whole request.
   */
  async exchange(protocol: number, request: Uint8Array): Promise<Uint8Array> {
    return this.#calls.run("netlink request", async () => this.#addon.exchange(this.#connection, protocol, request));
  }

  /**
   * Names of the chains that users made in a table of the older iptables (ip_tables, ip6_tables), which nf_tables knows nothing
   * of. Ask only for tables named in /proc/net/ip_tables_names or ip6_tables_names: the kernel makes one that is not there. Like the
   * next three it reads the whole table, as the kernel has no other way, and fails with "too-large" where the memory for it is not there.
   */
  async legacyChains(family: "ip" | "ip6", table: string): Promise<string[]> {
    return this.#calls.run("read iptables table", async () =>
      this.#addon.legacyChains(this.#connection, { family, table }, memoryForTables()),
    );
  }

  /** How many rules one of these chains has; 0 where it is not there. Ask, too, only for tables that are there. */
  async legacyRules(family: "ip" | "ip6", table: string, chain: string): Promise<number> {
    return this.#calls.run("read iptables table", async () =>
      this.#addon.legacyRules(this.#connection, { family, table }, chain, memoryForTables()),
    );
  }

  /** Whether the chain FORWARD of the older iptables' table drops by policy. Ask, too, only for tables that are there. */
  async legacyForwardDrops(family: "ip" | "ip6", table: string): Promise<boolean> {
    return this.#calls.run("read iptables table", async () =>
      this.#addon.legacyForwardDrops(this.#connection, { family, table }, memoryForTables()),
    );
  }

  /**
   * Takes a program's chains out of a table of the older iptables, with the rules of built-in chains that jump to them, in one step for
   * packets (IPT_SO_SET_REPLACE). Other programs' rules stay as they are, with their counters; own chains that those use stay, too, with
   * all that they lead to. `lockFile` is what iptables locks (flock) while it writes; it is not made. Only for tables that are there.
   * Fails, and leaves the table as it is, with `errno` "EAGAIN" when another process holds the lock or keeps changing the table, and with
   * "system" when the table is none that iptables could have written.
   */
  async removeLegacyChains(
    family: "ip" | "ip6",
    table: string,
    own: LegacyChainNames,
    lockFile: string,
  ): Promise<LegacyRemoval> {
    return this.#calls.run("replace iptables table", async () =>
      this.#addon.removeLegacyChains(this.#connection, { family, table }, own, {
        lockFile,
        mostBytes: memoryForTables(),
      }),
    );
  }

  /**
   * What a table of the older iptables looks like from without: its length, its number of entries, and where its built-in chains are
   * (IPT_SO_GET_INFO), in one word. The same while the table is; costs the same for a table of any length. Ask, too, only for tables that
   * are there.
   */
  async legacyLayout(family: "ip" | "ip6", table: string): Promise<string> {
    const words = await this.#calls.run("read iptables table", async () =>
      this.#addon.legacyLayout(this.#connection, { family, table }),
    );
    return words.join(" ");
  }

  /**
   * Subscribed when the promise resolves. Handlers must not throw: what they throw surfaces as an uncaught exception.
   * The event loop stays alive until the monitor is closed.
   */
  async monitor(handlers: MonitorHandlers, options: MonitorOptions = {}): Promise<Monitor> {
    return this.#calls.run("monitor", async () => {
      const native = { tables: options.tables, skipPort: options.skipOwn === false ? undefined : this.portId };
      return this.#opened(await this.#addon.monitor(this.#connection, native, deliver(handlers)));
    });
  }

  /** As `monitor`. */
  async watchAddresses(handlers: AddressHandlers): Promise<Monitor> {
    return this.#calls.run("watch addresses", async () =>
      this.#opened(await this.#addon.watchAddresses(this.#connection, deliverAddresses(handlers))),
    );
  }

  /**
   * Packets whose `meta nftrace` a rule has set, by whatever process, as rules meet them. As `monitor`; a listener costs commits nothing (the
   * group is NFNLGRP_NFTRACE), and packets that are not traced next to nothing.
   */
  async trace(handlers: TraceHandlers): Promise<Monitor> {
    return this.#calls.run("trace", async () =>
      this.#opened(await this.#addon.trace(this.#connection, deliverTraces(handlers))),
    );
  }

  /** Names of all network interfaces by their index. */
  async interfaceNames(): Promise<ReadonlyMap<number, string>> {
    return this.#calls.run("dump interfaces", async () => {
      const links = await this.#addon.links(this.#connection);
      return new Map(links.map(({ index, name }) => [index, name]));
    });
  }

  /** As `monitor`: that `interfaceNames()` may have another answer than before. */
  async watchLinks(handlers: LinkHandlers): Promise<Monitor> {
    return this.#calls.run("watch interfaces", async () =>
      this.#opened(await this.#addon.watchLinks(this.#connection, deliverAddresses(handlers))),
    );
  }

  #opened(handle: NativeMonitor): Monitor {
    return this.#calls.stream(() => this.#addon.closeMonitor(handle));
  }

  /**
   * Gives the system back what large commits and dumps have left behind, and has the heap collected beside other work: for the
   * quiet after them. Resolves when the former is done.
   */
  async releaseMemory(): Promise<void> {
    return this.#calls.run("release memory", async () => this.#addon.releaseMemory());
  }

  /** Waits for what runs, closes monitors and sockets. Calls after this fail with "closed". */
  async close(): Promise<void> {
    return this.#calls.end(() => this.#addon.close(this.#connection));
  }
}

/** Handlers as the addon's one callback, which must not throw. */
function deliver(handlers: MonitorHandlers): NativeMonitorCallback {
  return (kind, value) =>
    rethrowLater(() => {
      if (kind === "batch") handlers.onBatch(value as ChangeBatch);
      else if (kind === "lost") handlers.onLost();
      else handlers.onError(translate(value, "monitor") as Error);
    });
}

function deliverAddresses(handlers: AddressHandlers | LinkHandlers): NativeAddressCallback {
  return (kind, value) =>
    rethrowLater(() => {
      if (kind === "change") handlers.onChange();
      else if (kind === "lost") handlers.onLost();
      else handlers.onError(translate(value, "watch addresses") as Error);
    });
}

function deliverTraces(handlers: TraceHandlers): NativeTraceCallback {
  return (kind, value) =>
    rethrowLater(() => {
      if (kind === "events") handlers.onEvents(value as readonly TraceEvent[]);
      else if (kind === "lost") handlers.onLost();
      else handlers.onError(translate(value, "trace") as Error);
    });
}
