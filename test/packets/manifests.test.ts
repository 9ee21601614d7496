/** Manifests that cannot be read completely: the active rules stay, and the tests check what is served and logged. */
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
import { someOf } from "../lab/length.ts";
import { longDescribe, longTest } from "../support/long.ts";

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

/** Both services, each in its own file. */
function complete(): Record<string, string> {
  return {
    "cluster.yaml": yaml(nodeObject(), serviceCIDRObject()),
    "web.yaml": yaml(...objects(web)),
    "shop.yaml": yaml(...objects(shop)),
  };
}

/** Leaves exactly these files. */
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

/** Both tables with every handle, without counters: shows which objects were rewritten. Empty if there are none. */
async function tables(): Promise<string> {
  return cluster.node.mustRun(["nft", "-s", "-a", "list", "ruleset"]);
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

/** Faults that hide `shop` from the reader, with the file or object that must be named. */
const INCOMPLETE: Readonly<Record<string, readonly [files: () => Record<string, string>, named: object]>> = {
  "a file that does not parse": [
    () => ({ ...complete(), "shop.yaml": "kind: Service\n  clusterIP: [" }),
    { files: ["shop.yaml"] },
  ],
  "a file without its first part": [() => ({ ...complete(), "shop.yaml": "" }), { files: ["shop.yaml"] }],
  "a Service with an invalid address": [
    () => ({
      ...complete(),
      "shop.yaml": yaml(serviceObject({ ...shop, spec: { clusterIP: "10.96.0.300", clusterIPs: undefined } })),
    }),
    { objects: ["Service default/shop: spec.clusterIP"] },
  ],
  "an endpoint whose readiness cannot be read": [
    () => ({ ...complete(), "shop.yaml": complete()["shop.yaml"].replaceAll('"ready":true', '"ready":"maybe"') }),
    { objects: expect.arrayContaining([expect.stringContaining("endpoints[0].conditions.ready")]) },
  ],
  "an object of an unsupported API version": [
    () => ({ ...complete(), "shop.yaml": yaml({ ...serviceObject(shop), apiVersion: "v2" }) }),
    { files: ["shop.yaml"] },
  ],
  "an empty directory": [() => ({}), { empty: "no manifest" }],
};

describe("run --once with active tables", () => {
  test.each(someOf(Object.entries(INCOMPLETE), 6))(
    "%s: it writes nothing, says so, and exits with 1",
    async (_what, [files, named]) => {
      await put(complete());
      expect((await run()).code).toBe(0);
      const before = await tables();
      await put(files());
      const done = await run();
      expect(done.code).toBe(1);
      expect(lastLine(done)).toMatchObject({ msg: expect.stringContaining("nothing written"), ...named });
      expect(await tables()).toBe(before);

      const anyway = await run("--allow-incomplete");
      expect(anyway.code).toBe(0);
      expect(lastLine(anyway)).toMatchObject({ msg: "rules active" });
      expect(await tables()).not.toBe(before);
    },
  );

  longTest(
    "objects that are skipped by design are not missing: other kinds and groups, ExternalName, headless; it exits with 0",
    async () => {
      await put(complete());
      expect((await run()).code).toBe(0);
      const skipped = [
        { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "settings" } },
        { apiVersion: "serving.knative.dev/v1", kind: "Service", metadata: { name: "hello" }, spec: { template: {} } },
        { apiVersion: "config.openshift.io/v1", kind: "Node", metadata: { name: "cluster" } },
        serviceObject({ ...web, name: "elsewhere", n: 3, spec: { type: "ExternalName", externalName: "example.org" } }),
        serviceObject({ ...web, name: "headless", n: 4, spec: { clusterIP: "None", clusterIPs: ["None"] } }),
      ];
      await put({ ...complete(), "other.yaml": yaml(...skipped) });
      const done = await run();
      expect(lastLine(done)).toMatchObject({
        msg: "rules active",
        ip: { services: 2, endpoints: 2 },
        ip6: { services: 2, endpoints: 2 },
        ignored: 0,
      });
      expect(done.code).toBe(0);
    },
  );

  longTest("a misspelt field is ignored, and a warning names it and the nearest one; it exits with 1", async () => {
    await put(complete());
    expect((await run()).code).toBe(0);
    const misspelt = { ...shop, spec: { loadBalancerSourceRange: ["192.0.2.0/24"] } };
    await put({ ...complete(), "shop.yaml": yaml(...objects(misspelt)).replaceAll('"conditions"', '"condition"') });
    const done = await run();
    const warned = lines(done.stderr).filter(({ msg }) => msg === "ignored");
    expect(warned).toContainEqual(
      expect.objectContaining({
        ...{ level: "warn", file: "shop.yaml", object: "Service default/shop", field: "spec.loadBalancerSourceRange" },
        reason: "unknown field (did you mean loadBalancerSourceRanges?)",
      }),
    );
    const slice = "endpoints[0].condition";
    expect(warned).toContainEqual(
      expect.objectContaining({ field: slice, reason: expect.stringContaining("conditions") }),
    );
    expect(lastLine(done)).toMatchObject({ msg: "rules active", ip: { services: 2 } });
    expect(done.code).toBe(1);
    expect((await run("--allow-incomplete")).code).toBe(0);
  });

  longTest("an impossible address is ignored and counted as ignored; it exits with 1", async () => {
    await put(complete());
    expect((await run()).code).toBe(0);
    const odd = {
      ...shop,
      status: { loadBalancer: { ingress: [{ ip: "127.0.0.1" }] } },
      spec: { externalIPs: ["::1"] },
    };
    await put({ ...complete(), "shop.yaml": yaml(...objects(odd)) });
    const done = await run();
    expect(lastLine(done)).toMatchObject({ msg: "rules active", ip: { services: 2 }, ignored: 2 });
    expect(done.code).toBe(1);
    expect((await run("--allow-incomplete")).code).toBe(0);
  });

  longTest("two services with one address are written, the loss of one is counted, and it exits with 1", async () => {
    await put(complete());
    expect((await run()).code).toBe(0);
    const twin = serviceObjects(cluster.lab, {
      ...shop,
      name: "twin",
      n: 5,
      spec: { externalIPs: ["203.0.113.101"] },
    });
    await put({ ...complete(), "twin.yaml": yaml(...twin) });
    const done = await run();
    expect(lastLine(done)).toMatchObject({ msg: "rules active", ip: { services: 3 }, ignored: 1 });
    expect(done.code).toBe(1);
    expect((await run("--allow-incomplete")).code).toBe(0);
  });
});

