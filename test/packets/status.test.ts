/** `status` and `services`, answered by a daemon that serves this node. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EVENTUALLY_MS, eventually } from "../lab/eventually.ts";
import type { Finished } from "../lab/namespace.ts";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import type { ServiceList } from "../../src/observe/status-report.ts";
import { NetlinkConntrack } from "../../src/nft/conntrack/netlink-conntrack.ts";
import { entryTo } from "./support/entries.ts";
import { clusterAddress, nodePortOf, serviceObject, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { longTest } from "../support/long.ts";
import { end, endIfRunning, logOf } from "./support/daemon.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "b"] };
/** A pod that has completed, and its replacement. */
const shop: ServiceSpec = {
  name: "shop",
  n: 3,
  endpoints: [
    { pod: "a", named: "shop-7d4b-a", zone: "zone-1", serving: true, ready: false, terminating: true },
    { pod: "b", named: "shop-7d4b-b", zone: "zone-2" },
  ],
};
const empty: ServiceSpec = { name: "empty", n: 2, endpoints: [] };
/** Its port equals its node port. */
const alike: ServiceSpec = {
  name: "alike",
  n: 4,
  endpoints: ["a"],
  families: ["ip"],
  spec: { ports: [{ name: "tcp", protocol: "TCP", port: nodePortOf(4), targetPort: 8080, nodePort: nodePortOf(4) }] },
};
const annotated: ServiceSpec = {
  name: "annotated",
  n: 5,
  endpoints: ["a", "b"],
  metadata: {
    annotations: {
      "nft-proxier.dev/balance": "consistent",
      "nft-proxier.dev/max-connections": "10",
      "nft-proxier.dev/drain-seconds": "30",
    },
  },
};

/** Its only endpoint is the ClusterIP of `web`. */
const chained: ServiceSpec = { name: "chained", n: 7, endpoints: [], families: ["ip"], protocols: ["tcp"] };
const chainedSlice = {
  apiVersion: "discovery.k8s.io/v1",
  kind: "EndpointSlice",
  metadata: { name: "chained-x", namespace: "default", labels: { "kubernetes.io/service-name": "chained" } },
  addressType: "IPv4",
  ports: [{ name: "tcp", protocol: "TCP", port: 80 }],
  endpoints: [{ addresses: [clusterAddress(1).ip] }],
};

const headless = serviceObject({
  ...{ name: "hidden", n: 6, endpoints: [], protocols: ["tcp"] },
  spec: { type: "ClusterIP", clusterIP: "None", clusterIPs: ["None"] },
});

let cluster: Cluster;
let directory: string;
let socket: string;
let daemon: ChildProcess;
beforeAll(async () => {
  cluster = await Cluster.create([
    { name: "a", on: "node" },
    { name: "b", on: "node" },
  ]);
  directory = await cluster.temporaryDirectory();
  socket = join(directory, "daemon.sock");
  const args = await cluster.write([
    ...[web, empty, shop, alike, annotated].flatMap((service) => serviceObjects(cluster.lab, service)),
    headless,
    serviceObject(chained),
    chainedSlice,
  ]);
  daemon = cluster.start(["run", ...args, "--control-socket", socket]);
  daemon.stderr?.resume();
  await eventually(async () => expect((await ask("status")).code).toBe(0));
});
afterAll(async () => {
  await endIfRunning(daemon);
  await cluster.destroy();
});

const ask = (...words: readonly string[]): Promise<Finished> => cluster.command([...words, "--socket", socket]);

test("a removed socket is created again", async () => {
  await rm(socket);
  await eventually(async () => expect((await ask("status")).stderr).toBe(""));
});

test("a file at --control-socket stays, and the log says what to do", async () => {
  const file = join(directory, "precious");
  await writeFile(file, "precious");
  const manifests = join(directory, "none");
  await mkdir(manifests);
  const command = [process.execPath, cluster.main, "run", "--manifests", manifests, "--control-socket", file];
  // In another namespace: two daemons of one namespace would contend for the tables.
  const other = cluster.lab.client.spawn(command, { stdio: ["ignore", "ignore", "pipe"] });
  const log = logOf(other);
  await eventually(() => expect(log()).toContain("the path has a file that is not a socket"));
  await end(other);
  expect(await readFile(file, "utf8")).toBe("precious");
});

