/** How the way to a service treats the priority that a packet already has from its socket or from other software's rules. */
import { randomInt } from "node:crypto";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import type { Namespace } from "../lab/namespace.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  externals,
  loadBalancer,
  nodePort,
  nodePortOf,
  POD_PORT,
  serviceObjects,
  type ServiceSpec,
  target,
} from "./support/objects.ts";
import { checkRow, type Row } from "./support/rows.ts";
import { someOf } from "../lab/length.ts";

const PACKETS = 3;
const PRIORITY = 6;
const MARK = "0x5";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a"], external: "Local", affinitySeconds: 600 };
const local: ServiceSpec = { name: "local", n: 3, endpoints: ["a", "r1"], external: "Local", internal: "Local" };
const balanced: ServiceSpec = {
  name: "balanced",
  n: 4,
  endpoints: ["a", "r1"],
  metadata: { annotations: { "nft-proxier.dev/balance": "consistent", "nft-proxier.dev/balance-slots": "256" } },
};
const limited: ServiceSpec = {
  name: "limited",
  n: 5,
  endpoints: ["a"],
  metadata: { annotations: { "nft-proxier.dev/max-connections": "1000000" } },
};
const sticky: ServiceSpec = { name: "sticky", n: 6, endpoints: ["b"], affinitySeconds: 600 };

/** Datagrams of one connection, each sent after the previous answer. */
const SEND = `
import socket, sys
family, address, port, priority = sys.argv[1:]
s = socket.socket(socket.AF_INET6 if family == "ip6" else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, int(priority))
s.settimeout(10)
s.connect((address, int(port)))
for _ in range(${PACKETS}):
    s.send(b"?")
    s.recv(1000)
`;

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
  const services = [web, edge, local, balanced, limited, sticky].flatMap((service) =>
    serviceObjects(cluster.lab, service),
  );
  await cluster.apply(services);
});
// Priority changes of one test must not affect the next one.
afterEach(async () => {
  const input = ["probe", "preset"].map((table) => `add table inet ${table}\ndelete table inet ${table}\n`).join("");
  await cluster.node.mustRun(["nft", "-f", "-"], { input });
});
afterAll(() => cluster.destroy());

/** Counts packets that leave towards pods. `before` is a prerouting rule of other software that runs before ours. */
async function watch(before = ""): Promise<void> {
  const out = `udp dport ${POD_PORT}`;
  await cluster.node.mustRun(["nft", "-f", "-"], {
    input: `
      add table inet probe
      delete table inet probe
      table inet probe {
        counter kept { }
        counter none { }
        counter marked { }
        chain before { type filter hook prerouting priority mangle; ${before}; }
        chain after {
          type filter hook postrouting priority srcnat + 50;
          ${out} meta priority 0:${PRIORITY} counter name kept
          ${out} meta priority 0 counter name none
          ${out} meta mark ${MARK} counter name marked
        }
      }`,
  });
}

async function counted(): Promise<Readonly<Record<string, number>>> {
  const text = await cluster.node.mustRun(["nft", "-j", "list", "counters", "table", "inet", "probe"]);
  const { nftables } = JSON.parse(text) as { nftables: { counter?: { name: string; packets: number } }[] };
  return Object.fromEntries(
    nftables.flatMap(({ counter }) => (counter === undefined ? [] : [[counter.name, counter.packets]])),
  );
}

async function send(from: Namespace, family: Family, address: string, port: number, priority = 0): Promise<void> {
  await from.mustRun(["python3", "-c", SEND, family, address, String(port), String(priority)]);
}

describe.each(FAMILIES)("%s", (family) => {
  test.each([
    ["a service", web],
    ["a service with affinity", edge],
  ])("a socket's own priority is lost only for the first packet of a connection to %s", async (_what, to) => {
    await watch();
    const { address, port } = clusterIP(to);
    await send(cluster.node, family, address[family], port, PRIORITY);
    expect(await counted()).toEqual({ kept: PACKETS - 1, none: 1, marked: 0 });
  });

  test("the priority stays if no service is addressed", async () => {
    await watch();
    await send(cluster.node, family, cluster.lab.pod("a").address[family], POD_PORT, PRIORITY);
    expect(await counted()).toEqual({ kept: PACKETS, none: 0, marked: 0 });
  });

  test("a priority that prerouting rules set is lost likewise, unless forwarding resets every packet's; marks stay", async () => {
    await watch(`meta l4proto udp meta priority set 0:${PRIORITY} meta mark set ${MARK}`);
    const { address, port } = clusterIP(web);
    await send(cluster.lab.pod("b").namespace, family, address[family], port);
    // IPv4 forwarding sets the priority from the TOS.
    const kept = family === "ip" ? 0 : PACKETS - 1;
    expect(await counted()).toEqual({ kept, none: PACKETS - kept, marked: PACKETS });
  });
});

/**
 * Every class id that our rules read or write, as nft prints it (of lists, limits, endpoints with affinity, policy Local), and some others.
 */
