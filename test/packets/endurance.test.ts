/**
 * Endless changes from an API server, under traffic: services that always keep one endpoint lose no connection, neither through changes nor
 * through restarts, `kill -9` included. After a flushed ruleset, connections may fail until it is repaired; these are counted.
 *
 * The run is short here; `npm run test:endurance` sets the environment for two minutes on 5,000 services.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

import { makeService, makeSlice } from "../bench/cluster.ts";
import type { KubeJson } from "../lab/api-server/api-server.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES } from "../lab/topology.ts";
import { Api } from "./support/api.ts";
import { Cluster } from "./support/cluster.ts";
import { underLoad } from "./support/load.ts";
import {
  clusterIP,
  configuration,
  loadBalancer,
  nodeObject,
  nodePort,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";

const setting = (name: string, short: number): number => Number(process.env[`ENDURE_${name}`] ?? short);
const SECONDS = setting("SECONDS", 5);
const SERVICES = setting("SERVICES", 300);
const RESTARTS = setting("RESTARTS", 1);
const KILLS = setting("KILLS", 1);
const FLUSHES = setting("FLUSHES", 1);
/** Changes per second. */
const RATE = setting("RATE", 1000);
/** Every EVERY-th change affects the services under load. */
const EVERY = 20;
/** The first number beyond the addresses of the packet tests' own services. */
const FIRST = 2000;

const steady: ServiceSpec = { name: "steady", n: 1, endpoints: ["a"] };
const LISTS = [["a"], ["a", "b"], ["a", "b", "r1", "r2"], ["a", "r1"], ["a", "c", "r2"]];
const STREAMS = [
  { from: "client", to: loadBalancer(steady), protocol: "tcp" },
  { from: "client", to: nodePort(steady), protocol: "tcp" },
  { from: "c", to: clusterIP(steady), protocol: "tcp" },
] as const;

let directory: string;
let cluster: Cluster;
let api: Api;
let daemon: ChildProcess;
let args: string[];
let log = "";
let changes = 0;

const put = (objects: readonly unknown[]): Promise<void> => api.call("put", objects as readonly KubeJson[]);
const said = (text: string, from: number): number => log.slice(from).split(text).length - 1;

async function until(what: string, look: () => boolean, limitMs = 60_000): Promise<void> {
  for (const start = performance.now(); !look(); await sleep(2)) {
    if (performance.now() - start > patience(limitMs)) throw new Error(`not in time: ${what}\n${log.slice(-4000)}`);
  }
}

function start(): void {
  daemon = cluster.start(args);
  daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "nft-proxier-endurance-"));
  cluster = await Cluster.create();
  api = await Api.start(cluster.lab.node, {});
  await put([nodeObject(), serviceCIDRObject(), ...serviceObjects(cluster.lab, steady)]);
  for (let i = 0; i < SERVICES; i++) await put([makeService(FIRST + i), makeSlice(FIRST + i, [i, i + SERVICES])]);
  const kubeconfig = join(directory, "kubeconfig");
  const config = join(directory, "config.json");
  await writeFile(kubeconfig, api.kubeconfig);
  await writeFile(config, JSON.stringify(configuration({ clientConnection: { kubeconfig } })));
  args = ["--config", config];
  start();
  await until("served", () => said('"msg":"synced"', 0) >= FAMILIES.length);
});
// A failed test may have left no daemon.
beforeEach(async () => {
  if (daemon.exitCode === null && daemon.signalCode === null) return;
  const offset = log.length;
  start();
  await until("served again", () => said('"msg":"synced"', offset) + said('"msg":"nothing written"', offset) > 0);
});
afterAll(async () => {
  await cluster.destroy();
  await rm(directory, { recursive: true, force: true });
});

function nextChange(): readonly unknown[] {
  const n = changes++;
  if (n % EVERY === 0) {
    const endpoints = LISTS[(n / EVERY) % LISTS.length];
    return serviceObjects(cluster.lab, { ...steady, endpoints }).slice(1);
  }
  const i = n % SERVICES;
  return [makeSlice(FIRST + i, [i, i + SERVICES, (2 + (n % 7)) * SERVICES + i].slice(n % 2))];
}

/** Makes changes at RATE until `work` is done. Returns the number of changes per second. */
async function whileChanging(work: () => Promise<void>): Promise<number> {
  const stop = new AbortController();
  const started = performance.now();
  const first = changes;
  const changing = (async () => {
    while (!stop.signal.aborted) {
      const due = Math.floor(((performance.now() - started) / 1000) * RATE) - (changes - first);
      if (due > 0) await put(Array.from({ length: Math.min(due, RATE) }, nextChange).flat());
      await sleep(10);
    }
  })();
  try {
    await work();
  } finally {
    stop.abort();
    await changing;
  }
  return ((changes - first) * 1000) / (performance.now() - started);
}

async function loaded(what: string, work: () => Promise<void>): Promise<readonly string[]> {
  let rate = 0;
  const { connections, failures } = await underLoad(cluster, STREAMS, async () => {
    rate = await whileChanging(work);
  });
  console.log(`${what}: ${rate.toFixed(0)} changes/s, ${connections} connections, ${failures.length} failed`);
  expect(connections).toBeGreaterThan(0);
  return failures;
}

const LIMIT = { timeout: patience(SECONDS * 2000 + 300_000) };

test(`no connection fails during ${SECONDS} s of changes`, LIMIT, async () => {
  expect(await loaded("changes", () => sleep(SECONDS * 1000))).toEqual([]);
});

for (const [signal, count] of [
  ["SIGTERM", RESTARTS],
  ["SIGKILL", KILLS],
] as const) {
  test(`no connection fails when the program ends with ${signal} and starts again, ${count} times`, LIMIT, async () => {
    const failures = await loaded(signal, async () => {
      for (let i = 0; i < count; i++) {
        await sleep(300);
        const exited = once(daemon, "exit");
        daemon.kill(signal);
        await exited;
        const offset = log.length;
        start();
        await until("synced again", () => said('"msg":"synced"', offset) > 0);
      }
    });
    expect(failures).toEqual([]);
  });
}

test(`${FLUSHES} times nft flush ruleset: repaired, and no connection fails after each repair`, LIMIT, async () => {
  for (let i = 0; i < FLUSHES; i++) {
    const offset = log.length;
    let repairMs = 0;
    const during = await loaded("nft flush ruleset", async () => {
      const started = performance.now();
      await cluster.lab.node.mustRun(["nft", "flush", "ruleset"]);
      await until("repaired", () => said('"msg":"table changed by another process', offset) >= FAMILIES.length);
      repairMs = performance.now() - started;
    });
    console.log(`repaired ${repairMs.toFixed(0)} ms after nft was started; ${during.length} outcomes until then`);
    expect(await loaded("after the repair", () => sleep(500))).toEqual([]);
  }
});
