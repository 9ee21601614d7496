/**
 * The addon that only tests load (test/native/addon): the shipped addon's functions that convert values to bytes and bytes to values. All
 * are pure. They throw `NativeError`s.
 */
import { createRequire } from "node:module";
import path from "node:path";
import type { NativePiece } from "../../src/nft/kernel/conntrack-addon.js";
import type { NativeError } from "../../src/nft/kernel/native-error.js";
import type { ChangeBatch, CommitOptions, ElementBatch, Op, SetInfo } from "../../src/nft/kernel/kernel.js";

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
  /** In the message that ends a commit: the batch that the monitor would report. */
  readonly changes?: ChangeBatch;
}

export interface TestAddon {
  /** Returns the netlink bytes of a batch whose first sequence number is 1. */
  encodeBatch(ops: readonly Op[], options?: CommitOptions): Uint8Array;
  /** Returns every message of a buffer. */
  decodeMessages(bytes: Uint8Array): DecodedMessage[];
  /** Returns the elements in a buffer of messages, as a dump of `set` collects them. */
  decodeElements(set: SetInfo, bytes: Uint8Array): ElementBatch;
  /** Returns the error of a commit of `ops` after a buffer of NLMSG_ERROR replies. */
  faultsOf(ops: readonly Op[], bytes: Uint8Array): NativeError;
  /** Whether the chain whose last entry is at `offset` drops. */
  decodeLegacyDrop(family: "ip" | "ip6", bytes: Uint8Array, offset: number): boolean;
  /** Returns the chains from a table's entries in the kernel's form, with the number of rules in each. */
  decodeLegacyChains(family: "ip" | "ip6", bytes: Uint8Array): { names: string[]; rules: Uint32Array };
  /** Decodes a datagram of a dump of `filter` with sequence number 1. */
  conntrackDecode(filter: Uint8Array, datagram: Uint8Array): NativePiece;
  /** Returns the error of opening if this NLMSG_ERROR is the kernel's answer. */
  conntrackOpenError(message: Uint8Array): NativeError;
  /** Returns the messages that dump `filter`, and that look up, delete, create and change each entry. */
  conntrackEncode(filter: Uint8Array, entries: Uint8Array): Uint8Array;
}

const built = path.resolve(import.meta.dirname, "../../build/Release/nft_proxier.node");
const shipped = process.env["NFT_PROXIER_ADDON"] ?? built;

/** Built like the shipped addon and beside it: under sanitizers if that one is. */
export const testAddon = createRequire(import.meta.url)(
  path.join(path.dirname(path.resolve(shipped)), "nft_proxier_test.node"),
) as TestAddon;
