/**
 * Annotation nft-proxier.dev/balance: a client gets the same endpoint over every way in, on every node, regardless of other clients and
 * endpoints.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { Transport } from "../lab/agent.ts";
import { FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { addClients, answers, clientAddresses, inParallel } from "./support/clients.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  everyWay,
  externals,
  loadBalancer,
  serviceObjects,
  type ServiceSpec,
  type Target,
  TRANSPORTS,
} from "./support/objects.ts";
import { someOf } from "../lab/length.ts";
import { longTest } from "../support/long.ts";

const CLIENTS = clientAddresses(48);
const TUPLES = 5000;

const consistent = (annotations: Readonly<Record<string, string>> = {}): Pick<ServiceSpec, "metadata"> => ({
  metadata: {
    annotations: {
      "nft-proxier.dev/balance": "consistent",
      "nft-proxier.dev/balance-slots": "256",
      ...annotations,
    },
  },
});
const BY_PORT = consistent({ "nft-proxier.dev/balance-key": "source-ip-port" });
const ALL = ["a", "b", "c", "r1", "r2"];

const steady: ServiceSpec = { name: "steady", n: 1, endpoints: ALL, ...consistent() };
const shrinking: ServiceSpec = { name: "shrinking", n: 2, endpoints: ALL, ...consistent() };
const edge: ServiceSpec = { name: "edge", n: 3, endpoints: ALL, external: "Local", ...consistent() };
const byPort: ServiceSpec = { name: "by-port", n: 4, endpoints: ALL, ...BY_PORT };
const turning: ServiceSpec = { name: "turning", n: 5, endpoints: ALL };
const inside: ServiceSpec = { name: "inside", n: 6, endpoints: ALL, internal: "Local", ...consistent() };
const wrong: ServiceSpec = {
  name: "wrong",
  n: 7,
  endpoints: ["a", "b"],
  metadata: { annotations: { "nft-proxier.dev/balance": "fair" } },
};
const services = [steady, shrinking, edge, byPort, turning, inside];
const COMBINATIONS = FAMILIES.flatMap((family) => TRANSPORTS.map((protocol) => [family, protocol] as const));
/** One of each family. */
const SOME = someOf(COMBINATIONS, 5);

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
  await addClients(cluster, CLIENTS);
  await apply(cluster, services);
});
afterAll(async () => {
  await cluster.destroy();
});

async function apply(on: Cluster, given: readonly ServiceSpec[]): Promise<string> {
  const { stderr } = await on.apply(given.flatMap((service) => serviceObjects(on.lab, service)));
  return stderr;
}

const changed = (service: ServiceSpec, by: Partial<ServiceSpec>): readonly ServiceSpec[] =>
  services.map((one) => (one === service ? { ...one, ...by } : one));

/** Returns the one pod that each client gets in four tries. Throws if a client gets two. */
async function choices(to: Target, family: Family, protocol: Transport, on = cluster): Promise<string[]> {
  return inParallel(CLIENTS, 16, async (source) => {
    const pods = [...(await answers(on, { to, family, protocol, source, count: 4 })).keys()];
    if (pods.length !== 1) throw new Error(`${source[family]} → ${to.name}: ${pods.join("|")}`);
    return pods[0];
  });
}

