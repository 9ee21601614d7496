/** A service with many ports and ClientIP affinity, which takes chains for each port and one set of clients. */
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import type { CommitOptions, CommitResult, Op } from "../../../src/nft/kernel/kernel.js";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { putObjects } from "../../support/decoded.js";
import { fakeTime, pass } from "./support/fake-time.js";
import { makeProxier } from "./support/proxier.js";

const TABLE = { family: "ip", table: "kube-proxy" } as const;

let kernel: FakeKernel;
let proxier: Proxier;
/** Number of rules of each transaction. */
let rules: number[];

beforeEach(() => {
  fakeTime();
  kernel = new FakeKernel();
  rules = [];
  const commit = kernel.commit.bind(kernel);
  kernel.commit = (ops: readonly Op[], options?: CommitOptions): Promise<CommitResult> => {
    rules.push(ops.filter(({ kind }) => kind === "rule").length);
    return commit(ops, options);
  };
  proxier = makeProxier(kernel, { serviceElements: 1024 });
});
afterEach(async () => {
  await proxier.stop();
  vi.useRealTimers();
});

function put(ports: number, endpoints: number, sessionAffinity = "ClientIP"): void {
  const list = Array.from({ length: ports }, (_, i) => ({ name: `p${i}`, port: 1_000 + i, protocol: "TCP" }));
  putObjects(
    proxier,
    {
      metadata: { name: "web" },
      spec: { clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1"], ports: list, sessionAffinity },
    },
    {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
      addressType: "IPv4",
      ports: list,
      endpoints: Array.from({ length: endpoints }, (_, i) => ({ addresses: [`10.244.1.${i + 1}`] })),
    },
  );
}

async function write(): Promise<void> {
  proxier.flush();
  await pass(3000);
}

const clients = async (): Promise<string[]> =>
  (await kernel.sets(TABLE)).map(({ set }) => set).filter((name) => name.startsWith("sticky-clients-"));
const drawing = async (): Promise<number> =>
  (await kernel.chains(TABLE)).filter(({ chain }) => /^sticky-cluster-[0-9a-f]{10}/.test(chain)).length;

it.each([100, 200])("has one set of clients, and transactions of limited size, with %d ports", async (ports) => {
  put(ports, 20);
  proxier.synced();
  await write();
  expect(await clients()).toHaveLength(1);
  expect(await drawing()).toBe(ports);
  // The chains that go ahead have at most 2,048. The last transaction has the constant rules.
  expect(Math.max(...rules)).toBeLessThanOrEqual(2048);
});

it("keeps the set until its last port with affinity goes", async () => {
  put(100, 3);
  proxier.synced();
  await write();
  const set = await clients();
  put(60, 3);
  await write();
  expect(await clients()).toEqual(set);
  expect(await drawing()).toBe(60);
  put(60, 3, "None");
  await write();
  expect(await clients()).toEqual([]);
  put(60, 3);
  await write();
  expect(await clients()).toEqual(set);
  proxier.remove("Service", "default/web");
  await write();
  expect([await clients(), await drawing()]).toEqual([[], 0]);
});
