/**
 * Numbers of linux/netfilter/nf_tables.h and related headers, by the headers' names without their prefix, in lower camel case
 * (NFT_CT_L3PROTOCOL -> CtKey.l3protocol). `@nft-proxier/nft` exports all of them, for raw kernel expressions.
 */

/** NF_INET_*. Only inet tables have ingress (Linux 5.10), with devices; it precedes prerouting. */
export const Hook = { prerouting: 0, input: 1, forward: 2, output: 3, postrouting: 4, ingress: 5 } as const;
/** Names of `Hook` by number. */
export const HOOK_NAMES: readonly string[] = Object.keys(Hook);
/** NF_ARP_*. nft does not support the forward hook of arptables, 2. */
export const ArpHook = { input: 0, output: 1 } as const;
/** NF_NETDEV_*; egress: Linux 5.16. */
export const NetdevHook = { ingress: 0, egress: 1 } as const;

/** NF_IP_PRI_*, by nft's names. */
export const Priority = { raw: -300, mangle: -150, dstnat: -100, filter: 0, security: 50, srcnat: 100 } as const;
/** NF_BR_PRI_*, by nft's names. */
export const BridgePriority = { dstnat: -300, filter: -200, out: 100, srcnat: 300 } as const;

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

/**
 * nft's ids of data types, by nft's names of the types. nft itself calls time_date, time_hour and time_day "time", "hour" and "day". The id of
 * a concatenation is `ids.reduce((all, id) => all << 6 | id)`.
 */
export const DataTypeId = {
  verdict: 1,
  nf_proto: 2,
  bitmask: 3,
  integer: 4,
  string: 5,
  ll_addr: 6,
  ipv4_addr: 7,
  ipv6_addr: 8,
  ether_addr: 9,
  ether_type: 10,
  arp_op: 11,
  inet_proto: 12,
  inet_service: 13,
  icmp_type: 14,
  tcp_flag: 15,
  dccp_pkttype: 16,
  mh_type: 17,
  time: 18,
  mark: 19,
  iface_index: 20,
  iface_type: 21,
  realm: 22,
  classid: 23,
  uid: 24,
  gid: 25,
  ct_state: 26,
  ct_dir: 27,
  ct_status: 28,
  icmpv6_type: 29,
  ct_label: 30,
  pkt_type: 31,
  icmp_code: 32,
  icmpv6_code: 33,
  icmpx_code: 34,
  devgroup: 35,
  dscp: 36,
  ecn: 37,
  fib_addrtype: 38,
  boolean: 39,
  ct_event: 40,
  ifname: 41,
  igmp_type: 42,
  time_date: 43,
  time_hour: 44,
  time_day: 45,
  cgroupsv2: 46,
} as const;

