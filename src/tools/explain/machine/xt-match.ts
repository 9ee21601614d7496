/** Evaluates the common matches of iptables. Others may match or not. Layouts: struct xt_*_info in linux/netfilter. */
import { AddressType } from "../../../nft/kernel/constants.js";
import { all, any, type Bits, equals, hasBit, isKnown, isWithin, masked, not, partOf, type Ternary } from "./bits.js";
import type { World } from "./machine-world.js";
import { type Field, IP_SETS, type PacketState, portBytes, protocolNumberOf } from "./packet-state.js";
import { connectionField, connectionStatus } from "./packet-values.js";
import { type Extension, u16, u32 } from "./xt-extension.js";

type Match = (info: Buffer, state: PacketState, world: World) => Ternary | Promise<Ternary>;

/** By name and revision, with the size of the information in bytes. */
const MATCHES: Readonly<Record<string, readonly [size: number, match: Match]>> = {
  "addrtype 0": [12, (info, ...rest) => addressTypes(info, [u32(info, 4) !== 0, u32(info, 8) !== 0], ...rest)],
  "addrtype 1": [
    8,
    (info, ...rest) => {
      const flags = u32(info, 4);
      // Limited to the addresses of an interface.
      return (flags & 12) !== 0 ? undefined : addressTypes(info, [(flags & 1) !== 0, (flags & 2) !== 0], ...rest);
    },
  ],
  "comment 0": [0, () => true],
  "connmark 1": [9, (info, { tracking, ctMark }) => tracking === "tracked" && hasMark(info, ctMark)],
  "conntrack 1": [152, (info, state) => connection(info, state, 1)],
  "conntrack 2": [154, (info, state) => connection(info, state, 2)],
  "conntrack 3": [162, (info, state) => connection(info, state, 3)],
  "iprange 1": [65, addressRanges],
  "mark 1": [9, (info, { mark }) => hasMark(info, mark)],
  "multiport 1": [48, multiport],
  "physdev 0": [66, physicalDevice],
  "rpfilter 0": [1, reversePath],
  // No described packet has a routing header, without which it does not match, even if inverted.
  "rt 0": [12, () => false],
  "set 1": [4, ipSet],
  "set 2": [4, ipSet],
  "set 3": [48, (info, ...rest) => (countsPackets(info, 8) ? undefined : ipSet(info, ...rest))],
  "set 4": [48, (info, ...rest) => (countsPackets(info, 16) ? undefined : ipSet(info, ...rest))],
  "state 0": [4, (info, state) => hasState(u32(info, 0), state, STATE_UNTRACKED, false)],
  "tcp 0": [12, tcp],
  "udp 0": [9, udp],
};

/** Returns undefined if the match cannot be evaluated. */
export function matches({ name, revision, info }: Extension, ...rest: [PacketState, World]): Promise<Ternary> {
  const key = `${name} ${revision}`;
  const [size = 0, match] = (Object.hasOwn(MATCHES, key) ? MATCHES[key] : undefined) ?? [];
  return Promise.resolve(match === undefined || info.length < size ? undefined : match(info, ...rest));
}

/** struct xt_mark_mtinfo1, xt_connmark_mtinfo1: mark, mask, invert. */
function hasMark(info: Buffer, mark: Bits): Ternary {
  return not(equals(masked(mark, info.subarray(4, 8)), info.subarray(0, 4)), info[8] !== 0);
}

/** The ports are in the host's byte order. */
function portWithin(state: PacketState, field: Field, low: number, high: number): Ternary {
  return isWithin(state.get(field), portBytes(low), portBytes(high));
}

/** struct xt_tcp: ranges of source and destination ports, option, mask and value of flags, and what is inverted. */
function tcp(info: Buffer, state: PacketState): Ternary {
  if (state.protocol !== "tcp") return false;
  // The options of the header are not known.
  if (info[8] !== 0) return undefined;
  const invert = info[11];
  const [mask = 0, value = 0] = info.subarray(9, 11);
  const flags = equals(masked(partOf(state.transport, 13, 1), Uint8Array.of(mask)), Uint8Array.of(value));
  return all([...portsWithin(info, state, invert), not(flags, (invert & 4) !== 0)]);
}

