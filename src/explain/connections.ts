/** Connections that are open to where a packet goes, from the kernel's connection tracking table. */
import { NetlinkConntrack } from "../conntrack/table/netlink-conntrack.js";
import { IpProto } from "../kernel/constants.js";
import type { Addressed } from "./report.js";
import type { OpenConnections } from "./surroundings.js";

/** By endpoint, most first. None where the table cannot be read: it is no part of the explanation. */
export async function openConnections(to: Addressed, source: string | undefined): Promise<readonly OpenConnections[]> {
  const { family, protocol, destination, destinationPort } = to;
  const counts = new Map<string, OpenConnections>();
  let table: NetlinkConntrack | undefined;
  try {
    table = await NetlinkConntrack.open();
    const original = { destination, destinationPort, ...(source !== undefined && { source }) };
    await table.dump({ family, protocol: IpProto[protocol], original }, (entries) => {
      for (const { reply } of entries) {
        const { source: address, sourcePort: port } = reply;
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