async function classIds(): Promise<readonly string[]> {
  const found = new Set(["40:0", "c0:0", "6b00:0", "6bff:ffff", "0:1", "ffff:fffe"]);
  for (const family of FAMILIES) {
    const text = await cluster.node.mustRun(["nft", "list", "table", family, "kube-proxy"]);
    for (const [, id] of text.matchAll(/\s([0-9a-f]{1,4}:[0-9a-f]{1,4}) : /g)) found.add(id);
  }
  for (let i = 0; i < 4; i++) found.add(`${randomInt(0xffff).toString(16)}:${randomInt(0xffff).toString(16)}`);
  return [...found];
}

/** nft misreads some class ids (`40:0`), but reads numbers correctly. */
function numberOf(id: string): number {
  const [major, minor] = id.split(":").map((part) => Number.parseInt(part, 16));
  return major * 0x10000 + minor;
}

/** Gives all packets this priority before all of our rules. */
async function preset(id: string): Promise<void> {
  await cluster.node.mustRun(["nft", "-f", "-"], {
    input: `
      add table inet preset
      delete table inet preset
      table inet preset {
        chain prerouting { type filter hook prerouting priority raw; meta priority set ${numberOf(id)}; }
        chain output { type filter hook output priority raw; meta priority set ${numberOf(id)}; }
      }`,
  });
}

const ANYONE = { ip: "203.0.113.250", ip6: "2001:db8:cb::fa:1" };
/** Packets from beyond the node, from pods, and from the node itself. */
const ROWS: readonly Row[] = [
  { rule: "node port", from: ["client", "b", "node"], to: nodePort(web), expect: { pods: ["a"], masq: true } },
  { rule: "policy Cluster", from: ["client", "node"], to: externals(web), expect: { pods: ["a"], masq: true } },
  { rule: "policy Local", from: "client", to: externals(local), expect: { pods: ["a"], masq: false } },
  { rule: "policy Local, pod", from: "b", to: externals(local), expect: { pods: ["a", "r1"], masq: false } },
  { rule: "policy Local, node", from: "node", to: externals(local), expect: { pods: ["a", "r1"], masq: true } },
  { rule: "affinity", from: ["client", "c"], to: externals(edge), expect: { pods: ["a"], masq: false } },
  { rule: "affinity", from: ["client", "node"], to: externals(sticky), expect: { pods: ["b"], masq: true } },
  { rule: "limits", from: ["client", "node"], to: loadBalancer(limited), expect: { pods: ["a"], masq: true } },
  { rule: "ClusterIP", from: "b", to: [clusterIP(web), clusterIP(local)], expect: { pods: ["a"], masq: false } },
  {
    rule: "not a node port's address",
    from: ["client", "b", "node"],
    to: [web, edge, local, balanced, sticky].flatMap((service) => [
      target("anyone", ANYONE, nodePortOf(service.n)),
      nodePort(service, PLAN.nodeSecond),
    ]),
    expect: "untouched",
  },
];

test("packets are served the same way whatever their priority", { timeout: patience(300_000) }, async () => {
  const wrong: string[] = [];
  for (const id of someOf(await classIds(), 24)) {
    await preset(id);
    for (const row of ROWS) wrong.push(...(await checkRow(cluster, row)).map((what) => `${id}: ${row.rule}: ${what}`));
  }
  expect(wrong).toEqual([]);
});

describe.each(someOf(["tcp", "udp"] as const, 2))("%s to no service keep every priority", (protocol) => {
  /** Gives new connections one id after the other, before all of our rules, and counts the ids at postrouting. */
  async function give(ids: readonly string[]): Promise<void> {
    const opening = `meta l4proto ${protocol} th dport ${POD_PORT} ct state new`;
    const each = ids.map((id, index) => `${index} : ${numberOf(id)}`).join(", ");
    const set = `${opening} meta priority set numgen inc mod ${ids.length} map { ${each} }`;
    await cluster.node.mustRun(["nft", "-f", "-"], {
      input: `
        add table inet preset
        delete table inet preset
        table inet preset {
          set kept { type classid; counter; elements = { ${ids.map(numberOf).join(", ")} }; }
          counter lost { }
          chain prerouting { type filter hook prerouting priority mangle; ${set}; }
          chain output { type filter hook output priority mangle; ${set}; }
          chain after {
            type filter hook postrouting priority srcnat + 50;
            ${opening} meta priority @kept accept
            ${opening} counter name lost
          }
        }`,
    });
  }

  test.each([
    { from: "node", families: FAMILIES },
    // IPv4 forwarding sets the priority from the TOS.
    { from: "client", families: ["ip6"] as const },
  ])("from $from", async ({ from, families }) => {
    const { namespace, address } = cluster.source(from);
    const ids = await classIds();
    for (const family of families) {
      await give(ids);
      const destination = cluster.lab.pod("a").address[family];
      const to = { protocol, destination, port: POD_PORT, count: 3 * ids.length, timeoutMs: 10_000 };
      const outcomes = await namespace.agent().probe({ ...to, ...(address && { source: address[family] }) });
      expect(outcomes.filter(({ result }) => result !== "ok")).toEqual([]);
      const listing = await cluster.node.mustRun(["nft", "list", "table", "inet", "preset"]);
      expect(listing).toMatch(/counter lost {\s+packets 0 /);
      const counts = [...listing.matchAll(/:[0-9a-f]+ counter packets (\d+) /g)].map(([, packets]) => Number(packets));
      expect(counts).toHaveLength(ids.length);
      expect(Math.min(...counts), listing).toBeGreaterThan(0);
    }
  });
});
