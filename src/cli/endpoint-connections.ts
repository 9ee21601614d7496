/** How many connections a service's endpoints have, as the connection tracking table knows them; it is read beside the daemon. */
import { IP_FAMILIES } from "../base/ip-families.js";
import { protocolNumber } from "../base/protocols.js";
import type { EndpointStatus, ServiceList, ServicePortStatus } from "../observe/status-report.js";
import { NetlinkConntrack } from "../conntrack/table/netlink-conntrack.js";
import { type ConntrackEntry, type ConntrackFilter, MOST_ADDRESSES } from "../conntrack/table/conntrack-table.js";
import type { IpFamily } from "../base/ip.js";
import { isLoopback } from "../node/facts.js";
import { CtStatus } from "../netlink/constants.js";

/** Both sides have spoken, and neither has ended it. */
const OPEN = new Set(["ESTABLISHED"]);
const HALF_OPEN = new Set(["SYN_SENT", "SYN_RECV", "SYN_SENT2", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED"]);
/** What limits count no more (nf_conncount.c already_closed). */
const CLOSED = new Set(["TIME_WAIT", "CLOSE"]);

/**
 * The list with `open` and `halfOpen` of each endpoint, and `open` of each limit of connections; as it is where connections are not tracked, or may
 * not be read.
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

/** The same of those alone that terminate: of all services, however many there are, their addresses are few. */
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

/** With more addresses than a few dumps ask for, everything is looked at. */
const MOST_DUMPS = 4;

/** A dump for each port and address; for more than a few one of everything, as each walks the kernel's whole table. */
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
   * Whether the entry is to be counted here: each is, once. A filter's addresses may be another part of an entry's, and a node port's number may be
   * that of a service's port. `toVIP`: it was sent to a VIP and port that is listed.
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
  /** By way and endpoint. */
  readonly endpoints: Map<string, Count>;
  /** By way, those that a limit counts. */
  readonly ways: Map<string, number>;
}

/** Undefined: connections are not tracked, or may not be read. */
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

/** @param address "": none of a service's, it is a node port. */
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
 * Where it was sent to is where its replies come from.
 * @param to the VIP that it was sent to; "": it was sent to a node port.
 */
function count({ original, reply, state, status }: ConntrackEntry, to: string, { endpoints, ways }: Counts): void {
  const way = wayOf(original.protocol, to, original.destinationPort ?? 0);
  // Limits do not hold for node ports on loopback addresses.
  const isCounted = (state === undefined || !CLOSED.has(state)) && !isLoopback(original.destination);
  if (isCounted) ways.set(way, (ways.get(way) ?? 0) + 1);
  // UDP has no states: it is open once it was answered.
  const answered = state === undefined && (status & CtStatus.seenReply) !== 0;
  const isOpen = answered || (state !== undefined && OPEN.has(state));
  const isHalfOpen = !isOpen && (state === undefined || HALF_OPEN.has(state));
  if (!isOpen && !isHalfOpen) return;
  const key = `${way} ${reply.source} ${reply.sourcePort ?? 0}`;
  const known = endpoints.get(key) ?? { open: 0, halfOpen: 0 };
  known[isOpen ? "open" : "halfOpen"]++;
  endpoints.set(key, known);
}
