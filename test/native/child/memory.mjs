/**
 * Commits half a million elements and reads them back. Prints how far resident memory rose above its former size, at its peak. Also prints
 * the longest time for which the main thread held the event loop, as a part of its processor time.
 */
import { writeFileSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { addon, load, prepared, report } from "./addon.mjs";
import { memory, watchLoop } from "./measure.mjs";
import { testAddon } from "../test-addon.ts";

const COUNT = 500_000;
/**
 * A busy machine also wakes a timer late, and one that stands still looks as if the loop were held; our own delays show in every round. Use
 * as many rounds as needed, limited by the available time.
 */
const ROUNDS = 20;
const LAST_ROUND_MS = 90_000;
const HELD = Number(process.argv[2]);
/** On an idle machine, the work takes less, and a stop of 20 ms is a fifth of this. */
const LEAST_OWN_MS = 100;
const connection = await addon.open();
const { ops, ref, set } = load(COUNT);

async function measure(work) {
  globalThis.gc();
  await new Promise((resolve) => setTimeout(resolve, 20));
  // 5 resets the peak.
  writeFileSync("/proc/self/clear_refs", "5");
  const before = memory("VmRSS");
  const stop = watchLoop();
  const begun = process.threadCpuUsage();
  const result = await work();
  const { user, system } = process.threadCpuUsage(begun);
  await new Promise((resolve) => setTimeout(resolve, 5));
  const ownMs = Math.max((user + system) / 1000, LEAST_OWN_MS);
  return { result, grown: memory("VmHWM") - before, held: (await stop()) / ownMs };
}

/** Encodes and sends everything in one batch; if the send buffer is too small for that, only copies the elements. */
async function commitAll() {
  const batch = addon.createBatch(ops);
  while (!addon.prepareBatch(batch, 5)) await new Promise((resolve) => setImmediate(resolve));
  try {
    await addon.commit(connection, batch);
    return "taken";
  } catch (error) {
    if (error.code !== "too-large") throw error;
    return "too-large";
  }
}

/** The same elements in batches that fit any send buffer. */
async function commitInPieces() {
  const [table, create, add] = ops;
  await addon.commit(connection, prepared([table, create]));
  for (let from = 0; from < COUNT; from += 10_000) {
    const count = Math.min(10_000, COUNT - from);
    const bytes = add.elements.bytes.subarray(from * 12, (from + count) * 12);
    await addon.commit(connection, prepared([{ ...add, elements: { ...add.elements, count, bytes } }]));
  }
}

const rounds = [];
const began = performance.now();
for (let round = 0; round < ROUNDS && performance.now() - began < LAST_ROUND_MS; round++) {
  const commit = await measure(commitAll);
  if (commit.result === "too-large") await commitInPieces();
  const dump = await measure(() => addon.elements(connection, ref, set));
  await addon.commit(connection, prepared([{ op: "delete", kind: "table", ...ref }]));
  const dumped = dump.result.count;
  const refused = commit.result === "too-large";
  rounds.push({ refused, grown: commit.grown, held: commit.held, dumped, dumpHeld: dump.held });
  const best = (which) => Math.min(...rounds.map((one) => one[which]));
  if (best("held") < HELD && best("dumpHeld") < HELD) break;
}
report({ bytes: testAddon.encodeBatch(ops).length, rounds });
