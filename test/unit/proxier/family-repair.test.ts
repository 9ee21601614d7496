/** How the proxier handles other processes' changes to its tables. */
import { afterEach, beforeEach, describe, expect, it, test, vi } from "vitest";

import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Op } from "../../../src/nft/kernel/kernel.js";
import type { RepairReport } from "../../../src/proxier/observer.js";
import type { Proxier, ProxierOptions } from "../../../src/proxier/proxier.js";
import { RepairPace } from "../../../src/proxier/family-repair.js";
import { KeyPacker } from "../../../src/ruleset/key-packer.js";
import { shardOf } from "../../../src/ruleset/list-values.js";
import { endpointsName } from "../../../src/ruleset/names.js";
import { checkPause } from "../../../src/proxier/watcher.js";
import { snapshot } from "../../support/snapshot.ts";
import { keptIn } from "../../support/log.ts";
import { makeProxier, putService } from "./support/proxier.js";
import { fakeTime, pass } from "./support/fake-time.js";

describe("RepairPace", () => {
  it("starts short repairs at once, and delays long ones by nine times their duration, up to 10 s", () => {
    const pace = new RepairPace();
    const now = 1000;
    for (let i = 0; i < 10; i++) {
      expect(pace.waitMs(now)).toBe(0);
      pace.spent(now, 20);
    }
    expect(pace.waitMs(now)).toBe(0);
    pace.spent(now, 20);
    expect(pace.waitMs(now)).toBeCloseTo(180, 5);
    expect(pace.waitMs(now + 181)).toBe(0);
    // 10 ms every 2 s use a twentieth of the budget.
    for (let i = 0; i < 1000; i++) {
      expect(pace.waitMs(now + 2000 * (i + 1))).toBe(0);
      pace.spent(now + 2000 * (i + 1), 10);
    }
    const late = now + 3_000_000;
    pace.spent(late, 1000);
    expect(pace.waitMs(late)).toBe(7000);
    pace.spent(late, 60_000);
    expect(pace.waitMs(late)).toBe(10_000);
  });
});

test("checks every five minutes, or less often if checks take long: a five-hundredth of the time, at most an hour apart", () => {
  expect([10, 600, 1000, 7200, 20_000].map((tookMs) => checkPause(tookMs))).toEqual([
    300_000, 300_000, 500_000, 3_600_000, 3_600_000,
  ]);
});

const TABLE = { family: "ip", table: "kube-proxy" } as const;
const deleteTable: Op = { op: "delete", kind: "table", ...TABLE };
const foreignChain: Op = { op: "add", kind: "chain", ...TABLE, chain: "theirs" };

let kernel: FakeKernel;
let other: FakeKernel;
let logged: Record<string, unknown>[];
let repairs: RepairReport[];
let proxier: Proxier;

function make(more: Partial<ProxierOptions> = {}): Proxier {
  return makeProxier(kernel, {
    log: keptIn(logged),
    watch: true,
    observers: [{ repaired: (report) => void repairs.push(report) }],
    cpuMs: () => performance.now(),
    ...more,
  });
}

const put = (index: number, pods: readonly number[]): void => putService(proxier, index, pods);

async function chains(): Promise<string[]> {
  return (await kernel.chains(TABLE)).map(({ chain }) => chain);
}

const warnings = (): Record<string, unknown>[] =>
  logged.filter(({ msg }) => String(msg).includes("changed by another process"));

beforeEach(() => {
  fakeTime();
  kernel = new FakeKernel();
  other = kernel.asOther(undefined, "nft");
  logged = [];
  repairs = [];
  proxier = make();
});
afterEach(async () => {
  await proxier.stop();
  vi.useRealTimers();
});

/** The elements that a first start would write for service 0 with these pods. */
async function writtenFor(pods: readonly number[]): Promise<Awaited<ReturnType<typeof snapshot>>> {
  const another = new FakeKernel();
  const first = makeProxier(another, {});
  putService(first, 0, pods);
  await first.sync();
  await first.stop();
  return snapshot(another);
}

/** From now on every read of the table takes this long. */
function readsTake(ms: number): { count: number } {
  const reads = { count: 0 };
  const sets = kernel.sets.bind(kernel);
  kernel.sets = (ref) => {
    reads.count++;
    vi.advanceTimersByTime(ms);
    return sets(ref);
  };
  return reads;
}

