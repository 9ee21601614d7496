/** Draw chains for small counts in large maps: when a service is scaled to a new count, the kernel must not have to walk the map. */
import { beforeEach, describe, expect, it } from "vitest";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Op } from "../../../src/nft/kernel/kernel.js";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { KeyPacker } from "../../../src/ruleset/key-packer.js";
import { shardOf } from "../../../src/ruleset/list-values.js";
import { clusterIPOf, makeService, makeSlice, podsOf } from "../../bench/cluster.js";
import { makeProxier } from "../proxier/support/proxier.js";
import { putObjects } from "../../support/decoded.js";

const TABLE = { family: "ip", table: "kube-proxy" } as const;
const MINUTE = 61_000;
/** Elements of a map that is not large, of a large one, and of one that the kernel takes a while to walk. */
const SMALL = 1_000;
const LARGE = 1_100;
const FULL = 2_200;

const keys = new KeyPacker("ip");
const shard = (service: number): number => shardOf(keys.vip(clusterIPOf(service), "TCP", 80).service);
/** Services whose endpoints are in the same map. */
const SAME = Array.from({ length: 10_000 }, (_, i) => i).filter((i) => shard(i) === shard(0));
const suffix = shard(0).toString(16);

let kernel: FakeKernel;
let now: number;
let proxier: Proxier;
const start = (): Proxier => makeProxier(kernel, { clock: { now: () => now } });
/** Gives the service this many endpoints. */
const put = (index: number, endpoints: number, { local = false } = {}): void => {
  const service = makeService(SAME[index]);
  if (local) service.spec = { ...service.spec, internalTrafficPolicy: "Local" };
  const slice = makeSlice(SAME[index], podsOf(SAME[index] * 100, endpoints));
  if (local) for (const endpoint of slice.endpoints ?? []) endpoint.nodeName = "this-node";
  putObjects(proxier, service, slice);
};
const remove = (index: number): void => {
  proxier.remove("Service", `bench/svc-${SAME[index]}`);
  proxier.remove("EndpointSlice", `bench/svc-${SAME[index]}-a`);
};

/** Writes, and returns the transactions. */
async function sync(): Promise<readonly (readonly Op[])[]> {
  const commits = kernel.commits.length;
  const { ok } = await proxier.sync();
  if (!ok) throw new Error("a write failed");
  return kernel.commits.slice(commits);
}

/** Counts that have a draw chain of this kind. */
async function counts(kind = "cluster"): Promise<number[]> {
  const pattern = new RegExp(`^${kind}-(\\d+)-${suffix}$`);
  const found = (await kernel.chains(TABLE)).flatMap(({ chain }) => pattern.exec(chain)?.[1] ?? []);
  return found.map(Number).sort((a, b) => a - b);
}

const ALL = Array.from({ length: 16 }, (_, i) => i + 1);
const kinds = (commits: readonly (readonly Op[])[]): string[] => [...new Set(commits.flat().map(({ kind }) => kind))];

beforeEach(() => {
  kernel = new FakeKernel();
  now = 1_000_000;
  proxier = start();
});

/** The first write, with enough services for this number of elements. Returns its transactions. */
async function load(elements: number, endpoints = 10): Promise<readonly (readonly Op[])[]> {
  for (let i = 0; i < elements / endpoints; i++) put(i, endpoints);
  proxier.synced();
  return sync();
}

describe("a large map", () => {
  beforeEach(() => load(LARGE));

  it("scales a service to a unique number of endpoints in one transaction of elements", async () => {
    for (const count of [11, 16, 1]) {
      put(0, count);
      const commits = await sync();
      expect(commits).toHaveLength(1);
      expect(kinds(commits)).toEqual(["elements"]);
    }
  });

  it("has its chains before its elements, so that the kernel walks nothing", () => {
    const position = (find: (op: Op) => boolean): number => kernel.commits.flat().findIndex(find);
    const rule = position((op) => op.kind === "rule" && op.chain === `cluster-16-${suffix}`);
    const elements = position((op) => op.kind === "elements" && op.set === `endpoints-${suffix}`);
    expect(rule).toBeGreaterThan(0);
    expect(rule).toBeLessThan(elements);
  });

  it("has no chains for unused kinds of lists, and larger numbers once they are used", async () => {
    expect(await counts("local")).toEqual([]);
    put(0, 17);
    await sync();
    expect(await counts()).toEqual([...ALL, 17]);
    put(1, 3, { local: true });
    await sync();
    expect(await counts("local")).toEqual(ALL);
  });

  it("keeps its chains as it grows, and writes nothing without changes: at once, after a while, after a restart", async () => {
    for (let i = 0; i < FULL / 10; i++) put(i, 10);
    await sync();
    expect(await counts()).toEqual(ALL);
    expect(await sync()).toEqual([]);
    now += MINUTE;
    expect(await sync()).toEqual([]);
    proxier = start();
    expect(await load(FULL)).toEqual([]);
  });

  it("loses its chains a minute after it has shrunk", async () => {
    for (let i = 1; i < LARGE / 10; i++) remove(i);
    await sync();
    expect(await counts()).toEqual(ALL);
    now += 10_000;
    await sync();
    now += MINUTE;
    await sync();
    now += MINUTE;
    await sync();
    expect(await counts()).toEqual([10]);
    expect(await sync()).toEqual([]);
  });

  it("loses the chains of a kind of list a minute after the last list of that kind", async () => {
    put(1, 3, { local: true });
    await sync();
    put(1, 3);
    await sync();
    expect(await counts("local")).toEqual(ALL);
    for (let i = 0; i < 3; i++) {
      now += MINUTE;
      await sync();
    }
    expect(await counts("local")).toEqual([]);
    expect(await counts()).toEqual(ALL);
  });
});

it("a small map has chains only for the numbers in use", async () => {
  await load(SMALL);
  expect(await counts()).toEqual([10]);
});

it("a full map of an earlier version, without the chains, receives each with its first list, and keeps it", async () => {
  await load(FULL, 50);
  expect(await counts()).toEqual([50]);
  for (const count of [3, 5]) {
    put(0, count);
    await sync();
  }
  now += MINUTE;
  await sync();
  now += MINUTE;
  await sync();
  expect(await counts()).toEqual([3, 5, 50]);
  put(0, 3);
  expect(kinds(await sync())).toEqual(["elements"]);
});
