/** A service that the kernel rejects does not affect others: what stays, what is written, what is reported, and when it is retried. */
import type { V1Service } from "@kubernetes/client-node";
import { beforeEach, describe, expect, it } from "vitest";

import { KernelError } from "../../../src/netlink/errors.js";
import { FakeKernel, type FakeKernelOptions } from "../../fakes/fake-kernel.ts";
import type { Op } from "../../../src/netlink/kernel.js";
import type { ProxierObserver, SyncReport } from "../../../src/proxier/observer.js";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { SetName } from "../../../src/ruleset/names.js";
import { makeService, makeSlice, podsOf } from "../../bench/cluster.js";
import { snapshot } from "../../support/snapshot.ts";
import { keptIn, SILENT } from "../../support/log.ts";
import { FamilyRuleset } from "../../../src/ruleset/ruleset.js";
import { Table } from "../../../src/table/table-exports.js";
import { Quarantine } from "../../../src/proxier/quarantine.js";
import { makeProxier } from "./support/proxier.js";
import { isOfService, refuse, type Refusals, type Telling } from "./support/refusing.js";
import { decoded } from "../../support/decoded.js";
import { atLength } from "../../lab/length.ts";

const MANY = atLength({ short: 1000, usual: 5000 });
const TABLE = { family: "ip", table: "kube-proxy" } as const;

let kernel: FakeKernel;
let refusals: Refusals;
let now: number;
let told: string[];
let reports: SyncReport[];
let logged: Record<string, unknown>[];
let proxier: Proxier;

function start(telling: Telling = "element", options: FakeKernelOptions = {}): void {
  kernel = new FakeKernel(options);
  refusals = refuse(kernel, telling);
  proxier = make(kernel);
}

function make(on: FakeKernel): Proxier {
  return makeProxier(on, {
    log: keptIn(logged),
    clock: { now: () => now },
    observers: [
      {
        quarantined: ({ service, reason }) => void told.push(`quarantined ${service}: ${reason}`),
        released: ({ service }) => void told.push(`released ${service}`),
        synced: (report) => void reports.push(report),
      },
    ],
  });
}

function put(index: number, pods: readonly number[], change: Partial<V1Service["spec"]> = {}, to = proxier): void {
  const service = makeService(index);
  to.upsert(decoded({ kind: "Service", object: { ...service, spec: { ...service.spec, ...change } } }));
  to.upsert(decoded({ kind: "EndpointSlice", object: makeSlice(index, pods) }));
}

const bad = (...indices: number[]): void => {
  refusals.refuses = isOfService(new Set(indices));
};
const allowAll = (): void => {
  refusals.refuses = () => false;
};

/** The table of a proxier with only these services, on its own kernel. */
async function tableOf(services: Readonly<Record<number, readonly number[]>>): Promise<unknown> {
  const fresh = new FakeKernel();
  const other = make(fresh);
  for (const [index, pods] of Object.entries(services)) put(Number(index), pods, {}, other);
  other.synced();
  expect((await other.sync()).ok).toBe(true);
  return elementsOf(fresh);
}

/** All elements of named sets, in any order and with any set sizes. `dispatch` is skipped because it keeps unused elements for a while. */
async function elementsOf(of: FakeKernel): Promise<unknown> {
  const [table] = (await snapshot(of)) as { sets: { set: string; elements: unknown[] }[] }[];
  const byText = (a: unknown, b: unknown): number => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1);
  return table.sets
    .filter(({ set }) => set !== SetName.dispatch)
    .map(({ set, elements }) => [set, elements.toSorted(byText)])
    .toSorted((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1));
}

const quarantineLog = (): Record<string, unknown>[] =>
  logged.filter(({ level, msg }) => level === "error" && String(msg).includes("quarantined"));

beforeEach(() => {
  now = 1_000_000;
  told = [];
  reports = [];
  logged = [];
  start();
});

