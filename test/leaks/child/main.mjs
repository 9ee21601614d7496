/**
 * Does each kind of work many times on the main thread, and says how many bytes more malloc has given out behind it than
 * before, and how many descriptors and threads more there are. Arguments: how often, bytes that are no leak, network
 * namespaces to do it in.
 */
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { closeLab, kinds, prepareLab, repeat } from "./work.mjs";

const [count, noise] = process.argv.slice(2, 4).map(Number);
const namespaces = process.argv.slice(4);
const probe = createRequire(import.meta.url)(process.env.NFT_PROXIER_PROBE);

/** Finalizers run in a turn of their own behind a collection, and threads end some time behind their join. */
async function settle() {
  for (let i = 0; i < 3; i++) {
    globalThis.gc();
    await sleep(10);
  }
}

async function holdings() {
  await settle();
  const entries = (directory) => readdirSync(directory).length;
  return { bytes: probe.allocatedBytes(), descriptors: entries("/proc/self/fd"), threads: entries("/proc/self/task") };
}

/**
 * What grows in one round may be compiled code, a table of V8's, which doubles now and then, or a thread that has not come
 * to its end yet: a leak grows in each.
 */
const ROUNDS = 6;

async function growth(work) {
  let least;
  for (let round = 0; round < ROUNDS; round++) {
    const before = await holdings();
    await repeat(work, labs, count);
    const after = await holdings();
    const grown = (what) => Math.min(after[what] - before[what], least?.[what] ?? Infinity);
    least = Object.fromEntries(Object.keys(after).map((what) => [what, grown(what)]));
    if (least.bytes <= noise && least.descriptors <= 0 && least.threads <= 0) break;
  }
  return least;
}

const labs = await Promise.all(namespaces.map(async (netns) => prepareLab(netns, "main", 0)));
const grown = {};
for (const [name, work] of kinds) {
  const start = performance.now();
  await repeat(work, labs, Math.min(count, 200));
  grown[name] = await growth(work);
  grown[name].ms = Math.round(performance.now() - start);
}
await Promise.all(labs.map(closeLab));
console.log(JSON.stringify(grown));
