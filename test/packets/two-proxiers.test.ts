/** Two proxiers on one node: each reports it once, and the one that stays keeps the tables. */
import type { ChildProcess } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import type { KubeJson } from "../lab/api-server/api-server.ts";
import { EVENTUALLY_MS } from "../lab/eventually.ts";
import type { Answer } from "../lab/http.ts";
import { patience } from "../lab/patience.ts";
import { watchWithoutCore } from "../lab/stolen.ts";
import { Api } from "./support/api.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  configuration,
  type Manifest,
  NODE,
  nodeObject,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { checkRow, type Row } from "./support/rows.ts";
import { longTest } from "../support/long.ts";
import { end } from "./support/daemon.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const mail: ServiceSpec = { name: "mail", n: 2, endpoints: ["b"] };
// Two endpoints: a list length that neither proxier uses yet, so the other one cannot have removed any part of it.
const news: ServiceSpec = { name: "news", n: 3, endpoints: ["a", "b"] };
const serves = (service: ServiceSpec, ...pods: readonly string[]): Row => ({
  rule: "",
  from: "c",
  to: clusterIP(service),
  expect: { pods, masq: false },
});

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly by?: unknown;
  readonly family?: unknown;
  readonly cause?: unknown;
}

/** One program and its output so far. */
class Proxier {
  readonly process: ChildProcess;
  #log = "";

