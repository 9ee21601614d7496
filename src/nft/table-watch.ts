/** Listens to other processes' changes of our tables. */
import { Backoff } from "../base/backoff.js";
import type { ChangeBatch, Kernel, Monitor } from "./kernel/kernel.js";
import { check } from "./language/fields/field-error.js";
import { watchHandlers, watchOptions } from "./statements/checks.js";
import type { Table } from "./table.js";

/** A change of one table by another process in one transaction. */
export interface ForeignChange {
  /** In words, one line per object. */
  readonly changes: readonly string[];
  /** Netlink port of the other process's socket. */
  readonly portId: number;
  /** Whether the table itself was added or deleted, or got other flags. */
  readonly ofTable: boolean;
  /** The other process, if the kernel named it. `pid` is the thread's. */
  readonly process?: { readonly pid: number; readonly name: string };
}

export interface WatchHandlers {
  /** The table has noted the change: its next apply repairs it. */
  changed(table: Table, change: ForeignChange): void;
  /** Events were lost for a while, and every table has noted it. Not called again before the next read. */
  lost(reason: string): void;
  /** Nobody is listening. The next attempt is in `againMs`. */
  failed(error: unknown, againMs: number): void;
}

export interface WatchOptions {
  /** First wait before reopening a monitor that ended, ms. It doubles up to `longestWaitMs`. Defaults: 1 s and 60 s. */
  readonly firstWaitMs?: number;
  readonly longestWaitMs?: number;
}

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 60_000;

/** Listens for changes by other processes to our tables. Throws FieldError. */
export class TableWatch {
  readonly #kernel: Kernel;
  readonly #tables: readonly Table[];
  readonly #handlers: WatchHandlers;
  readonly #backoff: Backoff;
  #monitor: Monitor | undefined;
  #opening: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  #opened = false;
  /** Port of our commits when the monitor was opened. The monitor ignores changes from this port. */
  #port = 0;
  #closed = false;

  /**
   * Creates a watch, which listens after `open()`.
   * @example
   * const watch = new TableWatch(kernel, [table], {
   *   changed: (changed, { changes, process }) => {
   *     console.log(process?.name, changes);
   *     void changed.apply();
   *   },
   *   lost: (reason) => console.log(reason),
   *   failed: (error, againMs) => console.log(error, againMs),
   * });
   * await watch.open();
   */
  constructor(kernel: Kernel, tables: readonly Table[], handlers: WatchHandlers, options: WatchOptions = {}) {
    check(watchHandlers, "handlers", handlers);
    check(watchOptions, "options", options);
    this.#kernel = kernel;
    this.#tables = tables;
    this.#handlers = handlers;
    const { firstWaitMs: firstMs = FIRST_WAIT_MS, longestWaitMs: longestMs = LONGEST_WAIT_MS } = options;
    this.#backoff = new Backoff({ firstMs, longestMs });
  }

  /**
   * Resolves when it is listening, or has scheduled a retry. Call it before the tables are read. Never fails.
   * @example
   * await watch.open();
   */
  open(): Promise<void> {
    this.#opening = this.#open();
    return this.#opening;
  }

  /**
   * Ends listening. The tables then ask the kernel themselves whether others have changed it.
   * @example
   * await watch.close();
   */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#opening;
    await this.#stop()?.close();
  }

  /** @returns the monitor to close. */
  #stop(): Monitor | undefined {
    const monitor = this.#monitor;
    this.#monitor = undefined;
    for (const table of this.#tables) table.listening(false);
    return monitor;
  }

  async #open(): Promise<void> {
    if (this.#closed) return;
    let ended: { readonly error: Error } | undefined;
    this.#port = this.#kernel.portId;
    try {
      const monitor = await this.#kernel.monitor(
        {
          onBatch: (batch) => this.#onBatch(batch),
          onLost: () => this.#lost("events were lost"),
          onError: (error) => {
            if (this.#monitor === undefined) ended = { error };
            else this.#again(error);
          },
        },
        this.#tables.some((table) => table.noticesAllTables) ? {} : { tables: this.#tables.map(({ ref }) => ref) },
      );
      if (ended !== undefined) {
        await monitor.close();
        throw ended.error;
      }
      this.#monitor = monitor;
      for (const table of this.#tables) table.listening(true);
      this.#backoff.reset();
    } catch (error) {
      this.#again(error);
      return;
    }
    // Before the first success, nothing has been read that could have changed since.
    if (this.#opened) this.#lost("events were not read for a while");
    this.#opened = true;
  }

  #onBatch(batch: ChangeBatch): void {
    if (this.#kernel.portId !== this.#port) {
      // Our commits now come from another port: a monitor for that port takes over.
      closeQuietly(this.#stop());
      void this.open();
    }
    for (const table of this.#tables) {
      const changes = table.notice(batch);
      if (changes.length === 0) continue;
      const { process, events, portId } = batch;
      const ofTable = events.some(({ kind, family }) => kind === "table" && family === table.ref.family);
      this.#handlers.changed(table, { changes, portId, ofTable, process });
    }
  }

  #lost(reason: string): void {
    const news = this.#tables.map((table) => table.eventsLost(reason));
    if (news.includes(true)) this.#handlers.lost(reason);
  }

  #again(error: unknown): void {
    closeQuietly(this.#stop());
    // Events are lost until it listens again.
    this.#opened = true;
    if (this.#closed) return;
    const waitMs = this.#backoff.next();
    this.#handlers.failed(error, waitMs);
    this.#timer = setTimeout(() => void this.open(), waitMs);
    this.#timer.unref();
  }
}

/** A monitor that has ended may fail to close. It is useless either way. */
function closeQuietly(monitor: Monitor | undefined): void {
  monitor?.close().catch(() => undefined);
}
