/**
 * A rolling update: `changes` slices change within a second, each with one endpoint replaced, at the proxier's own pace. Prints one line of
 * JSON (`Rolling`). Needs --expose-gc. Arguments: services endpoints changes
 */
import { setTimeout as sleep } from "node:timers/promises";
import { freshPod, makeSlice, podsOf } from "./cluster.ts";
import { collect, tell } from "./lib.ts";
import { type Blocked, LoopWatch } from "./loop-watch.ts";
import { feed, makeObjects, newProxier, openKernel } from "./proxier.ts";
import { decoded } from "./decoded.ts";

export interface Rolling {
  /** From the first change to the kernel's answer. */
  readonly firstMs: number;
  /** From the last change to the kernel's answer to the last write. */
  readonly afterLastMs: number;
  readonly transactions: number;
  /** From the first change to the last. */
  readonly lastedMs: number;
  readonly blocked: Blocked;
}

const [services, endpoints, changes] = process.argv.slice(2).map(Number);
const kernel = await openKernel();
let written: { at: number; services: number; transactions: number }[] = [];
const proxier = newProxier(kernel, {
  observers: [
    {
      synced({ ok, services: names, work }) {
        if (!ok) throw new Error("a write failed");
        written.push({ at: performance.now(), services: names.length, transactions: work?.transactions ?? 0 });
      },
    },
  ],
});
await feed(proxier, makeObjects(services, endpoints));
await proxier.sync();
collect();
await sleep(500);
written = [];

const watch = new LoopWatch();
const start = performance.now();
let last = start;
for (let i = 0; i < changes; i++) {
  const due = start + (i * 1000) / changes;
  while (performance.now() < due) await sleep(Math.max(1, due - performance.now()));
  const pods = podsOf(i, endpoints);
  pods[i % endpoints] = freshPod(services, endpoints, i);
  last = performance.now();
  proxier.upsert(decoded({ kind: "EndpointSlice", object: makeSlice(i, pods) }));
  proxier.flush();
}
const done = (): number => written.reduce((sum, write) => sum + write.services, 0);
for (const end = performance.now() + 30_000; done() < changes;) {
  if (performance.now() > end) throw new Error(`only ${done()} of ${changes} changes were written in time`);
  await sleep(1);
}
const result: Rolling = {
  firstMs: (written[0]?.at ?? Number.NaN) - start,
  afterLastMs: (written.at(-1)?.at ?? Number.NaN) - last,
  transactions: written.reduce((sum, write) => sum + write.transactions, 0),
  lastedMs: last - start,
  blocked: watch.stop(),
};
await proxier.stop();
await kernel.close();
tell(result);
