/**
 * A full load, single changes and a restart at one size, in this process and namespace. Prints one line of JSON (`Measured`). Needs
 * --expose-gc. Arguments: services endpoints changes [value of --service-counters]
 */
import { clusterIPOf, freshPod, makeSlice, podsOf } from "./cluster.ts";
import { collect, quantile, tell } from "./lib.ts";
import { type Blocked, LoopWatch } from "./loop-watch.ts";
import { feed, makeObjects, newProxier, openKernel, type Sample, timed } from "./proxier.ts";
import { decoded } from "./decoded.ts";
import { KeyPacker } from "../../dist/ruleset/key-packer.js";
import { shardOf } from "../../dist/ruleset/list-values.js";
import type { ServiceCounters } from "../../dist/ruleset/service-counters.js";

export interface Changes {
  readonly operations: number;
  /** Without the time in sendmsg. */
  readonly ownP50Ms: number;
  readonly ownP99Ms: number;
  readonly totalP50Ms: number;
  readonly kernelP50Ms: number;
}

export interface Measured {
  readonly services: number;
  readonly endpoints: number;
  readonly load: Sample & { readonly blocked: Blocked };
  readonly restart: Sample & { readonly blocked: Blocked };
  readonly replace: Changes;
  readonly scale: Changes;
  /**
   * The service is scaled to a number of endpoints that no other service of the shard has. Absent if an older build does not measure it.
   */
  readonly newCount?: Changes;
  /** During the single changes. */
  readonly blocked: Blocked;
}

function summary(samples: readonly Sample[]): Changes {
  const of = (pick: (sample: Sample) => number, q: number): number => quantile(samples.map(pick), q);
  const own = ({ totalMs, kernelMs }: Sample): number => totalMs - kernelMs;
  return {
    operations: of(({ operations }) => operations, 0.5),
    ownP50Ms: of(own, 0.5),
    ownP99Ms: of(own, 0.99),
    totalP50Ms: of(({ totalMs }) => totalMs, 0.5),
    kernelP50Ms: of(({ kernelMs }) => kernelMs, 0.5),
  };
}

async function watched(work: () => Promise<Sample>): Promise<Sample & { blocked: Blocked }> {
  collect();
  const watch = new LoopWatch();
  const sample = await work();
  return { ...sample, blocked: watch.stop() };
}

/** Further numbers of endpoints to which one service of each shard is scaled. */
const MORE_COUNTS = 5;

const [services, endpoints, changes] = process.argv.slice(2, 5).map(Number);
/** The program's default, unless an argument says otherwise. */
const counting = { serviceCounters: (process.argv[5] ?? "service") as ServiceCounters };
const kernel = await openKernel();
const objects = makeObjects(services, endpoints);

const proxier = newProxier(kernel, counting);
const load = await watched(() => timed(proxier, () => feed(proxier, objects)));

const watch = new LoopWatch();
let serial = 0;
const pods = new Map<number, number[]>();
const replaced: Sample[] = [];
const scaled: Sample[] = [];
const scaledToNew: Sample[] = [];
const put = (index: number, now: number[]): Promise<Sample> => {
  pods.set(index, now);
  return timed(proxier, () => proxier.upsert(decoded({ kind: "EndpointSlice", object: makeSlice(index, now) })));
};
for (let i = 0; i < changes; i++) {
  const index = Math.floor(Math.random() * services);
  const now = [...(pods.get(index) ?? podsOf(index, endpoints))];
  now[i % now.length] = freshPod(services, endpoints, serial++);
  replaced.push(await put(index, now));
}
const scaleByOne = (index: number): Promise<Sample> =>
  put(index, [...(pods.get(index) ?? podsOf(index, endpoints)), freshPod(services, endpoints, serial++)]);
const keys = new KeyPacker("ip");
const firstOfShard = new Map<number, number>();
for (let i = 0; i < changes / 4 + 1; i++) {
  const shard = shardOf(keys.vip(clusterIPOf(i), "TCP", 80).service);
  const isFirst = !firstOfShard.has(shard);
  if (isFirst) firstOfShard.set(shard, i);
  const sample = await scaleByOne(i);
  (isFirst ? scaledToNew : scaled).push(sample);
}
for (let more = 0; more < MORE_COUNTS; more++) {
  for (const first of firstOfShard.values()) scaledToNew.push(await scaleByOne(first));
}
const blocked = watch.stop();
await proxier.stop();

// A restart on the current table, with nothing to change.
const again = newProxier(kernel, counting);
const current = objects.map(([service, slice], i) => {
  const now = pods.get(i);
  return [service, now === undefined ? slice : makeSlice(i, now)] as const;
});
const restart = await watched(() => timed(again, () => feed(again, current)));
await again.stop();
await kernel.close();

const measured: Measured = {
  services,
  endpoints,
  load,
  restart,
  replace: summary(replaced),
  scale: summary(scaled),
  newCount: summary(scaledToNew),
  blocked,
};
tell(measured);
