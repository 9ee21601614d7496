/** Connections that are open to where a packet goes, from the kernel's connection tracking table. */
import { NetlinkConntrack } from "../conntrack/table/netlink-conntrack.js";
import type { ConntrackEntry } from "../conntrack/table/conntrack-table.js";
import { CtStatus, IpProto } from "../kernel/constants.js";
import type { Addressed } from "./packet-report.js";
import type { OpenConnections } from "./surroundings.js";

/** Established, by endpoint, most first. None where the table cannot be read: it is no part of the explanation. */
export async function openConnections(to: Addressed, source: string | undefined): Promise<readonly OpenConnections[]> {
  const { family, protocol, destination, destinationPort } = to;
  const counts = new Map<string, OpenConnections>();
  let table: NetlinkConntrack | undefined;
  try {
    table = await NetlinkConntrack.open();
    const original = { destination, destinationPort, source };
    await table.dump({ family, protocol: IpProto[protocol], original }, (entries) => {
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

/** UDP has no states: a flow that was answered is established. */
function isEstablished({ state, status }: ConntrackEntry): boolean {
  return state === undefined ? (status & CtStatus.seenReply) !== 0 : state === "ESTABLISHED";
}
