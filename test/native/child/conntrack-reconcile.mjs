/**
 * Fills the conntrack table of its network namespace with valid entries of services, and reconciles. Compares a full
 * pass with a bare dump (test/lab/conntrack.cc), and reconciles one VIP whose 100 entries have become stale. Prints
 * times and memory.
 *
 * Arguments: the lab's program, entries, rounds
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { FormerTargets } from "../../../dist/conntrack/reconcile/former-targets.js";
import { NetlinkConntrack } from "../../../dist/nft/conntrack/netlink-conntrack.js";
import { Reconciler } from "../../../dist/conntrack/reconcile/reconciler.js";
import { ServiceModel } from "../../../dist/model/service-model.js";
import { decoded } from "../../bench/decoded.ts";
import { report } from "./addon.mjs";
import { memory, timed, wantsMore, watchLoop } from "./measure.mjs";

const [program, wanted, rounds] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const lab = (...args) => JSON.parse(execFileSync(program, args, { encoding: "utf8" }));
const address = (number) => [24, 16, 8, 0].map((bits) => (number >>> bits) & 0xff).join(".");
const log = Object.fromEntries(["debug", "info", "warn", "error"].map((level) => [level, () => undefined]));

const table = await NetlinkConntrack.open();
const entries = Math.min(wanted, (await table.max()) - 2000);
lab("fill", String(entries));

/** Adds service n with the endpoints that the lab's program uses; services from `from` on get others. */
function put(model, n, from = 0) {
  const metadata = { name: `s${n}`, namespace: "default" };
  const ports = [{ name: "dns", port: 53, protocol: "UDP" }];
  const service = { metadata, spec: { clusterIP: address(0x0a600000 + n), ports } };
  const slice = {
    metadata: { ...metadata, labels: { "kubernetes.io/service-name": metadata.name } },
    addressType: "IPv4",
    ports: [{ ...ports[0], port: 5353 }],
    endpoints: Array.from({ length: 10 }, (_, i) => ({ addresses: [address(0x0a000000 + n * 16 + from + i)] })),
  };
  model.upsert(decoded({ kind: "Service", object: service }));
  model.upsert(decoded({ kind: "EndpointSlice", object: slice }));
}
const model = new ServiceModel({ families: ["ip"], node: { nodeName: "here" }, onProblem: () => undefined });
for (let n = 0; n < entries / 100; n++) put(model, n);

let last;
const reconciler = new Reconciler({
  table,
  model,
  former: new FormerTargets(),
  nodePortAddresses: async () => ["192.0.2.10"],
  log,
  settleMs: 2 ** 30,
  pauseFactor: 0,
  onPass: (pass) => (last = pass),
});
async function everything() {
  reconciler.requestAll("ip");
  await reconciler.idle();
  return last.deleted;
}

// Memory grows during the very first pass.
globalThis.gc();
await new Promise((resolve) => setTimeout(resolve, 50));
writeFileSync("/proc/self/clear_refs", "5");
const before = memory("VmRSS");
const touched = await everything();
const grown = memory("VmHWM") - before;

const passes = [];
while (
  wantsMore(
    passes.map(({ passMs, bareMs }) => [passMs, bareMs]),
    rounds,
  )
) {
  const bare = lab("dump");
  const pass = await timed(everything);
  const stop = watchLoop();
  await everything();
  passes.push({ bareMs: bare.ms, passMs: pass.ms, blockedMs: await stop() });
}

put(model, 7, 10);
const one = await timed(async () => {
  reconciler.request("ip", ["default/s7"], []);
  await reconciler.idle();
  return last;
});
const left = await table.count();
await reconciler.stop();
await table.close();
report({
  entries,
  touched,
  grown,
  passes,
  one: { ms: one.ms, mode: one.result.mode, deleted: one.result.deleted },
  left,
});
