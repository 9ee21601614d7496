/**
 * A node that ran kube-proxy's IPVS mode: connections open in IPVS continue there, new ones use our rules, and the mode's leftovers are
 * removed once they are idle. Other programs' virtual servers stay.
 */
import type { ChildProcess } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { serverText } from "../../src/migration/leftovers/ipvs-names.js";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { startEchoServer } from "./support/conversation.ts";
import { Crowd } from "./support/crowd.ts";
import { HAS_IPVS, IpvsMode, masqueradeTables, type Place } from "./support/ipvs-mode.ts";
import { underLoad } from "./support/load.ts";
import {
  clusterIP,
  configuration,
  everyWay,
  loadBalancer,
  nodePort,
  nodePortOf,
  POD_PORT,
  serviceObject,
  serviceObjects,
  sliceObject,
  type Manifest,
  type ServiceSpec,
  type Target,
} from "./support/objects.ts";

/** Pods echo what they receive on this port. */
const ECHO_PORT = 8081;
/** First source port of lasting connections: below those that the kernel chooses. */
const CLIENT_PORT = 20_000;
/** IPVS's idle times, s: closed connections are not counted for long. */
const TIMEOUTS = [900, 2, 2];

const ENDPOINTS = ["a", "r1"];
const web: ServiceSpec = { name: "web", n: 1, endpoints: ENDPOINTS };
/** The service of lasting connections. */
const long: ServiceSpec = { name: "long", n: 2, endpoints: ENDPOINTS };
/** A service without connections. */
const idle: ServiceSpec = { name: "idle", n: 3, endpoints: ["b"], affinitySeconds: 10_800 };
const SERVICES = [web, long, idle];

/** A virtual server of another program (keepalived, say): at an address of the node, but not a node port. */
const FOREIGN: Place = { protocol: "TCP", address: PLAN.nodeSecond.ip, port: 6443 };
/** Listed in excludeCIDRs. */
const EXCLUDED: Place = { protocol: "TCP", address: "203.0.113.250", port: 80 };
const CONFIG = configuration({ ipvs: { excludeCIDRs: ["203.0.113.248/29"], scheduler: "lc" } });

let cluster: Cluster;
let kernel: NftKernel;
let mode: IpvsMode;
let directory: string;
const running = new Set<ChildProcess>();
let log = "";

// Two lists of tests instead of one with skipped tests: a kernel without IPVS has nothing to show.
if (HAS_IPVS) describe("a node that ran kube-proxy's IPVS mode", onIpvs);
else test.skip("this kernel has no IPVS, but guests of test/kernels have it", () => undefined);

function objects(): Manifest[] {
  return [
    ...serviceObjects(cluster.lab, web),
    ...serviceObjects(cluster.lab, idle),
    serviceObject(long),
    ...FAMILIES.map((family) =>
      sliceObject(cluster.lab, {
        name: `long-${family}`,
        service: "long",
        family,
        endpoints: ENDPOINTS,
        port: ECHO_PORT,
      }),
    ),
  ];
}

const vipsOf = (family: Family): string[] =>
  SERVICES.flatMap((service) =>
    everyWay(service)
      .slice(0, 3)
      .map(({ address }) => address[family]),
  );

