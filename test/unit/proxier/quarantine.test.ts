/** A service that the kernel rejects does not affect others: what stays, what is written, what is reported, and when it is retried. */
import type { V1Service } from "@kubernetes/client-node";
import { beforeEach, describe, expect, it } from "vitest";

import { KernelError } from "../../../src/nft/kernel/errors.js";
import type { FakeKernelOptions } from "../../fakes/fake-kernel.ts";
import type { Op } from "../../../src/nft/kernel/kernel.js";
import { elementsOf, MANY, QuarantineWorld, TABLE } from "./support/quarantine-world.js";
import { isOfService, type Telling } from "./support/refusing.js";
import { podsOf } from "../../bench/cluster.js";

let world: QuarantineWorld;

beforeEach(() => {
  world = new QuarantineWorld();
});

describe.each<Telling>(["element", "operation", "nothing", "first operation"])(
  "a service that is refused, when the kernel names %s",
  (telling) => {
    /** Writes at most twice: if the kernel names nothing, the first failure may have any cause. */
    async function write(): Promise<void> {
      if (!(await world.proxier.sync()).ok) expect((await world.proxier.sync()).ok).toBe(true);
    }
    beforeEach(() => {
      world = new QuarantineWorld(telling);
    });

    it("is not served at first, and the others are", async () => {
      for (let i = 0; i < 10; i++) world.put(i, [i, i + 100]);
      world.bad(3);
      world.proxier.synced();
      await write();
      const others = Object.fromEntries([0, 1, 2, 4, 5, 6, 7, 8, 9].map((i) => [i, [i, i + 100]]));
      expect(await elementsOf(world.kernel)).toEqual(await world.tableOf(others));
      expect(world.told).toEqual([expect.stringMatching(/^quarantined bench\/svc-3: .*ENOMEM/)]);
    });

    it("keeps the last state that the kernel accepted", async () => {
      for (let i = 0; i < 4; i++) world.put(i, [i]);
      world.proxier.synced();
      await write();
      world.bad(2);
      world.put(2, [50, 51, 52]);
      world.put(1, [60, 61]);
      await write();
      expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 0: [0], 1: [60, 61], 2: [2], 3: [3] }));
      world.proxier.remove("Service", "bench/svc-2");
      world.put(0, [70]);
      await write();
      expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 0: [70], 1: [60, 61], 2: [2], 3: [3] }));
      expect(world.told).toHaveLength(1);
      world.allowAll();
      world.now += 10_000;
      await write();
      // The last elements of a list are deleted a little later.
      world.now += 1000;
      await write();
      expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 0: [70], 1: [60, 61], 3: [3] }));
      expect(world.told[1]).toBe("released bench/svc-2");
    });

    it("is retried when it changes", async () => {
      world.put(0, [0]);
      world.put(1, [1]);
      world.bad(1);
      world.proxier.synced();
      await write();
      world.allowAll();
      world.put(1, [7]);
      await write();
      expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 0: [0], 1: [7] }));
      expect(world.told.map((line) => line.split(":")[0])).toEqual(["quarantined bench/svc-1", "released bench/svc-1"]);
    });

    it("is one of several among many", async () => {
      const wrong = new Set([7, 8, 123, MANY - 1]);
      const good: Record<number, number[]> = {};
      for (let i = 0; i < MANY; i++) {
        world.put(i, podsOf(i, 3));
        if (!wrong.has(i)) good[i] = podsOf(i, 3);
      }
      world.bad(...wrong);
      world.proxier.synced();
      await write();
      expect(await elementsOf(world.kernel)).toEqual(await world.tableOf(good));
      expect(world.told.map((line) => line.split(":")[0]).toSorted()).toEqual(
        [...wrong].map((i) => `quarantined bench/svc-${i}`).toSorted(),
      );
      // One error per bad service if it is named, otherwise some log2(n) for each.
      expect(world.refusals.refused).toBeLessThan(telling === "element" ? 10 : 4 * Math.log2(MANY) + 13);
    });
  },
);

