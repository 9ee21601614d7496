/** ipset over nfnetlink (linux/netfilter/ipset/ip_set.h; net/netfilter/ipset/ip_set_core.c). */
import { AF } from "../base/ip-families.js";
import { unlessErrno } from "../nft/kernel/errors.js";
import {
  ask,
  attribute,
  type Attributes,
  nest,
  nestOf,
  decodeAttributes,
  type NetlinkExchange,
  NetlinkProtocol,
  networkAttribute,
  networkNumber,
  networkNumberOf,
  number,
  numberOf,
  RequestFlag,
  text,
  textOf,
} from "../nft/kernel/netlink-message.js";

/** linux/netfilter/nfnetlink.h */
const NFNL_SUBSYS_IPSET = 6;
const NFGEN_HEADER = 4;

/** IPSET_PROTOCOL_MIN, which every kernel accepts. */
const PROTOCOL = 6;
/** The protocol of Linux 4.20, which can name a set by its number. */
const PROTOCOL_7 = 7;
export const IpsetCommand = { create: 2, destroy: 3, list: 7, add: 9, test: 11, header: 12, getByIndex: 15 } as const;
export const IpsetAttribute = {
  protocol: 1,
  name: 2,
  type: 3,
  revision: 4,
  family: 5,
  flags: 6,
  data: 7,
  adt: 8,
  lineno: 9,
  index: 11,
} as const;
/** Attributes inside an element's data. */
const Element = { ip: 1, port: 4, protocol: 7 } as const;
/** IPSET_ATTR_IPADDR_IPV4 and _IPV6, by the length of the address. */
const ADDRESS: Readonly<Record<number, number>> = { 4: 1, 16: 2 };
/** Types whose elements are addresses alone. */
const OF_ADDRESSES: readonly (string | undefined)[] = ["hash:ip", "hash:net"];
/** 1 << IPSET_FLAG_BIT_LIST_SETNAME: list only names. */
const LIST_NAMES = 2;
/** IPSET_ERR_BUSY: a rule or a list refers to the set. */
const BUSY = "E4100";
/** IPSET_ERR_EXIST: the set has no such element. */
const ABSENT = "E4103";

/** An element of a set of ports. `protocol` is an IPPROTO number, or undefined if the set is for a single protocol or for any. */
export interface PortElement {
  readonly port: number;
  readonly protocol: number | undefined;
}

/** The sets of one network namespace. A request loads the module ip_set, so use this only if it is loaded (`/sys/module/ip_set`). */
export class IpsetTable {
  constructor(private readonly netlink: NetlinkExchange) {}

  /** Returns the names of all sets. Throws KernelError. */
  async names(): Promise<string[]> {
    const flags = networkAttribute(IpsetAttribute.flags, networkNumber(LIST_NAMES, 4));
    const replies = await this.request(IpsetCommand.list, RequestFlag.dump, [flags]);
    return [...new Set(replies.flatMap((attributes) => textOf(attributes, IpsetAttribute.name) ?? []))];
  }

  /** Returns the elements of a set of ports, or none if there is no such set. Throws KernelError. */
  async ports(set: string): Promise<PortElement[]> {
    const name = attribute(IpsetAttribute.name, text(set));
    const replies = await unlessErrno(["ENOENT"], [], this.request(IpsetCommand.list, RequestFlag.dump, [name]));
    return replies.flatMap((attributes) =>
      (nestOf(attributes, IpsetAttribute.adt).get(IpsetAttribute.data) ?? []).flatMap((data) => {
        const element = decodeAttributes(data);
        const port = networkNumberOf(element, Element.port);
        return port === undefined ? [] : [{ port, protocol: numberOf(element, Element.protocol) }];
      }),
    );
  }

  /**
   * Whether a set of addresses or networks, which rules refer to by its number, has the address. Returns undefined for a set of another kind.
   * Throws KernelError.
   */
  async hasAddress(index: number, address: Uint8Array): Promise<boolean | undefined> {
    const ofSet = networkAttribute(IpsetAttribute.index, networkNumber(index, 2));
    const [found] = await this.request(IpsetCommand.getByIndex, 0, [ofSet], PROTOCOL_7);
    const set = found && textOf(found, IpsetAttribute.name);
    if (set === undefined) return undefined;
    const name = attribute(IpsetAttribute.name, text(set));
    const [header] = await this.request(IpsetCommand.header, 0, [name]);
    if (header === undefined || !OF_ADDRESSES.includes(textOf(header, IpsetAttribute.type))) return undefined;
    if (numberOf(header, IpsetAttribute.family) !== (address.length === 4 ? AF.ip : AF.ip6)) return false;
    const element = nest(Element.ip, [networkAttribute(ADDRESS[address.length] ?? 0, address)]);
    const asked = this.request(IpsetCommand.test, RequestFlag.ack, [name, nest(IpsetAttribute.data, [element])]);
    return (await unlessErrno([ABSENT], undefined, asked)) !== undefined;
  }

  /** Returns "in-use" if a rule or a set refers to the set. Succeeds if there is no such set. Throws KernelError. */
  async destroy(set: string): Promise<"destroyed" | "in-use"> {
    const asked = this.request(IpsetCommand.destroy, RequestFlag.ack, [attribute(IpsetAttribute.name, text(set))]);
    const answer = await unlessErrno([BUSY], "in-use" as const, unlessErrno(["ENOENT"], [], asked));
    return answer === "in-use" ? answer : "destroyed";
  }

  /** Sends any ipset command. Throws KernelError. */
  async request(
    command: number,
    flags: number,
    attributes: readonly Uint8Array[],
    protocol = PROTOCOL,
  ): Promise<Attributes[]> {
    const request = {
      type: (NFNL_SUBSYS_IPSET << 8) | command,
      flags,
      // nfgenmsg: AF_UNSPEC, NFNETLINK_V0.
      header: new Uint8Array(NFGEN_HEADER),
      attributes: [attribute(IpsetAttribute.protocol, number(protocol, 1)), ...attributes],
    };
    const replies = await ask(this.netlink, NetlinkProtocol.netfilter, request, NFGEN_HEADER);
    return replies.map((reply) => reply.attributes);
  }
}
