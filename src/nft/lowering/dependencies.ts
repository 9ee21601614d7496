/**
 * The facts that a rule has established about its packets, and the conditions that a field needs first. They are the same that nft generates from the rule's
 * text, which does not show them. All conditions use register 1, so they come before the first field of a key.
 */
import { protocolNumber } from "../../base/protocols.js";
import { CmpOp, MetaKey, NfProto, PayloadBase } from "../kernel/constants.js";
import type { Expr, Family } from "../kernel/kernel.js";
import { anonymousSet, ANONYMOUS_NAME } from "./anonymous-sets.js";
import { FieldError } from "../language/fields/field-error.js";
import { bytesOfValue } from "../language/fields/field-types.js";
import { type FieldEntry, FIELDS, load, protocolOfField } from "../language/fields/packet-fields.js";
import { keyFieldOf } from "../language/set-userdata.js";
import { lookup, type LowerContext, type PacketFacts, type Piece } from "./lowered.js";

type Network = "ip" | "ip6" | "arp";

export function factsOf(family: Family): PacketFacts {
  const network = family === "ip" || family === "ip6" || family === "arp" ? family : undefined;
  return {
    network,
    l4proto: undefined,
    hasTransport: false,
    isEther: family === "bridge",
    isVlan: false,
    isStacked: false,
    messages: undefined,
    cannotReject: false,
  };
}

export const IP_NAME = { 4: "ip", 6: "ip6" } as const;
export const NFPROTO = { 4: NfProto.ip, 6: NfProto.ip6 } as const;
/** ARPHRD_ETHER: `iiftype ether`. */
export const ARPHRD_ETHER = 1;
/** ETH_P_*, in network byte order. */
export const ETHER_TYPES = {
  ip: [0x08, 0x00],
  ip6: [0x86, 0xdd],
  arp: [0x08, 0x06],
  vlan: [0x81, 0x00],
  "8021ad": [0x88, 0xa8],
} as const;

/** The IP version of all packets in a table of the family. Undefined if it is not fixed. */
export function versionOf(family: Family): 4 | 6 | undefined {
  return family === "ip" ? 4 : family === "ip6" ? 6 : undefined;
}

/** The IP version of the packets that reach this point, if the rule has established it. */
export function knownVersion({ facts: { network } }: LowerContext): 4 | 6 | undefined {
  return network === "ip" ? 4 : network === "ip6" ? 6 : undefined;
}

function meta(key: keyof typeof MetaKey): Expr {
  return { type: "meta", key: MetaKey[key], dreg: 1 };
}

function comparison(loaded: Expr, data: Iterable<number>): Piece {
  const exprs = [loaded, { type: "cmp", sreg: 1, op: CmpOp.eq, data: Uint8Array.from(data) }] as const;
  // All of these are types of what follows.
  return { exprs, isWholeField: loaded.type === "payload", isProtocol: true };
}

/** From here on, the rule only sees packets with an Ethernet header. */
function requireEther({ facts, pieces }: LowerContext): void {
  if (facts.isEther) return;
  facts.isEther = true;
  pieces.push(comparison(meta("iiftype"), bytesOfValue("iface_type", "ether")));
}

function requireVlan(context: LowerContext, name: string): void {
  const { facts, family } = context;
  refuseStacked(facts, name);
  if (facts.isVlan) return;
  if (facts.network !== undefined && facts.network !== family)
    throw new FieldError("", `fields of vlan before those of ${facts.network}, which is inside`, name);
  requireEther(context);
  facts.isVlan = true;
  context.pieces.push(comparison(load(FIELDS["ether type"], 1).expr, ETHER_TYPES.vlan));
}

/** From here on, the rule only sees packets of this IP version. `value` needs it. */
export function requireVersion(context: LowerContext, version: 4 | 6, value: unknown): void {
  requireNetwork(context, IP_NAME[version], value);
}

/** Throws FieldError if the rule has only packets of the other IP version, to which `value` does not apply. In inet, they would end the rule. */
export function checkVersion(context: LowerContext, version: 4 | 6, value: unknown): void {
  if (versionOf(context.family) !== undefined || knownVersion(context) !== undefined)
    requireVersion(context, version, value);
}

