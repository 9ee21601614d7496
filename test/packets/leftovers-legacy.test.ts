/**
 * A node that ran kube-proxy's iptables mode on the older iptables: its rules stay, and the log, `status` and `cleanup` name them with the
 * command that removes them. No connection is lost.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../lab/eventually.ts";
import { FAMILIES } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { enterLegacyMode, legacyTables } from "./support/legacy-mode.ts";
import { underLoad } from "./support/load.ts";
import { clusterIP, nodePort, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { checkRow, type Row } from "./support/rows.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const here: ServiceSpec = { name: "here", n: 2, endpoints: ["b"] };
const empty: ServiceSpec = { name: "empty", n: 3, endpoints: [] };
const many: ServiceSpec = { name: "many", n: 10, endpoints: ["a", "b", "c", "r1", "r2"] };
const SERVICES: readonly ServiceSpec[] = [web, here, empty, many];

const ROWS: readonly Row[] = [
  { rule: "", from: "b", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } },
  { rule: "", from: "client", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: true } },
  { rule: "", from: "client", to: nodePort(web), expect: { pods: ["a", "r1"], masq: true } },
  { rule: "", from: "node", to: clusterIP(here), expect: { pods: ["b"], masq: true } },
  { rule: "", from: "b", to: clusterIP(empty), expect: "reject" },
];

let cluster: Cluster;
let directory: string;
/** Whether this kernel has the older iptables. */
let present: boolean;
beforeAll(async () => {
  cluster = await Cluster.create();
  directory = await mkdtemp(join(tmpdir(), "nft-proxier-legacy-"));
  present = true;
  for (const family of FAMILIES) present = (await enterLegacyMode(cluster.lab, family)) && present;
});
afterAll(async () => {
  await rm(directory, { recursive: true, force: true });
  await cluster.destroy();
});

const tables = async (): Promise<unknown> => ({
  ...(await legacyTables(cluster.lab, "ip")),
  ...(await legacyTables(cluster.lab, "ip6")),
});
/** Fills the older iptables with rules of other programs and of kube-proxy. */
async function enter(context: { skip: (reason: string) => void }): Promise<void> {
  if (!present) context.skip("this kernel does not have the older iptables");
  for (const family of FAMILIES) await enterLegacyMode(cluster.lab, family, SERVICES);
}

interface Running {
  readonly child: ChildProcess;
  lines(): readonly Record<string, unknown>[];
}

async function start(): Promise<Running> {
  const objects = SERVICES.flatMap((service) => serviceObjects(cluster.lab, service));
  const child = cluster.start([...(await cluster.write(objects)), "--control-socket", join(directory, "socket")]);
  let log = "";
  child.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  const lines = (): Record<string, unknown>[] =>
    log
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  return { child, lines };
}

async function active({ lines }: Running): Promise<void> {
  await eventually(() => expect(lines().map(({ msg }) => msg)).toContain("rules active"));
}

async function stop({ child }: Running): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  await ended;
}

async function checkAll(rows: readonly Row[]): Promise<void> {
  for (const row of rows) expect(await checkRow(cluster, row)).toEqual([]);
}

test("kube-proxy's rules serve alone", async (context) => {
  await enter(context);
  await checkAll(ROWS);
});

const COMMAND = "kube-proxy --cleanup";

test("taking over under load: no connection is lost, all their rules stay, and the log names them with a command", async (context) => {
  await enter(context);
  const before = await tables();
  const streams = [
    { from: "client", to: clusterIP(web), protocol: "tcp" },
    { from: "b", to: clusterIP(web), protocol: "udp" },
    { from: "client", to: nodePort(web), protocol: "udp" },
    { from: "node", to: clusterIP(here), protocol: "tcp" },
    { from: "c", to: clusterIP(many), protocol: "sctp" },
    { from: "client", to: nodePort(many), protocol: "tcp" },
  ] as const;
  const running = await start();
  try {
    const { connections, failures } = await underLoad(cluster, streams, async () => {
      await active(running);
      await sleep(500);
    });
    expect(failures).toEqual([]);
    expect(connections).toBeGreaterThan(50);
    const said = running.lines().filter(({ level, leftover }) => level === "warn" && leftover !== undefined);
    expect(said).toMatchObject(
      FAMILIES.map((family) => ({
        leftover: "iptables-legacy",
        seen: expect.stringContaining(`${family} nat: KUBE-`) as string,
        command: COMMAND,
      })),
    );
    expect(await tables()).toEqual(before);
    await checkAll(ROWS);
  } finally {
    await stop(running);
  }
});

test("cleanup deletes our tables, leaves theirs, says which command removes them, and exits with 1", async (context) => {
  await enter(context);
  const before = await tables();
  await cluster.apply(SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)));
  const { code, stdout, stderr } = await cluster.command(["cleanup"]);
  expect(code).toBe(1);
  expect(stdout + stderr).toMatch(new RegExp(`ip nat: KUBE-\\S+ and \\d+ more chains.*${COMMAND}`));
  expect(await tables()).toEqual(before);
  expect(await cluster.node.mustRun(["nft", "list", "tables"])).not.toContain(" kube-proxy");
});
