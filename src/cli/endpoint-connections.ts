/** Counts the connections of services' endpoints in the connection tracking table, which is read without the daemon. */
import { IP_FAMILIES } from "../base/ip-families.js";
import { protocolNumber } from "../base/protocols.js";
import type { EndpointStatus, ServiceList, ServicePortStatus } from "../observe/status-report.js";
import { NetlinkConntrack } from "../conntrack/table/netlink-conntrack.js";
import { type ConntrackEntry, type ConntrackFilter, MOST_ADDRESSES } from "../conntrack/table/conntrack-table.js";
import type { IpFamily } from "../base/ip.js";
import { isLoopback } from "../node/facts.js";
import { CtStatus } from "../netlink/constants.js";

/** Both sides have sent packets, and neither has closed the connection. */
const OPEN = new Set(["ESTABLISHED"]);
const HALF_OPEN = new Set(["SYN_SENT", "SYN_RECV", "SYN_SENT2", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED"]);
/** States that limits no longer count (nf_conncount.c already_closed). */
const CLOSED = new Set(["TIME_WAIT", "CLOSE"]);

/**
 * Returns the list with `open` and `halfOpen` of each endpoint, and `open` of each limit of connections. Returns it unchanged if connections are not
 * tracked, or may not be read.
 */
export async function withConnections(list: ServiceList): Promise<ServiceList> {
  const counts = await countsBy(list, dumpsFor(list));
  if (counts === undefined) return list;
  return {
    ...list,
    items: list.items.map((item) =>
      withLimit(
        withCounts(item, counts.endpoints, () => true),
        counts,
      ),
    ),
  };
}

/** Like withConnections, only for terminating endpoints. These have few addresses, even among many services. */
export async function withConnectionsLeft(list: ServiceList): Promise<ServiceList> {
  const dumps = IP_FAMILIES.flatMap((family) => {
    const items = list.items.filter((item) => item.family === family);
    const ending = items.flatMap(({ endpoints = [] }) => endpoints.filter(({ terminating }) => terminating));
    return dumpsOfSources(family, [...new Set(ending.map(({ address }) => address))]);
  });
  const counts = dumps.length === 0 ? undefined : await countsBy(list, dumps);
  if (counts === undefined) return list;
  return {
    ...list,
    items: list.items.map((item) => withCounts(item, counts.endpoints, ({ terminating }) => terminating)),
  };
}

/** If the addresses need more dumps than this, one dump reads everything. */
const MOST_DUMPS = 4;

/** Returns a dump for each port and address, or one dump of everything for many, because each walks the kernel's whole table. */
function dumpsFor({ items }: ServiceList): Dump[] {
  const dumps: Dump[] = [];
  for (const item of items) {
    dumps.push(...dumpsOf(item));
    if (dumps.length <= MOST_PORT_DUMPS) continue;
    const families = new Set(items.map(({ family }) => family));
    return Array.from(families, (family) => ({ filter: { family, status: TRANSLATED }, includes: () => true }));
  }
  return dumps;
}

const MOST_PORT_DUMPS = 16;

interface Dump {
  readonly filter: ConntrackFilter;
  /**
   * Whether to count the entry in this dump, so that each is counted once. A filter's address may match another part of an entry, and a node port may
   * equal a service's port. `toVIP`: the connection is to a listed VIP and port.
   */
  readonly includes: (entry: ConntrackEntry, toVIP: boolean) => boolean;
}

function dumpsOfSources(family: IpFamily, addresses: readonly string[]): Dump[] {
  if (addresses.length > MOST_DUMPS * MOST_ADDRESSES) {
    return [{ filter: { family, status: TRANSLATED }, includes: () => true }];
  }
  const dumps: Dump[] = [];
  for (let i = 0; i < addresses.length; i += MOST_ADDRESSES) {
    const some = addresses.slice(i, i + MOST_ADDRESSES);
    const from = new Set(some);
    const includes = ({ reply }: ConntrackEntry): boolean => from.has(reply.source);
    dumps.push({ filter: { family, status: TRANSLATED, addresses: some }, includes });
  }
  return dumps;
}

const TRANSLATED = { value: CtStatus.dnat, mask: CtStatus.dnat };

interface Count {
  open: number;
  halfOpen: number;
}

interface Counts {
  /** Key: way and endpoint. */
  readonly endpoints: Map<string, Count>;
  /** Connections that a limit counts, by way. */
  readonly ways: Map<string, number>;
}

/** Returns undefined if connections are not tracked, or may not be read. */
async function countsBy(list: ServiceList, dumps: readonly Dump[]): Promise<Counts | undefined> {
  let table: NetlinkConntrack;
  try {
    table = await NetlinkConntrack.open();
  } catch {
    return undefined;
  }
  const counts: Counts = { endpoints: new Map(), ways: new Map() };
  const vips = new Set(list.items.flatMap(vipsOf));
  try {
    for (const { filter, includes: isOf } of dumps) {
      await table.dump(filter, (entries) => {
        for (const entry of entries) {
          const { protocol, destination, destinationPort } = entry.original;
          const toVIP = vips.has(wayOf(protocol, destination, destinationPort));
          if (isOf(entry, toVIP)) count(entry, toVIP ? destination : "", counts);
        }
      });
    }
  } finally {
    await table.close();
  }
  return counts;
}

function withLimit(item: ServicePortStatus, { ways }: Counts): ServicePortStatus {
  if (item.limits?.maxConnections === undefined) return item;
  const open = waysTo(item).reduce((sum, way) => sum + (ways.get(way) ?? 0), 0);
  return { ...item, limits: { ...item.limits, open } };
}

function withCounts(
  item: ServicePortStatus,
  counts: ReadonlyMap<string, Count>,
  includes: (endpoint: EndpointStatus) => boolean,
): ServicePortStatus {
  const { endpoints } = item;
  if (endpoints?.some(includes) !== true) return item;
  const ways = waysTo(item);
  return {
    ...item,
    endpoints: endpoints.map((endpoint): EndpointStatus => {
      if (!includes(endpoint)) return endpoint;
      const found = ways.flatMap((way) => counts.get(`${way} ${endpoint.address} ${endpoint.port}`) ?? []);
      const sum = (of: keyof Count): number => found.reduce((all, each) => all + each[of], 0);
      return { ...endpoint, open: sum("open"), halfOpen: sum("halfOpen") };
    }),
  };
}

function addressesOf({ clusterIP, externalIPs, loadBalancerIPs }: ServicePortStatus): string[] {
  return [...(clusterIP === undefined ? [] : [clusterIP]), ...externalIPs, ...loadBalancerIPs];
}

function vipsOf(item: ServicePortStatus): string[] {
  return addressesOf(item).map((address) => wayOf(protocolNumber(item.protocol) ?? 0, address, item.port));
}

function waysTo(item: ServicePortStatus): string[] {
  const { nodePort, protocol } = item;
  return [...vipsOf(item), ...(nodePort === 0 ? [] : [wayOf(protocolNumber(protocol) ?? 0, "", nodePort)])];
}

/** @param address "" for a node port. */
function wayOf(protocol: number, address: string, port: number): string {
  return `${protocol} ${address} ${port}`;
}

function* dumpsOf(item: ServicePortStatus): Generator<Dump> {
  const { family, port, nodePort } = item;
  const protocol = protocolNumber(item.protocol);
  if (protocol === undefined) return;
  const addresses = addressesOf(item);
  const status = TRANSLATED;
  for (let i = 0; i < addresses.length; i += MOST_ADDRESSES) {
    const some = addresses.slice(i, i + MOST_ADDRESSES);
    yield {
      filter: { family, protocol, status, addresses: some, original: { destinationPort: port } },
      includes: ({ original }, toVIP) => toVIP && some.includes(original.destination),
    };
  }
  if (nodePort === 0) return;
  yield {
    filter: { family, protocol, status, original: { destinationPort: nodePort } },
    includes: (_, toVIP) => !toVIP,
  };
}

/**
 * Counts a connection for the endpoint that its replies come from.
 * @param to the connection's VIP, or "" for a node port.
 */
function count({ original, reply, state, status }: ConntrackEntry, to: string, { endpoints, ways }: Counts): void {
  const way = wayOf(original.protocol, to, original.destinationPort ?? 0);
  // Limits do not apply to node ports on loopback addresses.
  const isCounted = (state === undefined || !CLOSED.has(state)) && !isLoopback(original.destination);
  if (isCounted) ways.set(way, (ways.get(way) ?? 0) + 1);
  // UDP has no states, so a connection is open after the first reply.
  const answered = state === undefined && (status & CtStatus.seenReply) !== 0;
  const isOpen = answered || (state !== undefined && OPEN.has(state));
  const isHalfOpen = !isOpen && (state === undefined || HALF_OPEN.has(state));
  if (!isOpen && !isHalfOpen) return;
  const key = `${way} ${reply.source} ${reply.sourcePort ?? 0}`;
  const known = endpoints.get(key) ?? { open: 0, halfOpen: 0 };
  known[isOpen ? "open" : "halfOpen"]++;
  endpoints.set(key, known);
}
