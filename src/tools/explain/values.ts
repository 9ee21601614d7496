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
} from "../../netlink/constants.js";
import type { Expr, Family } from "../../netlink/kernel.js";
import { type Bits, exactly, hostNumber, partOf, unknownBits } from "./bits.js";
import type { World } from "./world.js";
import { DESTINATION, type PacketState, protocolNumberOf, SOURCE } from "./packet.js";

/** "break": the packet has no such value, and the rule ends. `maybe`: the packet may have none. */
type Value = Bits | "break" | { readonly maybe: Bits };

/** nft_meta_get_eval. @param table family of the rule's table. */
export function metaValue(key: number, state: PacketState, table: Family): Value {
  const { family } = state;
  switch (key) {
    case MetaKey.mark:
      return state.mark;
    case MetaKey.priority:
      return state.priority;
    case MetaKey.l4proto:
      return exactly(Uint8Array.of(protocolNumberOf(state)));
    case MetaKey.nfproto:
      return exactly(Uint8Array.of(NfProto[table === "inet" ? family : table]));
    case MetaKey.protocol:
      // Ethertype.
      return exactly(family === "ip" ? Uint8Array.of(0x08, 0x00) : Uint8Array.of(0x86, 0xdd));
    case MetaKey.iifname:
      return interfaceBits(state.inInterface);
    case MetaKey.oifname:
      return interfaceBits(state.outInterface);
    case MetaKey.iif:
      return state.inInterface === "" ? hostNumber(0) : unknownBits(4);
    case MetaKey.oif:
      return state.outInterface === "" ? hostNumber(0) : unknownBits(4);
    case MetaKey.pkttype:
      return state.packetType;
    default:
      // Length, users, groups, cgroups, time, random numbers and others. Some may be absent.
      return { maybe: unknownBits(LONGEST) };
  }
}

/** Length of the longest value, bytes. */
const LONGEST = 16;

function interfaceBits(name: string | undefined): Bits {
  const bytes = new Uint8Array(16);
  if (name === undefined) return unknownBits(bytes.length);
  bytes.set(Buffer.from(name).subarray(0, 15));
  return exactly(bytes);
}

/** nft_ct_get_eval. A packet without an entry only has a state. @param table family of the rule's table. */
export function ctValue(key: number, direction: number | undefined, state: PacketState, table: Family): Value {
  // A bridge has a connection tracker of its own.
  if (table === "bridge") return { maybe: unknownBits(LONGEST) };
  if (key === CtKey.state) return hostNumber(state.ctState);
  if (state.tracking !== "tracked") return "break";
  switch (key) {
    case CtKey.status:
      return status(state);
    case CtKey.direction:
      return exactly(Uint8Array.of(state.direction === "original" ? 0 : 1));
    case CtKey.mark:
      return state.ctMark;
    case CtKey.labels:
      return state.ctLabels;
    case CtKey.protocol:
      return state.protocol === "icmp" ? unknownBits(1) : exactly(Uint8Array.of(IpProto[state.protocol]));
    case CtKey.l3protocol:
      return exactly(Uint8Array.of(NfProto[state.family]));
    case CtKey.src:
    case CtKey.srcIp:
    case CtKey.srcIp6:
      return address(state, direction === 0 ? "source" : "repliesFrom");
    case CtKey.dst:
    case CtKey.dstIp:
    case CtKey.dstIp6:
      return address(state, direction === 0 ? "destination" : "repliesTo");
    case CtKey.protoSrc:
      return port(state, direction === 0 ? "source" : "repliesFrom");
    case CtKey.protoDst:
      return port(state, direction === 0 ? "destination" : "repliesTo");
    default:
      // Zone, helper, expiration, and counted packets and bytes.
      return { maybe: unknownBits(LONGEST) };
  }
}

/**
 * The bits from SRC_NAT_DONE on belong to the tracker. For a reply of an unknown connection, it is unknown whether that is
 * masqueraded or assured.
 */
function status({ destinationChanged, sourceChanged, direction, connection, answers }: PacketState): Bits {
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
  return hostNumber(value, 0x7f & ~unknown);
}

type End = "source" | "destination" | "repliesFrom" | "repliesTo";

/**
 * An address of the connection. Unknown for a reply whose first packet is unknown, and for an address that masquerading
 * chooses.
 */
function address(state: PacketState, end: End): Bits {
  const [source, destination] = [SOURCE[state.family], DESTINATION[state.family]];
  const { connection, tuple } = state;
  if (state.direction === "reply") {
    if (connection === undefined) return unknownBits(source[1]);
    const { network } = end === "source" || end === "destination" ? connection.original : connection.reply;
    return partOf(network, ...(end === "source" || end === "repliesFrom" ? source : destination));
  }
  if (end === "source") return partOf(tuple.network, ...source);
  if (end === "destination") return partOf(tuple.network, ...destination);
  return end === "repliesFrom"
    ? state.destinationBits
    : state.masqueraded
      ? state.sourceBits
      : partOf(tuple.network, ...source);
}

function port(state: PacketState, end: End): Bits {
  const { connection, tuple } = state;
  if (state.protocol === "icmp") return unknownBits(2);
  if (state.direction === "reply") {
    if (connection === undefined) return unknownBits(2);
    const { transport } = end === "source" || end === "destination" ? connection.original : connection.reply;
    return partOf(transport, end === "source" || end === "repliesFrom" ? 0 : 2, 2);
  }
  if (end === "source") return partOf(tuple.transport, 0, 2);
  if (end === "destination") return partOf(tuple.transport, 2, 2);
  if (end === "repliesFrom") return partOf(state.transport, 2, 2);
  return partOf(state.masqueraded ? state.transport : tuple.transport, 0, 2);
}

/** The routing type of an address, or whether a packet arrives on the interface that its replies leave through. */
export async function fibValue(
  { result, flags }: Extract<Expr, { type: "fib" }>,
  state: PacketState,
  world: World,
): Promise<Value> {
  const address = (flags & FibFlag.saddr) !== 0 ? state.source : state.destination;
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
      inInterface === (await world.interfaceTo(address));
    if (isThere) return hostNumber(1);
    return unknownBits(result === FibResult.oifname ? 16 : 4);
  }
  if (address === undefined) {
    const isDestination = (flags & FibFlag.saddr) === 0;
    return isDestination && state.redirected && !ofInterface ? hostNumber(AddressType.local) : unknownBits(4);
  }
  const type = await world.addressType(address);
  // nft_fib6_eval_type: a route may also be missing, or of another type.
  if (state.family === "ip6" && type === AddressType.unicast && (await world.interfaceTo(address)) === undefined)
    return unknownBits(4);
  // The address is not local to an interface that does not have it.
  return ofInterface && type === AddressType.local ? unknownBits(4) : hostNumber(type);
}
