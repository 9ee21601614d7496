/** Counts the connections of services' endpoints in the connection tracking table, which is read without the daemon. */
import { IP_FAMILIES } from "../../base/ip-families.js";
import { protocolNumber, serviceProtocol } from "../../base/protocols.js";
import {
  addressesOf,
  type AddressKey,
  keyOf,
  NODE_PORT,
  type ServiceAddress,
  vipsOf,
} from "../../model/service-address.js";
import type { EndpointStatus, ServiceList, ServicePortStatus } from "../../observe/status-report.js";
import { NetlinkConntrack } from "../../nft/conntrack/netlink-conntrack.js";
import { type ConntrackEntry, type ConntrackFilter, MOST_ADDRESSES } from "../../nft/conntrack/conntrack-table.js";
import type { IpFamily } from "../../base/ip.js";
import { isLoopback } from "../../node/node-facts.js";
import { readSysctl } from "../../node/packet-settings.js";
import { CtStatus } from "../../nft/kernel/constants.js";

/** An entry that was renewed more recently than this may still be answered, s. */
const PATIENCE_S = 1;
/** Settings with the timeouts of entries whose first packet is not answered, by state. UDP has no states. */
const UNANSWERED = [
  ["SYN_SENT", "tcp_timeout_syn_sent"],
  ["COOKIE_WAIT", "sctp_timeout_cookie_wait"],
  [undefined, "udp_timeout"],
] as const;
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

/** Returns one dump per port and address. For many, returns a single dump of everything, because each dump walks the kernel's whole table. */
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
  unanswered: number;
}

interface Counts {
  /** Key: the address's key and the endpoint. */
  readonly endpoints: Map<string, Count>;
  /** Connections that a limit counts, by the address's key. */
  readonly limited: Map<AddressKey, number>;
  /** Timeouts of connections whose first packet is not answered, by state, s. */
  readonly timeouts: ReadonlyMap<string | undefined, number>;
}

/** Returns undefined if connections are not tracked, or may not be read. */
async function countsBy(list: ServiceList, dumps: readonly Dump[]): Promise<Counts | undefined> {
  let table: NetlinkConntrack;
  try {
    table = await NetlinkConntrack.open();
  } catch {
    return undefined;
  }
  const timeouts = new Map<string | undefined, number>();
  for (const [state, name] of UNANSWERED)
    timeouts.set(state, (await readSysctl(`net.netfilter.nf_conntrack_${name}`)) ?? 0);
  const counts: Counts = { endpoints: new Map(), limited: new Map(), timeouts };
  const addresses = list.items.flatMap((item) => [...addressesOf(item.family, item)]);
  const vips = new Set(addresses.filter(({ address }) => address !== NODE_PORT).map(keyOf));
  try {
    for (const { filter, includes: isOf } of dumps) {
      await table.dump(filter, (entries) => {
        for (const entry of entries) {
          const { destination, destinationPort: port } = entry.original;
          const protocol = serviceProtocol(entry.original.protocol);
          if (protocol === undefined) continue;
          const vip: ServiceAddress = { family: entry.family, address: destination, protocol, port };
          const toVIP = vips.has(keyOf(vip));
          if (isOf(entry, toVIP)) count(entry, keyOf(toVIP ? vip : { ...vip, address: NODE_PORT }), counts);
        }
      });
    }
  } finally {
    await table.close();
  }
  return counts;
}

function withLimit(item: ServicePortStatus, { limited }: Counts): ServicePortStatus {
  if (item.limits?.maxConnections === undefined) return item;
  const open = keysOf(item).reduce<number>((sum, key) => sum + (limited.get(key) ?? 0), 0);
  return { ...item, limits: { ...item.limits, open } };
}

function withCounts(
  item: ServicePortStatus,
  counts: ReadonlyMap<string, Count>,
  includes: (endpoint: EndpointStatus) => boolean,
): ServicePortStatus {
  const { endpoints } = item;
  if (endpoints?.some(includes) !== true) return item;
  const keys = keysOf(item);
  return {
    ...item,
    endpoints: endpoints.map((endpoint): EndpointStatus => {
      if (!includes(endpoint)) return endpoint;
      const found = keys.flatMap((key) => counts.get(`${key} ${endpoint.address} ${endpoint.port}`) ?? []);
      const sum = (of: keyof Count): number => found.reduce((all, each) => all + each[of], 0);
      return { ...endpoint, open: sum("open"), halfOpen: sum("halfOpen"), unanswered: sum("unanswered") };
    }),
  };
}

function keysOf(item: ServicePortStatus): AddressKey[] {
  return Array.from(addressesOf(item.family, item), keyOf);
}

function* dumpsOf(item: ServicePortStatus): Generator<Dump> {
  const { family, port, nodePort } = item;
  const protocol = protocolNumber(item.protocol);
  if (protocol === undefined) return;
  const addresses = vipsOf(item);
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
 * @param to key of the connection's VIP or node port.
 */
function count(
  { original, reply, state, status, timeout }: ConntrackEntry,
  to: AddressKey,
  { endpoints, limited, timeouts }: Counts,
): void {
  // Limits do not apply to node ports on loopback addresses.
  const isCounted = (state === undefined || !CLOSED.has(state)) && !isLoopback(original.destination);
  if (isCounted) limited.set(to, (limited.get(to) ?? 0) + 1);
  // UDP has no states, so a connection is open after the first reply.
  const answered = state === undefined && (status & CtStatus.seenReply) !== 0;
  const isOpen = answered || (state !== undefined && OPEN.has(state));
  const isHalfOpen = !isOpen && (state === undefined || HALF_OPEN.has(state));
  if (!isOpen && !isHalfOpen) return;
  const key = `${to} ${reply.source} ${reply.sourcePort ?? 0}`;
  const known = endpoints.get(key) ?? { open: 0, halfOpen: 0, unanswered: 0 };
  known[isOpen ? "open" : "halfOpen"]++;
  const isSilent = (status & CtStatus.seenReply) === 0 && timeout !== undefined;
  if (isSilent && timeout < (timeouts.get(state) ?? 0) - PATIENCE_S) known.unanswered++;
  endpoints.set(key, known);
}
