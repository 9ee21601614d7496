/** The scope of a reconciler's pass, and the dumps that find its entries. */
import { isDeepStrictEqual } from "node:util";
import { type Protocol, SERVICE_PROTOCOL } from "../../base/protocols.js";
import type { IpFamily } from "../../base/ip.js";
import type { ServiceTarget } from "../../model/service-port-view.js";
import { type AddressKey, keyOf, NODE_PORT, type ServiceAddress } from "../../model/service-address.js";
import type { ServiceKnowledge } from "./service-knowledge.js";
import { isReconciled } from "./prefilter.js";
import type { ConntrackFilter } from "../../nft/conntrack/conntrack-table.js";

/** An endpoint that no longer takes traffic. */
export interface GoneEndpoint {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
}

/** Changes in one family that are still to be reconciled. */
export interface Scope {
  /** Examine everything, not only the fields below. */
  all: boolean;
  /**
   * "namespace/name" of the services that changed. If only endpoints went, the value lists them: then a stale entry has
   * one of them as reply source. If undefined, any entry to the service may be stale.
   */
  readonly services: Map<string, readonly GoneEndpoint[] | undefined>;
  /** Former VIPs and node ports, by key. */
  readonly claims: Map<AddressKey, ServiceAddress>;
  /** Number of previous passes over the same scope without a change in between. */
  repeats: number;
}

export function newScope(all = false): Scope {
  return { all, services: new Map(), claims: new Map(), repeats: 0 };
}

export function mergeScope(into: Scope, from: Scope): void {
  into.all ||= from.all;
  for (const [service, gone] of from.services) {
    const before = into.services.has(service) ? into.services.get(service) : [];
    into.services.set(service, before === undefined || gone === undefined ? undefined : [...before, ...gone]);
  }
  for (const [key, claim] of from.claims) into.claims.set(key, claim);
  into.repeats = Math.min(into.repeats, from.repeats);
}

/** The same scope once more. This time every entry to the services is examined. */
export function repeatScope({ all, services, claims, repeats }: Scope): Scope {
  const whole = new Map(Array.from(services.keys(), (service) => [service, undefined] as const));
  return { all, services: whole, claims, repeats: repeats + 1 };
}

/** Collects dumps until there are too many. */
class Filters {
  readonly #family: IpFamily;
  readonly #filters = new Map<string, ConntrackFilter>();

  constructor(family: IpFamily) {
    this.#family = family;
  }

  get size(): number {
    return this.#filters.size;
  }

  /** Adds all entries to a destination. One dump covers an address with many ports. */
  to({ address, protocol, port }: Omit<ServiceAddress, "family">): void {
    const number = SERVICE_PROTOCOL[protocol];
    const exact = { family: this.#family, protocol: number };
    if (address === NODE_PORT) {
      this.#filters.set(`${protocol} ${port}`, { ...exact, original: { destinationPort: port } });
    } else {
      const wide = { family: this.#family, original: { destination: address } };
      this.#add(`to ${address}`, { ...exact, original: { destination: address, destinationPort: port } }, wide);
    }
  }

  /** Adds all entries that an endpoint replies to. One dump covers an address with many ports. */
  from({ address, protocol, port }: GoneEndpoint): void {
    const number = SERVICE_PROTOCOL[protocol];
    const exact = { family: this.#family, protocol: number, reply: { source: address, sourcePort: port } };
    this.#add(`from ${address}`, exact, { family: this.#family, reply: { source: address } });
  }

  /** Uses the exact filter while the address has only one, and the wide one for several. */
  #add(key: string, exact: ConntrackFilter, wide: ConntrackFilter): void {
    const before = this.#filters.get(key);
    this.#filters.set(key, before === undefined || isDeepStrictEqual(before, exact) ? exact : wide);
  }

  all(): ConntrackFilter[] {
    return [...this.#filters.values()];
  }
}

/**
 * Maximum number of ports of a service to examine in one turn. A service with more gets a pass over all entries, whose
 * preparation yields to the event loop.
 */
const MOST_PORTS = 256;

/**
 * Returns kernel-filtered dumps that together show every possibly stale entry. Returns undefined if this takes more
 * than `most` dumps.
 */
export function filtersOf(
  { services, claims }: Scope,
  known: ServiceKnowledge,
  most: number,
): ConntrackFilter[] | undefined {
  const filters = new Filters(known.family);
  for (const [service, gone] of services) {
    const targets: ServiceTarget[] = [];
    let ports = 0;
    for (const target of known.targetsOf(service)) {
      if (++ports > MOST_PORTS) return undefined;
      if (isReconciled(target.protocol, target.resetRemovedEndpoints)) targets.push(target);
    }
    const protocols = new Set(targets.map(({ protocol }) => protocol));
    const from = gone?.filter(({ protocol }) => protocols.has(protocol));
    // Use whichever takes fewer dumps; if equal, the dumps that show more entries.
    if (from !== undefined && from.length < waysTo(targets)) {
      for (const endpoint of from) filters.from(endpoint);
    } else {
      for (const { addresses, protocol, port, nodePort } of targets) {
        for (const address of addresses) filters.to({ address, protocol, port });
        if (nodePort !== 0) filters.to({ address: NODE_PORT, protocol, port: nodePort });
      }
    }
    if (filters.size > most) return undefined;
  }
  for (const claim of claims.values()) {
    if (isReconciled(claim.protocol, false)) filters.to(claim);
    if (filters.size > most) return undefined;
  }
  return filters.all();
}

/** Number of dumps needed to see all entries to these targets. */
function waysTo(targets: readonly ServiceTarget[]): number {
  const ways = new Set(targets.flatMap(({ addresses }) => addresses));
  return ways.size + targets.filter(({ nodePort }) => nodePort !== 0).length;
}

export function scopeOf(
  services: Iterable<readonly [service: string, gone: readonly GoneEndpoint[] | undefined]>,
  claims: Iterable<ServiceAddress>,
): Scope {
  const scope = newScope();
  for (const [service, gone] of services) scope.services.set(service, gone);
  for (const claim of claims) scope.claims.set(keyOf(claim), claim);
  return scope;
}
