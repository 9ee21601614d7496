/**
 * The table of fields: everything that a packet, its connection, its routes and its sockets carry, under nft's own names. Matches, keys, sources of values, the
 * conditions that a field needs (dependencies.ts), nft's text and the list in docs/fields.md come from it. A new field takes one line.
 *
 * Offsets and widths are in bits. Facts: the headers' RFCs, linux/netfilter/nf_tables.h, and nft 1.0.6.
 */
import { CtKey, FibFlag, FibResult, MetaKey, PayloadBase } from "../../kernel/constants.js";
import type { Expr, Family } from "../../kernel/kernel.js";
import { FIELD_TYPES, type ValueType, type Width } from "./field-types.js";

type Base = keyof typeof PayloadBase;

export type Source =
  | { readonly from: "payload"; readonly base: Base; readonly offset: number }
  | { readonly from: "meta"; readonly key: number }
  | { readonly from: "ct"; readonly key: number; readonly direction?: number }
  /** `op`: 0 for extension headers of IPv6, 1 for TCP options, 2 for IPv4 options (enum nft_exthdr_op). */
  | {
      readonly from: "exthdr";
      readonly op: number;
      readonly header: number;
      readonly offset: number;
      readonly present?: true;
    }
  | { readonly from: "rt" | "socket"; readonly key: number; readonly level?: number }
  | { readonly from: "fib"; readonly result: number; readonly flags: number }
  | { readonly from: "osf" };

export interface FieldEntry<T extends ValueType = ValueType> {
  readonly type: T;
  readonly bits: number;
  readonly source: Source;
  /** Whether a rule can write it with its `set` action. "only": the kernel cannot read it. */
  readonly settable?: true | "only";
  /** The only families whose packets have it. Absent: what its header tells. */
  readonly families?: readonly Family[];
  /** ICMP types of the messages that have the field. Without a match on the type, the rule gets one. */
  readonly messages?: readonly number[];
}

const entry = <T extends ValueType>(type: T, source: Source, bits: number = FIELD_TYPES[type].bits): FieldEntry<T> => ({
  type,
  bits,
  source,
});
const payload =
  (base: Base) =>
  <T extends ValueType>(type: T, offset: number, bits?: number, messages?: readonly number[]): FieldEntry<T> => ({
    ...entry(type, { from: "payload", base, offset }, bits),
    settable: true,
    ...(messages === undefined ? {} : { messages }),
  });
const link = payload("link");
const net = payload("network");
const th = payload("transport");
const meta = <T extends ValueType>(type: T, key: keyof typeof MetaKey, bits?: number): FieldEntry<T> =>
  entry(type, { from: "meta", key: MetaKey[key] }, bits);
const ct = <T extends ValueType>(type: T, key: keyof typeof CtKey, bits?: number, direction?: 0 | 1): FieldEntry<T> =>
  entry(type, { from: "ct", key: CtKey[key], ...(direction === undefined ? {} : { direction }) }, bits);
const exthdr =
  (op: number, header: number) =>
  <T extends ValueType>(type: T, offset: number, bits?: number): FieldEntry<T> =>
    entry(type, { from: "exthdr", op, header, offset }, bits);
const present = (op: number, header: number): FieldEntry<"boolean"> =>
  entry("boolean", { from: "exthdr", op, header, offset: 0, present: true });
const only = <E extends FieldEntry>(field: E, ...families: Family[]): E => ({ ...field, families });
const rt = <T extends ValueType>(type: T, key: number, bits?: number): FieldEntry<T> =>
  only(entry(type, { from: "rt", key }, bits), "ip", "ip6", "inet");
const socket = <T extends ValueType>(type: T, key: number, bits?: number): FieldEntry<T> =>
  only(entry(type, { from: "socket", key }, bits), "ip", "ip6", "inet");
const settable = <E extends FieldEntry>(field: E): E => ({ ...field, settable: true });
const writeOnly = <E extends FieldEntry>(field: E): E => ({ ...field, settable: "only" });

