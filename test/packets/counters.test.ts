/** Connections per service, counted by the kernel, whatever happens to the tables meanwhile. */
import type { ChildProcess } from "node:child_process";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sum } from "../../src/model/balance/endpoint-balance.js";
import type { ServiceList, ServicePortStatus } from "../../src/observe/status-report.js";
import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
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
import { end } from "./support/daemon.ts";

const SERVICES = 50;
const CONNECTIONS = atLength({ short: 2_000, usual: 10_000 });
/** Connections to each service per round; changes happen between rounds. */
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
  args = await cluster.write(objects(services));
  await start();
});
afterAll(async () => {
  await end(daemon, "SIGKILL");
  await cluster.destroy();
});

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
  await eventually(async () => expect((await cluster.command(["status", "--socket", socket])).code).toBe(0));
}

async function list(): Promise<readonly ServicePortStatus[]> {
  const { stdout } = await cluster.command(["services", "-o", "json", "--socket", socket]);
  return (JSON.parse(stdout) as ServiceList).items;
}

/** Counts by service. The daemon caches a reading for a second. */
async function counted(): Promise<Record<string, number | undefined>> {
  return Object.fromEntries((await list()).map(({ name, connections }) => [name, connections]));
}

let opened: Record<string, number | undefined> = { far: 0 };

/** Opens connections to all services' ClusterIPs, load-balancer IPs or node ports, in turns, from an outside client and a pod. */
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
    opened[service.name] = (opened[service.name] ?? 0) + AT_ONCE;
  }
}

const ROUNDS = CONNECTIONS / SERVICES / AT_ONCE;
/**
 * A counter is read right before the commit that replaces its element, so packets in between are lost. Here each commit replaces the
 * elements of all services.
 */
const MOST_LOST = CONNECTIONS / 100;

test(`${CONNECTIONS} connections over ${SERVICES} services are counted, through scaling, a kill and a repair`, async () => {
  let scaled = 0;
  const scaling = (): (() => Promise<void>) => {
    const over = new AbortController();
    const scale = (async () => {
      for (; !over.signal.aborted; scaled++) await edit(specs(scaled % 2 === 0 ? ["a", "b", "r1"] : ["a", "b"]));
    })();
    return () => (over.abort(), scale);
  };
  let stop = scaling();
  for (let round = 0; round < ROUNDS; round++) {
    await connect(round);
    if (round === 5) await stop();
    if (round === 6) await Promise.all([end(daemon, "SIGKILL"), connect(++round)]);
    if (round === 8) {
      await start();
      stop = scaling();
    }
  }
  await stop();
  expect(scaled).toBeGreaterThan(3);
  // The daemon caches a reading for a second.
  await sleep(patience(1500));
  const counts = await counted();
  const lost = services.map(({ name }) => (opened[name] ?? 0) - (counts[name] ?? 0));
  console.log(`${sum(lost)} of ${CONNECTIONS} are not counted, while ${SERVICES} services were scaled ${scaled} times`);
  expect(Math.min(...lost)).toBeGreaterThanOrEqual(0);
  expect(sum(lost)).toBeLessThanOrEqual(MOST_LOST);
  opened = counts;
});

test("packets that policy Local drops for lack of an endpoint are not counted", async () => {
  const { address, port } = loadBalancer(far);
  const outcomes = await cluster
    .source("client")
    .namespace.agent()
    .probe({ protocol: "tcp", destination: address.ip, port, count: 5, timeoutMs: 1500 });
  expect(outcomes.map(({ result }) => result)).not.toContain("ok");
  await eventually(async () => expect(await counted()).toEqual(opened));
});

test("a table that another process deletes is restored with the counters that were read last", async () => {
  await cluster.node.mustRun(["nft", "delete", "table", "ip", "kube-proxy"]);
  // The daemon reports the counts that it knows while the table is away.
  await eventually(async () => {
    const table = await cluster.node.mustRun(["nft", "list", "table", "ip", "kube-proxy"]);
    expect(table).toContain("10.96.1.1 . tcp . 80 counter packets ");
  });
  await eventually(async () => expect(await counted()).toEqual(opened));
  await connect(0);
  await eventually(async () => expect(await counted()).toEqual(opened));
});

test("services NS/NAME shows each endpoint's open connections, and top shows services that receive connections", async () => {
  const { namespace } = cluster.source("client");
  const { address, port } = clusterIP(services[0]);
  const keep = await namespace
    .agent()
    .probe({ protocol: "tcp", destination: address.ip, port, count: 3, timeoutMs: 20_000 });
  expect(keep.every(({ result }) => result === "ok")).toBe(true);
  opened["web-1"] = (opened["web-1"] ?? 0) + 3;
  const one = await cluster.command(["services", "default/web-1", "--socket", socket]);
  expect(one.stdout).toMatch(/ENDPOINT .*LOCAL +STATE +SHARE .*OPEN +HALF OPEN/);
  const top = await cluster.command(["top", "-n", "2", "-d", "1100ms", "--socket", socket]);
  expect(top.code).toBe(0);
  expect(top.stdout.match(/^SERVICE +PORT +FAMILY +RATE +CONNECTIONS$/gm)).toHaveLength(2);
  expect(top.stdout).not.toContain("\x1b");
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