/** @param where "transport" for a header inside the network's own. */
function requireNetwork(
  context: LowerContext,
  network: Network,
  value: unknown,
  where: "network" | "transport" = "network",
): void {
  const { facts, family, pieces } = context;
  if (!needsNetwork(context, network, value)) return;
  const type = facts.isVlan ? "vlan type" : "ether type";
  // In a bridge, nft compares the Ethernet header, except for IP itself, which may be inside a VLAN.
  if (facts.isVlan || (facts.isEther && (family !== "bridge" || where === "transport" || network === "arp")))
    pieces.push(comparison(load(FIELDS[type], 1).expr, ETHER_TYPES[network]));
  else pieces.push(networkPiece(family, network));
}

function refuseStacked({ isStacked }: PacketFacts, value: unknown): void {
  if (isStacked) throw new FieldError("", "a raw field, because a VLAN inside a VLAN moves the others", value);
}

/** Returns whether the rule may have other packets, and notes that it has no longer. */
function needsNetwork({ facts, family }: LowerContext, network: Network, value: unknown): boolean {
  refuseStacked(facts, value);
  if (facts.network === network) return false;
  if (facts.network !== undefined || (network === "arp" && family === "inet"))
    throw new FieldError(
      "",
      `what ${facts.network === family || facts.network === undefined ? `a table of family ${family}` : `a packet of ${facts.network}`} has, not ${network}`,
      value,
    );
  facts.network = network;
  return true;
}

function networkPiece(family: Family, network: Network): Piece {
  if (family === "inet") return comparison(meta("nfproto"), [NFPROTO[network === "ip" ? 4 : 6]]);
  // In these families, nfproto is the table's own family, not the packet's.
  return comparison(meta("protocol"), ETHER_TYPES[network]);
}

/** Like `requireNetwork`, also in the text: nft puts this condition of its own before the whole rule, where it would stop actions, too. */
function requireNetworkInText(context: LowerContext, network: "ip" | "ip6", value: unknown): void {
  if (!needsNetwork(context, network, value)) return;
  context.pieces.push(networkPiece(context.family, network));
}

/** From here on, the rule only sees packets of this transport protocol. `value` needs it. */
export function requireL4proto(
  { facts, pieces }: LowerContext,
  l4proto: number,
  value: unknown,
  where: "here" | "first" = "here",
): void {
  if (facts.l4proto === l4proto) return;
  if (facts.l4proto !== undefined)
    throw new FieldError("", `what packets of protocol ${facts.l4proto} have, not those of ${l4proto}`, value);
  if (facts.network === "arp") throw new FieldError("", "a field of arp packets, which have no ports", value);
  facts.l4proto = l4proto;
  facts.hasTransport = true;
  pieces.splice(where === "first" ? 0 : pieces.length, 0, comparison(meta("l4proto"), [l4proto]));
}

/** Transport protocols, with the only network protocol that has them. */
const TRANSPORTS: Readonly<Record<string, Network | "any">> = {
  tcp: "any",
  udp: "any",
  udplite: "any",
  sctp: "any",
  dccp: "any",
  ah: "any",
  esp: "any",
  comp: "any",
  icmp: "ip",
  igmp: "ip",
  icmpv6: "ip6",
};

/** The transport protocol with fields that has this number. */
export function transportNamed(number: number): string | undefined {
  return Object.keys(TRANSPORTS).find((name) => numberOfTransport(name) === number);
}

function numberOfTransport(name: string): number {
  return protocolNumber(name === "comp" ? "ipcomp" : name);
}

/** Requires what a field needs. Throws FieldError if no packet that reaches this point has such a field. */
export function requireField(context: LowerContext, name: string, { source, messages, families }: FieldEntry): void {
  if (families?.includes(context.family) === false)
    throw new FieldError("", `a field of tables of family ${context.family}, not only of ${families.join(", ")}`, name);
  const protocol = protocolOfField(name);
  if (source.from === "ct" && (context.family === "arp" || context.family === "netdev"))
    throw new FieldError("", `a field of tables of family ${context.family}, which has no connections`, name);
  if (source.from === "ct" && / proto-/.test(name) && context.facts.l4proto === undefined)
    throw new FieldError(
      "",
      'a match of the protocol before it, such as { field: "meta l4proto", value: "tcp" }',
      name,
    );
  if (source.from === "ct" || source.from === "rt") {
    // If the connection is of the other family, the kernel has no such address and ends the rule: no condition is needed.
    const network = / ip6 /.test(name) ? "ip6" : / ip /.test(name) ? "ip" : undefined;
    const { network: known } = context.facts;
    if (network !== undefined && known !== undefined && known !== network)
      throw new FieldError("", `a field of packets of ${known}`, name);
  }
  if (source.from !== "payload" && source.from !== "exthdr") return;
  if ((protocol === "th" || protocol === "tcp") && context.facts.network === "arp")
    throw new FieldError("", "a field of arp packets, which have no ports", name);
  // The kernel finds TCP options in TCP only, and so nft 1.0.6 adds no condition.
  if (source.from === "exthdr") {
    if (source.op !== 1) requireNetworkInText(context, source.op === 0 ? "ip6" : "ip", name);
    return;
  }
  if (protocol === "ether") return requireEther(context);
  if (protocol === "vlan") return requireVlan(context, name);
  if (protocol === "ip" || protocol === "ip6" || protocol === "arp") return requireNetwork(context, protocol, name);
  const network = TRANSPORTS[protocol];
  if (network === undefined) return;
  if (network !== "any") requireNetwork(context, network, name, "transport");
  requireL4proto(context, numberOfTransport(protocol), name);
  if (messages !== undefined) requireMessages(context, name, `${protocol} type` as "icmp type", messages);
}