describe("without an active table", () => {
  test("run --once writes readable objects, counts ignored ones, and exits with 1", async () => {
    await put(INCOMPLETE["a file that does not parse"][0]());
    const done = await run();
    expect(done.code).toBe(1);
    expect(lastLine(done)).toMatchObject({ msg: "rules active", ip: { services: 1, endpoints: 1 }, ignored: 1 });
    await goes(web, { pods: ["a"], masq: false });
  });

  longTest("run serves the readable objects, and warns", async () => {
    await put(INCOMPLETE["a file that does not parse"][0]());
    start();
    await goes(web, { pods: ["a"], masq: false });
    await eventually(() => expect(said("incomplete")).toMatchObject({ level: "warn", files: ["shop.yaml"] }));
  });

  test("render prints nothing if a file cannot be read and exits with 1; with --allow-incomplete it prints the rest", async () => {
    await put(INCOMPLETE["a Service with an invalid address"][0]());
    const done = await cluster.command(["render", "--manifests", directory]);
    expect(done).toMatchObject({ code: 1, stdout: "" });
    expect(lastLine(done)).toMatchObject({ msg: expect.stringContaining("nothing printed"), ignored: 1 });
    const anyway = await cluster.command(["render", "--manifests", directory, "--allow-incomplete"]);
    expect(anyway.code).toBe(0);
    expect(anyway.stdout).toContain("10.96.1.1");
  });
});

