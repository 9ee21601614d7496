/** Loads the addon in worker threads, which end by themselves or are terminated in the middle of their work. */
import { isMainThread, parentPort, workerData } from "node:worker_threads";
import { addon, load, prepared, report } from "./addon.mjs";
import { runWorkers } from "./workers.mjs";

async function work(number) {
  const connection = await addon.open();
  const monitor = await addon.monitor(connection, {}, () => undefined);
  const inotify = addon.inotifyOpen(() => undefined);
  addon.inotifyAwait(inotify);
  parentPort.postMessage("ready");
  for (let round = 0; round < (workerData.endless ? Infinity : 3); round++) {
    const { ops, ref } = load(2000, `worker-${number}-${round}`);
    await addon.commit(connection, prepared(ops));
    await addon.commit(connection, prepared([{ op: "delete", kind: "table", ...ref }]));
  }
  addon.closeMonitor(monitor);
  addon.inotifyClose(inotify);
}

if (isMainThread) {
  report(await runWorkers(import.meta.url));
} else {
  await work(workerData.number);
}
