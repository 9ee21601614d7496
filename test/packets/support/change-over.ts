/** Traffic that shows the effects of a change of proxiers: open connections, and thousands of new ones a second. */
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";

import { FAMILIES } from "../../lab/topology.ts";
import { Cluster, PODS } from "./cluster.ts";
import { startEchoServer } from "./conversation.ts";
import { Crowd } from "./crowd.ts";
import { type SteadyLoad, type Stream, underSteadyLoad } from "./load.ts";
import { clusterIP, nodePort, POD_PORT, type ServiceSpec, type Target } from "./objects.ts";
import { atLength } from "../../lab/length.ts";

const OPEN = 1000;
const NEW_PER_SECOND = atLength({ short: 1000, usual: 5000 });

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const here: ServiceSpec = { name: "here", n: 2, endpoints: ["b"] };
const echo: ServiceSpec = { name: "echo", n: 3, endpoints: ["e"] };
/** The services to which `changeOver` connects. */
export const SERVICES: readonly ServiceSpec[] = [web, here, echo];
const STREAMS: readonly Stream[] = [
  { from: "client", to: clusterIP(web), protocol: "tcp" },
  { from: "client", to: nodePort(web), protocol: "tcp" },
  { from: "b", to: clusterIP(web), protocol: "tcp" },
  { from: "node", to: clusterIP(here), protocol: "tcp" },
];

/** Connections that are open or opened while proxiers change. */
export interface Traffic {
  /** Echo servers to which the client keeps `OPEN` connections in all. */
  readonly open: readonly Target[];
  readonly streams: readonly Stream[];
  /** New connections per second, of all streams. */
  readonly perSecond: number;
}
const TRAFFIC: Traffic = { open: [clusterIP(echo)], streams: STREAMS, perSecond: NEW_PER_SECOND };

/** Creates a cluster with the pods of these services and their servers. */
export async function createCluster(): Promise<Cluster> {
  const cluster = await Cluster.create([...PODS, { name: "e", on: "node" }], ["e"]);
  const { namespace, address } = cluster.lab.pod("e");
  for (const family of FAMILIES) await startEchoServer(namespace, address[family], POD_PORT);
  return cluster;
}

/** Open connections exchange data after `work`; meanwhile new ones are opened. */
export async function changeOver(
  cluster: Cluster,
  work: () => Promise<unknown>,
  { open, streams, perSecond }: Traffic = TRAFFIC,
): Promise<SteadyLoad> {
  const crowds = await Promise.all(
    FAMILIES.map((family) =>
      Crowd.open(
        cluster.lab.client,
        Array.from({ length: OPEN / FAMILIES.length }, (_, i) => {
          const { address, port } = open[i % open.length];
          return { address: address[family], port };
        }),
      ),
    ),
  );
  try {
    const load = await underSteadyLoad(cluster, streams, perSecond, async () => {
      await sleep(200);
      await work();
      await sleep(200);
    });
    for (const crowd of crowds) expect(await crowd.say("changed over")).toEqual({ ok: crowd.count, ended: [] });
    const { connections, failures } = load;
    const opened = `${connections} new connections, ${load.perSecond} a second: ${failures.length} kinds of failure`;
    console.log(`${OPEN} open connections kept; ${opened}`);
    return load;
  } finally {
    await Promise.all(crowds.map((crowd) => crowd.close()));
  }
}

/** Rejects if a connection, open or new, has reached anything but its pod. */
export async function expectNoFailure(
  cluster: Cluster,
  work: () => Promise<unknown>,
  traffic: Traffic = TRAFFIC,
): Promise<void> {
  const { failures, connections } = await changeOver(cluster, work, traffic);
  expect(failures).toEqual([]);
  expect(connections).toBeGreaterThan(500);
}
