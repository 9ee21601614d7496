/** Connections per service, counted by the kernel, whatever happens to the tables meanwhile. */
import type { ChildProcess } from "node:child_process";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { sum } from "../../src/model/balance/endpoint-balance.js";
import { ask } from "../../src/daemon/control/client.js";
import type { ServiceList, ServicePortStatus, StatusReport } from "../../src/observe/status-report.js";
import { eventually } from "../lab/eventually.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  loadBalancer,
  nodeObject,
  nodePort,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
  type Target,
} from "./support/objects.ts";
import { atLength } from "../lab/length.ts";
import { longTest } from "../support/long.ts";
import { end, endIfRunning } from "./support/daemon.ts";

const SERVICES = 50;
const CONNECTIONS = atLength({ short: 2_000, usual: 10_000 });
/** Connections to each service per round. */
const AT_ONCE = 10;

/** Every fifth service has policy Local, every seventh has affinity. */
function specs(endpoints: readonly string[]): ServiceSpec[] {
  return Array.from({ length: SERVICES }, (_, i) => ({
    name: `web-${i + 1}`,
    n: i + 1,
    endpoints,
    protocols: ["tcp"],
    families: ["ip"],
    ...(i % 5 === 4 ? { external: "Local" as const } : {}),
    ...(i % 7 === 6 ? { affinitySeconds: 3600 } : {}),
  }));
}
const services = specs(["a", "b"]);
/** Policy Local and no endpoint on this node: packets from outside are dropped. */
const far: ServiceSpec = {
  name: "far",
  n: 60,
  endpoints: ["r1"],
  protocols: ["tcp"],
  families: ["ip"],
  external: "Local",
};

let cluster: Cluster;
let directory: string;
let socket: string;
let args: readonly string[];
let daemon: ChildProcess;
let log = "";
beforeAll(async () => {
  cluster = await Cluster.create([
    { name: "a", on: "node" },
    { name: "b", on: "node" },
    { name: "r1", on: "remote" },
  ]);
  directory = await cluster.temporaryDirectory();
  socket = join(directory, "daemon.sock");
});
afterAll(() => cluster.destroy());
beforeEach(async () => {
  args = await cluster.write(objects(services));
  await start();
});
afterEach(() => endIfRunning(daemon));

const objects = (list: readonly ServiceSpec[]) =>
  [...list, far].flatMap((service) => serviceObjects(cluster.lab, service));

