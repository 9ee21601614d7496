/**
 * Fills the conntrack table of its network namespace, passes over it and deletes from it. Prints how that compares with
 * a bare dump (test/lab/conntrack.cc) in the same run. Also prints how much it added to resident memory at its peak,
 * and how long the event loop was held.
 *
 * Arguments: the lab's program, entries, rounds
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { NetlinkConntrack } from "../../../dist/nft/conntrack/netlink-conntrack.js";
import { report } from "./addon.mjs";
import { memory, timed, wantsMore, watchLoop } from "./measure.mjs";

const [program, wanted, rounds] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const lab = (...args) => JSON.parse(execFileSync(program, args, { encoding: "utf8" }));

/** Does the work of garbage collection for entries: finds the VIP and the endpoint. */
function grouping() {
  const groups = new Map();
  return {
    groups,
    look: (entries) => {
      for (const { original, reply } of entries) {
        const key = original.destination;
        const group = groups.get(key);
        if (group === undefined) groups.set(key, { count: 1, last: reply.source, port: original.destinationPort });
        else {
          group.count++;
          group.last = reply.source;
        }
      }
    },
  };
}

const table = await NetlinkConntrack.open();
const entries = Math.min(wanted, (await table.max()) - 2000);
lab("fill", String(entries));

// Memory grows during the very first pass: before it, nothing is compiled and there is no heap.
globalThis.gc();
await new Promise((resolve) => setTimeout(resolve, 50));
// 5 resets the peak.
writeFileSync("/proc/self/clear_refs", "5");
const before = memory("VmRSS");
const first = grouping();
const counted = await table.dump({}, first.look);
const grown = memory("VmHWM") - before;
await table.dump({}, grouping().look);

const passes = [];
while (
  wantsMore(
    passes.map(({ groupedMs, bareMs }) => [groupedMs, bareMs]),
    rounds,
  )
) {
  const bare = lab("dump");
  const pass = await timed(() => table.dump({}, () => undefined));
  const { groups, look } = grouping();
  const grouped = await timed(() => table.dump({}, look));
  const stop = watchLoop();
  await table.dump({}, grouping().look);
  const blockedMs = await stop();
  passes.push({ bareMs: bare.ms, passMs: pass.ms, groupedMs: grouped.ms, groups: groups.size, blockedMs });
}

const one = (vip) => ({ family: "ip", protocol: 17, original: { destination: vip, destinationPort: 53 } });
const matching = await timed(() => table.deleteMatching(one("10.96.0.5")));
const stale = [];
const listed = await timed(async () => {
  await table.dump(one("10.96.0.6"), (chunk) => void stale.push(...chunk));
  return table.deleteAll(stale);
});
const prefix = await timed(() => table.deleteMatching({ reply: { source: "10.0.0.112/28" } }));
const left = await table.count();
const flushed = await timed(() => table.deleteMatching({}));
await table.close();
report({
  entries,
  counted: counted.entries,
  vips: first.groups.size,
  grown,
  passes,
  matching: { ms: matching.ms, ...matching.result },
  listed: { ms: listed.ms, ...listed.result },
  prefix: { ms: prefix.ms, ...prefix.result },
  left,
  flushed: { ms: flushed.ms, ...flushed.result },
});
