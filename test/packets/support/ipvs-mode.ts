/** Sets up a node as kube-proxy's IPVS mode does, over netlink. Uses the program's own codec, because guests have no other tool. */
import { existsSync } from "node:fs";

import { newServerAttribute } from "../../support/new-ipvs-server.ts";
import {
  attribute,
  networkAttribute,
  networkNumber,
  nest,
  number,
  RequestFlag,
  text,
} from "../../../src/nft/kernel/netlink-message.js";
import { IpsetAttribute, IpsetCommand, IpsetTable } from "../../../src/netlink/ipset-table.js";
import {
  type Destination,
  destinationAttribute,
  IpvsCommand,
  IpvsTable,
  serverAttribute,
  type VirtualServer,
} from "../../../src/netlink/ipvs-table.js";
import type { Protocol } from "../../../src/base/protocols.js";
import { addressBytes, familyOf, type IpFamily } from "../../../src/base/ip.js";
import type { NftKernel } from "../../../src/nft/kernel/nft-kernel.js";
import type { Namespace } from "../../lab/namespace.ts";
import { PLAN } from "../../lab/topology.ts";

/** Whether this kernel has IPVS or, if it is a module, has loaded it. */
export const HAS_IPVS = existsSync("/proc/net/ip_vs");

/** "10.0.0.1:80" or "[fd00::1]:80", with its protocol. */
export interface Place {
  readonly protocol: Protocol;
  readonly address: string;
  readonly port: number;
}

function virtualServer({ protocol, address, port }: Place): VirtualServer {
  return { family: familyOf(address), fwmark: 0, protocol, address, port, scheduler: "rr" };
}

function destination(address: string, port: number): Destination {
  const counts = { active: 0, inactive: 0 };
  return { family: familyOf(address), address, port, method: 0, weight: 1, upper: 0, lower: 0, ...counts };
}

const IPVS_SYSCTL = {
  "net.ipv4.vs.conntrack": 1,
  "net.ipv4.vs.conn_reuse_mode": 0,
  "net.ipv4.vs.expire_nodest_conn": 1,
  "net.ipv4.vs.expire_quiescent_template": 1,
};

/** IPVS_CMD_SET_CONFIG with IPVS_CMD_ATTR_TIMEOUT_TCP, _TCP_FIN and _UDP. */
const SET_CONFIG = 12;
const TIMEOUTS = [4, 5, 6] as const;
/** linux/netfilter/ipset/ip_set.h: attributes of a bitmap's range and of an element's address. */
const IpsetData = { ip: 1, port: 4, portTo: 5, protocol: 7, ip2: 20, name: 18 } as const;
const IPADDR = { ip: 1, ip6: 2 } as const;
const AF = { ip: 2, ip6: 10 } as const;
const PROTOCOL = { TCP: 6, UDP: 17, SCTP: 132 } as const;

export class IpvsMode {
  readonly ipvs: IpvsTable;
  readonly ipset: IpsetTable;
  readonly #node: Namespace;

  private constructor(kernel: NftKernel, node: Namespace) {
    this.ipvs = new IpvsTable(kernel.connection);
    this.ipset = new IpsetTable(kernel.connection);
    this.#node = node;
  }

  /**
   * Creates the interface, without addresses, and applies the settings. `timeouts`: IPVS's idle times in s, for TCP, closing TCP, and UDP.
   */
  static async start(kernel: NftKernel, node: Namespace, timeouts: readonly number[]): Promise<IpvsMode> {
    const mode = new IpvsMode(kernel, node);
    await node.sysctl(IPVS_SYSCTL);
    await node.ip(["link add kube-ipvs0 type dummy"]);
    const attributes = TIMEOUTS.map((type, i) => attribute(type, number(timeouts[i] ?? 0, 4)));
    await mode.ipvs.request(SET_CONFIG, RequestFlag.ack, attributes);
    return mode;
  }

