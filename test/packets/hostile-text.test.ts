/** Text from objects never reaches a terminal unescaped: no escape sequence, no forged line, no reordered text. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { NetlinkConntrack } from "../../src/nft/conntrack/netlink-conntrack.ts";
import { eventually } from "../lab/eventually.ts";
import type { Finished } from "../lab/namespace.ts";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { entryTo } from "./support/entries.ts";
import { clusterAddress, type Manifest, serviceObject, serviceObjects, sliceObject } from "./support/objects.ts";
import { end } from "./support/daemon.ts";

/** CSI and OSC in both forms, a bell, line breaks, bidirectional controls, DEL. */
const HOSTILE = "x\u001b[31m\u009b2J\u001b]0;t\u0007\u009d\r\nFORGED line\u0085\u2028\u202e\u2066\u061c\u007fy";
const UNPRINTABLE = /(?![\t\n])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

/** Yields the manifest once for each of its strings, with that string hostile. */
function* hostileForms(value: unknown): Generator {
  if (typeof value === "string") yield HOSTILE;
  if (typeof value !== "object" || value === null) return;
  for (const [key, field] of Object.entries(value)) {
    for (const form of hostileForms(field)) {
      yield Array.isArray(value)
        ? value.map((one: unknown, i) => (String(i) === key ? form : one))
        : { ...value, [key]: form };
    }
  }
}

let cluster: Cluster;
let directory: string;
let socket: string;
let manifests: readonly string[];
let daemon: ChildProcess;
let log = "";

beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  directory = await cluster.temporaryDirectory();
  socket = join(directory, "daemon.sock");
  const pod = { pod: "a", named: HOSTILE.replace("\n", ""), zone: HOSTILE };
  const annotations = {
    "nft-proxier.dev/balance": HOSTILE,
    "nft-proxier.dev/max-connections": HOSTILE,
    [`nft-proxier.dev/${HOSTILE}`]: "1",
  };
  const web = serviceObjects(cluster.lab, { name: "web", n: 1, endpoints: [pod], metadata: { annotations } });
  const other = { name: "other", n: 2, endpoints: [], protocols: ["tcp"], families: ["ip"] } as const;
  const slice = sliceObject(cluster.lab, {
    name: "s",
    service: "other",
    family: "ip",
    endpoints: [{ ...pod, forNodes: ["n"] }],
  });
  const forms = [...hostileForms(serviceObject(other)), ...hostileForms(slice)] as Manifest[];
  expect(forms.length).toBeGreaterThan(25);
  const named = forms.map((form, i) => {
    const metadata = form["metadata"] as { readonly name?: string };
    return metadata.name === HOSTILE ? form : { ...form, metadata: { ...metadata, name: `form-${i}` } };
  });
  manifests = await cluster.write([...web, ...named]);
  daemon = cluster.start(["run", ...manifests, "--control-socket", socket]);
  daemon.stderr?.setEncoding("utf8").on("data", (text: string) => (log += text));
  await eventually(async () => expect((await ask("services", "default/web")).code).toBe(0));
  const table = await NetlinkConntrack.open({ netns: `/run/netns/${cluster.lab.node.name}` });
  const endpoint = cluster.lab.pod("a").address.ip;
  const connection = { family: "ip", protocol: "tcp", sourcePort: 40_001, state: "ESTABLISHED" } as const;
  await table.create(entryTo({ ...connection, destination: clusterAddress(1).ip, port: 80, endpoint }));
  await table.close();
});
afterAll(async () => {
  await end(daemon);
  await cluster.destroy();
});

const ask = (...words: readonly string[]): Promise<Finished> => cluster.command([...words, "--socket", socket]);

function expectSafe(text: string): void {
  expect(text).not.toMatch(UNPRINTABLE);
  expect(text).not.toMatch(/^FORGED/m);
}

test.each([
  ["services", /./],
  ["services -o wide", /FORGED/],
  ["services -o json", /./],
  ["services -o yaml", /./],
  ["services -o name", /./],
  ["services default/web", /FORGED/],
  ["services default/web -o json", /FORGED/],
  ["status", /./],
  ["status --events", /./],
  ["status -o json", /./],
  ["top --count 1", /./],
  [`explain ${clusterAddress(1).ip}:80`, /FORGED/],
  [`explain ${clusterAddress(1).ip}:80 -o json`, /FORGED/],
])("%s", async (words, shown) => {
  const { stdout, stderr } = await ask(...words.split(" "));
  expect(stdout).toMatch(shown);
  expectSafe(stdout);
  expectSafe(stderr);
});

test.each([
  "validate",
  "validate -o json",
  "render",
  "preflight",
  "preflight -o json",
  "conntrack list -o wide",
  "conntrack list -o json",
])("%s", async (words) => {
  const { stdout, stderr } = await cluster.command([...words.split(" "), ...manifests]);
  expect(stdout + stderr).toMatch(words === "validate" ? /FORGED/ : /./);
  expectSafe(stdout);
  expectSafe(stderr);
});

test("trace", async () => {
  const child = cluster.start(["trace", "default/web", "--count", "1", "--for", "0", "--socket", socket], "pipe");
  const ended = once(child, "close");
  let [stdout, stderr] = ["", ""];
  child.stdout?.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr?.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  await eventually(() => expect(stderr).toContain("tracing "));
  await cluster
    .source("client")
    .namespace.agent()
    .probe({ protocol: "tcp", source: PLAN.client.ip, destination: clusterAddress(1).ip, port: 80 });
  await ended;
  expect(stdout).toContain("FORGED");
  expectSafe(stdout);
  expectSafe(stderr);
});

test("the daemon's log", async () => {
  await eventually(() => expect(log).toContain("FORGED"));
  expectSafe(log);
});