/** IPPROTO_* of IPv6's extension headers. */
const HBH = exthdr(0, 0);
const ROUTING = exthdr(0, 43);
const FRAGMENT = exthdr(0, 44);
const DESTINATION = exthdr(0, 60);
const MOBILITY = exthdr(0, 135);
const MAXSEG = exthdr(1, 2);
const WINDOW = exthdr(1, 3);
const TIMESTAMP = exthdr(1, 8);
/** Types of ICMP and ICMPv6 messages. */
const ECHO = [8, 0];
const ECHO6 = [128, 129];

export const FIELDS = {
  "ether daddr": link("ether_addr", 0),
  "ether saddr": link("ether_addr", 48),
  "ether type": link("ether_type", 96),
  "vlan pcp": link("integer", 112, 3),
  "vlan dei": link("integer", 115, 1),
  "vlan id": link("integer", 116, 12),
  "vlan type": link("ether_type", 128),

  "arp htype": net("integer", 0, 16),
  "arp ptype": net("ether_type", 16),
  "arp hlen": net("integer", 32, 8),
  "arp plen": net("integer", 40, 8),
  "arp operation": net("arp_op", 48),
  "arp saddr ether": net("ether_addr", 64),
  "arp saddr ip": net("ipv4_addr", 112),
  "arp daddr ether": net("ether_addr", 144),
  "arp daddr ip": net("ipv4_addr", 192),

  "ip version": net("integer", 0, 4),
  "ip hdrlength": net("integer", 4, 4),
  "ip dscp": net("dscp", 8),
  "ip ecn": net("ecn", 14),
  "ip length": net("integer", 16, 16),
  "ip id": net("integer", 32, 16),
  "ip frag-off": net("integer", 48, 16),
  "ip ttl": net("integer", 64, 8),
  "ip protocol": net("inet_proto", 72),
  "ip checksum": net("integer", 80, 16),
  "ip saddr": net("ipv4_addr", 96),
  "ip daddr": net("ipv4_addr", 128),
  "ip option lsrr": present(2, 131),
  "ip option rr": present(2, 7),
  "ip option ssrr": present(2, 137),
  "ip option ra": present(2, 148),
  "ip option ra value": exthdr(2, 148)("integer", 16, 16),

  "ip6 version": net("integer", 0, 4),
  "ip6 dscp": net("dscp", 4),
  "ip6 ecn": net("ecn", 10),
  "ip6 flowlabel": net("integer", 12, 20),
  "ip6 length": net("integer", 32, 16),
  "ip6 nexthdr": net("inet_proto", 48),
  "ip6 hoplimit": net("integer", 56, 8),
  "ip6 saddr": net("ipv6_addr", 64),
  "ip6 daddr": net("ipv6_addr", 192),
  "exthdr hbh": present(0, 0),
  "exthdr rt": present(0, 43),
  "exthdr frag": present(0, 44),
  "exthdr dst": present(0, 60),
  "exthdr mh": present(0, 135),
  "hbh nexthdr": HBH("inet_proto", 0),
  "hbh hdrlength": HBH("integer", 8, 8),
  "rt nexthdr": ROUTING("inet_proto", 0),
  "rt hdrlength": ROUTING("integer", 8, 8),
  "rt type": ROUTING("integer", 16, 8),
  "rt seg-left": ROUTING("integer", 24, 8),
  "frag nexthdr": FRAGMENT("inet_proto", 0),
  "frag frag-off": FRAGMENT("integer", 16, 13),
  "frag more-fragments": FRAGMENT("integer", 31, 1),
  "frag id": FRAGMENT("integer", 32, 32),
  "dst nexthdr": DESTINATION("inet_proto", 0),
  "dst hdrlength": DESTINATION("integer", 8, 8),
  "mh nexthdr": MOBILITY("inet_proto", 0),
  "mh hdrlength": MOBILITY("integer", 8, 8),
  "mh checksum": MOBILITY("integer", 32, 16),

  "icmp type": th("icmp_type", 0),
  "icmp code": th("icmp_code", 8),
  "icmp checksum": th("integer", 16, 16),
  "icmp id": th("integer", 32, 16, ECHO),
  "icmp sequence": th("integer", 48, 16, ECHO),
  "icmp mtu": th("integer", 48, 16, [3]),
  "icmp gateway": th("integer", 32, 32, [5]),
  "icmpv6 type": th("icmpv6_type", 0),
  "icmpv6 code": th("icmpv6_code", 8),
  "icmpv6 checksum": th("integer", 16, 16),
  "icmpv6 id": th("integer", 32, 16, ECHO6),
  "icmpv6 sequence": th("integer", 48, 16, ECHO6),
  "icmpv6 mtu": th("integer", 32, 32, [2]),
  "icmpv6 param-problem": th("integer", 32, 32, [4]),
  "icmpv6 max-delay": th("integer", 32, 16, [130]),
  "igmp type": th("igmp_type", 0),
  "igmp mrt": th("integer", 8, 8),
  "igmp checksum": th("integer", 16, 16),
  "igmp group": th("integer", 32, 32),

  "th sport": th("inet_service", 0),
  "th dport": th("inet_service", 16),
  "tcp sport": th("inet_service", 0),
  "tcp dport": th("inet_service", 16),
  "tcp sequence": th("integer", 32, 32),
  "tcp ackseq": th("integer", 64, 32),
  "tcp doff": th("integer", 96, 4),
  "tcp reserved": th("integer", 100, 4),
  "tcp flags": th("tcp_flag", 104),
  "tcp window": th("integer", 112, 16),
  "tcp checksum": th("integer", 128, 16),
  "tcp urgptr": th("integer", 144, 16),
  "tcp option maxseg": present(1, 2),
  "tcp option window": present(1, 3),
  "tcp option sack-perm": present(1, 4),
  "tcp option sack": present(1, 5),
  "tcp option timestamp": present(1, 8),
  "tcp option md5sig": present(1, 19),
  "tcp option fastopen": present(1, 34),
  "tcp option maxseg size": settable(MAXSEG("integer", 16, 16)),
  // The kernel only sets options of 2 or 4 bytes.
  "tcp option window count": WINDOW("integer", 16, 8),
  "tcp option timestamp tsval": settable(TIMESTAMP("integer", 16, 32)),
  "tcp option timestamp tsecr": settable(TIMESTAMP("integer", 48, 32)),
  "udp sport": th("inet_service", 0),
  "udp dport": th("inet_service", 16),
  "udp length": th("integer", 32, 16),
  "udp checksum": th("integer", 48, 16),
  "udplite sport": th("inet_service", 0),
  "udplite dport": th("inet_service", 16),
  "udplite csumcov": th("integer", 32, 16),
  "udplite checksum": th("integer", 48, 16),
  "sctp sport": th("inet_service", 0),
  "sctp dport": th("inet_service", 16),
  "sctp vtag": th("integer", 32, 32),
  "sctp checksum": th("integer", 64, 32),
  "dccp sport": th("inet_service", 0),
  "dccp dport": th("inet_service", 16),
  "dccp type": th("dccp_pkttype", 67),
  "ah hdrlength": th("integer", 8, 8),
  "ah spi": th("integer", 32, 32),
  "ah sequence": th("integer", 64, 32),
  "esp spi": th("integer", 0, 32),
  "esp sequence": th("integer", 32, 32),
  "comp cpi": th("integer", 16, 16),

  "meta length": meta("integer", "len"),
  "meta protocol": meta("ether_type", "protocol"),
  "meta nfproto": only(meta("nf_proto", "nfproto"), "inet"),
  "meta l4proto": only(meta("inet_proto", "l4proto"), "ip", "ip6", "inet", "bridge", "netdev"),
  "meta priority": settable(meta("classid", "priority")),
  "meta mark": settable(meta("mark", "mark")),
  iif: meta("iface_index", "iif"),
  oif: meta("iface_index", "oif"),
  iifname: meta("ifname", "iifname"),
  oifname: meta("ifname", "oifname"),
  iiftype: meta("iface_type", "iiftype"),
  oiftype: meta("iface_type", "oiftype"),
  iifgroup: meta("devgroup", "iifgroup"),
  oifgroup: meta("devgroup", "oifgroup"),
  "meta skuid": meta("uid", "skuid"),
  "meta skgid": meta("gid", "skgid"),
  "meta nftrace": writeOnly(meta("integer", "nftrace", 1)),
  "meta rtclassid": meta("realm", "rtclassid"),
  "meta pkttype": settable(meta("pkt_type", "pkttype")),
  "meta cpu": meta("integer", "cpu"),
  "meta cgroup": meta("integer", "cgroup"),
  "meta ipsec": only(meta("boolean", "secpath"), "ip", "ip6", "inet", "netdev"),
  "meta iifkind": meta("ifname", "iifkind"),
  "meta oifkind": meta("ifname", "oifkind"),
  "meta ibrname": only(meta("ifname", "briIifname"), "bridge"),
  "meta obrname": only(meta("ifname", "briOifname"), "bridge"),
  "meta day": meta("day", "timeDay"),
  "meta hour": meta("hour", "timeHour"),

  "ct state": ct("ct_state", "state"),
  "ct direction": ct("ct_dir", "direction"),
  "ct status": ct("ct_status", "status"),
  "ct mark": settable(ct("mark", "mark")),
  "ct expiration": ct("time", "expiration"),
  "ct l3proto": ct("nf_proto", "l3protocol"),
  "ct protocol": ct("inet_proto", "protocol"),
  "ct zone": settable(ct("integer", "zone", 16)),
  "ct event": writeOnly(ct("ct_event", "eventmask")),
  "ct bytes": ct("integer", "bytes", 64),
  "ct packets": ct("integer", "packets", 64),
  "ct avgpkt": ct("integer", "avgpkt", 64),
  "ct original bytes": ct("integer", "bytes", 64, 0),
  "ct reply bytes": ct("integer", "bytes", 64, 1),
  "ct original packets": ct("integer", "packets", 64, 0),
  "ct reply packets": ct("integer", "packets", 64, 1),
  "ct original ip saddr": ct("ipv4_addr", "srcIp", undefined, 0),
  "ct original ip daddr": ct("ipv4_addr", "dstIp", undefined, 0),
  "ct reply ip saddr": ct("ipv4_addr", "srcIp", undefined, 1),
  "ct reply ip daddr": ct("ipv4_addr", "dstIp", undefined, 1),
  "ct original ip6 saddr": ct("ipv6_addr", "srcIp6", undefined, 0),
  "ct original ip6 daddr": ct("ipv6_addr", "dstIp6", undefined, 0),
  "ct reply ip6 saddr": ct("ipv6_addr", "srcIp6", undefined, 1),
  "ct reply ip6 daddr": ct("ipv6_addr", "dstIp6", undefined, 1),
  "ct original proto-src": ct("inet_service", "protoSrc", undefined, 0),
  "ct original proto-dst": ct("inet_service", "protoDst", undefined, 0),
  "ct reply proto-src": ct("inet_service", "protoSrc", undefined, 1),
  "ct reply proto-dst": ct("inet_service", "protoDst", undefined, 1),

  "rt classid": rt("realm", 0),
  "rt ip nexthop": only(rt("ipv4_addr", 1), "ip", "inet"),
  "rt ip6 nexthop": only(rt("ipv6_addr", 2), "ip6", "inet"),
  "rt mtu": rt("integer", 3, 16),
  "rt ipsec": rt("boolean", 4),
  "socket transparent": socket("integer", 0, 1),
  "socket mark": socket("mark", 1),
  "socket wildcard": socket("integer", 2, 1),
  "osf name": only(entry("ifname", { from: "osf" }), "ip", "inet"),
} as const satisfies Readonly<Record<string, FieldEntry>>;

