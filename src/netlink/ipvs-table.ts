/** IPVS over generic netlink (linux/ip_vs.h; the attributes' policies are in net/netfilter/ipvs/ip_vs_ctl.c). */
import { AF, familyNumbered } from "../base/ip-families.js";
import { addressBytes, formatAddress, type IpFamily } from "../base/ip.js";
import { type Protocol, SERVICE_PROTOCOL, serviceProtocol } from "../base/protocols.js";
import { unlessErrno } from "../nft/kernel/errors.js";
import {
  ask,
  attribute,
  type Attributes,
  dataOf,
  nest,
  nestOf,
  type NetlinkExchange,
  NetlinkProtocol,
  networkNumber,
  networkNumberOf,
  number,
  numberOf,
  RequestFlag,
  text,
  textOf,
} from "../nft/kernel/netlink-message.js";

/** linux/genetlink.h */
const GENL_ID_CTRL = 0x10;
const CTRL_CMD_GETFAMILY = 3;
const CTRL_ATTR_FAMILY_ID = 1;
const CTRL_ATTR_FAMILY_NAME = 2;
const GENL_HEADER = 4;

/** linux/ip_vs.h */
const IPVS_GENL_VERSION = 1;
export const IpvsCommand = {
  newService: 1,
  deleteService: 3,
  getService: 4,
  newDest: 5,
  setDest: 6,
  getDest: 8,
} as const;
const CMD_ATTR_SERVICE = 1;
const CMD_ATTR_DEST = 2;
const Svc = {
  family: 1,
  protocol: 2,
  address: 3,
  port: 4,
  fwmark: 5,
  scheduler: 6,
} as const;
const Dest = {
  address: 1,
  port: 2,
  method: 3,
  weight: 4,
  upper: 5,
  lower: 6,
  active: 7,
  inactive: 8,
  family: 11,
} as const;

/** A virtual server, by address or by firewall mark. */
export interface VirtualServer {
  readonly family: IpFamily;
  /** 0 if protocol, address and port identify the server. */
  readonly fwmark: number;
  /** Undefined for a server by firewall mark, or for another protocol. */
  readonly protocol: Protocol | undefined;
  /** Canonical, or "" for a server by firewall mark. */
  readonly address: string;
  readonly port: number;
  readonly scheduler: string;
}

/** A destination of a virtual server, with the counts of its IPVS connections. */
export interface Destination {
  readonly family: IpFamily;
  readonly address: string;
  readonly port: number;
  /** IP_VS_CONN_F_MASQ (0) and so on. */
  readonly method: number;
  readonly weight: number;
  readonly upper: number;
  readonly lower: number;
  /** Number of established connections, or of UDP connections. */
  readonly active: number;
  /** Number of opening and closing connections. */
  readonly inactive: number;
}

/** The kernel's virtual servers in one network namespace. */
export class IpvsTable {
  #type: number | undefined;

  constructor(private readonly netlink: NetlinkExchange) {}

  /** Returns undefined if the kernel has no IPVS. A request loads its module, so call this only if /proc/net/ip_vs exists. Throws KernelError. */
  async #familyType(): Promise<number | undefined> {
    if (this.#type !== undefined) return this.#type;
    const request = {
      type: GENL_ID_CTRL,
      flags: 0,
      header: genericHeader(CTRL_CMD_GETFAMILY, 1),
      attributes: [attribute(CTRL_ATTR_FAMILY_NAME, text("IPVS"))],
    };
    const asked = ask(this.netlink, NetlinkProtocol.generic, request, GENL_HEADER);
    const [reply] = await unlessErrno(["ENOENT"], [], asked);
    this.#type = reply && numberOf(reply.attributes, CTRL_ATTR_FAMILY_ID);
    return this.#type;
  }

  /** Returns nothing if the kernel has no IPVS. Before a call, see `#familyType`. Throws KernelError. */
  async virtualServers(): Promise<VirtualServer[]> {
    const replies = await this.request(IpvsCommand.getService, RequestFlag.dump, []);
    return replies.flatMap((attributes) => readServer(nestOf(attributes, CMD_ATTR_SERVICE)) ?? []);
  }

  /** Returns nothing if the server is gone. Throws KernelError. */
  async destinations(server: VirtualServer): Promise<Destination[]> {
    const asked = this.request(IpvsCommand.getDest, RequestFlag.dump, [serverAttribute(server)]);
    const replies = await unlessErrno(["ESRCH"], [], asked);
    return replies.flatMap((attributes) => readDestination(server, nestOf(attributes, CMD_ATTR_DEST)) ?? []);
  }

