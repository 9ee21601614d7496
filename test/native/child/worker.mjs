/** Loads the addon in worker threads, which end by themselves or are ended in the middle of their work. */
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { addon, load, prepared, report } from "./addon.mjs";

async function work(number) {
  const connection = await addon.open();
  const monitor = await addon.monitor(connection, {}, () => undefined);
  parentPort.postMessage("ready");
  for (let round = 0; round < (workerData.endless ? Infinity : 3); round++) {
    const { ops, ref } = load(2000, `worker-${number}-${round}`);
    await addon.commit(connection, prepared(ops));
    await addon.commit(connection, prepared([{ op: "delete", kind: "table", ...ref }]));
  }
  addon.closeMonitor(monitor);
}

if (isMainThread) {
  const run = (number, endless) =>
    new Promise((resolve, reject) => {
      const worker = new Worker(fileURLToPath(import.meta.url), { workerData: { number, endless } });
      worker.on("message", () => endless && setTimeout(() => void worker.terminate(), 5 * number));
      worker.on("error", reject);
      worker.on("exit", resolve);
    });
  const codes = await Promise.all([run(1, false), run(2, false), run(3, true), run(4, true)]);
  const again = [await run(5, false), await run(6, true), await run(7, false)];
  report({ codes, again });
} else {
  await work(workerData.number);
}
