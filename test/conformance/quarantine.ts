/**
 * A service that the kernel rejects does not affect others: with the kernel's own errors, for every kind of operation.
 */
import type { V1Service } from "@kubernetes/client-node";
import { beforeEach, describe, expect, test } from "vitest";

import { KernelError } from "../../src/nft/kernel/errors.js";
import type { CommitOptions, ElementBatch, Kernel, Op } from "../../src/nft/kernel/kernel.js";
import type { ProxierObserver } from "../../src/proxier/observer.js";
import type { Proxier } from "../../src/proxier/proxier.js";
import { SetName } from "../../src/ruleset/names.js";
import { podsOf } from "../bench/cluster.js";
import { patience } from "../lab/patience.js";
import { makeProxier, putService } from "../unit/proxier/support/proxier.js";
import { isOfService } from "../unit/proxier/support/refusing.js";
import type { OpenKernelWorld } from "../support/kernel-world.ts";
import type { KernelFacts } from "../support/kernel-facts.ts";

const TABLE = { family: "ip", table: "kube-proxy" } as const;
const TIMEOUT_MS = patience(300_000);

let kernel: Kernel;
let facts: KernelFacts;
/** Replaces an operation before it is sent. */
let spoil: (op: Op) => Op;
/** Whether an error names its cause. */
let telling: boolean;
let refused: number;
let now: number;
let reported: string[];
let proxier: Proxier;

/** Opens the kernel, with `spoil` applied to its commits, and starts a proxier on it. */
async function start(open: OpenKernelWorld): Promise<() => Promise<void>> {
  const world = await open();
  ({ kernel, facts } = world);
  const commit = kernel.commit.bind(kernel);
  kernel.commit = async (ops: readonly Op[], options?: CommitOptions) => {
    try {
      return await commit(ops.map(spoil), options);
    } catch (error) {
      refused++;
      if (telling || !(error instanceof KernelError) || error.code !== "refused") throw error;
      throw new KernelError("refused", "the kernel refused the batch", { ...error.details, faults: [] });
    }
  };
  spoil = (op) => op;
  telling = true;
  refused = 0;
  now = 1_000_000;
  reported = [];
  proxier = makeProxier(kernel, {
    clock: { now: () => now },
    observers: [
      {
        quarantined: ({ service }) => void reported.push(`quarantined ${service}`),
        released: ({ service }) => void reported.push(`released ${service}`),
      },
    ],
  });
  return async () => {
    await proxier.stop();
    await world.close();
  };
}

const put = (index: number, pods: readonly number[], change?: Partial<V1Service["spec"]>): void =>
  putService(proxier, index, pods, change);

/** If an error names nothing, or a missing object, the first failure may have any cause. */
async function write(): Promise<void> {
  for (let i = 0; i < 3; i++) if ((await proxier.sync()).ok) return;
  throw new Error("the others were not written either");
}

/** The services among the first `count` whose cluster IP is active. */
async function served(count: number): Promise<Set<number>> {
  const info = (await kernel.sets(TABLE)).find(({ set }) => set === SetName.services);
  if (info === undefined) throw new Error("no map of services");
  const batch = await kernel.elements(TABLE, info);
  const op: Op = { op: "add", kind: "elements", ...TABLE, set: info.set, elements: batch };
  const found = new Set<number>();
  const firstAddress = 10 * 2 ** 24 + 96 * 2 ** 16 + 1;
  const stride = batch.bytes.length / batch.count;
  const view = new DataView(batch.bytes.buffer, batch.bytes.byteOffset);
  for (let index = 0; index < batch.count; index++) {
    const service = view.getUint32(index * stride) - firstAddress;
    if (service < count && isOfService(new Set([service]))(op, { batch, index })) found.add(service);
  }
  return found;
}

/** Gives these services' elements a flag that no kernel knows. */
function withNonsense(services: ReadonlySet<number>): (op: Op) => Op {
  const isTheirs = isOfService(services);
  return (op) => {
    if (op.kind !== "elements" || op.op !== "add" || op.set !== SetName.services) return op;
    const batch: ElementBatch = op.elements;
    const stride = batch.bytes.length / batch.count;
    const bytes = new Uint8Array(batch.count * (stride + 4));
    for (let index = 0; index < batch.count; index++) {
      const at = index * (stride + 4);
      bytes.set(batch.bytes.subarray(index * stride, (index + 1) * stride), at);
      if (isTheirs(op, { batch, index })) bytes[at + stride] = 0x40;
    }
    return { ...op, elements: { ...batch, flags: true, bytes } };
  };
}

