// Counts the packets of each client, and drops a client's packets above its quota. Prints the counts.
import { openKernel, Table } from "@nft-proxier/nft";

const kernel = await openKernel();
const table = new Table(kernel, { family: "inet", name: "acct" });
const quotas = table.set({ set: "quotas", key: ["ipv4_addr"], data: { object: "quota" } });
const traffic = table.set({
  set: "traffic",
  key: ["ipv4_addr"],
  dynamic: true,
  timeoutMs: 600_000,
  size: 1000,
  counters: {},
});
for (const client of ["192.0.2.2", "192.0.2.3"]) {
  table.object({ object: `of-${client}`, kind: "quota", bytes: 10_000, over: true });
  quotas.put(client, `of-${client}`);
}
const chain = (hook: "input" | "output", field: "ip saddr" | "ip daddr"): void =>
  table.chain({
    chain: hook,
    base: { type: "filter", hook, priority: "mangle" },
    rules: [
      { statements: [{ action: "update", set: "traffic", key: [field] }] },
      {
        statements: [
          { action: "object", kind: "quota", key: [field], map: "quotas" },
          { action: "verdict", verdict: "drop" },
        ],
      },
    ],
  });
chain("input", "ip saddr");
chain("output", "ip daddr");
await table.apply();
console.log(JSON.stringify((await traffic.entries()).map(({ key, counted }) => [key, Number(counted?.packets)])));
await kernel.close();
