/** `explain` predicts what the wire then shows: verdict, endpoints and masquerading, for every way in and every kind of service. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseAddress } from "../../src/base/ip.ts";
import { explainPacket, type Explanation } from "../../src/tools/explain/explain-packet.ts";
import type { Transport } from "../../src/tools/explain/machine/packet-spec.ts";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.ts";
import { FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  configuration,
  everyWay,
  nodePort,
  serviceObjects,
  type ServiceSpec,
  type Target,
  target,
  TRANSPORTS,
  clusterIP,
} from "./support/objects.ts";
import { checkRow, type Expected } from "./support/rows.ts";
import { isShort, someOf } from "../lab/length.ts";

const SERVICES: readonly ServiceSpec[] = [
  { name: "plain", n: 1, endpoints: ["a", "r1"] },
  { name: "empty", n: 2, endpoints: [] },
  { name: "edge", n: 3, endpoints: ["a", "r1"], external: "Local" },
  { name: "far-edge", n: 4, endpoints: ["r1"], external: "Local" },
  { name: "sticky", n: 5, endpoints: ["b"], affinitySeconds: 60 },
  { name: "inside", n: 6, endpoints: ["b", "r2"], internal: "Local" },
  {
    name: "hashed",
    n: 8,
    endpoints: ["a", "b", "r1"],
    metadata: {
      annotations: {
        "nft-proxier.dev/balance": "consistent",
        "nft-proxier.dev/balance-slots": "256",
        "nft-proxier.dev/max-connections": "100000",
        "nft-proxier.dev/rate-per-client": "100000/second",
      },
    },
  },
  { name: "guarded", n: 7, endpoints: ["c"], ranges: ["198.51.100.0/25", "2001:db8:2::/65"] },
];
const LOOPBACK = { ip: "127.0.0.1", ip6: "::1" };
const SOURCES = ["client", "b", "c", "a", "clientSecond", "node", "remoteNode"] as const;

let cluster: Cluster;
let kernel: NftKernel;
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.apply(
    SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)),
    configuration({ nodePortAddresses: ["primary", "localhost"] }),
  );
  cluster.addSource("loopback", { namespace: cluster.node, address: LOOPBACK });
  kernel = await NftKernel.open({ netns: `/run/netns/${cluster.lab.node.name}` });
});
afterAll(async () => {
  await kernel.close();
  await cluster.destroy();
});

interface Case {
  readonly from: string;
  readonly to: Target;
  readonly family: Family;
  readonly protocol: Transport;
}

async function explained({ from, to, family, protocol }: Case): Promise<Explanation> {
  const source = parseAddress(cluster.source(from).address?.[family] ?? "") ?? "";
  const destination = parseAddress(to.address[family]) ?? "";
  const ports = { sourcePort: 40_000, destinationPort: to.port };
  return explainPacket(kernel, { family, protocol, source, destination, ...ports, inInterface: "" });
}

/** Converts an explanation to the form that a row of the packet tests expects. */
function expectedOf({ verdict, endpoints }: Explanation, family: Family): Expected {
  switch (verdict) {
    case "rejected":
      return "reject";
    case "dropped":
      return "drop";
    case "untouched":
      return "untouched";
    default: {
      const pods = endpoints.map(({ address, masqueraded }) => {
        const pod = cluster.lab.pods.find((each) => parseAddress(each.address[family]) === address);
        if (pod === undefined) throw new Error(`no pod has the address ${address}`);
        return { name: pod.name, masqueraded };
      });
      const masq = pods.filter(({ masqueraded }) => masqueraded).map(({ name }) => name);
      return { pods: pods.map(({ name }) => name), masq };
    }
  }
}

const targets = (): readonly Target[] => [
  ...SERVICES.flatMap(everyWay),
  { ...clusterIP(SERVICES[0]), name: "a port that plain does not have", port: 81 },
  target("an unused load balancer's IP", { ip: "203.0.113.250", ip6: "2001:db8:cb::fa" }, 80),
  target("a port of the node that is not a node port", PLAN.node, 4321),
  target("an unallocated ClusterIP", { ip: "10.96.200.200", ip6: "fd00:10:96::c8c8" }, 80),
];

/** Targets at which the node's own programs reach node ports. */
const onLoopback = (): readonly Target[] => {
  const second = { ip: "127.0.0.2", ip6: "::1" };
  return [
    ...SERVICES.flatMap((service) => [nodePort(service, LOOPBACK), nodePort(service, second)]),
    target("a loopback port that is not a node port", LOOPBACK, 4321),
  ];
};

/** Concurrent packets: a dropped one spends most of its time waiting. */
const AT_ONCE = 12;

interface Compared {
  readonly wrong: string[];
  /** Number of cases with each outcome. */
  readonly outcomes: Map<string, number>;
}

async function compare(from: string, family: Family, to: readonly Target[]): Promise<Compared> {
  const cases = to.flatMap((one) => TRANSPORTS.map((protocol): Case => ({ from, to: one, family, protocol })));
  const wrong: string[] = [];
  const outcomes = new Map<string, number>();
  const check = async (one: Case): Promise<void> => {
    const explanation = await explained(one);
    expect(explanation.unknown).toEqual([]);
    const masqueraded = explanation.endpoints.some((endpoint) => endpoint.masqueraded);
    const outcome = `${explanation.verdict}${masqueraded ? ", masqueraded" : ""}`;
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    const { to, protocol } = one;
    const expected = expectedOf(explanation, family);
    const found = await checkRow(cluster, {
      rule: "",
      from,
      to,
      families: [family],
      protocols: [protocol],
      expect: expected,
    });
    if (found.length > 0) wrong.push(...found, ...explanation.steps.map((s) => `    ${s.hook} ${s.chain}: ${s.text}`));
  };
  for (let i = 0; i < cases.length; i += AT_ONCE) await Promise.all(cases.slice(i, i + AT_ONCE).map(check));
  return { wrong, outcomes };
}

/** Checks that each of these outcomes was compared with the wire for several targets, and no other one. */
function expectSeveral({ outcomes }: Compared, kinds: readonly string[]): void {
  expect([...outcomes.keys()].sort()).toEqual(kinds.toSorted());
  for (const [kind, count] of outcomes) expect([kind, count >= TRANSPORTS.length]).toEqual([kind, true]);
}

describe.each(someOf(SOURCES, 3))("from %s", (from) => {
  // A short run tests one family for each source, in turns.
  test.for(isShort ? [FAMILIES[SOURCES.indexOf(from) % 2]] : FAMILIES)(
    "%s: every service on every address, as seen on the wire",
    async (family) => {
      const compared = await compare(from, family, targets());
      expect(compared.wrong).toEqual([]);
      // The node's own packets to services are always masqueraded.
      const kept = from === "node" ? [] : ["endpoint"];
      expectSeveral(compared, ["endpoint, masqueraded", ...kept, "rejected", "dropped", "untouched"]);
    },
  );
});

describe.each(["loopback", "node"])("from %s to loopback", (from) => {
  test.for(someOf(FAMILIES, 2))("%s: every service's node port, as seen on the wire", async (family) => {
    const compared = await compare(from, family, onLoopback());
    expect(compared.wrong).toEqual([]);
    expectSeveral(compared, ["endpoint, masqueraded", "rejected", "untouched"]);
  });
});