/** Requirements on the proxier with every kernel. */
export function describeIsolation(name: string, open: OpenKernelWorld): void {
  describe(`services that ${name} refuses`, () => {
    beforeEach(() => start(open));
    each();
  });
}

/** The same with 5,000 services. */
export function describeIsolationAmongMany(name: string, open: OpenKernelWorld): void {
  describe(`a few services among many that ${name} refuses`, () => {
    beforeEach(() => start(open));
    amongMany();
    beside();
  });
}

function amongMany(): void {
  describe.each([
    ["and the kernel names the element", true],
    ["and the kernel names nothing", false],
  ])("several services among 5,000 are refused, %s", (_title, tells) => {
    test(
      "the others are served, and the refused ones follow when the kernel accepts them",
      { timeout: TIMEOUT_MS },
      async () => {
        const wrong = new Set([7, 8, 1234, 4999]);
        for (let i = 0; i < 5000; i++) put(i, podsOf(i, 3));
        spoil = withNonsense(wrong);
        telling = tells;
        proxier.synced();
        await write();
        expect(reported.toSorted()).toEqual([...wrong].map((i) => `quarantined bench/svc-${i}`).toSorted());
        const all = new Set(Array.from({ length: 5000 }, (_, i) => i));
        expect(await served(5000)).toEqual(new Set([...all].filter((i) => !wrong.has(i))));
        // If errors name no element, log2(n) for each service; if an object is said to be missing, it is checked and
        // retried once more.
        const tries = tells && !facts.namesElements ? 2 : 1;
        expect(refused).toBeLessThan(tries * 4 * 13 + 12);
        spoil = (op) => op;
        now += 1000;
        await write();
        expect(await served(5000)).toEqual(all);
        expect(reported.slice(4).toSorted()).toEqual([...wrong].map((i) => `released bench/svc-${i}`).toSorted());
      },
    );
  });
}

/** CPU time of this process, ms. Unlike wall time, it does not depend on other programs. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Changes that are tried together with those of the rejected service. */
const TOGETHER = 5000;

function beside(): void {
  test(
    "another service's change does not wait until the refused one among 5,000 is found",
    { timeout: TIMEOUT_MS },
    async () => {
      let news = Promise.withResolvers<void>();
      const active = new Set<string>();
      let writes = 0;
      const synced: ProxierObserver["synced"] = ({ services }) => {
        writes++;
        for (const service of services) active.add(service);
        news.resolve();
        news = Promise.withResolvers();
      };
      await proxier.stop();
      const quarantined: ProxierObserver["quarantined"] = ({ service }) => void reported.push(service);
      proxier = makeProxier(kernel, { observers: [{ synced, quarantined }] });
      for (let i = 0; i < TOGETHER; i++) put(i, podsOf(i, 3));
      proxier.synced();
      await write();
      const bad = TOGETHER / 2;
      spoil = withNonsense(new Set([bad]));
      telling = false;
      active.clear();
      const began = performance.now();
      for (let i = 0; i < TOGETHER; i++) put(i, podsOf(i + 1, i === bad ? 4 : 3));
      proxier.flush();
      await news.promise;
      const refusedMs = performance.now() - began;
      const waits: { readonly ms: number; readonly cpuMs: number; readonly writes: number }[] = [];
      for (let other = TOGETHER; waits.length < 200; other++) {
        put(other, podsOf(other, 3));
        const changed = { at: performance.now(), cpuMs: cpuMs(), writes };
        proxier.flush();
        while (!active.has(`bench/svc-${other}`)) await news.promise;
        waits.push({
          ms: performance.now() - changed.at,
          cpuMs: cpuMs() - changed.cpuMs,
          writes: writes - changed.writes,
        });
        if (active.size >= TOGETHER - 1 + waits.length) break;
      }
      const allMs = performance.now() - began;
      const sorted = (of: keyof (typeof waits)[number]): number[] =>
        waits.map((wait) => wait[of]).sort((a, b) => a - b);
      const [ms, cpu] = [sorted("ms"), sorted("cpuMs")];
      const middle = waits.length >> 1;
      console.log(
        `refused after ${refusedMs.toFixed(0)} ms, all others active after ${allMs.toFixed(0)} ms, ${refused} refusals; ` +
          `${waits.length} changes beside: median ${ms[middle].toFixed(1)} ms (CPU ${cpu[middle].toFixed(1)}), worst ${ms.at(-1)!.toFixed(1)} ms`,
      );
      expect(reported).toEqual([`bench/svc-${bad}`]);
      expect(waits.length).toBeGreaterThan(2);
      // The write under way, and the next one. None of them tries the suspects for long.
      expect(sorted("writes").at(-1)).toBeLessThanOrEqual(2);
      expect(cpu[middle]).toBeLessThan(patience(200));
    },
  );
}

