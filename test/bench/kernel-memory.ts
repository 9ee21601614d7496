/**
 * A full load while a process in another network namespace listens to nf_tables: the kernel's memory for it, and the longest time that one
 * transaction blocks all others. Prints one line of JSON (`KernelMemory`). Needs an otherwise idle machine: the kernel reports only the sum
 * of all its memory. Arguments: services endpoints
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker } from "node:worker_threads";
import { ENTER, kernelBytes, tell } from "./lib.ts";
import { feed, makeObjects, newProxier, openKernel, timed } from "./proxier.ts";

export interface KernelMemory {
  readonly services: number;
  readonly endpoints: number;
  /** Peak above the memory before the load, including the loaded table, bytes. */
  readonly peak: number;
  /** The remaining increase, bytes. */
  readonly rest: number;
  /** The longest time that a transaction spent inside sendmsg, ms. */
  readonly longestCommitMs: number;
  readonly transactions: number;
}

const SAMPLE_MS = 10;
/** Argument that starts the listening process. */
const LISTEN = "listen";
const SELF = fileURLToPath(import.meta.url);

/** Runs in a separate thread and reports the peak on request. */
function sample(): void {
  let peak = 0;
  setInterval(() => (peak = Math.max(peak, kernelBytes())), SAMPLE_MS);
  parentPort?.once("message", () => parentPort?.postMessage(peak));
}

async function listen(): Promise<void> {
  const kernel = await openKernel();
  await kernel.monitor({ onBatch: () => undefined, onLost: () => undefined, onError: () => process.exit(1) });
  process.stdout.write("listening\n");
}

async function measure(services: number, endpoints: number): Promise<KernelMemory> {
  const listener = spawn(process.execPath, [ENTER, "--", process.execPath, SELF, LISTEN], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(listener.stdout, "data");
  const kernel = await openKernel();
  const commit = kernel.commit.bind(kernel);
  let longestNs = 0;
  kernel.commit = async (ops, options) => {
    const result = await commit(ops, options);
    longestNs = Math.max(longestNs, result.kernelNs);
    return result;
  };
  const proxier = newProxier(kernel);
  const objects = makeObjects(services, endpoints);
  const before = kernelBytes();
  const sampler = new Worker(SELF);
  await once(sampler, "online");
  const { transactions } = await timed(proxier, () => feed(proxier, objects));
  await sleep(500);
  sampler.postMessage("tell");
  const [peak] = (await once(sampler, "message")) as [number];
  const after = kernelBytes();
  await sampler.terminate();
  await proxier.stop();
  await kernel.close();
  listener.kill();
  return {
    services,
    endpoints,
    peak: peak - before,
    rest: after - before,
    longestCommitMs: longestNs / 1e6,
    transactions,
  };
}

if (!isMainThread) sample();
else if (process.argv[2] === LISTEN) await listen();
else {
  const [services, endpoints] = process.argv.slice(2).map(Number);
  tell(await measure(services, endpoints));
}