  /** Assigns the services' addresses to the interface, as kube-proxy does. */
  async bind(addresses: readonly string[]): Promise<void> {
    await this.#node.ip(
      addresses.map((one) => `address add ${one}/${familyOf(one) === "ip" ? 32 : 128} dev kube-ipvs0`),
    );
  }

  /** Adds a virtual server with these destinations, "address port" each. `affinitySeconds`: 0 for none. */
  async serve(place: Place, endpoints: readonly (readonly [string, number])[], affinitySeconds = 0): Promise<void> {
    const server = virtualServer(place);
    await this.ipvs.request(IpvsCommand.newService, RequestFlag.ack, [newServerAttribute(server, affinitySeconds)]);
    for (const [address, port] of endpoints) {
      const attributes = [serverAttribute(server), destinationAttribute(destination(address, port))];
      await this.ipvs.request(IpvsCommand.newDest, RequestFlag.ack, attributes);
    }
  }

  /** A set of addresses with ports: hash:ip,port. */
  async addressSet(name: string, family: IpFamily, places: readonly Place[]): Promise<void> {
    await this.#create(name, "hash:ip,port", AF[family], []);
    for (const { protocol, address, port } of places) {
      const ip = nest(IpsetData.ip, [networkAttribute(IPADDR[family], addressBytes(address)!)]);
      await this.#add(name, [
        ip,
        networkAttribute(IpsetData.port, networkNumber(port, 2)),
        attribute(IpsetData.protocol, number(PROTOCOL[protocol], 1)),
      ]);
    }
  }

  /** A set of ports: bitmap:port. */
  async portSet(name: string, ports: readonly number[]): Promise<void> {
    const range = [
      networkAttribute(IpsetData.port, networkNumber(0, 2)),
      networkAttribute(IpsetData.portTo, networkNumber(65_535, 2)),
    ];
    await this.#create(name, "bitmap:port", 0, range);
    for (const port of ports) await this.#add(name, [networkAttribute(IpsetData.port, networkNumber(port, 2))]);
  }

  /** A set of sets. Like a rule, it keeps its members from being destroyed. */
  async listSet(name: string, members: readonly string[]): Promise<void> {
    await this.#create(name, "list:set", 0, []);
    for (const member of members) await this.#add(name, [attribute(IpsetData.name, text(member))]);
  }

  async #create(name: string, type: string, family: number, data: readonly Uint8Array[]): Promise<void> {
    await this.ipset.request(IpsetCommand.create, RequestFlag.ack | RequestFlag.create | RequestFlag.exclusive, [
      attribute(IpsetAttribute.name, text(name)),
      attribute(IpsetAttribute.type, text(type)),
      attribute(IpsetAttribute.revision, number(type === "hash:ip,port" ? 1 : 0, 1)),
      attribute(IpsetAttribute.family, number(family, 1)),
      nest(IpsetAttribute.data, data),
    ]);
  }

  async #add(name: string, data: readonly Uint8Array[]): Promise<void> {
    await this.ipset.request(IpsetCommand.add, RequestFlag.ack | RequestFlag.exclusive, [
      attribute(IpsetAttribute.name, text(name)),
      nest(IpsetAttribute.data, data),
    ]);
  }
}

/** Tables in the form of iptables-nft: the mode masquerades traffic that is not from pods, and everything that the node sends. */
export function masqueradeTables(vips: Readonly<Record<IpFamily, readonly string[]>>): string {
  return (["ip", "ip6"] as const)
    .map(
      (family) => `
table ${family} nat {
  chain KUBE-MARK-MASQ { counter meta mark set mark or 0x4000; }
  chain KUBE-NODE-PORT { counter jump KUBE-MARK-MASQ; }
  chain KUBE-SERVICES {
    ${family} daddr { ${vips[family].join(", ")} } ${family} saddr != ${PLAN.clusterCIDR[family]} counter jump KUBE-MARK-MASQ
    tcp dport 30000-32767 counter jump KUBE-NODE-PORT
    udp dport 30000-32767 counter jump KUBE-NODE-PORT
  }
  chain KUBE-POSTROUTING { mark and 0x4000 != 0x4000 counter return; meta mark set mark xor 0x4000; counter masquerade; }
  chain PREROUTING { type nat hook prerouting priority -100; counter jump KUBE-SERVICES; }
  chain OUTPUT { type nat hook output priority -100; counter jump KUBE-SERVICES; }
  chain POSTROUTING { type nat hook postrouting priority 100; counter jump KUBE-POSTROUTING; }
}`,
    )
    .join("\n");
}
