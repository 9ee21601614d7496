/** Established TCP connections to an endpoint that is gone, of services with and without resets. */
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { patience } from "../lab/patience.ts";
import { FAMILIES } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, type EndpointSpec, everyWay, type Manifest, type ServiceSpec } from "./support/objects.ts";
import { Tracked } from "./support/tracked.ts";
import { someOf } from "../lab/length.ts";
import {
  type NamedConversation,
  allAnswer,
  closeConversations,
  converse,
  echoObjects,
  say,
  startEchoServers,
} from "./support/echo.ts";

/** A reset takes a round trip, longer only on a busy machine. Without a reset the client waits for 15 minutes. */
const RESET_MS = 20_000;

let cluster: Cluster;
let tracked: Tracked;
beforeAll(async () => {
  cluster = await Cluster.create([
    { name: "a", on: "node" },
    { name: "b", on: "node" },
    { name: "r1", on: "remote" },
  ]);
  await startEchoServers(cluster, "a", "b");
  tracked = await Tracked.start(cluster);
});
afterAll(async () => {
  await tracked.stop();
  await cluster.destroy();
});
afterEach(closeConversations);

interface Asked {
  readonly asks?: boolean;
  readonly external?: "Cluster" | "Local";
}

function spec(endpoints: ServiceSpec["endpoints"], { asks = true, external = "Cluster" }: Asked = {}): ServiceSpec {
  const annotations = { "nft-proxier.dev/reset-removed-endpoints": "true" };
  return {
    name: "chat",
    n: 1,
    endpoints,
    external,
    protocols: ["tcp"],
    ...(asks ? { metadata: { annotations } } : {}),
  };
}

const objects = (...args: Parameters<typeof spec>): Manifest[] => echoObjects(cluster.lab, spec(...args));

async function apply(...args: Parameters<typeof spec>): Promise<void> {
  await tracked.apply(objects(...args));
  await tracked.conntrack.idle();
}

/** Opens a connection on every way in, from a pod, from outside and from the node itself, in both families. */
const connect = (ways = everyWay(spec(["a"])), sources = ["b", "client", "node"]) => converse(cluster, sources, ways);
const hear = (connections: readonly NamedConversation[], word: string): Promise<string[]> =>
  say(connections, word, patience(RESET_MS));

describe.each(someOf(["Cluster", "Local"] as const, 2))("externalTrafficPolicy %s", (external) => {
  test.each<[string, ServiceSpec["endpoints"]]>([
    ["and another endpoint takes over", ["r1"]],
    ["and no endpoint is left", []],
  ])("a client's next packet is answered with a reset when its endpoint was removed %s", async (_name, left) => {
    await apply(["a"], { external });
    const connections = await connect();
    expect(await hear(connections, "before")).toEqual(allAnswer(connections, "before"));
    await apply(left, { external });
    expect(await hear(connections, "after")).toEqual(allAnswer(connections, "ECONNRESET"));
  });
});

test.each<[string, EndpointSpec]>([
  ["terminating, and serving", { pod: "a", ready: false, serving: true, terminating: true }],
  ["terminating, and no longer serving", { pod: "a", ready: false, serving: false, terminating: true }],
  ["not ready", { pod: "a", ready: false, serving: false }],
])("a connection continues while its endpoint is %s", async (_name, endpoint) => {
  await apply(["a"]);
  const connections = await connect(undefined, ["client"]);
  await apply([endpoint, "r1"]);
  expect(await hear(connections, "still")).toEqual(allAnswer(connections, "still"));
});

test("connections to remaining endpoints are not touched", async () => {
  await apply(["b"]);
  const connections = await connect([clusterIP(spec(["b"]))], ["client", "node"]);
  await apply(["a", "b"]);
  await apply(["b"]);
  expect(await hear(connections, "still")).toEqual(allAnswer(connections, "still"));
});

test("a service that requests no resets keeps its connections to a deleted endpoint", async () => {
  await apply(["a"], { asks: false });
  const connections = await connect(undefined, ["client"]);
  await apply(["r1"], { asks: false });
  expect(await hear(connections, "still")).toEqual(allAnswer(connections, "still"));
  await apply([], { asks: false });
  expect(await hear(connections, "still there")).toEqual(allAnswer(connections, "still there"));
});

test("new connections are opened and refused as usual", async () => {
  await apply(["a"]);
  const { namespace, address } = cluster.source("client");
  const to = clusterIP(spec(["a"]));
  const probe = { protocol: "tcp", count: 20, timeoutMs: RESET_MS, port: to.port } as const;
  await apply([]);
  for (const family of FAMILIES) {
    const source = address?.[family] ?? "";
    const outcomes = await namespace.agent().probe({ ...probe, source, destination: to.address[family] });
    expect(outcomes.map(({ result }) => result)).toEqual(["unreachable"]);
  }
});

describe("with nf_conntrack_tcp_loose=0, which leaves the middle of a connection untracked", () => {
  beforeAll(() => cluster.lab.node.sysctl({ "net.netfilter.nf_conntrack_tcp_loose": 0 }));
  afterAll(() => cluster.lab.node.sysctl({ "net.netfilter.nf_conntrack_tcp_loose": 1 }));

  test("other connections continue, and the program says why there are no resets", async () => {
    await apply(["a"]);
    const connections = await connect([clusterIP(spec(["a"]))], ["client"]);
    expect(await hear(connections, "before")).toEqual(allAnswer(connections, "before"));
    const daemon = cluster.start(["run", ...(await cluster.write(objects(["a"])))]);
    const said = await lineWith(daemon, "nf_conntrack_tcp_loose");
    expect(JSON.parse(said)).toMatchObject({ level: "warn", namespace: "default", service: "chat" });
    expect(said).toContain("sysctl -w net.netfilter.nf_conntrack_tcp_loose=1");
    expect(await hear(connections, "still")).toEqual(allAnswer(connections, "still"));
    const ended = new Promise((resolve) => daemon.once("exit", resolve));
    daemon.kill("SIGTERM");
    expect(await ended).toBe(0);
  });
});

/** The first line on the program's stderr that contains `text`. */
async function lineWith(program: ChildProcess, text: string): Promise<string> {
  const lines: string[] = [];
  for await (const line of createInterface({ input: program.stderr! })) {
    if (line.includes(text)) return line;
    lines.push(line);
  }
  throw new Error(`it ended without the line ${text}:\n${lines.join("\n")}`);
}
