/** The effects of iptables targets whose layout is known here. With any other, the packet's fate cannot be known. */
import { LITTLE_ENDIAN } from "../../../base/byte-order.js";
import { NatFlag } from "../../../nft/kernel/constants.js";
import { type Bits, exactly, exclusiveOr, masked, unknownBits, withPart } from "./bits.js";
import { IP_SETS, type PacketState } from "./packet-state.js";
import type { Done, RuleContext } from "./rule-context.js";
import { exempt, masquerade, MASQUERADED, redirectTo, reject, translate } from "./statements.js";
import { type Extension, u16, u32 } from "./xt-extension.js";

type Target = (target: Extension, rule: RuleContext) => Done | Promise<Done>;

/** Targets that let the packet continue and change nothing that rules here read. */
const HARMLESS = new Set(
  "AUDIT CHECKSUM CONNSECMARK ECN IDLETIMER LED LOG NFLOG RATEEST SECMARK TCPMSS TCPOPTSTRIP TEE TRACE".split(" "),
);

const TARGETS: Readonly<Record<string, Target>> = {
  CLASSIFY: (_, rule) => rule.change("priority", unknownBits(4)),
  CONNMARK: connmark,
  CT: (target, rule) => (isNotrack(target) ? exempt(rule) : setsZone(target) ? "unknown" : "next"),
  DNAT: destination,
  DSCP: serviceBits,
  HL: hops,
  MARK: ({ revision, info }, rule) => {
    const isKnownLayout = revision === 2 && info.length >= 8;
    const mark = isKnownLayout ? merged(rule.state.mark, info.subarray(4, 8), info.subarray(0, 4)) : unknownBits(4);
    return rule.change("mark", mark);
  },
  MASQUERADE: (_, rule) => masquerade(MASQUERADED, rule),
  NOTRACK: (_, rule) => exempt(rule),
  REDIRECT: destination,
  REJECT: (target, rule) => reject(isReset(target, rule.state) ? "reset" : "error", rule),
  SET: (target, rule) => {
    rule.changeSet(IP_SETS);
    if (!mapsSet(target)) return "next";
    rule.change("priority", unknownBits(4));
    return rule.change("mark", unknownBits(4));
  },
  SNAT: (_, rule) => masquerade("source rewritten", rule),
  TOS: serviceBits,
  TTL: hops,
};

export function runTarget(target: Extension, rule: RuleContext): Done | Promise<Done> {
  if (Object.hasOwn(TARGETS, target.name)) return TARGETS[target.name](target, rule);
  return HARMLESS.has(target.name) ? "next" : "unknown";
}

function change(rule: RuleContext, values: Partial<PacketState>): Done {
  Object.assign(rule.own, values);
  return "next";
}

/** XT_CT_NOTRACK */
function isNotrack({ info }: Extension): boolean {
  return ((info[LITTLE_ENDIAN ? 0 : 1] ?? 0) & 1) !== 0;
}

/** Whether a target CT puts the packet into a zone of connections: `zone`, or XT_CT_ZONE_MARK. */
function setsZone({ info }: Extension): boolean {
  return info.length < 4 || u16(info, 2) !== 0 || (u16(info, 0) & 16) !== 0;
}

/** Whether a target SET sets the mark or the priority from an element (struct xt_set_info_target_v3; IPSET_INVALID_ID is absent). */
function mapsSet({ info, revision }: Extension): boolean {
  return revision > 2 && (info.length < 12 || u16(info, 8) !== 0xffff);
}

/** IPT_TCP_RESET, IP6T_TCP_RESET. */
function isReset({ info }: Extension, { family }: Readonly<PacketState>): boolean {
  return info[LITTLE_ENDIAN ? 0 : 3] === (family === "ip" ? 7 : 6);
}

