// @ts-check
/**
 * Prints each change of the ruleset when it happens: process, table and objects, one line per transaction. Ctrl-C ends it.
 *
 *   node watcher.js
 */
import { openKernel } from "@nft-proxier/nft";

const kernel = await openKernel();
const monitor = await kernel.monitor({
  onBatch({ generation, process: who, portId, events }) {
    const author = who === undefined ? `port ${portId}` : `${who.name} (thread ${who.pid})`;
    const changes = events.map(({ action, kind, family, table, name, count }) => {
      const what = [family, table, name].filter((part) => part !== undefined).join(" ");
      return `${action} ${kind} ${what}${count === undefined ? "" : ` (${count})`}`;
    });
    console.log(`generation ${generation}: ${author}: ${changes.join(", ")}`);
  },
  onLost: () => console.log("events were lost"),
  onError: (error) => {
    console.error(error.message);
    process.exitCode = 1;
  },
});
console.log("listening");

process.once("SIGINT", () => void end());
process.once("SIGTERM", () => void end());

async function end() {
  await monitor.close();
  await kernel.close();
}
