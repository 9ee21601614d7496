/** Reads the kernel's routes over rtnetlink (linux/rtnetlink.h, fib_rules.h). Changes nothing. */
import { AF } from "../base/ip-families.js";
import { addressBytes, type IpFamily } from "../base/ip.js";
import { isErrno } from "./errors.js";
import {
  ask,
  attribute,
  headerNumber,
  joined,
  type NetlinkExchange,
  NetlinkProtocol,
  number,
  numberOf,
  type Reply,
  RequestFlag,
  textOf,
} from "./netlink-message.js";

const GET_LINK = 18;
const GET_ROUTE = 26;
const GET_RULE = 34;
const IFINFO_LENGTH = 16;
const IFLA_IFNAME = 3;
const RTMSG_LENGTH = 12;
const RTM_TYPE = 7;
const RTA_DST = 1;
const RTA_OIF = 4;
const FIB_RULE_LENGTH = 12;
/** Number of rules in a new network namespace: local, main and, for IPv4, default. */
const DEFAULT_RULES = { ip: 3, ip6: 2 } as const;

export interface KernelRoute {
  /** RTN_*, as `AddressType` names them. */
  readonly type: number;
  /** The outgoing interface. */
  readonly interfaceName: string;
}

/** The routes of one network namespace. It caches the names of links, so use it only for a short series of requests. */
export class RouteTable {
  readonly #netlink: NetlinkExchange;
  readonly #names = new Map<number, Promise<string>>();

  constructor(netlink: NetlinkExchange) {
    this.#netlink = netlink;
  }

  /** Returns the route of this node's packets to the address (`ip route get`), or "none". Rejects with KernelError. */
  async to(address: string): Promise<KernelRoute | "none"> {
    const bytes = addressBytes(address) ?? new Uint8Array();
    const family = bytes.length === 4 ? AF.ip : AF.ip6;
    const header = Uint8Array.of(family, bytes.length * 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    try {
      const [reply] = await this.#ask(GET_ROUTE, 0, header, [attribute(RTA_DST, bytes)], RTMSG_LENGTH);
      const index = reply && numberOf(reply.attributes, RTA_OIF);
      if (reply === undefined || index === undefined) return "none";
      return { type: headerNumber(reply.header, RTM_TYPE, 1), interfaceName: await this.#nameOf(index) };
    } catch (error) {
      // There is no route, or its type is prohibit or blackhole.
      if (isErrno(error, "ENETUNREACH", "EHOSTUNREACH", "EACCES", "EINVAL")) return "none";
      throw error;
    }
  }

  /** Whether the route may depend on more than a packet's destination (`ip rule`). Rejects with KernelError. */
  async hasPolicies(family: IpFamily): Promise<boolean> {
    const header = new Uint8Array(FIB_RULE_LENGTH);
    header[0] = AF[family];
    const rules = await this.#ask(GET_RULE, RequestFlag.dump, header, [], FIB_RULE_LENGTH);
    return rules.length > DEFAULT_RULES[family];
  }

  #nameOf(index: number): Promise<string> {
    let name = this.#names.get(index);
    if (name === undefined) {
      const header = joined([new Uint8Array(4), number(index, 4), new Uint8Array(8)]);
      name = this.#ask(GET_LINK, 0, header, [], IFINFO_LENGTH).then(
        ([reply]) => (reply && textOf(reply.attributes, IFLA_IFNAME)) ?? "",
      );
      this.#names.set(index, name);
    }
    return name;
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
