/** Garbage collection: what it counts, deletes and calls an orphan; when it runs; what it logs about a full table. */
import { Registry } from "prom-client";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { DELETED } from "../../../src/conntrack/reconcile/stale-entries.js";
import { FakeConntrack } from "../../fakes/fake-conntrack.ts";
import {
  GC_MAX_MS,
  GC_MIN_MS,
  GC_START_MS,
  GarbageCollector,
  type GcOptions,
  type GcReport,
  type GcRequest,
  gcInterval,
} from "../../../src/conntrack/gc/garbage-collector.js";
import { GcRunner } from "../../../src/conntrack/gc/gc-runner.js";
import { ConntrackMetrics } from "../../../src/observe/conntrack-metrics.js";
import { PressureMonitor } from "../../../src/conntrack/gc/pressure-monitor.js";
import { maySkip } from "../../support/may-skip.ts";
import {
  CONNTRACK_STATUS,
  type ConntrackEntry,
  type ConntrackTable,
} from "../../../src/nft/conntrack/conntrack-table.js";
import { keptIn } from "../../support/log.ts";
import { CASES, entryOf } from "./cases.js";
import { FAMILIES, nodePortAddresses, sliceObjects, worldWithFormer } from "./setup.js";

const ESTABLISHED = ["TCP, to a removed endpoint", "TCP, to a deleted service that requested resets"];
const OVER = "TCP with resets requested, already closed";
const ORPHANS = [...ESTABLISHED, OVER];
/** Entries that no request may touch. */
const OTHERS: readonly string[] = [
  "not-ours",
  "other-machine",
  "other-zone",
  "other-protocol",
  "former-not-our-endpoint",
];
const STALE = CASES.filter(({ expect: reason }) => (DELETED as readonly string[]).includes(reason));

type Seen = GcOptions["table"];

/** A table that ignores prefilters: it hands over every entry, including those of others. */
const unscreened = (table: FakeConntrack): Seen => ({
  dump: (filter, onEntries) => table.dump(filter, onEntries),
  deleteAll: (entries) => table.deleteAll(entries),
});

function setUp(options: Partial<GcOptions> = {}, seen: (table: FakeConntrack) => Seen = (table) => table) {
  const table = new FakeConntrack();
  const { model, former } = worldWithFormer();
  const names = new Map<string, string>();
  for (const family of FAMILIES) {
    CASES.forEach((one, n) => {
      const entry = table.add(entryOf(one, family, n));
      names.set(`${family} ${entry.id}`, one.name);
      // Every third entry has been answered.
      if (n % 3 === 0) table.change(entry, { status: entry.status | CONNTRACK_STATUS.seenReply });
    });
  }
  const collector = new GarbageCollector({
    table: seen(table),
    model,
    former,
    families: FAMILIES,
    nodePortAddresses: (family) => Promise.resolve(nodePortAddresses(family)),
    ...options,
  });
  const nameOf = (entry: ConntrackEntry) => names.get(`${entry.family} ${entry.id}`) ?? "?";
  const left = (family: "ip" | "ip6") =>
    table
      .entries()
      .filter((entry) => entry.family === family)
      .map(nameOf);
  return { table, model, collector, nameOf, left };
}

const sum = (report: GcReport, what: "alive" | "deleted" | "orphaned") =>
  report.families.map(({ directions }) => directions.original[what] + directions.reply[what]);

