/** `--own-table`, with and without the kernel's support. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { TableFlag } from "../../../src/nft/kernel/constants.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { SyncReport } from "../../../src/proxier/observer.js";
import type { Proxier, ProxierOptions } from "../../../src/proxier/proxier.js";
import { makeService } from "../../bench/cluster.js";
import { keptIn, type LogLine } from "../../support/log.ts";
import { makeProxier, putService } from "./support/proxier.js";
import { refuse } from "./support/refusing.js";
import { decoded } from "../../support/decoded.js";
import { fakeTime, passInSteps } from "./support/fake-time.js";

let kernel: FakeKernel;
let logged: LogLine[];

beforeEach(() => {
  kernel = new FakeKernel();
  logged = [];
});

function start(more: Partial<ProxierOptions> = {}): Proxier {
  const proxier = makeProxier(kernel, {
    families: ["ip", "ip6"],
    log: keptIn(logged, "info"),
    ownTable: true,
    ...more,
  });
  putService(proxier, 0, [1]);
  proxier.synced();
  return proxier;
}

const aboutOwning = (): string[] => logged.map(({ msg }) => msg).filter((msg) => msg.includes("outlive their owner"));

it("both families' tables are owned", async () => {
  expect((await start().sync()).ok).toBe(true);
  for (const table of await kernel.tables()) {
    expect(table).toMatchObject({ flags: TableFlag.owner | TableFlag.persist, owner: kernel.portId });
  }
  expect(aboutOwning()).toEqual([]);
});

it("an older kernel causes one line in the log, and the tables are not owned", async () => {
  const refusals = refuse(kernel);
  refusals.errno = "EOPNOTSUPP";
  refusals.refuses = (op) => op.kind === "table" && ((op.flags ?? 0) & TableFlag.persist) !== 0;
  expect((await start().sync()).ok).toBe(true);
  expect((await kernel.tables()).map(({ flags }) => flags)).toEqual([0, 0]);
  expect(aboutOwning()).toHaveLength(1);
});

it("a table that another program owns is an error without a quarantined service, and claimed after that program's end", async () => {
  const other = kernel.asOther();
  const flags = TableFlag.owner | TableFlag.persist;
  await other.commit([{ op: "add", kind: "table", family: "ip", table: "kube-proxy", flags }]);
  const proxier = start();
  const { ok, families } = await proxier.sync();
  expect(ok).toBe(false);
  expect(families.map(({ outcome }) => outcome.ok)).toEqual([false, true]);
  expect(logged.filter(({ level }) => level === "error")).toMatchObject([
    {
      msg: "writing the table failed",
      err: expect.stringContaining("owned by another program"),
    },
  ]);
  await other.close();
  await expect.poll(async () => (await proxier.sync()).ok).toBe(true);
  expect((await kernel.tables()).map(({ owner }) => owner)).toEqual([kernel.portId, kernel.portId]);
});

describe("a table that another program owns for a long time", () => {
  const flags = TableFlag.owner | TableFlag.persist;
  const table = { family: "ip6", table: "kube-proxy" } as const;
  const owner = async (): Promise<number | undefined> =>
    (await kernel.tables()).find(({ family }) => family === table.family)?.owner;
  let other: FakeKernel;
  let proxier: Proxier;
  let syncs: SyncReport[];

  beforeEach(async () => {
    fakeTime();
    other = kernel.asOther();
    await other.commit([{ op: "add", kind: "table", ...table, flags }]);
    syncs = [];
    proxier = start({ watch: true, observers: [{ synced: (report) => void syncs.push(report) }] });
    proxier.flush();
    await passInSteps(50);
  });
  afterEach(async () => {
    await proxier.stop();
    vi.useRealTimers();
  });

  const failures = (): number => syncs.filter(({ family, ok }) => family === "ip6" && !ok).length;

  it("is tried with backoff up to the sync period, and reported once", async () => {
    const counts: number[] = [];
    for (const ms of [950, 2000, 4000, 8000, 16_000, 30_000, 30_000]) {
      await passInSteps(ms);
      counts.push(failures());
    }
    expect(counts).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(logged.filter(({ level }) => level === "error")).toHaveLength(1);
    // The other family has nothing to do meanwhile.
    expect(syncs.filter(({ family }) => family === "ip").length).toBeLessThan(12);
  });

  it("causes no failure for each new change, or for its owner's writes, and the other family is written", async () => {
    const before = failures();
    for (let i = 1; i < 15; i++) {
      proxier.upsert(decoded({ kind: "Service", object: makeService(i) }));
      proxier.flush();
      await other.commit([{ op: "add", kind: "chain", ...table, chain: `chain-${i}` }]);
      await passInSteps(50);
    }
    expect(failures() - before).toBeLessThan(2);
    const written = syncs.filter(({ family, ok, work }) => family === "ip" && ok && work?.transactions !== 0);
    expect(written.length).toBeGreaterThanOrEqual(15);
  });

  it("is claimed soon after its owner ended, which no event reports", async () => {
    await passInSteps(60_000);
    expect(await owner()).toBe(other.portId);
    await other.close();
    await passInSteps(1000);
    expect(await owner()).toBe(kernel.portId);
    expect(logged.filter(({ msg }) => msg === "table released by its owner")).toMatchObject([
      { level: "info", family: "ip6", seconds: expect.closeTo(61, -1) as number },
    ]);
    // The kernel removed the owner's flag itself: no process changed anything.
    expect(logged.filter(({ msg }) => msg.includes("changed the kernel's table"))).toEqual([]);
    await passInSteps(60_000);
    expect(failures()).toBeLessThan(8);
  });

  it("is claimed at once when its owner deletes it", async () => {
    await passInSteps(60_100);
    await other.commit([{ op: "delete", kind: "table", ...table }]);
    await passInSteps(100);
    expect(await owner()).toBe(kernel.portId);
  });

  it("is reported again when its owner changes", async () => {
    await passInSteps(5000);
    const next = kernel.asOther();
    await other.close();
    await next.commit([{ op: "add", kind: "table", ...table, flags }]);
    await passInSteps(5000);
    expect(await owner()).toBe(next.portId);
    expect(logged.filter(({ level }) => level === "error")).toHaveLength(2);
    await next.close();
  });
});
