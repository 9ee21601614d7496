/** Established TCP connections to an endpoint that is gone, of services with and without resets. */
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { patience } from "../lab/patience.ts";
import { FAMILIES } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { Conversation, startEchoServer } from "./support/conversation.ts";
import {
  clusterIP,
  type EndpointSpec,
  everyWay,
  type Manifest,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { Tracked } from "./support/tracked.ts";
import { someOf } from "../lab/length.ts";

const ECHO_PORT = 9999;
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
  for (const pod of ["a", "b"]) {
    const { namespace, address } = cluster.lab.pod(pod);
    for (const family of FAMILIES) await startEchoServer(namespace, address[family], ECHO_PORT);
  }
  tracked = await Tracked.start(cluster);
});
afterAll(async () => {
  await tracked.stop();
  await cluster.destroy();
});
const open: Conversation[] = [];
afterEach(() => {
  for (const conversation of open.splice(0)) conversation.close();
});

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

/** The service with its endpoints on the echo server's port. */
function objects(...args: Parameters<typeof spec>): Manifest[] {
  return serviceObjects(cluster.lab, spec(...args)).map((object) =>
    object["kind"] === "Service"
      ? object
      : { ...object, ports: (object["ports"] as Manifest[]).map((port) => ({ ...port, port: ECHO_PORT })) },
  );
}

async function apply(...args: Parameters<typeof spec>): Promise<void> {
  await tracked.apply(objects(...args));
  await tracked.conntrack.idle();
}

/** Opens a connection on every way in, from a pod, from outside and from the node itself, in both families. */
async function connect(ways = everyWay(spec(["a"])), sources = ["b", "client", "node"]) {
  const made = sources.flatMap((from) =>
    ways.flatMap((to) =>
      FAMILIES.map(async (family) => {
        const conversation = await Conversation.open(cluster.source(from).namespace, to.address[family], to.port);
        open.push(conversation);
        return { name: `${family} ${from} → ${to.name}`, conversation };
      }),
    ),
  );
  return Promise.all(made);
}

/** The answer of each connection to a word: the word itself, an error's code, or "" for silence. */
async function answers(
  connections: Awaited<ReturnType<typeof connect>>,
  word: string,
  timeoutMs: number,
): Promise<string[]> {
  return Promise.all(
    connections.map(async ({ name, conversation }) => `${name}: ${await conversation.say(word, patience(timeoutMs))}`),
  );
}
const all = (connections: Awaited<ReturnType<typeof connect>>, answer: string): string[] =>
  connections.map(({ name }) => `${name}: ${answer}`);

describe.each(someOf(["Cluster", "Local"] as const, 2))("externalTrafficPolicy %s", (external) => {
  test.each<[string, ServiceSpec["endpoints"]]>([
    ["and another endpoint takes over", ["r1"]],
    ["and no endpoint is left", []],
  ])("a client's next packet is answered with a reset when its endpoint was removed %s", async (_name, left) => {
    await apply(["a"], { external });
    const connections = await connect();
    expect(await answers(connections, "before", RESET_MS)).toEqual(all(connections, "before"));
    await apply(left, { external });
    expect(await answers(connections, "after", RESET_MS)).toEqual(all(connections, "ECONNRESET"));
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
  expect(await answers(connections, "still", RESET_MS)).toEqual(all(connections, "still"));
});

test("connections to remaining endpoints are not touched", async () => {
  await apply(["b"]);
  const connections = await connect([clusterIP(spec(["b"]))], ["client", "node"]);
  await apply(["a", "b"]);
  await apply(["b"]);
  expect(await answers(connections, "still", RESET_MS)).toEqual(all(connections, "still"));
});

test("a service that requests no resets keeps its connections to a deleted endpoint", async () => {
  await apply(["a"], { asks: false });
  const connections = await connect(undefined, ["client"]);
  await apply(["r1"], { asks: false });
  expect(await answers(connections, "still", RESET_MS)).toEqual(all(connections, "still"));
  await apply([], { asks: false });
  expect(await answers(connections, "still there", RESET_MS)).toEqual(all(connections, "still there"));
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
    expect(await answers(connections, "before", RESET_MS)).toEqual(all(connections, "before"));
    const daemon = cluster.start(["run", ...(await cluster.write(objects(["a"])))]);
    const said = await lineWith(daemon, "nf_conntrack_tcp_loose");
    expect(JSON.parse(said)).toMatchObject({ level: "warn", namespace: "default", service: "chat" });
    expect(said).toContain("sysctl -w net.netfilter.nf_conntrack_tcp_loose=1");
    expect(await answers(connections, "still", RESET_MS)).toEqual(all(connections, "still"));
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