test("a named service is listed with its endpoints, and one that is not served is an error", async () => {
  const { stdout } = await ask("services", "default/web");
  expect(stdout).toMatch(new RegExp(`${cluster.lab.pod("a").address.ip}:8080 +node-1 +yes +ready,serving +50 %`));
  for (const [name, message] of [
    ["default/nope", "default/nope is not served: it does not exist"],
    ["default/wbe", "did you mean default/web?"],
    ["wbe", "no served service has the name wbe; did you mean web?"],
    ["default/hidden", "default/hidden is not served: it is headless, so its clients connect to its pods"],
    ["default/web:https", "default/web has no such port; its ports are 80/TCP tcp, "],
    ["10.96.9.9", "no service and no endpoint has the address 10.96.9.9"],
    ["10.96.1.1:81", "no service and no endpoint has 10.96.1.1:81, and no service has node port 81"],
    ["a/b/c", "a/b/c is not a service; use NAMESPACE/NAME"],
  ]) {
    const missing = await ask("services", name);
    expect([missing.code, missing.stderr]).toEqual([1, expect.stringContaining(message)]);
  }
});

test("an endpoint that is the ClusterIP of another service is named as the reason, because no packet reaches it", async () => {
  const { stdout } = await ask("services", "default/chained");
  expect(stdout).toMatch(
    /^ {2}reason +endpoint 10\.96\.1\.1 is the ClusterIP of default\/web, so it cannot be reached$/m,
  );
  expect((await ask("services", "default/web")).stdout).not.toContain("ClusterIP of");
});

test("services are named in the same ways by every command", async () => {
  const { ip } = clusterAddress(1);
  const addresses = [ip, `${ip}:80`, `${PLAN.node.ip}:30001`, cluster.lab.pod("b").address.ip6, "30001"];
  for (const name of ["default/web", "web", "web:tcp", "default/web:80", "service/default/web:tcp", ...addresses]) {
    const [services, top, explain] = await Promise.all(
      ["services", "top", "explain"].map((command) => ask(command, name)),
    );
    for (const { code, stderr, stdout } of [services, explain])
      expect([code, stderr, stdout]).toEqual([0, "", expect.stringContaining("default/web")]);
    // Endpoints are not counted here.
    expect(top.stderr).toContain("to count them, start the daemon with --service-counters=endpoint");
  }
  expect((await ask("top", "-n", "nope")).stderr).toContain("no service of namespace nope is served");
  expect((await ask("explain", "udp", "alike")).stderr).toContain("it has 30004/TCP over IPv4");
  const { stdout } = await ask("services", "web:tcp", "default/shop:tcp");
  expect(stdout).toContain("default/web:tcp 80/TCP IPv4: active");
  expect(stdout).toContain("default/shop:tcp 80/TCP IPv6: active");
});

test("services are found by an endpoint's address, with or without its port, and by a node port", async () => {
  const found = async (name: string): Promise<unknown[]> => {
    const { stdout } = await ask("services", name, "-o", "json");
    const { items } = JSON.parse(stdout) as ServiceList;
    return items.map(({ name: of, family }) => [of, family]);
  };
  const of = (...names: readonly string[]) => ({
    ip: names.map((name) => [name, "ip"]),
    ip6: names.map((name) => [name, "ip6"]),
  });
  const { ip, ip6 } = cluster.lab.pod("b").address;
  const ofPod = of("annotated", "shop", "web");
  for (const [address, items] of [
    [ip, ofPod.ip],
    [`${ip}:8080`, ofPod.ip],
    [ip6, ofPod.ip6],
    [`[${ip6}]:8080`, ofPod.ip6],
    ["30001", [...of("web").ip, ...of("web").ip6]],
  ] as const) {
    expect(new Set((await found(address)).map(String)), address).toEqual(new Set(items.map(String)));
  }
});