/** Names of addresses whose IP version the table, the rule or the set tells. */
export const SHORT_FIELDS = {
  saddr: { 4: "ip saddr", 6: "ip6 saddr" },
  daddr: { 4: "ip daddr", 6: "ip6 daddr" },
  /** The connection's, before any rewriting. */
  "ct-saddr": { 4: "ct original ip saddr", 6: "ct original ip6 saddr" },
  "ct-daddr": { 4: "ct original ip daddr", 6: "ct original ip6 daddr" },
} as const satisfies Readonly<Record<string, Readonly<Record<4 | 6, keyof typeof FIELDS>>>>;

export type FieldName = keyof typeof FIELDS;
export type TypeOf<F extends FieldName> = (typeof FIELDS)[F]["type"];
/** Fields whose values have this type. */
export type FieldsOf<T extends ValueType> = { [F in FieldName]: TypeOf<F> extends T ? F : never }[FieldName];

/** The first word of nft's name: the protocol, or where the field comes from. */
export function protocolOfField(name: string): string {
  return name.slice(0, `${name} `.indexOf(" "));
}

/** Whether the value has the machine's own byte order. */
function isHostOrder({ type, source }: FieldEntry): boolean {
  if (source.from === "meta" && source.key === MetaKey.l4proto) return true;
  return FIELD_TYPES[type].hostOrder ?? (source.from !== "payload" && source.from !== "exthdr");
}

