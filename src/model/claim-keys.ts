/** Claims by which maps find them. */
import { formatAddress, packAddress } from "../base/ip.js";
import { type Protocol, PROTOCOLS } from "../base/protocols.js";

/** Address part of a node port's claim. */
export const NODE_PORT = "";

/**
 * One for each (address, protocol, port). With IPv4 a number: no text is made of each claim, and hashed, and kept. Its last 18 bits are protocol and port,
 * those ahead the address, or 2 ** 32 of a node port.
 */
export type Key = number | string;

const PORTS = 2 ** 16;
const PORTS_OF_ADDRESS = 2 ** 18;
const NO_ADDRESS = 2 ** 32;
const scratch = Buffer.alloc(16);

/** @param address canonical, or NODE_PORT. */
export function keyOf(address: string, protocol: Protocol, port: number): Key {
  let number = NO_ADDRESS;
  if (address !== NODE_PORT) {
    if (packAddress(address, scratch, 0) !== 4) return `${address} ${protocol} ${port}`;
    number = scratch.readUInt32BE(0);
  }
  return number * PORTS_OF_ADDRESS + PROTOCOLS.indexOf(protocol) * PORTS + port;
}

export function partsOf(key: Key): { address: string; protocol: Protocol; port: number } {
  if (typeof key === "string") {
    const [address = "", protocol, port] = key.split(" ");
    return { address, protocol: protocol as Protocol, port: Number(port) };
  }
  const number = Math.floor(key / PORTS_OF_ADDRESS);
  const rest = key % PORTS_OF_ADDRESS;
  let address = NODE_PORT;
  if (number < NO_ADDRESS) {
    scratch.writeUInt32BE(number, 0);
    address = formatAddress(scratch.subarray(0, 4));
  }
  return { address, protocol: PROTOCOLS[Math.floor(rest / PORTS)], port: rest % PORTS };
}
