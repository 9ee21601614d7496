/**
 * Moving from kube-proxy's nftables mode, and back: both use the same table, and each program starts on the other's.
 * Our first sync takes it over in one transaction without losing a connection. On our table, kube-proxy's first sync
 * (setup and rules in one transaction) succeeds. So does its next sync, which deletes the chains that it took for its
 * own.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { Finished } from "../lab/namespace.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { KubeProxyDouble } from "./support/kube-proxy.ts";
import { underLoad } from "./support/load.ts";
import {
  clusterIP,
  everyWay,
  externals,
  loadBalancer,
  nodePort,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { checkRow, type Row, rowTests } from "./support/rows.ts";
import { longTest } from "../support/long.ts";

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(() => cluster.destroy());

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "b", "r1"], external: "Local" };
const empty: ServiceSpec = { name: "empty", n: 3, endpoints: [] };
const sticky: ServiceSpec = { name: "sticky", n: 4, endpoints: ["a", "b"], affinitySeconds: patience(600) };
const stickyEdge: ServiceSpec = {
  name: "sticky-edge",
  n: 5,
  endpoints: ["b", "r2"],
  external: "Local",
  affinitySeconds: patience(600),
};
const guarded: ServiceSpec = {
  name: "guarded",
  n: 6,
  endpoints: ["r1"],
  ranges: ["198.51.100.0/25", "2001:db8:2::/65"],
};
const inside: ServiceSpec = { name: "inside", n: 7, endpoints: ["c", "r2"], internal: "Local" };
const elsewhere: ServiceSpec = { name: "elsewhere", n: 8, endpoints: ["r1", "r2"], external: "Local" };
const more = [9, 10, 11, 12].map((n): ServiceSpec => ({
  name: `more-${n}`,
  n,
  endpoints: ["a", "b", "c", "r1", "r2"],
}));
const SERVICES: readonly ServiceSpec[] = [web, edge, empty, sticky, stickyEdge, guarded, inside, elsewhere, ...more];

/** Rows that hold whichever program wrote the table. */
function rows(rule: string): readonly Row[] {
  return [
    { rule, from: "b", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } },
    { rule, from: "client", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: true } },
    { rule, from: "client", to: externals(edge), expect: { pods: ["a", "b"], masq: false } },
    { rule, from: "c", to: externals(edge), expect: { pods: ["a", "b", "r1"], masq: false } },
    { rule, from: ["b", "client"], to: everyWay(empty), expect: "reject" },
    { rule, from: "client", to: externals(elsewhere), expect: "drop" },
    { rule, from: "client", to: loadBalancer(guarded), expect: { pods: ["r1"], masq: true } },
    { rule, from: "clientSecond", to: loadBalancer(guarded), expect: "drop" },
    { rule, from: "clientSecond", to: nodePort(guarded), expect: { pods: ["r1"], masq: true } },
    { rule, from: "client", to: externals(stickyEdge), expect: { pods: ["b"], masq: false } },
    { rule, from: "a", to: clusterIP(inside), expect: { pods: ["c"], masq: false } },
  ];
}

function ours(): Promise<Finished> {
  return cluster.apply(SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)));
}

/** One write in the log. */
interface Write {
  readonly family: string;
  readonly transactions: number;
}

/** Starts kube-proxy. Returns a function that does its next sync. */
async function theirs(everywhere = false): Promise<() => Promise<void>> {
  const started = await Promise.all(
    FAMILIES.map(async (family) => {
      const proxy = new KubeProxyDouble(cluster.lab, family, everywhere);
      return { proxy, stale: await proxy.sync(SERVICES) };
    }),
  );
  return async () => {
    for (const { proxy, stale } of started) await proxy.deleteChains(stale);
  };
}

async function listed(): Promise<string> {
  const texts = await Promise.all(
    FAMILIES.map((family) => cluster.lab.node.mustRun(["nft", "-s", "list", "table", family, "kube-proxy"])),
  );
  return texts.join("");
}

describe("kube-proxy's table alone", () => {
  beforeAll(async () => {
    await (
      await theirs()
    )();
  });
  testRows(rows("kube-proxy's"));
});