describe("a run", () => {
  test("deletes stale entries, finds orphans and keeps them, and counts per family and direction", async () => {
    const { collector, left, nameOf } = setUp();
    const found: string[] = [];
    const report = await collector.run({
      onEntry: (entry, why, outcome) => {
        if (why === "orphan") found.push(`${entry.family} ${nameOf(entry)} ${outcome}`);
      },
    });
    const kept = CASES.filter((one) => !STALE.includes(one)).map(({ name }) => name);
    for (const family of FAMILIES) expect(left(family)).toEqual(kept);
    expect(found).toEqual(FAMILIES.flatMap((family) => ORPHANS.map((name) => `${family} ${name} left`)));
    expect(sum(report, "deleted")).toEqual([STALE.length, STALE.length]);
    expect(sum(report, "alive")).toEqual([kept.length, kept.length]);
    expect(sum(report, "orphaned")).toEqual([ORPHANS.length, ORPHANS.length]);
    const answered = CASES.filter((_one, n) => n % 3 === 0);
    const { reply } = report.families[0].directions;
    expect(reply.alive + reply.deleted).toBe(answered.length);
    expect(reply.deleted).toBe(answered.filter((one) => STALE.includes(one)).length);
    expect(report.deleteRatio).toBeCloseTo(STALE.length / CASES.length);
  });

  test.each([
    ["only its own", undefined],
    ["every entry", unscreened],
  ])(
    "purges orphans on request, and established TCP only if all orphans are requested (passed %s)",
    async (_what, seen) => {
      const { collector, left } = setUp({}, seen);
      const orphaned = [
        "to a service that lost its last endpoint",
        "to a deleted service",
        "to a former port of the service",
        "SCTP, to a removed endpoint",
      ];
      expect(left("ip")).toEqual(expect.arrayContaining(orphaned));
      await collector.run({ orphans: "closing" });
      expect(left("ip")).not.toEqual(expect.arrayContaining(orphaned));
      expect(left("ip")).toEqual(expect.arrayContaining([...ESTABLISHED, "translated by another process"]));
      expect(left("ip")).not.toEqual(expect.arrayContaining([OVER]));
      await collector.run({ orphans: "all", filter: { protocol: 6 } });
      expect(left("ip").filter((name) => ORPHANS.includes(name))).toEqual([]);
      const others = CASES.filter(({ expect: reason }) => OTHERS.includes(reason)).map(({ name }) => name);
      expect(others.length).toBeGreaterThan(3);
      for (const family of FAMILIES) expect(left(family)).toEqual(expect.arrayContaining(others));
    },
  );

  test("does not count an endpoint of another service as an orphan", async () => {
    const { collector, model, left } = setUp();
    const name = "TCP, to a removed endpoint";
    const [address = "", port] = CASES.find((one) => one.name === name)?.from.split(":") ?? [];
    const ports = [{ protocol: "TCP", target: Number(port) }] as const;
    for (const slice of sliceObjects("another", [{ address, ready: false }], ports)) {
      model.upsertSlice(slice);
    }
    const report = await collector.run({ orphans: "all", filter: { protocol: 6 } });
    for (const family of FAMILIES) expect(left(family)).toContain(name);
    expect(sum(report, "orphaned")).toEqual([0, 0]);
  });

  test("reports the same in a dry run, and deletes nothing", async () => {
    const { collector, left } = setUp();
    const before = left("ip");
    const report = await collector.run({ dryRun: true, orphans: "all" });
    expect(left("ip")).toEqual(before);
    const gone = STALE.length + ORPHANS.length;
    expect(sum(report, "deleted")).toEqual([gone, gone]);
  });

  test("counts the entries that the kernel has deleted, and names the others", async () => {
    let absent = "";
    const seen = (table: FakeConntrack): Seen => ({
      dump: (...args) => table.dump(...args),
      deleteAll: (entries) => {
        // The entry ends by itself between the dump and its deletion.
        if (absent === "" && entries[0].family === "ip") {
          absent = `${entries[0].family} ${entries[0].id}`;
          table.expire(entries[0]);
        }
        return table.deleteAll(entries);
      },
    });
    const { collector } = setUp({}, seen);
    const outcomes: string[] = [];
    const report = await collector.run({
      onEntry: ({ family, id }, _why, outcome) => {
        if (outcome === "absent") outcomes.push(`${family} ${id}`);
      },
    });
    expect(outcomes).toEqual([absent]);
    expect(sum(report, "deleted")).toEqual([STALE.length - 1, STALE.length]);
    const reasons = report.families.map((one) => Object.values(one.reasons).reduce((a, b) => a + b, 0));
    expect(reasons).toEqual([STALE.length - 1, STALE.length]);
  });

  test("passes each live entry to the caller, as many as it counts", async () => {
    const { collector, nameOf } = setUp();
    const alive: string[] = [];
    const report = await collector.run({ onAlive: (entry) => void alive.push(`${entry.family} ${nameOf(entry)}`) });
    const kept = CASES.filter((one) => !STALE.includes(one) && !ORPHANS.includes(one.name)).map(({ name }) => name);
    for (const family of FAMILIES) {
      const own = alive.filter((name) => name.startsWith(`${family} `));
      expect(own.toSorted()).toEqual(kept.map((name) => `${family} ${name}`).toSorted());
    }
    expect(sum(report, "alive")).toEqual([kept.length + ORPHANS.length, kept.length + ORPHANS.length]);
  });

  test("reads only one family if the filter names an address of it", async () => {
    const { collector } = setUp();
    const filter = { original: { destination: "10.0.0.30" } };
    expect((await collector.run({ filter })).families.map(({ family }) => family)).toEqual(["ip"]);
    const { families } = await collector.run({ filter: { addresses: ["10.0.0.30", "fd00:10:0:0::30"] } });
    expect(families.map(({ family }) => family)).toEqual(["ip", "ip6"]);
  });

  test("reads only the entries that match a filter", async () => {
    const { collector, left } = setUp();
    const before = left("ip6").length;
    const report = await collector.run({ filter: { family: "ip", original: { destination: "10.0.0.30" } } });
    expect(report.families.map(({ family }) => family)).toEqual(["ip"]);
    expect(sum(report, "deleted")).toEqual([1]);
    expect(left("ip6").length).toBe(before);
  });

  test("returns the same counts for a table that skips what the prefilter allows", async () => {
    const plain = setUp();
    const screened = setUp();
    const { table } = screened;
    const leavingOut: Pick<ConntrackTable, "dump"> = {
      async dump(filter, onEntries, prefilter) {
        let matched = 0;
        let answered = 0;
        const result = await table.dump(filter, async (entries) => {
          matched += entries.length;
          answered += entries.filter(({ status }) => (status & CONNTRACK_STATUS.seenReply) !== 0).length;
          await onEntries(entries.filter((entry) => prefilter === undefined || !maySkip(prefilter, entry)));
        });
        return { ...result, matched, answered };
      },
    };
    const { model, former } = worldWithFormer();
    const collector = new GarbageCollector({
      table: { dump: (...args) => leavingOut.dump(...args), deleteAll: (entries) => table.deleteAll(entries) },
      model,
      former,
      families: FAMILIES,
      nodePortAddresses: (family) => Promise.resolve(nodePortAddresses(family)),
    });
    const { families } = await collector.run();
    expect(families).toEqual((await plain.collector.run()).families);
    expect(screened.left("ip")).toEqual(plain.left("ip"));
  });

  test("returns no ratio after an interrupted dump", async () => {
    const { collector, table } = setUp();
    table.interruptDumps(1);
    expect((await collector.run()).deleteRatio).toBeUndefined();
  });
});

