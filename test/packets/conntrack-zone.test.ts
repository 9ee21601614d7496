/** Packets that another program assigns to a conntrack zone, as on nodes with VRFs or tenants. */
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import type { FlowAnswers } from "../lab/agent.ts";
import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, nodePort, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { Tracked } from "./support/tracked.ts";
import { someOf } from "../lab/length.ts";

const INTERVAL_MS = patience(10);

let cluster: Cluster;
let tracked: Tracked;
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.lab.node.sysctl({
    "net.netfilter.nf_conntrack_udp_timeout": patience(600),
    "net.netfilter.nf_conntrack_udp_timeout_stream": patience(600),
  });
  tracked = await Tracked.start(cluster);
});
afterEach(() => cluster.lab.node.mustRun(["nft", "delete", "table", "inet", "zones"]));
afterAll(async () => {
  await tracked.stop();
  await cluster.destroy();
});

const moving = (endpoint: string): ServiceSpec => ({ name: "moving", n: 1, endpoints: [endpoint] });

let sourcePort = 22_000;
/** Returns the servers that answer a client which keeps sending from one socket. */
function send(family: "ip" | "ip6", to: ReturnType<typeof clusterIP>): Promise<readonly FlowAnswers[]> {
  const { namespace, address } = cluster.source("client");
  const spec = { protocol: "udp", port: to.port, destination: to.address[family], intervalMs: INTERVAL_MS } as const;
  return namespace.agent().flow({ ...spec, source: address?.[family] ?? "", sourcePort: sourcePort++ });
}

const ZONES = [
  ["a zone for both directions", "ct zone set 5", { zone: 5 }],
  ["a zone for the original direction", "ct original zone set 6", { original: { zone: 6 } }],
] as const;
test.each(someOf(ZONES, 2))("UDP in %s follows the replaced endpoint", async (_what, statement, zone) => {
  const chain = `{ type filter hook prerouting priority raw; ${statement}; }`;
  await cluster.lab.node.mustRun(["nft", `table inet zones { chain pre ${chain}; }`]);
  await tracked.apply(serviceObjects(cluster.lab, moving("a")));
  const ways = [clusterIP(moving("a")), nodePort(moving("a"))];
  const first = sourcePort;
  const answers = FAMILIES.flatMap((family) => ways.map((to) => send(family, to)));
  const answeredBy = async (pod: string) => {
    const entries = await tracked.answered(pod, first, first + answers.length);
    expect(entries).toHaveLength(answers.length);
    return entries;
  };
  for (const entry of await eventually(() => answeredBy("a"))) expect(entry).toMatchObject(zone);
  await tracked.apply(serviceObjects(cluster.lab, moving("r1")));
  await eventually(() => answeredBy("r1"));
  await cluster.source("client").namespace.agent().endFlows();
  for (const runs of await Promise.all(answers)) expect(runs.map(({ name }) => name)).toEqual(["a", "r1"]);
});