/** `inner`: data after the transport header (Linux 5.16); `tunnel`: a tunnel's header, in an `inner` expression. */
export const PayloadBase = { link: 0, network: 1, transport: 2, inner: 3, tunnel: 4 } as const;
export const PayloadCsumType = { none: 0, inet: 1, sctp: 2 } as const;
export const PayloadCsumFlag = { l4csumPseudohdr: 1 } as const;
export const CmpOp = { eq: 0, neq: 1, lt: 2, lte: 3, gt: 4, gte: 5 } as const;
export const RangeOp = { eq: 0, neq: 1 } as const;
/** and, or, xor: Linux 6.13. */
export const BitwiseOp = { maskXor: 0, lshift: 1, rshift: 2, and: 3, or: 4, xor: 5 } as const;
export const ByteorderOp = { ntoh: 0, hton: 1 } as const;
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
  skgid: 11,
  nftrace: 12,
  rtclassid: 13,
  secmark: 14,
  nfproto: 15,
  l4proto: 16,
  briIifname: 17,
  briOifname: 18,
  pkttype: 19,
  cpu: 20,
  iifgroup: 21,
  oifgroup: 22,
  cgroup: 23,
  prandom: 24,
  secpath: 25,
  iifkind: 26,
  oifkind: 27,
  briIifpvid: 28,
  briIifvproto: 29,
  timeNs: 30,
  timeDay: 31,
  timeHour: 32,
  sdif: 33,
  sdifname: 34,
  briBroute: 35,
  briIifhwaddr: 37,
} as const;
export const CtKey = {
  state: 0,
  direction: 1,
  status: 2,
  mark: 3,
  secmark: 4,
  expiration: 5,
  helper: 6,
  l3protocol: 7,
  src: 8,
  dst: 9,
  protocol: 10,
  protoSrc: 11,
  protoDst: 12,
  labels: 13,
  packets: 14,
  bytes: 15,
  avgpkt: 16,
  zone: 17,
  eventmask: 18,
  srcIp: 19,
  dstIp: 20,
  srcIp6: 21,
  dstIp6: 22,
  id: 23,
} as const;
/** IP_CT_DIR_*. */
export const CtDirection = { original: 0, reply: 1 } as const;
/** Bits of `ct state` (NF_CT_STATE_BIT). */
export const CtState = { invalid: 1, established: 2, related: 4, new: 8, untracked: 64 } as const;
/** Bits of `ct status` (enum ip_conntrack_status). */
export const CtStatus = {
  expected: 1,
  seenReply: 2,
  assured: 4,
  confirmed: 8,
  snat: 16,
  dnat: 32,
  seqAdjust: 64,
  srcNatDone: 128,
  dstNatDone: 256,
  dying: 512,
  fixedTimeout: 1024,
  template: 2048,
  natClash: 4096,
  helper: 8192,
  offload: 16384,
  hwOffload: 32768,
} as const;
/** Bits of `ct event`: 1 << IPCT_*. */
export const CtEvent = {
  new: 1,
  related: 2,
  destroy: 4,
  reply: 8,
  assured: 16,
  protoinfo: 32,
  helper: 64,
  mark: 128,
  seqadj: 256,
  secmark: 512,
  label: 1024,
  synproxy: 2048,
} as const;
export const NatType = { snat: 0, dnat: 1 } as const;
/** NF_NAT_RANGE_*. */
export const NatFlag = {
  mapIps: 1,
  protoSpecified: 2,
  protoRandom: 4,
  persistent: 8,
  protoRandomFully: 16,
  protoOffset: 32,
  netmap: 64,
} as const;
export const NumgenType = { incremental: 0, random: 1 } as const;
export const HashType = { jenkins: 0, sym: 1 } as const;
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
export const RtKey = { classid: 0, nexthop4: 1, nexthop6: 2, tcpmss: 3, xfrm: 4 } as const;
export const SocketKey = { transparent: 0, mark: 1, wildcard: 2, cgroupv2: 3 } as const;
export const XfrmKey = { daddrIp4: 1, daddrIp6: 2, saddrIp4: 3, saddrIp6: 4, reqid: 5, spi: 6 } as const;
/** XFRM_POLICY_*. */
export const XfrmDirection = { in: 0, out: 1 } as const;
export const TunnelKey = { path: 0, id: 1 } as const;
export const TunnelMode = { none: 0, rx: 1, tx: 2 } as const;
export const InnerType = { vxlan: 1, geneve: 2 } as const;
export const InnerFlag = { hdrsize: 1, ll: 2, nh: 4, th: 8 } as const;
export const OsfFlag = { version: 1 } as const;
/** NF_OSF_TTL_*. */
export const OsfTtl = { true: 0, less: 1, nocheck: 2 } as const;