describe.each<Telling>(["element", "operation", "nothing", "first operation"])(
  "a service that is refused, when the kernel names %s",
  (telling) => {
    /** Writes at most twice: if the kernel names nothing, the first failure may have any cause. */
    async function write(): Promise<void> {
      if (!(await proxier.sync()).ok) expect((await proxier.sync()).ok).toBe(true);
    }
    beforeEach(() => start(telling));

    it("is not served at first, and the others are", async () => {
      for (let i = 0; i < 10; i++) put(i, [i, i + 100]);
      bad(3);
      proxier.synced();
      await write();
      const others = Object.fromEntries([0, 1, 2, 4, 5, 6, 7, 8, 9].map((i) => [i, [i, i + 100]]));
      expect(await elementsOf(kernel)).toEqual(await tableOf(others));
      expect(told).toEqual([expect.stringMatching(/^quarantined bench\/svc-3: .*ENOMEM/)]);
    });

    it("keeps the last state that the kernel accepted", async () => {
      for (let i = 0; i < 4; i++) put(i, [i]);
      proxier.synced();
      await write();
      bad(2);
      put(2, [50, 51, 52]);
      put(1, [60, 61]);
      await write();
      expect(await elementsOf(kernel)).toEqual(await tableOf({ 0: [0], 1: [60, 61], 2: [2], 3: [3] }));
      proxier.remove("Service", "bench/svc-2");
      put(0, [70]);
      await write();
      expect(await elementsOf(kernel)).toEqual(await tableOf({ 0: [70], 1: [60, 61], 2: [2], 3: [3] }));
      expect(told).toHaveLength(1);
      allowAll();
      now += 10_000;
      await write();
      // The last elements of a list are deleted a little later.
      now += 1000;
      await write();
      expect(await elementsOf(kernel)).toEqual(await tableOf({ 0: [70], 1: [60, 61], 3: [3] }));
      expect(told[1]).toBe("released bench/svc-2");
    });

    it("is retried when it changes", async () => {
      put(0, [0]);
      put(1, [1]);
      bad(1);
      proxier.synced();
      await write();
      allowAll();
      put(1, [7]);
      await write();
      expect(await elementsOf(kernel)).toEqual(await tableOf({ 0: [0], 1: [7] }));
      expect(told.map((line) => line.split(":")[0])).toEqual(["quarantined bench/svc-1", "released bench/svc-1"]);
    });

    it("is one of several among many", async () => {
      const wrong = new Set([7, 8, 123, MANY - 1]);
      const good: Record<number, number[]> = {};
      for (let i = 0; i < MANY; i++) {
        put(i, podsOf(i, 3));
        if (!wrong.has(i)) good[i] = podsOf(i, 3);
      }
      bad(...wrong);
      proxier.synced();
      await write();
      expect(await elementsOf(kernel)).toEqual(await tableOf(good));
      expect(told.map((line) => line.split(":")[0]).toSorted()).toEqual(
        [...wrong].map((i) => `quarantined bench/svc-${i}`).toSorted(),
      );
      // One error per bad service if it is named, otherwise some log2(n) for each.
      expect(refusals.refused).toBeLessThan(telling === "element" ? 10 : 4 * Math.log2(MANY) + 13);
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
    put(0, [0]);
    put(1, [1, 2], affine);
    refusals.refuses = refuses;
    proxier.synced();
    if (!(await proxier.sync()).ok) await proxier.sync();
    expect(await elementsOf(kernel)).toEqual(await tableOf({ 0: [0] }));
    expect(told).toHaveLength(1);
    expect(told[0]).toContain("quarantined bench/svc-1");
    allowAll();
    now += 1000;
    expect((await proxier.sync()).ok).toBe(true);
    expect(told[1]).toBe("released bench/svc-1");
    const ops = kernel.commits.flat().filter((op) => own(nameOf(op)));
    expect(new Set(ops.map(({ kind }) => kind))).toEqual(new Set(["chain", "rule", "set"]));
  });

  const removals: readonly (readonly [string, (op: Op) => boolean, FakeKernelOptions])[] = [
    ["a deleted chain", (op) => op.kind === "chain" && op.op === "delete" && own(op.chain), {}],
    ["flushed rules", (op) => op.kind === "rule" && op.op === "flush" && own(op.chain), {}],
    ["a deleted set", (op) => op.kind === "set" && op.op === "delete" && own(op.set), {}],
    ["deleted elements", (op) => op.kind === "elements" && op.op === "delete", {}],
  ];
  it.each(removals)("%s: its service stays unchanged, and the others change", async (_what, refuses, options) => {
    start("element", options);
    put(0, [0]);
    put(1, [1, 2], affine);
    put(2, [3]);
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    const before = (await kernel.chains(TABLE)).length;
    refusals.refuses = (op, element) =>
      refuses(op) && (element === undefined || isOfService(new Set([1]))(op, element));
    proxier.remove("Service", "bench/svc-1");
    put(0, [5, 6]);
    if (!(await proxier.sync()).ok) await proxier.sync();
    expect(told[0]).toContain("quarantined bench/svc-1");
    expect((await kernel.chains(TABLE)).length).toBeGreaterThanOrEqual(before);
    allowAll();
    now += 1000;
    expect((await proxier.sync()).ok).toBe(true);
    now += 1000;
    await proxier.sync();
    expect(await elementsOf(kernel)).toEqual(await tableOf({ 0: [5, 6], 2: [3] }));
  });

  it("the table itself: no service is quarantined, and it is written later", async () => {
    for (let i = 0; i < 20; i++) put(i, [i]);
    refusals.refuses = (op) => op.kind === "table";
    proxier.synced();
    for (let i = 0; i < 5; i++) expect((await proxier.sync()).ok).toBe(false);
    expect(told).toEqual([]);
    expect(await kernel.tables()).toEqual([]);
    allowAll();
    expect((await proxier.sync()).ok).toBe(true);
    expect(await elementsOf(kernel)).toEqual(
      await tableOf(Object.fromEntries(Array.from({ length: 20 }, (_, i) => [i, [i]]))),
    );
  });

  it("a chain that many services share: they are no longer served, and the rest is", async () => {
    put(0, [0]);
    for (let i = 1; i < 9; i++) put(i, [i, 20 + i]);
    refusals.refuses = (op) => op.kind === "chain" && op.op === "add" && op.chain.startsWith("cluster-2-");
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    expect(await elementsOf(kernel)).toEqual(await tableOf({ 0: [0] }));
    expect(told).toHaveLength(8);
  });

  it("everything: no single service is quarantined, and everything is retried", async () => {
    put(0, [0]);
    proxier.synced();
    await proxier.sync();
    for (let i = 1; i < 40; i++) put(i, [i]);
    refusals.telling = "nothing";
    refusals.refuses = () => true;
    for (let i = 0; i < 6; i++) expect((await proxier.sync()).ok).toBe(false);
    expect(told).toEqual([]);
    expect(refusals.refused).toBeLessThan(6 * 40);
    allowAll();
    expect((await proxier.sync()).ok).toBe(true);
    expect(await elementsOf(kernel)).toEqual(
      await tableOf(Object.fromEntries(Array.from({ length: 40 }, (_, i) => [i, [i]]))),
    );
  });

  it("a batch that does not fit: it is sent in parts", async () => {
    const commit = kernel.commit.bind(kernel);
    kernel.commit = (ops, options) => {
      const elements = ops.reduce(
        (sum, op) => sum + (op.kind === "elements" && op.op === "add" ? op.elements.count : 0),
        0,
      );
      if (elements > 200) return Promise.reject(new KernelError("too-large", "too large", { action: "commit" }));
      return commit(ops, options);
    };
    const all: Record<number, number[]> = {};
    for (let i = 0; i < 300; i++) put(i, (all[i] = podsOf(i, 3)));
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    expect(told).toEqual([]);
    expect(await elementsOf(kernel)).toEqual(await tableOf(all));
  });

  it("a commit that fails as a whole: the service of its first operation is not blamed", async () => {
    put(0, [0]);
    put(1, [1, 2], affine);
    put(2, [3]);
    proxier.synced();
    await proxier.sync();
    refusals.telling = "first operation";
    bad(2);
    proxier.remove("Service", "bench/svc-1");
    put(2, [4]);
    expect((await proxier.sync()).ok).toBe(true);
    expect(told).toEqual([expect.stringContaining("quarantined bench/svc-2")]);
    now += 500;
    await proxier.sync();
    expect(await elementsOf(kernel)).toEqual(await tableOf({ 0: [0], 2: [3] }));
  });

  it("everything, because the kernel forbids it: no service is quarantined, and they are not tried one by one", async () => {
    for (let i = 0; i < 20; i++) put(i, [i]);
    refusals.errno = "EPERM";
    bad(7);
    proxier.synced();
    for (let i = 0; i < 3; i++) expect((await proxier.sync()).ok).toBe(false);
    expect(told).toEqual([]);
    expect(refusals.refused).toBeLessThan(10);
    allowAll();
    expect((await proxier.sync()).ok).toBe(true);
  });

  it("one after another, if the kernel names only the first: a limited number at once, and the others at the next attempt", async () => {
    const good: Record<number, number[]> = {};
    for (let i = 0; i < 100; i++) put(i, [i]);
    for (let i = 40; i < 100; i++) good[i] = [i];
    refusals.telling = "first element";
    bad(...Array.from({ length: 40 }, (_, i) => i));
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(false);
    expect(refusals.refused).toBeLessThan(20);
    for (let i = 0; i < 3; i++) await proxier.sync();
    expect(told).toHaveLength(40);
    expect(await elementsOf(kernel)).toEqual(await tableOf(good));
  });

  it.each([5, 1])(
    "one of %i changes once by mistake: a refusal that names nothing and does not repeat quarantines nothing",
    async (count) => {
      put(99, [1]);
      proxier.synced();
      expect((await proxier.sync()).ok).toBe(true);
      for (let i = 0; i < count; i++) put(i, [i]);
      refusals.telling = "nothing";
      refusals.refuses = () => refusals.refused === 0;
      expect((await proxier.sync()).ok).toBe(true);
      expect(refusals.refused).toBe(1);
      expect(told).toEqual([]);
      const all = Object.fromEntries(Array.from({ length: count }, (_, i) => [i, [i]]));
      expect(await elementsOf(kernel)).toEqual(await tableOf({ 99: [1], ...all }));
    },
  );

  it("an object of no service before the service's: the second may be a consequence of the first", async () => {
    for (let i = 0; i < 3; i++) put(i, [i]);
    const ofOne = isOfService(new Set([1]));
    refusals.refuses = (op, element) => (op.kind === "chain" && op.chain === "services") || ofOne(op, element);
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(false);
    expect(told).toEqual([]);
    allowAll();
    expect((await proxier.sync()).ok).toBe(true);
    expect(told).toEqual([]);
  });
});

