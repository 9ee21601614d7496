/**
 * The cost of a periodic check, and of all checks that together compare everything once, compared with a bare dump of the same elements.
 * Prints one line of JSON (`Check`). Needs --expose-gc. Arguments: services endpoints times
 */
import { CHECKED_ELEMENTS } from "../../dist/proxier/watcher.js";
import { collect, median, tell } from "./lib.ts";
import { type Blocked, longest, LoopWatch, ownMs } from "./loop-watch.ts";
import { feed, makeObjects, newProxier, openKernel } from "./proxier.ts";

export interface Check {
  readonly elements: number;
  /** Medians for one check, ms: CPU of all threads, including the kernel's work. */
  readonly cpuMs: number;
  readonly wallMs: number;
  /** CPU of the main thread. */
  readonly mainMs: number;
  /** Number of checks that together compare everything once, and their total CPU (median). */
  readonly checks: number;
  readonly allCpuMs: number;
  readonly dumpCpuMs: number;
  /** The longest dump of one set: an apply may have to wait as long. */
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
  // The watch itself costs a tenth of the measured time.
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