describe("refused objects", () => {
  const affine: Partial<V1Service["spec"]> = {
    sessionAffinity: "ClientIP",
    type: "LoadBalancer",
    loadBalancerSourceRanges: ["198.51.100.0/24"],
    externalIPs: ["203.0.113.5"],
    ports: [{ name: "http", port: 80, protocol: "TCP", nodePort: 30080 }],
  };
  const own = (name: string | undefined): boolean => /^(sticky|source-ranges)-.*[0-9a-f]{10}/.test(name ?? "");
  const nameOf = (op: Op): string | undefined => ("chain" in op ? op.chain : "set" in op ? op.set : undefined);
  const kinds: readonly (readonly [string, (op: Op) => boolean])[] = [
    ["an added chain", (op) => op.kind === "chain" && op.op === "add" && own(op.chain)],
    ["an added rule", (op) => op.kind === "rule" && op.op === "add" && own(op.chain)],
    ["an added set", (op) => op.kind === "set" && op.op === "add" && own(op.set)],
  ];

  it.each(kinds)("%s: the others are served, and its service follows later", async (_what, refuses) => {
    world.put(0, [0]);
    world.put(1, [1, 2], affine);
    world.refusals.refuses = refuses;
    world.proxier.synced();
    if (!(await world.proxier.sync()).ok) await world.proxier.sync();
    expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 0: [0] }));
    expect(world.told).toHaveLength(1);
    expect(world.told[0]).toContain("quarantined bench/svc-1");
    world.allowAll();
    world.now += 1000;
    expect((await world.proxier.sync()).ok).toBe(true);
    expect(world.told[1]).toBe("released bench/svc-1");
    const ops = world.kernel.commits.flat().filter((op) => own(nameOf(op)));
    expect(new Set(ops.map(({ kind }) => kind))).toEqual(new Set(["chain", "rule", "set"]));
  });

  const removals: readonly (readonly [string, (op: Op) => boolean, FakeKernelOptions])[] = [
    ["a deleted chain", (op) => op.kind === "chain" && op.op === "delete" && own(op.chain), {}],
    ["flushed rules", (op) => op.kind === "rule" && op.op === "flush" && own(op.chain), {}],
    ["a deleted set", (op) => op.kind === "set" && op.op === "delete" && own(op.set), {}],
    ["deleted elements", (op) => op.kind === "elements" && op.op === "delete", {}],
  ];
  it.each(removals)("%s: its service stays unchanged, and the others change", async (_what, refuses, options) => {
    world = new QuarantineWorld("element", options);
    world.put(0, [0]);
    world.put(1, [1, 2], affine);
    world.put(2, [3]);
    world.proxier.synced();
    expect((await world.proxier.sync()).ok).toBe(true);
    const before = (await world.kernel.chains(TABLE)).length;
    world.refusals.refuses = (op, element) =>
      refuses(op) && (element === undefined || isOfService(new Set([1]))(op, element));
    world.proxier.remove("Service", "bench/svc-1");
    world.put(0, [5, 6]);
    if (!(await world.proxier.sync()).ok) await world.proxier.sync();
    expect(world.told[0]).toContain("quarantined bench/svc-1");
    expect((await world.kernel.chains(TABLE)).length).toBeGreaterThanOrEqual(before);
    world.allowAll();
    world.now += 1000;
    expect((await world.proxier.sync()).ok).toBe(true);
    world.now += 1000;
    await world.proxier.sync();
    expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 0: [5, 6], 2: [3] }));
  });

  it("the table itself: no service is quarantined, and it is written later", async () => {
    for (let i = 0; i < 20; i++) world.put(i, [i]);
    world.refusals.refuses = (op) => op.kind === "table";
    world.proxier.synced();
    for (let i = 0; i < 5; i++) expect((await world.proxier.sync()).ok).toBe(false);
    expect(world.told).toEqual([]);
    expect(await world.kernel.tables()).toEqual([]);
    world.allowAll();
    expect((await world.proxier.sync()).ok).toBe(true);
    expect(await elementsOf(world.kernel)).toEqual(
      await world.tableOf(Object.fromEntries(Array.from({ length: 20 }, (_, i) => [i, [i]]))),
    );
  });

  it("a chain that many services share: they are no longer served, and the rest is", async () => {
    world.put(0, [0]);
    for (let i = 1; i < 9; i++) world.put(i, [i, 20 + i]);
    world.refusals.refuses = (op) => op.kind === "chain" && op.op === "add" && op.chain.startsWith("cluster-2-");
    world.proxier.synced();
    expect((await world.proxier.sync()).ok).toBe(true);
    expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 0: [0] }));
    expect(world.told).toHaveLength(8);
  });

  it("everything: no single service is quarantined, and everything is retried", async () => {
    world.put(0, [0]);
    world.proxier.synced();
    await world.proxier.sync();
    for (let i = 1; i < 40; i++) world.put(i, [i]);
    world.refusals.telling = "nothing";
    world.refusals.refuses = () => true;
    for (let i = 0; i < 6; i++) expect((await world.proxier.sync()).ok).toBe(false);
    expect(world.told).toEqual([]);
    expect(world.refusals.refused).toBeLessThan(6 * 40);
    world.allowAll();
    expect((await world.proxier.sync()).ok).toBe(true);
    expect(await elementsOf(world.kernel)).toEqual(
      await world.tableOf(Object.fromEntries(Array.from({ length: 40 }, (_, i) => [i, [i]]))),
    );
  });

  it("a batch that does not fit: it is sent in parts", async () => {
    const commit = world.kernel.commit.bind(world.kernel);
    world.kernel.commit = (ops, options) => {
      const elements = ops.reduce(
        (sum, op) => sum + (op.kind === "elements" && op.op === "add" ? op.elements.count : 0),
        0,
      );
      if (elements > 200) return Promise.reject(new KernelError("too-large", "too large", { action: "commit" }));
      return commit(ops, options);
    };
    const all: Record<number, number[]> = {};
    for (let i = 0; i < 300; i++) world.put(i, (all[i] = podsOf(i, 3)));
    world.proxier.synced();
    expect((await world.proxier.sync()).ok).toBe(true);
    expect(world.told).toEqual([]);
    expect(await elementsOf(world.kernel)).toEqual(await world.tableOf(all));
  });

  it("a commit that fails as a whole: the service of its first operation is not blamed", async () => {
    world.put(0, [0]);
    world.put(1, [1, 2], affine);
    world.put(2, [3]);
    world.proxier.synced();
    await world.proxier.sync();
    world.refusals.telling = "first operation";
    world.bad(2);
    world.proxier.remove("Service", "bench/svc-1");
    world.put(2, [4]);
    expect((await world.proxier.sync()).ok).toBe(true);
    expect(world.told).toEqual([expect.stringContaining("quarantined bench/svc-2")]);
    world.now += 500;
    await world.proxier.sync();
    expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 0: [0], 2: [3] }));
  });

  it("everything, because the kernel forbids it: no service is quarantined, and they are not tried one by one", async () => {
    for (let i = 0; i < 20; i++) world.put(i, [i]);
    world.refusals.errno = "EPERM";
    world.bad(7);
    world.proxier.synced();
    for (let i = 0; i < 3; i++) expect((await world.proxier.sync()).ok).toBe(false);
    expect(world.told).toEqual([]);
    expect(world.refusals.refused).toBeLessThan(10);
    world.allowAll();
    expect((await world.proxier.sync()).ok).toBe(true);
  });

  it("one after another, if the kernel names only the first: a limited number at once, and the others at the next attempt", async () => {
    const good: Record<number, number[]> = {};
    for (let i = 0; i < 100; i++) world.put(i, [i]);
    for (let i = 40; i < 100; i++) good[i] = [i];
    world.refusals.telling = "first element";
    world.bad(...Array.from({ length: 40 }, (_, i) => i));
    world.proxier.synced();
    expect((await world.proxier.sync()).ok).toBe(false);
    expect(world.refusals.refused).toBeLessThan(20);
    for (let i = 0; i < 3; i++) await world.proxier.sync();
    expect(world.told).toHaveLength(40);
    expect(await elementsOf(world.kernel)).toEqual(await world.tableOf(good));
  });

  it.each([5, 1])(
    "one of %i changes once by mistake: a refusal that names nothing and does not repeat quarantines nothing",
    async (count) => {
      world.put(99, [1]);
      world.proxier.synced();
      expect((await world.proxier.sync()).ok).toBe(true);
      for (let i = 0; i < count; i++) world.put(i, [i]);
      world.refusals.telling = "nothing";
      world.refusals.refuses = () => world.refusals.refused === 0;
      expect((await world.proxier.sync()).ok).toBe(true);
      expect(world.refusals.refused).toBe(1);
      expect(world.told).toEqual([]);
      const all = Object.fromEntries(Array.from({ length: count }, (_, i) => [i, [i]]));
      expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 99: [1], ...all }));
    },
  );

  it("an object of no service before the service's: the second may be a consequence of the first", async () => {
    for (let i = 0; i < 3; i++) world.put(i, [i]);
    const ofOne = isOfService(new Set([1]));
    world.refusals.refuses = (op, element) => (op.kind === "chain" && op.chain === "services") || ofOne(op, element);
    world.proxier.synced();
    expect((await world.proxier.sync()).ok).toBe(false);
    expect(world.told).toEqual([]);
    world.allowAll();
    expect((await world.proxier.sync()).ok).toBe(true);
    expect(world.told).toEqual([]);
  });
});

