/** From one run to the next: changes, take-over of a table that is there, other programs' tables, no gap under load, cleanup. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { Outcome } from "../lab/agent.ts";
import { FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterAddress,
  clusterIP,
  everyWay,
  externals,
  loadBalancerAddress,
  SERVICE_PORT,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { checkRow, testRows } from "./support/rows.ts";

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(async () => {
  await cluster.destroy();
});

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "b", "r1"], external: "Local" };

async function applyServices(...services: readonly ServiceSpec[]): Promise<void> {
  await cluster.apply(services.flatMap((service) => serviceObjects(cluster.lab, service)));
}

/** What another program might have: it must survive everything, to the letter. */
const STRANGER = FAMILIES.map(
  (family) => `table ${family} stranger {
  set s { type inet_service; elements = { 80, 443 } }
  chain c {
    type filter hook forward priority 5; policy accept
    th dport @s counter accept
  }
}
`,
).join("");

/** A table of kube-proxy's, roughly as it leaves it: its base chains, a map of the same name and type, a stale service. */
function foreignTable(family: Family): string {
  const address = family === "ip" ? "ipv4_addr" : "ipv6_addr";
  const vip = clusterAddress(1)[family];
  const pod = cluster.lab.pod("r2").address[family];
  const to = family === "ip" ? `${pod}:8080` : `[${pod}]:8080`;
  return `table ${family} kube-proxy {
  comment "rules for kube-proxy"
  set cluster-ips { type ${address}; comment "Active ClusterIPs"; elements = { ${vip} } }
  set left-over { type ${address}; }
  map service-ips {
    type ${address} . inet_proto . inet_service : verdict
    comment "ClusterIP, ExternalIP and LoadBalancer IP traffic"
  }
  chain service-ABCDEFGH-default/web/tcp/tcp {
    meta l4proto tcp dnat to ${to}
  }
  chain services {
    ${family} daddr . meta l4proto . th dport vmap @service-ips
  }
  chain nat-prerouting {
    type nat hook prerouting priority dstnat
    jump services
  }
  chain nat-output {
    type nat hook output priority -100
    jump services
  }
}
add element ${family} kube-proxy service-ips { ${vip} . tcp . 80 : goto service-ABCDEFGH-default/web/tcp/tcp }
`;
}

describe("starting where another table of this name is", () => {
  beforeAll(async () => {
    await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: STRANGER });
    await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: FAMILIES.map(foreignTable).join("") });
    const before = await checkRow(cluster, {
      rule: "",
      from: "b",
      to: clusterIP(web),
      protocols: ["tcp"],
      expect: { pods: ["r2"], masq: false },
    });
    if (before.length > 0) throw new Error(`the table to take over does not work: ${before.join("; ")}`);
    await applyServices(web, edge);
  });
  testRows(
    () => cluster,
    [
      { rule: "taken over", from: "b", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } },
      { rule: "taken over", from: "client", to: externals(edge), expect: { pods: ["a", "b"], masq: false } },
    ],
  );

  test("nothing of it is left", async () => {
    for (const family of FAMILIES) {
      const text = await cluster.lab.node.mustRun(["nft", "list", "table", family, "kube-proxy"]);
      expect(text).not.toContain("ABCDEFGH");
      expect(text).not.toContain("left-over");
    }
  });
});

