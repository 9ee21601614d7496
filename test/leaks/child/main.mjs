/**
 * Does each kind of work many times on the main thread. Prints how many more bytes malloc has allocated afterwards, and
 * how many more descriptors and threads there are. Arguments: repetitions, bytes that do not count as a leak, network
 * namespaces to use.
 */
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { closeLab, kinds, prepareLab, repeat } from "./work.mjs";

const [count, noise] = process.argv.slice(2, 4).map(Number);
const namespaces = process.argv.slice(4);
const probe = createRequire(import.meta.url)(process.env.NFT_PROXIER_PROBE);

/** Finalizers run in a separate turn after a collection, and threads end some time after they are joined. */
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
 * Growth in a single round may be compiled code, a V8 table that occasionally doubles, or a thread that has not ended
 * yet. A leak grows in each round.
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