describe("a quarantined service", () => {
  beforeEach(async () => {
    world.put(0, [0]);
    world.put(1, [1]);
    world.bad(1);
    world.proxier.synced();
    expect((await world.proxier.sync()).ok).toBe(true);
  });

  it("is retried with backoff, without an error each time", async () => {
    const tries: number[] = [];
    const began = world.now;
    for (let second = 0; second < 40; second++) {
      const before = world.refusals.refused;
      const { families } = await world.proxier.sync();
      const [{ outcome }] = families;
      if (!outcome.ok) throw new Error("a write failed");
      expect(outcome.quarantined).toEqual(["bench/svc-1"]);
      expect(outcome.againMs).toBeGreaterThan(0);
      if (world.refusals.refused > before) tries.push((world.now - began) / 1000);
      world.now += 1000;
    }
    expect(tries).toEqual([1, 3, 7, 15, 31]);
    expect(world.told).toHaveLength(1);
    expect(world.quarantineLog()).toHaveLength(1);
    expect(world.quarantineLog()[0]).toMatchObject({
      family: "ip",
      namespace: "bench",
      service: "svc-1",
      retryMs: 1000,
    });
  });

  it("is reported as active only when it is", async () => {
    expect(world.reports.at(-1)?.services).toEqual(["bench/svc-0"]);
    world.put(0, [5]);
    await world.proxier.sync();
    expect(world.reports.at(-1)?.services).toEqual(["bench/svc-0"]);
    world.allowAll();
    world.now += 1000;
    await world.proxier.sync();
    expect(world.reports.at(-1)?.services).toEqual(["bench/svc-1"]);
    expect(world.reports.every(({ ok }) => ok)).toBe(true);
  });

  const ADDRESS_OF_1 = { clusterIP: "10.96.0.2", clusterIPs: ["10.96.0.2"] };

  /** Expects the state as if service 9 had always had the address of service 1, and service 1 had never existed. */
  async function expectAddressTaken(): Promise<void> {
    const found = await elementsOf(world.kernel);
    world = new QuarantineWorld();
    world.put(0, [0]);
    world.put(9, [9], ADDRESS_OF_1);
    world.proxier.synced();
    await world.proxier.sync();
    expect(found).toEqual(await elementsOf(world.kernel));
  }

  it("does not keep an address that another service receives", async () => {
    world.allowAll();
    world.now += 1000;
    world.put(1, [1, 20, 30]);
    await world.proxier.sync();
    // It gives up its address and is rejected; the next service takes the address.
    world.refusals.refuses = (op, element) =>
      (op.kind === "elements" && op.op === "add" && isOfService(new Set([76]))(op, element)) ||
      (op.kind === "elements" && op.op === "delete" && isOfService(new Set([1]))(op, element));
    world.put(1, [1, 2, 3], { clusterIP: "10.96.0.77", clusterIPs: ["10.96.0.77"] });
    await world.proxier.sync();
    expect(world.told.at(-1)).toContain("quarantined bench/svc-1");
    expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 0: [0], 1: [1, 20, 30] }));
    world.refusals.refuses = (op, element) => isOfService(new Set([76]))(op, element);
    world.put(9, [9], ADDRESS_OF_1);
    await world.proxier.sync();
    // The last elements of a list are deleted a little later.
    world.now += 500;
    await world.proxier.sync();
    await expectAddressTaken();
  });

  it("does not regain an address that another service receives in the same write", async () => {
    world.allowAll();
    world.put(1, [1, 2, 3]);
    await world.proxier.sync();
    world.refusals.refuses = isOfService(new Set([76]));
    world.put(1, [1, 2, 3], { clusterIP: "10.96.0.77", clusterIPs: ["10.96.0.77"] });
    world.put(9, [9], ADDRESS_OF_1);
    await world.proxier.sync();
    world.now += 1000;
    await world.proxier.sync();
    expect(world.told.at(-1)).toContain("quarantined bench/svc-1");
    await expectAddressTaken();
  });

  it("a refused deletion of its service fails the write, which is retried", async () => {
    world.allowAll();
    world.now += 1000;
    await world.proxier.sync();
    world.refusals.refuses = isOfService(new Set([1]));
    await world.kernel.asOther().commit([{ op: "delete", kind: "table", ...TABLE }]);
    world.put(0, [8]);
    expect((await world.proxier.sync()).ok).toBe(true);
    expect(await elementsOf(world.kernel)).toEqual(await world.tableOf({ 0: [8] }));
  });
});
