/** Statements that translate, reject or exempt a packet, of nf_tables and of iptables. */
import { formatAddress } from "../../../base/ip.js";
import { AddressType, Hook, HOOK_NAMES, NatFlag, NatType, NfProto } from "../../../nft/kernel/constants.js";
import type { Expr } from "../../../nft/kernel/kernel.js";
import { LOOPBACK } from "./packet-spec.js";
import { all, type Bits, common, equals, exactly, isKnown, not, type Ternary, textOf, unknownBits } from "./bits.js";
import { bytesOf, placeOf } from "./packet-state.js";
import type { Done, RuleContext } from "./rule-context.js";

/** The kernel chooses another port. */
export const RANDOM = NatFlag.protoRandom | NatFlag.protoRandomFully;
export const MASQUERADED = "masqueraded: the endpoint sees an address of this node";

export function reject(how: "reset" | "error", rule: RuleContext): Done {
  // A bridge sends the answer by itself.
  if (rule.place.ref.family === "bridge") return "unknown";
  const { protocol, isError } = rule.state;
  // No error answers another one.
  if (isError || (how === "reset" && protocol !== "tcp")) return { verdict: "drop" };
  rule.own.rejectedWith = how;
  const what = how === "reset" ? "a TCP reset" : "an ICMP error";
  rule.step(`rejected with ${what}${rule.isOurs ? "" : `: ${rule.ruleText}`}`);
  return "reject";
}

/** Exempts the packet from connection tracking, unless it already has an entry. */
export function exempt(rule: RuleContext): Done {
  if (rule.state.tracking !== "tracked") rule.own.tracking = "untracked";
  return "next";
}

export function nat(expr: Extract<Expr, { type: "nat" }>, rule: RuleContext): Done | Promise<Done> {
  const { natType, family: of, regAddrMin, regAddrMax, regProtoMin, regProtoMax, flags = 0 } = expr;
  const { family } = rule.state;
  // nft_nat_inet_eval
  if (of !== NfProto.inet && of !== NfProto[family]) return "next";
  const address = one(regAddrMin, regAddrMax, family === "ip" ? 4 : 16, rule);
  const port = one(regProtoMin, regProtoMax, 2, rule);
  const isMapped = (flags & NatFlag.netmap) !== 0;
  if (natType === NatType.snat) {
    const known = address !== undefined && isKnown(address) && !isMapped ? address : undefined;
    const to = known === undefined ? "another address or port" : formatAddress(known.bytes);
    return masquerade(`source rewritten to ${to}`, rule, known, (flags & RANDOM) !== 0);
  }
  // One of several addresses, or one derived from the packet's own.
  const isOpen = [address, port].some((part) => part !== undefined && !isKnown(part));
  return isOpen || isMapped ? "unknown" : translate(address, port, rule);
}

/** Rewrites the destination to the only one that the rule chooses. Absent parts stay. */
export function translate(address: Bits | undefined, port: Bits | undefined, rule: RuleContext): Done {
  if (rule.state.isError) return "unknown";
  setDestination(address, port, rule);
  if (!rule.isOurs) rule.step(rule.ruleText);
  return { verdict: "accept" };
}

/** @param address undefined: the kernel chooses one of this node. @param changesPort the port surely changes. */
export async function masquerade(text: string, rule: RuleContext, address?: Bits, changesPort = false): Promise<Done> {
  const { source, isError } = rule.state;
  if (isError) return "unknown";
  const isHere = source === undefined || (await rule.world.routes.addressType(source)) === AddressType.local;
  const chosen = address ?? (await masqueradeAddress(rule));
  const state = rule.own;
  const isSame = sameAs(state.get("source"), chosen);
  const isChosen = address !== undefined || isSame === false;
  state.sourceChanged = changesPort || not(isChosen ? isSame : isHere ? undefined : false);
  state.sourceBound = true;
  state.masqueraded = true;
  state.set("source", chosen);
  state.setValue("sourcePort", undefined);
  rule.step(text);
  return { verdict: "accept" };
}

/** inet_select_addr: an address of the outgoing interface. For IPv6, one of another interface may be preferred. */
async function masqueradeAddress({ state: { family, outInterface }, world }: RuleContext): Promise<Bits> {
  const addresses = family === "ip" ? await world.routes.addressesOf(outInterface) : [];
  return addresses.length === 0 ? unknownBits(placeOf(family, "source").length) : common(addresses.map(bytesOf));
}

export function redirect(expr: Extract<Expr, { type: "redir" }>, rule: RuleContext): Promise<Done> {
  return redirectTo(one(expr.regProtoMin, expr.regProtoMax, 2, rule), rule);
}

/** nf_nat_redirect: for packets of this node to its loopback address, for others to an address of the interface. */
export async function redirectTo(port: Bits | undefined, rule: RuleContext): Promise<Done> {
  const { isError, family, inInterface = "" } = rule.state;
  if (isError) return "unknown";
  const isOwn = rule.place.hook === HOOK_NAMES[Hook.output];
  // If the interface has no address, the kernel drops the packet.
  if (!isOwn && family === "ip" && inInterface !== "") {
    if ((await rule.world.routes.addressesOf(inInterface)).length === 0) return "unknown";
  }
  const here = isOwn ? exactly(bytesOf(LOOPBACK[family])) : unknownBits(placeOf(family, "destination").length);
  setDestination(here, port, rule);
  const state = rule.own;
  state.translated = state.redirected = true;
  const to = state.destinationPort;
  rule.step(`redirected to this node${to === undefined ? "" : `, port ${to}`}: ${rule.ruleText}`);
  return { verdict: "accept" };
}

/** Absent parts stay. The connection is translated only if anything changes (nf_nat_setup_info). */
function setDestination(address: Bits | undefined, port: Bits | undefined, rule: RuleContext): void {
  const state = rule.own;
  const parts = [["destination", address] as const, ["destinationPort", port] as const];
  const isSame = parts.map(([field, bits]) => bits === undefined || sameAs(state.get(field), bits));
  state.destinationChanged = not(all(isSame));
  state.destinationBound = true;
  state.translated ||= state.destinationChanged !== false;
  for (const [field, bits] of parts) if (bits !== undefined) state.set(field, bits);
}

function sameAs(bits: Bits, other: Bits): Ternary {
  return isKnown(other) ? equals(bits, other.bytes) : undefined;
}

/** Returns the value that both registers have; unknown bits if they differ. Undefined if no register is given. */
function one(least: number | undefined, most: number | undefined, length: number, rule: RuleContext): Bits | undefined {
  if (least === undefined) return undefined;
  const [from, to] = [rule.read(least, length), rule.read(most ?? least, length)];
  return isKnown(from) && textOf(from) === textOf(to) ? from : unknownBits(length);
}
