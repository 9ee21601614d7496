/** ClientIP affinity: sticky over every way in, renewed, expiring, bound to the endpoint list, and kept across restarts. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { Transport } from "../lab/agent.ts";
import { FAMILIES, type Family } from "../lab/topology.ts";
import { evenSpreadProbability, UNLIKELY } from "./support/chi-squared.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  everyWay,
  externals,
  loadBalancer,
  nodePort,
  serviceObjects,
  type ServiceSpec,
  type Target,
  TRANSPORTS,
} from "./support/objects.ts";
import { patience } from "../lab/patience.ts";
import { atLength, someOf } from "../lab/length.ts";
import { addClients, clientAddresses } from "./support/clients.ts";

const CLIENTS = 24;
const LONG = 10_800;
const SHORT = patience(atLength({ short: 2, usual: 3 }));

const sticky: ServiceSpec = { name: "sticky", n: 1, endpoints: ["a", "b", "r1"], affinitySeconds: LONG };
const brief: ServiceSpec = { name: "brief", n: 2, endpoints: ["a", "b", "r1"], affinitySeconds: SHORT };
const edge: ServiceSpec = {
  name: "edge",
  n: 3,
  endpoints: ["a", "b", "r1", "r2"],
  external: "Local",
  affinitySeconds: LONG,
};
const shrinking: ServiceSpec = { name: "shrinking", n: 4, endpoints: ["a", "b", "r1", "r2"], affinitySeconds: LONG };
const growing: ServiceSpec = { name: "growing", n: 5, endpoints: ["a", "r1"], affinitySeconds: LONG };
const turning: ServiceSpec = { name: "turning", n: 6, endpoints: ["a", "b", "r1"], affinitySeconds: LONG };
const free: ServiceSpec = { name: "free", n: 7, endpoints: ["a", "b", "r1"] };
const hairpin: ServiceSpec = { name: "hairpin", n: 8, endpoints: ["a"], affinitySeconds: LONG };
const drawn: ServiceSpec = { name: "drawn", n: 9, endpoints: ["a", "b", "r1"], affinitySeconds: LONG };
const returning: ServiceSpec = { name: "returning", n: 10, endpoints: ["a", "b", "r1", "r2"], affinitySeconds: LONG };
const services = [sticky, brief, edge, shrinking, growing, turning, free, hairpin, drawn, returning];

const COMBINATIONS = someOf(
  FAMILIES.flatMap((family) => TRANSPORTS.map((protocol) => [family, protocol] as const)),
  4,
);
/** With this number of clients, all combinations together draw at least 130 endpoints. */
const MANY_CLIENTS = Math.max(CLIENTS, Math.ceil(130 / COMBINATIONS.length));

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
  await addClients(cluster, clients);
  for (const [index, address] of clients.entries())
    cluster.addSource(`client-${index}`, { namespace: cluster.lab.client, address });
  await apply(services);
});
afterAll(() => cluster.destroy());

const clients = clientAddresses(MANY_CLIENTS);
const manyNames = clients.map((_, index) => `client-${index}`);
const clientNames = manyNames.slice(0, CLIENTS);

async function apply(given: readonly ServiceSpec[]): Promise<void> {
  await cluster.apply(given.flatMap((service) => serviceObjects(cluster.lab, service)));
}

/** Returns the pods that answer `connections` connections of one client. */
async function answers(from: string, to: Target, family: Family, protocol: Transport, connections = 6) {
  const { namespace, address } = cluster.source(from);
  const outcomes = await namespace.agent().probe({
    protocol,
    ...(address ? { source: address[family] } : {}),
    destination: to.address[family],
    port: to.port,
    count: connections,
    // One after the other: of packets that arrive at once, each may find the client unknown and draw an endpoint for it.
    concurrency: 1,
    timeoutMs: 10_000,
  });
  return new Set(outcomes.map((o) => (o.result === "ok" ? o.name : JSON.stringify(o))));
}

