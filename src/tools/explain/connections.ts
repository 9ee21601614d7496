/** Connections that are open to where a packet goes, from the kernel's connection tracking table. */
import { NetlinkConntrack } from "../../conntrack/table/netlink-conntrack.js";
import type { ConntrackEntry, ConntrackFilter } from "../../conntrack/table/conntrack-table.js";
import { CtStatus, IpProto } from "../../netlink/constants.js";
import type { Addressed } from "./packet-report.js";
import type { OpenConnections } from "./surroundings.js";

/** Established, by endpoint, most first. None where the table cannot be read: it is no part of the explanation. */
export async function openConnections(to: Addressed, source: string | undefined): Promise<readonly OpenConnections[]> {
  const counts = new Map<string, OpenConnections>();
  let table: NetlinkConntrack | undefined;
  try {
    table = await NetlinkConntrack.open();
    await table.dump(filterOf(to, source), (entries) => {
      for (const entry of entries) {
        if (!isEstablished(entry)) continue;
        const { source: address, sourcePort: port } = entry.reply;
        const key = `${address} ${port}`;
        counts.set(key, { address, port, count: (counts.get(key)?.count ?? 0) + 1 });
      }
    });
  } catch {
    return [];
  } finally {
    await table?.close();
  }
  return [...counts.values()].sort((a, b) => b.count - a.count);
}

/** Entries of connections to where it goes. @param source undefined: from anywhere. */
export function filterOf(
  { family, protocol, destination, destinationPort }: Addressed,
  source?: string,
): ConntrackFilter {
  const to = { destination, destinationPort };
  // A filter's property that is there but undefined is refused.
  return { family, protocol: IpProto[protocol], original: source === undefined ? to : { ...to, source } };
}

/** UDP has no states: a flow that was answered is established. */
function isEstablished({ state, status }: ConntrackEntry): boolean {
  return state === undefined ? (status & CtStatus.seenReply) !== 0 : state === "ESTABLISHED";
}