/** Puts the node into the state that kube-proxy leaves: IPVS serves every service in every way, over TCP and UDP. */
async function enterIpvsMode(): Promise<void> {
  const { node } = cluster.lab;
  mode = await IpvsMode.start(kernel, node, TIMEOUTS);
  for (const family of FAMILIES) {
    await mode.bind(vipsOf(family));
    const prefix = family === "ip" ? "KUBE-" : "KUBE-6-";
    const clusterIPs: Place[] = [];
    for (const service of SERVICES) {
      const port = service === long ? ECHO_PORT : POD_PORT;
      const pods = service.endpoints.map((pod) => [cluster.lab.pod(pod as string).address[family], port] as const);
      for (const { address, port: at } of [...everyWay(service), nodePort(service, PLAN.nodeOutside)]) {
        for (const protocol of ["TCP", "UDP"] as const) {
          await mode.serve({ protocol, address: address[family], port: at }, pods, service.affinitySeconds);
        }
      }
      clusterIPs.push({ protocol: "TCP", address: clusterIP(service).address[family], port: clusterIP(service).port });
    }
    await mode.addressSet(`${prefix}CLUSTER-IP`, family, clusterIPs);
    for (const protocol of ["TCP", "UDP"]) {
      await mode.portSet(
        `${prefix}NODE-PORT-${protocol}`,
        SERVICES.map(({ n }) => nodePortOf(n)),
      );
    }
  }
  await mode.serve(FOREIGN, [[cluster.lab.pod("r2").address.ip, POD_PORT]]);
  await mode.serve(EXCLUDED, [[cluster.lab.pod("r2").address.ip, POD_PORT]]);
  await mode.portSet("OTHERS", [1, 2]);
  const tables = masqueradeTables({ ip: vipsOf("ip"), ip6: vipsOf("ip6") });
  await node.mustRun(["nft", "-f", "-"], { input: tables });
}

/** Existing virtual servers and sets. */
const servers = async (): Promise<string[]> => (await mode.ipvs.virtualServers()).map(serverText).toSorted();
const OTHERS_SERVERS = [EXCLUDED, FOREIGN]
  .map(({ protocol, address, port }) => `${protocol} ${address}:${port}`)
  .toSorted();

async function hasInterface(): Promise<boolean> {
  return (await cluster.lab.node.run(["ip", "link", "show", "kube-ipvs0"])).code === 0;
}

/** Number of connections that IPVS counts as established. */
async function counted(): Promise<number> {
  let sum = 0;
  for (const server of await mode.ipvs.virtualServers()) {
    for (const { active } of await mode.ipvs.destinations(server)) sum += active;
  }
  return sum;
}

/** Weights of all destinations of a service's remaining TCP virtual servers. */
async function weights(service: ServiceSpec): Promise<ReadonlySet<number>> {
  const ways = everyWay(service).flatMap(({ address, port }) => FAMILIES.map((family) => `${address[family]} ${port}`));
  const found = new Set<number>();
  for (const server of await mode.ipvs.virtualServers()) {
    if (server.protocol !== "TCP" || !ways.includes(`${server.address} ${server.port}`)) continue;
    for (const { weight } of await mode.ipvs.destinations(server)) found.add(weight);
  }
  return found;
}

async function startDaemon(): Promise<ChildProcess> {
  log = "";
  const args = await cluster.write(objects(), CONFIG);
  const daemon = cluster.start([...args, "--control-socket", join(directory, "socket")]);
  running.add(daemon);
  daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  await expect.poll(() => log, { timeout: patience(60_000) }).toMatch(/"msg":"leftovers of kube-proxy's IPVS mode/);
  return daemon;
}

async function endDaemon(daemon: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => daemon.once("exit", resolve));
  daemon.kill("SIGTERM");
  expect(await ended).toBe(0);
  running.delete(daemon);
}

const times = (count: number, { address, port }: Target, family: Family) =>
  Array.from({ length: count }, () => ({ address: address[family], port }));

/**
 * Opens lasting connections from each kind of client, in both families. Connections of one client never share a source port: IPVS
 * identifies a connection to an endpoint only by the client's address and port, whichever virtual server it used. If two
 * connections are equal, the older one no longer gets answers, even without us (seen on 6.12: ten of ten).
 */
async function openCrowds(): Promise<Crowd[]> {
  const { client, node } = cluster.lab;
  const { namespace } = cluster.lab.pod("b");
  return Promise.all([
    Crowd.open(client, [...times(60, clusterIP(long), "ip"), ...times(30, clusterIP(long), "ip6")], {
      firstPort: CLIENT_PORT,
    }),
    Crowd.open(client, [...times(30, nodePort(long), "ip"), ...times(15, nodePort(long), "ip6")], {
      firstPort: CLIENT_PORT + 100,
    }),
    Crowd.open(client, [...times(15, loadBalancer(long), "ip"), ...times(10, loadBalancer(long), "ip6")], {
      firstPort: CLIENT_PORT + 200,
    }),
    Crowd.open(namespace, [...times(30, clusterIP(long), "ip"), ...times(15, clusterIP(long), "ip6")]),
    Crowd.open(node, [...times(20, clusterIP(long), "ip"), ...times(10, clusterIP(long), "ip6")]),
  ]);
}

