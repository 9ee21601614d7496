/** `status` and `services`, answered by a daemon that serves this node. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EVENTUALLY_MS, eventually } from "../lab/eventually.ts";
import type { Finished } from "../lab/namespace.ts";
import { Cluster } from "./support/cluster.ts";
import type { ServiceList } from "../../src/observe/status-report.ts";
import { serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { longTest } from "../support/long.ts";
import { end, endIfRunning, logOf } from "./support/daemon.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "b"] };
const shop: ServiceSpec = { name: "shop", n: 3, endpoints: ["b"] };
const empty: ServiceSpec = { name: "empty", n: 2, endpoints: [] };

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
  const services = [web, empty, shop];
  const args = await cluster.write(services.flatMap((service) => serviceObjects(cluster.lab, service)));
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
  const ofPod = of("shop", "web");
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
  expect(await until("services --watch", () => write([web, shop]))).toBe(0);
  await write([web, empty, shop]);
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
