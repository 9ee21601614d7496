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
import type { Expr } from "../../netlink/kernel.js";
import { type Bits, exactly, hostNumber, partOf, unknownBits } from "./bits.js";
import type { World } from "./world.js";
import { DESTINATION, type PacketState, SOURCE } from "./packet.js";

/** "break": the packet has no such value, and the rule ends. `maybe`: the packet may have none. */
type Value = Bits | "break" | { readonly maybe: Bits };

/** nft_meta_get_eval */
export function metaValue(key: number, state: PacketState): Value {
  const { family, protocol } = state;
  switch (key) {
    case MetaKey.mark:
      return state.mark;
    case MetaKey.priority:
      return state.priority;
    case MetaKey.l4proto:
      return exactly(Uint8Array.of(IpProto[protocol]));
    case MetaKey.nfproto:
      return exactly(Uint8Array.of(NfProto[family]));
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

/** nft_ct_get_eval. A packet without an entry only has a state. */
export function ctValue(key: number, direction: number | undefined, state: PacketState): Value {
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
      return exactly(Uint8Array.of(IpProto[state.protocol]));
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
 * The bits from SRC_NAT_DONE on belong to the tracker. For a reply, it is unknown whether its connection is masqueraded
 * or assured.
 */
function status({ translated, masqueraded, direction }: PacketState): Bits {
  const reply = direction === "reply";
  const value =
    (translated ? CtStatus.dnat : 0) |
    (masqueraded ? CtStatus.snat : 0) |
    (reply ? CtStatus.seenReply | CtStatus.confirmed : 0);
  const known = 0x7f & ~(reply ? CtStatus.snat | CtStatus.assured | CtStatus.expected : 0);
  return { bytes: hostNumber(value & known).bytes, known: hostNumber(known).bytes };
}

type End = "source" | "destination" | "repliesFrom" | "repliesTo";

/**
 * An address of the connection. Unknown for a reply, because its first packet is unknown, and for an address that
 * masquerading sets.
 */
function address(state: PacketState, end: End): Bits {
  const length = state.family === "ip" ? 4 : 16;
  if (state.direction === "reply") return unknownBits(length);
  if (end === "source" || end === "destination") {
    const [at] = (end === "source" ? SOURCE : DESTINATION)[state.family];
    return partOf(state.tuple.network, at, length);
  }
  if (end === "repliesFrom") return partOf(state.network, DESTINATION[state.family][0], length);
  return state.masqueraded ? unknownBits(length) : partOf(state.tuple.network, SOURCE[state.family][0], length);
}

function port(state: PacketState, end: End): Bits {
  if (state.direction === "reply") return unknownBits(2);
  if (end === "source") return partOf(state.tuple.transport, 0, 2);
  if (end === "destination") return partOf(state.tuple.transport, 2, 2);
  if (end === "repliesFrom") return partOf(state.transport, 2, 2);
  return state.masqueraded ? unknownBits(2) : partOf(state.tuple.transport, 0, 2);
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
  // The address is not local to an interface that does not have it.
  return ofInterface && type === AddressType.local ? unknownBits(4) : hostNumber(type);
}
