/**
 * iptables matches and targets in nf_tables rules (nft_compat) whose layout is known here. With any other,
 * the packet's fate cannot be known.
 */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { NatFlag } from "../../netlink/constants.js";
import { type Bits, isKnown, masked, unknownBits } from "./bits.js";

/** NFTA_TARGET_NAME, _REV and _INFO, which have the same values for a match (linux/netfilter/nf_tables_compat.h). */
const [NAME, REVISION, INFO] = [1, 2, 3];

export interface Extension {
  readonly name: string;
  readonly revision: number;
  readonly info: Buffer;
}

/** Parses a match's or target's data. */
export function targetOf(data: Uint8Array): Extension {
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

/** Targets that let the packet continue. They change nothing that rules here read, except what the value says. */
export const GOES_ON: Readonly<Record<string, "nothing" | "priority" | "service" | "hops">> = {
  AUDIT: "nothing",
  CHECKSUM: "nothing",
  CLASSIFY: "priority",
  CONNSECMARK: "nothing",
  DSCP: "service",
  ECN: "nothing",
  HL: "hops",
  IDLETIMER: "nothing",
  LED: "nothing",
  LOG: "nothing",
  NFLOG: "nothing",
  RATEEST: "nothing",
  SECMARK: "nothing",
  TCPMSS: "nothing",
  TCPOPTSTRIP: "nothing",
  TEE: "nothing",
  TOS: "service",
  TRACE: "nothing",
  TTL: "hops",
};

/** Whether a target CT, or the older NOTRACK, exempts the packet from tracking (XT_CT_NOTRACK). */
export function isNotrack({ name, info }: Extension): boolean {
  return name === "NOTRACK" || (name === "CT" && ((info[LITTLE_ENDIAN ? 0 : 1] ?? 0) & 1) !== 0);
}

/** Whether a target CT puts the packet into a zone of connections: `zone`, or XT_CT_ZONE_MARK. */
export function setsZone({ info }: Extension): boolean {
  return info.length < 4 || u16(info, 2) !== 0 || (u16(info, 0) & 16) !== 0;
}

/** Whether a target SET sets the mark or the priority from an element (struct xt_set_info_target_v3; IPSET_INVALID_ID is absent). */
export function mapsSet({ info, revision }: Extension): boolean {
  return revision > 2 && (info.length < 12 || u16(info, 8) !== 0xffff);
}

/** The packet's mark after the target MARK (struct xt_mark_tginfo2). */
export function markedBy({ revision, info }: Extension, mark: Bits): Bits {
  if (revision !== 2 || info.length < 8) return unknownBits(4);
  return masked(mark, inverse(info.subarray(4, 8)), info.subarray(0, 4));
}

interface Marks {
  readonly mark: Bits;
  readonly ctMark: Bits;
}

const CONNMARK = { set: 0, save: 1, restore: 2 } as const;

/** The marks of the packet and its connection after the target CONNMARK (struct xt_connmark_tginfo1 and 2). */
export function connmarkedBy({ revision, info }: Extension, { mark, ctMark }: Marks): Marks {
  const unknown = unknownBits(4);
  // Revision 2 shifts by a number of bits.
  const mode = revision === 1 ? info[12] : revision === 2 && info[13] === 0 ? info[14] : undefined;
  if (info.length < 15) return { mark: unknown, ctMark: unknown };
  const [value, ofConnection, ofPacket] = [0, 4, 8].map((at) => info.subarray(at, at + 4));
  const without = (bits: Bits, some: Uint8Array): Bits => masked(bits, inverse(some), undefined);
  switch (mode) {
    case CONNMARK.set:
      return { mark, ctMark: masked(ctMark, inverse(ofConnection), value) };
    case CONNMARK.save:
      return { mark, ctMark: either(without(ctMark, ofConnection), masked(mark, ofPacket, undefined)) };
    case CONNMARK.restore:
      return { mark: either(without(mark, ofPacket), masked(ctMark, ofConnection, undefined)), ctMark };
    default:
      return { mark: unknown, ctMark: unknown };
  }
}

function inverse(mask: Uint8Array): Uint8Array {
  return mask.map((byte) => ~byte);
}

/** Exclusive or. */
function either(one: Bits, other: Bits): Bits {
  const bytes = one.bytes.map((byte, i) => byte ^ other.bytes[i]);
  if (one.known === undefined && other.known === undefined) return { bytes };
  const known = bytes.map((_, i) => (one.known?.[i] ?? 0xff) & (other.known?.[i] ?? 0xff));
  return isKnown({ bytes, known }) ? { bytes } : { bytes: bytes.map((byte, i) => byte & known[i]), known };
}

/** The only destination that a target chooses. Absent parts stay. */
interface Destination {
  readonly address?: Uint8Array;
  readonly port?: Uint8Array;
}

/** Parses DNAT and REDIRECT. Returns undefined if they choose one of several destinations, or have another layout. */
export function destinationOf({ name, revision, info }: Extension, isIp4: boolean): Destination | undefined {
  const range = isIp4 && revision === 0 ? range4(info) : name === "DNAT" || revision === 0 ? rangeOf(info) : undefined;
  if (range === undefined) return undefined;
  const { flags, addresses, ports } = range;
  const others = flags & ~(NatFlag.mapIps | NatFlag.protoSpecified | NatFlag.persistent);
  const [[least, most], [low, high]] = [addresses, ports];
  const hasAddress = (flags & NatFlag.mapIps) !== 0;
  const hasPort = (flags & NatFlag.protoSpecified) !== 0;
  if (others !== 0 || (hasAddress && !least.equals(most)) || (hasPort && !low.equals(high))) return undefined;
  return {
    ...(hasAddress && { address: Uint8Array.from(least.subarray(0, isIp4 ? 4 : 16)) }),
    ...(hasPort && { port: Uint8Array.from(low) }),
  };
}

interface NatRange {
  readonly flags: number;
  readonly addresses: readonly [Buffer, Buffer];
  readonly ports: readonly [Buffer, Buffer];
}

/** struct nf_nat_ipv4_multi_range_compat, with one range. */
function range4(info: Buffer): NatRange | undefined {
  if (info.length < 20 || u32(info, 0) !== 1) return undefined;
  return {
    flags: u32(info, 4),
    addresses: [info.subarray(8, 12), info.subarray(12, 16)],
    ports: [info.subarray(16, 18), info.subarray(18, 20)],
  };
}

/** struct nf_nat_range, with which nf_nat_range2 begins. */
function rangeOf(info: Buffer): NatRange | undefined {
  if (info.length < 40) return undefined;
  return {
    flags: u32(info, 0),
    addresses: [info.subarray(4, 20), info.subarray(20, 36)],
    ports: [info.subarray(36, 38), info.subarray(38, 40)],
  };
}
