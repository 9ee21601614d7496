/** A service that the kernel rejects without naming an element: the proxier finds it by trying services, and the others are not delayed. */
import type { V1Service } from "@kubernetes/client-node";
import { beforeEach, describe, expect, it } from "vitest";

import type { ProxierObserver } from "../../../src/proxier/observer.js";
import { Quarantine } from "../../../src/proxier/quarantine.js";
import { SetName } from "../../../src/ruleset/names.js";
import { FamilyRuleset } from "../../../src/ruleset/family-ruleset.js";
import { Table } from "../../../src/nft/engine-exports.js";
import { podsOf } from "../../bench/cluster.js";
import { SILENT } from "../../support/log.ts";
import { MANY, QuarantineWorld, TABLE } from "./support/quarantine-world.js";
import { isOfService } from "./support/refusing.js";

let world: QuarantineWorld;

describe("services that are retried at once, if the kernel names no element", () => {
  beforeEach(() => {
    world = new QuarantineWorld("operation");
  });

  /** Retries all services that are due. */
  async function retry(): Promise<void> {
    world.now += 400_000;
    expect((await world.proxier.sync()).ok).toBe(true);
  }

  it.each(["ENOMEM", "EINVAL"])(
    "three of them stay quarantined without other changes, and the write succeeds (%s)",
    async (errno) => {
      for (let i = 0; i < 10; i++) world.put(i, [i]);
      world.bad(0, 1, 2);
      world.refusals.errno = errno;
      world.proxier.synced();
      expect((await world.proxier.sync()).ok).toBe(true);
      expect(world.told).toHaveLength(3);
      for (let i = 0; i < 3; i++) await retry();
      expect(world.told).toHaveLength(3);
      world.allowAll();
      await retry();
      expect(
        world.told
          .slice(3)
          .map((line) => line.split(":")[0])
          .toSorted(),
      ).toEqual([0, 1, 2].map((i) => `released bench/svc-${i}`));
    },
  );

  it("three new ones, none of them proved at fault, are not blamed", async () => {
    for (let i = 5; i < 10; i++) world.put(i, [i]);
    world.proxier.synced();
    expect((await world.proxier.sync()).ok).toBe(true);
    for (let i = 0; i < 3; i++) world.put(i, [i]);
    world.bad(0, 1, 2);
    expect((await world.proxier.sync()).ok).toBe(false);
    expect(world.told).toEqual([]);
  });

  it.each([
    [1, 2],
    [2, 1],
  ])(
    "an address moves from service %i, which is refused, to service %i: the second one is served in the end",
    async (from, to) => {
      const shared = { externalIPs: ["198.51.100.7"] };
      for (let i = 0; i < 10; i++) world.put(i, [i], i === from ? shared : {});
      world.proxier.synced();
      expect((await world.proxier.sync()).ok).toBe(true);
      world.put(from, [from + 200]);
      world.put(to, [to], shared);
      world.put(5, [300]);
      const ofOne = isOfService(new Set([from]));
      world.refusals.refuses = (op, element) => op.op === "add" && ofOne(op, element);
      expect((await world.proxier.sync()).ok).toBe(true);
      expect(world.told).toHaveLength(2);
      for (let i = 0; i < 3; i++) await retry();
      expect(world.told.slice(2)).toEqual([`released bench/svc-${to}`]);
    },
  );
});

