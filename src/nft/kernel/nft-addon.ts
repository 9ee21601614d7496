/**
 * Types of the addon's functions for nf_tables and addresses. All errors are `NativeError`s, except that an exception of a getter in an
 * argument passes through unchanged.
 */
import type { CommitOptions, CommitResult, Kernel, ObjectDump, Op, TableRef } from "./kernel.js";

/** A handle. Pass it only to functions of the addon that created it. */
export interface NativeConnection {
  readonly brand: "connection";
}
export interface NativeBatch {
  readonly brand: "batch";
}
export interface NativeMonitor {
  readonly brand: "monitor";
}

export interface NativeInotify {
  readonly brand: "directory watcher";
}

export interface NativeOpenOptions {
  readonly netns?: string;
  /** Name of the thread that commits. */
  readonly name?: string;
  readonly sendBufferBytes?: number;
  readonly receiveBufferBytes?: number;
}

interface NativeMonitorOptions {
  readonly tables?: readonly TableRef[];
  /** Skip changes committed from this port. */
  readonly skipPort?: number;
}

/** Receives events: one of the stream's own kinds with a value, "lost", or "error" with the error that ended the stream. Must not throw. */
export type NativeEventCallback = (kind: string, value: unknown) => void;

export interface InterfaceAddress {
  readonly family: "ip" | "ip6";
  /** 4 or 16 bytes. */
  readonly address: Uint8Array;
  readonly prefixLength: number;
  readonly interfaceIndex: number;
  readonly interfaceName: string;
}

/** The user-defined chains of a table, with the number of rules in each, and the policy of its chain FORWARD. */
export interface NativeLegacyTable {
  readonly chains: readonly string[];
  readonly rules: Uint32Array;
  readonly forwardDrops: boolean;
}

/** Calls of `Kernel`, on a connection. */
type KernelCalls = {
  readonly [Name in "generation" | "tables" | "chains" | "rules" | "sets" | "elements"]: (
    connection: NativeConnection,
    ...args: Parameters<Kernel[Name]>
  ) => ReturnType<Kernel[Name]>;
};

export interface NativeNftAddon extends KernelCalls {
  open(options?: NativeOpenOptions): Promise<NativeConnection>;
  close(connection: NativeConnection): void;
  portId(connection: NativeConnection): number;
  createBatch(ops: readonly Op[], options?: CommitOptions): NativeBatch;
  /** Works for about `milliseconds`. Returns true if the batch is ready. */
  prepareBatch(batch: NativeBatch, milliseconds: number): boolean;
  commit(connection: NativeConnection, batch: NativeBatch): Promise<CommitResult>;
  objects(connection: NativeConnection, table: TableRef): Promise<ObjectDump[]>;
  object(
    connection: NativeConnection,
    table: TableRef,
    object: string,
    objType: number,
    reset: boolean,
  ): Promise<ObjectDump | undefined>;
  addresses(connection: NativeConnection): Promise<InterfaceAddress[]>;
  /** Resolves to all network interfaces. */
  links(connection: NativeConnection): Promise<{ readonly index: number; readonly name: string }[]>;
  /** Resolves to the messages of the kernel's answer to one netlink message. See `NetlinkConnection.exchange`. */
  exchange(connection: NativeConnection, protocol: number, request: Uint8Array): Promise<Uint8Array>;
  /** See `LegacyTables.layout`. */
  legacyLayout(connection: NativeConnection, table: TableRef): Promise<Uint32Array>;
  /** See `LegacyTables`. Fails with "too-large" beyond `mostBytes`. */
  legacyTable(connection: NativeConnection, table: TableRef, mostBytes: number): Promise<NativeLegacyTable>;
  /** Each event is a "batch" with its `ChangeBatch`. */
  monitor(
    connection: NativeConnection,
    options: NativeMonitorOptions,
    callback: NativeEventCallback,
  ): Promise<NativeMonitor>;
  /** Each event is a "change". */
  watchAddresses(connection: NativeConnection, callback: NativeEventCallback): Promise<NativeMonitor>;
  /** Like `watchAddresses`, for links. */
  watchLinks(connection: NativeConnection, callback: NativeEventCallback): Promise<NativeMonitor>;
  /** Each event is "events" with several `TraceEvent`s. */
  trace(connection: NativeConnection, callback: NativeEventCallback): Promise<NativeMonitor>;
  /** Closes monitors of all kinds. */
  closeMonitor(monitor: NativeMonitor): void;
  /** Returns free memory to the system, and makes V8 start a garbage collection in steps. */
  releaseMemory(): Promise<void>;
  /**
   * Returns the memory of Node's copy of the startup snapshot, from which this process has started: 8 MB that V8 has read. From then on, a
   * worker thread or another context (`node:vm`) would end the process. Does nothing if it finds no copy of the file at `path`.
   */
  releaseStartupSnapshot(path: string): Promise<void>;
  /**
   * From now on, SIGTERM and SIGINT end the process at once with 128 + the signal's number, until they get other handlers. Returns the signal that
   * came before: it has its default action while the other has a handler, because Node's handlers at boot work only once (SA_RESETHAND).
   */
  exitAtEndSignals(): "SIGTERM" | "SIGINT" | undefined;
  /** Opens an inotify instance. `ready` is called on the main thread, once per `inotifyAwait`. */
  inotifyOpen(ready: () => void): NativeInotify;
  /** Watches a file or directory. Returns its watch descriptor, or undefined if it does not exist. */
  inotifyAdd(inotify: NativeInotify, path: string, mask: number): number | undefined;
  /** Succeeds if there is no such watch. */
  inotifyRemove(inotify: NativeInotify, watch: number): void;
  /** Calls `ready` when there are events. Keeps the event loop alive until then. */
  inotifyAwait(inotify: NativeInotify): void;
  /** Returns the available events, at most 32 KiB of them. */
  inotifyRead(inotify: NativeInotify): { readonly watch: number; readonly mask: number; readonly name: string }[];
  inotifyClose(inotify: NativeInotify): void;
}
