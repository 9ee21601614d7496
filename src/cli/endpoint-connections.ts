/** How many connections a service's endpoints have, as the connection tracking table knows them; it is read beside the daemon. */
import { protocolNumber } from "../base/protocols.js";
import type { EndpointStatus, ServiceList, ServicePortStatus } from "../control/types.js";
import { NetlinkConntrack } from "../conntrack/table/netlink-conntrack.js";
import { type ConntrackEntry, type ConntrackFilter, MOST_ADDRESSES } from "../conntrack/table/types.js";
import type { IpFamily } from "../model/types.js";
import { CtStatus } from "../kernel/constants.js";

/** Both sides have spoken, and neither has ended it. */
const OPEN = new Set(["ESTABLISHED"]);
const HALF_OPEN = new Set(["SYN_SENT", "SYN_RECV", "SYN_SENT2", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED"]);

/** The list with `open` and `halfOpen` of each endpoint; as it is where connections are not tracked, or may not be read. */
export function withConnections(list: ServiceList): Promise<ServiceList> {
  const dumps = list.items.flatMap((item) => Array.from(filtersOf(item), (filter) => ({ filter })));
  return counted(list, dumps, () => true);
}

/** The same of those alone that terminate: of all services, however many there are, their addresses are few. */
export async function withConnectionsLeft(list: ServiceList): Promise<ServiceList> {
  const dumps = (["ip", "ip6"] as const).flatMap((family) => {
    const items = list.items.filter((item) => item.family === family);
    const ending = items.flatMap(({ endpoints = [] }) => endpoints.filter(({ terminating }) => terminating));
    return dumpsOfSources(family, [...new Set(ending.map(({ address }) => address))]);
  });
  return dumps.length === 0 ? list : counted(list, dumps, ({ terminating }) => terminating);
}

/** With more addresses than a few dumps ask for, everything is looked at. */
const MOST_DUMPS = 4;

interface Dump {
  readonly filter: ConntrackFilter;
  /** Endpoints that it is about; default: all. A filter's addresses may be another part of an entry's. */
  readonly from?: ReadonlySet<string>;
}

function dumpsOfSources(family: IpFamily, addresses: readonly string[]): Dump[] {
  if (addresses.length > MOST_DUMPS * MOST_ADDRESSES) return [{ filter: { family, status: TRANSLATED } }];
  const dumps: Dump[] = [];
  for (let i = 0; i < addresses.length; i += MOST_ADDRESSES) {
    const some = addresses.slice(i, i + MOST_ADDRESSES);
    dumps.push({ filter: { family, status: TRANSLATED, addresses: some }, from: new Set(some) });
  }
  return dumps;
}

const TRANSLATED = { value: CtStatus.dnat, mask: CtStatus.dnat };

interface Count {
  open: number;
  halfOpen: number;
}

async function counted(
  list: ServiceList,
  dumps: readonly Dump[],
  includes: (endpoint: EndpointStatus) => boolean,
): Promise<ServiceList> {
  let table: NetlinkConntrack;
  try {
    table = await NetlinkConntrack.open();
  } catch {
    return list;
  }
  const counts = new Map<string, Count>();
  try {
    for (const { filter, from } of dumps) {
      await table.dump(filter, (entries) => {
        for (const entry of entries) if (from?.has(entry.reply.source) !== false) count(entry, counts);
      });
    }
  } finally {
    await table.close();
  }
  return { ...list, items: list.items.map((item) => withCounts(item, counts, includes)) };
}

function withCounts(
  item: ServicePortStatus,
  counts: ReadonlyMap<string, Count>,
  includes: (endpoint: EndpointStatus) => boolean,
): ServicePortStatus {
  const { endpoints, port, nodePort } = item;
  const protocol = protocolNumber(item.protocol) ?? 0;
  if (endpoints?.some(includes) !== true) return item;
  const ways = addressesOf(item).map((address) => wayOf(protocol, address, port));
  if (nodePort !== 0) ways.push(wayOf(protocol, "", nodePort));
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

/** @param address "": any, it is a node port. */
function wayOf(protocol: number, address: string, port: number): string {
  return `${protocol} ${address} ${port}`;
}

function* filtersOf(item: ServicePortStatus): Generator<ConntrackFilter> {
  const { family, port, nodePort } = item;
  const protocol = protocolNumber(item.protocol);
  if (protocol === undefined) return;
  const addresses = addressesOf(item);
  const status = TRANSLATED;
  for (let i = 0; i < addresses.length; i += MOST_ADDRESSES) {
    const some = addresses.slice(i, i + MOST_ADDRESSES);
    yield { family, protocol, status, addresses: some, original: { destinationPort: port } };
  }
  if (nodePort !== 0) yield { family, protocol, status, original: { destinationPort: nodePort } };
}

/** Where it was sent to is where its replies come from. */
function count({ original, reply, state, status }: ConntrackEntry, counts: Map<string, Count>): void {
  // UDP has no states: it is open once it was answered.
  const answered = state === undefined && (status & CtStatus.seenReply) !== 0;
  const isOpen = answered || (state !== undefined && OPEN.has(state));
  const isHalfOpen = !isOpen && (state === undefined || HALF_OPEN.has(state));
  if (!isOpen && !isHalfOpen) return;
  for (const address of [original.destination, ""]) {
    const way = wayOf(original.protocol, address, original.destinationPort ?? 0);
    const key = `${way} ${reply.source} ${reply.sourcePort ?? 0}`;
    const known = counts.get(key) ?? { open: 0, halfOpen: 0 };
    known[isOpen ? "open" : "halfOpen"]++;
    counts.set(key, known);
  }
}
