/** The kernel's time to scale a service of a large cluster to a number of endpoints that no other service of its map has. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import type { Proxier } from "../../src/proxier/proxier.js";
import { KeyPacker } from "../../src/ruleset/key-packer.js";
import { shardOf, SHARDS } from "../../src/ruleset/list-values.js";
import { clusterIPOf, freshPod, makeSlice, podsOf } from "../bench/cluster.js";
import { makeProxier, putService, sync } from "../unit/proxier/support/proxier.js";
import { makeNamespace, type Namespace } from "../support/real-kernel.ts";
import { decoded } from "../support/decoded.js";

/** Some 2,000 elements in each map. */
const SERVICES = 3_000;
const ENDPOINTS = 10;
const MOST = 16;

let namespace: Namespace;
let kernel: NftKernel;
let proxier: Proxier;

beforeAll(async () => {
  namespace = await makeNamespace();
  kernel = await NftKernel.open({ netns: namespace.path });
  proxier = makeProxier(kernel);
  for (let i = 0; i < SERVICES; i++) {
    putService(proxier, i, podsOf(i, ENDPOINTS));
  }
  proxier.synced();
  expect((await proxier.sync()).ok).toBe(true);
});
afterAll(async () => {
  await proxier.stop();
  await kernel.close();
  await namespace.remove();
});

/** Scales the service, and returns the kernel's time, ns. */
async function scale(service: number, count: number): Promise<number> {
  const added = Array.from({ length: count - ENDPOINTS }, (_, i) => freshPod(SERVICES, ENDPOINTS, service * MOST + i));
  proxier.upsert(
    decoded({ kind: "EndpointSlice", object: makeSlice(service, [...podsOf(service, ENDPOINTS), ...added]) }),
  );
  return (await sync(proxier)).kernelNs;
}

const median = (all: readonly number[]): number => all.toSorted((a, b) => a - b)[all.length >> 1] ?? Number.NaN;

test(`scaling to a new number of endpoints takes at most three times as long as to a number that others have`, async () => {
  const keys = new KeyPacker("ip");
  const byShard = Map.groupBy(
    Array.from({ length: SERVICES }, (_, i) => i),
    (i) => shardOf(keys.vip(clusterIPOf(i), "TCP", 80).service),
  );
  expect(byShard.size).toBe(SHARDS);
  const toNew: number[] = [];
  const toKnown: number[] = [];
  for (let count = ENDPOINTS + 1; count <= MOST; count++) {
    for (const [first, second] of byShard.values()) {
      toNew.push(await scale(first, count));
      toKnown.push(await scale(second, count));
    }
  }
  expect(median(toNew) / median(toKnown)).toBeLessThan(3);
});
