/**
 * Reads an operation with many distinct verdicts in slices. Prints the number of slices and the duration of the longest
 * one, ms.
 */
import { performance } from "node:perf_hooks";
import { addon, report } from "./addon.mjs";

const COUNT = 50_000;
/** A busy machine makes any slice long; our own delays show in every round. */
const ROUNDS = 10;
const SLICE_MS = 2;

const verdicts = Array.from({ length: COUNT }, (_, i) => ({ verdict: "goto", chain: `service-${i}` }));
const bytes = new Uint8Array(Uint32Array.from({ length: 2 * COUNT }, (_, i) => i >> 1).buffer);
const elements = { count: COUNT, keyLen: 4, dataLen: 4, verdicts, bytes };
const op = { op: "add", kind: "elements", family: "ip", table: "t", set: "m", elements };

const rounds = [];
for (let round = 0; round < ROUNDS; round++) {
  const batch = addon.createBatch([op]);
  const slices = [];
  for (let done = false; !done;) {
    const start = performance.now();
    done = addon.prepareBatch(batch, SLICE_MS);
    slices.push(performance.now() - start);
    await new Promise((resolve) => setImmediate(resolve));
  }
  rounds.push({ slices: slices.length, longest: Math.max(...slices), all: slices.reduce((sum, ms) => sum + ms, 0) });
}
report(rounds);
