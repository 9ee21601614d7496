/**
 * The addon that only tests load (test/native/addon): the functions behind the shipped addon that make bytes of values and
 * values of bytes. All of them are pure. What they throw are `NativeError`s.
 */
import { createRequire } from "node:module";
import path from "node:path";
import type { NativePiece } from "../../src/netlink/conntrack-addon.js";
import type { LegacyChainNames, LegacyRemoval } from "../../src/netlink/legacy-tables.js";
import type { NativeError } from "../../src/netlink/native-error.js";
import type { ChangeBatch, CommitOptions, ElementBatch, Op, SetInfo } from "../../src/netlink/kernel.js";

/** One netlink message. */
export interface DecodedMessage {
  readonly kind:
    | "begin"
    | "end"
    | "table"
    | "chain"
    | "rule"
    | "set"
    | "elements"
    | "generation"
    | "trace"
    | "error"
    | "done"
    | "unknown";
  /** nlmsg_type, nlmsg_flags and nlmsg_seq. */
  readonly type: number;
  readonly flags: number;
  readonly seq: number;
  readonly body: Readonly<Record<string, unknown>>;
  /** With the message that ends a commit: the batch that the monitor would report. */
  readonly changes?: ChangeBatch;
}

/** Where the built-in chains of the five hooks (NF_INET_*) are in a table of the older iptables: a part of struct ipt_getinfo. */
export interface LegacyHooks {
  /** 1 << hook; the others' offsets mean nothing. */
  readonly valid: number;
  /** Bytes from the table's first entry to the chain's first and last one. */
  readonly entry: readonly number[];
  readonly underflow: readonly number[];
}

/** A table of the older iptables without a program's chains. */
export interface RebuiltLegacyTable extends Pick<LegacyRemoval, "chains" | "jumps" | "kept"> {
  /** Absent, with the two below, when nothing goes. */
  readonly hooks?: LegacyHooks;
  readonly bytes?: Uint8Array;
  /** The former indices of the entries that are left, without the last one, which ends the table. */
  readonly left?: Uint32Array;
}

export interface TestAddon {
  /** The netlink bytes of a batch, its first sequence number being 1. */
  encodeBatch(ops: readonly Op[], options?: CommitOptions): Uint8Array;
  /** Every message of a buffer. */
  decodeMessages(bytes: Uint8Array): DecodedMessage[];
  /** The elements in a buffer of messages, as a dump of `set` collects them. */
  decodeElements(set: SetInfo, bytes: Uint8Array): ElementBatch;
  /** The error that a commit of `ops` would fail with after a buffer of NLMSG_ERROR replies. */
  faultsOf(ops: readonly Op[], bytes: Uint8Array): NativeError;
  /** Whether the chain drops whose last entry is at `offset` of a table's entries. */
  decodeLegacyDrop(family: "ip" | "ip6", bytes: Uint8Array, offset: number): boolean;
  /** The chains from a table's entries, as the kernel hands them out. */
  decodeLegacyChains(family: "ip" | "ip6", bytes: Uint8Array): string[];
  /** How many rules a chain has among a table's entries. */
  decodeLegacyRules(family: "ip" | "ip6", bytes: Uint8Array, chain: string): number;
  /** What `removeLegacyChains` would put in the place of a table with these entries. */
  rebuildLegacyTable(
    family: "ip" | "ip6",
    hooks: LegacyHooks,
    bytes: Uint8Array,
    own: LegacyChainNames,
  ): RebuiltLegacyTable;
  /** A datagram, of a dump with the sequence number 1, as a dump of `filter` takes it. */
  conntrackDecode(filter: Uint8Array, datagram: Uint8Array): NativePiece;
  /** The error that opening fails with when this NLMSG_ERROR is the kernel's answer. */
  conntrackOpenError(message: Uint8Array): NativeError;
  /** The messages that dump `filter`, and that look up, delete, create and change each of the entries. */
  conntrackEncode(filter: Uint8Array, entries: Uint8Array): Uint8Array;
}

const built = path.resolve(import.meta.dirname, "../../build/Release/nft_proxier.node");
const shipped = process.env["NFT_PROXIER_ADDON"] ?? built;

/** Built like the shipped addon, and beside it: under sanitizers if that is. */
export const testAddon = createRequire(import.meta.url)(
  path.join(path.dirname(path.resolve(shipped)), "nft_proxier_test.node"),
) as TestAddon;
