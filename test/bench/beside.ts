/**
 * Programs beside each other with a real API server, in turns: each starts without tables, and then gets single changes of EndpointSlices.
 *
 *   ip netns exec NAMESPACE node test/bench/beside.ts KUBECONFIG [--services N] [--endpoints N] [--rounds N] [--changes N] [--seconds N]
 *     [--server PID] NAME=PROGRAM...
 *
 * KUBECONFIG has the server's address and a token. The server may be in the same network namespace, which has no other user: all of its
 * tables are deleted. Services are added to the namespace `bench` of the cluster until there are N. Each PROGRAM is started as a kube-proxy:
 * `--config FILE -v=2`. CPU includes the programs that it ran, such as `nft`. Changes end after `--changes` or after `--seconds`. With
 * `--server`, the CPU of that process is measured too, from the start until a second after all rules are written. Prints medians, minima and
 * maxima of the rounds, and of all changes.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { NftKernel } from "../../dist/nft/kernel/nft-kernel.js";
import { freshPod, makeService, podsOf } from "./cluster.ts";
import { fixed, median, memoryOf, quantile } from "./lib.ts";
import { inParallel, RealApi } from "./real-api.ts";

const NODE = "bench-node";
const REST_MS = 5_000;
/** kube-proxy waits a second between writes (minSyncPeriod), which must not count. */
const APART_MS = 1_200;
const TICK_MS = 10;
/** How often memory of child processes is read, ms. */
const SAMPLE_MS = 5;

const { values, positionals } = parseArgs({
  options: {
    services: { type: "string", default: "100" },
    endpoints: { type: "string", default: "10" },
    rounds: { type: "string", default: "3" },
    changes: { type: "string", default: "30" },
    seconds: { type: "string", default: "90" },
    server: { type: "string" },
  },
  allowPositionals: true,
});
const [kubeconfig = "", ...variants] = positionals;
const [services, endpoints, rounds, changes, seconds] = [
  values.services,
  values.endpoints,
  values.rounds,
  values.changes,
  values.seconds,
].map(Number);

const api = new RealApi(kubeconfig);

async function fill(): Promise<void> {
  await api.create("/api/v1/namespaces", { metadata: { name: "bench" } });
  const addresses = [{ type: "InternalIP", address: "192.0.2.1" }];
  await api.create("/api/v1/nodes", { metadata: { name: NODE }, status: { addresses } });
  await inParallel(services, async (service) => {
    const { metadata, spec } = makeService(service);
    // The server chooses addresses, because it has its own service.
    await api.create("/api/v1/namespaces/bench/services", { metadata, spec: { type: spec?.type, ports: spec?.ports } });
    await api.createSlice(service, endpoints);
  });
}

/** CPU time of a process and of the programs that it ran, ms. */
function cpuOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(/\) /)[1]?.split(" ") ?? [];
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) * TICK_MS;
}

function anonymousOf(pid: number): number {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  return Number(/^Anonymous:\s+(\d+)/m.exec(rollup)?.[1]) * 1024;
}

/** Largest resident memory of `nft`, run by a process; bytes, from samples. */
class NftPeak {
  readonly #timer: NodeJS.Timeout;
  peak = 0;

  constructor(pid: number) {
    this.#timer = setInterval(() => {
      try {
        for (const task of readdirSync(`/proc/${pid}/task`)) {
          const children = readFileSync(`/proc/${pid}/task/${task}/children`, "utf8").split(" ").filter(Boolean);
          for (const child of children) {
            // Before exec, a child still has the memory of its parent.
            if (readFileSync(`/proc/${child}/comm`, "utf8") !== "nft\n") continue;
            this.peak = Math.max(this.peak, memoryOf(Number(child), "VmHWM") || 0);
          }
        }
      } catch {
        // A thread or a program has ended.
      }
    }, SAMPLE_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

/** Resolves when both families have been written: kube-proxy's log is text, and ours JSON. */
async function written(child: ChildProcess, name: string): Promise<void> {
  let tables = 0;
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`${name} ended with ${code}`)));
    createInterface({ input: child.stderr! }).on("line", (line) => {
      if (/"SyncProxyRules complete"|"msg":"synced".*"family":|"family":.*"msg":"synced"/.test(line)) tables++;
      if (tables === 2) resolve();
    });
  });
}

const kernel = await NftKernel.open();

/** Numbers the pods that changes add. */
let serial = 0;

