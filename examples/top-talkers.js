// @ts-check
/**
 * Prints the clients with the most connections: the number of connections, and their bytes if
 * net.netfilter.nf_conntrack_acct is 1.
 *
 *   node top-talkers.js [HOW-MANY]
 */
import { openConntrack } from "@nft-proxier/nft/conntrack";

const most = Number(process.argv[2] ?? 10);
const conntrack = await openConntrack();

/** @type {Map<string, { connections: number, bytes: bigint }>} */
const clients = new Map();
await conntrack.dump({}, (entries) => {
  for (const { original, counters } of entries) {
    const client = clients.get(original.source) ?? { connections: 0, bytes: 0n };
    client.connections++;
    if (counters !== undefined) client.bytes += counters.original.bytes + counters.reply.bytes;
    clients.set(original.source, client);
  }
});

const top = [...clients].toSorted(([, a], [, b]) => b.connections - a.connections);
for (const [address, { connections, bytes }] of top.slice(0, most)) {
  console.log(
    `${address.padEnd(40)} ${String(connections).padStart(8)} connections ${String(bytes).padStart(14)} bytes`,
  );
}
console.log(`${await conntrack.count()} of ${await conntrack.max()} entries`);
await conntrack.close();
