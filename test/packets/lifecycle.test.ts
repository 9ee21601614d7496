/** Across runs: changes, takeover of an existing table, other programs' tables, no gap under load, cleanup. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import { FAMILIES, type Family } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterAddress,
  clusterIP,
  everyWay,
  externals,
  handover,
  loadBalancer,
  type Manifest,
  nodePort,
  SERVICE_PORT,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { Conversation, startEchoServer } from "./support/conversation.ts";
import { underLoad } from "./support/load.ts";
import { checkRow, rowTests } from "./support/rows.ts";
import { atLength, someOf } from "../lab/length.ts";

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: STRANGER });
});
afterAll(() => cluster.destroy());

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "b", "r1"], external: "Local" };
const sticky: ServiceSpec = { name: "sticky", n: 3, endpoints: ["a"], affinitySeconds: 60 };
const stickyEdge: ServiceSpec = { name: "sticky-edge", n: 4, endpoints: ["a"], external: "Local", affinitySeconds: 60 };

async function applyServices(...services: readonly ServiceSpec[]): Promise<void> {
  await cluster.apply(services.flatMap((service) => serviceObjects(cluster.lab, service)));
}

/** An example of another program's table: it must survive everything unchanged. */
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

/** A table of kube-proxy's, roughly as kube-proxy leaves it: its base chains, a map of the same name and type, a stale service. */
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

