/** Work gathered into pieces, with a rest after each. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";

import { Lane } from "../../../src/conntrack/lane.js";

const WORK_MS = 20;
const lanes: Lane<number[]>[] = [];
afterEach(async () => {
  await Promise.all(lanes.splice(0).map((lane) => lane.stop()));
});

function newLane(restFactor: number) {
  const pieces: { readonly scope: readonly number[]; readonly started: number; readonly ended: number }[] = [];
  const work = async (scope: number[]): Promise<boolean> => {
    const started = performance.now();
    await sleep(WORK_MS);
    pieces.push({ scope: [...scope], started, ended: performance.now() });
    return true;
  };
  const lane = new Lane<number[]>(work, {
    merge: (into, from) => void into.push(...from),
    firstRetryMs: 1,
    maxRetryMs: 1,
    restFactor,
    maxRestMs: 10_000,
    onFailure: () => undefined,
  });
  lanes.push(lane);
  return { lane, pieces };
}

test("what comes while it works or rests is one piece, after a rest of twice the work", async () => {
  const { lane, pieces } = newLane(2);
  lane.add([1]);
  await sleep(WORK_MS / 2);
  lane.add([2]);
  while (pieces.length === 0) await sleep(1);
  lane.add([3]);
  await lane.idle();
  expect(pieces.map(({ scope }) => scope)).toEqual([[1], [2, 3]]);
  const [first, second] = pieces;
  expect(second.started - first.ended).toBeGreaterThan((first.ended - first.started) * 2 - 3);
});

test("neither who asks whether it is idle nor an end waits for a rest", async () => {
  const { lane, pieces } = newLane(400);
  lane.add([1]);
  await lane.idle();
  lane.add([2]);
  await lane.stop();
  expect(pieces.map(({ scope }) => scope)).toEqual([[1]]);
});