describe("run with active tables", () => {
  test.each(someOf(["a file that does not parse", "a Service with an invalid address", "an empty directory"], 3))(
    "%s: the tables stay until all files can be read, which are then written",
    async (what) => {
      await put(complete());
      expect((await run()).code).toBe(0);
      const before = await tables();
      await put(INCOMPLETE[what][0]());
      start();
      await eventually(() =>
        expect(said("keeping the active tables")).toMatchObject({ level: "error", ...INCOMPLETE[what][1] }),
      );
      await goes(shop, { pods: ["b"], masq: false });
      expect(await tables()).toBe(before);

      const moved = yaml(...objects({ ...web, endpoints: ["b"] }));
      for (const [name, text] of Object.entries({ ...complete(), "web.yaml": moved })) {
        const written = join(directory, `.${name}`);
        await writeFile(written, text);
        await rename(written, join(directory, name));
      }
      await goes(web, { pods: ["b"], masq: false });
      await goes(shop, { pods: ["b"], masq: false });
    },
  );

  longTest("removing the bad file ends the waiting", async () => {
    await put(complete());
    expect((await run()).code).toBe(0);
    await put({ ...complete(), "bad.yaml": "a: [" });
    start();
    await eventually(() => expect(said("keeping the active tables")).toMatchObject({ files: ["bad.yaml"] }));
    await rm(join(directory, "bad.yaml"));
    await eventually(() => expect(said("manifests completed")).toBeDefined());
  });

  test("tables that another process deletes meanwhile end the waiting: readable objects are served", async () => {
    await put(complete());
    expect((await run()).code).toBe(0);
    await put({ ...complete(), "bad.yaml": "a: [" });
    start();
    await eventually(() => expect(said("keeping the active tables")).toMatchObject({ files: ["bad.yaml"] }));
    await cluster.node.mustRun(["nft", "flush", "ruleset"]);
    await goes(web, { pods: ["a"], masq: false });
    await goes(shop, { pods: ["b"], masq: false });
    await eventually(() => expect(said("another process deleted the tables")).toBeDefined());
  });

  test("--allow-incomplete: readable objects are written at once", async () => {
    await put(complete());
    expect((await run()).code).toBe(0);
    await put(INCOMPLETE["a file that does not parse"][0]());
    start("--allow-incomplete");
    await eventually(async () => expect(await tables()).not.toContain("10.96.1.2"));
  });
});

describe("conditions of endpoints in YAML", () => {
  const withReady = (service: ServiceSpec, ready: string): string =>
    yaml(...objects(service)).replaceAll('"ready":true', `"ready": ${ready}`);

  const WORDS = [
    ["no", "reject"],
    ["Off", "reject"],
    ["n", "reject"],
    ["yes", { pods: ["a"], masq: false }],
    ["on", { pods: ["a"], masq: false }],
    ["maybe", "reject"],
    ["0", "reject"],
    ['"true"', "reject"],
  ] as const;
  test.each(someOf(WORDS, 8))("ready: %s", async (ready, expected) => {
    await put({ ...complete(), "web.yaml": withReady(web, ready) });
    await run();
    await goes(web, expected);
    await goes(shop, { pods: ["b"], masq: false });
  });
});

longTest(
  "files that are copied while the program is stopped are all served, however many events the kernel dropped",
  async () => {
    const COUNT = 12_000;
    await put(complete());
    const { child } = start();
    await goes(web, { pods: ["a"], masq: false });
    child.kill("SIGSTOP");
    const limit = Number(readFileSync("/proc/sys/fs/inotify/max_queued_events", "utf8"));
    // Each file causes more than one event.
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
    await expect.poll(served, { timeout: patience(200_000), interval: 1000 }).toBe(COUNT);
  },
  patience(300_000),
);

longDescribe("files that are too large", () => {
  const SCALAR = 100 << 20;
  const held = (pid: number): number => {
    const peak = /^VmHWM:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
    return Number(peak?.[1]) / 1024;
  };

  test.each([
    ["YAML", "big.yaml", () => `a: ${"x".repeat(SCALAR)}`, "as JSON"],
    ["YAML below the maximum file size, as one document", "big.yaml", () => `a: ${"x".repeat(SCALAR >> 2)}`, "---"],
    ["JSON", "big.json", () => JSON.stringify({ a: "x".repeat(SCALAR) }), "List of smaller objects"],
  ])("one scalar of %s is reported with advice, and the rest is served", async (_what, file, text, remedy) => {
    await put({ ...complete(), [file]: text() });
    const { child } = start();
    await goes(web, { pods: ["a"], masq: false });
    await eventually(() => expect(said("incomplete")).toMatchObject({ files: [file] }));
    const problem = lines(daemon?.log() ?? "").find((line) => line["file"] === file);
    expect(problem?.["remedy"]).toContain(remedy);
    // The usual memory plus two files of 100 MB that are in memory at the same time.
    expect(held(child.pid!)).toBeLessThan(600);
  });

  test(
    "a JSON List of 50,000 services is not too large",
    async () => {
      const items = Array.from({ length: 50_000 }, (_, i) => ({
        apiVersion: "v1",
        kind: "Service",
        metadata: { name: `s${i}`, namespace: "many", annotations: { filler: "x".repeat(1500) } },
        spec: { clusterIP: `10.${100 + (i >> 16)}.${(i >> 8) & 255}.${i & 255}`, ports: [{ port: 80 }] },
      }));
      await put({ "all.json": JSON.stringify({ apiVersion: "v1", kind: "List", items }) });
      const done = await run();
      expect(lastLine(done)).toMatchObject({ msg: "rules active", ip: { services: 50_000 }, ignored: 0 });
      expect(done.code).toBe(0);
    },
    patience(300_000),
  );
});
