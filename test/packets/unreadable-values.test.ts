/** Fields that restrict access, with values that cannot be understood: they restrict more, never less. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { FAMILIES, PLAN } from "../lab/topology.ts";
import { answers } from "./support/clients.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  configuration,
  externals,
  loadBalancer,
  loadBalancerAddress,
  nodeObject,
  nodePort,
  nodePortOf,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { rowTests } from "./support/rows.ts";

const notCIDR: ServiceSpec = { name: "not-cidr", n: 1, endpoints: ["a"], ranges: ["198.51.100.0/33"] };
const notList: ServiceSpec = {
  name: "not-list",
  n: 2,
  endpoints: ["a"],
  spec: { loadBalancerSourceRanges: "198.51.100.0/24" },
};
const onlyV4: ServiceSpec = { name: "only-v4", n: 3, endpoints: ["a"], ranges: ["198.51.100.0/25", "2001:db8::/200"] };
const everyone: ServiceSpec = { name: "everyone", n: 4, endpoints: ["a"], ranges: ["0.0.0.0/0", "::/0", "all"] };
const externalPolicy: ServiceSpec = {
  name: "external-policy",
  n: 5,
  endpoints: ["a", "r1"],
  spec: { externalTrafficPolicy: "local" },
};
const internalPolicy: ServiceSpec = {
  name: "internal-policy",
  n: 6,
  endpoints: ["a", "r1"],
  spec: { internalTrafficPolicy: "local" },
};
const unknownType: ServiceSpec = {
  name: "unknown-type",
  n: 7,
  endpoints: ["a", "r1"],
  external: "Local",
  spec: { type: "Loadbalancer", externalIPs: [] },
};
const unknownMode: ServiceSpec = {
  name: "unknown-mode",
  n: 8,
  endpoints: ["a"],
  status: { loadBalancer: { ingress: FAMILIES.map((of) => ({ ip: loadBalancerAddress(8)[of], ipMode: "proxy" })) } },
};
const LIMITS = ["max-connections", "max-connections-per-client", "rate-per-client"];
const limited = LIMITS.map((name, i): ServiceSpec => ({
  name,
  n: 10 + i,
  endpoints: ["a"],
  metadata: { annotations: { [`nft-proxier.dev/${name}`]: "ten" } },
}));
const noAnnotations: ServiceSpec = { name: "no-annotations", n: 20, endpoints: ["a"], metadata: { annotations: "x" } };
const services = [
  ...[notCIDR, notList, onlyV4, everyone, externalPolicy, internalPolicy, unknownType, unknownMode, noAnnotations],
  ...limited,
];

let cluster: Cluster;
const testRows = rowTests(() => cluster);
/** The Node has an address that cannot be read, which could be its own IP of either family. */
const node = { ...nodeObject(), status: { addresses: [{ type: "InternalIP", address: "192.0.2.999" }] } };

beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.catchUntouched(80);
  await cluster.catchUntouched(nodePortOf(everyone.n));
  const objects = services.flatMap((service) => serviceObjects(cluster.lab, service));
  // "run --once" reports the values and exits with 1.
  await expect(cluster.apply([node, serviceCIDRObject(), ...objects], configuration(), true)).rejects.toThrow(
    /is not a CIDR/,
  );
});
afterAll(() => cluster.destroy());

describe("values that cannot be understood", () => {
  const masqueraded = { pods: ["a"], masq: true } as const;
  testRows([
    {
      rule: "source ranges that cannot be read allow no client",
      from: ["client", "b", "node"],
      to: [loadBalancer(notCIDR), loadBalancer(notList)],
      expect: "drop",
    },
    { rule: "they guard only the LB IPs", from: "client", to: externals(notCIDR).slice(1, 2), expect: masqueraded },
    { rule: "the other ranges", from: "client", to: loadBalancer(onlyV4), families: ["ip"], expect: masqueraded },
    { rule: "outside the others", from: "clientSecond", to: loadBalancer(onlyV4), families: ["ip"], expect: "drop" },
    { rule: "the other family", from: "client", to: loadBalancer(onlyV4), families: ["ip6"], expect: "drop" },
    { rule: "a range for all clients", from: "client", to: loadBalancer(everyone), expect: masqueraded },
    {
      rule: "an unknown externalTrafficPolicy is Local",
      from: "client",
      to: loadBalancer(externalPolicy),
      expect: { pods: ["a"], masq: false },
    },
    {
      rule: "an unknown internalTrafficPolicy is Local",
      from: "b",
      to: clusterIP(internalPolicy),
      expect: { pods: ["a"], masq: false },
    },
    {
      rule: "policy Local with an unknown type",
      from: "client",
      to: loadBalancer(unknownType),
      expect: { pods: ["a"], masq: false },
    },
    { rule: "an unknown ipMode is Proxy", from: "client", to: loadBalancer(unknownMode), expect: "untouched" },
    { rule: "annotations that cannot be read", from: "b", to: clusterIP(noAnnotations), expect: "drop" },
    { rule: "node ports on an unreadable IP", from: "client", to: nodePort(everyone), expect: "untouched" },
  ]);

  test.each(limited)("$name that cannot be read accepts one connection", async (service) => {
    const from = { family: "ip", protocol: "udp", source: PLAN.client } as const;
    const counts = await answers(cluster, { to: clusterIP(service), count: 4, ...from });
    expect(counts.get("a")).toBe(1);
  });
});
