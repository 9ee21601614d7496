/** Rules that exist only while something needs them. */
import type { V1Service } from "@kubernetes/client-node";
import { beforeEach, expect, it } from "vitest";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { makeService, makeSlice } from "../../bench/cluster.js";
import { makeProxier } from "../proxier/support/proxier.js";
import { putObjects } from "../../support/decoded.js";

const TABLE = { family: "ip", table: "kube-proxy" } as const;
const MINUTE = 61_000;

let kernel: FakeKernel;
let now: number;
let proxier: Proxier;

const start = (): Proxier => makeProxier(kernel, { clock: { now: () => now } });
const put = (service: V1Service, pods: readonly number[] = [1, 2]): void => {
  putObjects(proxier, service, makeSlice(0, pods));
};
const plain = makeService(0);
const guarded: V1Service = {
  ...plain,
  spec: { ...plain.spec, type: "LoadBalancer", loadBalancerSourceRanges: ["198.51.100.0/24"] },
  status: { loadBalancer: { ingress: [{ ip: "203.0.113.8" }] } },
};
const withNodePort: V1Service = {
  ...plain,
  spec: { ...plain.spec, type: "NodePort", ports: [{ name: "http", port: 80, protocol: "TCP", nodePort: 30080 }] },
};

/** Maps and sets that the rules of each chain use; missing chains are absent. */
async function lookups(): Promise<Record<string, readonly string[]>> {
  const chains = await kernel.chains(TABLE);
  const all = await Promise.all(
    chains.map(async ({ chain }) => {
      const rules = await kernel.rules(TABLE, chain);
      const sets = rules.flatMap(({ exprs }) => exprs.flatMap((expr) => (expr.type === "lookup" ? [expr.set] : [])));
      return [chain, sets] as const;
    }),
  );
  return Object.fromEntries(all);
}

async function sync(): Promise<number> {
  const { ok, families } = await proxier.sync();
  const outcome = families[0].outcome;
  if (!ok || !outcome.ok) throw new Error("a write failed");
  return outcome.result.transactions;
}

beforeEach(async () => {
  kernel = new FakeKernel();
  now = 1_000_000;
  proxier = start();
  put(plain);
  proxier.synced();
  await sync();
});

it("without source ranges, resets, node ports and services without endpoints, there are no rules for them", async () => {
  const found = await lookups();
  expect(Object.keys(found)).not.toContain("filter-prerouting-pre-dnat");
  expect(Object.keys(found)).not.toContain("filter-output-pre-dnat");
  expect(Object.keys(found)).not.toContain("filter-input");
  expect(found["services"]).toEqual(["services"]);
  expect(found["served"]).toEqual(["dispatch"]);
  expect(found["service-endpoints-check"]).toEqual(["cluster-ips", "service-cidrs"]);
});

it("source ranges add their rules in the transaction of the first element", async () => {
  put(guarded);
  await sync();
  const found = await lookups();
  expect(found["filter-prerouting-pre-dnat"]).toEqual(["firewall-ips"]);
  expect(found["filter-output-pre-dnat"]).toEqual(["firewall-ips"]);
  const withElement = kernel.commits.findIndex((ops) =>
    ops.some((op) => op.kind === "elements" && op.set === "firewall-ips"),
  );
  const withRule = kernel.commits.findIndex((ops) =>
    ops.some((op) => op.kind === "rule" && op.chain === "filter-prerouting-pre-dnat"),
  );
  expect(withRule).toBeGreaterThan(0);
  expect(withRule).toBe(withElement);
});

it("rules stay for a minute after the last element, so that a service that is added and deleted writes only elements", async () => {
  put(withNodePort);
  await sync();
  for (let i = 0; i < 3; i++) {
    put(plain);
    await sync();
    now += 10_000;
    put(withNodePort);
    const commits = kernel.commits.length;
    await sync();
    expect(kernel.commits.slice(commits).flatMap((ops) => ops.filter(({ kind }) => kind === "rule"))).toEqual([]);
  }
  expect((await lookups())["services"]).toContain("nodeports");
  put(plain);
  await sync();
  now += MINUTE;
  await sync();
  expect((await lookups())["services"]).not.toContain("nodeports");
});

it("a service that loses its endpoints is refused by a new rule", async () => {
  put(plain, []);
  await sync();
  const found = await lookups();
  expect(found["service-endpoints-check"]).toEqual(["no-endpoint-services", "cluster-ips", "service-cidrs"]);
  expect(found["nodeport-endpoints-check"]).toEqual(["no-endpoint-services"]);
  expect(Object.keys(found)).toContain("filter-input");
});

it("a restart finds its rules and writes nothing", async () => {
  put(guarded, []);
  await sync();
  await proxier.stop();
  proxier = start();
  put(guarded, []);
  proxier.synced();
  expect(await sync()).toBe(0);
});
