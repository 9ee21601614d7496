/** The first packet of a connection, as nf_tables expressions read it. */
import { packAddress } from "../base/ip.js";
import { AddressType, IpProto, TcpFlag } from "../kernel/constants.js";
import type { IpFamily } from "../model/types.js";

export type Transport = "tcp" | "udp" | "sctp";

export interface PacketSpec {
  readonly family: IpFamily;
  readonly protocol: Transport;
  /** Canonical. */
  readonly source: string;
  readonly sourcePort: number;
  readonly destination: string;
  readonly destinationPort: number;
  /** Interface that it comes in by; "": made on this node, or not known. */
  readonly inInterface: string;
}

/** What rules change of a packet, and what they see of its way so far. */
export interface PacketState {
  mark: number;
  priority: number;
  /** As its header has it by now. */
  source: string;
  /** Where it goes by now. */
  destination: string;
  destinationPort: number;
  translated: boolean;
  masqueraded: boolean;
  /** Interface that it has come in by; "": none, or not known. */
  inInterface: string;
}

export function initialState({ source, destination, destinationPort, inInterface }: PacketSpec): PacketState {
  const rewritten = { translated: false, masqueraded: false };
  return { mark: 0, priority: 0, source, destination, destinationPort, ...rewritten, inInterface };
}

/** Of an address, in network order. Throws a RangeError for what is none. */
export function bytesOf(address: string): Uint8Array {
  const bytes = new Uint8Array(16);
  const length = packAddress(address, bytes, 0);
  if (length === 0) throw new RangeError(`not an address: ${address}`);
  return bytes.slice(0, length);
}

export function portBytes(port: number): Uint8Array {
  return Uint8Array.of(port >>> 8, port & 0xff);
}

/** Fields of the IP header at their offsets (RFC 791, RFC 8200); what no rule of ours reads is 0. */
export function networkHeader(spec: PacketSpec, state: PacketState): Uint8Array {
  const ip4 = spec.family === "ip";
  const header = new Uint8Array(ip4 ? 20 : 40);
  header[0] = ip4 ? 0x45 : 0x60;
  header[ip4 ? 8 : 7] = 64;
  header[ip4 ? 9 : 6] = IpProto[spec.protocol];
  header.set(bytesOf(state.source), ip4 ? 12 : 8);
  header.set(bytesOf(state.destination), ip4 ? 16 : 24);
  return header;
}

/** Ports, and of TCP the flags: the first packet is a SYN. */
export function transportHeader(spec: PacketSpec, state: PacketState): Uint8Array {
  const header = new Uint8Array(20);
  header.set(portBytes(spec.sourcePort), 0);
  header.set(portBytes(state.destinationPort), 2);
  if (spec.protocol === "tcp") header[13] = TcpFlag.syn;
  return header;
}

/** Routing type of an address (RTN_*), as `fib … type` has it; `local`: canonical addresses of this node. */
export function addressTypeOf(address: string, local: ReadonlySet<string>): number {
  if (local.has(address) || address.startsWith("127.") || address === "::1") return AddressType.local;
  if (address === "255.255.255.255") return AddressType.broadcast;
  const first = bytesOf(address)[0] ?? 0;
  const multicast = address.includes(":") ? first === 0xff : first >= 224 && first < 240;
  return multicast ? AddressType.multicast : AddressType.unicast;
}

/** An IPv6 address in brackets. */
export function withPort(address: string, port: number): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
