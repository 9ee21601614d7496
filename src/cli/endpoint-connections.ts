/** How many connections a service's endpoints have, as the connection tracking table knows them; it is read beside the daemon. */
import { protocolNumber } from "../base/protocols.js";
import type { EndpointStatus, ServiceList, ServicePortStatus } from "../control/types.js";
import { NetlinkConntrack } from "../conntrack/table/netlink-conntrack.js";
import { type ConntrackEntry, type ConntrackFilter, MOST_ADDRESSES } from "../conntrack/table/types.js";
import { CtStatus } from "../kernel/constants.js";

/** Both sides have spoken, and neither has ended it. */
const OPEN = new Set(["ESTABLISHED"]);
const HALF_OPEN = new Set(["SYN_SENT", "SYN_RECV", "SYN_SENT2", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED"]);

/** The list with `open` and `halfOpen` of each endpoint; as it is where connections are not tracked, or may not be read. */
export async function withConnections(list: ServiceList): Promise<ServiceList> {
  let table: NetlinkConntrack;
  try {
    table = await NetlinkConntrack.open();
  } catch {
    return list;
  }
  try {
    const items: ServicePortStatus[] = [];
    for (const item of list.items) items.push(await counted(table, item));
    return { ...list, items };
  } finally {
    await table.close();
  }
}

interface Count {
  open: number;
  halfOpen: number;
}

async function counted(table: NetlinkConntrack, item: ServicePortStatus): Promise<ServicePortStatus> {
  if (item.endpoints === undefined) return item;
  const counts = new Map<string, Count>();
  for (const filter of filtersOf(item)) {
    await table.dump(filter, (entries) => {
      for (const entry of entries) count(entry, counts);
    });
  }
  const endpoints = item.endpoints.map((endpoint): EndpointStatus => {
    const { open, halfOpen } = counts.get(`${endpoint.address} ${endpoint.port}`) ?? { open: 0, halfOpen: 0 };
    return { ...endpoint, open, halfOpen };
  });
  return { ...item, endpoints };
}

function* filtersOf(item: ServicePortStatus): Generator<ConntrackFilter> {
  const { family, port, nodePort, clusterIP, externalIPs, loadBalancerIPs } = item;
  const protocol = protocolNumber(item.protocol);
  if (protocol === undefined) return;
  const status = { value: CtStatus.dnat, mask: CtStatus.dnat };
  const addresses = [...(clusterIP === undefined ? [] : [clusterIP]), ...externalIPs, ...loadBalancerIPs];
  for (let i = 0; i < addresses.length; i += MOST_ADDRESSES) {
    const some = addresses.slice(i, i + MOST_ADDRESSES);
    yield { family, protocol, status, addresses: some, original: { destinationPort: port } };
  }
  if (nodePort !== 0) yield { family, protocol, status, original: { destinationPort: nodePort } };
}

/** Where it was sent to is where its replies come from. */
function count({ reply, state, status }: ConntrackEntry, counts: Map<string, Count>): void {
  const key = `${reply.source} ${reply.sourcePort ?? 0}`;
  const counted = counts.get(key) ?? { open: 0, halfOpen: 0 };
  // UDP has no states: it is open once it was answered.
  const answered = state === undefined && (status & CtStatus.seenReply) !== 0;
  if (answered || (state !== undefined && OPEN.has(state))) counted.open++;
  else if (state === undefined || HALF_OPEN.has(state)) counted.halfOpen++;
  counts.set(key, counted);
}