/** Returns the one pod that each client sticks to. Throws if a client got more than one. */
async function choices(
  to: Target,
  family: Family,
  protocol: Transport,
  connections?: number,
  names = clientNames,
): Promise<string[]> {
  return Promise.all(
    names.map(async (name) => {
      const pods = await answers(name, to, family, protocol, connections);
      if (pods.size !== 1) throw new Error(`${name} → ${to.name}: ${[...pods].join("|")}`);
      return [...pods].join();
    }),
  );
}

/** The choices of all clients in all combinations. */
async function manyChoices(to: Target): Promise<string[]> {
  return (await Promise.all(COMBINATIONS.map(([f, p]) => choices(to, f, p, 2, manyNames)))).flat();
}

describe("the first selection", () => {
  // 24 clients on each way in, one connection each, three endpoints: 144 draws.
  test("chooses each endpoint equally often", async () => {
    const pods = (
      await Promise.all(
        FAMILIES.flatMap((family) =>
          TRANSPORTS.map(async (protocol) => choices(clusterIP(drawn), family, protocol, 1)),
        ),
      )
    ).flat();
    const counts = ["a", "b", "r1"].map((pod) => pods.filter((name) => name === pod).length);
    expect(evenSpreadProbability(counts)).toBeGreaterThan(UNLIKELY);
  });
});

describe("session affinity", () => {
  test.concurrent.for(COMBINATIONS)(
    "each client has one endpoint, whatever address it uses: %s %s",
    async ([family, protocol]) => {
      const first = await choices(clusterIP(sticky), family, protocol);
      // All 24 draw the same of three endpoints once in 10¹¹ times.
      expect(new Set(first).size).toBeGreaterThan(1);
      expect(["a", "b", "r1"]).toEqual(expect.arrayContaining([...new Set(first)]));
      for (const way of everyWay(sticky)) expect(await choices(way, family, protocol)).toEqual(first);
    },
  );

  test.concurrent.for(COMBINATIONS)("pods and the node are clients, too: %s %s", async ([family, protocol]) => {
    for (const from of ["c", "node", "remoteNode"]) {
      const first = await answers(from, loadBalancer(sticky), family, protocol);
      expect(first.size).toBe(1);
      for (const way of everyWay(sticky)) expect(await answers(from, way, family, protocol)).toEqual(first);
    }
  });

  test.concurrent.for(COMBINATIONS)(
    "a service without affinity uses all endpoints: %s %s",
    async ([family, protocol]) => {
      // One of three endpoints is never drawn once in 10¹⁷ times.
      expect((await answers("client-0", clusterIP(free), family, protocol, 100)).size).toBe(3);
    },
  );

  test.concurrent.for(COMBINATIONS)("hairpin still works: %s %s", async ([family, protocol]) => {
    for (const way of everyWay(hairpin)) expect(await answers("a", way, family, protocol)).toEqual(new Set(["a"]));
  });
});

/**
 * All clients at one service: they stick beyond the timeout while they keep coming, and draw again after they stayed away. Returns false if
 * the machine was so slow that a client stayed away too long before.
 */
async function renewThenExpire(family: Family, protocol: Transport, seconds: number): Promise<boolean> {
  let came = performance.now();
  const first = await choices(clusterIP(brief), family, protocol, 1);
  // Beyond the timeout of the first connection, in steps that are well below it.
  for (let step = 0; step < 4; step++) {
    await sleep((seconds * 1000) / 2.5);
    const comes = performance.now();
    const now = await choices(everyWay(brief)[step], family, protocol, 1);
    if (performance.now() - came > seconds * 1000 - 100) return false;
    expect(now).toEqual(first);
    came = comes;
  }
  // The chance that all 24 clients draw the same of three endpoints again is one in 3 × 10¹¹.
  await sleep(seconds * 1000 + 700);
  expect(await choices(clusterIP(brief), family, protocol, 1)).not.toEqual(first);
  return true;
}

describe("the timeout", () => {
  // All six run at once: the test sleeps most of its time. A slow machine gets a longer timeout.
  test("every new connection renews it, and without one it ends", async () => {
    for (let seconds = SHORT, inTime = [false]; inTime.includes(false); seconds *= 2) {
      await apply(services.map((one) => (one === brief ? { ...brief, affinitySeconds: seconds } : one)));
      inTime = await Promise.all(COMBINATIONS.map(([f, p]) => renewThenExpire(f, p, seconds)));
    }
  });
});

