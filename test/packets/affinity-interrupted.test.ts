/**
 * A service that gains or loses affinity in an update that the kernel rejects halfway: its table then has both versions of each port. Clients
 * keep their endpoints when the update is completed.
 */
import { release } from "node:os";

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";

import { defaultConfig } from "../../src/config/load.ts";
import type { Op } from "../../src/nft/kernel/kernel.ts";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.ts";
import type { Proxier } from "../../src/proxier/proxier.ts";
import { FakeInterfaces } from "../fakes/fake-interfaces.ts";
import { type ApiObject, decoded } from "../support/decoded.ts";
import { factsOf } from "../support/kernel-facts.ts";
import { makeProxier } from "../unit/proxier/support/proxier.ts";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, externalAddress, NODE, serviceObjects, type ServiceSpec } from "./support/objects.ts";

const NAME = "default/changing";
const PODS = new Set(["a", "b", "c"]);
const sticky: ServiceSpec = {
  name: "changing",
  n: 1,
  endpoints: ["a", "b", "c"],
  protocols: ["tcp"],
  affinitySeconds: 10_800,
};
/** Has another address, which is removed when the service gains affinity. */
const free: ServiceSpec = {
  ...sticky,
  affinitySeconds: undefined,
  spec: { externalIPs: [externalAddress(1).ip, externalAddress(2).ip] },
};
/** Each draws one of three endpoints. That one of these is never drawn happens once in 10¹² times: 3 × (2/3)^72. */
const CLIENTS = Array.from({ length: 72 }, (_, i) => ({ ip: `198.51.100.${20 + i}`, ip6: `2001:db8:2::${100 + i}` }));

let cluster: Cluster;
let kernel: NftKernel;
let proxier: Proxier;
let now: number;
/** Whether the kernel rejects transactions that only remove elements. */
let rejects: boolean;
let events: string[];

/** Replaces the elements that a transaction only removes by absent ones, so that the kernel itself rejects it, and names an element. */
function spoiled(ops: readonly Op[]): readonly Op[] {
  if (ops.some((op) => op.kind === "elements" && op.op === "add")) return ops;
  return ops.map((op) => {
    if (op.kind !== "elements" || op.op !== "delete") return op;
    const bytes = op.elements.bytes.map((byte) => byte ^ 0xff);
    return { ...op, elements: { ...op.elements, bytes } };
  });
}

beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.lab.client.ip(CLIENTS.map(({ ip }) => `address add ${ip}/32 dev eth0`));
});
afterAll(() => cluster.destroy());

beforeEach(async () => {
  kernel = await NftKernel.open({ netns: `/run/netns/${cluster.node.name}` });
  const commit = kernel.commit.bind(kernel);
  kernel.commit = (ops, options) => commit(rejects ? spoiled(ops) : ops, options);
  now = 1_000_000;
  rejects = false;
  events = [];
  proxier = makeProxier(kernel, {
    config: { ...defaultConfig(), bindAddress: PLAN.node.ip, clusterCIDRs: [PLAN.clusterCIDR.ip] },
    nodeName: NODE,
    clock: { now: () => now },
    interfaces: new FakeInterfaces(),
    // Every service then counts as large, and is written in pieces.
    serviceElements: 1,
    observers: [
      {
        quarantined: ({ service }) => void events.push(`quarantined ${service}`),
        released: ({ service }) => void events.push(`released ${service}`),
      },
    ],
  });
});
afterEach(async () => {
  await proxier.stop();
  const tables = await kernel.tables();
  await kernel.commit(tables.map(({ family, table }) => ({ op: "delete", kind: "table", family, table })));
  await kernel.close();
});

function put(service: ServiceSpec): void {
  for (const object of serviceObjects(cluster.lab, service)) {
    const kind = object["kind"] as ApiObject["kind"];
    proxier.upsert(decoded({ kind, object } as unknown as ApiObject, NODE));
  }
}

/** Returns the pods that answer each client, one connection after the other. */
function answers(): Promise<string[]> {
  const { address, port } = clusterIP(free);
  return Promise.all(
    CLIENTS.map(async ({ ip }) => {
      const outcomes = await cluster.lab.client.agent().probe({
        protocol: "tcp",
        source: ip,
        destination: address.ip,
        port,
        count: 4,
        concurrency: 1,
        timeoutMs: 10_000,
      });
      return [...new Set(outcomes.map((o) => (o.result === "ok" ? o.name : JSON.stringify(o))))].join("|");
    }),
  );
}

/** Writes until the service is quarantined: new elements are in the kernel, and the former ones have not been removed. */
async function interrupt(service: ServiceSpec): Promise<void> {
  put(service);
  rejects = true;
  for (let i = 0; i < 5 && events.length === 0; i++) await proxier.sync();
  expect(events).toEqual([`quarantined ${NAME}`]);
  rejects = false;
}

async function complete(): Promise<void> {
  now += 600_000;
  expect((await proxier.sync()).ok).toBe(true);
  expect(events).toEqual([`quarantined ${NAME}`, `released ${NAME}`]);
}

// Other kernels reject the whole change, and the proxier writes it again in one transaction, which is not interrupted.
if (factsOf(release()).namesElements) describe("a kernel that names the rejected element", onNewer);

function onNewer(): void {
  test("a service whose gain of affinity is completed gives each client one endpoint", async () => {
    put(free);
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    await interrupt(sticky);
    const between = (await answers()).flatMap((pods) => pods.split("|"));
    expect(new Set(between)).toEqual(PODS);
    await complete();
    const after = await answers();
    expect(new Set(after)).toEqual(PODS);
    expect(await answers()).toEqual(after);
  });

  test("clients keep their endpoints if the service gets back its affinity before the loss is completed", async () => {
    put(sticky);
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    const before = await answers();
    expect(new Set(before)).toEqual(PODS);
    await interrupt(free);
    put(sticky);
    await complete();
    expect(await answers()).toEqual(before);
  });
}