test("each line of `services -o name` is accepted as a service", async () => {
  const names = (await ask("services", "-o", "name")).stdout;
  expect(names).toContain("service/default/web\n");
  const all = await ask("services", ...names.trim().split("\n"), "-o", "name");
  expect(all).toMatchObject({ code: 0, stderr: "", stdout: names });
  const listed = await ask("conntrack", "list", "--service", "service/default/shop");
  expect(listed).toMatchObject({ code: 0, stderr: "" });
});

test("endpoints are listed with pod, node and zone, and terminating ones with their remaining connections", async () => {
  const [a, b] = ["a", "b"].map((pod) => `${cluster.lab.pod(pod).address.ip}:8080`);
  const table = await NetlinkConntrack.open({ netns: `/run/netns/${cluster.lab.node.name}` });
  const connection = { family: "ip", protocol: "tcp", sourcePort: 40_001, state: "ESTABLISHED" } as const;
  const endpoint = cluster.lab.pod("a").address.ip;
  await table.create(entryTo({ ...connection, destination: clusterAddress(3).ip, port: 80, endpoint }));
  await table.close();
  const named = (await ask("services", "default/shop")).stdout;
  expect(named).toMatch(new RegExp(`^ +${a} +shop-7d4b-a +node-1 +zone-1 +yes +serving,terminating +- +1 +0$`, "m"));
  expect(named).toMatch(new RegExp(`^ +${b} +shop-7d4b-b +node-1 +zone-2 +yes +ready,serving +100 % +0 +0$`, "m"));
  expect(named).toMatch(/terminating endpoints with 1 open and 0 half-open connections\n$/);
  const wide = (await ask("services", "-o", "wide")).stdout;
  expect(wide).toMatch(
    new RegExp(`^default/shop:\\S+ +80/TCP +${a} +shop-7d4b-a .* serving,terminating +- +1 +0$`, "m"),
  );
  const { stdout } = await ask("services", "default/shop", "-o", "json");
  const { items } = JSON.parse(stdout) as ServiceList;
  const tcp = items.find(({ family, protocol }) => family === "ip" && protocol === "TCP");
  expect(tcp?.endpoints?.[0]).toMatchObject({ pod: "shop-7d4b-a", node: "node-1", zone: "zone-1", terminating: true });
  expect((await ask("explain", `${clusterAddress(3).ip}:80`)).stdout).toMatch(
    new RegExp(`${b} +shop-7d4b-b +node-1 +zone-2 +100 %`),
  );
});

test("each connection is counted and listed once, even if a service's port equals its node port", async () => {
  const table = await NetlinkConntrack.open({ netns: `/run/netns/${cluster.lab.node.name}` });
  const endpoint = cluster.lab.pod("a").address.ip;
  const connection = { family: "ip", protocol: "tcp", state: "ESTABLISHED", port: nodePortOf(4), endpoint } as const;
  const destinations = [clusterAddress(4).ip, clusterAddress(4).ip, PLAN.node.ip];
  for (const [i, destination] of destinations.entries())
    await table.create(entryTo({ ...connection, sourcePort: 41_001 + i, destination }));
  await table.close();
  const { stdout } = await ask("services", "default/alike", "-o", "json");
  const { items } = JSON.parse(stdout) as ServiceList;
  expect(items.map(({ endpoints }) => endpoints?.map(({ open }) => open))).toEqual([[3]]);
  const listed = await ask("conntrack", "list", "--service", "default/alike", "-o", "json");
  expect([listed.code, listed.stdout.trim().split("\n").length]).toEqual([0, 3]);
});

