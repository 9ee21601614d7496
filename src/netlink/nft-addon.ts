/**
 * The addon's functions for nf_tables and addresses, with their types. Errors, thrown or rejected, are `NativeError`s; a getter
 * that throws passes through as it is.
 */
import type {
  ChainInfo,
  CommitOptions,
  CommitResult,
  ElementBatch,
  Family,
  Generation,
  Op,
  RuleInfo,
  SetDump,
  SetInfo,
  TableInfo,
  TableRef,
} from "./kernel.js";

/** Handles: only what made one can take it. */
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
  /** Of the thread that commits. */
  readonly name?: string;
  readonly sendBufferBytes?: number;
  readonly receiveBufferBytes?: number;
}

export interface NativeMonitorOptions {
  readonly tables?: readonly TableRef[];
  /** Skip what was committed from this port. */
  readonly skipPort?: number;
}

/** Receives events: of a kind that the stream has, with a value, or "lost", or "error" with what ended the stream. Must not throw. */
export type NativeEventCallback = (kind: string, value: unknown) => void;

/** The names of a program's chains in one table of the older iptables. */
export interface LegacyChainNames {
  /** Those that built-in chains jump to: such a jump is the program's own, whatever else the rule matches. */
  readonly entries: readonly string[];
  readonly others: readonly string[];
  /** Of chains that are many. */
  readonly prefixes: readonly string[];
}

/** What was taken out of a table of the older iptables. */
export interface LegacyRemoval {
  /** How many chains. */
  readonly chains: number;
  /** How many rules of built-in chains, which jumped to them. */
  readonly jumps: number;
  /** Chains that another program's rules jump to: they stay, with all that they lead to. `user`: "a rule of chain DOCKER". */
  readonly kept: readonly { readonly chain: string; readonly user: string }[];
  /** False when another process changed the table right behind: the counters of all rules in it begin at 0. */
  readonly countersKept: boolean;
  /** Why the lock was not taken; absent: it was. */
  readonly unlocked?: string;
}

export interface InterfaceAddress {
  readonly family: "ip" | "ip6";
  /** 4 or 16 bytes. */
  readonly address: Uint8Array;
  readonly prefixLength: number;
  readonly interfaceIndex: number;
  readonly interfaceName: string;
}

export interface NativeNftAddon {
  open(options?: NativeOpenOptions): Promise<NativeConnection>;
  close(connection: NativeConnection): void;
  portId(connection: NativeConnection): number;
  createBatch(ops: readonly Op[], options?: CommitOptions): NativeBatch;
  /** Works for about `milliseconds`; true when the batch is ready. */
  prepareBatch(batch: NativeBatch, milliseconds: number): boolean;
  commit(connection: NativeConnection, batch: NativeBatch): Promise<CommitResult>;
  generation(connection: NativeConnection): Promise<Generation>;
  tables(connection: NativeConnection, family?: Family): Promise<TableInfo[]>;
  chains(connection: NativeConnection, table: TableRef, names?: readonly string[]): Promise<ChainInfo[]>;
  rules(connection: NativeConnection, table: TableRef, chain?: string): Promise<RuleInfo[]>;
  sets(connection: NativeConnection, table: TableRef): Promise<SetDump[]>;
  elements(connection: NativeConnection, table: TableRef, set: SetInfo): Promise<ElementBatch>;
  addresses(connection: NativeConnection): Promise<InterfaceAddress[]>;
  /** Network interfaces by their index. */
  links(connection: NativeConnection): Promise<{ readonly index: number; readonly name: string }[]>;
  /** The messages of the kernel's answer to one netlink message; see `NetlinkConnection.exchange`. */
  exchange(connection: NativeConnection, protocol: number, request: Uint8Array): Promise<Uint8Array>;
  /** Where the chains of a table of the older iptables are; see `LegacyTables.layout`. */
  legacyLayout(connection: NativeConnection, table: TableRef): Promise<Uint32Array>;
  /** Chains that users made in a table of the older iptables; see `LegacyTables.chains`. Fails with "too-large" beyond `mostBytes`. */
  legacyChains(connection: NativeConnection, table: TableRef, mostBytes: number): Promise<string[]>;
  /** How many rules such a chain has; see `LegacyTables.rules`. Fails with "too-large" beyond `mostBytes`. */
  legacyRules(connection: NativeConnection, table: TableRef, chain: string, mostBytes: number): Promise<number>;
  /** Whether a table's chain FORWARD drops by policy; see `LegacyTables.forwardDrops`. */
  legacyForwardDrops(connection: NativeConnection, table: TableRef, mostBytes: number): Promise<boolean>;
  /** See `LegacyTables.remove`. */
  removeLegacyChains(
    connection: NativeConnection,
    table: TableRef,
    own: LegacyChainNames,
    options: { readonly lockFile: string; readonly mostBytes: number },
  ): Promise<LegacyRemoval>;
  /** Each event is a "batch" with its `ChangeBatch`. */
  monitor(
    connection: NativeConnection,
    options: NativeMonitorOptions,
    callback: NativeEventCallback,
  ): Promise<NativeMonitor>;
  /** Each event is a "change". */
  watchAddresses(connection: NativeConnection, callback: NativeEventCallback): Promise<NativeMonitor>;
  /** As `watchAddresses`, of links. */
  watchLinks(connection: NativeConnection, callback: NativeEventCallback): Promise<NativeMonitor>;
  /** Each event is "events" with several `TraceEvent`s. */
  trace(connection: NativeConnection, callback: NativeEventCallback): Promise<NativeMonitor>;
  /** For all kinds. */
  closeMonitor(monitor: NativeMonitor): void;
  /** Memory that is free, and not the system's yet, goes back to it; V8 begins to collect, in steps. */
  releaseMemory(): Promise<void>;
  /**
   * From here on SIGTERM and SIGINT end the process at once with 128 + the signal's number, until others handle them. Gives the one of the two
   * that had its default action while the other had a handler: Node handles both as it boots, for one signal each (SA_RESETHAND), so this one came.
   */
  exitAtEndSignals(): "SIGTERM" | "SIGINT" | undefined;
  /** An inotify instance. `ready` is called on the main thread, once for each `inotifyAwait`. */
  inotifyOpen(ready: () => void): NativeInotify;
  /** Watches a file or directory; its watch descriptor. Returns undefined if there is none. */
  inotifyAdd(inotify: NativeInotify, path: string, mask: number): number | undefined;
  /** Succeeds if there is no such watch. */
  inotifyRemove(inotify: NativeInotify, watch: number): void;
  /** Has `ready` called when there are events. Keeps the event loop alive until then. */
  inotifyAwait(inotify: NativeInotify): void;
  /** Events that are there, 32 KiB of them at most. */
  inotifyRead(inotify: NativeInotify): { readonly watch: number; readonly mask: number; readonly name: string }[];
  inotifyClose(inotify: NativeInotify): void;
}