/** The form of the field's value. */
export function widthOfField(field: FieldEntry): Width {
  return { bits: field.bits, length: Math.ceil(field.bits / 8), hostOrder: isHostOrder(field) };
}

/** Where the kernel loads a field: whole bytes, of which the field may be some bits. */
export interface Loaded {
  readonly expr: Expr;
  readonly length: number;
  /** Bits to the right of the field. */
  readonly shift: number;
  /** Whether there are other bits around the field. */
  readonly isPartial: boolean;
}

/** Returns the expression that loads the field into the register. */
export function load({ source, bits }: FieldEntry, dreg: number): Loaded {
  const whole = (expr: Expr): Loaded => ({ expr, length: Math.ceil(bits / 8), shift: 0, isPartial: false });
  switch (source.from) {
    case "payload":
    case "exthdr": {
      const first = Math.floor(source.offset / 8);
      const end = Math.ceil((source.offset + bits) / 8);
      const range = { offset: first, len: end - first, dreg };
      const expr: Expr =
        source.from === "payload"
          ? { type: "payload", base: PayloadBase[source.base], ...range }
          : { type: "exthdr", hdrType: source.header, op: source.op, flags: source.present === true ? 1 : 0, ...range };
      const shift = end * 8 - source.offset - bits;
      return {
        expr,
        length: end - first,
        shift,
        isPartial: source.from !== "exthdr" || !source.present ? bits < (end - first) * 8 : false,
      };
    }
    case "ct":
      return whole({
        type: "ct",
        key: source.key,
        dreg,
        ...(source.direction === undefined ? {} : { direction: source.direction }),
      });
    case "socket":
      return whole({
        type: "socket",
        key: source.key,
        dreg,
        ...(source.level === undefined ? {} : { level: source.level }),
      });
    case "meta":
      return whole({ type: "meta", key: source.key, dreg });
    case "rt":
      return whole({ type: "rt", key: source.key, dreg });
    case "fib":
      return whole({ type: "fib", dreg, result: source.result, flags: source.flags });
    case "osf":
      return whole({ type: "osf", dreg, ttl: 0 });
  }
}

/** Fields of the routing table's answer, by what the lookup uses. */
export function fibField(of: readonly (keyof typeof FIB_OF)[], result: keyof typeof FIB_RESULTS): FieldEntry {
  const flags = of.reduce((all, part) => all | FIB_OF[part], 0);
  const { type, result: kind, present: isPresent } = FIB_RESULTS[result];
  // A check has 32 bits, other than a boolean elsewhere.
  const source: Source = { from: "fib", result: FibResult[kind], flags: flags | (isPresent ? FibFlag.present : 0) };
  return only(entry(type, source, result === "oifname" ? 128 : 32), "ip", "ip6", "inet", "netdev");
}

export const FIB_OF = {
  saddr: FibFlag.saddr,
  daddr: FibFlag.daddr,
  mark: FibFlag.mark,
  iif: FibFlag.iif,
  oif: FibFlag.oif,
} as const;
export const FIB_RESULTS = {
  /** The index of the outgoing interface. */
  oif: { type: "iface_index", result: "oif", present: false },
  oifname: { type: "ifname", result: "oifname", present: false },
  type: { type: "fib_addrtype", result: "addrtype", present: false },
  /** Whether there is a route. */
  check: { type: "boolean", result: "oif", present: true },
} as const;
