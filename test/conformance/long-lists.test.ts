/**
 * More endpoints than a packet has ports, with policy Local: a service's two lists stay separate in the kernel's maps.
 */
import { afterAll, beforeAll, expect, test } from "vitest";

import { batchLayout } from "../../src/nft/kernel/element-batch.js";
import type { Kernel } from "../../src/nft/kernel/kernel.js";
import { shardOf } from "../../src/ruleset/list-values.js";
import { endpointsName } from "../../src/ruleset/names.js";
import { makeService, makeSlice, podsOf } from "../bench/cluster.js";
import { patience } from "../lab/patience.js";
import { makeProxier } from "../unit/proxier/support/proxier.js";
import { makeNamespace, openReal, type Namespace } from "../support/real-kernel.ts";
import { decoded } from "../support/decoded.js";

const TABLE = { family: "ip", table: "kube-proxy" } as const;
const ENDPOINTS = 65_537;
const LOCAL = ["11.0.0.4", "11.0.0.5"];
/** 203.0.113.9, TCP, 80, each padded to four bytes. */
const VIP = "cb0071090600000000500000";
const SHARD = shardOf(Buffer.from(VIP, "hex"));

let namespace: Namespace;
beforeAll(async () => {
  namespace = await makeNamespace();
});
afterAll(() => namespace.remove());

/** The target of each number that the chain draws: an address, or undefined. */
async function drawn(kernel: Kernel, chain: string): Promise<(string | undefined)[]> {
  const [rule] = await kernel.rules(TABLE, chain);
  const draw = rule?.exprs.find((expr) => expr.type === "numgen");
  if (draw === undefined) throw new Error(`${chain} selects nothing`);
  const set = (await kernel.sets(TABLE)).find((one) => one.set === endpointsName(SHARD));
  if (set === undefined) throw new Error("no map of endpoints");
  const batch = await kernel.elements(TABLE, set);
  const { stride, data } = batchLayout(batch);
  const bytes = Buffer.from(batch.bytes.buffer, batch.bytes.byteOffset, batch.bytes.byteLength);
  const found = new Map<number, string>();
  for (let at = 0; at < batch.count * stride; at += stride) {
    if (bytes.toString("hex", at, at + 12) !== VIP) continue;
    found.set(bytes.readUInt32LE(at + 12), bytes.subarray(at + data, at + data + 4).join("."));
  }
  return Array.from({ length: draw.modulus }, (_, index) => found.get((draw.offset ?? 0) + index));
}

test(
  `${ENDPOINTS} endpoints, policy Local: each list selects its own endpoints, also after it shrinks`,
  { timeout: patience(300_000) },
  async () => {
    const world = await openReal(() => namespace)();
    const proxier = makeProxier(world.kernel);
    const service = makeService(0);
    proxier.upsert(
      decoded({
        kind: "Service",
        object: {
          ...service,
          spec: { ...service.spec, type: "LoadBalancer", externalTrafficPolicy: "Local" },
          status: { loadBalancer: { ingress: [{ ip: "203.0.113.9" }] } },
        },
      }),
    );
    const put = (count: number): void => {
      const slice = makeSlice(0, podsOf(0, count));
      const endpoints = (slice.endpoints ?? []).map((one) => ({
        ...one,
        nodeName: LOCAL.includes(one.addresses[0] ?? "") ? "this-node" : "elsewhere",
      }));
      proxier.upsert(decoded({ kind: "EndpointSlice", object: { ...slice, endpoints } }));
    };
    try {
      proxier.synced();
      for (const count of [ENDPOINTS, ENDPOINTS - 1, ENDPOINTS + 2]) {
        put(count);
        expect((await proxier.sync()).ok).toBe(true);
        const cluster = await drawn(world.kernel, `cluster-${count}-${SHARD.toString(16)}`);
        expect([cluster.length, new Set(cluster).size, cluster.includes(undefined)]).toEqual([count, count, false]);
        expect(new Set(await drawn(world.kernel, `local-2-${SHARD.toString(16)}`))).toEqual(new Set(LOCAL));
      }
    } finally {
      await proxier.stop();
      await world.close();
    }
  },
);
