/** What a pass of the reconciler is about, and by which dumps it is found. */
import { isDeepStrictEqual } from "node:util";
import { type Protocol, SERVICE_PROTOCOL } from "../../base/protocols.js";
import type { IpFamily } from "../../base/ip.js";
import type { ServiceTarget } from "../../model/service-port-view.js";
import { type Claim, claimKey } from "./former-targets.js";
import type { ServiceKnowledge } from "./service-knowledge.js";
import { isReconciled } from "./prefilter.js";
import type { ConntrackFilter } from "../table/conntrack-table.js";

/** An endpoint that took traffic and does no more. */
export interface GoneEndpoint {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
}

/** Changes of one family that wait to be reconciled. */
export interface Scope {
  /** Everything, not only what follows. */
  all: boolean;
  /**
   * "namespace/name" of the services that changed. With the endpoints that went, when nothing else of the service changed:
   * then what is stale replies from one of them. Undefined: any entry to the service may be stale.
   */
  readonly services: Map<string, readonly GoneEndpoint[] | undefined>;
  /** Former VIPs and node ports, by key. */
  readonly claims: Map<string, Claim>;
  /** How many passes over the same went before, without a change in between. */
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

/** The same once more: this time every entry to the services is looked at. */
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

  /** All entries to a destination. One address with many ports is one dump. */
  to({ address, protocol, port }: Omit<Claim, "family">): void {
    const number = SERVICE_PROTOCOL[protocol];
    const exact = { family: this.#family, protocol: number };
    if (address === "") {
      this.#filters.set(`${protocol} ${port}`, { ...exact, original: { destinationPort: port } });
    } else {
      const wide = { family: this.#family, original: { destination: address } };
      this.#add(`to ${address}`, { ...exact, original: { destination: address, destinationPort: port } }, wide);
    }
  }

  /** All entries that an endpoint replies to. One address with many ports is one dump. */
  from({ address, protocol, port }: GoneEndpoint): void {
    const number = SERVICE_PROTOCOL[protocol];
    const exact = { family: this.#family, protocol: number, reply: { source: address, sourcePort: port } };
    this.#add(`from ${address}`, exact, { family: this.#family, reply: { source: address } });
  }

  /** The exact filter as long as there is but one for the address, the wide one for several. */
  #add(key: string, exact: ConntrackFilter, wide: ConntrackFilter): void {
    const before = this.#filters.get(key);
    this.#filters.set(key, before === undefined || isDeepStrictEqual(before, exact) ? exact : wide);
  }

  all(): ConntrackFilter[] {
    return [...this.#filters.values()];
  }
}

/** Ports of a service that are looked at in one go; one with more has a pass over all entries, whose preparation yields to the event loop. */
const MOST_PORTS = 256;

/** The dumps, filtered by the kernel, that show whatever may be stale; undefined when that would be more than `most`. */
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
    // Whichever is fewer; where it is the same, those that show more.
    if (from !== undefined && from.length < waysTo(targets)) {
      for (const endpoint of from) filters.from(endpoint);
    } else {
      for (const { addresses, protocol, port, nodePort } of targets) {
        for (const address of addresses) filters.to({ address, protocol, port });
        if (nodePort !== 0) filters.to({ address: "", protocol, port: nodePort });
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

/** Dumps that it takes to see all entries to these. */
function waysTo(targets: readonly ServiceTarget[]): number {
  const ways = new Set(targets.flatMap(({ addresses }) => addresses));
  return ways.size + targets.filter(({ nodePort }) => nodePort !== 0).length;
}

export function scopeOf(
  services: Iterable<readonly [service: string, gone: readonly GoneEndpoint[] | undefined]>,
  claims: Iterable<Claim>,
): Scope {
  const scope = newScope();
  for (const [service, gone] of services) scope.services.set(service, gone);
  for (const claim of claims) scope.claims.set(claimKey(claim), claim);
  return scope;
}
