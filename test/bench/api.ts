/**
 * The whole path: an API server (the double, in this process) with `services` x `endpoints`, and the program as a separate process, in this
 * network namespace. Measures the time from start to synced, the memory at rest, and the time from a watch event leaving the server to the
 * kernel's announcement of its commit. With `watch`, measures how long that blocks the program's event loop instead. Prints one line of
 * JSON (`Cluster`, `Blocked`). Arguments: services endpoints changes [watch]
 */
import { setTimeout as sleep } from "node:timers/promises";
import { NftKernel } from "../../dist/nft/kernel/nft-kernel.js";
import { startApiCluster } from "./api-cluster.ts";
import { freshPod, makeSlice, podsOf } from "./cluster.ts";
import { memoryOf, quantile, tell } from "./lib.ts";
import { Program } from "./program.ts";

export interface Cluster {
  readonly startMs: number;
  /** Resident memory at rest, after the start and after the changes, bytes. */
  readonly rest: number;
  readonly after: number;
  readonly changes: number;
  readonly latencyP50Ms: number;
  readonly latencyP99Ms: number;
  readonly latencyMaxMs: number;
}

const [services, endpoints, changes] = process.argv.slice(2).map(Number);
const watchLoop = process.argv[5] === "watch";
/** Interval between isolated changes, ms. */
const APART_MS = 30;
/** The work that directly follows the load ends within this time. */
const REST_MS = 5_000;

const { flags, put, close } = await startApiCluster(services, endpoints);
const program = await Program.start(flags, watchLoop, ({ msg, family }) => msg === "synced" && family === "ip");
await sleep(REST_MS);
const rest = memoryOf(program.pid, "VmRSS");

const kernel = await NftKernel.open();
let announced: (() => void) | undefined;
const monitor = await kernel.monitor(
  {
    onBatch: (batch) => {
      if (batch.events.length > 0) announced?.();
    },
    onLost: () => undefined,
    onError: (error) => {
      throw error;
    },
  },
  { tables: [{ family: "ip", table: "kube-proxy" }] },
);
const latencies: number[] = [];
for (let i = 0; i < changes; i++) {
  const index = Math.floor(Math.random() * services);
  const pods = podsOf(index, endpoints);
  pods[0] = freshPod(services, endpoints, i);
  const slice = makeSlice(index, pods);
  const written = new Promise<void>((resolve) => (announced = resolve));
  const start = performance.now();
  put(slice);
  await written;
  latencies.push(performance.now() - start);
  await sleep(APART_MS);
}
const after = memoryOf(program.pid, "VmRSS");
await monitor.close();
await kernel.close();
const blocked = await program.end();
await close();
const result: Cluster = {
  startMs: program.startedMs,
  rest,
  after,
  changes,
  latencyP50Ms: quantile(latencies, 0.5),
  latencyP99Ms: quantile(latencies, 0.99),
  latencyMaxMs: quantile(latencies, 1),
};
tell(blocked ?? result);
