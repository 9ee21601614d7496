/** `--own-table`, where the kernel can and where it cannot. */
import { beforeEach, expect, it, onTestFinished, vi } from "vitest";

import { TableFlag } from "../../../src/kernel/constants.js";
import { FakeKernel } from "../../../src/kernel/fake-kernel.js";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { makeService, makeSlice } from "../../bench/cluster.js";
import { keptIn } from "../log.js";
import { makeProxier } from "./support/proxier.js";
import { refuse } from "./support/refusing.js";

let kernel: FakeKernel;
let logged: { level: number; msg: string }[];

beforeEach(() => {
  kernel = new FakeKernel();
  logged = [];
});

function start(): Proxier {
  const proxier = makeProxier(kernel, { families: ["ip", "ip6"], log: keptIn(logged, "info"), ownTable: true });
  proxier.upsert({ kind: "Service", object: makeService(0) });
  proxier.upsert({ kind: "EndpointSlice", object: makeSlice(0, [1]) });
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

it("an older kernel: one line in the log, and on without it", async () => {
  const refusals = refuse(kernel);
  refusals.errno = "EOPNOTSUPP";
  refusals.refuses = (op) => op.kind === "table" && ((op.flags ?? 0) & TableFlag.persist) !== 0;
  expect((await start().sync()).ok).toBe(true);
  expect((await kernel.tables()).map(({ flags }) => flags)).toEqual([0, 0]);
  expect(aboutOwning()).toHaveLength(1);
});

it("a table that another program owns: an error, nobody set aside, and it is had when that ends", async () => {
  const other = kernel.asOther();
  const flags = TableFlag.owner | TableFlag.persist;
  await other.commit([{ op: "add", kind: "table", family: "ip", table: "kube-proxy", flags }]);
  const proxier = start();
  const { ok, families } = await proxier.sync();
  expect(ok).toBe(false);
  expect(families.map(({ outcome }) => outcome.ok)).toEqual([false, true]);
  expect(logged.filter(({ level }) => level === 50)).toMatchObject([
    {
      msg: "the kernel's table was not changed",
      err: { message: expect.stringContaining("owned by another program") },
    },
  ]);
  await other.close();
  expect((await proxier.sync()).ok).toBe(true);
  expect((await kernel.tables()).map(({ owner }) => owner)).toEqual([kernel.portId, kernel.portId]);
});

it("a table that another program owns for long: that is said once, it is looked at often, and a look is cheap", async () => {
  const other = kernel.asOther();
  const flags = TableFlag.owner | TableFlag.persist;
  await other.commit([{ op: "add", kind: "table", family: "ip", table: "kube-proxy", flags }]);
  const proxier = start();
  await proxier.sync();
  const dumps = new Set<string>();
  kernel.setLatency((action) => void dumps.add(action));
  for (let i = 0; i < 20; i++) {
    const { families } = await proxier.sync();
    // Longer and longer waits, as after other failures, would have a successor wait for minutes.
    expect(families[0].outcome).toMatchObject({ ok: false, againMs: 500 });
  }
  expect([...dumps]).toEqual(["dump tables"]);
  expect(logged.filter(({ level }) => level === 50)).toHaveLength(1);
  await other.close();
  expect((await proxier.sync()).ok).toBe(true);
});

it("a successor that waits has the table soon after its owner has ended", async () => {
  const other = kernel.asOther();
  const flags = TableFlag.owner | TableFlag.persist;
  await other.commit([{ op: "add", kind: "table", family: "ip", table: "kube-proxy", flags }]);
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const proxier = start();
  proxier.flush();
  await vi.advanceTimersByTimeAsync(60_000);
  const owners = async (): Promise<unknown> => (await kernel.tables()).map(({ owner }) => owner);
  expect(await owners()).toEqual([other.portId, kernel.portId]);
  await other.close();
  await vi.advanceTimersByTimeAsync(1000);
  expect(await owners()).toEqual([kernel.portId, kernel.portId]);
  await proxier.stop();
});
