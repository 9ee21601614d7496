/**
 * Endpoints in columns. A cluster has hundreds of thousands of endpoints, and an object and a string per endpoint would take most
 * of the memory. Addresses are words in the format of the kernel's maps. They are parsed once from the API's text, and
 * formatted only on demand.
 */
import {
  formatAddress,
  type IpFamily,
  packAddress,
  type Prefix,
  prefixContains,
  specialKind,
  type SpecialKind,
} from "../base/ip.js";

export interface Endpoint {
  /** Canonical text of the address: dotted quad, or RFC 5952. */
  readonly address: string;
  readonly port: number;
  /** Whether it is on this node. */
  readonly local: boolean;
}

const scratch = new Int32Array(4);
const scratchBytes = new Uint8Array(scratch.buffer);

/** Number of words of one address. */
export function wordsOf(family: IpFamily): 1 | 4 {
  return family === "ip" ? 1 : 4;
}

/**
 * Parses an address, and writes its words (network byte order in memory) to `into` from `at` on. Returns false, and writes
 * nothing, if it is not an address of the family.
 */
export function readAddress(text: string, family: IpFamily, into: number[], at: number): boolean {
  const words = wordsOf(family);
  if (packAddress(text, scratchBytes, 0) !== words * 4) return false;
  for (let i = 0; i < words; i++) into[at + i] = scratch[i];
  return true;
}

/** Why an address parsed by `readAddress` cannot be an endpoint's. Returns undefined for an ordinary address. */
export function specialEndpoint(words: readonly number[], family: IpFamily, at: number): SpecialKind | undefined {
  const count = wordsOf(family);
  for (let i = 0; i < count; i++) scratch[i] = words[at + i];
  return specialKind(scratchBytes, 0, count * 4);
}

/** Endpoints of one family. Immutable. */
export class EndpointList implements Iterable<Endpoint> {
  constructor(
    readonly family: IpFamily,
    readonly length: number,
    /** Signed words: one per IPv4 address, four per IPv6 address. */
    readonly words: readonly number[],
    /** One port for all of them, or one for each. */
    readonly ports: number | readonly number[],
    /** Whether each is on this node. Undefined if none is. */
    readonly locals: readonly boolean[] | undefined,
  ) {}

  /** Creates a list from objects. Throws RangeError for an invalid address, or one of the other family. */
  static of(family: IpFamily, endpoints: readonly Endpoint[]): EndpointList {
    const words: number[] = [];
    for (const { address } of endpoints) {
      if (!readAddress(address, family, words, words.length))
        throw new RangeError(`${address} does not belong to ${family}`);
    }
    const ports = endpoints.map(({ port }) => port);
    const locals = endpoints.map(({ local }) => local);
    return new EndpointList(family, endpoints.length, words, ports, locals.includes(true) ? locals : undefined);
  }

  /** The `addressId` of an address. Returns undefined if it is not an address of the family. */
  static idOf(family: IpFamily, address: string): number | string | undefined {
    const words: number[] = [];
    if (!readAddress(address, family, words, 0)) return undefined;
    return new EndpointList(family, 1, words, 0, undefined).addressId(0);
  }

  *[Symbol.iterator](): Iterator<Endpoint> {
    for (let i = 0; i < this.length; i++)
      yield { address: this.address(i), port: this.port(i), local: this.isLocal(i) };
  }

  /** Canonical text. */
  address(index: number): string {
    const count = wordsOf(this.family);
    for (let i = 0; i < count; i++) scratch[i] = this.words[index * count + i];
    return formatAddress(scratchBytes.subarray(0, count * 4));
  }

  port(index: number): number {
    return typeof this.ports === "number" ? this.ports : this.ports[index];
  }

  isLocal(index: number): boolean {
    return this.locals?.[index] ?? false;
  }

  /** An identifier that is the same only for equal addresses of a family. */
  addressId(index: number): number | string {
    if (this.family === "ip") return this.words[index];
    return this.words.slice(index * 4, index * 4 + 4).join();
  }

  /** An identifier that is the same only for equal addresses and ports of a family. */
  id(index: number): number | string {
    if (this.family === "ip") return (this.words[index] >>> 0) * 65_536 + this.port(index);
    return `${this.addressId(index)} ${this.port(index)}`;
  }

  /** Whether the endpoint at `index` has the same address and port as that of another list at `at`. */
  isSame(index: number, other: EndpointList, at: number): boolean {
    if (this.port(index) !== other.port(at)) return false;
    const count = wordsOf(this.family);
    for (let i = 0; i < count; i++) if (this.words[index * count + i] !== other.words[at * count + i]) return false;
    return true;
  }

  equals(other: EndpointList): boolean {
    if (this.length !== other.length) return false;
    for (let i = 0; i < this.length; i++) {
      if (!this.isSame(i, other, i) || this.isLocal(i) !== other.isLocal(i)) return false;
    }
    return true;
  }

  /** The same endpoints on another port. */
  onPort(port: number): EndpointList {
    return this.ports === port ? this : new EndpointList(this.family, this.length, this.words, port, this.locals);
  }

  /** The endpoints at these indices, in this order. */
  pick(indices: readonly number[] | Uint16Array | Int32Array): EndpointList {
    const count = wordsOf(this.family);
    // With room for all of them: pushing 100,000 words one by one takes four times as long.
    // oxlint-disable-next-line unicorn/no-new-array
    const words = new Array<number>(count * indices.length);
    for (let at = 0; at < indices.length; at++)
      for (let i = 0; i < count; i++) words[at * count + i] = this.words[indices[at] * count + i];
    const { ports, locals } = this;
    return new EndpointList(
      this.family,
      indices.length,
      words,
      typeof ports === "number" ? ports : Array.from(indices, (index) => ports[index]),
      locals && Array.from(indices, (index) => locals[index]),
    );
  }

  /** The endpoints from one index up to another. */
  slice(from: number, end: number): EndpointList {
    if (from === 0 && end >= this.length) return this;
    const count = wordsOf(this.family);
    const { ports, locals } = this;
    const words = this.words.slice(from * count, end * count);
    const ofPart = typeof ports === "number" ? ports : ports.slice(from, end);
    return new EndpointList(this.family, words.length / count, words, ofPart, locals?.slice(from, end));
  }

  /** The endpoints whose index passes, in the same order. */
  filter(passes: (index: number) => boolean): EndpointList {
    const indices: number[] = [];
    for (let i = 0; i < this.length; i++) if (passes(i)) indices.push(i);
    return indices.length === this.length ? this : this.pick(indices);
  }
}

/** Addresses of endpoints that lie in one of the networks, at most `most` of them. */
export function endpointsInside(list: EndpointList, networks: readonly Prefix[], most: number): string[] {
  const found: string[] = [];
  for (let i = 0; i < list.length && found.length < most; i++) {
    const address = list.address(i);
    if (networks.some((network) => prefixContains(network, address))) found.push(address);
  }
  return found;
}

/** Empty, so it also serves for the other family. */
export const NO_ENDPOINTS = new EndpointList("ip", 0, [], 0, undefined);
