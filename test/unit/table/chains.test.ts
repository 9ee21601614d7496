/** Objects that are written before verdicts that refer to them, and objects that outlive those verdicts for a while. */
import { beforeEach, describe, expect, it } from "vitest";

import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Table } from "../../../src/nft/engine-exports.js";
import { drop, ENDPOINTS, indexed, operations, OWN, rule, serviceTable, VIPS } from "../../conformance/table/build.js";

let kernel: FakeKernel;
beforeEach(() => (kernel = new FakeKernel()));

describe("chains of an earlier run", () => {
  /** A service with two endpoints in the earlier run, and one in this one. */
  async function restarted(kernel: FakeKernel, clock: { now(): number }): Promise<Table> {
    const earlier = serviceTable(kernel);
    earlier.service(1, 2);
    earlier.service(3, 3);
    await earlier.table.apply();
    const { table, service } = serviceTable(kernel, { clock });
    table.packedSet({ ...VIPS, deferUndesired: true });
    await table.load();
    service(1, 1);
    return table;
  }
  const names = async (kernel: FakeKernel): Promise<string[]> =>
    (await kernel.chains(OWN)).map(({ chain }) => chain).filter((chain) => chain.startsWith("draw"));

  it("stay with their rules while elements in their grace period refer to them", async () => {
    let now = 0;
    const table = await restarted(kernel, { now: () => now });
    expect((await table.apply()).applyAgainMs).toBe(500);
    expect(await names(kernel)).toEqual(["draw-3", "draw-1"]);
    expect(await kernel.rules(OWN, "draw-3")).toHaveLength(1);
    for (now = 100; now < 500; now += 100) {
      table.chain({ chain: `b${now}`, rules: [] });
      await table.apply();
      expect(await names(kernel)).toContain("draw-3");
    }
    now = 500;
    expect(operations(await table.apply())).toBe("chain -1 rule -1 element -1");
    expect(await names(kernel)).toEqual(["draw-1"]);
  });

  it("are removed at once with the elements if their rules need removed objects", async () => {
    const table = await restarted(kernel, { now: () => 0 });
    table.packedSet({ ...ENDPOINTS, comment: "another" });
    await table.apply();
    expect(await names(kernel)).toEqual(["draw-1"]);
  });

  it.each(["ENOMEM", "EBUSY"])("do not wait again if their removal is refused (%s)", async (errno) => {
    let now = 0;
    const table = await restarted(kernel, { now: () => now });
    await table.apply();
    now = 500;
    kernel.failNext({ when: (op) => op.op === "delete" && op.kind === "chain", errno });
    const refused = await table.apply().catch(() => undefined);
    // If another process may be the cause, the table is read and the write retried at once.
    if (errno === "ENOMEM") expect(refused).toBeUndefined();
    if (refused === undefined) await table.apply();
    expect(await names(kernel)).toEqual(["draw-1"]);
    expect((await table.apply()).applyAgainMs).toBeUndefined();
  });
});

describe("chains that are written before the verdicts that refer to them", () => {
  it("do not make a read outdated", async () => {
    const { table, service } = serviceTable(kernel);
    service(1, 1);
    await table.apply();
    let commits = 0;
    kernel.setLatency((action) => {
      if (action === "commit") commits++;
    });
    table.invalidate("test");
    service(2, 2);
    const result = await table.apply();
    expect(operations(result)).toBe("chain +1 rule +1 element +3");
    expect([result.transactions, commits]).toEqual([2, 2]);
  });

  it("are written early only if packets may use them", async () => {
    const { table, service } = serviceTable(kernel);
    service(1, 1);
    expect(await table.apply()).toMatchObject({ transactions: 1 });
    service(1, 2);
    expect(await table.apply()).toMatchObject({ transactions: 2 });
  });

  it("stay in the main transaction if they need recreated objects", async () => {
    const { table, service } = serviceTable(kernel);
    service(1, 1);
    table.packedSet({ set: "clients", key: ["ipv4_addr"] });
    await table.apply();
    table.packedSet({ set: "clients", key: ["ipv4_addr", "inet_service"] });
    table.chain({ chain: "wary", rules: [rule({ field: ["saddr", "th dport"], value: "@clients" }, drop)] });
    service(2, 1);
    let commits = 0;
    kernel.setLatency((action) => {
      if (action === "commit") commits++;
    });
    expect(operations(await table.apply())).toBe("chain +1 rule +1 set +1 -1 element +2");
    expect(commits).toBe(1);
  });

  it("are optional: objects refused in the early transaction are left to the one that contains everything", async () => {
    const { table, service } = serviceTable(kernel);
    service(1, 1);
    await table.apply();
    service(2, 2);
    kernel.failNext({ when: (op) => op.kind === "chain", errno: "ENOMEM" });
    const result = await table.apply();
    expect(operations(result)).toBe("chain +1 rule +1 element +3");
    expect(result.transactions).toBe(1);
  });
});

describe("elements of an earlier run", () => {
  it.each([
    ["wait for removal if packets may still look them up", true],
    ["are removed at once elsewhere", false],
  ])("%s", async (_what, deferUndesired) => {
    const earlier = serviceTable(kernel);
    earlier.service(1, 3);
    await earlier.table.apply();
    let now = 0;
    const { table, service, endpoints } = serviceTable(kernel, { clock: { now: () => now } });
    table.packedSet({ ...ENDPOINTS, deferUndesired });
    await table.load();
    service(1, 1);
    const result = await table.apply();
    expect(endpoints.kernelValue(indexed(1, 2)) !== undefined).toBe(deferUndesired);
    expect(result.applyAgainMs).toBe(deferUndesired ? 500 : undefined);
    now = 500;
    await table.apply();
    expect(endpoints.kernelValue(indexed(1, 2))).toBeUndefined();
    expect(endpoints.kernelValue(indexed(1, 0))).toBeDefined();
  });
});

it("named objects of others are removed, also at a start, and flowtables stay", async () => {
  const kernel = new FakeKernel();
  const meddle = async (): Promise<void> => {
    await kernel
      .asOther()
      .commit([{ op: "add", kind: "object", ...OWN, object: "used", objType: 1, data: { type: "counter" } }]);
    await kernel.commit([{ op: "add", kind: "flowtable", ...OWN, flowtable: "ft", priority: 0, devices: ["eth0"] }]);
  };
  const { table, service } = serviceTable(kernel);
  service(1, 2);
  await table.apply();
  await meddle();
  table.invalidate("test");
  expect(operations(await table.apply())).toBe("object -1");
  await meddle();
  const next = serviceTable(kernel);
  next.service(1, 2);
  expect(operations(await next.table.apply())).toBe("object -1");
  expect(await kernel.objects(OWN)).toEqual([{ kind: "flowtable", flowtable: "ft" }]);
  next.table.invalidate("test");
  expect([(await next.table.apply()).transactions, await next.table.check()]).toEqual([0, "same"]);
});

it("elements of a large list stay a while, and are removed in several transactions without a pause", async () => {
  const kernel = new FakeKernel();
  let now = 0;
  const { table, service } = serviceTable(kernel, { clock: { now: () => now } });
  service(1, 20_000);
  await table.apply();
  service(1, 1);
  expect((await table.apply()).applyAgainMs).toBe(500);
  now = 500;
  const first = await table.apply();
  expect(operations(first)).toBe("element -16384");
  expect(first.applyAgainMs).toBe(0);
  const second = await table.apply();
  expect(operations(second)).toBe("element -3615");
  expect(second.applyAgainMs).toBeUndefined();
});
