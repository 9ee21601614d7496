/** The packets that represent a service in the check of other programs' rules. Pure. */
import { addressBytes, type IpFamily } from "../../../base/ip.js";
import type { ServicePortView } from "../../../model/service-port-view.js";
import type { Transport } from "../packet-spec.js";

export interface ServicePacket {
  readonly family: IpFamily;
  readonly protocol: Transport;
  /** "namespace/name". */
  readonly service: string;
  /** The address that it is sent to. Absent: a node port at an address of this node. */
  readonly address?: string;
  readonly port: number;
  readonly endpoint: { readonly address: string; readonly port: number };
}

/**
 * One endpoint represents all those of its network on other nodes. Endpoints on this node each have their own
 * interface.
 */
export function* packetsOf(family: IpFamily, view: ServicePortView): Iterable<ServicePacket> {
  const { service, clusterIP, externalIPs, loadBalancerIPs, nodePort } = view;
  const address = clusterIP ?? externalIPs[0] ?? loadBalancerIPs[0];
  const port = address === undefined ? nodePort : view.port;
  const protocol = view.protocol.toLowerCase() as ServicePacket["protocol"];
  const seen = new Set<string>();
  for (const endpoints of [view.clusterEndpoints, view.localEndpoints]) {
    for (let i = 0; i < endpoints.length; i++) {
      const network = endpoints.isLocal(i) ? endpoints.address(i) : networkOf(family, endpoints.address(i));
      const key = `${network} ${endpoints.port(i)}`;
      if (seen.has(key)) continue;
      seen.add(key);
      const endpoint = { address: endpoints.address(i), port: endpoints.port(i) };
      yield { family, protocol, service, address, port, endpoint };
    }
  }
}

/** In most clusters, the pods of a node are in one /24 or one /64. */
function networkOf(family: IpFamily, address: string): string {
  if (family === "ip") return address.slice(0, address.lastIndexOf("."));
  return Buffer.from(addressBytes(address)?.subarray(0, 8) ?? []).toString("hex");
}