describe("balance: consistent", () => {
  test.for(COMBINATIONS)(
    "each client has one endpoint, whatever address it uses: %s %s",
    async ([family, protocol]) => {
      const first = await choices(clusterIP(steady), family, protocol);
      expect([...new Set(first)].sort()).toEqual(ALL);
      for (const way of externals(steady)) expect(await choices(way, family, protocol)).toEqual(first);
    },
  );

  test.for(FAMILIES)(
    "all protocols choose the same endpoint, because they have the same endpoints: %s",
    async (family) => {
      const [tcp, ...others] = await Promise.all(TRANSPORTS.map((t) => choices(clusterIP(steady), family, t)));
      for (const other of others) expect(other).toEqual(tcp);
    },
  );

  test.for(SOME)("policy Local chooses among the endpoints on this node: %s %s", async ([family, protocol]) => {
    const here = await choices(loadBalancer(edge), family, protocol);
    expect([...new Set(here)].sort()).toEqual(["a", "b", "c"]);
    for (const way of externals(edge)) expect(await choices(way, family, protocol)).toEqual(here);
    expect(await choices(clusterIP(inside), family, protocol)).toEqual(here);
    expect(await choices(clusterIP(edge), family, protocol)).toEqual(
      await choices(clusterIP(steady), family, protocol),
    );
  });

  test("a removed endpoint loses its clients, the others keep theirs, and it gets them back when it returns", async () => {
    const all = (): Promise<string[][]> => Promise.all(SOME.map(([f, p]) => choices(clusterIP(shrinking), f, p)));
    const before = (await all()).flat();
    await apply(cluster, changed(shrinking, { endpoints: ALL.filter((pod) => pod !== "r1") }));
    const after = (await all()).flat();
    const others = before.filter((pod) => pod !== "r1").length;
    const moved = before.filter((pod, i) => pod !== "r1" && after[i] !== pod).length;
    expect(before.length - others).toBeGreaterThan(10);
    expect(after).not.toContain("r1");
    expect(moved / others).toBeLessThanOrEqual(0.02);
    await apply(cluster, services);
    expect((await all()).flat()).toEqual(before);
  });

  test("hashing the source port as well spreads one client's connections", async () => {
    const counts = await answers(cluster, {
      to: clusterIP(byPort),
      family: "ip",
      protocol: "tcp",
      source: PLAN.client,
      count: 200,
    });
    expect([...counts.keys()].sort()).toEqual(ALL);
  });

  longTest("it can be turned on and off while the service serves", async () => {
    await apply(cluster, changed(turning, consistent()));
    const sticky = await choices(clusterIP(turning), "ip", "tcp");
    expect(sticky).toEqual(await choices(clusterIP(steady), "ip", "tcp"));
    await apply(cluster, services);
    const counts = await answers(cluster, {
      to: clusterIP(turning),
      family: "ip",
      protocol: "tcp",
      source: CLIENTS[0],
      count: 200,
    });
    expect([...counts.keys()].sort()).toEqual(ALL);
  });

  longTest("an invalid value is reported, and endpoints are then chosen at random", async () => {
    const objects = [...services, wrong].flatMap((service) => serviceObjects(cluster.lab, service));
    const { code, stderr } = await cluster.command([
      "run",
      ...(await cluster.write(objects)),
      "--once",
      "--allow-incomplete",
    ]);
    expect(code).toBe(0);
    const named = stderr.split("\n").filter((line) => line.includes("default/wrong") && line.includes("field"));
    expect(named.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      {
        field: 'metadata.annotations["nft-proxier.dev/balance"]',
        reason: '"fair" is not one of random, consistent; using random',
      },
    ]);
    for (const to of everyWay(wrong)) {
      const counts = await answers(cluster, { to, family: "ip", protocol: "tcp", source: CLIENTS[0], count: 100 });
      expect([...counts.keys()].sort()).toEqual(["a", "b"]);
    }
  });
});

describe("two nodes", () => {
  let other: Cluster;
  beforeAll(async () => {
    other = await Cluster.create();
    await addClients(other, CLIENTS);
    // A node with a history: endpoints came one at a time in another order, and some left again.
    for (const endpoints of [["r2"], ["b", "r2"], ["r1", "a", "c"], ALL.toReversed()])
      await apply(
        other,
        [byPort, steady].map((service) => ({ ...service, endpoints })),
      );
  });
  afterAll(async () => {
    await other.destroy();
  });

  test.for(SOME)("give a client the same endpoint: %s %s", async ([family, protocol]) => {
    expect(await choices(clusterIP(steady), family, protocol, other)).toEqual(
      await choices(clusterIP(steady), family, protocol),
    );
  });

  test.for(someOf(FAMILIES, 2))("agree on 5,000 tuples of address and port: %s", async (family) => {
    const ports = Array.from({ length: TUPLES }, (_, i) => 20_000 + i);
    const ask = (on: Cluster): Promise<string[]> =>
      inParallel(ports, 64, async (sourcePort) => {
        const to = clusterIP(byPort);
        const counts = await answers(on, { to, family, protocol: "udp", source: PLAN.client, sourcePort });
        return [...counts.keys()].join("|");
      });
    const [here, there] = await Promise.all([ask(cluster), ask(other)]);
    expect(there).toEqual(here);
    expect([...new Set(here)].sort()).toEqual(ALL);
    // With five endpoints in 256 slots, none gets more than 1.15 of its share: 59 slots, 23 %.
    for (const pod of ALL) {
      const share = here.filter((name) => name === pod).length / TUPLES;
      expect(share).toBeGreaterThan(0.12);
      expect(share).toBeLessThan(0.25);
    }
  });
});
