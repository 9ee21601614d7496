/** The address of a service: one type, with one key for maps. Text and packed bytes are functions of it. */
import { FAMILY_NAMES } from "../base/ip-families.js";
import { formatAddress, type IpFamily, packAddress } from "../base/ip.js";
import { type Protocol, PROTOCOLS } from "../base/protocols.js";

/** A VIP and port, or a node port. */
export interface ServiceAddress {
  readonly family: IpFamily;
  /** Canonical, or NODE_PORT. */
  readonly address: string;
  readonly protocol: Protocol;
  readonly port: number;
}

/** The `address` of a node port. */
export const NODE_PORT = "";

/**
 * Unique among the addresses of both families. A VIP of IPv6 has a text; all others have a number, because maps would keep
 * and hash a text for each. The last 18 bits of a number are protocol and port. The bits ahead are the IPv4 address, or
 * 2 ** 32 and more for a node port.
 */
export type AddressKey = number | string;

const PORTS = 2 ** 16;
const PORTS_OF_ADDRESS = 2 ** 18;
const NODE_PORTS: Readonly<Record<IpFamily, number>> = { ip: 2 ** 32, ip6: 2 ** 32 + 1 };
const scratch = Buffer.alloc(16);

export function keyOf({ family, address, protocol, port }: ServiceAddress): AddressKey {
  const ports = PROTOCOLS.indexOf(protocol) * PORTS + port;
  if (address === NODE_PORT) return NODE_PORTS[family] * PORTS_OF_ADDRESS + ports;
  // Requests may have any text as the address.
  if (family === "ip6" || packAddress(address, scratch, 0) !== 4) return `${address} ${protocol} ${port}`;
  return scratch.readUInt32BE(0) * PORTS_OF_ADDRESS + ports;
}

/** The inverse of `keyOf`. */
export function addressOf(key: AddressKey): ServiceAddress {
  if (typeof key === "string") {
    const [address = "", protocol, port] = key.split(" ");
    return { family: "ip6", address, protocol: protocol as Protocol, port: Number(port) };
  }
  const number = Math.floor(key / PORTS_OF_ADDRESS);
  const rest = key % PORTS_OF_ADDRESS;
  const ports = { protocol: PROTOCOLS[Math.floor(rest / PORTS)], port: rest % PORTS };
  if (number >= NODE_PORTS.ip) return { family: number === NODE_PORTS.ip ? "ip" : "ip6", address: NODE_PORT, ...ports };
  scratch.writeUInt32BE(number, 0);
  return { family: "ip", address: formatAddress(scratch.subarray(0, 4)), ...ports };
}

/** "192.0.2.1:80/TCP", "[fd00::1]:80/TCP", "IPv4 node port 30080/TCP". */
export function addressText({ family, address, protocol, port }: ServiceAddress): string {
  if (address === NODE_PORT) return `${FAMILY_NAMES[family]} node port ${port}/${protocol}`;
  return `${family === "ip6" ? `[${address}]` : address}:${port}/${protocol}`;
}

/** All addresses that a service port may serve. */
export interface PortAddresses {
  readonly protocol: Protocol;
  readonly port: number;
  /** Canonical. Absent if another service has it. */
  readonly clusterIP?: string;
  /** spec.externalIPs of the family, canonical, without duplicates. */
  readonly externalIPs: readonly string[];
  /** status.loadBalancer.ingress of the family that are VIPs, canonical, without duplicates. */
  readonly loadBalancerIPs: readonly string[];
  /** 0 for none. */
  readonly nodePort: number;
}

/** The addresses without the node port: ClusterIP, external IPs and load-balancer IPs. */
export function vipsOf({
  clusterIP,
  externalIPs,
  loadBalancerIPs,
}: Pick<PortAddresses, "clusterIP" | "externalIPs" | "loadBalancerIPs">): string[] {
  return [...(clusterIP === undefined ? [] : [clusterIP]), ...externalIPs, ...loadBalancerIPs];
}

export function* addressesOf(family: IpFamily, of: PortAddresses): Generator<ServiceAddress, void> {
  const { clusterIP, externalIPs, loadBalancerIPs, nodePort, protocol, port } = of;
  if (clusterIP !== undefined) yield { family, address: clusterIP, protocol, port };
  for (const address of externalIPs) yield { family, address, protocol, port };
  for (const address of loadBalancerIPs) yield { family, address, protocol, port };
  if (nodePort !== 0) yield { family, address: NODE_PORT, protocol, port: nodePort };
}
