/** The scope of a reconciler's pass, and the dumps that find its entries. */
import { isDeepStrictEqual } from "node:util";
import { SERVICE_PROTOCOL } from "../../base/protocols.js";
import type { ServiceTarget } from "../../model/service-port-view.js";
import { type AddressKey, keyOf, NODE_PORT, type ServiceAddress } from "../../model/service-address.js";
import type { ServiceKnowledge } from "./service-knowledge.js";
import { isReconciled } from "./prefilter.js";
import type { ConntrackFilter } from "../../nft/conntrack/conntrack-table.js";

/** Changes in one family that are still to be reconciled. */
export interface Scope {
  /** Examine everything, not only the fields below. */
  all: boolean;
  /** "namespace/name" of the services that changed. */
  readonly services: Set<string>;
  /** Former VIPs and node ports, by key. */
  readonly claims: Map<AddressKey, ServiceAddress>;
  /** Number of previous passes over the same scope without a change in between. */
  repeats: number;
}

export function wholeScope(): Scope {
  return { all: true, services: new Set(), claims: new Map(), repeats: 0 };
}

export function mergeScope(into: Scope, from: Scope): void {
  into.all ||= from.all;
  for (const service of from.services) into.services.add(service);
  for (const [key, claim] of from.claims) into.claims.set(key, claim);
  into.repeats = Math.min(into.repeats, from.repeats);
}

/** Adds a dump of all entries to a destination. One dump covers an address with many ports. */
function addDump(dumps: Map<string, ConntrackFilter>, { family, address, protocol, port }: ServiceAddress): void {
  const exact = { family, protocol: SERVICE_PROTOCOL[protocol] };
  if (address === NODE_PORT) {
    dumps.set(`${protocol} ${port}`, { ...exact, original: { destinationPort: port } });
    return;
  }
  const only = { ...exact, original: { destination: address, destinationPort: port } };
  const before = dumps.get(address);
  const isOnly = before === undefined || isDeepStrictEqual(before, only);
  dumps.set(address, isOnly ? only : { family, original: { destination: address } });
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
  const { family } = known;
  const dumps = new Map<string, ConntrackFilter>();
  for (const service of services) {
    const targets: ServiceTarget[] = [];
    let ports = 0;
    for (const target of known.targetsOf(service)) {
      if (++ports > MOST_PORTS) return undefined;
      if (isReconciled(target.protocol, target.resetRemovedEndpoints)) targets.push(target);
    }
    for (const { addresses, protocol, port, nodePort } of targets) {
      for (const address of addresses) addDump(dumps, { family, address, protocol, port });
      if (nodePort !== 0) addDump(dumps, { family, address: NODE_PORT, protocol, port: nodePort });
    }
    if (dumps.size > most) return undefined;
  }
  for (const claim of claims.values()) {
    if (isReconciled(claim.protocol, false)) addDump(dumps, claim);
    if (dumps.size > most) return undefined;
  }
  return [...dumps.values()];
}

export function scopeOf(services: Iterable<string>, claims: readonly ServiceAddress[]): Scope {
  const byKey = new Map(claims.map((claim) => [keyOf(claim), claim]));
  return { all: false, services: new Set(services), claims: byKey, repeats: 0 };
}