describe("a quarantined service", () => {
  beforeEach(async () => {
    put(0, [0]);
    put(1, [1]);
    bad(1);
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
  });

  it("is retried with backoff, without an error each time", async () => {
    const tries: number[] = [];
    const began = now;
    for (let second = 0; second < 40; second++) {
      const before = refusals.refused;
      const { families } = await proxier.sync();
      const [{ outcome }] = families;
      if (!outcome.ok) throw new Error("a write failed");
      expect(outcome.quarantined).toEqual(["bench/svc-1"]);
      expect(outcome.againMs).toBeGreaterThan(0);
      if (refusals.refused > before) tries.push((now - began) / 1000);
      now += 1000;
    }
    expect(tries).toEqual([1, 3, 7, 15, 31]);
    expect(told).toHaveLength(1);
    expect(quarantineLog()).toHaveLength(1);
    expect(quarantineLog()[0]).toMatchObject({ family: "ip", namespace: "bench", service: "svc-1", retryMs: 1000 });
  });

  it("is reported as active only when it is", async () => {
    expect(reports.at(-1)?.services).toEqual(["bench/svc-0"]);
    put(0, [5]);
    await proxier.sync();
    expect(reports.at(-1)?.services).toEqual(["bench/svc-0"]);
    allowAll();
    now += 1000;
    await proxier.sync();
    expect(reports.at(-1)?.services).toEqual(["bench/svc-1"]);
    expect(reports.every(({ ok }) => ok)).toBe(true);
  });

  const ADDRESS_OF_1 = { clusterIP: "10.96.0.2", clusterIPs: ["10.96.0.2"] };

  /** Expects the state as if service 9 had always had the address of service 1, and service 1 had never existed. */
  async function expectAddressTaken(): Promise<void> {
    const found = await elementsOf(kernel);
    start();
    put(0, [0]);
    put(9, [9], ADDRESS_OF_1);
    proxier.synced();
    await proxier.sync();
    expect(found).toEqual(await elementsOf(kernel));
  }

  it("does not keep an address that another service receives", async () => {
    allowAll();
    now += 1000;
    put(1, [1, 20, 30]);
    await proxier.sync();
    // It gives up its address and is rejected; the next service takes the address.
    refusals.refuses = (op, element) =>
      (op.kind === "elements" && op.op === "add" && isOfService(new Set([76]))(op, element)) ||
      (op.kind === "elements" && op.op === "delete" && isOfService(new Set([1]))(op, element));
    put(1, [1, 2, 3], { clusterIP: "10.96.0.77", clusterIPs: ["10.96.0.77"] });
    await proxier.sync();
    expect(told.at(-1)).toContain("quarantined bench/svc-1");
    expect(await elementsOf(kernel)).toEqual(await tableOf({ 0: [0], 1: [1, 20, 30] }));
    refusals.refuses = (op, element) => isOfService(new Set([76]))(op, element);
    put(9, [9], ADDRESS_OF_1);
    await proxier.sync();
    // The last elements of a list are deleted a little later.
    now += 500;
    await proxier.sync();
    await expectAddressTaken();
  });

  it("does not regain an address that another service receives in the same write", async () => {
    allowAll();
    put(1, [1, 2, 3]);
    await proxier.sync();
    refusals.refuses = isOfService(new Set([76]));
    put(1, [1, 2, 3], { clusterIP: "10.96.0.77", clusterIPs: ["10.96.0.77"] });
    put(9, [9], ADDRESS_OF_1);
    await proxier.sync();
    now += 1000;
    await proxier.sync();
    expect(told.at(-1)).toContain("quarantined bench/svc-1");
    await expectAddressTaken();
  });

  it("a refused deletion of its service fails the write, which is retried", async () => {
    allowAll();
    now += 1000;
    await proxier.sync();
    refusals.refuses = isOfService(new Set([1]));
    await kernel.asOther().commit([{ op: "delete", kind: "table", ...TABLE }]);
    put(0, [8]);
    expect((await proxier.sync()).ok).toBe(true);
    expect(await elementsOf(kernel)).toEqual(await tableOf({ 0: [8] }));
  });
});