function each(): void {
  const affine: Partial<V1Service["spec"]> = {
    sessionAffinity: "ClientIP",
    type: "LoadBalancer",
    loadBalancerSourceRanges: ["198.51.100.0/24"],
    externalIPs: ["203.0.113.5"],
  };
  const own = (name: string): boolean => /^(sticky|source-ranges)-.*[0-9a-f]{10}/.test(name);
  const nonsense = { type: "immediate", dreg: 0, data: { verdict: "jump", chain: "nowhere" } } as const;

  test.each<[string, (op: Op) => Op]>([
    [
      "an added chain",
      (op) =>
        op.kind === "chain" && op.op === "add" && own(op.chain)
          ? { ...op, base: { type: "filter", hook: 99, priority: 0 } }
          : op,
    ],
    [
      "an added rule",
      (op) => (op.kind === "rule" && op.op === "add" && own(op.chain) ? { ...op, exprs: [...op.exprs, nonsense] } : op),
    ],
    [
      "an added set",
      (op) =>
        op.kind === "set" && op.op === "add" && own(op.set) ? { ...op, op: "create", set: SetName.services } : op,
    ],
    [
      "added elements",
      (op) =>
        op.kind === "elements" && op.op === "add" && op.set === SetName.stickyCluster ? { ...op, set: "nowhere" } : op,
    ],
  ])("%s is refused: the others are served, and its service follows later", async (_what, spoiled) => {
    put(0, [0]);
    put(1, [1, 2], affine);
    let met = 0;
    spoil = (op) => {
      const sent = spoiled(op);
      if (sent !== op) met++;
      return sent;
    };
    proxier.synced();
    await write();
    expect(met).toBeGreaterThan(0);
    expect(reported).toEqual(["quarantined bench/svc-1"]);
    expect(await served(2)).toEqual(new Set([0]));
    spoil = (op) => op;
    now += 1000;
    await write();
    expect(await served(2)).toEqual(new Set([0, 1]));
    expect(reported.at(-1)).toBe("released bench/svc-1");
  });

  test.each<[string, (op: Op) => Op]>([
    [
      "a deleted chain",
      (op) => (op.kind === "chain" && op.op === "delete" && own(op.chain) ? { ...op, chain: `${op.chain}-x` } : op),
    ],
    [
      "flushed rules",
      (op) =>
        op.kind === "rule" && op.op === "flush" && op.chain !== undefined && own(op.chain)
          ? { ...op, chain: `${op.chain}-x` }
          : op,
    ],
    [
      "a deleted set",
      (op) => (op.kind === "set" && op.op === "delete" && own(op.set) ? { ...op, set: "nowhere" } : op),
    ],
    [
      "deleted elements",
      (op) =>
        op.kind === "elements" && op.op === "delete" && isAny(op, new Set([1])) ? { ...op, set: "nowhere" } : op,
    ],
  ])("%s is refused: the others are changed, and its service is deleted later", async (_what, spoiled) => {
    put(0, [0]);
    put(1, [1, 2], affine);
    put(2, [3]);
    proxier.synced();
    await write();
    let met = 0;
    spoil = (op) => {
      const sent = spoiled(op);
      if (sent !== op) met++;
      return sent;
    };
    proxier.remove("Service", "bench/svc-1");
    put(3, [5, 6]);
    await write();
    expect(met).toBeGreaterThan(0);
    expect(reported).toEqual(["quarantined bench/svc-1"]);
    expect(await served(4)).toEqual(new Set([0, 1, 2, 3]));
    spoil = (op) => op;
    now += 1000;
    await write();
    now += 1000;
    await write();
    expect(await served(4)).toEqual(new Set([0, 2, 3]));
    expect((await kernel.chains(TABLE)).filter(({ chain }) => own(chain))).toEqual([]);
  });
}

function isAny(op: Op, services: ReadonlySet<number>): boolean {
  if (op.kind !== "elements" || op.op === "flush") return false;
  const batch = op.elements;
  return Array.from({ length: batch.count }, (_, index) => isOfService(services)(op, { batch, index })).includes(true);
}
