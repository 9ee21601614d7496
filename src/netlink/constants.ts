/** Numbers of linux/netfilter/nf_tables.h and related headers, by the headers' names. */

export const Hook = { prerouting: 0, input: 1, forward: 2, output: 3, postrouting: 4 } as const;
export const HOOK_NAMES: readonly string[] = Object.keys(Hook);

/** NF_IP_PRI_*, by nft's names. */
export const Priority = { raw: -300, mangle: -150, dstnat: -100, filter: 0, security: 50, srcnat: 100 } as const;

export const TableFlag = { dormant: 1, owner: 2, persist: 4 } as const;

/** NFT_CHAIN_*. A binding chain belongs to the one rule that jumps to it: nft's `jump { … }`. */
export const ChainFlag = { base: 1, hwOffload: 2, binding: 4 } as const;

export const SetFlag = {
  anonymous: 0x1,
  constant: 0x2,
  interval: 0x4,
  map: 0x8,
  timeout: 0x10,
  eval: 0x20,
  object: 0x40,
  concat: 0x80,
  expr: 0x100,
} as const;

/** NFT_FLOWTABLE_*. */
export const FlowtableFlag = { hwOffload: 1, counter: 2 } as const;

export const ElementFlag = { intervalEnd: 1, catchall: 2 } as const;

/** NFT_DATA_VERDICT as a map's data type. */
export const DATA_VERDICT = 0xffffff00;

/** nft's datatype ids. The id of a concatenation is `ids.reduce((all, id) => all << 6 | id)`. */
export const DataTypeId = {
  integer: 4,
  ipv4_addr: 7,
  ipv6_addr: 8,
  ether_addr: 9,
  inet_proto: 12,
  inet_service: 13,
  mark: 19,
  classid: 23,
  ifname: 41,
} as const;

export const PayloadBase = { link: 0, network: 1, transport: 2 } as const;
export const CmpOp = { eq: 0, neq: 1, lt: 2, lte: 3, gt: 4, gte: 5 } as const;
export const RangeOp = { eq: 0, neq: 1 } as const;
export const BitwiseOp = { maskXor: 0, lshift: 1, rshift: 2 } as const;
export const LookupFlag = { invert: 1 } as const;
export const MetaKey = {
  len: 0,
  protocol: 1,
  priority: 2,
  mark: 3,
  iif: 4,
  oif: 5,
  iifname: 6,
  oifname: 7,
  iiftype: 8,
  oiftype: 9,
  skuid: 10,
  nftrace: 12,
  skgid: 11,
  nfproto: 15,
  l4proto: 16,
  pkttype: 19,
} as const;
export const CtKey = {
  state: 0,
  direction: 1,
  status: 2,
  mark: 3,
  l3protocol: 7,
  src: 8,
  dst: 9,
  protocol: 10,
  protoSrc: 11,
  protoDst: 12,
  labels: 13,
  packets: 14,
  zone: 17,
  srcIp: 19,
  dstIp: 20,
  srcIp6: 21,
  dstIp6: 22,
} as const;
/** Bits of `ct state` (NF_CT_STATE_BIT). */
export const CtState = { invalid: 1, established: 2, related: 4, new: 8, untracked: 64 } as const;
/** Bits of `ct status` (enum ip_conntrack_status). */
export const CtStatus = { expected: 1, seenReply: 2, assured: 4, confirmed: 8, snat: 16, dnat: 32 } as const;
export const NatType = { snat: 0, dnat: 1 } as const;
/** NF_NAT_RANGE_*. */
export const NatFlag = {
  mapIps: 1,
  protoSpecified: 2,
  protoRandom: 4,
  persistent: 8,
  protoRandomFully: 16,
  netmap: 64,
} as const;
export const NumgenType = { incremental: 0, random: 1 } as const;
export const FibResult = { oif: 1, oifname: 2, addrtype: 3 } as const;
export const FibFlag = { saddr: 1, daddr: 2, mark: 4, iif: 8, oif: 16, present: 32 } as const;
/** RTN_* from linux/rtnetlink.h, as `fib ... type` returns them. */
export const AddressType = {
  unspec: 0,
  unicast: 1,
  local: 2,
  broadcast: 3,
  anycast: 4,
  multicast: 5,
  blackhole: 6,
  unreachable: 7,
  prohibit: 8,
} as const;
export const RejectType = { icmpUnreachable: 0, tcpReset: 1, icmpxUnreachable: 2 } as const;
export const DynsetOp = { add: 0, update: 1, delete: 2 } as const;
export { IpProto } from "../base/protocols.js";
/** Bits of the 14th byte of a TCP header. */
export const TcpFlag = {
  fin: 0x01,
  syn: 0x02,
  rst: 0x04,
  psh: 0x08,
  ack: 0x10,
  urg: 0x20,
  ecn: 0x40,
  cwr: 0x80,
} as const;
/** NFT_TRACETYPE_*. */
export const TraceType = { policy: 1, return: 2, rule: 3 } as const;
/** NFPROTO_*. */
export const NfProto = { inet: 1, ip: 2, arp: 3, netdev: 5, bridge: 7, ip6: 10 } as const;

/**
 * Returns the kernel's number in dumps for the register that starts at 32-bit word `word` (0..15): NFT_REG_1..4 on 16-byte boundaries,
 * NFT_REG32_xx elsewhere (nft_dump_register).
 */
export function register(word: number): number {
  return word % 4 === 0 ? 1 + word / 4 : 8 + word;
}
/** NFT_REG_VERDICT. */
export const VERDICT_REGISTER = 0;
