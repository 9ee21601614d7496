/** Values other than headers that rules read from a packet: `meta`, `ct` and `fib`. */
import {
  AddressType,
  CtKey,
  CtStatus,
  FibFlag,
  FibResult,
  IpProto,
  MetaKey,
  NfProto,
} from "../../../nft/kernel/constants.js";
import type { Expr, Family } from "../../../nft/kernel/kernel.js";
import { type Bits, exactly, hostNumber, unknownBits } from "./bits.js";
import type { KernelLink } from "../../../netlink/route-table.js";
import type { Routes, World } from "./machine-world.js";
import { type Field, fieldOf, OPPOSITE, type PacketState, placeOf, protocolNumberOf } from "./packet-state.js";

/** "break": the packet has no such value, and the rule ends. "maybe": the value is unknown, and there may be none. */
type Value = Bits | "break" | "maybe";

/** Unlisted are length, users, groups, cgroups, time, random numbers and others. @param table family of the rule's table. */
const META: Readonly<Partial<Record<number, (state: PacketState, table: Family) => Bits>>> = {
  [MetaKey.mark]: ({ mark }) => mark,
  [MetaKey.priority]: ({ priority }) => priority,
  [MetaKey.l4proto]: (state) => exactly(Uint8Array.of(protocolNumberOf(state))),
  [MetaKey.nfproto]: ({ family }, table) => exactly(Uint8Array.of(NfProto[table === "inet" ? family : table])),
  // Ethertype.
  [MetaKey.protocol]: ({ family }) => exactly(family === "ip" ? Uint8Array.of(0x08, 0x00) : Uint8Array.of(0x86, 0xdd)),
  [MetaKey.iifname]: ({ inInterface }) => interfaceBits(inInterface),
  [MetaKey.oifname]: ({ outInterface }) => interfaceBits(outInterface),
  [MetaKey.pkttype]: ({ packetType }) => packetType,
};

/** Reads a part of an interface. */
export type LinkPart = (link: KernelLink) => Bits;
const index: LinkPart = (link) => hostNumber(link.index);
const name: LinkPart = (link) => nameBits(link.name);
const group: LinkPart = (link) => hostNumber(link.group);

/** Parts of an interface that rules read, by the key that reads them. */
export const LINK_PARTS: Readonly<Partial<Record<number, readonly ["inInterface" | "outInterface", LinkPart]>>> = {
  [MetaKey.iifname]: ["inInterface", name],
  [MetaKey.oifname]: ["outInterface", name],
  [MetaKey.iif]: ["inInterface", index],
  [MetaKey.oif]: ["outInterface", index],
  [MetaKey.iifgroup]: ["inInterface", group],
  [MetaKey.oifgroup]: ["outInterface", group],
};

/** nft_meta_get_eval. @param table family of the rule's table. */
export function metaValue(key: number, state: PacketState, table: Family, routes: Routes): Value | Promise<Value> {
  const value = META[key]?.(state, table);
  const linkPart = LINK_PARTS[key];
  if (value !== undefined || linkPart === undefined) return value ?? "maybe";
  const [end, part] = linkPart;
  // Without an interface, only the index has a value.
  if (state[end] === "") return part === index ? hostNumber(0) : "break";
  return linkValue(state[end], part, routes);
}

async function linkValue(device: string | undefined, part: LinkPart, routes: Routes): Promise<Value> {
  const link = device === undefined ? undefined : await routes.linkNamed(device);
  return link === undefined ? "maybe" : part(link);
}

function interfaceBits(name: string | undefined): Bits {
  return name === undefined ? unknownBits(16) : nameBits(name);
}

function nameBits(name: string): Bits {
  const bytes = new Uint8Array(16);
  bytes.set(Buffer.from(name).subarray(0, 15));
  return exactly(bytes);
}

/** Unlisted are helper, expiration, and counted packets and bytes. */
const CT: Readonly<Partial<Record<number, (state: PacketState) => Bits>>> = {
  [CtKey.status]: connectionStatus,
  [CtKey.direction]: ({ direction }) => exactly(Uint8Array.of(direction === "original" ? 0 : 1)),
  [CtKey.mark]: ({ ctMark }) => ctMark,
  [CtKey.labels]: ({ ctLabels }) => ctLabels,
  // With another zone, the packet's fate is unknown before (`setCt`, target CT).
  [CtKey.zone]: () => exactly(new Uint8Array(2)),
  [CtKey.protocol]: ({ protocol }) =>
    protocol === "icmp" ? unknownBits(1) : exactly(Uint8Array.of(IpProto[protocol])),
  [CtKey.l3protocol]: ({ family }) => exactly(Uint8Array.of(NfProto[family])),
};
const SOURCES: readonly number[] = [CtKey.src, CtKey.srcIp, CtKey.srcIp6];
const DESTINATIONS: readonly number[] = [CtKey.dst, CtKey.dstIp, CtKey.dstIp6];

