/** Addresses and endpoints removed from services. Pure. */
import { takesTraffic } from "./categorize-endpoints.js";
import type { ServiceAddress } from "./service-address.js";
import { EndpointList } from "../objects/endpoint-list.js";
import type { ServiceRecord, SliceRecord } from "../objects/records.js";
import type { IpFamily } from "../base/ip.js";
import type { Protocol } from "../base/protocols.js";
import type { Removals, RemovedEndpoints } from "./service-port-view.js";

interface SliceEndpoint {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
  readonly serving: boolean;
}

/** @param among ids of addresses; other endpoints are skipped. */
function* endpointsOf(slice: SliceRecord, among?: ReadonlySet<number | string>): Generator<SliceEndpoint> {
  for (const { port, protocol } of slice.ports) {
    for (let i = 0; i < slice.endpoints.length; i++) {
      if (among?.has(slice.endpoints.addressId(i)) === false) continue;
      yield { address: slice.endpoints.address(i), port, protocol, serving: takesTraffic(slice.states[i] ?? 0) };
    }
  }
}

function keyOf({ address, port, protocol }: Omit<SliceEndpoint, "serving">): string {
  return `${address} ${port} ${protocol}`;
}

/** The members of `endpoints` ("address port PROTOCOL") that are in some slice of the family. */
export function endpointsAmong(
  slices: Iterable<SliceRecord>,
  family: IpFamily,
  endpoints: ReadonlySet<string>,
): Set<string> {
  const found = new Set<string>();
  if (endpoints.size === 0) return found;
  const addresses = new Set(
    Array.from(endpoints, (text) => EndpointList.idOf(family, text.slice(0, text.indexOf(" ")))),
  );
  for (const slice of slices) {
    if (slice.family !== family || !hasSome(slice.endpoints, addresses)) continue;
    for (const endpoint of endpointsOf(slice)) {
      const key = keyOf(endpoint);
      if (endpoints.has(key)) found.add(key);
    }
  }
  return found;
}

function hasSome(endpoints: EndpointList, addresses: ReadonlySet<number | string | undefined>): boolean {
  for (let i = 0; i < endpoints.length; i++) if (addresses.has(endpoints.addressId(i))) return true;
  return false;
}

/** Maximum number of pairs of address and port of one service to list. */
const MOST_REMOVED = 4096;

/** Number of pairs of endpoint and port in the slices. */
function pairsIn(slices: readonly SliceRecord[]): number {
  return slices.reduce((sum, { ports, endpoints }) => sum + ports.length * endpoints.length, 0);
}

/**
 * Addresses that no service claims any more, with the possible endpoints of connections through them: all in the service's current and former
 * slices.
 */
export function removedAddresses(
  family: IpFamily,
  given: readonly (readonly [address: ServiceAddress, by: ServiceRecord])[],
  former: readonly SliceRecord[],
  slicesOf: (service: string) => readonly SliceRecord[] | undefined,
): Removals["addresses"] {
  if (given.length === 0) return [];
  const formerOf = byService(former);
  const known = new Map<string, ReadonlySet<string> | undefined>();
  return given.map(([address, { name }]) => {
    const { protocol } = address;
    const key = `${name} ${protocol}`;
    if (!known.has(key)) {
      const all = [...(slicesOf(name) ?? []), ...(formerOf.get(name) ?? [])].filter((slice) => slice.family === family);
      known.set(key, pairsIn(all) > MOST_REMOVED ? undefined : endpointTexts(all, protocol));
    }
    return { address, service: name, endpoints: known.get(key) };
  });
}

function endpointTexts(slices: readonly SliceRecord[], protocol: Protocol): Set<string> {
  const texts = new Set<string>();
  for (const slice of slices) {
    for (const endpoint of endpointsOf(slice)) {
      if (endpoint.protocol === protocol) texts.add(`${endpoint.address} ${endpoint.port}`);
    }
  }
  return texts;
}

/**
 * Endpoints that took traffic in a former slice and take none now, for each service of `former` that `include` accepts. If a
 * service has too many to list, adds its name to `unknown` instead.
 */
export function removedEndpoints(
  family: IpFamily,
  former: readonly SliceRecord[],
  slicesOf: (service: string) => readonly SliceRecord[] | undefined,
  include: (service: string) => boolean,
  unknown: string[],
): RemovedEndpoints[] {
  const ofFamily = (slice: SliceRecord): boolean => slice.family === family;
  return [...byService(former.filter(ofFamily))].flatMap(([service, before]) => {
    if (!include(service)) return [];
    const now = slicesOf(service) ?? [];
    if (pairsIn(before) > MOST_REMOVED) {
      unknown.push(service);
      return [];
    }
    const gone = new Map<string, SliceEndpoint>();
    for (const slice of before) {
      for (const endpoint of endpointsOf(slice)) if (endpoint.serving) gone.set(keyOf(endpoint), endpoint);
    }
    const addresses = new Set(before.flatMap(({ endpoints }) => idsIn(endpoints)));
    for (const slice of now) {
      if (!ofFamily(slice) || !hasSome(slice.endpoints, addresses)) continue;
      for (const endpoint of endpointsOf(slice, addresses)) if (endpoint.serving) gone.delete(keyOf(endpoint));
      if (gone.size === 0) break;
    }
    const endpoints = [...gone.values()].map(({ address, port, protocol }) => ({ address, port, protocol }));
    return [{ family, service, endpoints }];
  });
}

function idsIn(endpoints: EndpointList): (number | string)[] {
  return Array.from({ length: endpoints.length }, (_, i) => endpoints.addressId(i));
}

function byService(slices: readonly SliceRecord[]): Map<string, SliceRecord[]> {
  const found = new Map<string, SliceRecord[]>();
  for (const slice of slices) {
    const list = found.get(slice.service);
    if (list === undefined) found.set(slice.service, [slice]);
    else list.push(slice);
  }
  return found;
}
