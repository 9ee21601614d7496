/**
 * Does every kind of work in worker threads, which end by themselves, leave everything open, or are terminated in the middle of it.
 * Afterwards the library must be unloaded, no descriptor and no thread may be left, and it must load again. Prints how they ended.
 * Arguments: workers, repetitions of each kind of work per worker, concurrent workers, network namespaces.
 */
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

/** How a worker ends; the last ones are terminated from outside. */
const ENDS = ["by itself", "with everything open", "by an error", "ended at once", "ended in the middle", "ended late"];
const LATEST_MS = { "ended at once": 40, "ended in the middle": 250, "ended late": 1000 };

async function work({ number, octet, end, count, netns }) {
  // Imported here instead of at the top, so that the main thread does not load the addon.
  const { closeLab, kinds, prepareLab, repeat } = await import("./work.mjs");
  const lab = await prepareLab(netns, `worker-${number}`, octet);
  parentPort.postMessage("ready");
  if (end in LATEST_MS) {
    // Does everything at once, endlessly.
    for (;;) await Promise.all(kinds.map(async ([, kind]) => repeat(kind, [lab], 5).catch(() => undefined)));
  }
  for (const [, kind] of kinds) await repeat(kind, [lab], count);
  if (end === "by itself") return closeLab(lab);
  const quiet = {
    onBatch: () => undefined,
    onLost: () => undefined,
    onError: () => undefined,
    onChange: () => undefined,
    onEvents: () => undefined,
  };
  await lab.kernel.monitor(quiet);
  await lab.kernel.trace(quiet);
  await lab.kernel.interfaces.watchAddresses(quiet);
  await lab.conntrack.events({ ...quiet, onNew: () => undefined });
  void lab.kernel.rules(lab.ref);
  if (end === "by an error") throw new Error("as it should");
  process.exit(0);
}

function start(number, count, namespaces) {
  const end = ENDS[number % ENDS.length];
  const netns = namespaces[number % namespaces.length];
  const data = { number, octet: Math.floor(number / namespaces.length), end, count, netns };
  return new Promise((resolve, reject) => {
    const worker = new Worker(fileURLToPath(import.meta.url), { workerData: data });
    const late = (ms) => setTimeout(() => void worker.terminate(), ms);
    const at = LATEST_MS[end] * ((number * 0.618) % 1);
    if (end === "ended at once") late(at);
    else if (end in LATEST_MS) worker.on("message", () => late(at));
    worker.on("error", (error) => error.message !== "as it should" && reject(error));
    worker.on("exit", () => resolve(end));
  });
}

const loaded = () => readFileSync("/proc/self/maps", "utf8").includes("nft_proxier.node");
const entries = (directory) => readdirSync(directory).length;

/** Threads of the kernel and ours disappear some moments after their end. */
async function eventually(holds) {
  for (let i = 0; i < 1200; i++) {
    globalThis.gc();
    if (holds()) return true;
    await sleep(25);
  }
  return holds();
}

/** Runs some workers, up to `atOnce` in parallel. */
async function wave(from, to, { count, atOnce, namespaces }) {
  const ended = {};
  let next = from;
  const sequence = async () => {
    while (next < to) {
      const end = await start(next++, count, namespaces);
      ended[end] = (ended[end] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, sequence));
  return ended;
}

const holdings = () => ({ descriptors: entries("/proc/self/fd"), threads: entries("/proc/self/task") });

if (isMainThread) {
  const [workers, count, atOnce] = process.argv.slice(2, 5).map(Number);
  const options = { count, atOnce, namespaces: process.argv.slice(5) };
  // Without the library in the main thread, it is unloaded with the last worker that uses it. These workers also start the pool's threads,
  // which stay.
  await wave(0, ENDS.length, options);
  const unloaded = await eventually(() => !loaded());
  // Loading it in the main thread keeps it, so that leaks can be named.
  const { addon } = await import("./work.mjs");
  addon.close(await addon.open());
  const before = holdings();
  const ended = await wave(ENDS.length, workers, options);
  const isLevel = () => holdings().descriptors <= before.descriptors && holdings().threads <= before.threads;
  const level = await eventually(isLevel);
  console.log(JSON.stringify({ ended, unloaded, level, before, after: holdings() }));
} else {
  await work(workerData);
}
