/**
 * Packed keys and data of the shared maps. Every field is padded to 4 bytes, in network byte order, except indices and list
 * values, which are in host order as in packets. One instance contains scratch buffers, which are valid until its next call.
 */
import { LITTLE_ENDIAN } from "../base/byte-order.js";
import { formatAddress, type IpFamily, packAddress } from "../base/ip.js";
import { type Protocol, SERVICE_PROTOCOL, serviceProtocol } from "../base/protocols.js";
import { NODE_PORT, type ServiceAddress } from "../model/service-address.js";
import type { EndpointList } from "../objects/endpoint-list.js";

function writePort(into: Uint8Array, offset: number, port: number): void {
  into[offset] = port >>> 8;
  into[offset + 1] = port & 0xff;
}

function portWord(port: number): number {
  return LITTLE_ENDIAN ? (port >>> 8) | ((port & 0xff) << 8) : port << 16;
}

/**
 * The key of one VIP or node port, in two lengths: alone, and followed by an index or list value. `service` is address .
 * protocol . port (for node ports: protocol . port).
 */
export class ServiceKey {
  readonly service: Uint8Array;
  readonly indexed: Uint8Array;
  readonly #index: Uint32Array;

  constructor(bytes: number) {
    this.indexed = new Uint8Array(bytes + 4);
    this.service = this.indexed.subarray(0, bytes);
    this.#index = new Uint32Array(this.indexed.buffer, bytes);
  }

  /** The key followed by this number. The buffer is shared with `service`, and reused. */
  at(index: number): Uint8Array {
    this.#index[0] = index;
    return this.indexed;
  }
}

export class KeyPacker {
  readonly addressBytes: number;
  readonly #vip: ServiceKey;
  /** The address in `#vip`, which is the same for all ports of a service. */
  #vipAddress = "";
  readonly #nodePort = new ServiceKey(8);
  readonly #address: Uint8Array;
  readonly #hairpin: Uint8Array;
  #list = new Int32Array(64);

  constructor(family: IpFamily) {
    this.addressBytes = family === "ip" ? 4 : 16;
    this.#vip = new ServiceKey(this.addressBytes + 8);
    this.#address = new Uint8Array(this.addressBytes);
    this.#hairpin = new Uint8Array(2 * this.addressBytes + 8);
  }

  address(address: string): Uint8Array {
    packAddress(address, this.#address, 0);
    return this.#address;
  }

  vip(address: string, protocol: Protocol, port: number): ServiceKey {
    const bytes = this.#vip.indexed;
    if (address !== this.#vipAddress) packAddress(address, bytes, 0);
    this.#vipAddress = address;
    bytes[this.addressBytes] = SERVICE_PROTOCOL[protocol];
    writePort(bytes, this.addressBytes + 4, port);
    return this.#vip;
  }

  nodePort(protocol: Protocol, port: number): ServiceKey {
    const bytes = this.#nodePort.indexed;
    bytes[0] = SERVICE_PROTOCOL[protocol];
    writePort(bytes, 4, port);
    return this.#nodePort;
  }

  /** Data of the endpoint maps: address . port of each endpoint in sequence, as words. Valid until the next call. */
  endpoints(list: EndpointList): Int32Array {
    const width = this.addressBytes / 4;
    if (list.length * (width + 1) > this.#list.length) this.#list = new Int32Array(list.length * (width + 1) * 2);
    const into = this.#list;
    let to = 0;
    for (let i = 0; i < list.length; i++) {
      for (let j = 0; j < width; j++) into[to++] = list.words[i * width + j];
      into[to++] = portWord(list.port(i));
    }
    return into;
  }

  /** Returns a function that finds the index of the endpoint with such data, or -1 if the list does not have it. */
  finder(list: EndpointList): (data: Uint8Array | undefined) => number {
    const width = this.addressBytes / 4 + 1;
    const all = this.endpoints(list);
    const byData = new Map<string, number>();
    for (let i = 0; i < list.length; i++) byData.set(all.subarray(i * width, (i + 1) * width).join(), i);
    return (data) => (data === undefined ? -1 : (byData.get(new Int32Array(data.slice().buffer).join()) ?? -1));
  }

  /** Key of hairpin-connections: endpoint . endpoint . protocol . port. */
  hairpin(list: EndpointList, index: number, protocol: Protocol): Uint8Array {
    const bytes = this.#hairpin;
    const port = list.port(index);
    packAddress(list.address(index), bytes, 0);
    bytes.copyWithin(this.addressBytes, 0, this.addressBytes);
    bytes[2 * this.addressBytes] = SERVICE_PROTOCOL[protocol];
    writePort(bytes, 2 * this.addressBytes + 4, port);
    return bytes;
  }
}

const NUMBERS = [new Uint32Array(1), new Uint32Array(1)];
const NUMBER_BYTES = NUMBERS.map((number) => new Uint8Array(number.buffer));
let turn = 0;

/**
 * A list value, an endpoint's number or the Table's number of a verdict: 4 bytes, host order. Valid for one further call, so
 * that two results can be a key and its data.
 */
export function packNumber(value: number): Uint8Array {
  turn ^= 1;
  NUMBERS[turn][0] = value;
  return NUMBER_BYTES[turn];
}

/** Reads a number in host order. */
export function unpackNumber(bytes: Uint8Array): number {
  return new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, LITTLE_ENDIAN);
}

const PAIR = new Uint32Array(2);
const PAIR_BYTES = new Uint8Array(PAIR.buffer);

/** Two such numbers in sequence. Valid until the next call. */
export function packNumbers(first: number, second: number): Uint8Array {
  PAIR[0] = first;
  PAIR[1] = second;
  return PAIR_BYTES;
}

/** Reads a key in the layout of `ServiceKey.service`. Returns undefined for a protocol that no service has. */
export function unpackServiceKey(key: Uint8Array, family: IpFamily): ServiceAddress | undefined {
  const addressBytes = family === "ip" ? 4 : 16;
  const vip = key.length >= addressBytes + 8;
  const at = vip ? addressBytes : 0;
  const protocol = serviceProtocol(key[at]);
  if (protocol === undefined) return undefined;
  const port = (key[at + 4] << 8) | key[at + 5];
  return { family, address: vip ? formatAddress(key.slice(0, addressBytes)) : NODE_PORT, protocol, port };
}
