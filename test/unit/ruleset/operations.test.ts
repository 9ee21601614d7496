/** The cost of a change: element operations, counted by the kernel interface, in a table of 5,000 services with one of 1,000 endpoints. */
import type { V1EndpointSlice, V1Service } from "@kubernetes/client-node";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Proxier } from "../../../src/proxier/proxier.js";
import type { ApplyResult } from "../../../src/nft/sync/apply-result.js";
import { KeyPacker } from "../../../src/ruleset/key-packer.js";
import { shardOf, SHARDS } from "../../../src/ruleset/list-values.js";
import { makeService, makeSlice, podsOf } from "../../bench/cluster.js";
import { makeProxier, sync } from "../proxier/support/proxier.js";
import { decoded, putObjects } from "../../support/decoded.js";

const SERVICES = 5_000;
const BIG = 1_000;
const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);

/** The next service whose endpoints are in the same map as those of the big one, so that they share chains. */
function besideBig(after: number): number {
  const keys = new KeyPacker("ip");
  const shard = (service: number): number =>
    shardOf(keys.vip(makeService(service).spec?.clusterIP ?? "", "TCP", 80).service);
  let next = after + 1;
  while (shard(next) !== shard(SERVICES)) next++;
  return next;
}
/** Services with one endpoint fewer and one more than the big one. */
const FEWER = besideBig(SERVICES);
const MORE = besideBig(FEWER);
/** One of the small services. */
const OTHER = SERVICES - 3;

let now = 0;
const proxierOn = (kernel: FakeKernel): Proxier => makeProxier(kernel, { clock: { now: () => now } });

/** Slice of a service with pods by number; pods in `local` are on this node. */
function slice(service: number, pods: readonly number[], local: readonly number[] = []): V1EndpointSlice {
  const object = makeSlice(service, pods);
  object.endpoints?.forEach((endpoint, index) => {
    if (local.includes(pods[index])) endpoint.nodeName = "this-node";
  });
  return object;
}

const pods = podsOf(SERVICES, BIG);
const fresh = (serial: number): number => 9_000_000 + serial;

