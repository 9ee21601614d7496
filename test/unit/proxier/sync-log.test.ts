import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Level } from "pino";
import { SyncLog } from "../../../src/proxier/sync-log.js";
import { keptIn, type LogLine } from "../../support/log.ts";

const WRITE = { transactions: 1, operations: 4, bytes: 300, ms: 2, kernelMs: 0.25, latencyMs: 25 };

let lines: LogLine[];
beforeEach(() => {
  lines = [];
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const open = (level: Level | "verbose"): SyncLog => new SyncLog(keptIn(lines, level));
const said = (): unknown[] => lines.map(({ msg, family }) => [msg, family]);
const FIRST = [
  ["synced", "ip"],
  ["synced", "ip6"],
];

test("a rolling update of 74 writes has one line per family, and a minute later one that counts the others", () => {
  const log = open("info");
  for (let i = 0; i < 37; i++) for (const family of ["ip", "ip6"] as const) log.wrote(family, { ...WRITE, ms: i });
  expect(said()).toEqual(FIRST);
  vi.advanceTimersByTime(60_000);
  expect(said()).toEqual([...FIRST, ["recent writes", undefined]]);
  const sum = { writes: 36, transactions: 36, operations: 144, bytes: 10_800, kernelMs: 9, longestMs: 36 };
  expect(lines[2]).toMatchObject({ level: "info", v: 0, seconds: 60, ip: sum, ip6: sum });
  vi.advanceTimersByTime(600_000);
  expect(lines).toHaveLength(3);
});

test("a write that took more than a second is logged at once", () => {
  const log = open("info");
  log.wrote("ip", WRITE);
  log.wrote("ip", { ...WRITE, ms: 1001 });
  expect(lines).toMatchObject([{ ms: 2 }, { ms: 1001, msg: "synced" }]);
});

test.each(["verbose", "debug"] as const)("at the level %s each write has its line, and nothing is counted", (level) => {
  const log = open(level);
  for (let i = 0; i < 3; i++) log.wrote("ip", WRITE);
  vi.advanceTimersByTime(60_000);
  log.flush();
  expect(lines.map(({ msg, v }) => [msg, v])).toEqual([
    ["synced", 0],
    ["synced", 2],
    ["synced", 2],
  ]);
});

test("writes without changes are not counted, and the first with a change has its line", () => {
  const log = open("info");
  log.wrote("ip", { ...WRITE, transactions: 0 });
  log.wrote("ip", WRITE);
  log.flush();
  expect(said()).toEqual(FIRST.slice(0, 1));
});

test("the counted writes are logged at the end", () => {
  const log = open("info");
  for (let i = 0; i < 3; i++) log.wrote("ip6", WRITE);
  vi.advanceTimersByTime(7000);
  log.flush();
  expect(lines[1]).toMatchObject({ msg: "recent writes", ip6: { writes: 2 } });
  expect(lines[1]).not.toHaveProperty("ip");
});