describe("services that are retried at once, if the kernel names no element", () => {
  beforeEach(() => start("operation"));

  /** Retries all services that are due. */
  async function retry(): Promise<void> {
    now += 400_000;
    expect((await proxier.sync()).ok).toBe(true);
  }

  it.each(["ENOMEM", "EINVAL"])(
    "three of them stay quarantined without other changes, and the write succeeds (%s)",
    async (errno) => {
      for (let i = 0; i < 10; i++) put(i, [i]);
      bad(0, 1, 2);
      refusals.errno = errno;
      proxier.synced();
      expect((await proxier.sync()).ok).toBe(true);
      expect(told).toHaveLength(3);
      for (let i = 0; i < 3; i++) await retry();
      expect(told).toHaveLength(3);
      allowAll();
      await retry();
      expect(
        told
          .slice(3)
          .map((line) => line.split(":")[0])
          .toSorted(),
      ).toEqual([0, 1, 2].map((i) => `released bench/svc-${i}`));
    },
  );

  it("three new ones, none of them proved at fault, are not blamed", async () => {
    for (let i = 5; i < 10; i++) put(i, [i]);
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    for (let i = 0; i < 3; i++) put(i, [i]);
    bad(0, 1, 2);
    expect((await proxier.sync()).ok).toBe(false);
    expect(told).toEqual([]);
  });

  it.each([
    [1, 2],
    [2, 1],
  ])(
    "an address moves from service %i, which is refused, to service %i: the second one is served in the end",
    async (from, to) => {
      const shared = { externalIPs: ["198.51.100.7"] };
      for (let i = 0; i < 10; i++) put(i, [i], i === from ? shared : {});
      proxier.synced();
      expect((await proxier.sync()).ok).toBe(true);
      put(from, [from + 200]);
      put(to, [to], shared);
      put(5, [300]);
      const ofOne = isOfService(new Set([from]));
      refusals.refuses = (op, element) => op.op === "add" && ofOne(op, element);
      expect((await proxier.sync()).ok).toBe(true);
      expect(told).toHaveLength(2);
      for (let i = 0; i < 3; i++) await retry();
      expect(told.slice(2)).toEqual([`released bench/svc-${to}`]);
    },
  );
});

