/** Matches and targets of iptables in rules of nf_tables (nft_compat). */
import { LITTLE_ENDIAN } from "../../../base/byte-order.js";

/** NFTA_TARGET_NAME, _REV and _INFO, which have the same values for a match (linux/netfilter/nf_tables_compat.h). */
const [NAME, REVISION, INFO] = [1, 2, 3];

export interface Extension {
  readonly name: string;
  readonly revision: number;
  readonly info: Buffer;
}

/** Parses a match's or target's data. */
export function extensionOf(data: Uint8Array): Extension {
  const attributes = new Map<number, Buffer>();
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  for (let at = 0; at + 4 <= bytes.length;) {
    const length = u16(bytes, at);
    if (length < 4) break;
    attributes.set(u16(bytes, at + 2), bytes.subarray(at + 4, at + length));
    at += (length + 3) & ~3;
  }
  const name = (attributes.get(NAME)?.toString("latin1") ?? "").replace(/\0.*$/s, "");
  const revision = attributes.get(REVISION);
  return {
    name,
    revision: revision?.length === 4 ? revision.readUInt32BE() : 0,
    info: attributes.get(INFO) ?? Buffer.alloc(0),
  };
}

/** Reads a field in the host's byte order. */
export function u16(bytes: Buffer, at: number): number {
  return LITTLE_ENDIAN ? bytes.readUInt16LE(at) : bytes.readUInt16BE(at);
}
export function u32(bytes: Buffer, at: number): number {
  return LITTLE_ENDIAN ? bytes.readUInt32LE(at) : bytes.readUInt32BE(at);
}