describe("a kernel that names nothing", () => {
  beforeEach(() => {
    world = new QuarantineWorld("nothing");
  });

  /** Numbers of the services whose cluster IP is active. */
  async function served(): Promise<Set<number>> {
    const info = (await world.kernel.sets(TABLE)).find(({ set }) => set === SetName.services);
    if (info === undefined) return new Set();
    const { bytes, count } = await world.kernel.elements(TABLE, info);
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const first = 10 * 2 ** 24 + 96 * 2 ** 16 + 1;
    return new Set(Array.from({ length: count }, (_, i) => view.getUint32((i * bytes.length) / count) - first));
  }

  async function missingOf(count: number): Promise<number[]> {
    const found = await served();
    return Array.from({ length: count }, (_, i) => i).filter((service) => !found.has(service));
  }

  it("a start with a refused service: the others' rules of an earlier run stay active throughout", async () => {
    for (let i = 0; i < 100; i++) world.put(i, [i]);
    world.proxier.synced();
    expect((await world.proxier.sync()).ok).toBe(true);
    await world.proxier.stop();
    world.proxier = world.make();
    for (let i = 0; i < 100; i++) world.put(i, i === 7 ? [50, 51] : [i]);
    const ofOne = isOfService(new Set([7]));
    world.refusals.refuses = (op, element) => op.op === "add" && ofOne(op, element);
    const missing = new Set<number>();
    const commit = world.kernel.commit.bind(world.kernel);
    world.kernel.commit = async (ops, options) => {
      const result = await commit(ops, options);
      for (const service of await missingOf(100)) missing.add(service);
      return result;
    };
    world.proxier.synced();
    expect((await world.proxier.sync()).ok).toBe(true);
    expect([...missing]).toEqual([7]);
    expect(world.told).toEqual([expect.stringContaining("quarantined bench/svc-7")]);
  });

  /** A separate quarantine, and the current views of the proxier's objects. */
  function alone() {
    const clock = { now: () => world.now };
    const table = new Table(world.kernel, { family: "ip", name: "kube-proxy", clock });
    const ruleset = new FamilyRuleset(table, "ip", {
      masqueradeAll: false,
      masqueradeBit: 14,
      detector: { kind: "none" },
      nodePortAddresses: "all",
    });
    const observer: ProxierObserver = { quarantined: ({ service }) => void world.told.push(service) };
    const quarantine = new Quarantine({ family: "ip", ruleset, log: SILENT, clock, observers: [observer] });
    const change = (index: number): void => {
      const name = `bench/svc-${index}`;
      for (const _ of quarantine.updateInPieces(name, world.proxier.model.views("ip", name)));
    };
    return { quarantine, change, write: () => quarantine.write(() => table.apply()) };
  }

  it("many changes, one of them refused: no write takes long, and each activates the changes before it", async () => {
    const { quarantine, change, write } = alone();
    for (let i = 0; i < MANY + 100; i++) world.put(i, podsOf(i, 3));
    for (let i = 0; i < MANY; i++) change(i);
    world.bad(MANY / 2);
    // About as long as Linux takes for a transaction.
    const commit = world.kernel.commit.bind(world.kernel);
    world.kernel.commit = (ops, options) => {
      world.now += 2 + ops.reduce((sum, op) => sum + ("elements" in op ? op.elements.count : 0), 0) / 200;
      return commit(ops, options);
    };
    await write();
    expect(quarantine.hasSuspects).toBe(true);
    const times: number[] = [];
    while (quarantine.hasSuspects && times.length < 100) {
      const others = MANY + times.length;
      change(others);
      const began = world.now;
      await write();
      times.push(world.now - began);
      expect(await served()).toContain(others);
    }
    expect(world.told).toEqual([`bench/svc-${MANY / 2}`]);
    expect(await missingOf(MANY + times.length)).toEqual([MANY / 2]);
    expect(Math.max(...times)).toBeLessThan(60);
    expect(times.length).toBeGreaterThan(2);
    expect(world.refusals.refused + world.refusals.passed).toBeLessThan(60 + times.length);
  });

  it("an address that moves between two of many services: both are written at once, whatever else is tried", async () => {
    const { quarantine, change, write } = alone();
    const shared = (externalIPs: readonly string[]): Partial<V1Service["spec"]> => ({ externalIPs: [...externalIPs] });
    for (let i = 0; i < 20; i++) world.put(i, [i], shared(i === 3 ? ["203.0.113.1"] : []));
    for (let i = 0; i < 20; i++) change(i);
    await write();
    for (let i = 0; i < 20; i++) world.put(i, [30 + i], shared(i === 4 ? ["203.0.113.1"] : []));
    for (let i = 0; i < 20; i++) change(i);
    world.bad(0, 1);
    const commit = world.kernel.commit.bind(world.kernel);
    const passing = ((203 * 256 + 0) * 256 + 113) * 256 + 1 - (10 * 2 ** 24 + 96 * 2 ** 16 + 1);
    const gaps: number[] = [];
    world.kernel.commit = async (ops, options) => {
      world.now += 30;
      const result = await commit(ops, options);
      if (!(await served()).has(passing)) gaps.push(world.now);
      return result;
    };
    await write();
    expect(quarantine.services).toContain("bench/svc-3");
    // The address has not passed to the other service yet, because that one is waiting, too.
    world.put(3, [60]);
    change(3);
    for (let i = 0; i < 20 && quarantine.hasSuspects; i++) await write();
    expect(gaps).toEqual([]);
    expect(world.told.toSorted()).toEqual(["bench/svc-0", "bench/svc-1"]);
  });
});
