/** A packet as people and other programs describe it. */
import type { IpFamily } from "../../../base/ip.js";
import type { IpProto } from "../../../nft/kernel/constants.js";

export const TRANSPORTS = ["tcp", "udp", "sctp"] as const satisfies readonly (keyof typeof IpProto)[];
export type Transport = (typeof TRANSPORTS)[number];

/** The destination of a packet. Addresses are canonical. */
export interface Addressed {
  readonly family: IpFamily;
  readonly protocol: Transport;
  readonly destination: string;
  readonly destinationPort: number;
}

/** The packet to explain. */
export interface PacketSpec extends Addressed {
  readonly source: string;
  /** Absent if unknown. */
  readonly sourcePort?: number;
  /** Incoming interface. "" if the packet is from this node or the interface is unknown. */
  readonly inInterface: string;
}

/** Addresses of loopback interfaces. */
export const LOOPBACK = { ip: "127.0.0.1", ip6: "::1" } as const;

/** Documentation addresses (RFC 5737, RFC 3849) that stand for a client outside the cluster. */
export const OUTSIDE = { ip: "192.0.2.1", ip6: "2001:db8::1" } as const;
