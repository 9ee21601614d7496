/**
 * Another process deletes the table of a large cluster: measures the time until everything is restored, and the kernel's own part of it.
 * Prints one line of JSON (`Repair`). Arguments: services endpoints times
 */
import { setTimeout as sleep } from "node:timers/promises";
import { median, tell } from "./lib.ts";
import { type Blocked, LoopWatch } from "./loop-watch.ts";
import { feed, makeObjects, newProxier, openKernel } from "./proxier.ts";

export interface Repair {
  /** Medians, from the kernel's answer to the deletion to its answer to the repair, ms. */
  readonly totalMs: number;
  /** Inside sendmsg. */
  readonly kernelMs: number;
  /** The rest: the event, the read of the remaining objects, packing, threads. */
  readonly ownMs: number;
  readonly slowestOwnMs: number;
  readonly operations: number;
  /** Maximum number of transactions of a repair. */
  readonly transactions: number;
  readonly blocked: Blocked;
}

interface Write {
  readonly at: number;
  readonly operations: number;
  readonly transactions: number;
  readonly kernelMs: number;
}

/** Time between two deletions, ms: the program counts successive ones, and waits before it repairs the sixth. */
const PAUSE_MS = 1000;

const [services, endpoints, times] = process.argv.slice(2).map(Number);
const kernel = await openKernel();
// Time of the kernel's answer: later bookkeeping delays no packet.
let answered = 0;
const commit = kernel.commit.bind(kernel);
kernel.commit = async (ops, options) => {
  const result = await commit(ops, options);
  answered = performance.now();
  return result;
};
let told: ((write: Write) => void) | undefined;
const proxier = newProxier(kernel, {
  observers: [
    {
      synced({ ok, work }) {
        if (!ok || work === undefined) throw new Error("a write failed");
        if (work.operations < services * endpoints) return;
        const { operations, transactions, kernelMs } = work;
        told?.({ at: answered, operations, transactions, kernelMs });
      },
    },
  ],
});
await feed(proxier, makeObjects(services, endpoints));
await proxier.sync();

const watch = new LoopWatch();
const all: { readonly totalMs: number; readonly write: Write }[] = [];
for (let i = 0; i < times; i++) {
  await sleep(PAUSE_MS);
  const repaired = new Promise<Write>((resolve) => (told = resolve));
  // Use a new socket each time, like `nft`: a socket that deletes twice is taken for a second proxier, and repairs wait.
  const other = await openKernel();
  await other.commit([{ op: "delete", kind: "table", family: "ip", table: "kube-proxy" }]);
  const deleted = performance.now();
  const write = await repaired;
  all.push({ totalMs: write.at - deleted, write });
  await other.close();
}
const own = all.map(({ totalMs, write }) => totalMs - write.kernelMs);
const result: Repair = {
  totalMs: median(all.map(({ totalMs }) => totalMs)),
  kernelMs: median(all.map(({ write }) => write.kernelMs)),
  ownMs: median(own),
  slowestOwnMs: Math.max(...own),
  operations: Math.max(...all.map(({ write }) => write.operations)),
  transactions: Math.max(...all.map(({ write }) => write.transactions)),
  blocked: watch.stop(),
};
await proxier.stop();
await kernel.close();
tell(result);
