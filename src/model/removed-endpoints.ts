/** Addresses removed from services, with their former endpoints. Pure. */
import type { ServiceAddress } from "./service-address.js";
import { EndpointList } from "../objects/endpoint-list.js";
import type { ServiceRecord, SliceRecord } from "../objects/records.js";
import type { IpFamily } from "../base/ip.js";
import type { Protocol } from "../base/protocols.js";
import type { RemovedAddress } from "./service-port-view.js";

interface SliceEndpoint {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
}

function* endpointsOf(slice: SliceRecord): Generator<SliceEndpoint> {
  for (const { port, protocol } of slice.ports) {
    for (let i = 0; i < slice.endpoints.length; i++) {
      yield { address: slice.endpoints.address(i), port, protocol };
    }
  }
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
      const key = `${endpoint.address} ${endpoint.port} ${endpoint.protocol}`;
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
): RemovedAddress[] {
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

function byService(slices: readonly SliceRecord[]): Map<string, SliceRecord[]> {
  const found = new Map<string, SliceRecord[]>();
  for (const slice of slices) {
    const list = found.get(slice.service);
    if (list === undefined) found.set(slice.service, [slice]);
    else list.push(slice);
  }
  return found;
}
