/** Reads the kernel's routes over rtnetlink (linux/rtnetlink.h, fib_rules.h). Changes nothing. */
import { AF } from "../base/ip-families.js";
import { addressBytes, type IpFamily } from "../base/ip.js";
import { isErrno } from "../nft/kernel/errors.js";
import {
  ask,
  attribute,
  headerNumber,
  joined,
  type NetlinkExchange,
  NetlinkProtocol,
  nestOf,
  number,
  numberOf,
  type Reply,
  RequestFlag,
  textOf,
} from "../nft/kernel/netlink-message.js";

const GET_LINK = 18;
const GET_ROUTE = 26;
const GET_RULE = 34;
const IFINFO_LENGTH = 16;
const IFLA_IFNAME = 3;
const IFLA_MTU = 4;
const IFLA_MASTER = 10;
const IFLA_LINKINFO = 18;
const IFLA_GROUP = 27;
const IFLA_INFO_KIND = 1;
const RTMSG_LENGTH = 12;
const RTM_TYPE = 7;
const RTA_DST = 1;
const RTA_SRC = 2;
const RTA_IIF = 3;
const RTA_OIF = 4;
const RTA_METRICS = 8;
const RTAX_MTU = 2;
const RTA_MARK = 16;
const FIB_RULE_LENGTH = 12;
const FIB_RULE_TOS = 3;
/**
 * FRA_*: attributes of a rule that select nothing, or by destination, source or incoming interface (1 to 4, 6), and those
 * that say what to do (13 to 15, 21).
 */
const PLAIN_FRA: ReadonlySet<number> = new Set([1, 2, 3, 4, 6, 13, 14, 15, 21]);
/** FRA_*: attributes of a rule that selects by mark. */
const MARK_FRA: ReadonlySet<number> = new Set([10, 16]);
/** Number of rules in a new network namespace: local, main and, for IPv4, default. */
const DEFAULT_RULES = { ip: 3, ip6: 2 } as const;

export interface KernelRoute {
  /** RTN_*, as `AddressType` names them. */
  readonly type: number;
  /** The outgoing interface. */
  readonly interfaceName: string;
  /** Length of the longest packet that the route takes, in bytes, also as ICMP messages have taught it to the kernel. Absent if unknown. */
  readonly mtu?: number;
}

/** Facts about a packet, besides its destination, on which its route may depend. */
export interface RouteFrom {
  readonly source?: string;
  /** Absent: the packet is from this node. */
  readonly inInterface?: string;
  readonly mark?: number;
}

/** Facts besides a packet's destination on which routes may depend. */
export type RoutePolicies = "none" | "from" | "mark" | "more";

export interface KernelLink {
  readonly index: number;
  readonly name: string;
  /** "bridge", "veth"; "" if it has none. */
  readonly kind: string;
  /** Number of its group (`ip link set … group`), 0 by default. */
  readonly group: number;
  /** Name of the bridge or bond that it belongs to. */
  readonly master?: string;
}

/** The routes of one network namespace. It caches links, so use it only for a short series of requests. */
export class RouteTable {
  readonly #netlink: NetlinkExchange;
  readonly #linksByIndex = new Map<number, Promise<Reply | undefined>>();
  #links: Promise<readonly KernelLink[]> | undefined;

  constructor(netlink: NetlinkExchange) {
    this.#netlink = netlink;
  }

  /**
   * Returns the route of packets to the address (`ip route get`), or "none". Rejects with KernelError, for example with
   * EXDEV if rp_filter drops such packets.
   */
  async to(address: string, { source, inInterface, mark }: RouteFrom = {}): Promise<KernelRoute | "none"> {
    const bytes = addressBytes(address) ?? new Uint8Array();
    const from = source === undefined ? undefined : addressBytes(source);
    const family = bytes.length === 4 ? AF.ip : AF.ip6;
    const header = Uint8Array.of(family, bytes.length * 8, (from?.length ?? 0) * 8, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const index = inInterface === undefined ? undefined : (await this.links()).find(({ name }) => name === inInterface);
    const attributes = [
      attribute(RTA_DST, bytes),
      ...(from === undefined ? [] : [attribute(RTA_SRC, from)]),
      ...(index === undefined ? [] : [attribute(RTA_IIF, number(index.index, 4))]),
      ...(mark === undefined ? [] : [attribute(RTA_MARK, number(mark, 4))]),
    ];
    try {
      const [reply] = await this.#ask(GET_ROUTE, 0, header, attributes, RTMSG_LENGTH);
      const out = reply && numberOf(reply.attributes, RTA_OIF);
      const link = out === undefined ? undefined : await this.#link(out);
      if (reply === undefined || link === undefined) return "none";
      return {
        type: headerNumber(reply.header, RTM_TYPE, 1),
        interfaceName: textOf(link.attributes, IFLA_IFNAME) ?? "",
        mtu: numberOf(nestOf(reply.attributes, RTA_METRICS), RTAX_MTU) ?? numberOf(link.attributes, IFLA_MTU),
      };
    } catch (error) {
      // There is no route, or its type is prohibit or blackhole.
      if (isErrno(error, "ENETUNREACH", "EHOSTUNREACH", "EACCES", "EINVAL")) return "none";
      throw error;
    }
  }

  /**
   * Returns what the route may depend on besides a packet's destination (`ip rule`): nothing, its source and incoming
   * interface, its mark as well, or more. Rejects with KernelError.
   */
  async policies(family: IpFamily): Promise<RoutePolicies> {
    const header = new Uint8Array(FIB_RULE_LENGTH);
    header[0] = AF[family];
    const rules = await this.#ask(GET_RULE, RequestFlag.dump, header, [], FIB_RULE_LENGTH);
    if (rules.length <= DEFAULT_RULES[family]) return "none";
    const keys = rules.flatMap(({ attributes }) => [...attributes.keys()]).filter((key) => !PLAIN_FRA.has(key));
    const isOfService = rules.some(({ header: fields }) => headerNumber(fields, FIB_RULE_TOS, 1) !== 0);
    if (isOfService || !keys.every((key) => MARK_FRA.has(key))) return "more";
    return keys.length > 0 ? "mark" : "from";
  }

  /** Returns all links. Rejects with KernelError. */
  links(): Promise<readonly KernelLink[]> {
    this.#links ??= this.#readLinks();
    return this.#links;
  }

  async #readLinks(): Promise<KernelLink[]> {
    const replies = await this.#ask(GET_LINK, RequestFlag.dump, new Uint8Array(IFINFO_LENGTH), [], IFINFO_LENGTH);
    const name = ({ attributes }: Reply): string => textOf(attributes, IFLA_IFNAME) ?? "";
    const index = ({ header }: Reply): number => headerNumber(header, 4, 4);
    const names = new Map(replies.map((link) => [index(link), name(link)]));
    return replies.map((link) => ({
      index: index(link),
      name: name(link),
      kind: textOf(nestOf(link.attributes, IFLA_LINKINFO), IFLA_INFO_KIND) ?? "",
      group: numberOf(link.attributes, IFLA_GROUP) ?? 0,
      master: names.get(numberOf(link.attributes, IFLA_MASTER) ?? 0),
    }));
  }

  #link(index: number): Promise<Reply | undefined> {
    let link = this.#linksByIndex.get(index);
    if (link === undefined) {
      const header = joined([new Uint8Array(4), number(index, 4), new Uint8Array(8)]);
      link = this.#ask(GET_LINK, 0, header, [], IFINFO_LENGTH).then(([reply]) => reply);
      this.#linksByIndex.set(index, link);
    }
    return link;
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
