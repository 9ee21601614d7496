/** Interfaces, their addresses and the routes to these, over rtnetlink (linux/rtnetlink.h, if_link.h, if_addr.h). */
import { AF } from "../base/ip-families.js";
import { addressBytes, formatAddress, type IpFamily } from "../base/ip.js";
import { unlessErrno } from "../nft/kernel/errors.js";
import {
  attribute,
  dataOf,
  headerNumber,
  joined,
  type NetlinkExchange,
  number,
  RequestFlag,
  text,
} from "../nft/kernel/netlink-message.js";
import {
  askRoutes,
  LinkAttribute,
  linkHeader,
  linkKind,
  NO_ROUTE,
  RouteAttribute,
  RouteMessage,
} from "./route-message.js";

const IFA_ADDRESS = 1;
const IFA_LOCAL = 2;

const RT_TABLE_LOCAL = 255;
const RTPROT_KERNEL = 2;
const RT_SCOPE_HOST = 254;
const RTN_LOCAL = 2;
/** LOOPBACK_IFINDEX of every network namespace. */
const LOOPBACK_INDEX = 1;
/** Metric of the route that replaces the kernel's, whose metric 0 no request can specify. */
const REPLACED_METRIC = 512;

export interface Link {
  readonly index: number;
  /** For example "dummy" or "veth". "" if the kernel reports none. */
  readonly kind: string;
}

/** An address of one interface. */
export interface LinkAddress {
  readonly family: IpFamily;
  /** Canonical. */
  readonly address: string;
  readonly prefixLength: number;
}

/** The interfaces of one network namespace. */
export class LinkTable {
  constructor(private readonly netlink: NetlinkExchange) {}

  /** Returns undefined if there is no link of that name. Throws KernelError. */
  async link(name: string): Promise<Link | undefined> {
    const named = [attribute(LinkAttribute.name, text(name))];
    const [reply] = await unlessErrno(["ENODEV"], [], this.#ask(RouteMessage.getLink, 0, linkHeader(0), named));
    return reply && { index: headerNumber(reply.header, 4, 4), kind: linkKind(reply) };
  }

  /** Fine when it is gone. Throws KernelError. */
  async deleteLink(index: number): Promise<void> {
    const asked = this.#ask(RouteMessage.deleteLink, RequestFlag.ack, linkHeader(index));
    await unlessErrno(["ENODEV"], undefined, asked);
  }

  /** Returns an interface's addresses, in both families. Throws KernelError. */
  async addressesOf(index: number): Promise<LinkAddress[]> {
    const replies = await this.#ask(RouteMessage.getAddress, RequestFlag.dump, addressHeader(0, 0, 0));
    return replies.flatMap((reply) => {
      if (reply.type !== RouteMessage.newAddress || headerNumber(reply.header, 4, 4) !== index) return [];
      const bytes = dataOf(reply.attributes, IFA_LOCAL) ?? dataOf(reply.attributes, IFA_ADDRESS);
      if (bytes === undefined || (bytes.length !== 4 && bytes.length !== 16)) return [];
      const family = bytes.length === 4 ? ("ip" as const) : ("ip6" as const);
      return [{ family, address: formatAddress(bytes), prefixLength: headerNumber(reply.header, 1, 1) }];
    });
  }

  /** Fine when it is gone. Throws KernelError. */
  async deleteAddress(index: number, { family, address, prefixLength }: LinkAddress): Promise<void> {
    const bytes = addressBytes(address) ?? new Uint8Array();
    const header = addressHeader(AF[family], prefixLength, index);
    const attributes = [attribute(IFA_LOCAL, bytes), attribute(IFA_ADDRESS, bytes)];
    const gone = ["EADDRNOTAVAIL", "ENODEV"];
    await unlessErrno(gone, undefined, this.#ask(RouteMessage.deleteAddress, RequestFlag.ack, header, attributes));
  }

  /** Returns the source address of this node's packets to `destination`, or undefined if there is no route. Throws KernelError. */
  async sourceTo(destination: string): Promise<string | undefined> {
    const bytes = addressBytes(destination) ?? new Uint8Array();
    const header = routeHeader(bytes, 0, 0, 0);
    const asked = this.#ask(RouteMessage.getRoute, 0, header, [attribute(RouteAttribute.dst, bytes)]);
    const [reply] = await unlessErrno(NO_ROUTE, [], asked);
    const source = reply && dataOf(reply.attributes, RouteAttribute.prefsrc);
    return source && formatAddress(source);
  }

  /**
   * Makes this node's own packets to an interface's address come from `source` instead of that address, by changing the source of its
   * local route. In IPv6, the kernel's own route cannot be changed, so a route of `lo` replaces it. Succeeds if this is already the case.
   * Throws KernelError.
   */
  async setLocalSource(index: number, address: string, source: string): Promise<void> {
    const bytes = addressBytes(address) ?? new Uint8Array();
    const from = attribute(RouteAttribute.prefsrc, addressBytes(source) ?? new Uint8Array());
    if (bytes.length === 4) {
      const flags = RequestFlag.ack | RequestFlag.replace;
      const attributes = [...localRoute(index, bytes), from];
      await this.#ask(RouteMessage.newRoute, flags, localHeader(bytes), attributes);
      return;
    }
    const attributes = [
      ...localRoute(LOOPBACK_INDEX, bytes),
      attribute(RouteAttribute.priority, number(REPLACED_METRIC, 4)),
      from,
    ];
    const flags = RequestFlag.ack | RequestFlag.create | RequestFlag.exclusive;
    const added = this.#ask(RouteMessage.newRoute, flags, localHeader(bytes), attributes);
    await unlessErrno(["EEXIST"], undefined, added);
    await this.#deleteRoute(index, bytes);
  }

  /** Removes such a route. With another source, it outlives its address. Succeeds if it is gone. Throws KernelError. */
  async deleteLocalRoute(index: number, address: string): Promise<void> {
    const bytes = addressBytes(address) ?? new Uint8Array();
    await this.#deleteRoute(bytes.length === 4 ? index : LOOPBACK_INDEX, bytes);
  }

  async #deleteRoute(index: number, destination: Uint8Array): Promise<void> {
    const route = localRoute(index, destination);
    const done = this.#ask(RouteMessage.deleteRoute, RequestFlag.ack, localHeader(destination), route);
    await unlessErrno(["ESRCH", "ENODEV"], undefined, done);
  }

  #ask(type: number, flags: number, header: Uint8Array, attributes: readonly Uint8Array[] = []) {
    return askRoutes(this.netlink, type, flags, header, attributes);
  }
}

/** Encodes an ifaddrmsg. */
function addressHeader(family: number, prefixLength: number, index: number): Uint8Array {
  return joined([Uint8Array.of(family, prefixLength, 0, 0), number(index, 4)]);
}

/** Encodes an rtmsg whose destination is one address. */
function routeHeader(destination: Uint8Array, table: number, scope: number, type: number): Uint8Array {
  const family = destination.length === 4 ? AF.ip : AF.ip6;
  const protocol = table === 0 ? 0 : RTPROT_KERNEL;
  return Uint8Array.of(family, destination.length * 8, 0, 0, table, protocol, scope, type, 0, 0, 0, 0);
}

function localRoute(index: number, destination: Uint8Array): readonly Uint8Array[] {
  return [attribute(RouteAttribute.dst, destination), attribute(RouteAttribute.oif, number(index, 4))];
}

function localHeader(destination: Uint8Array): Uint8Array {
  return routeHeader(destination, RT_TABLE_LOCAL, RT_SCOPE_HOST, RTN_LOCAL);
}