  constructor(args: readonly string[]) {
    this.process = cluster.start(args);
    this.process.stderr?.on("data", (chunk: Buffer) => (this.#log += chunk.toString()));
  }

  get lines(): readonly Line[] {
    return this.#log
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Line);
  }

  count(part: string): number {
    return this.lines.filter(({ msg }) => msg.includes(part)).length;
  }

  get repairs(): number {
    return this.count("repaired");
  }

  get errors(): readonly Line[] {
    return this.lines.filter(({ level }) => level === "error");
  }

  async ended(signal: NodeJS.Signals): Promise<void> {
    await end(this.process, signal);
  }
}

const BOTH = { timeout: EVENTUALLY_MS, interval: 20 };
let cluster: Cluster;
let directory: string;
let running: Proxier[] = [];

beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(async () => {
  await cluster.destroy();
});
beforeEach(async () => {
  directory = temporaryDirectory();
  await writeFile(join(directory, "config.json"), JSON.stringify(configuration()));
});
afterEach(async () => {
  for (const { process } of running) process.kill("SIGKILL");
  running = [];
  await cluster.command(["cleanup"]);
});

function launch(args: readonly string[]): Proxier {
  const proxier = new Proxier(args);
  running.push(proxier);
  return proxier;
}

/** Writes one file of manifests; the directory is named after its owner. */
async function write(name: string, file: string, ...objects: readonly Manifest[]): Promise<void> {
  await mkdir(join(directory, name), { recursive: true });
  const text = JSON.stringify({ apiVersion: "v1", kind: "List", items: objects });
  await writeFile(join(directory, name, `${file}.json`), text);
}

/** Starts `run` on its own manifests. Resolves when it has written both families. */
async function start(name: string, service: ServiceSpec): Promise<Proxier> {
  await write(name, "all", nodeObject(), serviceCIDRObject(), ...serviceObjects(cluster.lab, service));
  const config = join(directory, "config.json");
  const proxier = launch(["run", "--manifests", join(directory, name), "--config", config]);
  await expect.poll(() => proxier.count("synced"), BOTH).toBeGreaterThan(1);
  return proxier;
}

/** Waits until the row holds. The limit excludes time that other programs and machines took from the writing program. */
async function becomes(row: Row, { process: { pid } }: Proxier, limitMs: number): Promise<void> {
  const start = performance.now();
  const withoutCore = watchWithoutCore(pid!, process.pid);
  // A busy machine answers late.
  for (let answerMs = 300; ; answerMs = Math.min(2 * answerMs, 5000)) {
    const began = performance.now();
    const wrong = await checkRow(cluster, row, { answerMs });
    if (wrong.length === 0) return;
    if (began - start - withoutCore() > limitMs) throw new Error(`not within ${limitMs} ms:\n${wrong.join("\n")}`);
  }
}

const CONTENDED = "tables contended by another process";
const OVER = "contention ended";

longTest(
  "two `run` processes with different manifests report each other once, and the remaining one serves",
  async () => {
    const first = await start("first", web);
    const second = await start("second", mail);
    const both = [first, second];
    await expect.poll(() => both.map((one) => one.count(CONTENDED)), BOTH).toEqual([1, 1]);
    for (const [one, other] of [both, both.toReversed()]) {
      expect(one.errors).toMatchObject([
        { msg: CONTENDED, by: [expect.stringContaining(`nft-proxier (pid ${other.process.pid}`)] },
      ]);
    }

    // A change of a service is written even if a repair is waiting, with everything that only it needs. The other proxier is stopped
    // meanwhile: its next repair would undo the change, possibly before packets have shown it.
    const before = first.repairs;
    second.process.kill("SIGSTOP");
    await write("first", "news", ...serviceObjects(cluster.lab, news));
    await becomes(serves(news, "a", "b"), first, patience(4000));
    second.process.kill("SIGCONT");
    expect(first.repairs - before).toBeLessThanOrEqual(2);

    const until = performance.now() + 10_000;
    await expect.poll(() => performance.now(), { timeout: 15_000, interval: 250 }).toBeGreaterThan(until);
    for (const one of both) {
      expect(one.repairs).toBeGreaterThan(1);
      // The sum of both families: repairs are not logged after the contention is.
      expect(one.repairs).toBeLessThanOrEqual(10);
      expect(one.errors).toHaveLength(1);
    }

    await second.ended("SIGTERM");
    await becomes(serves(web, "a"), first, patience(5000));
    await expect.poll(() => first.count(OVER), BOTH).toBe(1);
    expect(first.errors).toHaveLength(1);
    // From here on repairs are logged again. Selected by cause: the last repairs of the contention may still arrive while nft starts.
    const repairedFamilies = () => {
      const repaired = first.lines.filter(({ msg, cause }) => msg.includes("repaired") && cause === "table-deleted");
      return new Set(repaired.map(({ family }) => family));
    };
    expect(repairedFamilies()).toEqual(new Set());
    await cluster.lab.node.mustRun(["nft", "flush", "ruleset"]);
    await expect.poll(repairedFamilies, BOTH).toEqual(new Set(["ip", "ip6"]));
    expect(await checkRow(cluster, serves(web, "a"))).toEqual([]);
    expect(await checkRow(cluster, serves(news, "a", "b"))).toEqual([]);
  },
);

test("in a cluster the Node gets one Event, a metric shows the conflict while it lasts, and /livez stays 200", async () => {
  const api = await Api.start(cluster.lab.node);
  const put = (...objects: readonly Manifest[]) => api.call("put", objects as unknown as readonly KubeJson[]);
  await put(nodeObject(), serviceCIDRObject(), ...serviceObjects(cluster.lab, web));
  const kubeconfig = join(directory, "kubeconfig");
  await writeFile(kubeconfig, api.kubeconfig);
  const config = join(directory, "cluster.json");
  await writeFile(config, JSON.stringify(configuration({ clientConnection: { kubeconfig } })));
  const ours = launch(["--config", config]);
  await expect.poll(() => ours.count("synced"), BOTH).toBeGreaterThan(1);
  const contended = async (): Promise<readonly string[]> =>
    (await get("http://127.0.0.1:10249/metrics")).body
      .split("\n")
      .filter((line) => line.startsWith("nftproxier_tables_contended"));
  expect(await contended()).toEqual(["nftproxier_tables_contended 0", "nftproxier_tables_contended_total 0"]);

  const theirs = await start("theirs", mail);
  await expect.poll(contended, BOTH).toEqual(["nftproxier_tables_contended 1", "nftproxier_tables_contended_total 1"]);
  const events = async () => (await api.call("events")).filter(({ reason }) => reason === "TablesContended");
  await expect.poll(async () => (await events()).length, BOTH).toBe(1);
  expect((await events())[0]).toMatchObject({
    type: "Warning",
    regarding: { kind: "Node", name: NODE },
    note: expect.stringContaining(`nft-proxier (pid ${theirs.process.pid}`) as string,
  });
  expect((await get("http://127.0.0.1:10256/livez")).status).toBe(200);

  await theirs.ended("SIGKILL");
  await becomes(serves(web, "a"), ours, patience(5000));
  await expect.poll(contended, BOTH).toEqual(["nftproxier_tables_contended 0", "nftproxier_tables_contended_total 1"]);
  expect(await events()).toHaveLength(1);
  expect(ours.errors).toHaveLength(1);
});

const get = (url: string): Promise<Answer> => cluster.node.http().get(url);
