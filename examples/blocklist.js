// @ts-check
/**
 * Drops packets from the networks and addresses in a file. The file has one per line; `#` begins a comment.
 *
 *   node blocklist.js FILE       writes the table; after a change of the file, run it again to write only the difference
 *   node blocklist.js --remove   removes the table
 */
import { readFileSync } from "node:fs";
import { openKernel, Table } from "@nft-proxier/nft";

const [file] = process.argv.slice(2);
if (file === undefined) throw new Error("usage: node blocklist.js FILE | --remove");

const kernel = await openKernel();
const table = new Table(kernel, { family: "inet", name: "blocklist" });

if (file === "--remove") {
  await table.destroy();
  console.log("removed");
} else {
  const lines = readFileSync(file, "utf8").split("\n");
  const networks = lines.map((line) => line.replace(/#.*/, "").trim()).filter((line) => line !== "");

  const v4 = table.set({ set: "blocked4", key: ["ipv4_addr"], interval: true });
  const v6 = table.set({ set: "blocked6", key: ["ipv6_addr"], interval: true });
  await v4.replace(networks.filter((network) => !network.includes(":")));
  await v6.replace(networks.filter((network) => network.includes(":")));
  table.chain({
    chain: "prerouting",
    base: { type: "filter", hook: "prerouting", priority: "raw" },
    rules: ["blocked4", "blocked6"].map((set) => ({
      statements: [{ field: "saddr", value: `@${set}` }, { action: "counter" }, { action: "verdict", verdict: "drop" }],
    })),
  });

  const { operations, transactions } = await table.apply();
  const { add, delete: gone } = operations.element;
  console.log(
    `networks: ${v4.size + v6.size}, transactions: ${transactions}, elements added: ${add}, deleted: ${gone}`,
  );
}
await kernel.close();