/** The byte with the type of service, or those with the version and the traffic class. */
function serviceBits(_: Extension, rule: RuleContext): Done {
  const { network, family } = rule.state;
  const some = family === "ip" ? unknownBits(1) : { bytes: Uint8Array.of(0x60, 0), known: Uint8Array.of(0xf0, 0) };
  return change(rule, { network: withPart(network, family === "ip" ? 1 : 0, some) });
}

/** TTL or HL must leave enough hops (struct ipt_TTL_info, ip6t_HL_info: mode and count; IPT_TTL_SET, _INC). */
function hops({ info }: Extension, rule: RuleContext): Done {
  const { network, family } = rule.state;
  if (!((info[0] === 0 && info[1] > 1) || info[0] === 1)) return "unknown";
  return change(rule, { network: withPart(network, family === "ip" ? 8 : 7, unknownBits(1)) });
}

/** Replaces the bits of a mask. */
function merged(bits: Bits, mask: Uint8Array, flip?: Uint8Array): Bits {
  const kept = mask.map((byte) => ~byte);
  return masked(bits, kept, flip);
}

const CONNMARK = { set: 0, save: 1, restore: 2 } as const;

/**
 * struct xt_connmark_tginfo1 and 2: the marks of the packet and its connection. Has no effect on a packet without an
 * entry (connmark_tg_shift).
 */
function connmark({ revision, info }: Extension, rule: RuleContext): Done {
  const { mark, ctMark, tracking } = rule.state;
  if (tracking !== "tracked") return "next";
  // Revision 2 shifts by a number of bits.
  const mode = revision === 1 ? info[12] : revision === 2 && info[13] === 0 ? info[14] : undefined;
  const [value, ofConnection, ofPacket] = [0, 4, 8].map((at) => info.subarray(at, at + 4));
  if (info.length >= 15 && mode === CONNMARK.set) return change(rule, { ctMark: merged(ctMark, ofConnection, value) });
  if (info.length >= 15 && mode === CONNMARK.save)
    return change(rule, { ctMark: exclusiveOr(merged(ctMark, ofConnection), masked(mark, ofPacket)) });
  if (info.length >= 15 && mode === CONNMARK.restore)
    return rule.change("mark", exclusiveOr(merged(mark, ofPacket), masked(ctMark, ofConnection)));
  rule.change("mark", unknownBits(4));
  return change(rule, { ctMark: unknownBits(4) });
}

/** DNAT and REDIRECT, if they choose one destination and have a known layout. */
function destination({ name, revision, info }: Extension, rule: RuleContext): Done | Promise<Done> {
  const isIp4 = rule.state.family === "ip";
  const at = isIp4 && revision === 0 ? MULTI_RANGE : name === "DNAT" || revision === 0 ? RANGE : undefined;
  if (at === undefined || info.length < at.size || (at === MULTI_RANGE && u32(info, 0) !== 1)) return "unknown";
  const flags = u32(info, at.flags);
  const part = (flag: number, from: number, length: number, of: number): Bits | "many" | undefined => {
    if ((flags & flag) === 0) return undefined;
    const [least, most] = [from, from + of].map((begin) => info.subarray(begin, begin + of));
    return least.equals(most) ? exactly(Uint8Array.from(least.subarray(0, length))) : "many";
  };
  const address = part(NatFlag.mapIps, at.address, isIp4 ? 4 : 16, at.length);
  const port = part(NatFlag.protoSpecified, at.port, 2, 2);
  const others = flags & ~(NatFlag.mapIps | NatFlag.protoSpecified | NatFlag.persistent);
  if (others !== 0 || address === "many" || port === "many") return "unknown";
  return name === "REDIRECT" ? redirectTo(port, rule) : translate(address, port, rule);
}

/** struct nf_nat_ipv4_multi_range_compat, with one range. */
const MULTI_RANGE = { size: 20, flags: 4, address: 8, length: 4, port: 16 } as const;
/** struct nf_nat_range, with which nf_nat_range2 begins. */
const RANGE = { size: 40, flags: 0, address: 4, length: 16, port: 36 } as const;