async function begin(): Promise<void> {
  put(0, [1, 2]);
  proxier.synced();
  proxier.flush();
  await pass(1);
  await pass(1000);
}

describe("a table that another process changes", () => {
  it("is repaired at once; the log and the observers receive the change and its process", async () => {
    await begin();
    const wanted = await snapshot(kernel);
    await other.commit([deleteTable]);
    await pass(1);
    expect(await snapshot(kernel)).toEqual(wanted);
    expect(repairs).toMatchObject([
      {
        family: "ip",
        cause: "table-deleted",
        found: ["the table was deleted"],
        changes: ["table deleted"],
        by: [expect.stringMatching(/^nft \((pid|thread) \d+/)],
      },
    ]);
    expect(repairs[0].operations).toBeGreaterThan(20);
    expect(repairs[0].ms).toBeLessThan(50);
    expect(warnings()).toMatchObject([{ msg: expect.stringContaining("repaired") as string, cause: "table-deleted" }]);
    await pass(1000);
    await other.commit([foreignChain]);
    await pass(1);
    expect(repairs[1]).toMatchObject({ cause: "changed", changes: ["chain theirs added or changed"] });
    expect(repairs[1].ms).toBeLessThan(50);
  });

  it("is not repaired before the first full list is complete", async () => {
    put(0, [1]);
    await proxier.prepare();
    await other.commit([{ op: "add", kind: "table", ...TABLE }, foreignChain]);
    await pass(1000);
    expect(await chains()).toEqual(["theirs"]);
    proxier.synced();
    proxier.flush();
    await pass(1);
    expect(await chains()).not.toContain("theirs");
  });

  it("repeated changes are repaired for a tenth of the time, while services keep changing", async () => {
    await begin();
    readsTake(20);
    const started = performance.now();
    let broken = 0;
    for (let ms = 0; ms < 20_000; ms += 50) {
      if (!(await chains()).includes("theirs")) {
        await other.commit([foreignChain]);
        broken++;
      }
      if (ms % 1000 === 0) {
        put(1 + ms / 1000, [1, 2, 3]);
        proxier.flush();
      }
      await pass(50);
    }
    expect(broken).toBeGreaterThan(80);
    expect(broken).toBeLessThan(130);
    expect(repairs.length).toBeLessThanOrEqual(broken);
    expect(new Set(repairs.map(({ cause }) => cause))).toEqual(new Set(["changed"]));
    const written = logged.filter(({ msg }) => msg === "synced");
    expect(written.length).toBeGreaterThanOrEqual(20);
    expect(performance.now() - started).toBeGreaterThan(19_000);
    // A quiet period.
    await pass(11_000);
    expect(await chains()).not.toContain("theirs");
    await pass(60_000);
    await other.commit([foreignChain]);
    await pass(1);
    expect(await chains()).not.toContain("theirs");
  });

  it("repeated changes cause no write before their repair is due", async () => {
    let writes = 0;
    proxier.observe({ synced: () => void writes++ });
    await begin();
    readsTake(2000);
    await other.commit([foreignChain]);
    await pass(1);
    const before = writes;
    for (let ms = 0; ms < 5000; ms += 50) {
      await other.commit([foreignChain]);
      await pass(50);
    }
    expect(writes - before).toBeLessThan(4);
    await pass(10_000);
    expect(await chains()).not.toContain("theirs");
  });

  it("a change that is reverted is checked, but not all the time", async () => {
    await begin();
    const reads = readsTake(4);
    const before = kernel.commits.length;
    for (let ms = 0; ms < 4000; ms += 10) {
      await other.commit([foreignChain]);
      await other.commit([{ op: "delete", kind: "chain", ...TABLE, chain: "theirs" }]);
      await pass(10);
    }
    expect(reads.count).toBeGreaterThan(10);
    // The first fifty come at once, and a hundred in four seconds.
    expect(reads.count).toBeLessThan(180);
    expect(kernel.commits).toHaveLength(before);
    expect(repairs).toEqual([]);
    await pass(2000);
    await other.commit([deleteTable]);
    await pass(1000);
    // Changes that were undone before they were seen are not reported with it.
    expect(repairs).toMatchObject([{ cause: "table-deleted", changes: ["table deleted"] }]);
  });

  it("a change that prevents all writes waits for its repair, without an error for each further change", async () => {
    await begin();
    const tables = kernel.tables.bind(kernel);
    // A read takes a while.
    kernel.tables = (family) => {
      vi.advanceTimersByTime(1000);
      return tables(family);
    };
    await other.commit([deleteTable]);
    await pass(1);
    await other.commit([deleteTable]);
    for (let i = 1; i < 6; i++) {
      put(i, [1]);
      proxier.flush();
      await pass(100);
    }
    expect(repairs).toHaveLength(1);
    expect(await tables()).toEqual([]);
    expect(logged.filter(({ level }) => level === "error")).toEqual([]);
    await pass(10_000);
    expect(repairs).toHaveLength(2);
    expect(await chains()).toContain("services");
  });

  it("a change while events were lost is found by a read, and counted as such", async () => {
    await begin();
    const monitors = kernel.monitor.bind(kernel);
    kernel.breakMonitors(new Error("gone"));
    await pass(0);
    await other.commit([foreignChain]);
    kernel.monitor = monitors;
    await pass(1001);
    await pass(1);
    expect(await chains()).not.toContain("theirs");
    expect(repairs).toMatchObject([{ cause: "events-lost", found: ["chain theirs: added"], changes: [], by: [] }]);
  });

  it("a change while some events were lost is counted by the received ones", async () => {
    await begin();
    await other.commit([foreignChain]);
    kernel.loseEvents();
    await pass(1);
    expect(repairs).toMatchObject([{ cause: "changed", changes: ["chain theirs added or changed"] }]);
  });

  it("a change without any event is found by a check within five minutes", async () => {
    await begin();
    // The events of one commit never arrive.
    const listeners = other.asOther();
    await proxier.stop();
    proxier = make();
    const monitor = kernel.monitor.bind(kernel);
    kernel.monitor = (handlers, options) => monitor({ ...handlers, onBatch: () => undefined }, options);
    await begin();
    await listeners.commit([foreignChain]);
    await pass(299_000);
    expect(await chains()).toContain("theirs");
    await pass(1001);
    await pass(1);
    expect(await chains()).not.toContain("theirs");
    expect(repairs).toMatchObject([{ cause: "check", found: ["chain theirs: added"] }]);
    const before = kernel.commits.length;
    await pass(300_000);
    expect(kernel.commits).toHaveLength(before);
    await listeners.commit([foreignChain]);
    await pass(300_000);
    await pass(1);
    expect(await chains()).not.toContain("theirs");
  });

  it("is checked again after a check that could not read", async () => {
    await begin();
    // A read retries this many times.
    kernel.interruptDumps(5);
    await pass(300_000);
    const failed = logged.filter(({ msg }) => msg === "checking the table failed");
    expect(failed).toMatchObject([{ level: "warn", family: "ip" }]);
    const before = logged.length;
    await pass(300_000);
    expect(logged.slice(before)).toMatchObject([{ level: "debug", outcome: "same" }]);
    expect(repairs).toEqual([]);
  });

  it("a change that causes a refused write is repaired with that write, and counted as such", async () => {
    let calls = 0;
    proxier = make({ watch: false, clock: { now: () => performance.now() + ++calls / 1000 } });
    await begin();
    // As with a watch, which here does not hear of the change.
    for (const { table } of proxier.families) table.listening(true);
    const shard = shardOf(new KeyPacker("ip").vip("10.96.0.1", "TCP", 80).service);
    const endpoints = endpointsName(shard);
    await other.commit([{ op: "flush", kind: "elements", ...TABLE, set: endpoints }]);
    put(0, [3, 4]);
    proxier.flush();
    await pass(100);
    expect(repairs).toMatchObject([{ cause: "conflict", found: [`set ${endpoints}: elements 2 gone`], changes: [] }]);
    // Measured from the start of the write: nobody had noticed the change before.
    expect(repairs[0].ms).toBeGreaterThan(0);
    expect(await snapshot(kernel)).toEqual(await writtenFor([3, 4]));
  });

  it("is ignored without the option", async () => {
    proxier = make({ watch: false });
    await begin();
    await other.commit([foreignChain]);
    await pass(10_000);
    expect(await chains()).toContain("theirs");
  });
});
