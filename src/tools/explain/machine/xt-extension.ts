/** Matches and targets of iptables in rules of nf_tables (nft_compat). */
import { LITTLE_ENDIAN } from "../../../base/byte-order.js";
import { dataOf, decodeAttributes, networkNumberOf, textOf } from "../../../nft/kernel/netlink-message.js";

/** NFTA_TARGET_NAME, _REV and _INFO, which have the same values for a match (linux/netfilter/nf_tables_compat.h). */
const [NAME, REVISION, INFO] = [1, 2, 3];

export interface Extension {
  readonly name: string;
  readonly revision: number;
  readonly info: Buffer;
}

/** Parses a match's or target's data. */
export function extensionOf(data: Uint8Array): Extension {
  const attributes = decodeAttributes(data);
  const info = dataOf(attributes, INFO) ?? new Uint8Array();
  return {
    name: textOf(attributes, NAME) ?? "",
    revision: networkNumberOf(attributes, REVISION) ?? 0,
    info: Buffer.from(info.buffer, info.byteOffset, info.byteLength),
  };
}

/** Reads a field in the host's byte order. */
export function u16(bytes: Buffer, at: number): number {
  return LITTLE_ENDIAN ? bytes.readUInt16LE(at) : bytes.readUInt16BE(at);
}
export function u32(bytes: Buffer, at: number): number {
  return LITTLE_ENDIAN ? bytes.readUInt32LE(at) : bytes.readUInt32BE(at);
}