describe("starting on another table of this name", () => {
  beforeAll(async () => {
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
  testRows([
    { rule: "taken over", from: "b", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } },
    { rule: "taken over", from: "client", to: externals(edge), expect: { pods: ["a", "b"], masq: false } },
  ]);

  test("nothing of the former table is left", async () => {
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
    testRows([
      { rule: "the new ones", from: "c", to: clusterIP(web), expect: { pods: ["b", "r1", "r2"], masq: false } },
      { rule: "fewer", from: "client", to: externals(edge), expect: { pods: ["b"], masq: false } },
    ]);
  });

  describe("switching to no endpoints, and to policy Local without local endpoints", () => {
    beforeAll(async () => {
      await applyServices(web, edge);
      await applyServices({ ...web, endpoints: [] }, { ...edge, endpoints: ["r1"] });
    });
    testRows([
      { rule: "none", from: ["c", "client"], to: everyWay(web), expect: "reject" },
      { rule: "none here", from: "client", to: externals(edge), expect: "drop" },
    ]);
  });

  describe("switching back, with the policy changed", () => {
    beforeAll(async () => {
      await applyServices({ ...web, endpoints: [] }, { ...edge, endpoints: ["r1"] });
      await applyServices({ ...web, external: "Local" }, { ...edge, external: "Cluster" });
    });
    testRows([
      { rule: "now Local", from: "client", to: externals(web), expect: { pods: ["a"], masq: false } },
      { rule: "now Cluster", from: "client", to: externals(edge), expect: { pods: ["a", "b", "r1"], masq: true } },
    ]);
  });

  describe("deleting a service", () => {
    beforeAll(async () => {
      await applyServices(web, edge);
      await applyServices(edge);
    });
    testRows([
      { rule: "its ClusterIP", from: ["c", "client"], to: clusterIP(web), expect: "drop" },
      { rule: "its other addresses", from: ["c", "client"], to: externals(web), expect: "untouched" },
      { rule: "others stay", from: "client", to: externals(edge), expect: { pods: ["a", "b"], masq: false } },
    ]);
  });
});

describe("under load", () => {
  // It has its own node ports, because the kernel still tracks connections to those of earlier tests, some of them untranslated.
  const busyWeb: ServiceSpec = { ...web, name: "busy-web", n: 21 };
  const busyEdge: ServiceSpec = { ...edge, name: "busy-edge", n: 22 };

  test("no connection is lost while endpoints are added and removed", async () => {
    const lists = [
      ["a", "b", "r1", "r2"],
      ["a", "b", "r1"],
      ["r1", "a"],
      ["a"],
      ["a", "r1", "r2", "b"],
      ["a", "r2"],
    ].slice(0, atLength({ short: 2, usual: 6 }));
    const set = (endpoints: ServiceSpec["endpoints"]): Promise<void> =>
      applyServices(
        { ...busyWeb, endpoints },
        { ...busyEdge, endpoints },
        { ...sticky, endpoints: endpoints.toReversed() },
        { ...stickyEdge, endpoints },
      );
    await set(lists[0]);
    const streams = [
      { from: "client", to: clusterIP(busyWeb), protocol: "tcp" },
      { from: "b", to: clusterIP(busyWeb), protocol: "udp" },
      { from: "client", to: nodePort(busyWeb), protocol: "sctp" },
      { from: "client", to: loadBalancer(busyEdge), protocol: "udp" },
      { from: "client", to: nodePort(busyEdge), protocol: "tcp" },
      { from: "c", to: clusterIP(sticky), protocol: "tcp" },
      { from: "remoteNode", to: nodePort(sticky), protocol: "udp" },
      { from: "client", to: loadBalancer(stickyEdge), protocol: "sctp" },
    ] as const;
    const { connections, failures } = await underLoad(cluster, streams, async (answered) => {
      for (const [i, pods] of lists.slice(1).entries()) {
        for (const endpoints of handover(lists[i], pods)) {
          await set(endpoints);
          // If an endpoint answers slowly, its UDP and SCTP flows would be deleted first.
          await answered();
        }
      }
    });
    expect(failures).toEqual([]);
    expect(connections).toBeGreaterThan(200);
  });
});

describe("an open connection", () => {
  test.for(someOf(FAMILIES, 2))("outlives the removal of its endpoint and of its service: %s", async (family) => {
    const { lab } = cluster;
    const port = 9000;
    const chat: ServiceSpec = { name: "chat", n: 5, endpoints: ["a"], protocols: ["tcp"] };
    const apply = async (...services: readonly ServiceSpec[]): Promise<void> => {
      const objects = services.flatMap((service) => serviceObjects(lab, service));
      await cluster.apply(objects.map((object) => onPort(object, port)));
    };
    await startEchoServer(lab.pod("a").namespace, lab.pod("a").address[family], port);
    await apply(chat);
    const open = [
      await Conversation.open(lab.client, clusterIP(chat).address[family], SERVICE_PORT),
      await Conversation.open(lab.client, nodePort(chat).address[family], nodePort(chat).port),
      await Conversation.open(lab.pod("b").namespace, loadBalancer(chat).address[family], SERVICE_PORT),
    ];
    const say = (word: string): Promise<string[]> => Promise.all(open.map((conversation) => conversation.say(word)));
    expect(await say("hello")).toEqual(["hello", "hello", "hello"]);
    await apply({ ...chat, endpoints: ["r1"] });
    expect(await say("elsewhere")).toEqual(["elsewhere", "elsewhere", "elsewhere"]);
    await apply({ ...chat, endpoints: [] });
    expect(await say("nowhere")).toEqual(["nowhere", "nowhere", "nowhere"]);
    await apply();
    expect(await say("gone")).toEqual(["gone", "gone", "gone"]);
    for (const conversation of open) conversation.close();
  });
});

/** Moves the slice's ports to another number. */
function onPort(object: Manifest, port: number): Manifest {
  if (object["kind"] !== "EndpointSlice") return object;
  return { ...object, ports: [{ name: "tcp", protocol: "TCP", port }] };
}

describe("cleanup", () => {
  beforeAll(async () => {
    await applyServices(web);
    const done = await cluster.command(["cleanup"]);
    if (done.code !== 0) throw new Error(`cleanup: exit ${done.code}\n${done.stdout}${done.stderr}`);
  });
  testRows([
    { rule: "every address is unused", from: ["b", "node", "client"], to: everyWay(web), expect: "untouched" },
  ]);

  test("only other programs' tables are left, unchanged", async () => {
    const { node } = cluster.lab;
    const tables = (await node.mustRun(["nft", "list", "tables"])).trim().split("\n").sort();
    expect(tables).toEqual(["table ip stranger", "table ip6 stranger"]);
    const chain = await node.mustRun(["nft", "-s", "list", "ruleset"]);
    for (const family of FAMILIES) expect(chain).toContain(`table ${family} stranger {`);
    expect(chain.match(/th dport @s counter accept/g)).toHaveLength(2);
    expect(chain.match(/elements = \{ 80, 443 \}/g)).toHaveLength(2);
  });

  test("a second run is not an error", async () => {
    expect((await cluster.command(["cleanup"])).code).toBe(0);
  });

  test("a running daemon restores its tables at once, so cleanup says so and exits with 1", async () => {
    const daemon = cluster.start(["run", ...(await cluster.write(serviceObjects(cluster.lab, web)))]);
    const ended = new Promise((resolve) => daemon.once("exit", resolve));
    const tables = async (): Promise<string> => cluster.node.mustRun(["nft", "list", "tables"]);
    try {
      await eventually(async () => expect(await tables()).toContain("table ip6 kube-proxy"));
      const { code, stderr } = await cluster.command(["cleanup"]);
      expect(stderr).toContain("the table is back: a running program wrote it again");
      expect(code).toBe(1);
    } finally {
      daemon.kill();
      await ended;
    }
    expect((await cluster.command(["cleanup"])).code).toBe(0);
    expect(await tables()).not.toContain("kube-proxy");
  });
});