  /** Sets the destination's weight to 0: no new connections, while open ones continue. Succeeds if it is gone. Throws KernelError. */
  async quiesce(server: VirtualServer, destination: Destination): Promise<void> {
    const attributes = [serverAttribute(server), destinationAttribute({ ...destination, weight: 0 })];
    await this.#unlessGone(IpvsCommand.setDest, attributes);
  }

  /** Also removes its destinations and, with net.ipv4.vs.expire_nodest_conn, their connections. Succeeds if it is gone. Throws KernelError. */
  async remove(server: VirtualServer): Promise<void> {
    await this.#unlessGone(IpvsCommand.deleteService, [serverAttribute(server)]);
  }

  async #unlessGone(command: number, attributes: readonly Uint8Array[]): Promise<void> {
    // ESRCH: no such virtual server. ENOENT: no such destination.
    await unlessErrno(["ESRCH", "ENOENT"], undefined, this.request(command, RequestFlag.ack, attributes));
  }

  /** Sends any command of the family. Does nothing if the kernel has no IPVS. Throws KernelError. */
  async request(command: number, flags: number, attributes: readonly Uint8Array[]): Promise<Attributes[]> {
    const type = await this.#familyType();
    if (type === undefined) return [];
    const header = genericHeader(command, IPVS_GENL_VERSION);
    const request = { type, flags, header, attributes };
    const replies = await ask(this.netlink, NetlinkProtocol.generic, request, GENL_HEADER);
    return replies.map((reply) => reply.attributes);
  }
}

function genericHeader(command: number, version: number): Uint8Array {
  return Uint8Array.of(command, version, 0, 0);
}

/** Encodes a union nf_inet_addr: sixteen bytes in both families. */
function inetAddress(address: string): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes.set(addressBytes(address) ?? []);
  return bytes;
}

/** Identifies the virtual server of a command. */
export function serverAttribute(server: VirtualServer): Uint8Array {
  const { family, fwmark, protocol, address, port } = server;
  const number16 = (type: number, value: number): Uint8Array => attribute(type, number(value, 2));
  const number6 = protocol === undefined ? 0 : SERVICE_PROTOCOL[protocol];
  const which =
    fwmark !== 0
      ? [attribute(Svc.fwmark, number(fwmark, 4))]
      : [
          number16(Svc.protocol, number6),
          attribute(Svc.address, inetAddress(address)),
          attribute(Svc.port, networkNumber(port, 2)),
        ];
  return nest(CMD_ATTR_SERVICE, [number16(Svc.family, AF[family]), ...which]);
}

/** Encodes a destination with all attributes that a change must repeat. */
export function destinationAttribute(destination: Destination): Uint8Array {
  const number32 = (type: number, value: number): Uint8Array => attribute(type, number(value, 4));
  const { family, address, port, method, weight, upper, lower } = destination;
  return nest(CMD_ATTR_DEST, [
    attribute(Dest.family, number(AF[family], 2)),
    attribute(Dest.address, inetAddress(address)),
    attribute(Dest.port, networkNumber(port, 2)),
    number32(Dest.method, method),
    number32(Dest.weight, weight),
    number32(Dest.upper, upper),
    number32(Dest.lower, lower),
  ]);
}

function addressOf(attributes: Attributes, type: number, family: IpFamily): string {
  const data = dataOf(attributes, type);
  const length = family === "ip" ? 4 : 16;
  return data === undefined || data.length < length ? "" : formatAddress(data.subarray(0, length));
}

function readServer(attributes: Attributes): VirtualServer | undefined {
  const family = familyNumbered(numberOf(attributes, Svc.family));
  if (family === undefined) return undefined;
  const fwmark = numberOf(attributes, Svc.fwmark) ?? 0;
  const protocol = numberOf(attributes, Svc.protocol) ?? 0;
  return {
    family,
    fwmark,
    protocol: serviceProtocol(protocol),
    address: fwmark !== 0 ? "" : addressOf(attributes, Svc.address, family),
    port: networkNumberOf(attributes, Svc.port) ?? 0,
    scheduler: textOf(attributes, Svc.scheduler) ?? "",
  };
}

function readDestination(server: VirtualServer, attributes: Attributes): Destination | undefined {
  const family = familyNumbered(numberOf(attributes, Dest.family)) ?? server.family;
  const read = (type: number): number => numberOf(attributes, type) ?? 0;
  if (dataOf(attributes, Dest.address) === undefined) return undefined;
  return {
    family,
    address: addressOf(attributes, Dest.address, family),
    port: networkNumberOf(attributes, Dest.port) ?? 0,
    method: read(Dest.method),
    weight: read(Dest.weight),
    upper: read(Dest.upper),
    lower: read(Dest.lower),
    active: read(Dest.active),
    inactive: read(Dest.inactive),
  };
}
