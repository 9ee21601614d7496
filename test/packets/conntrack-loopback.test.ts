/** Node ports at all addresses of the node: connections of local programs over loopback belong to them, unless node ports answer there. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import { FAMILIES, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { configuration, nodePort, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { Tracked } from "./support/tracked.ts";
import { patience } from "../lab/patience.ts";

const EVERYWHERE = { nodePortAddresses: ["0.0.0.0/0", "::/0"] };
const LOOPBACK = { ip: "127.0.0.1", ip6: "::1" } as const;
const moving = (endpoint: string): ServiceSpec => ({ name: "moving", n: 1, endpoints: [endpoint], protocols: ["udp"] });
const { port } = nodePort(moving("a"));

let cluster: Cluster;
let tracked: Tracked;
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.lab.node.sysctl({ "net.netfilter.nf_conntrack_udp_timeout": patience(600) });
  tracked = await Tracked.start(cluster, EVERYWHERE);
  for (const family of FAMILIES) await cluster.node.agent().serve("udp", LOOPBACK[family], port, "program");
});
afterAll(async () => {
  await tracked.stop();
  await cluster.destroy();
});

const entriesTo = async (destination: string) =>
  (await tracked.entries({ original: { destination, destinationPort: port } })).map(({ id }) => id);

test("an entry to a node port's number on loopback stays when the endpoint is replaced, and one to the node's address is deleted", async () => {
  await tracked.apply(serviceObjects(cluster.lab, moving("a")));
  const { namespace, address } = cluster.source("client");
  for (const family of FAMILIES) {
    const local = { protocol: "udp", source: LOOPBACK[family], destination: LOOPBACK[family], port } as const;
    expect(await cluster.node.agent().probe(local)).toMatchObject([{ result: "ok", name: "program" }]);
    const outside = { protocol: "udp", source: address?.[family] ?? "", destination: PLAN.node[family], port } as const;
    expect(await namespace.agent().probe(outside)).toMatchObject([{ result: "ok", name: "a" }]);
  }
  const before = await Promise.all(FAMILIES.map((family) => entriesTo(LOOPBACK[family])));
  expect(before.map((ids) => ids.length)).toEqual([1, 1]);
  const passed = tracked.reports.length;
  await tracked.apply(serviceObjects(cluster.lab, moving("b")));
  // Each family's pass over the change, and the next one.
  await eventually(() => expect(tracked.reports.length).toBeGreaterThanOrEqual(passed + 2 * FAMILIES.length));
  await expect.poll(() => Promise.all(FAMILIES.map((family) => entriesTo(PLAN.node[family])))).toEqual([[], []]);
  expect(await Promise.all(FAMILIES.map((family) => entriesTo(LOOPBACK[family])))).toEqual(before);

  const args = await cluster.write(serviceObjects(cluster.lab, moving("b")), configuration(EVERYWHERE));
  const done = await cluster.command(["conntrack", "gc", "--orphans", "--no-headers", ...args]);
  expect([done.code, done.stdout]).toEqual([0, ""]);
  expect(await Promise.all(FAMILIES.map((family) => entriesTo(LOOPBACK[family])))).toEqual(before);
});

test("if node ports answer on loopback, entries there are also deleted with their endpoint", async () => {
  await tracked.stop();
  tracked = await Tracked.start(cluster, { nodePortAddresses: ["primary", "localhost"] });
  await tracked.apply(serviceObjects(cluster.lab, moving("a")));
  const destinations = ["127.0.0.1", "127.0.0.2", "::1"];
  const ask = async (): Promise<string[]> => {
    // Each probe reuses its port, so that it is one connection as long as its entry lasts.
    const probes = destinations.map((destination, index) =>
      cluster.node.agent().probe({ protocol: "udp", destination, port, sourcePort: 40_001 + index, timeoutMs: 1000 }),
    );
    return (await Promise.all(probes))
      .flat()
      .map((outcome) => (outcome.result === "ok" ? outcome.name : outcome.result));
  };
  // Connections that a program had on loopback now go to the service.
  await expect.poll(ask).toEqual(["a", "a", "a"]);
  await tracked.apply(serviceObjects(cluster.lab, moving("b")));
  await expect.poll(ask).toEqual(["b", "b", "b"]);
});
