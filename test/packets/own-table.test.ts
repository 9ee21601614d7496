/**
 * `--own-table`: while the program runs, no other process can change its tables; when it ends, they stay and serve. If the kernel does not
 * support that, the program says so and serves all the same.
 */
import type { ChildProcess } from "node:child_process";
import { release } from "node:os";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { factsOf } from "../support/kernel-facts.ts";
import { FAMILIES } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { KubeProxyDouble } from "./support/kube-proxy.ts";
import { exceptMissed, underLoad } from "./support/load.ts";
import { clusterIP, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { endIfRunning } from "./support/daemon.ts";
import { checkRow, type Row } from "./support/rows.ts";
import { patience } from "../lab/patience.ts";
import { watchWithoutCore } from "../lab/stolen.ts";
import { longTest } from "../support/long.ts";
import { someOf } from "../lab/length.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const SERVED: Row = { rule: "", from: "c", to: clusterIP(web), expect: { pods: ["a"], masq: false } };

const STREAMS = [
  { from: "c", to: clusterIP(web), protocol: "tcp" },
  { from: "client", to: clusterIP(web), protocol: "udp" },
] as const;

let cluster: Cluster;
let args: readonly string[];
let log = "";
const running = new Set<ChildProcess>();

beforeAll(async () => {
  cluster = await Cluster.create();
  args = await cluster.write(serviceObjects(cluster.lab, web));
});
afterAll(async () => {
  await cluster.destroy();
});

// Clean up after a failed test.
afterEach(async () => {
  for (const daemon of running) await endIfRunning(daemon, "SIGKILL");
  running.clear();
});

const REFUSED = /"msg":"writing the table failed"/g;
const FREE = /"msg":"table released by its owner"/g;
const BOTH_WRITTEN = /"msg":"(synced|nothing written)"[^]*"msg":"(synced|nothing written)"/;

/** The whole program, started like kube-proxy, except for its source and its ports. */
async function start(...flags: readonly string[]): Promise<ChildProcess> {
  const daemon = launch(...flags);
  await expect.poll(() => log).toMatch(BOTH_WRITTEN);
  return daemon;
}

/** Returns at once; `log` is the output of this process from now on. */
function launch(...flags: readonly string[]): ChildProcess {
  log = "";
  const [, manifests, , config] = args;
  const [command, ...rest] = flags[0] === "run" ? flags : ["", ...flags];
  const verbose = command === "run" ? ["--log-level", "debug"] : ["-v=4"];
  const daemon = cluster.start([
    ...(command === "" ? [] : [command]),
    ...["--manifests", manifests, "--config", config, ...verbose, ...rest],
  ]);
  running.add(daemon);
  daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  return daemon;
}

async function end(daemon: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => daemon.once("exit", resolve));
  daemon.kill("SIGTERM");
  expect(await ended).toBe(0);
  running.delete(daemon);
}

/** kubeproxy_sync_proxy_rules_nftables_sync_failures_total of each family. */
async function syncFailures(): Promise<readonly number[]> {
  const { body } = await cluster.node.http().get("http://127.0.0.1:10249/metrics");
  const series = /^kubeproxy_sync_proxy_rules_nftables_sync_failures_total\{.*\} (\d+)$/gm;
  return [...body.matchAll(series)].map(([, count]) => Number(count));
}

const nft = (...words: readonly string[]) => cluster.lab.node.run(["nft", ...words]);

// Two lists of tests instead of one with skipped tests: each kernel runs everything that it can show.
if (factsOf(release()).persist) describe("a kernel with tables that outlive their owner", onNewer);
else describe("a kernel without tables that outlive their owner", onOlder);

