import { yieldToEventLoop } from "../../base/time-slice.js";
import { CommitCounts } from "./commit-counts.js";
import type {
  ChainInfo,
  ChangeBatch,
  CommitOptions,
  CommitResult,
  ElementBatch,
  Family,
  Generation,
  Kernel,
  Monitor,
  MonitorHandlers,
  MonitorOptions,
  ObjectDump,
  ObjectInfo,
  ObjectRef,
  Op,
  RuleInfo,
  SetDump,
  SetInfo,
  TableInfo,
  TableRef,
  TraceEvent,
  TraceHandlers,
} from "./kernel.js";
import { LegacyTables } from "./legacy-tables.js";
import { type ConnectionOptions, NetlinkConnection } from "./netlink-connection.js";
import { NetworkInterfaces } from "./network-interfaces.js";
import type { NativeBatch } from "./nft-addon.js";
import { readFlowtables } from "./read-flowtables.js";

/** Maximum time for reading operations before a yield to the event loop, ms. */
const SLICE_MS = 5;

/** The running kernel's nf_tables in one network namespace (see `Kernel`). `interfaces` and `legacy` share its connection. */
export class NftKernel implements Kernel {
  readonly connection: NetlinkConnection;
  readonly interfaces: NetworkInterfaces;
  readonly legacy: LegacyTables;
  /** Settles when the last commit so far is done, because commits keep the order of their calls. */
  #lastCommit: Promise<unknown> = Promise.resolve();
  #portId: number;
  readonly committed = new CommitCounts();

  private constructor(connection: NetlinkConnection) {
    this.connection = connection;
    this.interfaces = new NetworkInterfaces(connection);
    this.legacy = new LegacyTables(connection);
    this.#portId = connection.addon.portId(connection.handle);
  }

  /** Rejects like `NetlinkConnection.open`. */
  static async open(options?: ConnectionOptions): Promise<NftKernel> {
    return new NftKernel(await NetlinkConnection.open(options));
  }

  get portId(): number {
    const { addon, handle, closed } = this.connection;
    if (!closed) this.#portId = addon.portId(handle);
    return this.#portId;
  }

  commit(ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> {
    return this.connection.run("commit", (addon, handle) => {
      const previous = this.#lastCommit;
      const prepared = this.#prepare(ops, options);
      const commit = (async () => {
        // Both at once, so that the bytes are copied while the kernel is busy with the previous commit.
        const [batch] = await Promise.all([prepared, previous]);
        const result = await addon.commit(handle, batch);
        if (ops.length > 0 && options?.dryRun !== true) this.committed.add(ops);
        return result;
      })();
      this.#lastCommit = commit.catch(() => undefined);
      return commit;
    });
  }

  /** Reads the operations, and yields to the event loop if there are many. A small batch is read synchronously. */
  async #prepare(ops: readonly Op[], options?: CommitOptions): Promise<NativeBatch> {
    const { addon } = this.connection;
    const batch = addon.createBatch(ops, options);
    while (!addon.prepareBatch(batch, SLICE_MS)) await yieldToEventLoop();
    return batch;
  }

  generation(): Promise<Generation> {
    return this.connection.run("generation", (addon, handle) => addon.generation(handle));
  }

  tables(family?: Family): Promise<TableInfo[]> {
    return this.connection.run("dump tables", (addon, handle) => addon.tables(handle, family));
  }

  chains(table: TableRef, names?: readonly string[]): Promise<ChainInfo[]> {
    return this.connection.run("dump chains", (addon, handle) => addon.chains(handle, table, names));
  }

  rules(table: TableRef, chain?: string): Promise<RuleInfo[]> {
    return this.connection.run("dump rules", (addon, handle) => addon.rules(handle, table, chain));
  }

  sets(table: TableRef): Promise<SetDump[]> {
    return this.connection.run("dump sets", (addon, handle) => addon.sets(handle, table));
  }

  async objects(table: TableRef): Promise<ObjectInfo[]> {
    const objects = await this.connection.run("dump objects", (addon, handle) => addon.objects(handle, table));
    return [...objects, ...(await readFlowtables(this.connection, table))];
  }

  object(table: TableRef, { object, objType }: ObjectRef, reset = false): Promise<ObjectDump | undefined> {
    return this.connection.run("read object", (addon, handle) => addon.object(handle, table, object, objType, reset));
  }

  elements(table: TableRef, set: SetInfo): Promise<ElementBatch> {
    return this.connection.run("dump elements", (addon, handle) => addon.elements(handle, table, set));
  }

  monitor(handlers: MonitorHandlers, options: MonitorOptions = {}): Promise<Monitor> {
    const onBatch = (batch: unknown): void => handlers.onBatch(batch as ChangeBatch);
    return this.connection.watch("monitor", handlers, onBatch, (addon, handle, callback) => {
      const native = { tables: options.tables, skipPort: options.skipOwn === false ? undefined : this.portId };
      return addon.monitor(handle, native, callback);
    });
  }

  /**
   * Reports the rules that match packets whose `meta nftrace` a rule of any process has set. Like `monitor`, but a listener does not slow down
   * commits (the group is NFNLGRP_NFTRACE), and hardly slows down packets that are not traced.
   */
  trace(handlers: TraceHandlers): Promise<Monitor> {
    const onEvents = (events: unknown): void => handlers.onEvents(events as readonly TraceEvent[]);
    return this.connection.watch("trace", handlers, onEvents, (addon, handle, callback) =>
      addon.trace(handle, callback),
    );
  }

  close(): Promise<void> {
    return this.connection.close();
  }
}