describe("the interval", () => {
  const minutes = 60_000;
  test.each<[string, number, number | undefined, number | undefined, number]>([
    ["half as long after half of the entries were deleted", 10 * minutes, 0.5, undefined, 5 * minutes],
    ["at least a tenth", 10 * minutes, 1, undefined, 1 * minutes],
    ["never below ten seconds", 15_000, 0.9, undefined, GC_MIN_MS],
    ["half as long again after few deletions", 10 * minutes, 0.04, undefined, 15 * minutes],
    ["also after no deletion", 10 * minutes, 0, undefined, 15 * minutes],
    ["never above half an hour", 25 * minutes, 0, undefined, GC_MAX_MS],
    ["the same in between", 10 * minutes, 0.1, undefined, 10 * minutes],
    ["unchanged without any figures", 10 * minutes, undefined, undefined, 10 * minutes],
    ["entries that an early run finds count more", 10 * minutes, 0.1, 2 * minutes, 5 * minutes],
    ["a late run counts like one in time", 10 * minutes, 0.1, 20 * minutes, 10 * minutes],
  ])("%s", (_name, previous, ratio, actual, expected) => {
    expect(gcInterval(previous, ratio, actual)).toBe(expected);
  });
});

function logLines() {
  const lines: Record<string, unknown>[] = [];
  const log = keptIn(lines, "info");
  return { lines, log };
}

