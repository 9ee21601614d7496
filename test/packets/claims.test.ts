/**
 * Several services claim one address: which one has it, which one inherits it, and whose source ranges guard it, while
 * the daemon runs.
 */
import type { ChildProcess } from "node:child_process";
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";

import { Cluster } from "./support/cluster.ts";
import {
  configuration,
  externalIP,
  loadBalancer,
  loadBalancerAddress,
  type Manifest,
  nodeObject,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
  target,
} from "./support/objects.ts";
import { type Expected, type Row, untilRow } from "./support/rows.ts";
import { end } from "./support/daemon.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";

/** Addresses that both services have as load-balancer IPs, besides their own. */
const SHARED = target("the shared LB IP", loadBalancerAddress(50), 80);
const RANGES = ["198.51.100.0/24", "2001:db8:2::/64"];
const TO_A = { pods: ["a"], masq: true } as const;
const TO_B = { pods: ["b"], masq: true } as const;
const CREATED = { blue: "2024-01-01T00:00:00Z", green: "2025-01-01T00:00:00Z" };

function claimant(name: string, n: number, rest: Partial<ServiceSpec> = {}): ServiceSpec {
  const ingress = [loadBalancerAddress(50), loadBalancerAddress(n)].flatMap((pair) => Object.values<string>(pair));
  return { name, n, endpoints: [], ...rest, status: { loadBalancer: { ingress: ingress.map((ip) => ({ ip })) } } };
}

let cluster: Cluster;
let directory: string;
let daemon: ChildProcess;
let log: string;

beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(() => cluster.destroy());
beforeEach(async () => {
  directory = temporaryDirectory();
});
afterEach(async () => {
  await end(daemon);
  await cluster.node.mustRun(["nft", "flush", "ruleset"]);
});

/** Replaces the file of these services in one step. */
async function put(file: string, ...services: readonly ServiceSpec[]): Promise<void> {
  await write(
    file,
    services.flatMap((service) => serviceObjects(cluster.lab, service)),
  );
}

