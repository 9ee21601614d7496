/**
 * Types of the addon's functions for connection tracking. They pass entries as bytes, in the format of src/nft/conntrack/decode.ts.
 * All errors are `NativeError`s.
 */
import type { NativeMonitor, NativeOpenOptions } from "./nft-addon.js";

/** A handle. Pass it only to functions of the addon that created it. */
export interface NativeConntrack {
  readonly brand: "conntrack table";
}
interface NativeConntrackDump {
  readonly brand: "conntrack dump";
}

/**
 * Consecutive records of `stride` bytes each: FULL_BYTES, KEY_BYTES, or SHORT_BYTES with four addresses of 4 bytes.
 */
export interface NativeRecords {
  readonly stride: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

export interface NativePiece {
  readonly blocks: readonly NativeRecords[];
  /** Whether this is the last piece. */
  readonly done: boolean;
  /** Number of entries that the kernel has sent so far. */
  readonly seen: number;
  readonly interrupted: boolean;
  /** Number of this piece's entries that match the filter, prefiltered or not, and how many of these have seen a reply. */
  readonly matched: number;
  readonly answered: number;
}

/** A prefilter as bytes. `family` is AF_INET or AF_INET6. */
export interface NativePrefilter {
  readonly family: number;
  readonly destinations: Uint8Array;
  readonly lists: Uint8Array;
  readonly endpoints: Uint8Array;
}

export interface DeleteResult {
  readonly deleted: number;
  /** Already gone, or replaced by another entry with the same tuple. */
  readonly absent: number;
  readonly interrupted: boolean;
}

interface NativeListDeletion extends DeleteResult {
  /** Indices of the keys without an entry. */
  readonly absentAt: Uint32Array;
}

/** Counters since boot, summed over all CPUs (CTA_STATS_*). */
export interface ConntrackStats {
  readonly found: number;
  readonly invalid: number;
  readonly insert: number;
  readonly insertFailed: number;
  readonly drop: number;
  readonly earlyDrop: number;
  readonly error: number;
}

/** A change, with the mask of the mark. */
export interface NativeChange {
  readonly timeout?: number;
  readonly mark?: number;
  readonly markMask?: number;
}

export type NativeConntrackCallback = (
  kind: "events" | "lost" | "error",
  value: readonly NativeRecords[] | Error | undefined,
) => void;

/** `filter` has one value and one mask per pattern, KEY_BYTES each. A key has KEY_BYTES, an entry FULL_BYTES. */
export interface NativeConntrackAddon {
  conntrackOpen(options?: NativeOpenOptions): Promise<NativeConntrack>;
  conntrackClose(table: NativeConntrack): void;
  conntrackTotals(table: NativeConntrack): Promise<{ readonly entries: number; readonly max?: number }>;
  conntrackCounts(table: NativeConntrack): Promise<ConntrackStats>;
  /** Starts a dump. Only the first read checks the prefilter, and fails if it is malformed. */
  conntrackDump(table: NativeConntrack, filter: Uint8Array, prefilter?: NativePrefilter): NativeConntrackDump;
  /** Resolves to the next piece, of at most some 1,500 entries. Calls may overlap, and each gets another piece. */
  conntrackRead(dump: NativeConntrackDump): Promise<NativePiece>;
  conntrackLookup(table: NativeConntrack, key: Uint8Array): Promise<NativeRecords | undefined>;
  conntrackCreate(table: NativeConntrack, entry: Uint8Array): Promise<void>;
  conntrackChange(table: NativeConntrack, key: Uint8Array, change: NativeChange): Promise<void>;
  conntrackDelete(table: NativeConntrack, keys: Uint8Array): Promise<NativeListDeletion>;
  conntrackDeleteMatching(table: NativeConntrack, filter: Uint8Array): Promise<DeleteResult>;
  /** The callback must not throw. `NativeNftAddon.closeMonitor` ends the watch. */
  conntrackWatch(
    table: NativeConntrack,
    options: { readonly created?: boolean; readonly destroyed?: boolean },
    callback: NativeConntrackCallback,
  ): Promise<NativeMonitor>;
}