function onOlder(): void {
  test("one line reports it, and other processes' changes are repaired", async () => {
    const daemon = await start("--own-table");
    expect(log.match(/this kernel does not support tables that outlive their owner/g)).toHaveLength(1);
    expect(await checkRow(cluster, SERVED)).toEqual([]);
    expect((await nft("flush", "ruleset")).code).toBe(0);
    await expect.poll(() => log).toMatch(/(?:"table changed by another process[^]*){2}/);
    expect(await checkRow(cluster, SERVED)).toEqual([]);
    await end(daemon);
  });

  test("the table stays, and a start without the option uses it unchanged", async () => {
    await end(await start("--own-table"));
    expect(await checkRow(cluster, SERVED)).toEqual([]);
    const daemon = await start();
    expect(log).not.toContain('"msg":"synced"');
    await end(daemon);
  });
}

function onNewer(): void {
  test("others cannot change the tables while it runs; the tables outlive it, and the next start uses them unchanged", async () => {
    const first = await start("--own-table");
    expect(await checkRow(cluster, SERVED)).toEqual([]);
    await nft("flush", "ruleset");
    expect(await checkRow(cluster, SERVED)).toEqual([]);
    for (const command of [
      "delete table ip kube-proxy",
      "add rule ip kube-proxy filter-input drop",
      "flush chain ip6 kube-proxy nat-prerouting",
    ]) {
      const { code, stderr } = await nft(...command.split(" "));
      expect(code, command).not.toBe(0);
      expect(stderr).toContain("Operation not permitted");
    }
    const { stdout } = await nft("list", "table", "ip", "kube-proxy");
    expect(stdout).toContain("# progname nft-proxier");
    await end(first);
    expect(await checkRow(cluster, SERVED)).toEqual([]);

    const second = await start("--own-table");
    // One operation: only the claim itself.
    const writes = log.split("\n").filter((line) => line.includes('"msg":"synced"'));
    expect(writes.map((line) => /"operations":\d+/.exec(line)?.[0])).toEqual(['"operations":1', '"operations":1']);
    expect((await nft("delete", "table", "ip", "kube-proxy")).code).not.toBe(0);
    await end(second);
  });

  longTest(
    "a process started before the owner ended waits, reports it once, retries with backoff, and then gets the tables",
    async () => {
      // `run` listens on nothing, so the ports are free for the successor.
      const owner = launch("run", "--own-table");
      await expect.poll(() => log).toMatch(BOTH_WRITTEN);
      const successor = launch("--own-table");
      await expect.poll(() => log.match(REFUSED)?.length).toBe(2);
      const until = performance.now() + 10_000;
      await expect.poll(() => performance.now(), { timeout: 15_000, interval: 250 }).toBeGreaterThan(until);
      expect(log.match(REFUSED)).toHaveLength(2);
      for (const count of await syncFailures()) {
        expect(count).toBeGreaterThan(1);
        // Tries after 0, 1, 3 and 7 s. With a try every 0.5 s there would be 20.
        expect(count).toBeLessThan(6);
      }
      expect(log).not.toMatch(BOTH_WRITTEN);
      expect(await checkRow(cluster, SERVED)).toEqual([]);
      await end(owner);
      const ended = performance.now();
      const withoutCore = watchWithoutCore(successor.pid!, process.pid);
      await expect.poll(() => log).toMatch(BOTH_WRITTEN);
      // No event reports it: the program checks twice a second.
      expect(performance.now() - ended - withoutCore()).toBeLessThan(patience(4000));
      // Each family logs it once, before its first write; one of them may have written twice by now.
      await expect.poll(() => log.match(FREE)?.length).toBe(2);
      // The kernel removed the owner's flag itself: no process changed anything.
      expect(log).not.toContain("changed the kernel's table");
      expect((await nft("delete", "table", "ip", "kube-proxy")).code).not.toBe(0);
      expect(await checkRow(cluster, SERVED)).toEqual([]);
      await end(successor);
    },
  );

  test("another program's table is soon replaced by ours after its owner deletes it or ends", async () => {
    expect((await cluster.command(["cleanup"])).code).toBe(0);
    for (const goes of someOf(["with its owner", "by its owner's hand"], 2)) {
      const owner = cluster.lab.node.spawn(["nft", "-i"], { stdio: ["pipe", "ignore", "inherit"] });
      owner.stdin!.write("add table ip kube-proxy { flags owner; }\n");
      await expect.poll(async () => (await nft("list", "tables")).stdout).toContain("table ip kube-proxy");
      const daemon = launch();
      await expect.poll(() => log).toMatch(REFUSED);
      // The owner does not hold the other family.
      await expect.poll(() => log).toMatch(/"family":"ip6".*"msg":"synced"/);
      const ended = new Promise((resolve) => owner.once("exit", resolve));
      if (goes === "with its owner") owner.stdin!.end();
      else owner.stdin!.write("delete table ip kube-proxy\n");
      await expect.poll(() => log, { message: goes }).toMatch(/"family":"ip",.*"msg":"synced"/);
      expect(await checkRow(cluster, SERVED)).toEqual([]);
      expect(log.match(REFUSED), goes).toHaveLength(1);
      expect(log.match(FREE), goes).toHaveLength(1);
      owner.stdin!.end();
      await ended;
      await end(daemon);
      expect((await cluster.command(["cleanup"])).code).toBe(0);
    }
  });

  test("cleanup removes tables whose owner has ended", async () => {
    await end(await start("--own-table"));

    expect((await cluster.command(["cleanup"])).code).toBe(0);
    const { stdout } = await nft("list", "tables");
    expect(stdout).not.toContain("kube-proxy");
  });

  test("without the option an owned table is recreated, and any process may change it again", async () => {
    const owner = await start("--own-table");
    await end(owner);
    const plain = await start();
    expect(await checkRow(cluster, SERVED)).toEqual([]);
    const { stdout } = await nft("list", "table", "ip", "kube-proxy");
    expect(stdout).not.toMatch(/flags .*(owner|persist)/);
    expect((await nft("add", "chain", "ip", "kube-proxy", "theirs")).code).toBe(0);
    await end(plain);
  });

  test("an unowned table is recreated as an owned one, in one transaction, and no new connection fails", async () => {
    const plain = await start();
    await end(plain);
    let owner = plain;
    const { connections, failures } = await underLoad(cluster, STREAMS, async () => {
      owner = await start("--own-table");
    });
    expect(exceptMissed(failures)).toEqual([]);
    expect(connections).toBeGreaterThan(20);
    for (const family of FAMILIES) {
      const [, transactions, operations] =
        new RegExp(`"family":"${family}","transactions":(\\d+),"operations":(\\d+),`).exec(log) ?? [];
      expect(transactions).toBe("1");
      // Everything, not only the claim.
      expect(Number(operations)).toBeGreaterThan(50);
    }
    expect(await checkRow(cluster, SERVED)).toEqual([]);
    expect((await nft("delete", "table", "ip", "kube-proxy")).code).not.toBe(0);
    await end(owner);
  });

  test("kube-proxy cannot start on it before cleanup, but can afterwards", async () => {
    const owner = await start("--own-table");
    const starts = () => Promise.all(FAMILIES.map((family) => new KubeProxyDouble(cluster.lab, family).sync([web])));
    await expect(starts()).rejects.toThrow("Operation not permitted");
    await end(owner);
    await expect(starts()).rejects.toThrow("Operation not supported");
    expect(await checkRow(cluster, SERVED)).toEqual([]);
    expect((await cluster.command(["cleanup"])).code).toBe(0);
    await starts();
    expect(await checkRow(cluster, SERVED)).toEqual([]);
  });
}