describe("with policy Local", () => {
  test.concurrent("only endpoints of the active list are used", async () => {
    const all = await Promise.all(
      COMBINATIONS.map(async ([family, protocol]) => {
        const inCluster = await choices(clusterIP(edge), family, protocol);
        for (const way of externals(edge)) {
          const here = await choices(way, family, protocol);
          for (const [index, pod] of here.entries()) {
            expect(["a", "b"]).toContain(pod);
            // A client that stuck to an endpoint of this list keeps it.
            if (["a", "b"].includes(inCluster[index])) expect(pod).toBe(inCluster[index]);
          }
        }
        return inCluster;
      }),
    );
    // Each draws an endpoint of the other node once in two times, so none of 48 or more does once in 10¹⁴ times.
    expect(all.flat()).toEqual(expect.arrayContaining([expect.stringMatching(/^r/)]));
  });

  test.concurrent.for(COMBINATIONS)(
    "clients switch from the local list to the cluster list: %s %s",
    async ([family, protocol]) => {
      for (const from of ["clientSecond", "remoteNode"]) {
        const here = await answers(from, loadBalancer(edge), family, protocol);
        expect(here.size).toBe(1);
        expect(await answers(from, clusterIP(edge), family, protocol)).toEqual(here);
      }
    },
  );
});

describe("across runs of the proxier", () => {
  test("affinity is kept by a run that changes nothing, and when other services change", async () => {
    const before = await Promise.all(COMBINATIONS.map(([f, p]) => choices(clusterIP(turning), f, p)));
    await apply(services);
    expect(await Promise.all(COMBINATIONS.map(([f, p]) => choices(clusterIP(turning), f, p)))).toEqual(before);
    await apply(services.map((service) => (service === free ? { ...free, endpoints: ["r2"] } : service)));
    expect(await Promise.all(COMBINATIONS.map(([f, p]) => choices(loadBalancer(turning), f, p)))).toEqual(before);
  });

  test("affinity is kept when endpoints join", async () => {
    const before = await Promise.all(COMBINATIONS.map(([f, p]) => choices(clusterIP(growing), f, p)));
    const grown = { ...growing, endpoints: ["r2", "a", "b", "r1"] };
    await apply(services.map((service) => (service === growing ? grown : service)));
    expect(await Promise.all(COMBINATIONS.map(([f, p]) => choices(clusterIP(growing), f, p)))).toEqual(before);
  });

  test("a removed endpoint loses its clients at once, and the others keep theirs", async () => {
    const before = await manyChoices(clusterIP(shrinking));
    // A quarter of the draws. None of 130 once in 10¹⁶ times.
    expect(before).toContain("r1");
    const shrunk = { ...shrinking, endpoints: ["a", "b", "r2"] };
    await apply(services.map((service) => (service === shrinking ? shrunk : service)));
    const after = await manyChoices(clusterIP(shrinking));
    expect(new Set(after)).toEqual(new Set(["a", "b", "r2"]));
    expect(after.filter((_, i) => before[i] !== "r1")).toEqual(before.filter((pod) => pod !== "r1"));
    // When the endpoint is back, it does not get its clients back.
    await apply(services);
    expect(await manyChoices(clusterIP(shrinking))).toEqual(after);
  });

  test("an endpoint that was removed and added again has no clients from before", async () => {
    const before = await manyChoices(clusterIP(returning));
    const without = { ...returning, endpoints: ["a", "b", "r2"] };
    await apply(services.map((service) => (service === returning ? without : service)));
    await apply(services);
    const after = await manyChoices(nodePort(returning));
    // A quarter of the clients had r1, and each of these draws one of four endpoints. That none of 130 had it and draws another one
    // happens once in 5 × 10¹¹ times: (3/4 + 1/16)^130.
    expect(after.filter((_, i) => before[i] === "r1").some((pod) => pod !== "r1")).toBe(true);
    expect(after.filter((_, i) => before[i] !== "r1")).toEqual(before.filter((pod) => pod !== "r1"));
  });
});