describe("from one run to the next", () => {
  describe("endpoints change", () => {
    beforeAll(async () => {
      await applyServices(web, edge);
      await applyServices({ ...web, endpoints: ["b", "r2", "r1"] }, { ...edge, endpoints: ["r1", "b"] });
    });
    testRows(
      () => cluster,
      [
        { rule: "the new ones", from: "c", to: clusterIP(web), expect: { pods: ["b", "r1", "r2"], masq: false } },
        { rule: "fewer", from: "client", to: externals(edge), expect: { pods: ["b"], masq: false } },
      ],
    );
  });

  describe("to none, and to policy Local with none here", () => {
    beforeAll(() => applyServices({ ...web, endpoints: [] }, { ...edge, endpoints: ["r1"] }));
    testRows(
      () => cluster,
      [
        { rule: "none", from: ["c", "client"], to: everyWay(web), expect: "reject" },
        { rule: "none here", from: "client", to: externals(edge), expect: "drop" },
      ],
    );
  });

  describe("and back, with the policy changed", () => {
    beforeAll(() => applyServices({ ...web, external: "Local" }, { ...edge, external: "Cluster" }));
    testRows(
      () => cluster,
      [
        { rule: "now Local", from: "client", to: externals(web), expect: { pods: ["a"], masq: false } },
        { rule: "now Cluster", from: "client", to: externals(edge), expect: { pods: ["a", "b", "r1"], masq: true } },
      ],
    );
  });

  describe("a service goes", () => {
    beforeAll(() => applyServices(edge));
    testRows(
      () => cluster,
      [
        { rule: "its ClusterIP", from: ["c", "client"], to: clusterIP(web), expect: "drop" },
        { rule: "its other addresses", from: ["c", "client"], to: externals(web), expect: "untouched" },
        { rule: "others stay", from: "client", to: externals(edge), expect: { pods: ["a", "b"], masq: false } },
      ],
    );
  });
});

describe("under load", () => {
  test("no connection is lost while endpoints come and go", { timeout: 60_000 }, async () => {
    const wide: ServiceSpec = { ...web, endpoints: ["a", "b", "r1", "r2"] };
    await applyServices(wide, edge);
    const stop = new AbortController();
    const load = async (family: Family, protocol: "tcp" | "udp" | "sctp", address: string): Promise<Outcome[]> => {
      const outcomes: Outcome[] = [];
      while (!stop.signal.aborted) {
        const probe = { protocol, source: PLAN.client[family], destination: address, port: SERVICE_PORT };
        // 3 s: a packet that found no endpoint would be lost or answered at once, never late.
        outcomes.push(
          ...(await cluster.lab.client.agent().probe({ ...probe, count: 200, concurrency: 4, timeoutMs: 3000 })),
        );
      }
      return outcomes;
    };
    const loads = FAMILIES.flatMap((family) => [
      load(family, "tcp", clusterAddress(web.n)[family]),
      load(family, "udp", loadBalancerAddress(web.n)[family]),
      load(family, "sctp", clusterAddress(web.n)[family]),
    ]);
    for (const endpoints of [["a", "b", "r1"], ["r1", "r2"], ["b"], ["a", "r1", "r2", "b"], ["a", "r2"]])
      await applyServices({ ...wide, endpoints }, edge);
    stop.abort();
    const outcomes = (await Promise.all(loads)).flat();
    expect(outcomes.filter((outcome) => outcome.result !== "ok")).toEqual([]);
    expect(outcomes.reduce((sum, outcome) => sum + outcome.count, 0)).toBeGreaterThan(1000);
  });
});

describe("cleanup", () => {
  beforeAll(async () => {
    await applyServices(web);
    const done = await cluster.command(["cleanup"]);
    if (done.code !== 0) throw new Error(`cleanup: exit ${done.code}\n${done.stdout}${done.stderr}`);
  });
  testRows(
    () => cluster,
    [{ rule: "every way in is nobody's", from: ["b", "node", "client"], to: everyWay(web), expect: "untouched" }],
  );

  test("only other programs' tables are left, as they were", async () => {
    const { node } = cluster.lab;
    const tables = (await node.mustRun(["nft", "list", "tables"])).trim().split("\n").sort();
    expect(tables).toEqual(["table ip stranger", "table ip6 stranger"]);
    const chain = await node.mustRun(["nft", "-s", "list", "ruleset"]);
    for (const family of FAMILIES) expect(chain).toContain(`table ${family} stranger {`);
    expect(chain.match(/th dport @s counter accept/g)).toHaveLength(2);
    expect(chain.match(/elements = \{ 80, 443 \}/g)).toHaveLength(2);
  });

  test("a second time is no error", async () => {
    expect((await cluster.command(["cleanup"])).code).toBe(0);
  });
});
