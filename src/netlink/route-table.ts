/** Reads the kernel's routes over rtnetlink (linux/rtnetlink.h, fib_rules.h). Changes nothing. */
import { AF } from "../base/ip-families.js";
import { addressBytes, type IpFamily } from "../base/ip.js";
import { unlessErrno } from "../nft/kernel/errors.js";
import {
  attribute,
  headerNumber,
  type NetlinkExchange,
  nestOf,
  number,
  numberOf,
  type Reply,
  RequestFlag,
  textOf,
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

const RTM_TYPE = 7;
const RTAX_MTU = 2;
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
  readonly #linksByIndex = new Map<number, Promise<Reply | undefined>>();
  #links: Promise<readonly KernelLink[]> | undefined;

  constructor(private readonly netlink: NetlinkExchange) {}

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
      attribute(RouteAttribute.dst, bytes),
      ...(from === undefined ? [] : [attribute(RouteAttribute.src, from)]),
      ...(index === undefined ? [] : [attribute(RouteAttribute.iif, number(index.index, 4))]),
      ...(mark === undefined ? [] : [attribute(RouteAttribute.mark, number(mark, 4))]),
    ];
    const asked = askRoutes(this.netlink, RouteMessage.getRoute, 0, header, attributes);
    const [reply] = await unlessErrno(NO_ROUTE, [], asked);
    const out = reply && numberOf(reply.attributes, RouteAttribute.oif);
    const link = out === undefined ? undefined : await this.#link(out);
    if (reply === undefined || link === undefined) return "none";
    return {
      type: headerNumber(reply.header, RTM_TYPE, 1),
      interfaceName: textOf(link.attributes, LinkAttribute.name) ?? "",
      mtu:
        numberOf(nestOf(reply.attributes, RouteAttribute.metrics), RTAX_MTU) ??
        numberOf(link.attributes, LinkAttribute.mtu),
    };
  }

  /**
   * Returns what the route may depend on besides a packet's destination (`ip rule`): nothing, its source and incoming
   * interface, its mark as well, or more. Rejects with KernelError.
   */
  async policies(family: IpFamily): Promise<RoutePolicies> {
    const header = new Uint8Array(FIB_RULE_LENGTH);
    header[0] = AF[family];
    const rules = await askRoutes(this.netlink, RouteMessage.getRule, RequestFlag.dump, header);
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
    const replies = await askRoutes(this.netlink, RouteMessage.getLink, RequestFlag.dump, linkHeader(0));
    const name = ({ attributes }: Reply): string => textOf(attributes, LinkAttribute.name) ?? "";
    const index = ({ header }: Reply): number => headerNumber(header, 4, 4);
    const names = new Map(replies.map((link) => [index(link), name(link)]));
    return replies.map((link) => ({
      index: index(link),
      name: name(link),
      kind: linkKind(link),
      group: numberOf(link.attributes, LinkAttribute.group) ?? 0,
      master: names.get(numberOf(link.attributes, LinkAttribute.master) ?? 0),
    }));
  }

  #link(index: number): Promise<Reply | undefined> {
    let link = this.#linksByIndex.get(index);
    if (link === undefined) {
      link = askRoutes(this.netlink, RouteMessage.getLink, 0, linkHeader(index)).then(([reply]) => reply);
      this.#linksByIndex.set(index, link);
    }
    return link;
  }
}
