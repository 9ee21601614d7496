/**
 * Fills the conntrack table of its network namespace with valid entries of services. A proxier writes these services,
 * and the script changes one endpoint at a time. It does so while nothing else runs, while the reconciler
 * passes over everything, and while it checks single services. Prints how long each change took. The situations take
 * turns, because other load may vary; only their comparison is meaningful.
 *
 * Arguments: the lab's program, entries, rounds, changes of each kind per round
 */
import { execFileSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { FormerTargets } from "../../../dist/conntrack/reconcile/former-targets.js";
import { NetlinkConntrack } from "../../../dist/nft/conntrack/netlink-conntrack.js";
import { Reconciler } from "../../../dist/conntrack/reconcile/reconciler.js";
import { decoded } from "../../bench/decoded.ts";
import { newProxier, openKernel } from "../../bench/proxier.ts";
import { report } from "./addon.mjs";

const program = process.argv[2];
const [wanted, rounds, changes] = process.argv.slice(3).map(Number);
/** TCP services besides the UDP ones, whose endpoints change. */
const CHANGING = 200;
/** Time between two changes, ms, so that each is alone. */
const APART_MS = 3;

const address = (number) => [24, 16, 8, 0].map((bits) => (number >>> bits) & 0xff).join(".");
const log = Object.fromEntries(["debug", "info", "warn", "error"].map((level) => [level, () => undefined]));

function service(n, port) {
  const metadata = { name: `s${n}`, namespace: "default", creationTimestamp: new Date(1_700_000_000_000) };
  const clusterIP = address(0x0a600000 + n);
  return { metadata, spec: { clusterIP, clusterIPs: [clusterIP], ipFamilies: ["IPv4"], ports: [port] } };
}
function slice(n, port, from = 0) {
  return {
    metadata: { name: `s${n}`, namespace: "default", labels: { "kubernetes.io/service-name": `s${n}` } },
    addressType: "IPv4",
    ports: [port],
    endpoints: Array.from({ length: 10 }, (_, i) => ({ addresses: [address(0x0a000000 + n * 16 + from + i)] })),
  };
}
const DNS = { name: "dns", port: 53, protocol: "UDP" };
const HTTP = { name: "http", port: 80, protocol: "TCP" };

const table = await NetlinkConntrack.open();
const entries = Math.min(wanted, (await table.max()) - 2000);
execFileSync(program, ["fill", String(entries)]);
const kernel = await openKernel();
const proxier = newProxier(kernel, { watch: false, trackRemovals: true });
// As filled by the lab's program.
const tracked = entries / 100;
for (let n = 0; n < tracked + CHANGING; n++) {
  const [port, target] = n < tracked ? [DNS, { ...DNS, port: 5353 }] : [HTTP, { ...HTTP, port: 8080 }];
  proxier.upsert(decoded({ kind: "Service", object: service(n, port) }));
  proxier.upsert(decoded({ kind: "EndpointSlice", object: slice(n, target) }));
}
proxier.synced();
await proxier.sync();

let passes = 0;
let passedMs = 0;
const reconciler = new Reconciler({
  table,
  model: proxier.model,
  former: new FormerTargets(),
  nodePortAddresses: async () => ["192.0.2.10"],
  log,
  settleMs: 2 ** 30,
  pauseFactor: 0,
  onPass: (pass) => {
    passes++;
    passedMs += pass.ms;
  },
});

let serial = 0;
async function change() {
  const n = tracked + (serial % CHANGING);
  const from = 1 + (Math.floor(serial++ / CHANGING) % 6);
  const start = performance.now();
  proxier.upsert(decoded({ kind: "EndpointSlice", object: slice(n, { ...HTTP, port: 8080 }, from) }));
  const { ok, families } = await proxier.sync();
  const totalMs = performance.now() - start;
  if (!ok || families[0].outcome.result.total === 0) throw new Error("nothing was written");
  return { totalMs, ownMs: totalMs - families[0].outcome.result.kernelNs / 1e6 };
}

/** Makes changes while `busy` runs; `busy` is restarted as long as they last. */
async function changesDuring(samples, count, busy) {
  const changing = { over: false };
  const createAgain = async () => {
    while (!changing.over) await busy();
  };
  const other = busy === undefined ? undefined : createAgain();
  for (let i = 0; i < count; i++) {
    await sleep(APART_MS);
    samples.push(await change());
  }
  changing.over = true;
  await other;
}
async function everything() {
  reconciler.requestAll("ip");
  await reconciler.idle();
}
async function single() {
  reconciler.request("ip", [`default/s${serial % tracked}`], []);
  await reconciler.idle();
}

await changesDuring([], 200);
const alone = [];
const full = [];
const few = [];
passes = passedMs = 0;
for (let round = 0; round < rounds; round++) {
  await changesDuring(alone, changes);
  await changesDuring(full, changes, everything);
  await changesDuring(few, changes, single);
}
await reconciler.stop();
await proxier.stop();
await kernel.close();
await table.close();
report({ entries, services: tracked, passes, passedMs, alone, full, few });