/** struct xt_udp */
function udp(info: Buffer, state: PacketState): Ternary {
  return state.protocol === "udp" && all(portsWithin(info, state, info[8]));
}

function portsWithin(info: Buffer, state: PacketState, invert: number): Ternary[] {
  return [
    not(portWithin(state, "sourcePort", u16(info, 0), u16(info, 2)), (invert & 1) !== 0),
    not(portWithin(state, "destinationPort", u16(info, 4), u16(info, 6)), (invert & 2) !== 0),
  ];
}

/** struct xt_multiport_v1: kind, count, 15 ports, of which some begin a range, and whether it is inverted. */
function multiport(info: Buffer, state: PacketState): Ternary {
  const [kind = 0, count = 0] = info;
  if (state.protocol === "icmp" || count > 15) return undefined;
  const fields = (["sourcePort", "destinationPort"] as const).filter((_, i) => kind > 1 || kind === i);
  const found: Ternary[] = [];
  for (let i = 0; i < count; i++) {
    const low = u16(info, 2 + 2 * i);
    const high = info[32 + i] === 0 ? low : u16(info, 2 + 2 * ++i);
    for (const field of fields) found.push(portWithin(state, field, low, high));
  }
  return not(any(found), info[47] !== 0);
}

/** Ranges of source and destination addresses, of 16 bytes each, and flags. */
function addressRanges(info: Buffer, state: PacketState): Ternary {
  const parts = (["source", "destination"] as const).map((end, i) => {
    const bits = state.get(end);
    const [from, to] = [32 * i, 32 * i + 16].map((at) => info.subarray(at, at + bits.bytes.length));
    return (info[64] & (1 << i)) === 0 || not(isWithin(bits, from, to), (info[64] & (16 << i)) !== 0);
  });
  return all(parts);
}

/** Masks of types of the source and the destination, and whether each is inverted. */
async function addressTypes(info: Buffer, isNot: boolean[], state: PacketState, { routes }: World): Promise<Ternary> {
  const parts = (["source", "destination"] as const).map(async (end, i) => {
    const [mask, address] = [u16(info, 2 * i), state[end]];
    if (mask === 0) return true;
    // For IPv6, other types are not those of `fib`, and may be combined.
    if (address === undefined || (state.family === "ip6" && mask !== 1 << AddressType.local)) return undefined;
    return not((mask & (1 << (await routes.addressType(address)))) !== 0, isNot[i]);
  });
  return all(await Promise.all(parts));
}

/** Flags of the match. */
const [LOOSE, ACCEPT_LOCAL, INVERT] = [1, 4, 8];

/** Holds if replies leave through the packet's interface. Otherwise another route may, as for `fib`. */
async function reversePath(info: Buffer, state: PacketState, world: World): Promise<Ternary> {
  const { inInterface, source } = state;
  const flags = info[0];
  const isInverted = (flags & INVERT) !== 0;
  if (inInterface === "lo") return !isInverted;
  if (inInterface === undefined || source === undefined) return undefined;
  const isFree = (await world.routes.addressType(source)) === AddressType.unicast || (flags & ACCEPT_LOCAL) !== 0;
  const back = await world.routes.interfaceTo(source);
  const holds = isFree && back !== undefined && (back === inInterface || (flags & LOOSE) !== 0);
  return holds ? !isInverted : undefined;
}

/** All conditions of the match. None holds for a packet that did not pass a bridge. */
const PHYSICAL = 0x1f;

async function physicalDevice(info: Buffer, { inInterface, family }: PacketState, { routes }: World): Promise<Ternary> {
  const [invert = 0, uses = 0] = info.subarray(64, 66);
  if (inInterface === undefined || (await routes.isBridged(family, inInterface))) return undefined;
  return (uses & PHYSICAL & ~invert) === 0;
}

/** IPSET_INV_MATCH, and IPSET_DIM_ONE_SRC: the source is looked up. */
const [NOT_IN_SET, OF_SOURCE] = [1, 2];