export const ExthdrOp = { ipv6: 0, tcpopt: 1, ipv4: 2, sctp: 3, dccp: 4 } as const;
export const ExthdrFlag = { present: 1 } as const;
/** IPv6 extension headers: `hdrType` of ExthdrOp.ipv6. */
export const Ipv6Header = { hopopts: 0, routing: 43, fragment: 44, esp: 50, ah: 51, dstopts: 60, mh: 135 } as const;
/** TCPOPT_*: `hdrType` of ExthdrOp.tcpopt. */
export const TcpOption = {
  eol: 0,
  nop: 1,
  mss: 2,
  window: 3,
  sackPerm: 4,
  sack: 5,
  timestamp: 8,
  md5sig: 19,
  ao: 29,
  mptcp: 30,
  fastopen: 34,
} as const;
/** IPOPT_*: `hdrType` of ExthdrOp.ipv4. The kernel finds these four. */
export const IpOption = { rr: 7, lsrr: 131, ssrr: 137, ra: 148 } as const;
/** SCTP_CID_*: `hdrType` of ExthdrOp.sctp. */
export const SctpChunk = {
  data: 0,
  init: 1,
  initAck: 2,
  sack: 3,
  heartbeat: 4,
  heartbeatAck: 5,
  abort: 6,
  shutdown: 7,
  shutdownAck: 8,
  error: 9,
  cookieEcho: 10,
  cookieAck: 11,
  ecnEcne: 12,
  ecnCwr: 13,
  shutdownComplete: 14,
  auth: 15,
  iData: 64,
  asconfAck: 128,
  reconf: 130,
  pad: 132,
  fwdTsn: 192,
  asconf: 193,
  iFwdTsn: 194,
} as const;

export const RejectType = { icmpUnreachable: 0, tcpReset: 1, icmpxUnreachable: 2 } as const;
/** ICMP_*: codes of RejectType.icmpUnreachable in IPv4. */
export const IcmpUnreachable = {
  net: 0,
  host: 1,
  prot: 2,
  port: 3,
  fragNeeded: 4,
  srFailed: 5,
  netUnknown: 6,
  hostUnknown: 7,
  hostIsolated: 8,
  netAno: 9,
  hostAno: 10,
  netUnrTos: 11,
  hostUnrTos: 12,
  pktFiltered: 13,
  precViolation: 14,
  precCutoff: 15,
} as const;
/** ICMPV6_*: codes of RejectType.icmpUnreachable in IPv6. */
export const Icmpv6Unreachable = {
  noroute: 0,
  admProhibited: 1,
  notNeighbour: 2,
  addrUnreach: 3,
  portUnreach: 4,
  policyFail: 5,
  rejectRoute: 6,
} as const;
/** NFT_REJECT_ICMPX_*: codes of RejectType.icmpxUnreachable. */
export const IcmpxUnreachable = { noRoute: 0, portUnreach: 1, hostUnreach: 2, adminProhibited: 3 } as const;
export const DynsetOp = { add: 0, update: 1, delete: 2 } as const;
/** The kernel's dumps lack `expr`, but several expressions need it. */
export const DynsetFlag = { invert: 1, expr: 2 } as const;
export const LimitType = { pkts: 0, pktBytes: 1 } as const;
export const LimitFlag = { invert: 1 } as const;
export const ConnlimitFlag = { invert: 1 } as const;
export const QuotaFlag = { invert: 1, depleted: 2 } as const;
export const LogLevel = {
  emerg: 0,
  alert: 1,
  crit: 2,
  err: 3,
  warning: 4,
  notice: 5,
  info: 6,
  debug: 7,
  audit: 8,
} as const;
/** NF_LOG_*. */
export const LogFlag = { tcpSeq: 1, tcpOpt: 2, ipOpt: 4, uid: 8, macDecode: 32 } as const;
export const QueueFlag = { bypass: 1, cpuFanout: 2 } as const;
/** NF_SYNPROXY_OPT_*. */
export const SynproxyFlag = { mss: 1, wscale: 2, sackPerm: 4, timestamp: 8 } as const;
/** NFT_OBJECT_*. */
export const ObjectType = {
  counter: 1,
  quota: 2,
  ctHelper: 3,
  limit: 4,
  connlimit: 5,
  tunnel: 6,
  ctTimeout: 7,
  secmark: 8,
  ctExpect: 9,
  synproxy: 10,
} as const;
export { IpProto } from "../../base/protocols.js";
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