async function write(file: string, items: readonly Manifest[]): Promise<void> {
  const path = join(directory, "new");
  await writeFile(path, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  await rename(path, join(directory, `${file}.json`));
}

async function start(): Promise<void> {
  await write("node", [nodeObject(), serviceCIDRObject()]);
  const config = join(directory, "config");
  await writeFile(config, JSON.stringify(configuration()));
  log = "";
  const control = ["--control-socket", join(directory, "socket")];
  daemon = cluster.start(["run", "--manifests", directory, "--config", config, "--log-level", "debug", ...control]);
  daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  await expect.poll(() => lines("synced").length).toBe(2);
}

function lines(message: string): Record<string, unknown>[] {
  const all = log.split("\n").filter((line) => line.startsWith("{"));
  return all.map((line) => JSON.parse(line) as Record<string, unknown>).filter(({ msg }) => msg === message);
}

/** Returns "default/green from default/blue" in the order logged. */
const passed = (): string[] =>
  lines("addresses taken over from another service").map(
    ({ namespace, service, from, total }) =>
      `${String(namespace)}/${String(service)} from ${String(from)}: ${String(total)}`,
  );
const clashes = (): unknown[] => lines("ignored").map(({ object, reason }) => [object, reason]);

const becomes = (from: Row["from"], to: Row["to"], wanted: Expected): Promise<void> =>
  untilRow(cluster, { rule: "", from, to, expect: wanted }, () => log);

const blue = (endpoints: readonly string[], rest: Partial<ServiceSpec> = {}): ServiceSpec =>
  claimant("blue", 51, { endpoints, metadata: { creationTimestamp: CREATED.blue }, ...rest });
const green = (endpoints: readonly string[], rest: Partial<ServiceSpec> = {}): ServiceSpec =>
  claimant("green", 52, { endpoints, metadata: { creationTimestamp: CREATED.green }, ...rest });

describe("blue/green", () => {
  test("an older service without endpoints does not hide a younger one with endpoints; each switch is one transaction, reported once", async () => {
    await put("blue", blue([]));
    await put("green", green(["b"]));
    await start();
    await becomes(["c", "client", "node"], [SHARED, loadBalancer(green([]))], TO_B);
    await becomes(["c", "client"], loadBalancer(blue([])), "reject");
    // Three protocols in two families.
    await expect.poll(clashes).toHaveLength(1);
    expect(String(clashes()[0])).toContain(
      "belongs to default/green, which has a usable endpoint, unlike this service",
    );
    expect(passed()).toEqual([]);

    const former = lines("synced").length;
    await put("blue", blue(["a"]));
    await becomes(["c", "client", "node"], SHARED, TO_A);
    await becomes("client", loadBalancer(green([])), TO_B);
    await expect.poll(passed).toEqual(["default/blue from default/green: 6"]);
    await expect.poll(() => lines("synced").length).toBeGreaterThanOrEqual(former + 2);
    for (const { transactions } of lines("synced").slice(former, former + 2)) {
      // A chain for a list like blue's, which nothing refers to yet, may be written first in a transaction of its own.
      expect([1, 2]).toContain(transactions);
    }

    // A change that does not affect the claim is not reported.
    await put("green", green(["b", "r1"]));
    await becomes("client", loadBalancer(green([])), { pods: ["b", "r1"], masq: true });
    await becomes("client", SHARED, TO_A);
    await put("blue", blue([]));
    await becomes(["c", "client", "node"], SHARED, { pods: ["b", "r1"], masq: true });
    await rm(join(directory, "green.json"));
    await becomes(["c", "client", "node"], SHARED, "reject");
    await expect
      .poll(passed)
      .toEqual([
        "default/blue from default/green: 6",
        "default/green from default/blue: 6",
        "default/blue from default/green: 6",
      ]);
    expect(clashes()).toHaveLength(1);
    const { stdout } = await cluster.command(["status", "--events", "--socket", join(directory, "socket")]);
    const takeovers = stdout.split("\n").flatMap((line) => /\S+ took over .*/.exec(line) ?? []);
    expect(takeovers).toEqual([
      expect.stringMatching(/^default\/blue took over \S+:80\/\w+ and 5 more from default\/green \(precedence\)$/),
      expect.stringMatching(/^default\/green took over .* from default\/blue \(no usable endpoint there\)$/),
      expect.stringMatching(/^default\/blue took over .* from default\/green \(no longer claimed there\)$/),
    ]);
  });

  test("a service with policy Local and endpoints only elsewhere keeps its address: all nodes decide the same", async () => {
    await put("both", blue(["r1"], { external: "Local" }), green(["b"], { external: "Local" }));
    await start();
    await becomes("client", SHARED, "drop");
    await becomes("client", loadBalancer(green([])), { pods: ["b"], masq: false });
  });
});

describe("source ranges of any claimant protect the address", () => {
  test("the ranges of a younger service protect the address of an older service without any", async () => {
    await put("both", blue(["a"]), green(["b"], { ranges: RANGES }));
    await start();
    await becomes("client", SHARED, TO_A);
    await becomes(["c", "node"], SHARED, "drop");
    await becomes(["c", "client", "node"], [loadBalancer(blue([])), externalIP(blue([]))], TO_A);
    await becomes(["c", "node"], loadBalancer(green([])), "drop");
  });

  test("a packet must match every claimant's ranges, and a removed claimant's ranges no longer count", async () => {
    await put("blue", blue(["a"], { ranges: ["10.0.0.0/8", "fd00::/8", ...RANGES] }));
    await put("green", green([], { ranges: RANGES }));
    await start();
    await becomes("client", SHARED, TO_A);
    await becomes("c", SHARED, "drop");
    await becomes(["c", "client"], loadBalancer(blue([])), TO_A);
    await rm(join(directory, "green.json"));
    await becomes(["c", "client"], SHARED, TO_A);
    await becomes("node", SHARED, "drop");
  });
});

test("without creation times a new file claims no used address, whatever its name; a change of owner is reported once", async () => {
  const middle = claimant("middle", 53, { endpoints: ["a"] });
  const first = claimant("a-first", 54, { endpoints: ["b"] });
  await put("middle", middle);
  await start();
  await becomes("client", SHARED, TO_A);
  await put("a-first", first);
  await becomes("client", loadBalancer(first), TO_B);
  await becomes("client", SHARED, TO_A);
  await expect.poll(clashes).toHaveLength(1);
  expect(String(clashes()[0])).toContain("belongs to default/middle, which was there first");
  await rm(join(directory, "middle.json"));
  await becomes("client", SHARED, TO_B);
  await put("middle", middle);
  await becomes("client", loadBalancer(middle), TO_A);
  await becomes("client", SHARED, TO_B);
  await expect.poll(passed).toEqual(["default/a-first from default/middle: 6"]);
  await expect.poll(clashes).toHaveLength(2);
});