/** struct xt_set_info: the set's number, the count of the key's parts, and flags. */
async function ipSet(info: Buffer, state: PacketState, world: World): Promise<Ternary> {
  const [parts = 0, flags = 0] = info.subarray(2, 4);
  if (parts !== 1 || (flags & ~(NOT_IN_SET | OF_SOURCE)) !== 0 || state.changedSets.has(IP_SETS)) return undefined;
  const address = state.get((flags & OF_SOURCE) === 0 ? "destination" : "source");
  if (!isKnown(address)) return undefined;
  return not(await world.isInIpSet(u16(info, 0), address.bytes), (flags & NOT_IN_SET) !== 0);
}

/** struct xt_set_info_match_v3 and _v4: whether the match compares an element's counters, or has flags. */
function countsPackets(info: Buffer, at: number): boolean {
  return info[at] !== 0 || info[at + 16] !== 0 || u32(info, 40) !== 0;
}

/** XT_CONNTRACK_STATE_SNAT, _DNAT and _UNTRACKED, and XT_STATE_UNTRACKED. */
const [SNAT, DNAT, UNTRACKED, STATE_UNTRACKED] = [64, 128, 256, 64];

function hasState(mask: number, state: PacketState, untracked: number, withNat: boolean): Ternary {
  const { tracking, ctState, destinationChanged, sourceChanged, direction, connection } = state;
  const bit = tracking === "untracked" ? untracked : ctState;
  if ((mask & bit) !== 0) return true;
  if (tracking !== "tracked" || !withNat) return false;
  const isSourceOpen = sourceChanged === undefined || (direction === "reply" && connection === undefined);
  return any([
    (mask & DNAT) === 0 ? false : destinationChanged,
    (mask & SNAT) === 0 ? false : isSourceOpen ? undefined : sourceChanged,
  ]);
}

/** XT_CONNTRACK_*: what the match checks, or inverts. */
const Uses = { state: 1, protocol: 2, status: 64, expires: 128, direction: 0x1000 } as const;
/** Addresses with their masks, 16 bytes each, and ports: the flag, the field, whether it is the reply's, and the offset. */
const ENDS = [
  [4, "source", false, 0],
  [8, "destination", false, 32],
  [16, "source", true, 64],
  [32, "destination", true, 96],
  [0x100, "sourcePort", false, 138],
  [0x200, "destinationPort", false, 140],
  [0x400, "sourcePort", true, 142],
  [0x800, "destinationPort", true, 144],
] as const;

/** struct xt_conntrack_mtinfo1 to 3. */
function connection(info: Buffer, state: PacketState, revision: 1 | 2 | 3): Ternary {
  const [uses, invert] = [u16(info, 146), u16(info, 148)];
  const [states, statuses] = revision === 1 ? info.subarray(150, 152) : [u16(info, 150), u16(info, 152)];
  const check = (flag: number, holds: () => Ternary): Ternary =>
    (uses & flag) === 0 ? true : not(holds(), (invert & flag) !== 0);
  const ofState = check(Uses.state, () => hasState(states, state, UNTRACKED, true));
  if (state.tracking !== "tracked") return (uses & Uses.state) !== 0 && ofState;
  return all([
    ofState,
    check(Uses.expires, () => undefined),
    check(Uses.direction, () => (state.answers === undefined ? state.direction === "original" : undefined)),
    check(Uses.protocol, () => u16(info, 136) === protocolNumberOf(state)),
    check(Uses.status, () => hasBit(connectionStatus(state), statuses)),
    ...ENDS.map(([flag, field, ofReply, at]) =>
      check(flag, () => {
        const bits = connectionField(field, state, ofReply);
        const { length } = bits.bytes;
        if (length > 2) {
          const mask = info.subarray(at + 16, at + 16 + length);
          const wanted = info.subarray(at, at + length).map((byte, i) => byte & mask[i]);
          return equals(masked(bits, mask), wanted);
        }
        const low = revision === 3 ? portBytes(u16(info, at)) : info.subarray(at, at + 2);
        return isWithin(bits, low, revision === 3 ? portBytes(u16(info, at + 16)) : low);
      }),
    ),
  ]);
}
