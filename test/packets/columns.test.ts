/** The output of every command for people fits a terminal of 80 columns, on a node with many faults. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import { PLAN } from "../lab/topology.ts";
import { answers } from "./support/clients.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  loadBalancer,
  type Manifest,
  nodePort,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";

const WIDTH = 80;
const LONG = "a-service-with-a-name-that-is-as-long-as-kubernetes-allows-it";
const annotations = {
  "nft-proxier.dev/balance": "consistent",
  "nft-proxier.dev/max-connections": "10",
  "nft-proxier.dev/rate-per-client": "1/hour burst 1",
};
const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "b", "r1"], metadata: { annotations } };
const empty: ServiceSpec = { name: "empty", n: 2, endpoints: [] };
const far: ServiceSpec = { name: "far", n: 3, endpoints: ["r1"], external: "Local", ranges: ["192.0.2.0/24"] };
const long: ServiceSpec = {
  ...{ name: LONG, n: 4 },
  endpoints: [{ pod: "a", named: `${LONG}-7d4b9c6d5f-kx2vq`, zone: "europe-west-1-a", ready: true, serving: true }],
};
/** Claims an address of `web`. */
const thief: ServiceSpec = { name: "thief", n: 5, endpoints: ["a"], spec: { externalIPs: ["10.96.1.1"] } };

let cluster: Cluster;
let directory: string;
let socket: string;
beforeAll(async () => {
  cluster = await Cluster.create();
  directory = await cluster.temporaryDirectory();
  socket = join(directory, "daemon.sock");
  const objects = [web, empty, far, long, thief].flatMap((service) => serviceObjects(cluster.lab, service));
  const args = await cluster.write(objects);
  cluster.start(["run", ...args, "--control-socket", socket]).stderr?.resume();
  await eventually(async () => expect((await run("services", "default/web")).code).toBe(0));
  const from = { family: "ip", protocol: "tcp", source: PLAN.client, count: 3, timeoutMs: 300 } as const;
  for (const to of [nodePort(web), nodePort(empty), loadBalancer(far)]) await answers(cluster, { ...from, to });
  const wall = "table inet wall { chain forward { type filter hook forward priority 5; policy drop; }; }";
  await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: wall });
  await cluster.lab.node.mustRun(["nft", "delete", "table", "ip", "kube-proxy"]);
});
afterAll(() => cluster.destroy());

const run = (...words: readonly string[]) =>
  cluster.commandThrough(["env", `COLUMNS=${WIDTH}`], [...words, "--socket", socket]);

const COMMANDS: readonly (readonly string[])[] = [
  ["status"],
  ["status", "--events"],
  ["services"],
  ["services", "-n", "default", "--sort-by", "state"],
  ["services", "default/web"],
  ["services", LONG],
  ["services", "far", "empty"],
  ["top"],
  ["explain", PLAN.client.ip, `${loadBalancer(far).address.ip}:80`],
  ["explain", "default/empty"],
  ["explain", "tcp", `${clusterIP(web).address.ip}:80`],
  ["conntrack", "list"],
  ["conntrack", "list", "--service", "web"],
  ["conntrack", "count", "--by", "service"],
];

/** Words that no line break can shorten are allowed, such as a long name. */
function tooLong(text: string): string[] {
  const lines = text.split("\n").filter((line) => line.length > WIDTH);
  return lines.filter((line) => line.trim().includes(" "));
}

test.each(COMMANDS.map((words) => [words.join(" "), words] as const))("%s", async (_, words) => {
  const { stdout, code } = await run(...words);
  expect(code).toBeLessThan(2);
  expect(stdout).not.toBe("");
  expect(tooLong(stdout)).toEqual([]);
});

test("validate and preflight", async () => {
  const manifests = join(directory, "faulty");
  await mkdir(manifests);
  const [service] = serviceObjects(cluster.lab, web);
  const spec = { ...(service["spec"] as Manifest), clusterIP: "10.96.1.300", externalIps: ["10.0.0.1"] };
  await writeFile(join(manifests, "web.json"), JSON.stringify({ ...service, spec }));
  for (const command of ["validate", "preflight"]) {
    const { stdout } = await cluster.commandThrough(["env", `COLUMNS=${WIDTH}`], [command, "--manifests", manifests]);
    expect(stdout).not.toBe("");
    expect(tooLong(stdout)).toEqual([]);
  }
});
