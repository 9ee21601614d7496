/** Annotation nft-proxier.dev/drain-seconds: how open connections end while their endpoint terminates. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES } from "../lab/topology.ts";
import { answers } from "./support/clients.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  type EndpointSpec,
  everyWay,
  nodePort,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { Tracked } from "./support/tracked.ts";
import { atLength, someOf } from "../lab/length.ts";
import { longTest } from "../support/long.ts";
import { allAnswer, closeConversations, converse, echoObjects, say, startEchoServers } from "./support/echo.ts";

const DRAIN_SECONDS = patience(atLength({ short: 2, usual: 6 }));
const SOURCES = ["b", "client", "node"];

let cluster: Cluster;
let tracked: Tracked;
beforeAll(async () => {
  cluster = await Cluster.create([
    { name: "a", on: "node" },
    { name: "b", on: "node" },
    { name: "r1", on: "remote" },
  ]);
  await startEchoServers(cluster, "a");
  tracked = await Tracked.start(cluster);
});
afterAll(async () => {
  await tracked.stop();
  await cluster.destroy();
});
afterEach(async () => {
  closeConversations();
  await tracked.apply([]);
});

const terminating = (serving: boolean): EndpointSpec => ({ pod: "a", ready: false, serving, terminating: true });

function spec(endpoints: ServiceSpec["endpoints"], more: Partial<ServiceSpec> = {}): ServiceSpec {
  const annotations = { "nft-proxier.dev/drain-seconds": String(DRAIN_SECONDS) };
  return { name: "chat", n: 1, endpoints, metadata: { annotations }, ...more };
}

/** The service uses TCP on the echo server's port. */
async function apply(endpoints: ServiceSpec["endpoints"], more: Partial<ServiceSpec> = {}): Promise<number> {
  await tracked.apply(echoObjects(cluster.lab, spec(endpoints, { protocols: ["tcp"], ...more })));
  await tracked.conntrack.idle();
  return performance.now();
}

const connect = () => converse(cluster, SOURCES, [clusterIP(spec([])), nodePort(spec([]))]);

const until = (at: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, at - performance.now()));

describe("TCP", () => {
  test.each(someOf([true, false], 2))(
    "a connection continues for the drain time, and is then reset; serving: %s",
    async (serving) => {
      await apply(["a"]);
      const connections = await connect();
      expect(await say(connections, "before")).toEqual(allAnswer(connections, "before"));
      const began = await apply([terminating(serving), "r1"]);
      expect(await say(connections, "still")).toEqual(allAnswer(connections, "still"));
      await until(began + DRAIN_SECONDS * 500);
      // Another change of the service does not restart the drain time.
      await apply([terminating(serving), "r1", "b"]);
      const half = await say(connections, "half");
      // Skip the check if the machine stood still: the test itself is then late.
      if (performance.now() < began + DRAIN_SECONDS * 950) expect(half).toEqual(allAnswer(connections, "half"));
      await until(began + DRAIN_SECONDS * 1000);
      await eventually(async () =>
        expect(await tracked.entries({ family: "ip", original: { destinationPort: 80 } })).toEqual([]),
      );
      await tracked.conntrack.settled(patience(10_000));
      expect(await say(connections, "after")).toEqual(allAnswer(connections, "ECONNRESET"));
    },
  );

  test("a connection is reset at once if the endpoint is deleted earlier", async () => {
    await apply(["a"]);
    const connections = await connect();
    await apply([terminating(true), "r1"]);
    expect(await say(connections, "still")).toEqual(allAnswer(connections, "still"));
    await apply(["r1"]);
    expect(await say(connections, "after")).toEqual(allAnswer(connections, "ECONNRESET"));
  });

  test("a connection continues when the endpoint is back, and while it is the last one that serves", async () => {
    await apply(["a"]);
    const connections = await connect();
    const began = await apply([terminating(true), "r1"]);
    await apply(["a", "r1"]);
    await apply([terminating(true)]);
    await until(began + DRAIN_SECONDS * 1000 + 500);
    await tracked.conntrack.settled(patience(10_000));
    expect(await say(connections, "still")).toEqual(allAnswer(connections, "still"));
  });

  longTest("a connection continues if the service does not request draining", async () => {
    await apply(["a"], { metadata: {} });
    const connections = await connect();
    const began = await apply([terminating(false), "r1"], { metadata: {} });
    await until(began + DRAIN_SECONDS * 1000 + 500);
    expect(await say(connections, "still")).toEqual(allAnswer(connections, "still"));
  });
});

test.each(someOf([true, false], 2))(
  "flows of UDP and SCTP are kept for the drain time, and then removed; serving: %s",
  async (serving) => {
    const put = async (endpoints: ServiceSpec["endpoints"]): Promise<void> => {
      await tracked.apply(serviceObjects(cluster.lab, spec(endpoints)));
      await tracked.conntrack.idle();
    };
    const source = cluster.source("client").address!;
    const flows = async (): Promise<number> => {
      const found = await tracked.entries({});
      const ofA = Object.values<string>(cluster.lab.pod("a").address);
      return found.filter(({ original, reply }) => original.protocol !== 6 && ofA.includes(reply.source)).length;
    };
    await put(["a"]);
    const ways = everyWay(spec([]));
    for (const protocol of ["udp", "sctp"] as const)
      for (const family of FAMILIES) for (const to of ways) await answers(cluster, { to, family, protocol, source });
    const before = await flows();
    expect(before).toBe(ways.length * 4);
    await put([terminating(serving), "r1"]);
    const began = performance.now();
    await until(began + DRAIN_SECONDS * 400);
    await tracked.conntrack.settled(patience(10_000));
    // SCTP associations that are shut down disappear by themselves after 3 s.
    const udp = ways.length * 2;
    if (performance.now() < began + DRAIN_SECONDS * 900) expect(await flows()).toBeGreaterThanOrEqual(udp);
    // New connections have gone to other endpoints all the while.
    const fresh = await answers(cluster, { to: ways[0], family: "ip", protocol: "udp", source, count: 20 });
    expect([...fresh.keys()]).toEqual(["r1"]);
    await eventually(async () => expect(await flows()).toBe(0));
    // The program starts draining before `put` returns.
    expect(performance.now() - began).toBeGreaterThanOrEqual(DRAIN_SECONDS * 1000 - 200);
  },
);
