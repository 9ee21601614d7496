/** Masquerading by source: the list found for a packet shows whether it goes to a ClusterIP. */
import type { V1Service } from "@kubernetes/client-node";
import { beforeEach, describe, expect, it } from "vitest";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { defaultConfig } from "../../../src/config/load.js";
import { batchLayout } from "../../../src/nft/kernel/element-batch.js";
import { OF_CLUSTER_IP } from "../../../src/ruleset/list-values.js";
import { makeService, makeSlice } from "../../bench/cluster.js";
import { makeProxier } from "../proxier/support/proxier.js";
import { putObjects } from "../../support/decoded.js";

const TABLE = { family: "ip", table: "kube-proxy" } as const;
const CLUSTER_IP = "0a600001";

/** A load balancer with an external IP and a node port. */
function serviceWith(spec: V1Service["spec"], annotations: Record<string, string> = {}): V1Service {
  const service = makeService(0);
  return {
    ...service,
    metadata: { ...service.metadata, annotations },
    spec: {
      ...service.spec,
      type: "LoadBalancer",
      externalIPs: ["203.0.113.7"],
      ports: [{ name: "http", port: 80, protocol: "TCP", nodePort: 30080 }],
      ...spec,
    },
    status: { loadBalancer: { ingress: [{ ip: "203.0.113.8" }] } },
  };
}

let kernel: FakeKernel;
beforeEach(() => (kernel = new FakeKernel()));

async function write(service: V1Service): Promise<void> {
  const proxier = makeProxier(kernel, { config: { ...defaultConfig(), clusterCIDRs: ["10.244.0.0/16"] } });
  const slice = makeSlice(0, [1, 2]);
  for (const endpoint of slice.endpoints ?? []) endpoint.nodeName = "this-node";
  putObjects(proxier, service, slice);
  proxier.synced();
  expect((await proxier.sync()).ok).toBe(true);
}

/** Keys of the map in hex, and whether their values are marked as ClusterIPs. */
async function told(name: string): Promise<Record<string, boolean>> {
  const set = (await kernel.sets(TABLE)).find(({ set }) => set === name)!;
  const batch = await kernel.elements(TABLE, set);
  const { bytes, count } = batch;
  const { stride, data } = batchLayout(batch);
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Object.fromEntries(
    Array.from({ length: count }, (_, i) => {
      const value = buffer.readUInt32LE(i * stride + data);
      return [buffer.toString("hex", i * stride, i * stride + 4), (value & OF_CLUSTER_IP) !== 0];
    }),
  );
}

describe.each<[string, V1Service["spec"], Record<string, string>]>([
  ["plain", {}, {}],
  ["policy Local from outside", { externalTrafficPolicy: "Local" }, {}],
  ["policy Local from inside", { internalTrafficPolicy: "Local" }, {}],
  ["both", { externalTrafficPolicy: "Local", internalTrafficPolicy: "Local" }, {}],
  ["ClientIP affinity", { sessionAffinity: "ClientIP" }, {}],
  ["affinity and policy Local", { sessionAffinity: "ClientIP", externalTrafficPolicy: "Local" }, {}],
  ["balance", {}, { "nft-proxier.dev/balance": "consistent" }],
])("a service: %s", (_, spec, annotations) => {
  it("is marked only for its ClusterIP", async () => {
    await write(serviceWith(spec, annotations));
    expect(await told("services")).toEqual({ [CLUSTER_IP]: true, cb007107: false, cb007108: false });
    expect(Object.values(await told("nodeports"))).toEqual([false]);
  });
});

it("needs no lookup except that of the service", async () => {
  await write(serviceWith({}));
  const rules = (await kernel.rules(TABLE)).filter(({ chain }) => ["services", "served"].includes(chain));
  const sets = rules.flatMap(({ exprs }) => exprs.flatMap((expr) => (expr.type === "lookup" ? [expr.set] : [])));
  expect(sets).toEqual(["dispatch", "services", "nodeports"]);
});
