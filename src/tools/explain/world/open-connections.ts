/** Open connections to a packet's destination, from the kernel's connection tracking table. */
import { NetlinkConntrack } from "../../../nft/conntrack/netlink-conntrack.js";
import type { ConntrackEntry, ConntrackFilter } from "../../../nft/conntrack/conntrack-table.js";
import { CtStatus, IpProto } from "../../../nft/kernel/constants.js";
import type { Addressed } from "../machine/packet-spec.js";

/** The sender's established connections to the destination that have the same endpoint. */
export interface OpenConnections {
  readonly address: string;
  readonly port: number;
  readonly count: number;
}

/**
 * Returns established connections by endpoint, most first. Returns none if the table cannot be read, because they are
 * not part of the explanation.
 */
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

/** Selects connections to the destination. @param source undefined: from any source. */
export function filterOf(
  { family, protocol, destination, destinationPort }: Addressed,
  source?: string,
): ConntrackFilter {
  const to = { destination, destinationPort };
  // A filter rejects properties that are present but undefined.
  return { family, protocol: IpProto[protocol], original: source === undefined ? to : { ...to, source } };
}

/** UDP has no states. A flow that was answered counts as established. */
function isEstablished({ state, status }: ConntrackEntry): boolean {
  return state === undefined ? (status & CtStatus.seenReply) !== 0 : state === "ESTABLISHED";
}
