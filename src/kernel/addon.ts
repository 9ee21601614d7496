/**
 * Loads the C++ addon and gives it types. Nothing else in the program knows where it lies.
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { reasonOf } from "../base/unknown.js";
import type { NativeConntrackAddon } from "./conntrack-addon.js";
import { KernelError, type KernelErrorCode } from "./errors.js";
import type {
  ChainInfo,
  ChangeBatch,
  CommitOptions,
  CommitResult,
  ElementBatch,
  Family,
  Generation,
  InterfaceAddress,
  Op,
  RuleInfo,
  SetDump,
  SetInfo,
  TableInfo,
  TableRef,
} from "./types.js";

/** Handles of the addon: only what made one can take it. */
export interface NativeConnection {
  readonly brand: "connection";
}
export interface NativeBatch {
  readonly brand: "batch";
}
export interface NativeMonitor {
  readonly brand: "monitor";
}

export interface NativeOpenOptions {
  readonly netns?: string;
  readonly sendBufferBytes?: number;
  readonly receiveBufferBytes?: number;
}

export interface NativeMonitorOptions {
  readonly tables?: readonly TableRef[];
  /** Leave out what was committed from this port. */
  readonly skipPort?: number;
}

export type NativeMonitorCallback = (kind: "batch" | "lost" | "error", value: ChangeBatch | Error | undefined) => void;
export type NativeAddressCallback = (kind: "change" | "lost" | "error", value: Error | undefined) => void;

/** One netlink message in the form that tests look at. */
export interface DecodedMessage {
  readonly kind:
    "begin" | "end" | "table" | "chain" | "rule" | "set" | "elements" | "generation" | "error" | "done" | "unknown";
  /** nlmsg_type, nlmsg_flags and nlmsg_seq. */
  readonly type: number;
  readonly flags: number;
  readonly seq: number;
  readonly body: Readonly<Record<string, unknown>>;
  /** With the message that ends a commit: what the monitor would tell. */
  readonly changes?: ChangeBatch;
}

/** What the addon throws and rejects with; native-error.ts makes a KernelError of it. */
export interface NativeError extends Error {
  readonly code: KernelErrorCode;
  readonly action: string;
  /** 0: none. */
  readonly errno: number;
  readonly faults: readonly {
    readonly op: number;
    readonly element?: number;
    readonly errno: number;
    readonly text?: string;
  }[];
}

/**
 * The addon's functions. Errors, thrown or rejected, are `NativeError`s; a getter that throws passes through as it is.
 */
export interface NativeAddon extends NativeConntrackAddon {
  open(options?: NativeOpenOptions): Promise<NativeConnection>;
  close(connection: NativeConnection): void;
  portId(connection: NativeConnection): number;
  createBatch(ops: readonly Op[], options?: CommitOptions): NativeBatch;
  /** Works for about `milliseconds`; true when the batch is ready. */
  prepareBatch(batch: NativeBatch, milliseconds: number): boolean;
  commit(connection: NativeConnection, batch: NativeBatch): Promise<CommitResult>;
  /** The netlink bytes of a batch, its first sequence number being 1. Pure. */
  encodeBatch(ops: readonly Op[], options?: CommitOptions): Uint8Array;
  /** Every message of a buffer. Pure. */
  decodeMessages(bytes: Uint8Array): DecodedMessage[];
  /** The elements in a buffer of messages, as a dump of `set` collects them. Pure. */
  decodeElements(set: SetInfo, bytes: Uint8Array): ElementBatch;
  /** What a buffer of NLMSG_ERROR replies says about a batch, as the error that a commit would fail with. Pure. */
  faultsOf(ops: readonly Op[], bytes: Uint8Array): NativeError;
  generation(connection: NativeConnection): Promise<Generation>;
  tables(connection: NativeConnection, family?: Family): Promise<TableInfo[]>;
  chains(connection: NativeConnection, table: TableRef): Promise<ChainInfo[]>;
  rules(connection: NativeConnection, table: TableRef, chain?: string): Promise<RuleInfo[]>;
  sets(connection: NativeConnection, table: TableRef): Promise<SetDump[]>;
  elements(connection: NativeConnection, table: TableRef, set: SetInfo): Promise<ElementBatch>;
  addresses(connection: NativeConnection): Promise<InterfaceAddress[]>;
  /** Chains that users made in a table of the older iptables; see `NftKernel.legacyChains`. */
  legacyChains(connection: NativeConnection, table: TableRef): Promise<string[]>;
  /** The same from a table's entries, as the kernel hands them out. Pure. */
  decodeLegacyChains(family: "ip" | "ip6", bytes: Uint8Array): string[];
  monitor(
    connection: NativeConnection,
    options: NativeMonitorOptions,
    callback: NativeMonitorCallback,
  ): Promise<NativeMonitor>;
  watchAddresses(connection: NativeConnection, callback: NativeAddressCallback): Promise<NativeMonitor>;
  /** For both kinds. */
  closeMonitor(monitor: NativeMonitor): void;
  /** Memory that is free, and not the system's yet, goes back to it; V8 begins to collect, in steps. */
  releaseMemory(): Promise<void>;
}

/** Where the build puts it, from src/kernel as from dist/kernel. */
const BUILT = fileURLToPath(new URL("../../build/Release/nft_proxier.node", import.meta.url));

/** Says why a load failed, and what to do. */
function explain(path: string, error: unknown): string {
  const reason = reasonOf(error);
  const build = "run `npm run build` in the package's directory";
  // A build that is there and seems up to date is not made again.
  const rebuild = `remove build/, and ${build}`;
  if (!existsSync(path)) {
    return `${path} is not there: ${build} (needs a C++ compiler, make, python3, libnftnl-dev and libmnl-dev)`;
  }
  const library = /(lib(?:nftnl|mnl)\.so[.\d]*)/.exec(reason);
  if (library !== null) {
    return `${library[1]} is missing: run \`apt-get install libnftnl11 libmnl0\``;
  }
  if (/NODE_MODULE_VERSION|invalid ELF header|wrong ELF class|Exec format/.test(reason)) {
    return `${path} was built for another Node or machine (this is Node ${process.version}, ${process.arch}): ${rebuild}`;
  }
  return `${path}: ${reason}; ${rebuild}`;
}

const loaded = new Map<string, NativeAddon>();

/**
 * The addon, loaded on first use. `NFT_PROXIER_ADDON` names another build of it (one with sanitizers, say).
 * Throws KernelError "addon" that says what is missing and which command helps.
 */
export function loadAddon(path: string = process.env["NFT_PROXIER_ADDON"] ?? BUILT): NativeAddon {
  const before = loaded.get(path);
  if (before !== undefined) return before;
  if (process.platform !== "linux") {
    throw new KernelError("addon", `nf_tables is a part of Linux; this is ${process.platform}`, {
      action: "load addon",
    });
  }
  try {
    const addon = createRequire(import.meta.url)(path) as NativeAddon;
    loaded.set(path, addon);
    return addon;
  } catch (cause) {
    throw new KernelError("addon", explain(path, cause), { action: "load addon", cause });
  }
}

/** `native.encodeBatch` and `native.decodeMessages`: the pure half of the addon. */
export const native = {
  encodeBatch(ops: readonly Op[], options?: CommitOptions): Uint8Array {
    return loadAddon().encodeBatch(ops, options);
  },
  decodeMessages(bytes: Uint8Array): DecodedMessage[] {
    return loadAddon().decodeMessages(bytes);
  },
};
