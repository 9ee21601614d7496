/** Interfaces, their addresses and the routes to these, over rtnetlink (linux/rtnetlink.h, if_link.h, if_addr.h). */
import { AF } from "../base/ip-families.js";
import { addressBytes, formatAddress, type IpFamily } from "../base/ip.js";
import { isErrno } from "../nft/kernel/errors.js";
import {
  ask,
  attribute,
  dataOf,
  headerNumber,
  joined,
  nestOf,
  type NetlinkExchange,
  NetlinkProtocol,
  number,
  type Reply,
  RequestFlag,
  text,
  textOf,
} from "../nft/kernel/netlink-message.js";

const Message = {
  newLink: 16,
  deleteLink: 17,
  getLink: 18,
  newAddress: 20,
  deleteAddress: 21,
  getAddress: 22,
  newRoute: 24,
  deleteRoute: 25,
  getRoute: 26,
} as const;

const IFINFO_LENGTH = 16;
const IFLA_IFNAME = 3;
const IFLA_LINKINFO = 18;
const IFLA_INFO_KIND = 1;

const IFADDR_LENGTH = 8;
const IFA_ADDRESS = 1;
const IFA_LOCAL = 2;

const RTMSG_LENGTH = 12;
const RTA_DST = 1;
const RTA_OIF = 4;
const RTA_PRIORITY = 6;
const RTA_PREFSRC = 7;
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
  readonly #netlink: NetlinkExchange;

  constructor(netlink: NetlinkExchange) {
    this.#netlink = netlink;
  }

  /** Returns undefined if there is no link of that name. Throws KernelError. */
  async link(name: string): Promise<Link | undefined> {
    try {
      const header = new Uint8Array(IFINFO_LENGTH);
      const [reply] = await this.#ask(Message.getLink, 0, header, [attribute(IFLA_IFNAME, text(name))], IFINFO_LENGTH);
      if (reply === undefined) return undefined;
      const kind = textOf(nestOf(reply.attributes, IFLA_LINKINFO), IFLA_INFO_KIND) ?? "";
      return { index: headerNumber(reply.header, 4, 4), kind };
    } catch (error) {
      if (isErrno(error, "ENODEV")) return undefined;
      throw error;
    }
  }

  /** Fine when it is gone. Throws KernelError. */
  async deleteLink(index: number): Promise<void> {
    const header = joined([new Uint8Array(4), number(index, 4), new Uint8Array(8)]);
    await this.#unless(["ENODEV"], this.#ask(Message.deleteLink, RequestFlag.ack, header, [], IFINFO_LENGTH));
  }

  /** Returns an interface's addresses, in both families. Throws KernelError. */
  async addressesOf(index: number): Promise<LinkAddress[]> {
    const replies = await this.#ask(Message.getAddress, RequestFlag.dump, addressHeader(0, 0, 0), [], IFADDR_LENGTH);
    return replies.flatMap((reply) => {
      if (reply.type !== Message.newAddress || headerNumber(reply.header, 4, 4) !== index) return [];
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
    await this.#unless(gone, this.#ask(Message.deleteAddress, RequestFlag.ack, header, attributes, IFADDR_LENGTH));
  }

  /** Returns the source address of this node's packets to `destination`, or undefined if there is no route. Throws KernelError. */
  async sourceTo(destination: string): Promise<string | undefined> {
    const bytes = addressBytes(destination) ?? new Uint8Array();
    const header = routeHeader(bytes, 0, 0, 0);
    try {
      const [reply] = await this.#ask(Message.getRoute, 0, header, [attribute(RTA_DST, bytes)], RTMSG_LENGTH);
      const source = reply && dataOf(reply.attributes, RTA_PREFSRC);
      return source === undefined ? undefined : formatAddress(source);
    } catch (error) {
      if (isErrno(error, "ENETUNREACH", "EHOSTUNREACH", "EACCES", "EINVAL")) return undefined;
      throw error;
    }
  }

  /**
   * Makes this node's own packets to an interface's address come from `source` instead of that address, by changing the source of its
   * local route. In IPv6, the kernel's own route cannot be changed, so a route of `lo` replaces it. Succeeds if this is already the case.
   * Throws KernelError.
   */
  async setLocalSource(index: number, address: string, source: string): Promise<void> {
    const bytes = addressBytes(address) ?? new Uint8Array();
    const from = attribute(RTA_PREFSRC, addressBytes(source) ?? new Uint8Array());
    if (bytes.length === 4) {
      const flags = RequestFlag.ack | RequestFlag.replace;
      const attributes = [...localRoute(index, bytes), from];
      await this.#ask(Message.newRoute, flags, localHeader(bytes), attributes, RTMSG_LENGTH);
      return;
    }
    const attributes = [
      ...localRoute(LOOPBACK_INDEX, bytes),
      attribute(RTA_PRIORITY, number(REPLACED_METRIC, 4)),
      from,
    ];
    const flags = RequestFlag.ack | RequestFlag.create | RequestFlag.exclusive;
    const added = this.#ask(Message.newRoute, flags, localHeader(bytes), attributes, RTMSG_LENGTH);
    await this.#unless(["EEXIST"], added);
    await this.#deleteRoute(index, bytes);
  }

  /** Removes such a route. With another source, it outlives its address. Succeeds if it is gone. Throws KernelError. */
  async deleteLocalRoute(index: number, address: string): Promise<void> {
    const bytes = addressBytes(address) ?? new Uint8Array();
    await this.#deleteRoute(bytes.length === 4 ? index : LOOPBACK_INDEX, bytes);
  }

  async #deleteRoute(index: number, destination: Uint8Array): Promise<void> {
    const route = localRoute(index, destination);
    const done = this.#ask(Message.deleteRoute, RequestFlag.ack, localHeader(destination), route, RTMSG_LENGTH);
    await this.#unless(["ESRCH", "ENODEV"], done);
  }

  async #unless(errnos: readonly string[], done: Promise<unknown>): Promise<void> {
    try {
      await done;
    } catch (error) {
      if (!isErrno(error, ...errnos)) throw error;
    }
  }

  #ask(
    type: number,
    flags: number,
    header: Uint8Array,
    attributes: readonly Uint8Array[],
    replyHeader: number,
  ): Promise<Reply[]> {
    return ask(this.#netlink, NetlinkProtocol.route, { type, flags, header, attributes }, replyHeader);
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
  return [attribute(RTA_DST, destination), attribute(RTA_OIF, number(index, 4))];
}

function localHeader(destination: Uint8Array): Uint8Array {
  return routeHeader(destination, RT_TABLE_LOCAL, RT_SCOPE_HOST, RTN_LOCAL);
}
