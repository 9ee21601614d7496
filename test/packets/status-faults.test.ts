/**
 * Twelve real faults of a node: within a second `status` names the fault and its remedy and exits with 1. After the fault is fixed,
 * `status` exits with 0 again.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { ask } from "../../src/daemon/control/client.js";
import { eventually } from "../lab/eventually.ts";
import type { KubeJson } from "../lab/api-server/api-server.ts";
import { patience } from "../lab/patience.ts";
import { watchWithoutCore } from "../lab/stolen.ts";
import { Api } from "./support/api.ts";
import { answers as answered } from "./support/clients.ts";
import { Cluster, programWords, UNBUNDLED_MAIN } from "./support/cluster.ts";
import { FAMILIES, PLAN } from "../lab/topology.ts";
import {
  clusterAddress,
  clusterIP,
  configuration,
  type Manifest,
  nodeObject,
  serviceCIDRObject,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { longTest } from "../support/long.ts";

const HEALTH_PORT = 10_256;
/** Time from a fault until `status` shows it, not counting the time in which others had the processors. */
const SHOWN_MS = patience(1000);
/** A repair counts as a problem for a minute; then the test checks again. */
const MINUTE_MS = patience(90_000);

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const checked: ServiceSpec = { name: "checked", n: 2, endpoints: ["a"], external: "Local" };
const CHECK_PORT = 32_100;

let cluster: Cluster;
let api: Api;
let directory: string;
let socket: string;
let daemon: Daemon;

/** A daemon of the node, and its log. */
class Daemon {
  readonly process: ChildProcess;
  log = "";

  /** `preload`: a module that causes a fault. */
  constructor(words: readonly string[], preload?: string) {
    const command =
      preload === undefined
        ? programWords(words)
        : [process.execPath, "--import", pathToFileURL(preload).href, UNBUNDLED_MAIN, ...words];
    this.process = cluster.lab.node.spawn(command, { stdio: ["ignore", "ignore", "pipe"] });
    this.process.stderr?.on("data", (chunk: Buffer) => (this.log += chunk.toString()));
  }

  async end(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exited = once(this.process, "exit");
    this.process.kill("SIGTERM");
    await exited;
  }
}

beforeAll(begin);
// A failed test leaves its fault: the next one gets another node.
afterEach(async ({ task }) => {
  if (task.result?.state !== "fail") return;
  await finish();
  await begin();
});
afterAll(finish);

async function begin(): Promise<void> {
  directory = await mkdtemp(join(tmpdir(), "nft-proxier-faults-"));
  socket = join(directory, "daemon.sock");
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  api = await Api.start(cluster.lab.node);
  await put(nodeObject(), serviceCIDRObject(), ...serviceObjects(cluster.lab, web));
  daemon = await serve();
  await isWell();
}

async function finish(): Promise<void> {
  await daemon.end();
  await cluster.destroy();
  await rm(directory, { recursive: true, force: true });
}

const put = (...objects: readonly Manifest[]): Promise<void> =>
  api.call("put", objects as unknown as readonly KubeJson[]);

/** As in a cluster: with kube-proxy's command line and ports. */
async function serve(preload?: string): Promise<Daemon> {
  const kubeconfig = join(directory, "kubeconfig");
  await writeFile(kubeconfig, api.kubeconfig);
  const config = {
    ...configuration(),
    clientConnection: { kubeconfig },
    healthzBindAddress: `0.0.0.0:${HEALTH_PORT}`,
    metricsBindAddress: "127.0.0.1:10249",
  };
  const file = join(directory, "config.json");
  await writeFile(file, JSON.stringify(config));
  const words = ["--config", file, "--control-socket", socket];
  return new Daemon(words, preload);
}

/** Replaces the daemon by one that serves manifests instead of an API server's objects. Returns their directory. */
async function serveManifests(): Promise<string> {
  await daemon.end();
  const args = await cluster.write(serviceObjects(cluster.lab, web));
  daemon = new Daemon(["run", ...args, "--control-socket", socket]);
  await isWell();
  return args[1];
}

