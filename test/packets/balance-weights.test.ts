/** Annotation nft-proxier.dev/weights: chi-squared over real connections, over every way in. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { FAMILIES, PLAN } from "../lab/topology.ts";
import { UNLIKELY, weightedSpreadProbability } from "./support/chi-squared.ts";
import { addClients, answers, clientAddresses, inParallel } from "./support/clients.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  type EndpointSpec,
  everyWay,
  loadBalancer,
  nodePort,
  serviceObjects,
  type ServiceSpec,
  type Target,
  TRANSPORTS,
} from "./support/objects.ts";

const CONNECTIONS = 1200;
const CLIENTS = clientAddresses(100);

const inZone = (zone: string, ...pods: readonly string[]): EndpointSpec[] =>
  pods.map((pod) => ({ pod, ready: true, serving: true, zone }));
const ZONED = [...inZone("near", "a", "b"), ...inZone("far", "r1", "r2"), "c"];

function weighted(weights: string, more: Readonly<Record<string, string>> = {}): Pick<ServiceSpec, "metadata"> {
  return { metadata: { annotations: { "nft-proxier.dev/weights": weights, ...more } } };
}

let cluster: Cluster;
let services: Readonly<Record<"zonal" | "single" | "local" | "hashed", ServiceSpec>>;
beforeAll(async () => {
  cluster = await Cluster.create();
  await addClients(cluster, CLIENTS);
  const { ip, ip6 } = cluster.lab.pod("r1").address;
  services = {
    zonal: { name: "zonal", n: 1, endpoints: ZONED, ...weighted("zone=near:3, zone=far:1, zone=other:9") },
    single: { name: "single", n: 2, endpoints: ZONED, ...weighted(`zone=far:0,${ip}:5,[${ip6}]:5`) },
    local: { name: "local", n: 3, endpoints: ZONED, external: "Local", ...weighted("zone=near:4") },
    hashed: {
      name: "hashed",
      n: 4,
      endpoints: ZONED,
      ...weighted("zone=far:0", { "nft-proxier.dev/balance": "consistent", "nft-proxier.dev/balance-slots": "256" }),
    },
  };
  await cluster.apply(Object.values(services).flatMap((service) => serviceObjects(cluster.lab, service)));
});
afterAll(async () => {
  await cluster.destroy();
});

const cases: readonly (readonly [string, () => Target, Readonly<Record<string, number>>])[] = [
  ["zones of 3 and 1, ClusterIP", () => clusterIP(services.zonal), { a: 3, b: 3, c: 1, r1: 1, r2: 1 }],
  ["zones of 3 and 1, node port", () => nodePort(services.zonal), { a: 3, b: 3, c: 1, r1: 1, r2: 1 }],
  [
    "a zone with weight 0 except one address with weight 5",
    () => loadBalancer(services.single),
    { a: 1, b: 1, c: 1, r1: 5 },
  ],
  ["only local endpoints, policy Local", () => loadBalancer(services.local), { a: 4, b: 4, c: 1 }],
];

for (const [what, to, weights] of cases) {
  test.for(FAMILIES.flatMap((family) => TRANSPORTS.map((protocol) => [family, protocol] as const)))(
    `${what}: %s %s`,
    async ([family, protocol]) => {
      const counts = await answers(cluster, {
        to: to(),
        family,
        protocol,
        source: PLAN.client,
        count: CONNECTIONS,
      });
      const pods = Object.keys(weights);
      expect([...counts.keys()].sort()).toEqual(pods);
      const drawn = pods.map((pod) => counts.get(pod) ?? 0);
      expect(weightedSpreadProbability(drawn, Object.values(weights))).toBeGreaterThan(UNLIKELY);
      // The check can fail: an even spread does not fit the weights.
      expect(
        weightedSpreadProbability(
          drawn,
          pods.map(() => 1),
        ),
      ).toBeLessThan(UNLIKELY);
    },
  );
}

test.for(FAMILIES)(
  "together with consistent: a zone with weight 0 has no clients, and each client has one endpoint: %s",
  async (family) => {
    const pods = await inParallel(CLIENTS, 16, async (source) => {
      const counts = await Promise.all(
        everyWay(services.hashed).map((to) => answers(cluster, { to, family, protocol: "tcp", source })),
      );
      return [...new Set(counts.flatMap((each) => [...each.keys()]))].join("|");
    });
    expect([...new Set(pods)].sort()).toEqual(["a", "b", "c"]);
  },
);

test("`explain` shows each endpoint's share", async () => {
  const { stdout } = await cluster.command([
    "explain",
    "tcp",
    PLAN.client.ip,
    `${clusterIP(services.zonal).address.ip}:80`,
  ]);
  expect(stdout).toMatch(new RegExp(`${cluster.lab.pod("a").address.ip}:\\d+ +33 %`));
  expect(stdout).toMatch(new RegExp(`${cluster.lab.pod("r1").address.ip}:\\d+ +11 %`));
});
