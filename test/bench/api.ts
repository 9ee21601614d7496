/**
 * The whole path: an API server (the double, in this process) with `services` x `endpoints`, the program as a process of its own,
 * in the network namespace that this was started in. Measures start to synced, memory at rest, and the time from a watch
 * event's bytes leaving the server to the kernel's announcement of the commit that puts it in force. Prints one JSON line.
 * Arguments: services endpoints changes
 */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { NftKernel } from "../../dist/kernel/nft-kernel.js";
import { ApiServer, type KubeJson } from "../lab/api-server/index.ts";
import { freshPod, makeService, makeSlice, podsOf } from "./cluster.ts";

const [services, endpoints, changes] = process.argv.slice(2).map(Number);
const NODE = "bench-node";
const MAIN = path.resolve(import.meta.dirname, "../../dist/main.js");
/** Isolated changes are this far apart, ms. */
const APART_MS = 30;
const START_LIMIT_MS = 120_000;

function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

/** MB. */
function residentMb(pid: number): number {
  const text = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+) kB/.exec(text)?.[1]) / 1024;
}

const api = await ApiServer.start();
const put = (object: unknown): string => api.put(object as KubeJson);
put({
  apiVersion: "v1",
  kind: "Node",
  metadata: { name: NODE },
  status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }] },
});
for (let i = 0; i < services; i++) {
  put(makeService(i));
  put(makeSlice(i, podsOf(i, endpoints)));
}

const directory = mkdtempSync(path.join(tmpdir(), "nft-proxier-bench-"));
const kubeconfig = path.join(directory, "kubeconfig");
writeFileSync(kubeconfig, api.kubeconfig());
const started = performance.now();
const flags = [`--kubeconfig=${kubeconfig}`, `--hostname-override=${NODE}`, "--healthz-port=0", "--oom-score-adj=0"];
const daemon = spawn(process.execPath, ["--max-semi-space-size=8", MAIN, ...flags], {
  stdio: ["ignore", "ignore", "pipe"],
});
const synced = new Promise<number>((resolve, reject) => {
  const limit = setTimeout(() => reject(new Error("not synced in time")), START_LIMIT_MS);
  daemon.once("exit", (code) => reject(new Error(`the program ended with ${code}`)));
  createInterface({ input: daemon.stderr }).on("line", (line) => {
    const { msg, family, level } = JSON.parse(line) as { msg?: string; family?: string; level: number };
    if (level >= 50) process.stderr.write(`${line}\n`);
    if (msg !== "synced" || family !== "ip") return;
    clearTimeout(limit);
    resolve(performance.now());
  });
});
const startMs = (await synced) - started;
await sleep(5_000);
const restMb = residentMb(daemon.pid!);

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
  const inForce = new Promise<void>((resolve) => (announced = resolve));
  const start = performance.now();
  put(slice);
  await inForce;
  latencies.push(performance.now() - start);
  await sleep(APART_MS);
}
const afterMb = residentMb(daemon.pid!);
await monitor.close();
await kernel.close();
const ended = new Promise((resolve) => daemon.once("exit", resolve));
daemon.kill("SIGTERM");
await ended;
await api.stop();
rmSync(directory, { recursive: true });
process.stdout.write(
  `${JSON.stringify({
    services,
    endpoints,
    startMs,
    restMb,
    afterMb,
    changes,
    latencyP50Ms: quantile(latencies, 0.5),
    latencyP99Ms: quantile(latencies, 0.99),
    latencyMaxMs: quantile(latencies, 1),
  })}\n`,
);
