/**
 * The addon's functions for connection tracking, with their types. Entries cross as bytes: src/conntrack/table/decode.ts.
 * Errors, thrown or rejected, are `NativeError`s.
 */
import type { NativeMonitor, NativeOpenOptions } from "./nft-addon.js";

/** Handles: only what made one can take it. */
export interface NativeConntrack {
  readonly brand: "conntrack table";
}
export interface NativeConntrackDump {
  readonly brand: "conntrack dump";
}

/**
 * Some records, one after the other, `stride` bytes each: FULL_BYTES, KEY_BYTES, or SHORT_BYTES with four addresses of 4
 * bytes.
 */
export interface NativeRecords {
  readonly stride: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

export interface NativePiece {
  readonly blocks: readonly NativeRecords[];
  /** There is nothing behind this piece. */
  readonly done: boolean;
  /** Entries that the kernel sent so far. */
  readonly seen: number;
  readonly interrupted: boolean;
  /** Of this piece: entries that the filter matches, prefiltered or not, and how many of these have been answered. */
  readonly matched: number;
  readonly answered: number;
}

/** A prefilter as bytes; `family` is AF_INET or AF_INET6. */
export interface NativePrefilter {
  readonly family: number;
  readonly destinations: Uint8Array;
  readonly lists: Uint8Array;
  readonly endpoints: Uint8Array;
}

export interface NativeDeletion {
  readonly deleted: number;
  readonly absent: number;
  readonly interrupted: boolean;
}

export interface NativeListDeletion extends NativeDeletion {
  /** Positions of the absent ones among the keys. */
  readonly absentAt: Uint32Array;
}

export interface NativeCounts {
  readonly found: number;
  readonly invalid: number;
  readonly insert: number;
  readonly insertFailed: number;
  readonly drop: number;
  readonly earlyDrop: number;
  readonly error: number;
}

export interface NativeChange {
  readonly timeout?: number;
  readonly mark?: number;
  readonly markMask?: number;
}

export type NativeConntrackCallback = (
  kind: "events" | "lost" | "error",
  value: readonly NativeRecords[] | Error | undefined,
) => void;

/** `filter`: value and mask of each pattern, KEY_BYTES each. Keys are KEY_BYTES, entries FULL_BYTES long. */
export interface NativeConntrackAddon {
  conntrackOpen(options?: NativeOpenOptions): Promise<NativeConntrack>;
  conntrackClose(table: NativeConntrack): void;
  conntrackTotals(table: NativeConntrack): Promise<{ readonly entries: number; readonly max?: number }>;
  conntrackCounts(table: NativeConntrack): Promise<NativeCounts>;
  /** The prefilter is checked by the first read, which fails when it is malformed. */
  conntrackDump(table: NativeConntrack, filter: Uint8Array, prefilter?: NativePrefilter): NativeConntrackDump;
  /** What is handed over next, some 1,500 entries at most. Calls may overlap; each gets a piece of its own. */
  conntrackRead(dump: NativeConntrackDump): Promise<NativePiece>;
  conntrackLookup(table: NativeConntrack, key: Uint8Array): Promise<NativeRecords | undefined>;
  conntrackCreate(table: NativeConntrack, entry: Uint8Array): Promise<void>;
  conntrackChange(table: NativeConntrack, key: Uint8Array, change: NativeChange): Promise<void>;
  conntrackDelete(table: NativeConntrack, keys: Uint8Array): Promise<NativeListDeletion>;
  conntrackDeleteMatching(table: NativeConntrack, filter: Uint8Array): Promise<NativeDeletion>;
  /** The callback must not throw. `NativeNftAddon.closeMonitor` ends it. */
  conntrackWatch(
    table: NativeConntrack,
    options: { readonly created?: boolean; readonly destroyed?: boolean },
    callback: NativeConntrackCallback,
  ): Promise<NativeMonitor>;
}