function requireMessages(
  { facts, pieces, anonymous }: LowerContext,
  field: string,
  name: "icmp type",
  messages: readonly number[],
): void {
  if (facts.messages?.every((type) => messages.includes(type)) === true) return;
  if (facts.messages !== undefined) throw new FieldError("", "a field of the rule's ICMP types", field);
  facts.messages = messages;
  const type = { type: "payload", base: PayloadBase.transport, offset: 0, len: 1, dreg: 1 } as const;
  if (messages.length === 1) return void pieces.push(comparison(type, messages));
  const values = messages.map((message) => ({ from: BigInt(message), to: BigInt(message) }));
  const set = anonymousSet(values, keyFieldOf(name, FIELDS[name]));
  pieces.push({ exprs: [type, lookup(ANONYMOUS_NAME, false, anonymous.push(set))] });
}

/** Notes what a comparison with one value tells. Throws FieldError if it contradicts what is known. */
export function noteEquality({ facts, family }: LowerContext, name: string, data: Uint8Array): void {
  const [first, second] = data;
  switch (name) {
    case "meta l4proto":
    case "ip protocol":
    case "ip6 nexthdr":
      // The next header may be an extension, which the transport protocol follows.
      if (name === "ip6 nexthdr" && transportNamed(first) === undefined) return;
      if (facts.l4proto !== undefined && facts.l4proto !== first)
        throw new FieldError("", `protocol ${facts.l4proto}, because the rule has no other packets`, first);
      facts.l4proto = first;
      facts.hasTransport = true;
      return;
    case "meta nfproto":
      return noteNetwork(facts, first === NfProto.ip ? "ip" : first === NfProto.ip6 ? "ip6" : undefined);
    case "meta protocol":
    case "ether type":
    case "vlan type": {
      // Elsewhere, nft does not draw this conclusion.
      if (name === "meta protocol" && family !== "bridge" && family !== "netdev") return;
      const known = (Object.keys(ETHER_TYPES) as (keyof typeof ETHER_TYPES)[]).find(
        (key) => ETHER_TYPES[key][0] === first && ETHER_TYPES[key][1] === second,
      );
      if (known === "vlan" || known === "8021ad") {
        facts.isStacked = name === "vlan type";
        facts.isVlan = true;
      } else noteNetwork(facts, known);
      return;
    }
    case "iiftype":
      facts.isEther ||= first + second === 1;
      return;
    case "icmp type":
    case "icmpv6 type":
      facts.messages = [first];
  }
}

/** Notes what a comparison with several values tells. */
export function noteValues({ facts }: LowerContext, name: string, values: readonly number[]): void {
  if (name === "icmp type" || name === "icmpv6 type") facts.messages = values;
  facts.hasTransport ||= TRANSPORT_FIELDS.has(name);
}

/** Notes the largest of the protocols that a comparison lets pass. nft takes it for the only one when it reads a reject. */
export function noteLastProtocol({ facts, family }: LowerContext, name: string | undefined, type: number): void {
  if (family !== "bridge" && family !== "netdev") return;
  const isIp = type === 0x0800 || type === 0x86dd;
  if (name === "meta protocol") facts.cannotReject = !isIp;
  if (name === "ether type" || name === "vlan type") facts.cannotReject = type === 0x0806;
}

const TRANSPORT_FIELDS: ReadonlySet<string> = new Set(["meta l4proto", "ip protocol", "ip6 nexthdr"]);

function noteNetwork(facts: PacketFacts, network: Network | undefined): void {
  if (network === undefined) return;
  if (facts.network !== undefined && facts.network !== network)
    throw new FieldError("", `${facts.network}, because the rule has no other packets`, network);
  facts.network = network;
}
