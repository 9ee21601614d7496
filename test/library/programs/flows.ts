// Counts a client's connections as they begin and end, deletes those that are left, and prints the numbers.
import { once } from "node:events";
import { openConntrack } from "@nft-proxier/nft/conntrack";

const conntrack = await openConntrack();
const client = process.argv[2];
const seen = { begun: 0, ended: 0, bytes: 0n };
const watch = await conntrack.watch({
  onNew: ({ original }) => void (seen.begun += original.source === client ? 1 : 0),
  onDestroy: ({ original, counters }) => {
    if (original.source !== client) return;
    seen.ended++;
    seen.bytes += (counters?.original.bytes ?? 0n) + (counters?.reply.bytes ?? 0n);
  },
  onLost: () => console.log("lost"),
  onError: (error) => console.log("error", error),
});
console.log("watching");
await once(process.stdin, "data");
const { deleted } = await conntrack.deleteMatching({ addresses: [client] });
for (let left = 100; left > 0 && seen.ended < seen.begun; left--)
  await new Promise((resolve) => setTimeout(resolve, 100));
console.log(JSON.stringify({ ...seen, bytes: seen.bytes > 0n, deleted: deleted > 0 }));
process.stdin.destroy();
await watch.close();
await conntrack.close();
