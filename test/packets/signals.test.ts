/** Effects of signals on the program as PID 1 of a PID namespace: signals that it does not catch are lost there. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

import { EVENTUALLY_MS } from "../lab/eventually.ts";
import { Namespace } from "../lab/namespace.ts";
import { patience } from "../lab/patience.ts";
import { watchWithoutCore } from "../lab/stolen.ts";
import { Api } from "./support/api.ts";
import { MAIN } from "./support/cluster.ts";
import { configuration, nodeObject, serviceObject } from "./support/objects.ts";
import { someOf } from "../lab/length.ts";

let namespaces = 0;
let directory: string;
let namespace: Namespace;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "nft-proxier-signals-"));
  namespace = await Namespace.create(`signals-${process.pid}-${namespaces++}`);
  await namespace.ip(["link set lo up"]);
  const items = [nodeObject(), serviceObject({ name: "web", n: 1, endpoints: [] })];
  await writeFile(join(directory, "all.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
});
afterEach(async () => {
  await namespace.destroy();
  await rm(directory, { recursive: true });
});

interface Started {
  /** unshare(1), which ends when the program does. */
  readonly parent: ChildProcess;
  /** PID of the program outside its PID namespace; it is 1 inside. */
  readonly pid: number;
  readonly log: () => string;
}

function children(pid: number): number[] {
  const file = `/proc/${pid}/task/${pid}/children`;
  const text = existsSync(file) ? readFileSync(file, "latin1").trim() : "";
  return text === "" ? [] : text.split(" ").map(Number);
}