test("a service with annotations is listed with them, and with the connections that count towards its limit", async () => {
  const table = await NetlinkConntrack.open({ netns: `/run/netns/${cluster.lab.node.name}` });
  const connection = { family: "ip", protocol: "tcp", endpoint: cluster.lab.pod("a").address.ip } as const;
  const atVIP = { destination: clusterAddress(5).ip, port: 80 };
  const atNode = { destination: PLAN.node.ip, port: nodePortOf(5) };
  for (const [i, [to, state]] of (
    [
      [atVIP, "ESTABLISHED"],
      [atNode, "CLOSE_WAIT"],
      [atVIP, "TIME_WAIT"],
      [{ ...atNode, destination: "127.0.0.1" }, "ESTABLISHED"],
    ] as const
  ).entries())
    await table.create(entryTo({ ...connection, ...to, state, sourcePort: 42_001 + i }));
  await table.close();
  const { items } = JSON.parse((await ask("services", "default/annotated", "-o", "json")).stdout) as ServiceList;
  const tcp = items.find(({ family, protocol }) => family === "ip" && protocol === "TCP");
  expect(tcp).toMatchObject({
    balance: { mode: "consistent", key: "source-ip", slots: 1024 },
    limits: { maxConnections: 10, open: 2, overLimit: "reject" },
    drainSeconds: 30,
  });
  // The node port has the same number in the other family, and no connection there.
  const other = items.find(({ family, protocol }) => family === "ip6" && protocol === "TCP");
  expect(other?.limits?.open).toBe(0);
  const { stdout } = await ask("services", "default/annotated");
  expect(stdout).toMatch(/^default\/annotated:tcp 80\/TCP IPv4: active$/m);
  expect(stdout).toMatch(/^ {2}balance +consistent by source-ip, 1024 slots$/m);
  expect(stdout).toMatch(/^ {2}limits +max-connections 10 \(2 open\), over-limit reject$/m);
  expect(stdout).toMatch(/^ {2}drain-seconds +30$/m);
  const wide = (await ask("services", "-o", "wide")).stdout;
  expect(wide).toMatch(/^default\/annotated:tcp .* active +consistent,limits,drain +-$/m);
  expect(wide).toMatch(/^default\/web:tcp .* active +- +-$/m);
  expect((await ask("services", "default/web")).stdout).not.toMatch(/balance|limits|drain/);
});

