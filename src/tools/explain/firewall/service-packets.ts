/** The packets that represent a service in the check of other programs' rules. Pure. */
import { addressBytes, type IpFamily } from "../../../base/ip.js";
import { addressesOf, NODE_PORT } from "../../../model/service-address.js";
import type { ServicePortView } from "../../../model/service-port-view.js";
import type { EndpointList } from "../../../objects/endpoint-list.js";
import type { Transport } from "../machine/packet-spec.js";

export interface ServicePacket {
  readonly family: IpFamily;
  readonly protocol: Transport;
  /** "namespace/name". */
  readonly service: string;
  /** The address that it is sent to, if it is not the ClusterIP: "node port 30080". */
  readonly to?: string;
  /** The address that it is sent to. Absent: a node port at an address of this node, or unknown. */
  readonly address?: string;
  /** This and the endpoint are absent if they are unknown: the packet stands for those of any service. */
  readonly port?: number;
  readonly endpoint?: {
    readonly address: string;
    readonly port: number;
    /** Whether it is on this node. */
    readonly isLocal: boolean;
  };
}

/** The served services, as packets that must pass. */
export interface ServedPackets {
  /** Families that have endpoints. */
  readonly families: readonly IpFamily[];
  /** "namespace/name" of all services. */
  readonly services: Iterable<string>;
  readonly packets: (service: string) => Iterable<ServicePacket>;
}

/** Packets that stand for those of any service, of which nothing else is known. */
export function* packetsOfAny(families: readonly IpFamily[]): Iterable<ServicePacket> {
  for (const family of families) {
    for (const protocol of ["tcp", "udp"] as const) yield { family, protocol, service: "services" };
  }
}

/**
 * One packet for each address of the service and each endpoint. One endpoint represents all those of its network on
 * other nodes. Endpoints on this node each have their own interface.
 */
export function* packetsOf(family: IpFamily, view: ServicePortView): Iterable<ServicePacket> {
  const { service, clusterIP, internalPolicyLocal, externalPolicyLocal } = view;
  const protocol = view.protocol.toLowerCase() as ServicePacket["protocol"];
  for (const { address: vip, port } of addressesOf(family, view)) {
    const isLocalPolicy = vip === clusterIP ? internalPolicyLocal : externalPolicyLocal;
    const address = vip === NODE_PORT ? undefined : vip;
    const to = vip === clusterIP ? undefined : (address ?? `node port ${port}`);
    for (const endpoint of endpointsOf(family, isLocalPolicy ? view.localEndpoints : view.clusterEndpoints))
      yield { family, protocol, service, to, address, port, endpoint };
  }
}

function* endpointsOf(family: IpFamily, all: EndpointList): Iterable<NonNullable<ServicePacket["endpoint"]>> {
  const seen = new Set<string>();
  for (let i = 0; i < all.length; i++) {
    const [address, port, isLocal] = [all.address(i), all.port(i), all.isLocal(i)];
    const key = `${isLocal ? address : networkOf(family, address)} ${port}`;
    if (!seen.has(key)) yield { address, port, isLocal };
    seen.add(key);
  }
}

/** In most clusters, the pods of a node are in one /24 or one /64. */
function networkOf(family: IpFamily, address: string): string {
  if (family === "ip") return address.slice(0, address.lastIndexOf("."));
  return Buffer.from(addressBytes(address)?.subarray(0, 8) ?? []).toString("hex");
}
