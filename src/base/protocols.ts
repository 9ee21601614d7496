/** IP protocols by number and name. */

export const IpProto = { icmp: 1, tcp: 6, udp: 17, icmpv6: 58, sctp: 132 } as const;

/** Numbers of the protocols that Services can have, by their names in Kubernetes. */
export const SERVICE_PROTOCOL = { TCP: IpProto.tcp, UDP: IpProto.udp, SCTP: IpProto.sctp } as const;
export type Protocol = keyof typeof SERVICE_PROTOCOL;
export const PROTOCOLS: readonly Protocol[] = ["TCP", "UDP", "SCTP"];

/** Returns undefined for the number of a protocol that no Service has. */
export function serviceProtocol(number: number | undefined): Protocol | undefined {
  return PROTOCOLS.find((protocol) => SERVICE_PROTOCOL[protocol] === number);
}

const NAME_OF = new Map<number, string>(Object.entries(IpProto).map(([name, number]) => [number, name]));

/** "tcp", "icmpv6"; digits if the number is not in `IpProto`. */
export function protocolName(number: number): string {
  return NAME_OF.get(number) ?? String(number);
}

/**
 * Protocol numbers by their names in /etc/protocols (Debian's netbase, after IANA's registry), including aliases. They are
 * here because an image may lack that file. `ipip` is 94 there; `ip tunnel` uses that name for `ipencap`, 4.
 */
const NAMES = `
  ip 0, hopopt 0, igmp 2, ggp 3, ipencap 4, ip-encap 4, st 5, egp 8, igp 9, pup 12, hmp 20, xns-idp 22, rdp 27,
  iso-tp4 29, dccp 33, xtp 36, ddp 37, idpr-cmtp 38, ipv6 41, ipv6-route 43, ipv6-frag 44, idrp 45, rsvp 46,
  gre 47, esp 50, ipsec-esp 50, ah 51, ipsec-ah 51, skip 57, ipv6-icmp 58, icmp6 58, ipv6-nonxt 59, ipv6-opts 60,
  rspf 73, cphb 73, vmtp 81, eigrp 88, ospf 89, ospfigp 89, ax.25 93, ipip 94, etherip 97, encap 98, pim 103,
  ipcomp 108, vrrp 112, l2tp 115, isis 124, fc 133, mobility-header 135, udplite 136, mpls-in-ip 137, manet 138,
  hip 139, shim6 140, wesp 141, rohc 142, ethernet 143`;

const NUMBERS = new Map<string, number>([
  ...Object.entries(IpProto),
  ...NAMES.split(",").map((entry): [string, number] => {
    const [name, number] = entry.trim().split(" ");
    return [name, Number(number)];
  }),
]);

/** Number of a protocol, given by its name in any case or by its number. Throws RangeError with the known names. */
export function protocolNumber(protocol: string | number): number {
  if (typeof protocol === "number" && Number.isInteger(protocol) && protocol >= 0 && protocol <= 255) return protocol;
  const name = String(protocol).toLowerCase();
  const known = typeof protocol === "string" ? NUMBERS.get(name) : undefined;
  if (known !== undefined) return known;
  throw new RangeError(
    `unknown protocol ${protocol}; expected a number from 0 to 255 or one of ${[...NUMBERS.keys()].toSorted().join(", ")}`,
  );
}

/**
 * The protocol in nft's syntax. It is a number if nft would need /etc/protocols for the name, because that file may be
 * missing.
 */
export function protocolText(protocol: string | number): string {
  const number = protocolNumber(protocol);
  return typeof protocol === "string" ? protocolName(number) : String(number);
}

const REGISTERED = new Map([...NUMBERS].toReversed().map(([name, number]) => [number, name]));

/** The first name in /etc/protocols; digits if there is none. */
export function registeredName(number: number): string {
  return REGISTERED.get(number) ?? String(number);
}

export function protocolNames(): string[] {
  return [...NUMBERS.keys()];
}
