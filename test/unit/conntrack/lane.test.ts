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
  const lane = new Lane<number[]>(work, {
    merge: (into, from) => void into.push(...from),
    firstRetryMs: 1,
    maxRetryMs: 1,
    restFactor,
    maxRestMs: 10_000,
    onFailure: () => undefined,
  });
  lanes.push(lane);
  /** Nothing is done before `finish`; `worked` resolves with the first piece. */
  return { lane, pieces, finish: gate.resolve, worked: first.promise };
}

test("what comes while it works or rests is one piece, after a rest of twice the work", async () => {
  const { lane, pieces, finish, worked } = newLane(2);
  lane.add([1]);
  await sleep(WORK_MS / 2);
  lane.add([2]);
  finish();
  await worked;
  lane.add([3]);
  await lane.idle();
  expect(pieces.map(({ scope }) => scope)).toEqual([[1], [2, 3]]);
  const [first, second] = pieces;
  expect(second.started - first.ended).toBeGreaterThan((first.ended - first.started) * 2 - 3);
});

test("neither who asks whether it is idle nor an end waits for a rest", async () => {
  const { lane, pieces, finish } = newLane(400);
  finish();
  lane.add([1]);
  await lane.idle();
  lane.add([2]);
  await lane.stop();
  expect(pieces.map(({ scope }) => scope)).toEqual([[1]]);
});
