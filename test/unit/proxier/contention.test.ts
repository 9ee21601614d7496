/** Another process that keeps reverting the proxier's writes. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Op } from "../../../src/nft/kernel/kernel.js";
import { ProxyHealth } from "../../../src/observe/proxy-health.js";
import type { ContentionReport, SyncReport } from "../../../src/proxier/observer.js";
import { Contention } from "../../../src/proxier/contention.js";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { keptIn, type LogLine } from "../../support/log.ts";
import { makeProxier, putService } from "./support/proxier.js";
import { fakeTime, pass } from "./support/fake-time.js";

const TABLE = { family: "ip", table: "kube-proxy" } as const;
const theirs = (n: number): Op => ({ op: "add", kind: "chain", ...TABLE, chain: `theirs-${n}` });
const CONTENDED = "tables contended by another process";
const OVER = "contention ended";

let kernel: FakeKernel;
let logged: LogLine[];
let contended: ContentionReport[];
let syncs: SyncReport[];
let health: ProxyHealth;
let proxier: Proxier;

beforeEach(async () => {
  fakeTime();
  kernel = new FakeKernel();
  logged = [];
  contended = [];
  syncs = [];
  const clock = { now: () => performance.now() };
  health = new ProxyHealth({ families: ["ip"], timeoutMs: 60_000, nodeName: undefined, clock });
  proxier = makeProxier(kernel, {
    log: keptIn(logged),
    clock,
    cpuMs: clock.now,
    watch: true,
    observers: [
      health,
      {
        contended: (report) => void contended.push(report),
        synced: (report) => void syncs.push(report),
      },
    ],
  });
  put(0, [1, 2]);
  proxier.synced();
  proxier.flush();
  await pass(1000);
});
afterEach(async () => {
  await proxier.stop();
  vi.useRealTimers();
});

const put = (index: number, pods: readonly number[]): void => putService(proxier, index, pods);

const said = (message: string): LogLine[] => logged.filter(({ msg }) => msg === message);
const repairs = (): number => logged.filter(({ msg }) => msg.includes("repaired")).length;

/** Another process with its own socket, which restores its chain whenever it is removed. */
class Rival {
  readonly kernel: FakeKernel;
  #written = 0;

  constructor(name: string) {
    this.kernel = kernel.asOther(undefined, name);
  }

  async fight(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += 50) {
      const names = (await kernel.chains(TABLE)).map(({ chain }) => chain);
      if (!names.includes(`theirs-${this.#written}`)) {
        await this.kernel.commit([theirs(++this.#written)]);
      }
      await pass(50);
    }
  }
}

describe("many other processes", () => {
  it("are reported with five names", async () => {
    const reports: ContentionReport[] = [];
    const contention = new Contention({
      observers: [{ contended: (report) => void reports.push(report) }],
      log: keptIn([]),
      clock: { now: () => performance.now() },
    });
    const by = Array.from({ length: 20 }, (_, i) => `kube-proxy (pid ${i})`);
    for (let round = 0; round < 20; round++) contention.repaired(by);
    await pass(1000);
    contention.close();
    expect(reports.map((report) => report.by.length)).toEqual([5]);
  });
});

describe("another proxier", () => {
  it("is reported once, as an error with its process, and later repairs are not warnings", async () => {
    const rival = new Rival("nft-proxier");
    await rival.fight(40_000);
    expect(said(CONTENDED)).toMatchObject([
      { level: "error", by: [expect.stringMatching(/^nft-proxier \((pid|thread) \d+/)], pid: process.pid },
    ]);
    expect(said(CONTENDED)[0]["hint"]).toContain("two proxiers serve this node");
    expect(contended).toHaveLength(1);
    expect(logged.filter(({ level, msg }) => level === "warn" && msg.includes("repaired")).length).toBe(6);
    expect(repairs()).toBeGreaterThan(100);
    // A restart would not help.
    expect(health.livez().code).toBe(200);
  });

  it("does not delay changes of services", async () => {
    const rival = new Rival("nft-proxier");
    const sets = kernel.sets.bind(kernel);
    // A read takes so long that the next one waits.
    kernel.sets = (ref) => {
      vi.advanceTimersByTime(500);
      return sets(ref);
    };
    await rival.fight(200);
    const before = repairs();
    await rival.kernel.commit([theirs(1000)]);
    await pass(100);
    put(1, [3]);
    proxier.flush();
    await pass(100);
    expect(repairs()).toBe(before);
    expect(syncs.at(-1)).toMatchObject({ ok: true, services: ["bench/svc-1"], repairPending: true });
    const set = (await kernel.sets(TABLE)).find(({ set: name }) => name === "services")!;
    expect((await kernel.elements(TABLE, set)).count).toBe(2);
  });

  it("is over after some seconds without changes, and one line says so", async () => {
    const rival = new Rival("nft-proxier");
    await rival.fight(2000);
    await pass(18_000);
    expect(said(OVER)).toEqual([]);
    expect(repairs()).toBeGreaterThan(5);
    await pass(3000);
    expect(said(OVER)).toHaveLength(1);
    // If it comes back, that is logged again.
    await rival.fight(2000);
    expect(said(CONTENDED)).toHaveLength(2);
  });

  it("a second proxier that writes once and ends, like `run --once`, does not compete", async () => {
    for (let i = 0; i < 4; i++) {
      const rival = new Rival("nft-proxier");
      await rival.kernel.commit([theirs(i)]);
      await pass(50);
    }
    expect(repairs()).toBe(4);
    expect(said(CONTENDED)).toEqual([]);
  });
});

describe("any other program", () => {
  it("five changes in a row are ordinary: each is repaired at once, without further messages", async () => {
    const rival = new Rival("nft");
    for (let i = 0; i < 5; i++) {
      await rival.kernel.commit([theirs(i)]);
      await pass(1);
      expect(repairs()).toBe(i + 1);
      await pass(3000);
    }
    expect(said(CONTENDED)).toEqual([]);
  });

  it("changes that are far apart are unrelated", async () => {
    const rival = new Rival("nft");
    for (let i = 0; i < 8; i++) {
      await rival.kernel.commit([theirs(i)]);
      await pass(21_000);
    }
    expect(repairs()).toBe(8);
    expect(said(CONTENDED)).toEqual([]);
  });

  it("repeated changes are logged once", async () => {
    const rival = new Rival("firewalld");
    await rival.fight(5_000);
    expect(said(CONTENDED)).toMatchObject([{ by: [expect.stringMatching(/^firewalld /)] }]);
    expect(said(CONTENDED)[0]["hint"]).toContain("--own-table");
  });

  it("the hint says that nft may be kube-proxy's, which starts it for each change", async () => {
    const rival = new Rival("nft");
    await rival.fight(13_000);
    expect(said(CONTENDED)).toMatchObject([{ by: [expect.stringMatching(/^nft /)] }]);
    expect(said(CONTENDED)[0]["hint"]).toMatch(/^nft may be kube-proxy in mode nftables\. If .* end it; .*--own-table/);
  });
});

it("a table that cannot be repaired makes /livez 503 in the end, even if no service changes", async () => {
  const commit = kernel.commit.bind(kernel);
  kernel.commit = () => Promise.reject(new Error("the kernel refuses everything"));
  const rival = new Rival("nft");
  await rival.kernel.commit([{ op: "delete", kind: "table", ...TABLE }]);
  await pass(59_000);
  expect(health.livez().code).toBe(200);
  await pass(2000);
  expect(health.livez().code).toBe(503);
  kernel.commit = commit;
  await pass(31_000);
  expect(health.livez().code).toBe(200);
});
