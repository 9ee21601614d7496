/**
 * Uses the conntrack table in worker threads, which end by themselves or are terminated in the middle of their work.
 */
import { isMainThread, parentPort, workerData } from "node:worker_threads";
import { addon, report } from "./addon.mjs";
import { runWorkers } from "./workers.mjs";

const everything = new Uint8Array(208);

/** A UDP entry that is unique for each worker and number. */
function entry(worker, number) {
  const bytes = new Uint8Array(160);
  const view = new DataView(bytes.buffer);
  bytes.set([2, 17, 1, 0]);
  bytes[10] = 1;
  view.setUint32(24, 600, true);
  for (const [at, port] of [
    [28, number],
    [30, 53],
    [32, 53],
    [34, number],
  ]) {
    view.setUint16(at, port, true);
  }
  const [client, server] = [
    [10, 0, worker, 1],
    [10, 96, 0, 1],
  ];
  [client, server, server, client].forEach((address, i) => bytes.set(address, 40 + 16 * i));
  return bytes;
}

async function work(number) {
  const table = await addon.conntrackOpen();
  const monitor = await addon.conntrackWatch(table, { created: true, destroyed: true }, () => undefined);
  parentPort.postMessage("ready");
  for (let round = 0; round < (workerData.endless ? Infinity : 3); round++) {
    for (let i = 1; i <= 200; i++) await addon.conntrackCreate(table, entry(number, i));
    const dump = addon.conntrackDump(table, everything);
    await Promise.all([addon.conntrackRead(dump), addon.conntrackRead(dump)]);
    const own = new Uint8Array(208);
    own.set([10, 0, number, 1], 40);
    own.fill(255, 104 + 40, 104 + 44);
    await addon.conntrackDeleteMatching(table, own);
  }
  addon.closeMonitor(monitor);
  addon.conntrackClose(table);
}

if (isMainThread) {
  report(await runWorkers(import.meta.url));
} else {
  await work(workerData.number);
}