interface Report {
  readonly problems: readonly { readonly what: string; readonly remedy: string }[];
}

async function report(): Promise<Report & { readonly code: number }> {
  const { code, stdout, stderr } = await cluster.command(["status", "-o", "json", "--socket", socket]);
  if (stdout === "") throw new Error(`status: exit ${code}: ${stderr}`);
  return { ...(JSON.parse(stdout) as Report), code };
}

/** Checks that, within a second after `fault`, `status` reports it with a remedy and exits with 1. */
async function isTold(fault: () => Promise<unknown>, what: RegExp, remedy: RegExp): Promise<void> {
  const among = ({ problems }: Report): Report["problems"][number] => {
    const found = problems.find((problem) => what.test(problem.what));
    if (found === undefined) throw new Error(`${String(what)} is not among ${JSON.stringify(problems)}\n${daemon.log}`);
    return found;
  };
  await fault();
  const from = performance.now();
  const withoutCore = watchWithoutCore(daemon.process.pid!, process.pid);
  // Asks the daemon as the command does: starting a program for each check would take longer than most faults last.
  await eventually(async () => among((await ask(socket, "status")) as Report));
  const shown = performance.now() - from;
  const held = withoutCore();
  const told = await report();
  expect(among(told).remedy).toMatch(remedy);
  expect(told.code).toBe(1);
  expect(shown - held).toBeLessThan(SHOWN_MS);
}

/** Waits until a daemon that was just started answers. */
async function answers(): Promise<void> {
  await eventually(() => ask(socket, "status"));
}

/** Status and body of the answer of one of the node's ports. */
async function get(portAndPath: string): Promise<string> {
  const { status, body } = await cluster.node.http().get(`http://127.0.0.1:${portAndPath}`);
  return `${status} ${body.trim()}`;
}

/** Checks that there is no problem, except the given one, which is reported for a minute. */
async function isWell(but?: RegExp): Promise<void> {
  const others = ({ problems }: Report): Report["problems"] => problems.filter(({ what }) => but?.test(what) !== true);
  await eventually(async () => expect(others((await ask(socket, "status")) as Report)).toEqual([]));
  const told = await report();
  expect(others(told)).toEqual([]);
  expect(told.code).toBe(told.problems.length === 0 ? 0 : 1);
}

test("the API server is unreachable", async () => {
  await isTold(() => api.call("down"), /connection to the API server failed.*\(http.*, for \w+\)/, /stays active/);
  const { stdout } = await cluster.command(["status", "--socket", socket]);
  expect(stdout).toMatch(/^API server +http\S+: not connected, last answer \S+ ago$/m);
  const upAt = performance.now();
  await api.call("up");
  await isWell();
  const answer = (await ask(socket, "status")) as { readonly api: { readonly silentMs: number } };
  expect(answer.api.silentMs).toBeLessThan(performance.now() - upAt);
});

longTest("the daemon was restarted while the API server is down: commands report what the kernel serves", async () => {
  await api.call("down");
  await daemon.end();
  daemon = await serve();
  await isTold(answers, /no IPv4 rules have been written since startup/, /the log shows what is missing/);
  const command = (...words: readonly string[]): ReturnType<typeof cluster.command> =>
    cluster.command([...words, "--socket", socket]);
  const { stdout: status } = await command("status");
  expect(status).toMatch(
    /^IPv4 +not written since startup; the kernel serves \d+ VIPs and node ports of an earlier run$/m,
  );
  expect(status).not.toContain("kernel serves 0 VIPs");
  expect(status).toMatch(
    /^health +\/healthz 503: Node node-1 has not been read yet: the API server http\S+ has not answered$/m,
  );
  expect(`${status}${daemon.log}`).not.toContain("last known state");
  // The status page agrees.
  expect(await get("10249/status/v1/status")).toMatch(/^200 .*"inForce":false[^}]*"kernelEntries":[1-9]/);
  expect(await get("10249/status/v1/services")).toMatch(/^503 it has written no rules since startup/);
  expect(await get(`${HEALTH_PORT}/readyz`)).toMatch(
    /^503 \{"ready":false,"reason":"no IPv4 and IPv6 rules.*Node node-1 has not been read yet: the API server http\S+ has not answered/,
  );
  const services = await command("services");
  expect([services.code, services.stdout]).toEqual([0, expect.stringContaining(`${clusterAddress(web.n).ip}:80`)]);
  expect(services.stderr).toContain("it has written no rules since startup");
  const vip = `${clusterAddress(web.n).ip}:80`;
  const explained = await command("explain", "tcp", vip);
  expect(explained.stdout).toContain("goes to an endpoint");
  expect(explained.stdout).not.toContain("no service has this address");
  for (const words of [["top"], ["services", "default/web"]]) {
    const { code, stderr } = await command(...words);
    expect([code, stderr]).toEqual([1, expect.stringContaining("it has written no rules since startup")]);
  }
  await api.call("up");
  await isWell();
  expect((await command("status")).stdout).toMatch(/^health +ok \(\/healthz 200\)$/m);
  expect((await command("services")).stdout).toContain("active");
  expect(await get(`${HEALTH_PORT}/readyz`)).toBe('200 {"ready":true}');
});