async function expectAlive(crowds: readonly Crowd[], word: string): Promise<void> {
  for (const crowd of crowds) expect(await crowd.say(word)).toEqual({ ok: crowd.count, ended: [] });
}

async function statusNotes(): Promise<readonly string[]> {
  const { stdout } = await cluster.command(["status", "-o", "json", "--socket", join(directory, "socket")]);
  return (JSON.parse(stdout) as { notes?: readonly string[] }).notes ?? [];
}

function onIpvs(): void {
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "nft-proxier-ipvs-"));
    cluster = await Cluster.create();
    kernel = await NftKernel.open({ netns: `/run/netns/${cluster.lab.node.name}` });
    for (const pod of ENDPOINTS) {
      const { namespace, address } = cluster.lab.pod(pod);
      for (const family of FAMILIES) await startEchoServer(namespace, address[family], ECHO_PORT);
    }
    await enterIpvsMode();
  });
  afterAll(async () => {
    await kernel.close();
    await cluster.destroy();
    await rm(directory, { recursive: true, force: true });
  });
  afterEach(() => {
    for (const daemon of running) daemon.kill("SIGKILL");
    running.clear();
  });

  const STREAMS = [
    { from: "client", to: clusterIP(web), protocol: "tcp" },
    { from: "client", to: nodePort(web), protocol: "udp" },
    { from: "b", to: clusterIP(web), protocol: "udp" },
    { from: "node", to: clusterIP(web), protocol: "tcp" },
    { from: "nodeItself", to: clusterIP(web), protocol: "tcp" },
    { from: "b", to: loadBalancer(web), protocol: "tcp" },
  ] as const;

  test("under load: no connection is lost, and idle objects are removed", { timeout: patience(400_000) }, async () => {
    const crowds = await openCrowds();
    const open = crowds.reduce((sum, { count }) => sum + count, 0);
    expect(open).toBeGreaterThanOrEqual(200);
    expect(await counted()).toBeGreaterThanOrEqual(open);
    await expectAlive(crowds, "before");
    const late: Crowd[] = [];
    let daemon: ChildProcess | undefined;
    const { connections, failures } = await underLoad(cluster, STREAMS, async () => {
      daemon = await startDaemon();
      await expectAlive(crowds, "moved in");
      // The node's own connections through our rules: they outlive the address that they were opened to.
      late.push(await Crowd.open(cluster.lab.node, times(10, clusterIP(long), "ip")));
      late.push(await Crowd.open(cluster.lab.node, times(10, clusterIP(long), "ip6")));
      expect(late.map(({ opened }) => opened.local)).toEqual([[PLAN.node.ip], [PLAN.node.ip6]]);
      // From source ports that IPVS connections to the same endpoints use.
      const { client } = cluster.lab;
      late.push(await Crowd.open(client, times(20, nodePort(long), "ip"), { firstPort: CLIENT_PORT }));
      late.push(await Crowd.open(client, times(10, nodePort(long), "ip6"), { firstPort: CLIENT_PORT + 60 }));
      const idleServers = (await servers()).filter((one) => one.includes(clusterIP(idle).address.ip));
      expect(idleServers).toEqual([]);
      expect(await statusNotes()).toEqual([
        expect.stringMatching(
          /^kube-proxy's IPVS leftovers stay until they are idle: \d+ connections? to \d+ virtual servers?/,
        ),
      ]);
      expect(await hasInterface()).toBe(true);
      // Nothing new uses IPVS, and the mode's masquerading is gone: open connections do not need it.
      expect(await weights(long)).toEqual(new Set([0]));
      expect(await cluster.lab.node.mustRun(["nft", "list", "tables"])).toContain("table ip nat");
      for (const family of FAMILIES) {
        expect(await cluster.lab.node.mustRun(["nft", "list", "table", family, "nat"])).not.toContain("KUBE-");
      }
      await expectAlive([...crowds, ...late], "later");
    });
    expect(failures).toEqual([]);
    expect(connections).toBeGreaterThan(50);
    await expectAlive(crowds, "after the load");

    // A service that is deleted meanwhile is not served by the waiting leftovers.
    await cluster.write(
      objects().filter((one) => !JSON.stringify(one).includes('"long')),
      CONFIG,
    );
    await eventually(async () => {
      const outcomes = await cluster.lab.client.agent().probe({
        protocol: "tcp",
        destination: clusterIP(long).address.ip,
        port: clusterIP(long).port,
        timeoutMs: 1000,
      });
      // An ICMP error proves it: a server would stay silent.
      expect(outcomes).toMatchObject([{ result: "unreachable" }]);
    });
    expect(await counted()).toBeGreaterThanOrEqual(open);
    await expectAlive([...crowds, ...late], "without a service");

    await Promise.all(crowds.map((crowd) => crowd.close()));
    await expect
      .poll(() => log, { timeout: patience(120_000) })
      .toMatch(/"msg":"leftovers of kube-proxy's IPVS mode removed"/);
    expect(await servers()).toEqual(OTHERS_SERVERS);
    expect(await hasInterface()).toBe(false);
    expect(await mode.ipset.names()).toEqual(["OTHERS"]);
    expect(await statusNotes()).toEqual([]);
    expect(log).toContain("ipvs.scheduler lc: not available");
    expect(log).toMatch(/"virtualServers":\["TCP 192\.0\.2\.20:6443"\].*not kube-proxy's/);
    expect(log).toMatch(/"virtualServers":\["TCP 203\.0\.113\.250:80"\].*excludeCIDRs/);
    await expectAlive(late, "without the address");
    await Promise.all(late.map((crowd) => crowd.close()));
    const routes = await cluster.lab.node.mustRun(["ip", "-6", "route", "show", "table", "local"]);
    expect(routes).not.toContain("fd00:10:96:");
    const after = await underLoad(cluster, STREAMS, () => new Promise((resolve) => setTimeout(resolve, 1000)));
    expect(after.failures).toEqual([]);
    await endDaemon(daemon!);
  });

  test(
    "cleanup removes everything at once; a set that is in use is named, and stays",
    { timeout: patience(120_000) },
    async () => {
      expect((await cluster.command(["cleanup"])).code).toBe(0);
      for (const { protocol, address, port } of [FOREIGN, EXCLUDED]) {
        const server = (await mode.ipvs.virtualServers()).find(
          (one) => serverText(one) === `${protocol} ${address}:${port}`,
        );
        await mode.ipvs.remove(server!);
      }
      await mode.ipset.destroy("OTHERS");
      await enterIpvsMode();
      await mode.listSet("HOLDER", ["KUBE-CLUSTER-IP"]);
      const crowd = await Crowd.open(cluster.lab.client, times(5, clusterIP(long), "ip"));
      const { code, stderr } = await cluster.command(["cleanup"]);
      expect(stderr).toMatch(/"ipsets":\["KUBE-CLUSTER-IP"\].*leftover ipsets of kube-proxy kept/);
      expect(code).toBe(1);
      expect(await servers()).toEqual(OTHERS_SERVERS);
      expect(await hasInterface()).toBe(false);
      expect((await mode.ipset.names()).toSorted()).toEqual(["HOLDER", "KUBE-CLUSTER-IP", "OTHERS"]);
      await crowd.close();
      await mode.ipset.destroy("HOLDER");
      await eventually(async () => expect((await cluster.command(["cleanup"])).code).toBe(0));
      expect(await mode.ipset.names()).toEqual(["OTHERS"]);
    },
  );
}
