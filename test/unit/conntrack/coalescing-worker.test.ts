/** Work collected into pieces, with a pause after each. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";

import { CoalescingWorker } from "../../../src/conntrack/reconcile/coalescing-worker.js";

const WORK_MS = 20;
const workers: CoalescingWorker<number[]>[] = [];
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.stop()));
});

function newLane(pauseFactor: number) {
  const pieces: { readonly scope: readonly number[]; readonly started: number; readonly ended: number }[] = [];
  const gate = Promise.withResolvers<void>();
  const first = Promise.withResolvers<void>();
  const work = async (scope: number[]): Promise<boolean> => {
    const started = performance.now();
    await sleep(WORK_MS);
    await gate.promise;
    pieces.push({ scope: [...scope], started, ended: performance.now() });
    first.resolve();
    return true;
  };
  const worker = new CoalescingWorker<number[]>(work, {
    merge: (into, from) => void into.push(...from),
    firstRetryMs: 1,
    maxRetryMs: 1,
    pauseFactor,
    maxPauseMs: 10_000,
    onFailure: () => undefined,
  });
  workers.push(worker);
  /** Work does not end before `finish`; `worked` resolves with the first piece. */
  return { worker, pieces, finish: gate.resolve, worked: first.promise };
}

test("work that arrives while it works or pauses is combined, after a pause of twice the working time", async () => {
  const { worker, pieces, finish, worked } = newLane(2);
  worker.add([1]);
  await sleep(WORK_MS / 2);
  worker.add([2]);
  finish();
  await worked;
  worker.add([3]);
  await worker.idle();
  expect(pieces.map(({ scope }) => scope)).toEqual([[1], [2, 3]]);
  const [first, second] = pieces;
  expect(second.started - first.ended).toBeGreaterThan((first.ended - first.started) * 2 - 3);
});

test("neither idle() nor stop() waits for a pause", async () => {
  const { worker, pieces, finish } = newLane(400);
  finish();
  worker.add([1]);
  await worker.idle();
  worker.add([2]);
  await worker.stop();
  expect(pieces.map(({ scope }) => scope)).toEqual([[1]]);
});