longTest("top, and status and services with --watch, exit when their reader ends", async () => {
  const until = async (command: string, change?: () => Promise<unknown>): Promise<number | null> => {
    const words = `exec "${process.execPath}" "${cluster.main}" ${command} --socket "${socket}"`;
    const shell = cluster.node.spawn(["sh", "-c", `(${words}) | head -n 1 >&2`], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    const ended = once(shell, "exit", { signal: AbortSignal.timeout(EVENTUALLY_MS) });
    if (shell.stderr !== null) await once(shell.stderr, "data");
    await change?.();
    const [code] = (await ended) as [number | null];
    return code;
  };
  expect(await until("top --count 1000 --interval 100ms")).toBe(0);
  const write = (services: readonly ServiceSpec[]): Promise<unknown> =>
    cluster.write(services.flatMap((service) => serviceObjects(cluster.lab, service)));
  expect(await until("status --watch", () => cluster.lab.node.sysctl({ "net.ipv4.ip_forward": 0 }))).toBe(0);
  await cluster.lab.node.sysctl({ "net.ipv4.ip_forward": 1 });
  expect(await until("status --events --watch", () => cluster.lab.node.mustRun(["nft", "flush", "ruleset"]))).toBe(0);
  expect(await until("services --watch", () => write([web, shop, alike]))).toBe(0);
  await write([web, empty, shop, alike]);
});

test("status names the last process that changed the table", async () => {
  await cluster.lab.node.mustRun(["nft", "delete", "table", "ip", "kube-proxy"]);
  await eventually(async () => {
    const { stdout } = await ask("status");
    expect(stdout).toMatch(
      /last repair +nft \((?:pid|thread) \d+.*\) deleted the IPv4 table \w+ ago; repaired in \d+ms/,
    );
  });
  expect((await ask("status", "--events")).stdout).toMatch(
    /warning +nft \((?:pid|thread) \d+.*\) deleted the IPv4 table/,
  );
});

test("a program that changed the table from a thread is named with the pid of its process", async () => {
  const kernel = new URL("../../dist/nft/kernel/nft-kernel.js", import.meta.url).href;
  // The kernel reports the thread of the pool that sends the transaction.
  const script = `
    const { NftKernel } = await import(${JSON.stringify(kernel)});
    const kernel = await NftKernel.open();
    await kernel.commit([{ op: "delete", kind: "table", family: "ip6", table: "kube-proxy" }]);
    setInterval(() => undefined, 1000);`;
  const other = cluster.node.spawn([process.execPath, "--input-type=module", "-e", script], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  try {
    await eventually(async () => {
      const { stdout } = await ask("status");
      const [, pid] = /last repair +.+ \(pid (\d+).*\) deleted the IPv6 table/.exec(stdout) ?? [];
      expect([stdout, pid]).toEqual([stdout, String(other.pid)]);
    });
  } finally {
    await endIfRunning(other);
  }
});

test("page says why there is no page, and what to do", async () => {
  const { code, stderr } = await ask("page");
  expect([code, stderr]).toEqual([
    1,
    "nft-proxier: the daemon serves no status page. Start it without `run`, with metricsBindAddress on loopback or with --status-page\n",
  ]);
});

test("another user is refused", async () => {
  // The user may read everything, because the program may be in a directory that other users cannot enter.
  const reads = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"];
  const { code, stderr } = await cluster.commandThrough(
    ["setpriv", "--reuid", "65534", "--clear-groups", ...reads],
    ["status", "--socket", socket],
  );
  expect(code).toBe(1);
  expect(stderr).toContain("permission denied. Run the command as root");
});

test("a daemon that hangs is told from one that does not run", async () => {
  const { pid } = daemon;
  process.kill(pid!, "SIGSTOP");
  try {
    const [status, services, top] = await Promise.all([ask("status"), ask("services"), ask("top", "--count", "1")]);
    const hangs = `the daemon at ${socket} (pid ${pid}) does not answer within 5s: it runs, but hangs.`;
    expect([status.code, status.stdout]).toEqual([1, expect.stringContaining(hangs)]);
    expect(status.stdout).toContain(`delete its pod, or run \`kill -KILL ${pid}\``);
    expect(status.stdout).not.toMatch(/\bstart the daemon/);
    expect([services.code, services.stderr]).toEqual([0, expect.stringContaining(hangs)]);
    expect([top.code, top.stderr]).toEqual([1, expect.stringContaining(hangs)]);
  } finally {
    process.kill(pid!, "SIGCONT");
  }
  await eventually(async () => expect((await ask("status")).code).toBe(0));
});

test("without a daemon only the kernel is asked, and the output says what is unknown", async () => {
  await end(daemon);
  const services = await ask("services");
  expect(services.code).toBe(0);
  expect(services.stderr).toMatch(/no daemon answers at .* The kernel alone does not show names, /);
  const vip = clusterAddress(1).ip.replaceAll(".", "\\.");
  for (const protocol of ["TCP", "UDP", "SCTP"]) {
    expect(services.stdout).toMatch(new RegExp(`^${vip}:80 +${protocol} +(cluster, masqueraded|cluster) +2$`, "m"));
    expect(services.stdout).toMatch(new RegExp(`^node port 30001 \\(IPv6\\) +${protocol} +.* 2$`, "m"));
    expect(services.stdout).toMatch(new RegExp(`^10\\.96\\.1\\.2:80 +${protocol} +rejected +0$`, "m"));
  }
  const status = await ask("status");
  expect(status.code).toBe(1);
  expect(status.stdout).toMatch(/^PROBLEM +no daemon answers[^]*start the daemon/);
  expect(status.stdout).toMatch(/^IPv4 +active: \d+ VIPs and node ports$/m);
  const named = await ask("services", "default/web");
  expect(named.code).toBe(1);
  expect(named.stderr).toContain("no daemon answers");
  await cluster.command(["cleanup"]);
  const empty = await ask("services");
  expect(empty.code).toBe(1);
  expect(empty.stderr).toContain("There is no table kube-proxy either");
});