/** Bit 14 of SigCgt is set if the program catches SIGTERM, in Node's own code as it boots or in ours. */
function catchesSigterm(pid: number): boolean {
  const mask = /^SigCgt:\s*([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1] ?? "0";
  return ((BigInt(`0x${mask}`) >> 14n) & 1n) === 1n;
}

/** Starts the program as PID 1, which ends with the returned unshare(1). */
function spawnAsInit(args: readonly string[], node: readonly string[] = []): ChildProcess {
  const unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
  return namespace.spawn([...unshare, process.execPath, ...node, MAIN, ...args], {
    stdio: ["ignore", "ignore", "pipe"],
  });
}

/** Starts the program as PID 1. Resolves when it can catch the first signal, some ms after its exec. */
async function startAsInit(args: readonly string[], node: readonly string[] = []): Promise<Started> {
  const parent = spawnAsInit(args, node);
  let log = "";
  parent.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  const limit = performance.now() + EVENTUALLY_MS;
  for (;;) {
    const [pid] = children(parent.pid!);
    if (pid !== undefined && catchesSigterm(pid)) return { parent, pid, log: () => log };
    if (performance.now() > limit) throw new Error(`the program did not start: ${log}`);
    await sleep(1);
  }
}

/** Name and state of each thread of a program and, if it sleeps, its place in the kernel. */
function threads(pid: number): string {
  const read = (file: string): string => (existsSync(file) ? readFileSync(file, "latin1") : "");
  const tasks = existsSync(`/proc/${pid}/task`) ? readdirSync(`/proc/${pid}/task`) : [];
  return tasks
    .map((tid) => {
      const [, name = "", state = ""] = /\((.*)\) (\S)/.exec(read(`/proc/${pid}/task/${tid}/stat`)) ?? [];
      return `${name} ${state} ${read(`/proc/${pid}/task/${tid}/wchan`)}`;
    })
    .join(", ");
}

/**
 * Sends the signal. Returns undefined if the program ended within the limit, not counting the time in which the machine stood still or
 * other programs had the cores. Otherwise returns what the program was doing at the limit.
 */
async function lateEnd(
  signal: NodeJS.Signals,
  { parent, pid, log }: Started,
  limitMs: number,
): Promise<string | undefined> {
  const ended = once(parent, "exit").then(() => true);
  const from = performance.now();
  const withoutCore = watchWithoutCore(pid, parent.pid!, process.pid);
  process.kill(pid, signal);
  for (;;) {
    // Computed before the wait: if the program ends during the wait, it was in time, however late this process wakes.
    const over = performance.now() - from - withoutCore() > limitMs;
    if (await Promise.race([ended, sleep(20, false, { ref: false })])) return undefined;
    if (over) break;
  }
  const took = `${Math.round(performance.now() - from)} ms, ${Math.round(withoutCore())} of these without a core`;
  const late = `${took}: ${threads(pid)}; log: ${log()}`;
  // It may end just now.
  if (children(parent.pid!).includes(pid)) process.kill(pid, "SIGKILL");
  await ended;
  return late;
}

/** From Node's boot, some tens of ms, to a program that serves. */
const MOMENTS_MS = [0, 2, 5, 10, 20, 30, 40, 50, 60, 80, 100, 150, 200, 250, 300, 400, 500, 700, 1000, 1500, 2500];

/** A second or, if a busy machine needs longer to start the program, that time. */
async function second(): Promise<number> {
  const from = performance.now();
  const started = await startAsInit(["run", "--manifests", directory]);
  await expect.poll(() => withMessage(started, "rules active").length).toBe(1);
  const tookMs = performance.now() - from;
  await lateEnd("SIGTERM", started, patience(30_000));
  return Math.max(patience(1000), tookMs);
}

/** The moments after which SIGTERM did not end the program in time, with what it did instead. */
async function lateMoments(args: readonly string[]): Promise<string[]> {
  const limitMs = await second();
  const late: string[] = [];
  for (const moment of someOf(MOMENTS_MS, 7)) {
    const started = await startAsInit(args);
    await sleep(moment);
    const found = await lateEnd("SIGTERM", started, limitMs);
    if (found !== undefined) late.push(`SIGTERM after ${moment} ms: ${found}`);
  }
  return late;
}

describe("SIGTERM at any time during the start ends the program within a second", () => {
  test("with manifests", async () => {
    expect(await lateMoments(["run", "--manifests", directory])).toEqual([]);
  });

  test("with an API server that never answers", async () => {
    const api = await Api.start(namespace);
    await api.call("fail", {}, { hang: true });
    const kubeconfig = join(directory, "kubeconfig");
    await writeFile(kubeconfig, api.kubeconfig);
    const config = join(directory, "config.conf");
    await writeFile(config, JSON.stringify(configuration({ clientConnection: { kubeconfig } })));
    expect(await lateMoments([`--config=${config}`, "--hostname-override=node"])).toEqual([]);
  });
});

describe("SIGTERM ends a program that has not installed its own handlers yet", () => {
  test.each(["before its first line", "before SIGTERM", "before SIGINT"])("%s", async (moment) => {
    const preload = join(directory, "preload.mjs");
    await writeFile(
      preload,
      `const kill = () => process.kill(process.pid, "SIGTERM");
       if ("${moment}" === "before its first line") kill();
       const on = process.on;
       process.on = function (event, ...rest) {
         if ("${moment}" === "before " + event) kill();
         return on.call(this, event, ...rest);
       };`,
    );
    const parent = spawnAsInit(["run", "--manifests", directory], ["--import", preload]);
    parent.stderr?.resume();
    const limit = setTimeout(() => parent.kill("SIGKILL"), EVENTUALLY_MS);
    expect(await once(parent, "exit")).toEqual([128 + constants.signals.SIGTERM, null]);
    clearTimeout(limit);
  });
});

/** Lines of the log, parsed. */
function lines(log: string): Record<string, unknown>[] {
  return log
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

const withMessage = ({ log }: Started, message: string): Record<string, unknown>[] =>
  lines(log()).filter(({ msg }) => msg === message);

/** TCP ports on which anything in the namespace listens. */
async function listening(): Promise<string> {
  return namespace.mustRun(["ss", "-Hltn"]);
}

test("SIGUSR1 during Node's start opens no inspector if the image's flag is set", async () => {
  const started = await startAsInit(["run", "--manifests", directory], ["--disable-sigusr1"]);
  for (let i = 0; i < 20; i++) {
    process.kill(started.pid, "SIGUSR1");
    await sleep(5);
  }
  await expect.poll(() => withMessage(started, "rules active").length).toBe(1);
  expect(await listening()).toBe("");
  expect(await lateEnd("SIGTERM", started, patience(30_000))).toBeUndefined();
});

test("SIGUSR1 logs the status and opens no port; SIGHUP and SIGUSR2 are logged and ignored", async () => {
  const started = await startAsInit(["run", "--manifests", directory]);
  await expect.poll(() => withMessage(started, "rules active").length).toBe(1);
  process.kill(started.pid, "SIGUSR1");
  await expect.poll(() => withMessage(started, "status").length).toBe(1);
  await expect.poll(() => withMessage(started, "event").length).toBe(2);
  expect(withMessage(started, "event").map(({ event }) => event)).toContain(
    "IPv4 rules active: 1 service, 0 endpoints",
  );
  expect(withMessage(started, "status")[0]).toMatchObject({
    healthy: true,
    ip: { inForce: true, services: 1, endpoints: 0, pendingMs: 0 },
    ip6: { inForce: true, services: 1, endpoints: 0, pendingMs: 0 },
  });
  for (const signal of ["SIGHUP", "SIGUSR2"] as const) {
    process.kill(started.pid, signal);
    await expect.poll(() => lines(started.log()).filter((line) => line["signal"] === signal).length).toBe(1);
  }
  expect(await listening()).toBe("");
  process.kill(started.pid, "SIGUSR1");
  await expect.poll(() => withMessage(started, "status").length).toBe(2);
  expect(await lateEnd("SIGTERM", started, patience(30_000))).toBeUndefined();
  expect(withMessage(started, "ending; the rules stay in place")).toHaveLength(1);
});

test("each start logs the active rules once, even if there was nothing to write", async () => {
  const slice = {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: { name: "web-1", namespace: "default", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ name: "main", port: 8080, protocol: "TCP" }],
    endpoints: [{ addresses: ["10.244.0.9"] }, { addresses: ["10.244.0.10"] }],
  };
  await writeFile(join(directory, "slice.json"), JSON.stringify(slice));
  for (const written of [true, false]) {
    const started = await startAsInit(["run", "--manifests", directory]);
    await expect.poll(() => withMessage(started, "rules active").length).toBe(1);
    const transactions = written ? expect.any(Number) : 0;
    const operations = written ? expect.any(Number) : 0;
    expect(withMessage(started, "rules active")[0]).toMatchObject({
      level: "info",
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
      kernel: expect.stringMatching(/^\d+\.\d+/),
      ip: { services: 1, endpoints: 2, transactions, operations },
      ip6: { services: 1, endpoints: 0, transactions, operations },
    });
    expect(await lateEnd("SIGTERM", started, patience(30_000))).toBeUndefined();
  }
});

test("a credentials plugin that hangs ends with the program, even if the program ends at once", async () => {
  const [plugin, pids] = [join(directory, "plugin"), join(directory, "pids")];
  await writeFile(plugin, `#!/bin/sh\nsleep 1000 &\necho $$ $! >${pids}\nwait\n`, { mode: 0o755 });
  const kubeconfig = {
    "current-context": "c",
    contexts: [{ name: "c", context: { cluster: "k", user: "u" } }],
    clusters: [{ name: "k", cluster: { server: "http://127.0.0.1:9" } }],
    users: [
      {
        name: "u",
        user: { exec: { apiVersion: "client.authentication.k8s.io/v1", command: plugin, interactiveMode: "Never" } },
      },
    ],
  };
  await writeFile(join(directory, "kubeconfig"), JSON.stringify({ apiVersion: "v1", kind: "Config", ...kubeconfig }));
  const args = ["--kubeconfig", join(directory, "kubeconfig"), "--hostname-override", "n1", "--oom-score-adj", "0"];
  const daemon = namespace.spawn([process.execPath, MAIN, ...args], { stdio: "ignore" });
  const started = (): number[] =>
    existsSync(pids) ? readFileSync(pids, "latin1").split(/\s+/).filter(Boolean).map(Number) : [];
  await expect.poll(started, { timeout: EVENTUALLY_MS }).toHaveLength(2);
  try {
    // The second signal ends the program before it has closed anything.
    daemon.kill("SIGTERM");
    daemon.kill("SIGINT");
    await once(daemon, "exit");
    const isAlive = (pid: number): boolean => existsSync(`/proc/${pid}`) && !isZombie(pid);
    await expect.poll(() => started().filter(isAlive)).toEqual([]);
  } finally {
    for (const pid of started()) if (existsSync(`/proc/${pid}`)) process.kill(pid, "SIGKILL");
  }
});

/** An orphan that ended stays until the namespace's init waits for it. */
function isZombie(pid: number): boolean {
  return / Z /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
}