describe("in the background", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  const report = (deleteRatio: number): GcReport => ({ families: [], ms: 1, deleteRatio });

  test("runs after the interval, adapts it, and continues after a failure", async () => {
    const { log, lines } = logLines();
    const ratios = [0.5, 0];
    const runs: number[] = [];
    const collector = {
      run: () => {
        runs.push(Date.now());
        const ratio = ratios.shift();
        return ratio === undefined ? Promise.reject(new Error("ENOBUFS")) : Promise.resolve(report(ratio));
      },
    };
    const runner = new GcRunner({ collector, log, now: () => Date.now() });
    const start = Date.now();
    runner.start();
    await vi.advanceTimersByTimeAsync(GC_START_MS);
    expect(runner.intervalMs).toBe(GC_START_MS / 2);
    await vi.advanceTimersByTimeAsync(GC_START_MS / 2);
    expect(runner.intervalMs).toBe(GC_START_MS * 0.75);
    await vi.advanceTimersByTimeAsync(2 * GC_START_MS * 0.75);
    expect(runs.map((at) => (at - start) / GC_START_MS)).toEqual([1, 1.5, 2.25, 3]);
    expect(lines.map(({ msg }) => msg)).toEqual(Array.from({ length: 2 }, () => "collecting stale entries failed"));
    await runner.stop();
    await vi.advanceTimersByTimeAsync(10 * GC_START_MS);
    expect(runs.length).toBe(4);
  });

  test("a given interval is kept; an early run also purges closing entries", async () => {
    const { log } = logLines();
    const asked: unknown[] = [];
    const collector = {
      run: (request: GcRequest = {}) => {
        asked.push(request.orphans);
        return Promise.resolve(report(0.9));
      },
    };
    const runner = new GcRunner({ collector, log, interval: 60_000, now: () => Date.now() });
    runner.start();
    await vi.advanceTimersByTimeAsync(120_000);
    expect([asked, runner.intervalMs]).toEqual([["spent", "spent"], 60_000]);
    runner.trigger("insert-failed");
    await vi.advanceTimersByTimeAsync(GC_MIN_MS);
    expect(asked).toEqual(["spent", "spent", "closing"]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked).toEqual(["spent", "spent", "closing", "spent"]);
    await runner.stop();
  });

  test("a trigger starts the next run earlier, but never two within ten seconds", async () => {
    const { log } = logLines();
    let runs = 0;
    const collector = {
      run: () => {
        runs++;
        return Promise.resolve(report(0.1));
      },
    };
    const runner = new GcRunner({ collector, log, now: () => Date.now() });
    runner.trigger("too early: not started");
    runner.start();
    runner.trigger("insert-failed");
    await vi.advanceTimersByTimeAsync(1);
    expect(runs).toBe(1);
    for (let i = 0; i < 5; i++) runner.trigger("table-full");
    await vi.advanceTimersByTimeAsync(GC_MIN_MS - 10);
    expect(runs).toBe(1);
    await vi.advanceTimersByTimeAsync(20);
    expect(runs).toBe(2);
    await runner.stop();
  });

  test("a trigger during a run also starts the next run earlier", async () => {
    const { log } = logLines();
    const asked: unknown[] = [];
    let end = (_report: GcReport): void => undefined;
    const collector = {
      run: (request: GcRequest = {}) => {
        asked.push(request.orphans);
        return new Promise<GcReport>((resolve) => (end = resolve));
      },
    };
    const runner = new GcRunner({ collector, log, now: () => Date.now() });
    runner.start();
    await vi.advanceTimersByTimeAsync(GC_START_MS);
    runner.trigger("insert-failed");
    end(report(0.1));
    await vi.advanceTimersByTimeAsync(GC_MIN_MS);
    expect(asked).toEqual(["spent", "closing"]);
    end(report(0.1));
    await runner.stop();
  });

  test("a table that is nearly full causes one warning with advice, until it has had room again", async () => {
    const { log, lines } = logLines();
    const table = { entries: 0, max: 100, failed: 0, dropped: 0 };
    const distress: string[] = [];
    const monitor = new PressureMonitor({
      table: {
        count: () => Promise.resolve(table.entries),
        max: () => Promise.resolve(table.max),
        stats: () =>
          Promise.resolve({
            found: 0,
            invalid: 0,
            insert: 0,
            insertFailed: table.failed,
            drop: table.dropped,
            earlyDrop: 0,
            error: 0,
          }),
      },
      log,
      onDistress: (what) => distress.push(what),
      intervalMs: 1000,
    });
    monitor.start();
    for (const entries of [50, 91, 95, 85, 92, 79, 91]) {
      table.entries = entries;
      await vi.advanceTimersByTimeAsync(1000);
    }
    expect(lines).toMatchObject([
      { msg: "connection tracking table nearly full", percent: 91 },
      { msg: "connection tracking table relieved" },
      { msg: "connection tracking table nearly full", percent: 91 },
    ]);
    expect(String(lines[0]["hint"])).toMatch(/To prevent that, raise net\.netfilter\.nf_conntrack_max/);
    expect(distress).toEqual(["pressure", "pressure", "pressure", "pressure"]);
    distress.length = 0;
    table.entries = 10;
    table.failed = 3;
    await vi.advanceTimersByTimeAsync(1000);
    table.dropped = 1;
    await vi.advanceTimersByTimeAsync(2000);
    expect(distress).toEqual(["insert-failed", "table-full"]);
    await monitor.stop();
  });

  test("a table whose figures cannot be read is reported once, and checked again", async () => {
    const { log, lines } = logLines();
    const table = new FakeConntrack();
    for (let i = 0; i < 2; i++) table.failNext({ action: "stats", errno: "EPERM" });
    let samples = 0;
    const monitor = new PressureMonitor({ table, log, onSample: () => samples++, intervalMs: 1000 });
    monitor.start();
    await vi.advanceTimersByTimeAsync(3500);
    expect(lines.length).toBe(1);
    expect(samples).toBe(2);
    await monitor.stop();
  });
});

test("metrics have the documented names and labels", async () => {
  const registry = new Registry();
  const metrics = new ConntrackMetrics(registry);
  metrics.pressure({ entries: 50, max: 200, pressure: 0.25, insertFailed: 7, dropped: 0 });
  metrics.pressure({ entries: 60, max: 200, pressure: 0.3, insertFailed: 9, dropped: 0 });
  const { collector } = setUp();
  metrics.collected(await collector.run());
  const text = await registry.metrics();
  for (const line of [
    "nftproxier_conntrack_entries 60",
    "nftproxier_conntrack_max 200",
    "nftproxier_conntrack_pressure 0.3",
    "nftproxier_conntrack_insert_failed_total 9",
    "nftproxier_conntrack_gc_duration_seconds_count 1",
  ]) {
    expect(text.split("\n")).toContain(line);
  }
  for (const family of ["IPv4", "IPv6"]) {
    for (const direction of ["original", "reply"]) {
      for (const outcome of ["alive", "deleted", "orphaned"]) {
        const series = `nftproxier_conntrack_gc_entries{family="${family}",direction="${direction}",outcome="${outcome}"}`;
        expect(text).toContain(series);
      }
    }
  }
});
