/** Manifests that cannot be read, or not all of them: what is in force stays, what is served instead, and what is said of it. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import type { Finished } from "../lab/namespace.ts";
import { patience } from "../lab/patience.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  type Manifest,
  nodeObject,
  serviceCIDRObject,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { checkRow, type Row } from "./support/rows.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const shop: ServiceSpec = { name: "shop", n: 2, endpoints: ["b"] };

let cluster: Cluster;
let directory: string;
let daemon: { readonly child: ChildProcess; readonly log: () => string } | undefined;
beforeAll(async () => {
  cluster = await Cluster.create([
    { name: "a", on: "node" },
    { name: "b", on: "node" },
  ]);
});
afterAll(async () => {
  await cluster.destroy();
});
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "nft-proxier-manifests-"));
  expect((await cluster.command(["cleanup"])).code).toBe(0);
});
afterEach(async () => {
  if (daemon !== undefined && daemon.child.exitCode === null) {
    const ended = once(daemon.child, "exit");
    daemon.child.kill("SIGKILL");
    await ended;
  }
  daemon = undefined;
  await rm(directory, { recursive: true, force: true });
});

const objects = (...services: readonly ServiceSpec[]): Manifest[] =>
  services.flatMap((service) => serviceObjects(cluster.lab, service));
const yaml = (...manifests: readonly Manifest[]): string => manifests.map((one) => JSON.stringify(one)).join("\n---\n");

/** Both services, each in a file of its own. */
function complete(): Record<string, string> {
  return {
    "cluster.yaml": yaml(nodeObject(), serviceCIDRObject()),
    "web.yaml": yaml(...objects(web)),
    "shop.yaml": yaml(...objects(shop)),
  };
}

/** Exactly these files. */
async function put(files: Readonly<Record<string, string>>): Promise<void> {
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
}

const run = (...flags: readonly string[]): Promise<Finished> =>
  cluster.command(["run", "--manifests", directory, "--once", ...flags]);

interface Line {
  readonly msg: string;
  readonly [field: string]: unknown;
}

function lines(log: string): Line[] {
  return log
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as Line);
}

const lastLine = ({ stderr }: Finished): Line | undefined => lines(stderr).at(-1);

/** Both tables with every handle: shows what was written anew. Empty: there are none. */
async function tables(): Promise<string> {
  return cluster.node.mustRun(["nft", "-a", "list", "ruleset"]);
}

function start(...flags: readonly string[]): { readonly child: ChildProcess; readonly log: () => string } {
  let log = "";
  const child = cluster.start(["run", "--manifests", directory, ...flags]);
  child.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  daemon = { child, log: () => log };
  return daemon;
}

const said = (words: string): Line | undefined => lines(daemon?.log() ?? "").find(({ msg }) => msg.includes(words));

async function goes(service: ServiceSpec, expected: Row["expect"]): Promise<void> {
  const row: Row = { rule: "", from: "client", to: clusterIP(service), expect: expected };
  await eventually(async () => expect(await checkRow(cluster, row, { answerMs: 1000 })).toEqual([]));
}

describe("conditions of endpoints in YAML", () => {
  const withReady = (service: ServiceSpec, ready: string): string =>
    yaml(...objects(service)).replaceAll('"ready":true', `"ready": ${ready}`);

  test.each([
    ["no", "reject"],
    ["Off", "reject"],
    ["n", "reject"],
    ["yes", { pods: ["a"], masq: false }],
    ["on", { pods: ["a"], masq: false }],
    ["maybe", "reject"],
    ["0", "reject"],
    ['"true"', "reject"],
  ] as const)("ready: %s", async (ready, expected) => {
    await put({ ...complete(), "web.yaml": withReady(web, ready) });
    await run();
    await goes(web, expected);
    await goes(shop, { pods: ["b"], masq: false });
  });
});

test(
  "files that are copied in while the program stands still are all served, however many events the kernel dropped",
  async () => {
    const COUNT = 12_000;
    await put(complete());
    const { child } = start();
    await goes(web, { pods: ["a"], masq: false });
    child.kill("SIGSTOP");
    const limit = Number(readFileSync("/proc/sys/fs/inotify/max_queued_events", "utf8"));
    // More than one event comes of each file.
    expect(2 * COUNT).toBeGreaterThan(limit);
    for (let i = 0; i < COUNT; i++) {
      const metadata = { name: `s${i}`, namespace: "many" };
      const spec = { clusterIP: `10.96.${100 + (i >> 8)}.${i & 255}`, ports: [{ port: 80 }] };
      writeFileSync(
        join(directory, `s${i}.json`),
        JSON.stringify({ apiVersion: "v1", kind: "Service", metadata, spec }),
      );
    }
    child.kill("SIGCONT");
    const served = async (): Promise<number> => {
      const text = await cluster.node.mustRun(["nft", "list", "map", "ip", "kube-proxy", "no-endpoint-services"]);
      return new Set(text.match(/10\.96\.1\d\d\.\d+/g)).size;
    };
    await expect.poll(served, { timeout: patience(90_000), interval: 1000 }).toBe(COUNT);
  },
  patience(180_000),
);

describe("files that are too large", () => {
  const SCALAR = 100 << 20;
  const held = (pid: number): number => {
    const peak = /^VmHWM:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
    return Number(peak?.[1]) / 1024;
  };

  test.each([
    ["YAML", "big.yaml", () => `a: ${"x".repeat(SCALAR)}`, "as JSON"],
    ["YAML below the limit of a file, as one document", "big.yaml", () => `a: ${"x".repeat(SCALAR >> 2)}`, "---"],
    ["JSON", "big.json", () => JSON.stringify({ a: "x".repeat(SCALAR) }), "List of objects"],
  ])("one scalar of %s: named with what to do, and the rest is served", async (_what, file, text, remedy) => {
    await put({ ...complete(), [file]: text() });
    const { child } = start();
    await goes(web, { pods: ["a"], masq: false });
    const problem = lines(daemon?.log() ?? "").find((line) => line["file"] === file);
    expect(problem?.["remedy"]).toContain(remedy);
    // As it is, and two files of 100 MB that are in memory at a time.
    expect(held(child.pid!)).toBeLessThan(600);
  });

  test(
    "a List of 50,000 services in JSON is none of them",
    async () => {
      const items = Array.from({ length: 50_000 }, (_, i) => ({
        apiVersion: "v1",
        kind: "Service",
        metadata: { name: `s${i}`, namespace: "many", annotations: { filler: "x".repeat(1500) } },
        spec: { clusterIP: `10.${100 + (i >> 16)}.${(i >> 8) & 255}.${i & 255}`, ports: [{ port: 80 }] },
      }));
      await put({ "all.json": JSON.stringify({ apiVersion: "v1", kind: "List", items }) });
      const done = await run();
      expect(done.stderr).toContain("synced");
      expect(done.code).toBe(0);
    },
    patience(120_000),
  );
});
