// @ts-check
/**
 * Accepts up to RATE new connections per second to a TCP port, and drops the others.
 *
 *   node rate-limiter.js PORT RATE
 *   node rate-limiter.js --remove   removes the table
 */
import { openKernel, Table } from "@nft-proxier/nft";

const [port, rate] = process.argv.slice(2).map(Number);
const kernel = await openKernel();
const table = new Table(kernel, { family: "inet", name: "rate-limiter" });

if (process.argv[2] === "--remove") {
  await table.destroy();
  console.log("removed");
} else {
  table.chain({
    chain: "input",
    base: { type: "filter", hook: "input", priority: "filter" },
    rules: [
      {
        statements: [
          { field: "meta l4proto", value: "tcp" },
          { field: "th dport", value: port },
          { field: "ct state", value: "new" },
          { action: "verdict", verdict: "jump limited" },
        ],
      },
    ],
  });
  table.chain({
    chain: "limited",
    rules: [
      {
        statements: [
          { action: "limit", rate, per: "second", burst: rate },
          { action: "verdict", verdict: "accept" },
        ],
      },
      { statements: [{ action: "counter" }, { action: "verdict", verdict: "drop" }], comment: "beyond the rate" },
    ],
  });
  await table.apply();
  console.log(`port ${port}: ${rate} new connections per second`);
}
await kernel.close();
