/**
 * Memory over many changes: endpoints replaced, services scaled up and down, services deleted and recreated. Half of the changes affect the
 * hundredth of the services that have session affinity, whose endpoints have chains and sets of their own. At each measurement the cluster
 * equals the initial one. Prints one line of JSON (`Growth`). Needs --expose-gc. Arguments: services endpoints changes
 */
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { getHeapStatistics } from "node:v8";
import { buildAddon } from "../lab/build.ts";
import { freshPod, makeService, makeSlice, podsOf, serviceName } from "./cluster.ts";
import { collect, memoryOf, tell } from "./lib.ts";
import { type Blocked, LoopWatch, longest } from "./loop-watch.ts";
import { feed, inTurns, makeObjects, newProxier, openKernel } from "./proxier.ts";
import { decoded } from "./decoded.ts";

/** Memory after a forced collection, bytes. */
export interface Used {
  /** Memory of JavaScript objects. */
  readonly heap: number;
  /** Memory from malloc: C++ objects, and JavaScript's buffers. */
  readonly native: number;
  /** Resident memory, including free memory that V8 and malloc keep. */
  readonly rss: number;
}

export interface Growth {
  readonly services: number;
  readonly endpoints: number;
  readonly changes: number;
  readonly transactions: number;
  readonly before: Used;
  readonly after: Used;
  /** Measurements on the way, at equal distances. */
  readonly between: readonly Used[];
  readonly blocked: Blocked;
}

const [services, endpoints, changes] = process.argv.slice(2).map(Number);
/** Changes that one write combines. */
const TOGETHER = 50;
/** Number of measurements on the way, including the last one. */
const SAMPLES = 5;
/** A pod's number is reused after this many: pods that are gone for good must leave nothing behind. */
const PODS = 1_000_000;
/** One in this many services has session affinity. */
const AFFINE = 100;
/** Deferred writes, such as the tails of lists that shrank, are due by then. */
const LATE_MS = 1_500;
const COLLECTIONS = 10;
/**
 * Changes before the first measurement, as a share of all changes. V8 doubles a Map when it is full, and deleted entries count. So the Maps
 * of 5,000 services double once more after 3,192 services have been recreated, and a tenth of the changes recreate services. README.md
 * shows the effect of a shorter warm-up.
 */
const WARM_UP = 0.4;

const kernel = await openKernel();
const proxier = newProxier(kernel);
await feed(proxier, makeObjects(services, endpoints));
await inTurns(indexes(), putService);
await proxier.sync();

let serial = 0;
let transactions = 0;
async function write(): Promise<void> {
  const { ok, families } = await proxier.sync();
  const outcome = families[0]?.outcome;
  if (!ok || outcome === undefined || !outcome.ok) throw new Error("a write failed");
  transactions += outcome.result.transactions;
}

const put = (index: number, pods: readonly number[]): void =>
  proxier.upsert(decoded({ kind: "EndpointSlice", object: makeSlice(index, pods) }));

function putService(index: number): void {
  const object = makeService(index);
  const sessionAffinity = index % AFFINE === 0 ? "ClientIP" : "None";
  proxier.upsert(decoded({ kind: "Service", object: { ...object, spec: { ...object.spec, sessionAffinity } } }));
}

function anyService(): number {
  const index = Math.floor(Math.random() * services);
  return Math.random() < 0.5 ? index : index - (index % AFFINE);
}

function indexes(): number[] {
  return Array.from({ length: services }, (_, index) => index);
}

async function churn(count: number): Promise<Blocked> {
  const watch = new LoopWatch();
  for (let i = 0; i < count; i++) {
    const index = anyService();
    const pods = podsOf(index, endpoints);
    const name = `bench/${serviceName(index)}`;
    const fresh = freshPod(services, endpoints, serial++ % PODS);
    const kind = i % 10;
    if (kind === 0) {
      proxier.remove("EndpointSlice", `${name}-a`);
      proxier.remove("Service", name);
      await write();
      putService(index);
    } else if (kind < 3) pods.push(fresh);
    else pods[i % endpoints] = fresh;
    put(index, pods);
    if (i % TOGETHER === TOGETHER - 1) await write();
  }
  // Restores the initial state.
  await inTurns(indexes(), (index) => put(index, podsOf(index, endpoints)));
  await write();
  await sleep(LATE_MS);
  await write();
  return watch.stop();
}

const malloc = createRequire(import.meta.url)(buildAddon("malloc-usage")) as { inUse(): number | undefined };

function used(): Used {
  // V8 drops code that is no longer run only after several collections have found it unused.
  for (let i = 0; i < COLLECTIONS; i++) collect();
  const native = malloc.inUse();
  if (native === undefined) throw new Error("growth is measured with glibc 2.33 or newer");
  return { heap: getHeapStatistics().used_heap_size, native, rss: memoryOf("self", "VmRSS") };
}

// Code that is compiled once, and tables that have reached their size, are not growth.
await churn(changes * WARM_UP);
const before = used();
transactions = 0;
const samples: Used[] = [];
const blocked: Blocked[] = [];
for (let i = 0; i < SAMPLES; i++) {
  blocked.push(await churn(changes / SAMPLES));
  samples.push(used());
}
const after = samples.pop() ?? before;
await proxier.stop();
await kernel.close();
const result: Growth = {
  services,
  endpoints,
  changes,
  transactions,
  before,
  after,
  between: samples,
  blocked: longest(blocked),
};
tell(result);
