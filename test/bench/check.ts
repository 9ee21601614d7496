/**
 * What a check costs that is done every few minutes, and as many of them as compare everything once, against a bare dump of the same
 * elements. Prints one line of JSON (`Check`). Needs --expose-gc. Arguments: services endpoints times
 */
import { CHECKED_ELEMENTS } from "../../dist/proxier/watcher.js";
import { collect, median, tell } from "./lib.ts";
import { type Blocked, longest, LoopWatch, ownMs } from "./loop-watch.ts";
import { feed, makeObjects, newProxier, openKernel } from "./proxier.ts";

export interface Check {
  readonly elements: number;
  /** Of one check, medians, ms: CPU of all threads, the kernel's part included. */
  readonly cpuMs: number;
  readonly wallMs: number;
  /** Of the main thread. */
  readonly mainMs: number;
  /** So many checks compare everything once, and take so much CPU together (median). */
  readonly checks: number;
  readonly allCpuMs: number;
  readonly dumpCpuMs: number;
  /** The longest dump of one set, which is as long as an apply may have to wait. */
  readonly longestDumpMs: number;
  readonly blocked: Blocked;
}

const TABLE = { family: "ip", table: "kube-proxy" } as const;

const [services, endpoints, times] = process.argv.slice(2).map(Number);
const kernel = await openKernel();
const proxier = newProxier(kernel);
await feed(proxier, makeObjects(services, endpoints));
await proxier.sync();

let elements = 0;
let longestDumpMs = 0;

async function dump(): Promise<void> {
  elements = 0;
  for (const set of await kernel.sets(TABLE)) {
    const began = performance.now();
    elements += (await kernel.elements(TABLE, set)).count;
    longestDumpMs = Math.max(longestDumpMs, performance.now() - began);
  }
}

async function measured(work: () => Promise<void>): Promise<{ cpuMs: number; wallMs: number; mainMs: number }> {
  collect();
  const main = ownMs();
  const began = performance.now();
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return { cpuMs: (user + system) / 1000, wallMs: performance.now() - began, mainMs: ownMs() - main };
}

const counted = (await kernel.sets(TABLE)).every(({ count }) => count !== undefined);
await dump();
const perRound = counted ? Math.ceil(elements / CHECKED_ELEMENTS) : 1;
const dumps: number[] = [];
const rounds: number[] = [];
const checks: Awaited<ReturnType<typeof measured>>[] = [];
const holds: Blocked[] = [];
for (let i = 0; i < times; i++) {
  dumps.push((await measured(dump)).cpuMs);
  let cpuMs = 0;
  for (let n = 0; n < perRound; n++) {
    const check = await measured(() => proxier.check());
    checks.push(check);
    cpuMs += check.cpuMs;
  }
  rounds.push(cpuMs);
  // Watching costs a tenth of what is watched.
  const watch = new LoopWatch();
  for (let n = 0; n < perRound; n++) await proxier.check();
  holds.push(watch.stop());
}
const result: Check = {
  elements,
  cpuMs: median(checks.map(({ cpuMs }) => cpuMs)),
  wallMs: median(checks.map(({ wallMs }) => wallMs)),
  mainMs: median(checks.map(({ mainMs }) => mainMs)),
  checks: perRound,
  allCpuMs: median(rounds),
  dumpCpuMs: median(dumps),
  longestDumpMs,
  blocked: longest(holds),
};
await proxier.stop();
await kernel.close();
tell(result);
