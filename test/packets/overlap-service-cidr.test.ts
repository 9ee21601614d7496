/** A ServiceCIDR that overlaps pods, addresses or routes: packets there are dropped, and every tool reports it. */
import type { ChildProcess } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { StatusReport } from "../../src/observe/status-report.ts";
import type { PreflightReport } from "../../src/migration/preflight/preflight-report.ts";
import { eventually } from "../lab/eventually.ts";
import type { Finished } from "../lab/namespace.ts";
import { Cluster } from "./support/cluster.ts";
import { configuration, type Manifest, serviceObjects, type ServiceSpec, target } from "./support/objects.ts";
import { checkRow } from "./support/rows.ts";
import { end } from "./support/daemon.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
/** Like a node-local DNS cache: the ClusterIP of a service is on an interface. */
const cached: ServiceSpec = { name: "cached", n: 2, endpoints: ["a"] };
const ROUTE = "10.96.77.0/24";
const EXPECTED = [
  `ServiceCIDR 10.96.0.0/16 overlaps the route to ${ROUTE} over out0`,
  "ServiceCIDR 10.96.0.0/16 overlaps this node's address 10.96.88.1",
  "ServiceCIDR fd00:10:96::/112 overlaps this node's address fd00:10:96::8801",
];

let cluster: Cluster;
let directory: string;
let args: readonly string[];
let daemon: ChildProcess;
let log = "";
beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  directory = await cluster.temporaryDirectory();
  await cluster.node.ip([
    `route add ${ROUTE} dev out0`,
    "address add 10.96.88.1/32 dev lo",
    "address add fd00:10:96::8801/128 dev lo",
    "address add 10.96.1.2/32 dev lo",
    // The route of packets to services on a node without a default route.
    "route add 10.96.0.0/16 dev out0",
  ]);
  args = await cluster.write([web, cached].flatMap((service) => serviceObjects(cluster.lab, service)));
  daemon = cluster.start(["run", ...args, "--control-socket", join(directory, "daemon.sock")]);
  daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  await eventually(() => expect(log).toContain("rules active"));
});
afterAll(async () => {
  await end(daemon);
  await cluster.destroy();
});

const ask = (...words: readonly string[]): Promise<Finished> =>
  cluster.command([...words, "--socket", join(directory, "daemon.sock")]);

async function overlapsOf(status: Promise<Finished>): Promise<string[]> {
  const { problems } = JSON.parse((await status).stdout) as StatusReport;
  return problems.map(({ what }) => what).filter((what) => what.startsWith("ServiceCIDR"));
}

const warnings = (): string[] => log.split("\n").filter((line) => line.includes("overlaps other networks"));

test("the log warns once, and names each network", async () => {
  await eventually(() => expect(warnings()).not.toEqual([]));
  expect(warnings().map((line) => JSON.parse(line) as unknown)).toEqual([
    expect.objectContaining({
      level: "warn",
      overlaps: EXPECTED,
      total: 3,
      hint: expect.stringContaining("kube-proxy"),
    }),
  ]);
});

test("status reports each as a problem and says what happens; new addresses and routes appear at once", async () => {
  const what = await eventually(async () => {
    const all = await overlapsOf(ask("status", "-o", "json"));
    expect(all).toHaveLength(EXPECTED.length);
    return all;
  });
  expect(what.map((text) => text.split(":").slice(0, -1).join(":"))).toEqual(EXPECTED);
  expect(what[0]).toContain("drop new connections to these addresses in forward and output, unless a service has");
  await eventually(() => expect(warnings()).not.toEqual([]));
  const warned = warnings().length;
  await cluster.node.ip(["route add 10.96.78.0/24 dev out0", "address add 10.96.88.2/32 dev lo"]);
  try {
    await eventually(async () => expect(await overlapsOf(ask("status", "-o", "json"))).toHaveLength(5));
    await eventually(() => expect(warnings()).toHaveLength(warned + 1));
  } finally {
    await cluster.node.ip(["route del 10.96.78.0/24 dev out0", "address del 10.96.88.2/32 dev lo"]);
  }
});

test("preflight reports each, and services with such endpoints, as a PROBLEM", async () => {
  const moved = serviceObjects(cluster.lab, { ...web, name: "moved", n: 3 }).map((object): Manifest => {
    if (object["addressType"] !== "IPv4") return object;
    return { ...object, endpoints: [{ addresses: ["10.96.99.1"] }] };
  });
  const others = [web, cached].flatMap((service) => serviceObjects(cluster.lab, service));
  const other = await cluster.write([...others, ...moved]);
  const { code, stdout } = await cluster.command(["preflight", ...other, "-o", "json"]);
  await cluster.write(others);
  const { findings } = JSON.parse(stdout) as PreflightReport;
  const said = findings.filter(({ check }) => check === "service-cidrs");
  expect(said.map(({ level }) => level)).toEqual(Array(4).fill("problem"));
  for (const text of EXPECTED)
    expect(said).toContainEqual(expect.objectContaining({ what: expect.stringContaining(text) }));
  expect(said.at(-1)?.what).toContain("endpoints of default/moved have addresses in a ServiceCIDR");
  expect(code).toBe(1);
});

test("pod networks in clusterCIDR: run --once warns, and validate has an error for each object", async () => {
  const file = join(directory, "config.json");
  await writeFile(file, JSON.stringify(configuration({ clusterCIDR: "10.96.64.0/18" })));
  const manifests = args[args.indexOf("--manifests") + 1] ?? "";
  const done = await cluster.command(["run", "--manifests", manifests, "--config", file, "--once"]);
  expect(done.stderr).toContain("ServiceCIDR 10.96.0.0/16 overlaps clusterCIDR 10.96.64.0/18");
  const validated = await cluster.command(["validate", "--manifests", manifests, "--config", file]);
  expect(validated.code).toBe(1);
  expect(validated.stdout).toContain("error: ServiceCIDR kubernetes: spec.cidrs[0]");
});

test("packets to such a network are dropped, as these texts say", async () => {
  const inside = target("10.96.77.9", { ip: "10.96.77.9", ip6: "fd00:10:96::7709" }, 80);
  const row = { rule: "", from: ["client", "node"], to: inside, families: ["ip"], expect: "drop" } as const;
  expect(await checkRow(cluster, row)).toEqual([]);
});
