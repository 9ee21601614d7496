/**
 * Measures one cluster size in this process, in the network namespace that it was started in, and prints one JSON line.
 * Arguments: services endpoints changes
 */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { defaultConfig } from "../../dist/config/index.js";
import { NftKernel } from "../../dist/kernel/nft-kernel.js";
import { createLogger } from "../../dist/observe/log.js";
import { Proxier } from "../../dist/proxier/proxier.js";
import { freshPod, makeService, makeSlice, podsOf } from "./cluster.ts";

const [services, endpoints, changes] = process.argv.slice(2).map(Number);

interface Sample {
  readonly totalMs: number;
  readonly kernelMs: number;
  readonly operations: number;
  readonly bytes: number;
}

function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

const kernel = await NftKernel.open();
const log = await createLogger("warn");
const make = (): Proxier =>
  new Proxier({
    config: { ...defaultConfig(), bindAddress: "192.0.2.1" },
    nodeName: "bench-node",
    families: ["ip"],
    kernel,
    log,
    clock: { now: () => performance.now() },
    localAddresses: () => Promise.resolve([]),
  });

async function timed(proxier: Proxier, change: () => void): Promise<Sample> {
  const start = performance.now();
  change();
  const { ok, families } = await proxier.sync();
  const totalMs = performance.now() - start;
  const outcome = families[0]?.outcome;
  if (!ok || outcome === undefined || !outcome.ok) throw new Error("a write failed");
  const { kernelNs, total, bytes } = outcome.result;
  return { totalMs, kernelMs: kernelNs / 1e6, operations: total, bytes };
}

function summary(samples: readonly Sample[]): Record<string, number> {
  const own = samples.map(({ totalMs, kernelMs }) => totalMs - kernelMs);
  return {
    operations: quantile(
      samples.map(({ operations }) => operations),
      0.5,
    ),
    ownP50Ms: quantile(own, 0.5),
    ownP99Ms: quantile(own, 0.99),
    totalP50Ms: quantile(
      samples.map(({ totalMs }) => totalMs),
      0.5,
    ),
    totalP99Ms: quantile(
      samples.map(({ totalMs }) => totalMs),
      0.99,
    ),
    kernelP50Ms: quantile(
      samples.map(({ kernelMs }) => kernelMs),
      0.5,
    ),
  };
}

function feed(
  proxier: Proxier,
  objects: readonly (readonly [ReturnType<typeof makeService>, ReturnType<typeof makeSlice>])[],
): void {
  for (const [service, slice] of objects) {
    proxier.upsert({ kind: "Service", object: service });
    proxier.upsert({ kind: "EndpointSlice", object: slice });
  }
  proxier.synced();
}

const objects = Array.from(
  { length: services },
  (_, i) => [makeService(i), makeSlice(i, podsOf(i, endpoints))] as const,
);
const delay = monitorEventLoopDelay({ resolution: 1 });

const proxier = make();
delay.enable();
const load = await timed(proxier, () => feed(proxier, objects));
delay.disable();
const loadBlockedMs = delay.max / 1e6;

let serial = 0;
const pods = new Map<number, number[]>();
const randomService = (): number => Math.floor(Math.random() * services);
const replaced: Sample[] = [];
const scaled: Sample[] = [];
for (let i = 0; i < changes; i++) {
  const index = randomService();
  const now = [...(pods.get(index) ?? podsOf(index, endpoints))];
  now[i % now.length] = freshPod(services, endpoints, serial++);
  pods.set(index, now);
  replaced.push(await timed(proxier, () => proxier.upsert({ kind: "EndpointSlice", object: makeSlice(index, now) })));
}
// The chain for one endpoint more is there after the first; what follows is what a scaling costs.
for (let i = 0; i < changes / 4 + 1; i++) {
  const index = i;
  const now = [...(pods.get(index) ?? podsOf(index, endpoints)), freshPod(services, endpoints, serial++)];
  pods.set(index, now);
  const sample = await timed(proxier, () => proxier.upsert({ kind: "EndpointSlice", object: makeSlice(index, now) }));
  if (i > 0) scaled.push(sample);
}
await proxier.stop();

// A restart on the table as it is now, with nothing to change.
const again = make();
const current = objects.map(([service, slice], i) => {
  const now = pods.get(i);
  return [service, now === undefined ? slice : makeSlice(i, now)] as const;
});
const restart = await timed(again, () => feed(again, current));
await again.stop();
const memory = process.memoryUsage();
await kernel.close();

process.stdout.write(
  `${JSON.stringify({
    services,
    endpoints,
    load: { ...load, ratio: load.totalMs / load.kernelMs, blockedMs: loadBlockedMs },
    restart: { totalMs: restart.totalMs, operations: restart.operations },
    replace: summary(replaced),
    scale: summary(scaled),
    rssMb: memory.rss / 2 ** 20,
  })}\n`,
);