test("a VIP belongs to another service", async () => {
  const clash = { ...serviceObject({ name: "xenon", n: 9, endpoints: [] }) };
  const spec = clash["spec"] as Manifest;
  const externalIPs = [clusterAddress(web.n).ip];
  await isTold(
    () => put({ ...clash, spec: { ...spec, externalIPs } }),
    /Service default\/xenon: spec\.externalIPs: .* belongs to default\/web/,
    /change the Service/,
  );
  await api.call("delete", "Service", "default/xenon");
  await isWell();
});

test("forwarding is off", async () => {
  await isTold(
    () => cluster.node.sysctl({ "net.ipv4.ip_forward": 0 }),
    /net\.ipv4\.ip_forward is 0/,
    /sysctl -w net\.ipv4\.ip_forward=1/,
  );
  await isTold(
    () => cluster.node.sysctl({ "net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 0 }),
    /net\.ipv6\.conf\.all\.forwarding is 0/,
    /sysctl -w net\.ipv6/,
  );
  await cluster.node.sysctl({ "net.ipv6.conf.all.forwarding": 1 });
  await isWell();
});

test("another program's chain drops by policy or by a rule; one that lets services pass is not a problem", async () => {
  const nft = (text: string): Promise<string> => cluster.lab.node.mustRun(["nft", "-f", "-"], { input: text });
  const wall =
    "table inet wall { chain wall-forward { type filter hook forward priority 5; policy drop; ct state established accept; }; }";
  const told = /chain wall-forward \(hook forward\) of table inet wall drops packets to default\/web: by policy/;
  await isTold(() => nft(wall), told, /nft insert rule inet wall wall-forward ct status dnat accept/);
  // Do what the remedy says.
  await cluster.lab.node.mustRun([
    "nft",
    "insert",
    "rule",
    "inet",
    "wall",
    "wall-forward",
    "ct",
    "status",
    "dnat",
    "accept",
  ]);
  await isWell();
  const byRule =
    "delete table inet wall; table ip wall { chain wall-forward { type filter hook forward priority 5; tcp dport 8080 drop; udp dport 8080 drop; sctp dport 8080 drop; }; }";
  await isTold(() => nft(byRule), /chain wall-forward .* of table ip wall drops/, /nft insert rule/);
  await nft("delete table ip wall");
  await isWell();
});

longTest("the connection tracking table is full", async () => {
  const fill = [
    "import socket, itertools",
    "count = int(open('/proc/sys/net/netfilter/nf_conntrack_max').read())",
    "to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); to.bind(('0.0.0.0', 9))",
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "for i in range(int(count * 0.97)):",
    "    s.sendto(b'', ('127.%d.%d.%d' % (1 + (i >> 16), (i >> 8) & 255, i & 255), 9))",
  ].join("\n");
  await cluster.node.sysctl({ "net.netfilter.nf_conntrack_udp_timeout": 600 });
  await isTold(
    () => cluster.lab.node.mustRun(["python3", "-c", fill]),
    /connection tracking table is 9\d\.\d % full \(\d+ of \d+\)\. When it is full, the kernel ends a connection that is not assured/,
    /raise net\.netfilter\.nf_conntrack_max/,
  );
  // The kernel makes room for answered connections, so a full table alone does not mean that it drops any.
  await cluster.lab.node.mustRun(["python3", "-c", fill.replace("0.97", "1.02")]);
  for (const family of FAMILIES) {
    const to = { to: clusterIP(web), family, protocol: "tcp", source: PLAN.client } as const;
    expect((await answered(cluster, { ...to, count: 20 })).get("a")).toBe(20);
  }
  const shown = await cluster.command([
    "explain",
    PLAN.client.ip,
    clusterIP(web).address.ip + ":80",
    "--socket",
    socket,
  ]);
  expect(shown.stdout).toMatch(
    /note: the connection tracking table is .*the kernel ends a connection that is not assured/,
  );
  // One rounding for one figure.
  const status = await cluster.command(["status", "--socket", socket]);
  expect(status.stdout).toMatch(/^conntrack +\d+ of \d+ entries \((99\.\d|100\.0) %\)$/m);
  const count = await cluster.command(["conntrack", "count", "-o", "wide"]);
  expect(count.stdout).toMatch(/^\d+ of \d+ \((99\.\d|100\.0) % full\)$/m);
  expect((await cluster.command(["conntrack", "delete", "--all"])).code).toBe(0);
  await isWell();
});

longTest(
  "another program has the metrics port, and a service's health check port",
  { timeout: 2 * MINUTE_MS },
  async () => {
    const listener = await occupy(CHECK_PORT);
    const spec = { healthCheckNodePort: CHECK_PORT };
    await isTold(
      () => put(...serviceObjects(cluster.lab, { ...checked, spec })),
      /health check of default\/checked: listening on .*32100 failed: .* \(EADDRINUSE\)/,
      /ss -ltnp/,
    );
    await listener.end();
    await isWell();
    await api.call("delete", "Service", "default/checked");
    await daemon.end();
    const other = await occupy(HEALTH_PORT);
    daemon = await serve();
    await isTold(answers, /listening on 0\.0\.0\.0:10256 failed: another program/, /ss -ltnp/);
    await other.end();
    await isWell();
  },
);

async function occupy(port: number): Promise<{ end(): Promise<void> }> {
  const script = `require("node:net").createServer().listen(${port}, "::", () => console.log("listening"))`;
  const child = cluster.lab.node.spawn([process.execPath, "-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  await once(child.stdout!, "data");
  return {
    end: async () => {
      const exited = once(child, "exit");
      child.kill();
      await exited;
    },
  };
}

test("the Node has no address yet", async () => {
  await daemon.end();
  const node = nodeObject();
  await put({ ...node, status: {} });
  daemon = await serve();
  await isTold(answers, /Node node-1 has no address, so no rules are written yet/, /kubectl get node node-1/);
  await put(node);
  await isWell();
});

test("the kernel refuses a service", { timeout: 2 * MINUTE_MS }, async () => {
  await daemon.end();
  const good = join(directory, "good");
  const preload = join(directory, "refuse.mjs");
  // The kernel's own error: the name of the service's chain is made longer than the kernel accepts.
  await writeFile(
    preload,
    `import { existsSync } from "node:fs";
     const { NftKernel } = await import(${JSON.stringify(new URL("nft/kernel/nft-kernel.js", pathToFileURL(UNBUNDLED_MAIN)).href)});
     const commit = NftKernel.prototype.commit;
     const spoil = (op) => op.kind === "chain" && op.chain.includes("refused") ? { ...op, chain: op.chain.padEnd(300, "x") } : op;
     NftKernel.prototype.commit = function (ops, options) {
       return commit.call(this, existsSync(${JSON.stringify(good)}) ? ops : ops.map(spoil), options);
     };`,
  );
  daemon = await serve(preload);
  await isWell();
  const refused: ServiceSpec = { name: "refused", n: 3, endpoints: ["a"], ranges: ["198.51.100.0/25"] };
  await isTold(
    () => put(...serviceObjects(cluster.lab, refused)),
    /default\/refused is quarantined \(IPv/,
    /retried with backoff/,
  );
  await writeFile(good, "");
  await isWell();
  await api.call("delete", "Service", "default/refused");
});

test("a manifest cannot be parsed", async () => {
  const broken = join(await serveManifests(), "broken.yaml");
  await isTold(() => writeFile(broken, "kind: Service\n  metadata: ["), /manifest broken\.yaml:\d+:\d+: /, /validate/);
  await rm(broken);
  await isWell();
});

const RECENT = /events were lost/;

/** The sum of one column of /proc/net/netlink over the netfilter sockets here: bytes that wait to be read, or dropped messages. */
async function ofSockets(column: "Rmem" | "Drops"): Promise<number> {
  const text = await cluster.lab.node.mustRun(["cat", "/proc/net/netlink"]);
  const [head, ...rows] = text.split("\n").map((line) => line.trim().split(/\s+/));
  const at = head.indexOf(column);
  return rows.filter(([, protocol]) => protocol === "12").reduce((sum, row) => sum + Number(row[at]), 0);
}

longTest("events are lost because the kernel's buffer was full", { timeout: 2 * MINUTE_MS }, async () => {
  const manifests = await serveManifests();
  // A stopped daemon reads no events, until its socket's 64 MiB are full.
  const elements = Array.from({ length: 60_000 }, (_, i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`).join(", ");
  const flood = `add table ip flood\nadd set ip flood s { type ipv4_addr; }\nadd element ip flood s { ${elements} }\n`;
  daemon.process.kill("SIGSTOP");
  try {
    for (let round = 0; round < 40 && (await ofSockets("Drops")) === 0; round++) {
      await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: flood });
      await cluster.lab.node.mustRun(["nft", "flush", "set", "ip", "flood", "s"]);
    }
    expect(await ofSockets("Drops")).toBeGreaterThan(0);
    await cluster.lab.node.mustRun(["nft", "delete", "table", "ip", "flood"]);
    // A stopped daemon could not have reported it.
    await isTold(async () => daemon.process.kill("SIGCONT"), /events were lost \w+ ago/, /nft monitor/);
  } finally {
    daemon.process.kill("SIGCONT");
  }
  await isWell(RECENT);
  // The daemon now reads the remaining events and then the tables, so it notices the next change.
  await eventually(async () => expect(await ofSockets("Rmem")).toBe(0));
  const late = join(manifests, "late.json");
  const items = serviceObjects(cluster.lab, { name: "late", n: 4, endpoints: ["a"] });
  await writeFile(late, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  await eventually(async () => {
    const { stdout } = await cluster.command(["services", "default/late", "--socket", socket]);
    expect(stdout).toMatch(/ active/);
  });
});

test("two proxiers run", { timeout: 2 * MINUTE_MS }, async () => {
  const objects = [
    nodeObject(),
    serviceCIDRObject(),
    ...serviceObjects(cluster.lab, { name: "other", n: 7, endpoints: ["a"] }),
  ];
  const other = join(directory, "other.json");
  await mkdir(join(directory, "other"));
  await writeFile(
    join(directory, "other", "all.json"),
    JSON.stringify({ apiVersion: "v1", kind: "List", items: objects }),
  );
  await writeFile(other, JSON.stringify(configuration()));
  const args = ["run", "--manifests", join(directory, "other"), "--config", other, "--control-socket", ""];
  const rival = new Daemon(args);
  const hasWritten = (): Promise<void> => eventually(() => expect(rival.log).toContain("rules active"));
  await isTold(hasWritten, /nft-proxier \(pid \d+.*\) keeps changing the tables/, /End one of them/);
  await rival.end();
  await isWell(RECENT);
});

longTest("status reports no problem a minute after the last repair", { timeout: 2 * MINUTE_MS }, async () => {
  await expect.poll(async () => (await report()).code, { timeout: MINUTE_MS, interval: 1000 }).toBe(0);
});
