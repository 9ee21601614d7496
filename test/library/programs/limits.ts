// At most three connections of a client to port 8000.
import { openKernel, Table } from "@nft-proxier/nft";

const kernel = await openKernel();
const table = new Table(kernel, { family: "ip", name: "misc" });
table.set({ set: "conns", key: ["ipv4_addr"], dynamic: true, size: 1000 });
const over = { action: "connections-over", set: "conns", key: ["ip saddr"], count: 3 } as const;
const statements = [
  { field: "tcp dport", value: 8000 },
  { field: "ct state", value: "new" },
  over,
  { action: "reject", with: "tcp-reset" },
] as const;
table.chain({ chain: "input", base: { type: "filter", hook: "input", priority: "filter" }, rules: [{ statements }] });
await table.apply();
await kernel.close();
