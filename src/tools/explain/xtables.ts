/**
 * iptables matches and targets in nf_tables rules (nft_compat) whose layout is known here. With any other,
 * the packet's fate cannot be known.
 */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";

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
  const u16 = (at: number): number => (LITTLE_ENDIAN ? bytes.readUInt16LE(at) : bytes.readUInt16BE(at));
  for (let at = 0; at + 4 <= bytes.length;) {
    const length = u16(at);
    if (length < 4) break;
    attributes.set(u16(at + 2), bytes.subarray(at + 4, at + length));
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

/** Offsets in struct xt_conntrack_mtinfo3, revisions 2 and 3. */
const CONNTRACK = { matchFlags: 146, invertFlags: 148, stateMask: 150 } as const;
/** XT_CONNTRACK_STATE and its alias: the match checks nothing else. */
const STATE_ALONE: readonly number[] = [1, 1 | (1 << 13)];

/** XT_CONNTRACK_STATE_SNAT, _DNAT and _UNTRACKED, XT_STATE_UNTRACKED. */
export const XT_SNAT = 64;
export const XT_DNAT = 128;
const CONNTRACK_UNTRACKED = 256;
const STATE_UNTRACKED = 64;

interface StateMatch {
  /** Bits of `ct state` and of the XT_ constants above. */
  readonly mask: number;
  readonly inverted: boolean;
  /** The bit for untracked packets. */
  readonly untracked: number;
  /** Whether the bits include XT_SNAT or XT_DNAT. */
  readonly nat: boolean;
}

/** Parses a match on connection states. Returns undefined if it matches more, or has another layout. */
export function stateMatch({ name, revision, info }: Extension): StateMatch | undefined {
  const u16 = (at: number): number => (LITTLE_ENDIAN ? info.readUInt16LE(at) : info.readUInt16BE(at));
  if (name === "state" && info.length >= 4) {
    const mask = LITTLE_ENDIAN ? info.readUInt32LE(0) : info.readUInt32BE(0);
    return { mask, inverted: false, untracked: STATE_UNTRACKED, nat: false };
  }
  if (name !== "conntrack" || revision < 2 || info.length < CONNTRACK.stateMask + 2) return undefined;
  if (!STATE_ALONE.includes(u16(CONNTRACK.matchFlags))) return undefined;
  const inverted = (u16(CONNTRACK.invertFlags) & 1) !== 0;
  return { mask: u16(CONNTRACK.stateMask), inverted, untracked: CONNTRACK_UNTRACKED, nat: true };
}

/** Targets that let the packet continue. They change nothing that rules here read, except what the value says. */
export const GOES_ON: Readonly<Record<string, "nothing" | "priority" | "marks" | "header">> = {
  AUDIT: "nothing",
  CHECKSUM: "nothing",
  CLASSIFY: "priority",
  CONNMARK: "marks",
  CONNSECMARK: "nothing",
  DSCP: "header",
  HL: "header",
  LED: "nothing",
  LOG: "nothing",
  NFLOG: "nothing",
  RATEEST: "nothing",
  SECMARK: "nothing",
  TCPMSS: "nothing",
  TOS: "header",
  TRACE: "nothing",
  TTL: "header",
};

/** Whether a target CT, or the older NOTRACK, exempts the packet from tracking (XT_CT_NOTRACK). */
export function isNotrack({ name, info }: Extension): boolean {
  return name === "NOTRACK" || (name === "CT" && ((info[LITTLE_ENDIAN ? 0 : 1] ?? 0) & 1) !== 0);
}
