/**
 * The cost of `nft-proxier handover` as a separate command, with and without a program that serves and listens. Prints one line of JSON
 * (`Handover`). Arguments: services endpoints times
 */
import { spawnSync } from "node:child_process";
import { removeHandover } from "../../dist/migration/handover/handover.js";
import { childrenMs, median, tell } from "./lib.ts";
import { MAIN } from "./image.ts";
import { feed, makeObjects, newProxier, openKernel } from "./proxier.ts";

/** Medians. */
export interface HandoverCost {
  /** From the command's start to its end, ms. */
  readonly wallMs: number;
  /** CPU of all its threads, including the kernel's work for it. */
  readonly cpuMs: number;
}

export interface Handover {
  readonly services: number;
  readonly endpoints: number;
  /** While a program listens to nf_tables. */
  readonly listening: HandoverCost;
  readonly alone: HandoverCost;
  /** Removal of the copy as the next start does it, ms. */
  readonly removalMs: number;
  /** Largest resident size of the command, bytes. */
  readonly rss: number;
}

/** Runs in the command, at its end. */
const TELL_RSS =
  'data:text/javascript,process.on("exit",()=>process.stdout.write(String(process.resourceUsage().maxRSS)))';

const [services, endpoints, times] = process.argv.slice(2).map(Number);
const kernel = await openKernel();
const proxier = newProxier(kernel);
await feed(proxier, makeObjects(services, endpoints));
await proxier.sync();

let rss = 0;
const removals: number[] = [];

async function handover(): Promise<HandoverCost> {
  const cpu = childrenMs();
  const began = performance.now();
  const command = ["--import", TELL_RSS, MAIN, "handover"];
  const { status, stdout, stderr } = spawnSync(process.execPath, command, { encoding: "utf8" });
  const cost = { wallMs: performance.now() - began, cpuMs: childrenMs() - cpu };
  if (status !== 0) throw new Error(`handover: exit ${status}\n${stderr}`);
  rss = Math.max(rss, Number(stdout) * 1024);
  const removing = performance.now();
  await removeHandover(kernel, ["ip"]);
  removals.push(performance.now() - removing);
  return cost;
}

async function several(): Promise<HandoverCost> {
  const all: HandoverCost[] = [];
  for (let i = 0; i < times; i++) all.push(await handover());
  return { wallMs: median(all.map(({ wallMs }) => wallMs)), cpuMs: median(all.map(({ cpuMs }) => cpuMs)) };
}

const listening = await several();
await proxier.stop();
const alone = await several();
await kernel.close();
tell({ services, endpoints, listening, alone, removalMs: median(removals), rss } satisfies Handover);