describe("after the takeover", () => {
  const streams = [
    { from: "client", to: clusterIP(web), protocol: "tcp" },
    { from: "b", to: clusterIP(web), protocol: "udp" },
    { from: "client", to: nodePort(web), protocol: "udp" },
    { from: "client", to: loadBalancer(edge), protocol: "tcp" },
    { from: "c", to: clusterIP(sticky), protocol: "tcp" },
    { from: "remoteNode", to: nodePort(sticky), protocol: "udp" },
    { from: "client", to: loadBalancer(stickyEdge), protocol: "sctp" },
    { from: "client", to: loadBalancer(guarded), protocol: "udp" },
    { from: "a", to: clusterIP(inside), protocol: "tcp" },
    { from: "b", to: loadBalancer(more[0]), protocol: "sctp" },
  ] as const;

  beforeAll(async () => {
    await theirs();
    await ours();
  });

  test("under load: no connection is lost", async () => {
    await (
      await theirs()
    )();
    const { connections, failures } = await underLoad(cluster, streams, async () => void (await ours()));
    expect(failures).toEqual([]);
    expect(connections).toBeGreaterThan(100);
  });

  testRows(rows("taken over"));

  test("none of kube-proxy's own objects are left", async () => {
    const text = await listed();
    expect(text).not.toMatch(/(service|local|external|endpoint|firewall|affinity)-[A-Z2-7]{8}-/);
    expect(text).not.toMatch(/chain (masquerading|firewall-check|cluster-ips-check)/);
  });

  test("no object of ours has a name that kube-proxy would delete", async () => {
    const text = await listed();
    expect(text).toMatch(/chain sticky-/);
    expect(text).not.toMatch(/chain \S*\//);
    expect(text).not.toMatch(/(set|map) affinity-/);
  });

  test("the takeover is one transaction per family, after at most one for chains that nothing refers to yet", async () => {
    await theirs();
    const done = await ours();
    const writes = done.stderr
      .split("\n")
      .flatMap((line) => (line.includes('"synced"') ? [JSON.parse(line) as Write] : []));
    for (const family of FAMILIES) {
      const [first] = writes.filter((write) => write.family === family);
      expect(first.transactions).toBeLessThanOrEqual(2);
    }
  });
});

describe("back to kube-proxy", () => {
  let afterASecond: () => Promise<void>;
  beforeAll(async () => {
    await ours();
    afterASecond = await theirs();
  });
  testRows(rows("kube-proxy's again"));

  test("no rule of ours is in a packet's way", async () => {
    const text = await listed();
    const base = text.match(/chain (filter|nat)-[a-z-]+ \{[^}]*\}/g) ?? [];
    expect(base).toHaveLength(16);
    for (const chain of base) expect(chain).not.toMatch(/(external|nodeport)-local|dispatch/);
    // Its maps lead to its own chains.
    for (const map of ["service-ips", "service-nodeports", "firewall-ips"]) {
      for (const [body] of text.matchAll(new RegExp(`map ${map} \\{[^}]*\\}`, "g"))) {
        expect(body.match(/goto [a-z]+-[A-Z2-7]{8}-/g)?.length ?? 0).toBe(body.match(/goto /g)?.length ?? 0);
      }
    }
  });

  test("kube-proxy can delete the chains that it considers stale", async () => {
    await afterASecond();
    const again = await Promise.all(FAMILIES.map((family) => new KubeProxyDouble(cluster.lab, family).sync(SERVICES)));
    expect(again).toEqual([[], []]);
  });

  longTest("kube-proxy may serve node ports on all addresses instead", async () => {
    await ours();
    await (
      await theirs(true)
    )();
    const row = {
      rule: "",
      from: "client",
      to: nodePort(web, PLAN.nodeOutside),
      expect: { pods: ["a", "r1"], masq: true },
    };
    expect(await checkRow(cluster, row)).toEqual([]);
  });

  describe("after another takeover", () => {
    beforeAll(async () => void (await ours()));
    testRows(rows("once more"));
  });
});
