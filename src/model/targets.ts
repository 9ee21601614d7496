/** Service ports as connections that exist already see them, and what services gave up. Pure. */
import { READY, SERVING, type CandidateList } from "./categorize.js";
import type { GivenUp } from "./claims.js";
import type { PortRecord, ServiceRecord } from "./service-record.js";
import type { SliceRecord } from "./slice-record.js";
import type { IpFamily, ReleasedClaim, ServiceTarget } from "./types.js";

/** What a service port may serve. */
export interface Held {
  readonly clusterIP: string | undefined;
  readonly externalIPs: readonly string[];
  readonly loadBalancerIPs: readonly string[];
  /** 0: none. */
  readonly nodePort: number;
}

/** "namespace/name:port/PROTOCOL". */
export function portId(record: ServiceRecord, port: PortRecord): string {
  return `${record.name}${port.name === "" ? "" : `:${port.name}`}/${port.protocol}`;
}

export function resets(record: ServiceRecord, port: PortRecord): boolean {
  return record.resetRemovedEndpoints && port.protocol === "TCP";
}

export function targetOf(
  record: ServiceRecord,
  port: PortRecord,
  held: Held,
  { endpoints, states }: CandidateList,
): ServiceTarget {
  const { clusterIP, externalIPs, loadBalancerIPs, nodePort } = held;
  return {
    service: record.name,
    id: portId(record, port),
    protocol: port.protocol,
    port: port.port,
    addresses: [...(clusterIP === undefined ? [] : [clusterIP]), ...externalIPs, ...loadBalancerIPs],
    nodePort,
    resetRemovedEndpoints: resets(record, port),
    endpoints,
    // Ready counts even where serving does not (publishNotReadyAddresses): new connections are sent there.
    serving: states.map((state) => (state & (READY | SERVING)) !== 0),
  };
}

function* endpointsOf(slice: SliceRecord): Generator<{ readonly text: string; readonly protocol: string }> {
  for (const { port, protocol } of slice.ports) {
    for (const address of slice.addresses) yield { text: `${address} ${port}`, protocol };
  }
}

/** Those of `wanted` ("address port PROTOCOL") that some slice of the family names. */
export function endpointsAmong(
  slices: Iterable<SliceRecord>,
  family: IpFamily,
  wanted: ReadonlySet<string>,
): Set<string> {
  const found = new Set<string>();
  if (wanted.size === 0) return found;
  const addresses = new Set(Array.from(wanted, (text) => text.slice(0, text.indexOf(" "))));
  for (const slice of slices) {
    if (slice.family !== family || !slice.addresses.some((address) => addresses.has(address))) continue;
    for (const { text, protocol } of endpointsOf(slice)) {
      const key = `${text} ${protocol}`;
      if (wanted.has(key)) found.add(key);
    }
  }
  return found;
}

/**
 * What was given up, with the endpoints that connections through it may have: those of the service's slices as they are,
 * and as they were before they changed.
 */
export function releasedClaims(
  family: IpFamily,
  given: readonly GivenUp[],
  former: readonly SliceRecord[],
  slicesOf: (service: string) => readonly SliceRecord[] | undefined,
): ReleasedClaim[] {
  if (given.length === 0) return [];
  const formerOf = new Map<string, SliceRecord[]>();
  for (const slice of former) {
    const list = formerOf.get(slice.service);
    if (list === undefined) formerOf.set(slice.service, [slice]);
    else list.push(slice);
  }
  const known = new Map<string, ReadonlySet<string>>();
  return given.map(({ address, protocol, port, record }) => {
    const { name } = record;
    const key = `${name} ${protocol}`;
    let endpoints = known.get(key);
    if (endpoints === undefined) {
      const all = [...(slicesOf(name) ?? []), ...(formerOf.get(name) ?? [])];
      endpoints = new Set(
        all
          .filter((slice) => slice.family === family)
          .flatMap((slice) => [...endpointsOf(slice)])
          .filter((endpoint) => endpoint.protocol === protocol)
          .map(({ text }) => text),
      );
      known.set(key, endpoints);
    }
    return { family, address, protocol, port, service: name, endpoints };
  });
}