/** Replaces the daemon's input in one step. */
async function edit(list: readonly ServiceSpec[]): Promise<void> {
  const [, manifests = ""] = args;
  const items = [nodeObject(), serviceCIDRObject(), ...objects(list)];
  await writeFile(join(directory, "edited"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  await rename(join(directory, "edited"), join(manifests, "objects.json"));
}

async function start(...more: readonly string[]): Promise<void> {
  daemon = cluster.start(["run", ...args, "--control-socket", socket, ...more]);
  log = "";
  daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  // Asked as the commands ask: starting a program for each question takes longer than the answer.
  await eventually(async () => expect(((await ask(socket, "status")) as StatusReport).problems).toEqual([]));
}

async function list(): Promise<readonly ServicePortStatus[]> {
  return ((await ask(socket, "services")) as ServiceList).items;
}

type Counts = Readonly<Record<string, number | undefined>>;

async function counted(): Promise<Counts> {
  return Object.fromEntries((await list()).map(({ name, connections }) => [name, connections]));
}

/** The daemon caches a reading for this long. */
const CACHED_MS = 1000;

/** Counts by service of a reading that begins after this call. */
async function counts(): Promise<Counts> {
  await sleep(CACHED_MS + 100);
  return counted();
}

/** These counts, and `more` for each service to which `connect` connects. */
function plus(before: Counts, more: number): Counts {
  return { ...before, ...Object.fromEntries(services.map(({ name }) => [name, (before[name] ?? 0) + more])) };
}

/** Opens AT_ONCE connections to each service's ClusterIP, load-balancer IP or node port, in turns, from an outside client and a pod. */
async function connect(round: number): Promise<void> {
  const ways: readonly ((service: ServiceSpec) => Target)[] = [clusterIP, loadBalancer, nodePort];
  const way = ways[round % ways.length];
  const { namespace, address } = cluster.source(round % 2 === 0 ? "client" : "b");
  for (const service of services) {
    const { address: to, port } = way(service);
    const outcomes = await namespace.agent().probe({
      protocol: "tcp",
      ...(address ? { source: address.ip } : {}),
      destination: to.ip,
      port,
      count: AT_ONCE,
      timeoutMs: 20_000,
    });
    expect(outcomes.map(({ result }) => result)).toEqual(outcomes.map(() => "ok"));
  }
}

/** Number of elements of counting maps that select one of this many endpoints, from a list without affinity. */
async function elementsWith(endpoints: number): Promise<number> {
  const maps = ["services", "nodeports"].flatMap((map) => [map, `${map}-cluster`]);
  const texts = await Promise.all(
    maps.map((map) => cluster.node.mustRun(["nft", "list", "map", "ip", "kube-proxy", map])),
  );
  // "21:3": list 2, shard 1, 3 endpoints. Lists 1 and 2 of node ports are 9 and a.
  return texts.join("").match(new RegExp(` : [129a][0-9a-f]:${endpoints}\\b`, "g"))?.length ?? 0;
}

test("every connection is counted if no element is replaced meanwhile: scaling, a kill and a start lose none", async () => {
  const before = await counts();
  const elements = await elementsWith(2);
  expect(elements).toBeGreaterThan(2 * SERVICES);
  let round = 0;
  const scale = async (endpoints: readonly string[]): Promise<void> => {
    await connect(round++);
    // No reading lies between the connections and the change: the new elements can only continue with the kernel's own counts.
    await edit(specs(endpoints));
    await eventually(async () => expect(await elementsWith(endpoints.length)).toBe(elements));
  };
  await scale(["a", "b", "r1"]);
  await scale(["b", "a"]);
  await Promise.all([end(daemon, "SIGKILL"), connect(round++)]);
  await start();
  await scale(["a", "b", "r1"]);
  await connect(round++);
  expect(await counts()).toEqual(plus(before, round * AT_ONCE));
});

/**
 * A counter is read right before the commit that replaces its element, so packets in between are not counted. How many these are depends
 * on how long the machine takes between the two: test/native/counters.test.ts measures that. Here each commit replaces the elements of all
 * services.
 */
test(`${CONNECTIONS} connections to ${SERVICES} services that are scaled meanwhile: none fails or is counted twice, and no count falls`, async () => {
  const before = await counts();
  const over = new AbortController();
  let scaled = 0;
  const scaling = (async () => {
    for (; !over.signal.aborted; scaled++) await edit(specs(scaled % 2 === 0 ? ["a", "b", "r1"] : ["a", "b"]));
  })();
  const rounds = CONNECTIONS / SERVICES / AT_ONCE;
  let last = before;
  try {
    for (let round = 0; round < rounds; round++) {
      await connect(round);
      const now = await counted();
      for (const { name } of services) {
        expect(now[name], name).toBeGreaterThanOrEqual(last[name] ?? 0);
        expect(now[name], name).toBeLessThanOrEqual((before[name] ?? 0) + (round + 1) * AT_ONCE);
      }
      last = now;
    }
  } finally {
    over.abort();
    await scaling;
  }
  const opened = plus(before, rounds * AT_ONCE);
  const now = await counts();
  const lost = services.map(({ name }) => (opened[name] ?? 0) - (now[name] ?? 0));
  console.log(`${sum(lost)} of ${CONNECTIONS} are not counted, while ${SERVICES} services were scaled ${scaled} times`);
  expect(Math.min(...lost)).toBeGreaterThanOrEqual(0);
  for (const { name } of services) expect(now[name], name).toBeGreaterThanOrEqual(last[name] ?? 0);
});

test("packets that policy Local drops for lack of an endpoint are not counted", async () => {
  const before = await counts();
  const { address, port } = loadBalancer(far);
  const outcomes = await cluster
    .source("client")
    .namespace.agent()
    .probe({ protocol: "tcp", destination: address.ip, port, count: 5, timeoutMs: 1500 });
  expect(outcomes.map(({ result }) => result)).not.toContain("ok");
  expect(await counts()).toEqual(before);
});

test("a table that another process deletes is restored with the counters that were read last", async () => {
  await connect(0);
  const before = await counts();
  expect(sum(Object.values(before).map((count) => count ?? 0))).toBeGreaterThanOrEqual(SERVICES * AT_ONCE);
  await cluster.node.mustRun(["nft", "delete", "table", "ip", "kube-proxy"]);
  await eventually(async () => {
    const table = await cluster.node.mustRun(["nft", "list", "table", "ip", "kube-proxy"]);
    expect(table).toContain("10.96.1.1 . tcp . 80 counter packets ");
  });
  expect(await counts()).toEqual(before);
  await connect(0);
  expect(await counts()).toEqual(plus(before, AT_ONCE));
});

test("services NS/NAME shows each endpoint's open connections, and top shows services that receive connections", async () => {
  const { namespace } = cluster.source("client");
  const { address, port } = clusterIP(services[0]);
  const keep = await namespace
    .agent()
    .probe({ protocol: "tcp", destination: address.ip, port, count: 3, timeoutMs: 20_000 });
  expect(keep.every(({ result }) => result === "ok")).toBe(true);
  const one = await cluster.command(["services", "default/web-1", "--socket", socket]);
  expect(one.stdout).toMatch(/ENDPOINT .*LOCAL +STATE +SHARE .*OPEN +HALF OPEN/);
  const top = await cluster.command(["top", "--count", "2", "-d", "1100ms", "--socket", socket]);
  expect(top.code).toBe(0);
  expect(top.stdout.match(/^SERVICE +PORT +FAMILY +RATE +CONNECTIONS$/gm)).toHaveLength(2);
  expect(top.stdout).not.toContain("\x1b");
});

test.each(["1", "2"])("top --count %s leaves its last screen in the terminal", async (count) => {
  const terminal = ["python3", "-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"];
  const words = ["top", "--count", count, "-d", "100ms", "--socket", socket];
  const { code, stdout } = await cluster.commandThrough(terminal, words);
  expect(code).toBe(0);
  // The text after the alternate screen, if there was one.
  expect(stdout.split("\x1b[?1049l").at(-1)).toMatch(/^SERVICE +PORT +FAMILY +RATE +CONNECTIONS/m);
});

longTest(
  "--service-counters can be switched off and on, with one transaction each, and no connection fails",
  async () => {
    for (const what of ["off", "endpoint", "service"] as const) {
      await end(daemon, "SIGTERM");
      const during = connect(1);
      await start("--service-counters", what);
      expect(firstWrite("ip")).toMatchObject({ msg: "synced", transactions: 1 });
      await during;
      const counts = Object.values(await counted());
      if (what === "off") expect(counts.every((count) => count === undefined)).toBe(true);
      else expect(counts.every((count) => count !== undefined)).toBe(true);
    }
  },
);

/** Returns the log line of a family's first transactions. */
function firstWrite(family: string): unknown {
  const lines = log.split("\n").filter((line) => line.startsWith("{"));
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>).find((line) => line["family"] === family);
}