describe("a kernel that names nothing", () => {
  beforeEach(() => start("nothing"));

  /** Numbers of the services whose cluster IP is active. */
  async function served(): Promise<Set<number>> {
    const info = (await kernel.sets(TABLE)).find(({ set }) => set === SetName.services);
    if (info === undefined) return new Set();
    const { bytes, count } = await kernel.elements(TABLE, info);
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const first = 10 * 2 ** 24 + 96 * 2 ** 16 + 1;
    return new Set(Array.from({ length: count }, (_, i) => view.getUint32((i * bytes.length) / count) - first));
  }

  async function missingOf(count: number): Promise<number[]> {
    const found = await served();
    return Array.from({ length: count }, (_, i) => i).filter((service) => !found.has(service));
  }

  it("a start with a refused service: the others' rules of an earlier run stay active throughout", async () => {
    for (let i = 0; i < 100; i++) put(i, [i]);
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    await proxier.stop();
    proxier = make(kernel);
    for (let i = 0; i < 100; i++) put(i, i === 7 ? [50, 51] : [i]);
    const ofOne = isOfService(new Set([7]));
    refusals.refuses = (op, element) => op.op === "add" && ofOne(op, element);
    const missing = new Set<number>();
    const commit = kernel.commit.bind(kernel);
    kernel.commit = async (ops, options) => {
      const result = await commit(ops, options);
      for (const service of await missingOf(100)) missing.add(service);
      return result;
    };
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    expect([...missing]).toEqual([7]);
    expect(told).toEqual([expect.stringContaining("quarantined bench/svc-7")]);
  });

  /** A separate quarantine, and the current views of the proxier's objects. */
  function alone() {
    const clock = { now: () => now };
    const table = new Table(kernel, { family: "ip", name: "kube-proxy", clock });
    const ruleset = new FamilyRuleset(table, "ip", {
      masqueradeAll: false,
      masqueradeBit: 14,
      detector: { kind: "none" },
      nodePortAddresses: "all",
    });
    const observer: ProxierObserver = { quarantined: ({ service }) => void told.push(service) };
    const quarantine = new Quarantine({ family: "ip", ruleset, log: SILENT, clock, observers: [observer] });
    const change = (index: number): void => {
      const name = `bench/svc-${index}`;
      quarantine.update(name, proxier.model.views("ip", name));
    };
    return { quarantine, change, write: () => quarantine.write(() => table.apply()) };
  }

  it("many changes, one of them refused: no write takes long, and each activates the changes before it", async () => {
    const { quarantine, change, write } = alone();
    for (let i = 0; i < MANY + 100; i++) put(i, podsOf(i, 3));
    for (let i = 0; i < MANY; i++) change(i);
    bad(MANY / 2);
    // About as long as Linux takes for a transaction.
    const commit = kernel.commit.bind(kernel);
    kernel.commit = (ops, options) => {
      now += 2 + ops.reduce((sum, op) => sum + ("elements" in op ? op.elements.count : 0), 0) / 200;
      return commit(ops, options);
    };
    await write();
    expect(quarantine.hasSuspects).toBe(true);
    const times: number[] = [];
    while (quarantine.hasSuspects && times.length < 100) {
      const others = MANY + times.length;
      change(others);
      const began = now;
      await write();
      times.push(now - began);
      expect(await served()).toContain(others);
    }
    expect(told).toEqual([`bench/svc-${MANY / 2}`]);
    expect(await missingOf(MANY + times.length)).toEqual([MANY / 2]);
    expect(Math.max(...times)).toBeLessThan(60);
    expect(times.length).toBeGreaterThan(2);
    expect(refusals.refused + refusals.passed).toBeLessThan(60 + times.length);
  });

  it("an address that moves between two of many services: both are written at once, whatever else is tried", async () => {
    const { quarantine, change, write } = alone();
    const shared = (externalIPs: readonly string[]): Partial<V1Service["spec"]> => ({ externalIPs: [...externalIPs] });
    for (let i = 0; i < 20; i++) put(i, [i], shared(i === 3 ? ["203.0.113.1"] : []));
    for (let i = 0; i < 20; i++) change(i);
    await write();
    for (let i = 0; i < 20; i++) put(i, [30 + i], shared(i === 4 ? ["203.0.113.1"] : []));
    for (let i = 0; i < 20; i++) change(i);
    bad(0, 1);
    const commit = kernel.commit.bind(kernel);
    const passing = ((203 * 256 + 0) * 256 + 113) * 256 + 1 - (10 * 2 ** 24 + 96 * 2 ** 16 + 1);
    const gaps: number[] = [];
    kernel.commit = async (ops, options) => {
      now += 30;
      const result = await commit(ops, options);
      if (!(await served()).has(passing)) gaps.push(now);
      return result;
    };
    await write();
    expect(quarantine.services).toContain("bench/svc-3");
    // The address has not passed to the other service yet, because that one is waiting, too.
    put(3, [60]);
    change(3);
    for (let i = 0; i < 20 && quarantine.hasSuspects; i++) await write();
    expect(gaps).toEqual([]);
    expect(told.toSorted()).toEqual(["bench/svc-0", "bench/svc-1"]);
  });
});
