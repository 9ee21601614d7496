/** A random spread is even: chi-squared over at least 1,000 connections. */
import { afterAll, beforeAll, expect, test } from "vitest";

import type { Transport } from "../lab/agent.ts";
import { FAMILIES, type Family } from "../lab/topology.ts";
import { evenSpreadProbability, UNLIKELY } from "./support/chi-squared.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  loadBalancer,
  nodePort,
  serviceObjects,
  type ServiceSpec,
  type Target,
  TRANSPORTS,
} from "./support/objects.ts";
import { answers } from "./support/clients.ts";

const CONNECTIONS = 1200;

const all: ServiceSpec = { name: "all", n: 1, endpoints: ["a", "b", "c", "r1", "r2"] };
const three: ServiceSpec = { name: "three", n: 2, endpoints: ["a", "b", "r1"] };
const local: ServiceSpec = { name: "local", n: 3, endpoints: ["a", "r1", "b", "r2", "c"], external: "Local" };

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.apply([all, three, local].flatMap((service) => serviceObjects(cluster.lab, service)));
});
afterAll(() => cluster.destroy());

function count(from: string, to: Target, family: Family, protocol: Transport): Promise<ReadonlyMap<string, number>> {
  const { namespace, address } = cluster.source(from);
  const source = address ?? expect.fail(`${from} has no address`);
  return answers(cluster, { from: namespace, source, to, family, protocol, count: CONNECTIONS, timeoutMs: 5000 });
}

const cases: ReadonlyArray<readonly [string, string, Target, readonly string[]]> = [
  ["five endpoints, ClusterIP, from a pod", "b", clusterIP(all), ["a", "b", "c", "r1", "r2"]],
  ["five endpoints, node port, from outside", "client", nodePort(all), ["a", "b", "c", "r1", "r2"]],
  ["three endpoints, LB IP, from outside", "client", loadBalancer(three), ["a", "b", "r1"]],
  ["three endpoints, ClusterIP, from the node", "node", clusterIP(three), ["a", "b", "r1"]],
  ["the three local ones of five, LB IP, policy Local", "client", loadBalancer(local), ["a", "b", "c"]],
];

for (const [what, from, to, pods] of cases) {
  test.for(FAMILIES.flatMap((family) => TRANSPORTS.map((protocol) => [family, protocol] as const)))(
    `${what}: %s %s`,
    async ([family, protocol]) => {
      const counts = await count(from, to, family, protocol);
      expect([...counts.keys()].sort()).toEqual(pods);
      expect(evenSpreadProbability([...counts.values()])).toBeGreaterThan(UNLIKELY);
    },
  );
}