/** Times from the request until the kernel announces the commit, ms. */
async function change(): Promise<number[]> {
  let announced: (() => void) | undefined;
  const monitor = await kernel.monitor(
    {
      onBatch: ({ events }) => {
        if (events.length > 0) announced?.();
      },
      onLost: () => undefined,
      onError: (error) => {
        throw error;
      },
    },
    { tables: [{ family: "ip", table: "kube-proxy" }] },
  );
  const latencies: number[] = [];
  const end = performance.now() + seconds * 1000;
  for (let i = 0; i < changes && performance.now() < end; i++) {
    await sleep(APART_MS);
    const service = Math.floor(Math.random() * services);
    const pods = podsOf(service, endpoints);
    pods[0] = freshPod(services, endpoints, serial++);
    const commit = new Promise<void>((resolve) => (announced = resolve));
    const began = performance.now();
    await api.replaceSlice(service, pods);
    await commit;
    latencies.push(performance.now() - began);
  }
  await monitor.close();
  return latencies;
}

const serverCpu = (): number => (values.server === undefined ? 0 : cpuOf(Number(values.server)));

type Figures = Record<string, number>;

async function measure(program: string, name: string): Promise<readonly [Figures, number[]]> {
  execFileSync("nft", ["flush", "ruleset"]);
  const serverBefore = serverCpu();
  const began = performance.now();
  const child = spawn(program, ["--config", config, "-v=2"], { stdio: ["ignore", "ignore", "pipe"] });
  const pid = child.pid!;
  const nft = new NftPeak(pid);
  await written(child, name);
  const start = { "start, s": (performance.now() - began) / 1000, "CPU, s": cpuOf(pid) / 1000 };
  await sleep(1000);
  const server = (serverCpu() - serverBefore) / 1000;
  await sleep(REST_MS - 1000);
  const MB = 1e6;
  const rest = {
    "resident, MB": memoryOf(pid, "VmRSS") / MB,
    "anonymous, MB": anonymousOf(pid) / MB,
    "peak, MB": memoryOf(pid, "VmHWM") / MB,
    "nft's peak, MB": nft.peak / MB,
    "server's CPU, s": server,
  };
  nft.stop();
  const cpuBefore = cpuOf(pid);
  const latencies = await change();
  const changed = {
    "CPU per change, ms": (cpuOf(pid) - cpuBefore) / latencies.length,
    "resident after changes, MB": memoryOf(pid, "VmRSS") / MB,
    "anonymous after changes, MB": anonymousOf(pid) / MB,
  };
  child.removeAllListeners("exit");
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await ended;
  execFileSync("nft", ["flush", "ruleset"]);
  return [{ ...start, ...rest, ...changed }, latencies];
}

await fill();
const directory = mkdtempSync(join(tmpdir(), "nft-proxier-beside-"));
const config = join(directory, "config.json");
writeFileSync(
  config,
  JSON.stringify({
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode: "nftables",
    clientConnection: { kubeconfig },
    hostnameOverride: NODE,
    clusterCIDR: "11.0.0.0/8",
    // A namespace cannot set limits of the machine.
    conntrack: { maxPerCore: 0, min: 0 },
    oomScoreAdj: 0,
  }),
);
const loads = [loadavg()[0]];
const all = new Map<string, { figures: Figures[]; latencies: number[] }>(
  variants.map((variant) => [variant, { figures: [], latencies: [] }]),
);
for (let round = 0; round < rounds; round++) {
  for (const [variant, results] of all) {
    const [name = "", program = ""] = variant.split("=");
    const [figures, latencies] = await measure(program, name);
    results.figures.push(figures);
    results.latencies.push(...latencies);
    loads.push(loadavg()[0]);
    process.stderr.write(`${name} ${JSON.stringify({ ...figures, p50: median(latencies) })}\n`);
  }
}
await kernel.close();
api.close();
rmSync(directory, { recursive: true });

const table: Record<string, Record<string, string>> = {};
const said = (values: readonly number[]): string =>
  `${fixed(median(values))} (${fixed(Math.min(...values))} to ${fixed(Math.max(...values))})`;
for (const [variant, { figures, latencies }] of all) {
  const [name = ""] = variant.split("=");
  for (const what of Object.keys(figures[0] ?? {})) {
    (table[what] ??= {})[name] = said(figures.map((one) => one[what] ?? 0));
  }
  (table["changes"] ??= {})[name] = String(latencies.length);
  (table["change, p50, ms"] ??= {})[name] = fixed(median(latencies));
  (table["change, p99, ms"] ??= {})[name] = fixed(quantile(latencies, 0.99));
}
console.log(`${services} x ${endpoints}, load ${loads.map((load) => fixed(load, 1)).join(" ")}`);
console.table(table);
