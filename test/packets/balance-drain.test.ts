/** Annotation nft-proxier.dev/drain-seconds: how open connections end while their endpoint terminates. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import type { ConntrackEntry, ConntrackFilter } from "../../src/nft/conntrack/conntrack-table.ts";
import { EVENTUALLY_MS, eventually } from "../lab/eventually.ts";
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

const SHORTEST_SECONDS = patience(atLength({ short: 2, usual: 6 }));
/** A drain time that never ends in a test. */
const ENDLESS_SECONDS = 3600;
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
  // Flows without packets stay for as long as the tests take.
  await cluster.node.sysctl({
    "net.netfilter.nf_conntrack_udp_timeout": patience(600),
    "net.netfilter.nf_conntrack_sctp_timeout_closed": patience(600),
    "net.netfilter.nf_conntrack_sctp_timeout_cookie_wait": patience(600),
  });
  tracked = await Tracked.start(cluster);
});
afterAll(async () => {
  await tracked.stop();
  await cluster.destroy();
});
afterEach(clear);

async function clear(): Promise<void> {
  closeConversations();
  await tracked.apply([]);
}

const terminating = (serving: boolean): EndpointSpec => ({ pod: "a", ready: false, serving, terminating: true });

function spec(
  endpoints: ServiceSpec["endpoints"],
  seconds = ENDLESS_SECONDS,
  more: Partial<ServiceSpec> = {},
): ServiceSpec {
  const annotations = { "nft-proxier.dev/drain-seconds": String(seconds) };
  return { name: "chat", n: 1, endpoints, metadata: { annotations }, ...more };
}

/** The service uses TCP on the echo server's port. */
async function apply(...[endpoints, seconds, more]: Parameters<typeof spec>): Promise<void> {
  await tracked.apply(echoObjects(cluster.lab, spec(endpoints, seconds, { protocols: ["tcp"], ...more })));
  await tracked.conntrack.idle();
}

/**
 * Runs `work` with a drain time. If `work` returns false, because this machine is so slow that the drain time ended before what `work` had to
 * do meanwhile, runs it again with twice the time.
 */
async function inTime(work: (seconds: number) => Promise<boolean>): Promise<void> {
  for (let seconds = SHORTEST_SECONDS; !(await work(seconds)); seconds *= 2) await clear();
}

/** Entries that pod a answers. */
async function ofA(filter: ConntrackFilter): Promise<readonly ConntrackEntry[]> {
  const addresses = Object.values<string>(cluster.lab.pod("a").address);
  return (await tracked.entries(filter)).filter(({ reply }) => addresses.includes(reply.source));
}

const connect = () => converse(cluster, SOURCES, [clusterIP(spec([])), nodePort(spec([]))]);

/** How much earlier than requested Node's timers may end. */
const TIMER_MS = 10;
const until = (at: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, at - performance.now()));

describe("TCP", () => {
  test.each(someOf([true, false], 2))(
    "a connection continues for the drain time, and is then reset; serving: %s",
    (serving) =>
      inTime(async (seconds) => {
        await apply(["a"], seconds);
        const connections = await connect();
        expect(await say(connections, "before")).toEqual(allAnswer(connections, "before"));
        const began = performance.now();
        await apply([terminating(serving), "r1"], seconds);
        const still = await say(connections, "still");
        await until(began + seconds * 500);
        // Another change of the service does not restart the drain time.
        await apply([terminating(serving), "r1", "b"], seconds);
        const half = await say(connections, "half");
        if (performance.now() > began + seconds * 1000) return false;
        expect(still).toEqual(allAnswer(connections, "still"));
        expect(half).toEqual(allAnswer(connections, "half"));
        await eventually(async () => expect(await ofA({ protocol: 6, state: "ESTABLISHED" })).toEqual([]));
        expect(performance.now()).toBeGreaterThan(began + seconds * 1000 - TIMER_MS);
        expect(await tracked.conntrack.settled(EVENTUALLY_MS)).toBe(true);
        expect(await say(connections, "after")).toEqual(allAnswer(connections, "ECONNRESET"));
        return true;
      }),
  );

  test("a connection is reset at once if the endpoint is deleted earlier", async () => {
    await apply(["a"]);
    const connections = await connect();
    await apply([terminating(true), "r1"]);
    expect(await say(connections, "still")).toEqual(allAnswer(connections, "still"));
    await apply(["r1"]);
    expect(await say(connections, "after")).toEqual(allAnswer(connections, "ECONNRESET"));
  });

  test("a connection continues when the endpoint is back, and while it is the last one that serves", () =>
    inTime(async (seconds) => {
      await apply(["a"], seconds);
      const connections = await connect();
      const began = performance.now();
      await apply([terminating(true), "r1"], seconds);
      await apply(["a", "r1"], seconds);
      if (performance.now() > began + seconds * 1000) return false;
      await apply([terminating(true)], seconds);
      await until(performance.now() + seconds * 1000 + 500);
      expect(await tracked.conntrack.settled(EVENTUALLY_MS)).toBe(true);
      expect(await say(connections, "still")).toEqual(allAnswer(connections, "still"));
      return true;
    }));

  longTest("a connection continues if the service does not request draining", async () => {
    await apply(["a"], undefined, { metadata: {} });
    const connections = await connect();
    await apply([terminating(false), "r1"], undefined, { metadata: {} });
    await until(performance.now() + SHORTEST_SECONDS * 1000 + 500);
    expect(await say(connections, "still")).toEqual(allAnswer(connections, "still"));
  });
});

const DRAINING: readonly (readonly [string, EndpointSpec])[] = [
  ["terminates and serves", terminating(true)],
  ["terminates and does not serve", terminating(false)],
  ["is not ready", { pod: "a", ready: false, serving: false }],
];

test.each(someOf(DRAINING, 3))(
  "flows of UDP and SCTP to an endpoint that %s are kept for the drain time, and then removed",
  (_, endpoint) =>
    inTime(async (seconds) => {
      const put = async (endpoints: ServiceSpec["endpoints"]): Promise<void> => {
        await tracked.apply(serviceObjects(cluster.lab, spec(endpoints, seconds)));
        await tracked.conntrack.idle();
      };
      const source = cluster.source("client").address!;
      const flows = async (): Promise<number> =>
        (await ofA({})).filter(({ original }) => original.protocol !== 6).length;
      await put(["a"]);
      const ways = everyWay(spec([]));
      for (const protocol of ["udp", "sctp"] as const)
        for (const family of FAMILIES) for (const to of ways) await answers(cluster, { to, family, protocol, source });
      const before = await flows();
      expect(before).toBe(ways.length * 4);
      const began = performance.now();
      await put([endpoint, "r1"]);
      await until(began + seconds * 400);
      const kept = await flows();
      if (performance.now() > began + seconds * 1000) return false;
      expect(kept).toBe(before);
      // New connections have gone to other endpoints all the while.
      const fresh = await answers(cluster, { to: ways[0], family: "ip", protocol: "udp", source, count: 20 });
      expect([...fresh.keys()]).toEqual(["r1"]);
      await eventually(async () => expect(await flows()).toBe(0));
      expect(performance.now()).toBeGreaterThan(began + seconds * 1000 - TIMER_MS);
      return true;
    }),
);
