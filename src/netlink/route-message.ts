/** Messages of rtnetlink (linux/rtnetlink.h, if_link.h, if_addr.h, fib_rules.h). */
import {
  ask,
  joined,
  nestOf,
  type NetlinkExchange,
  NetlinkProtocol,
  number,
  type Reply,
  textOf,
} from "../nft/kernel/netlink-message.js";

/** RTM_*. */
export const RouteMessage = {
  deleteLink: 17,
  getLink: 18,
  newAddress: 20,
  deleteAddress: 21,
  getAddress: 22,
  newRoute: 24,
  deleteRoute: 25,
  getRoute: 26,
  getRule: 34,
} as const;

/** IFLA_*. */
export const LinkAttribute = { name: 3, mtu: 4, master: 10, info: 18, group: 27 } as const;
/** RTA_*. */
export const RouteAttribute = {
  dst: 1,
  src: 2,
  iif: 3,
  oif: 4,
  priority: 6,
  prefsrc: 7,
  metrics: 8,
  mark: 16,
} as const;
const IFLA_INFO_KIND = 1;

/** Errnos of a request for a route if there is none, or if its type is prohibit or blackhole. */
export const NO_ROUTE = ["ENETUNREACH", "EHOSTUNREACH", "EACCES", "EINVAL"] as const;

/** Sends a request and returns the kernel's messages. `header` is that of the message's kind. Throws KernelError. */
export function askRoutes(
  netlink: NetlinkExchange,
  type: number,
  flags: number,
  header: Uint8Array,
  attributes: readonly Uint8Array[] = [],
): Promise<Reply[]> {
  return ask(netlink, NetlinkProtocol.route, { type, flags, header, attributes }, header.length);
}

/** Encodes the header of a message about a link. 0 means any. */
export function linkHeader(index: number): Uint8Array {
  return joined([new Uint8Array(4), number(index, 4), new Uint8Array(8)]);
}

/** Returns a link's kind, such as "dummy" or "veth". Returns "" if it has none. */
export function linkKind({ attributes }: Reply): string {
  return textOf(nestOf(attributes, LinkAttribute.info), IFLA_INFO_KIND) ?? "";
}