/** nft_ct_get_eval. A packet without an entry only has a state. @param table family of the rule's table. */
export function ctValue(key: number, direction: number | undefined, state: PacketState, table: Family): Value {
  // A bridge has a connection tracker of its own.
  if (table === "bridge") return "maybe";
  if (key === CtKey.state) return hostNumber(state.ctState);
  if (state.tracking !== "tracked") return "break";
  const value = (field: Field): Value => connectionField(field, state, direction !== 0);
  if (SOURCES.includes(key)) return value("source");
  if (DESTINATIONS.includes(key)) return value("destination");
  if (key === CtKey.protoSrc) return value("sourcePort");
  return key === CtKey.protoDst ? value("destinationPort") : (CT[key]?.(state) ?? "maybe");
}

/**
 * The bits from SRC_NAT_DONE on belong to the tracker. The connection does not end with this packet: nobody has refused it. For a reply of an unknown connection, it is unknown whether that is
 * masqueraded or assured.
 */
export function connectionStatus(state: Readonly<PacketState>): Bits {
  const { destinationChanged, sourceChanged, direction, connection, answers } = state;
  const reply = direction === "reply" && answers === undefined;
  const value =
    (destinationChanged === true ? CtStatus.dnat : 0) |
    (sourceChanged === true ? CtStatus.snat : 0) |
    (reply ? CtStatus.seenReply | CtStatus.confirmed : 0);
  const isOpen = reply && connection === undefined;
  const unknown =
    (destinationChanged === undefined ? CtStatus.dnat : 0) |
    (sourceChanged === undefined || isOpen ? CtStatus.snat : 0) |
    (isOpen ? CtStatus.assured | CtStatus.expected : 0) |
    (answers === undefined ? 0 : CtStatus.confirmed | CtStatus.seenReply);
  return hostNumber(value, (0x7f | CtStatus.dying) & ~unknown);
}

/**
 * A field of the connection's first packet, or of its reply. Unknown for a reply whose first packet is unknown, and for an
 * address that masquerading chooses.
 */
export function connectionField(field: Field, state: Readonly<PacketState>, ofReply: boolean): Bits {
  const { family, direction, connection, tuple, masqueraded } = state;
  const { header, length } = placeOf(family, field);
  if (header === "transport" && state.protocol === "icmp") return unknownBits(length);
  if (direction === "reply") {
    if (connection === undefined) return unknownBits(length);
    return fieldOf(ofReply ? connection.reply : connection.original, family, field);
  }
  if (!ofReply) return fieldOf(tuple, family, field);
  const isFrom = field === "source" || field === "sourcePort";
  return fieldOf(isFrom || masqueraded ? state : tuple, family, OPPOSITE[field]);
}

/** The routing type of an address, or whether a packet arrives on the interface that its replies leave through. */
export async function fibValue(
  { result, flags }: Extract<Expr, { type: "fib" }>,
  state: PacketState,
  { routes }: World,
): Promise<Bits> {
  const isSource = (flags & FibFlag.saddr) !== 0;
  const address = isSource ? state.source : state.destination;
  const ofInterface = (flags & (FibFlag.iif | FibFlag.oif)) !== 0;
  if (result !== FibResult.addrtype) {
    // If the best route uses another interface, a second route of the same cost, or (IPv6) a worse one, may match as
    // well.
    const { inInterface } = state;
    const isThere =
      (flags & FibFlag.present) !== 0 &&
      (flags & FibFlag.iif) !== 0 &&
      address !== undefined &&
      inInterface !== undefined &&
      inInterface === (await routes.interfaceTo(address));
    return isThere ? hostNumber(1) : unknownBits(result === FibResult.oifname ? 16 : 4);
  }
  if (address === undefined)
    return !isSource && state.redirected && !ofInterface ? hostNumber(AddressType.local) : unknownBits(4);
  const type = await routes.addressType(address);
  // nft_fib6_eval_type: a route may also be missing, or of another type.
  const isOpen6 = state.family === "ip6" && type === AddressType.unicast;
  if (isOpen6 && (await routes.interfaceTo(address)) === undefined) return unknownBits(4);
  // The address is not local to an interface that does not have it.
  return ofInterface && type === AddressType.local ? unknownBits(4) : hostNumber(type);
}