describe("operations of a change", () => {
  const kernel = new FakeKernel();
  let proxier: Proxier;
  const change = async (endpoints: V1EndpointSlice): Promise<ApplyResult> => {
    proxier.upsert(decoded({ kind: "EndpointSlice", object: endpoints }));
    return sync(proxier);
  };
  /** Runs deferred deletions. Returns their cost. */
  const settle = async (): Promise<ApplyResult> => {
    now += 10_000;
    return sync(proxier);
  };

  beforeAll(async () => {
    proxier = proxierOn(kernel);
    for (const index of range(0, SERVICES - 2))
      putObjects(proxier, makeService(index), makeSlice(index, podsOf(index, 2)));
    // These two keep the chains for one endpoint fewer and more in use, so that only elements of data maps are counted.
    putObjects(proxier, makeService(FEWER), makeSlice(FEWER, range(8_000_000, BIG - 1)));
    putObjects(proxier, makeService(MORE), makeSlice(MORE, range(8_100_000, BIG + 1)));
    putObjects(proxier, makeService(SERVICES), makeSlice(SERVICES, pods));
    proxier.synced();
    const first = await sync(proxier);
    // Chains, then elements, 16,384 at a time, then the elements that make packets see them.
    expect(first.transactions).toBe(Math.ceil(first.operations.element.add / 16_384) + 2);
  });
  /** Runs deferred deletions, and those of chains without references, which take some rounds. */
  const settleAll = async (): Promise<void> => {
    for (let round = 0; round < 4; round++) {
      now += 61_000;
      await sync(proxier);
    }
  };
  // Writing the table takes seconds, so the tests share it. Each one begins with the same objects and chains.
  beforeEach(async () => {
    putObjects(proxier, makeService(OTHER), makeSlice(OTHER, podsOf(OTHER, 2)));
    putObjects(proxier, makeService(SERVICES), makeSlice(SERVICES, pods));
    await settleAll();
  });

  it("writes nothing when the same objects arrive again", async () => {
    const commits = kernel.commits.length;
    putObjects(proxier, makeService(SERVICES), makeSlice(SERVICES, pods));
    expect((await sync(proxier)).transactions).toBe(0);
    expect((await change(makeSlice(SERVICES, pods.toReversed()))).transactions).toBe(0);
    expect(kernel.commits.length).toBe(commits);
  });

  it("writes nothing after a restart, even if a table's endpoints have another order", async () => {
    await change(makeSlice(SERVICES, [...pods.slice(0, 10), ...pods.slice(11), fresh(1)]));
    const again = proxierOn(kernel);
    for (const index of range(0, SERVICES - 2))
      putObjects(again, makeService(index), makeSlice(index, podsOf(index, 2)));
    putObjects(again, makeService(FEWER), makeSlice(FEWER, range(8_000_000, BIG - 1)));
    putObjects(again, makeService(MORE), makeSlice(MORE, range(8_100_000, BIG + 1)));
    putObjects(again, makeService(SERVICES), makeSlice(SERVICES, [fresh(1), ...pods.toSpliced(10, 1)]));
    again.synced();
    const commits = kernel.commits.length;
    expect((await sync(again)).transactions).toBe(0);
    expect(kernel.commits.length).toBe(commits);
    await again.stop();
    expect((await change(makeSlice(SERVICES, pods))).total).toBe(2);
  });

  it("replaces an endpoint with 2", async () => {
    const result = await change(makeSlice(SERVICES, pods.with(500, fresh(2))));
    expect(result).toMatchObject({ transactions: 1, total: 2, operations: { element: { add: 1, delete: 1 } } });
    expect((await change(makeSlice(SERVICES, pods))).total).toBe(2);
    expect((await settle()).transactions).toBe(0);
  });

  it("scales up with 3", async () => {
    const result = await change(makeSlice(SERVICES, [...pods, fresh(3)]));
    expect(result).toMatchObject({ transactions: 1, total: 3, operations: { element: { add: 2, delete: 1 } } });
  });

  it("scales down with 5, and deletes the unused tail in a later transaction", async () => {
    await change(makeSlice(SERVICES, [...pods, fresh(3)]));
    const result = await change(makeSlice(SERVICES, [...pods.toSpliced(3, 1), fresh(3)]));
    expect(result).toMatchObject({ transactions: 1, total: 4 });
    expect(result.applyAgainMs).toBeGreaterThan(0);
    expect(await settle()).toMatchObject({ transactions: 1, total: 1, operations: { element: { add: 0, delete: 1 } } });
    expect((await settle()).transactions).toBe(0);
  });

  it("keeps the tail when the service grows again before it is deleted", async () => {
    expect((await change(makeSlice(SERVICES, pods.slice(0, -1)))).total).toBe(2);
    expect((await change(makeSlice(SERVICES, pods))).total).toBe(2);
    expect((await settle()).transactions).toBe(0);
  });

  it("adds a chain, its rule and a reference for a number of endpoints that no other service has", async () => {
    const grown = [...pods, fresh(4), fresh(5)];
    const result = await change(makeSlice(SERVICES, grown));
    expect(result.operations).toMatchObject({
      element: { add: 4, delete: 1 },
      chain: { add: 1, delete: 0 },
      rule: { add: 1, delete: 0 },
    });
    expect(result.total).toBe(7);
    // The chain is written first: a packet in flight must not find it empty.
    expect(result.transactions).toBe(2);
    const kinds = kernel.commits.slice(-2).map((ops) => new Set(ops.map((op) => op.kind)));
    expect(kinds).toEqual([new Set(["chain", "rule"]), new Set(["elements"])]);
  });

  it("costs one more for a local endpoint, which may call itself, and one later when it is removed", async () => {
    expect((await change(slice(SERVICES, pods.with(7, fresh(6)), [fresh(6)]))).total).toBe(3);
    expect((await change(slice(SERVICES, pods.with(7, fresh(7)), [fresh(7)]))).total).toBe(3);
    // A packet sent to it just before is checked at postrouting for having come from there.
    expect((await settle()).operations.element).toEqual({ add: 0, delete: 1 });
    expect((await change(makeSlice(SERVICES, pods))).total).toBe(2);
    expect((await settle()).operations.element).toEqual({ add: 0, delete: 1 });
  });

  it("costs the same again for each further VIP and node port", async () => {
    const service = makeService(SERVICES);
    const full: V1Service = {
      ...service,
      spec: {
        ...service.spec,
        type: "LoadBalancer",
        externalIPs: ["203.0.113.7"],
        ports: [{ name: "http", port: 80, protocol: "TCP", nodePort: 30080 }],
      },
      status: { loadBalancer: { ingress: [{ ip: "203.0.113.8" }] } },
    };
    proxier.upsert(decoded({ kind: "Service", object: full }));
    await sync(proxier);
    expect((await change(makeSlice(SERVICES, pods.with(500, fresh(8))))).total).toBe(4 * 2);
    // The chains for this count that mark for masquerading are new, and so are the elements that lead there.
    const up = await change(makeSlice(SERVICES, [...pods.with(500, fresh(8)), fresh(9)]));
    expect(up.operations.element).toEqual({ add: 4 * 2 + up.operations.chain.add, delete: 4 });
    const down = await change(makeSlice(SERVICES, pods.with(500, fresh(9))));
    expect(down.operations.element).toEqual({ add: 2 * 4, delete: 2 * 4 });
    expect((await settle()).operations.element).toEqual({ add: 0, delete: 4 });
  });

  it("adds one element for each VIP and node port of a service that requests resets, and of no other", async () => {
    const before = makeService(OTHER);
    const annotations = { "nft-proxier.dev/reset-removed-endpoints": "true" };
    const asking: V1Service = { ...before, metadata: { ...before.metadata, annotations } };
    proxier.upsert(decoded({ kind: "Service", object: asking }));
    expect((await sync(proxier)).operations.element).toEqual({ add: 1, delete: 0 });
    proxier.upsert(decoded({ kind: "Service", object: before }));
    expect((await sync(proxier)).operations.element).toEqual({ add: 0, delete: 1 });
  });

  it("keeps the references to a number of endpoints from before a restart while packets may use them", async () => {
    const alone = new FakeKernel();
    const before = proxierOn(alone);
    putObjects(before, makeService(0), makeSlice(0, podsOf(0, 2)));
    before.synced();
    await sync(before);
    await before.stop();
    const again = proxierOn(alone);
    putObjects(again, makeService(0), makeSlice(0, podsOf(0, 3)));
    again.synced();
    const result = await sync(again);
    expect(result.operations.chain).toEqual({ add: 1, delete: 0 });
    // The count, the element that leads there, one endpoint.
    expect(result.operations.element).toEqual({ add: 3, delete: 1 });
    now += 10_000;
    expect((await sync(again)).operations).toMatchObject({
      chain: { add: 0, delete: 1 },
      element: { add: 0, delete: 1 },
    });
    now += 10_000;
    expect((await sync(again)).transactions).toBe(0);
    await again.stop();
  });

  it("deletes all objects of a deleted service", async () => {
    proxier.remove("Service", "bench/svc-5000");
    await sync(proxier);
    await settle();
    const table = { family: "ip", table: "kube-proxy" } as const;
    const sets = await kernel.sets(table);
    const counts = await Promise.all(
      sets.map(async (set) => [set.set, (await kernel.elements(table, set)).count] as const),
    );
    const inShards = counts.filter(([set]) => /^endpoints-[0-9a-f]$/.test(set)).map(([, count]) => count);
    expect(inShards).toHaveLength(SHARDS);
    expect(inShards.reduce((sum, count) => sum + count)).toBe((SERVICES - 2) * 2 + BIG - 1 + BIG + 1);
    expect(Object.fromEntries(counts)).toMatchObject({
      "cluster-ips": SERVICES,
      services: SERVICES,
      nodeports: 0,
      "nodeport-endpoints": 0,
      "hairpin-connections": 0,
      "reset-services": 0,
    });
  });

  it("deletes the draw chains of a deleted service after a while", async () => {
    const table = { family: "ip", table: "kube-proxy" } as const;
    const chains = async (): Promise<string[]> =>
      (await kernel.chains(table)).map(({ chain }) => chain).filter((name) => /-\d+(-[0-9a-f])?$/.test(name));
    proxier.remove("Service", "bench/svc-5000");
    await settleAll();
    const big = shardOf(
      new KeyPacker("ip").vip(makeService(SERVICES).spec?.clusterIP ?? "", "TCP", 80).service,
    ).toString(16);
    const twos = Array.from({ length: SHARDS }, (_, shard) => `cluster-2-${shard.toString(16)}`);
    // The big services make this map large, and large maps keep chains for small counts.
    const spares = range(1, 16).map((count) => `cluster-${count}-${big}`);
    const expected = new Set([`cluster-1001-${big}`, ...twos, ...spares, `cluster-999-${big}`]);
    expect(new Set(await chains())).toEqual(expected);
    const dispatch = (await kernel.sets(table)).find(({ set }) => set === "dispatch")!;
    expect((await kernel.elements(table, dispatch)).count).toBe(expected.size);
  });
});
