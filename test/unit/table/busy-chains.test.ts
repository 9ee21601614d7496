/**
 * Chains that the kernel does not delete although nothing refers to them, because it has miscounted, as 6.1.176 does
 * (quirks.ts).
 */
import { beforeEach, expect, it } from "vitest";

import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Kernel, Op } from "../../../src/nft/kernel/kernel.js";
import type { Table } from "../../../src/nft/engine-exports.js";
import { makeService, makeSlice } from "../../bench/cluster.js";
import { counter, operations, OWN, rule, serviceTable, vip, VIPS } from "../../conformance/table/build.js";
import { keptIn, type LogLine } from "../../support/log.ts";
import { makeProxier } from "../proxier/support/proxier.js";
import { decoded } from "../../support/decoded.js";

let kernel: FakeKernel;
beforeEach(() => {
  kernel = new FakeKernel({ deletedMaps: "come back twice" });
});

/** Makes the kernel count the uses of this map's chains once too often. */
async function miscount(table: string, set: string): Promise<void> {
  const ref = { family: "ip", table, set } as const;
  const ops: Op[] = [
    { op: "flush", kind: "elements", ...ref },
    { op: "delete", kind: "chain", family: "ip", table, chain: "nowhere" },
  ];
  const looksUp = (await kernel.rules(ref)).filter(({ exprs }) =>
    exprs.some((expr) => expr.type === "lookup" && expr.set === set),
  );
  for (const { chain, handle } of looksUp) {
    ops.unshift({ op: "delete", kind: "rule", family: "ip", table, chain, handle });
  }
  ops.push({ op: "delete", kind: "set", ...ref });
  await expect(kernel.commit(ops)).rejects.toMatchObject({ code: "refused", faults: [{ errno: "ENOENT" }] });
}

function wantMap(table: Table): void {
  const map = table.packedSet({ ...VIPS, set: "more" });
  table.chain({ chain: "to-more", rules: [rule(counter)] });
  map.put(vip(1), new Uint8Array(Uint32Array.of(table.verdictId({ verdict: "goto", chain: "to-more" })).buffer));
}

function wantNoMap(table: Table): void {
  table.removeSet("more");
  table.removeChain("to-more");
}

/** Counts rejected batches. */
function refusals(of: Kernel): { count: number } {
  const seen = { count: 0 };
  const commit = of.commit.bind(of);
  of.commit = (ops, options) =>
    commit(ops, options).catch((error: unknown) => {
      seen.count++;
      throw error;
    });
  return seen;
}

const chains = async (): Promise<string[]> => (await kernel.chains(OWN)).map(({ chain }) => chain).toSorted();

/** A table with a busy chain, and the number of batches that the kernel rejects from then on. */
async function withBusyChain(): Promise<{ table: Table; refused: { count: number } }> {
  const { table } = serviceTable(kernel);
  wantMap(table);
  await table.apply();
  await miscount(OWN.table, "more");
  wantNoMap(table);
  await table.apply();
  const refused = refusals(kernel);
  return { table, refused };
}

it("stay without their rules, and everything else is removed", async () => {
  const { table, service } = serviceTable(kernel);
  wantMap(table);
  service(1, 1);
  await table.apply();
  await miscount(OWN.table, "more");
  const refused = refusals(kernel);
  wantNoMap(table);
  service(1, 0);
  table.removeChain("draw-1");
  const result = await table.apply();
  expect(result.busy).toEqual(["to-more"]);
  expect(operations(result)).toBe("chain -1 rule -2 set -1 element -1");
  expect(await chains()).toEqual(["nat-prerouting", "services", "to-more"]);
  expect(await kernel.rules(OWN, "to-more")).toEqual([]);
  expect(refused.count).toBe(2);
  expect(await table.apply()).toMatchObject({ transactions: 0, busy: ["to-more"] });
  expect(await table.check()).toBe("same");
  expect(refused.count).toBe(2);
});

it("can be declared again, and are left again without another try", async () => {
  const { table, refused } = await withBusyChain();
  wantMap(table);
  const again = await table.apply();
  expect(operations(again)).toBe("rule +1 set +1 element +1");
  expect(again.busy).toBeUndefined();
  wantNoMap(table);
  const result = await table.apply();
  expect(operations(result)).toBe("rule -1 set -1 element -1");
  expect(result.busy).toEqual(["to-more"]);
  expect(refused.count).toBe(0);
});

it("are tried again after a full read, also by a new start, and are removed with the table", async () => {
  const { table, refused } = await withBusyChain();
  for (const next of [table, serviceTable(kernel).table]) {
    refused.count = 0;
    next.invalidate("test");
    expect(await next.apply()).toMatchObject({ transactions: 0, busy: ["to-more"] });
    expect(refused.count).toBe(1);
  }
  await table.destroy();
  expect((await table.apply()).busy).toBeUndefined();
  expect(await chains()).toEqual(["nat-prerouting", "services"]);
});

it("are not assumed after another refusal that may have caused theirs", async () => {
  const { table } = serviceTable(kernel);
  wantMap(table);
  await table.apply();
  wantNoMap(table);
  // Read again, then rejected once more: the map stays, so its chains are busy.
  for (let i = 0; i < 2; i++) {
    kernel.failNext({ when: (op) => op.kind === "set" && op.op === "delete" && op.set === "more", errno: "EBUSY" });
  }
  await expect(table.apply()).rejects.toMatchObject({
    code: "refused",
    faulty: [
      { kind: "set", set: "more" },
      { kind: "chain", chain: "to-more" },
    ],
  });
  const result = await table.apply();
  expect(result.busy).toBeUndefined();
  expect(await chains()).toEqual(["nat-prerouting", "services"]);
});

it("do not keep a deleted service active, and are reported once", async () => {
  const logged: LogLine[] = [];
  const told: string[] = [];
  const proxier = makeProxier(kernel, {
    log: keptIn(logged, "info"),
    observers: [{ quarantined: ({ service }) => void told.push(service) }],
  });
  const service = makeService(0);
  proxier.upsert(
    decoded({
      kind: "Service",
      object: { ...service, spec: { ...service.spec, sessionAffinity: "ClientIP" } },
    }),
  );
  proxier.upsert(decoded({ kind: "EndpointSlice", object: makeSlice(0, [1, 2]) }));
  proxier.synced();
  expect((await proxier.sync()).ok).toBe(true);
  const TABLE = { family: "ip", table: "kube-proxy" } as const;
  await miscount(TABLE.table, "dispatch");
  proxier.remove("Service", "bench/svc-0");
  for (let i = 0; i < 3; i++) expect((await proxier.sync()).ok).toBe(true);
  expect(told).toEqual([]);
  for (const set of await kernel.sets(TABLE)) {
    expect(set.set).not.toMatch(/^sticky-clients-/);
    if (set.set === "services") expect((await kernel.elements(TABLE, set)).count).toBe(0);
  }
  expect(logged.filter(({ level }) => level === "error")).toEqual([]);
  expect(logged.filter(({ msg }) => msg.includes("unused chains as busy"))).toMatchObject([
    { level: "warn", total: 1 },
  ]);
  await proxier.stop();
});
