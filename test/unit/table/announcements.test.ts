/** Whether nothing changed a table between two generations, according to events. */
import { expect, it } from "vitest";

import { Announcements, type Period } from "../../../src/nft/sync/announcements.js";

function begin(longestWaitMs = 60_000): { all: Announcements; period: Period } {
  const all = new Announcements(longestWaitMs);
  all.listen(true);
  const period = all.begin();
  if (period === undefined) throw new Error("listening");
  return { all, period };
}
const tell = (all: Announcements, ...generations: number[]): void => {
  for (const generation of generations) all.add(generation, false);
};

it("guarantees nothing while nothing listens, or for the time before", () => {
  const all = new Announcements();
  expect(all.begin()).toBeUndefined();
  all.listen(true);
  expect(all.begin()).toBeDefined();
  all.listen(false);
  expect(all.begin()).toBeUndefined();
});

it("is unchanged if every generation was received, in whatever order, and none changed the table", async () => {
  const { all, period } = begin();
  expect(await period.untouched(7, 7)).toBe(true);
  tell(all, 7, 10, 8, 9, 12);
  expect(await period.untouched(7, 10)).toBe(true);
  all.add(11, true);
  expect(await period.untouched(7, 10)).toBe(true);
  expect(await period.untouched(10, 12)).toBe(false);
  expect(await period.untouched(11, 12)).toBe(true);
});

it("waits for changes that are still being announced", async () => {
  const { all, period } = begin();
  tell(all, 8, 10);
  const untouched = period.untouched(7, 10);
  let settled = false;
  void untouched.then(() => (settled = true));
  await new Promise((resolve) => setImmediate(resolve));
  expect(settled).toBe(false);
  tell(all, 9);
  expect(await untouched).toBe(true);
});

it("does not wait for more than one change of the table, or if events are lost or listening ends", async () => {
  for (const end of [
    (all: Announcements) => all.add(9, true),
    (all: Announcements) => all.lost(),
    (all: Announcements) => all.listen(false),
  ]) {
    const { all, period } = begin();
    const untouched = period.untouched(7, 10);
    end(all);
    expect(await untouched).toBe(false);
    tell(all, 8, 9, 10);
    expect(await period.untouched(7, 10)).toBe(false);
  }
});

it("gives up on missing events", async () => {
  const { period } = begin(1);
  expect(await period.untouched(7, 8)).toBe(false);
});

it("continues when generations start again", async () => {
  const { all, period } = begin();
  tell(all, 0xffffffff, 1);
  expect(await period.untouched(0xfffffffe, 1)).toBe(true);
});

it("keeps no events from after its end", async () => {
  const { all, period } = begin(1);
  period.end();
  tell(all, 8);
  expect(await period.untouched(7, 8)).toBe(false);
});
