/**
 * A node that ran kube-proxy's iptables mode on the older iptables: its rules serve until ours are active, then they are removed without
 * losing a connection. Other programs' rules in the same tables do not change.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { addLegacyChains, getLegacyTable, holdLock, putLegacyTable } from "../lab/legacy-kernel.ts";
import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { enterLegacyMode, LEGACY_TABLES, legacyTables } from "./support/legacy-mode.ts";
import { underLoad } from "./support/load.ts";
import { clusterIP, everyWay, nodePort, serviceObjects, type ServiceSpec } from "./support/objects.ts";
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
/** Other programs' rules. */
let others: unknown;
/** Whether this kernel has the older iptables. */
let present: boolean;
beforeAll(async () => {
  cluster = await Cluster.create();
  directory = await mkdtemp(join(tmpdir(), "nft-proxier-legacy-"));
  process.env["XTABLES_LOCKFILE"] = lockFile();
  present = true;
  for (const family of FAMILIES) present = (await enterLegacyMode(cluster.lab, family)) && present;
  if (present) others = await tables();
});
afterAll(async () => {
  delete process.env["XTABLES_LOCKFILE"];
  await rm(directory, { recursive: true, force: true });
  await cluster.destroy();
});

const tables = async (): Promise<unknown> => ({
  ...(await legacyTables(cluster.lab, "ip")),
  ...(await legacyTables(cluster.lab, "ip6")),
});
/** Fills the older iptables: with other programs' rules and, if services are given, kube-proxy's. */
async function enter(context: { skip: (reason: string) => void }, services?: readonly ServiceSpec[]): Promise<void> {
  if (!present) context.skip("this kernel does not have the older iptables");
  for (const family of FAMILIES) await enterLegacyMode(cluster.lab, family, services);
}
const lockFile = (): string => join(directory, "xtables.lock");

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

const REMOVED = "leftovers of kube-proxy's other modes removed";
const removedFrom = (lines: readonly Record<string, unknown>[]): string[] =>
  lines
    .filter(({ msg, leftover }) => msg === REMOVED && leftover === "iptables-legacy")
    .map(({ family, table }) => `${String(family)} ${String(table)}`)
    .sort();
const ALL = FAMILIES.flatMap((family) => LEGACY_TABLES.map((table) => `${family} ${table}`)).sort();

async function checkAll(rows: readonly Row[]): Promise<void> {
  for (const row of rows) expect(await checkRow(cluster, row)).toEqual([]);
}

test("kube-proxy's rules serve alone", async (context) => {
  await enter(context, SERVICES);
  await checkAll(ROWS);
});

describe("taking over", () => {
  const streams = [
    { from: "client", to: clusterIP(web), protocol: "tcp" },
    { from: "b", to: clusterIP(web), protocol: "udp" },
    { from: "client", to: nodePort(web), protocol: "udp" },
    { from: "node", to: clusterIP(here), protocol: "tcp" },
    { from: "c", to: clusterIP(many), protocol: "sctp" },
    { from: "client", to: nodePort(many), protocol: "tcp" },
  ] as const;

  test("under load: no connection is lost, our rules then serve, others' stay, and a second run has nothing to do", async (context) => {
    await enter(context, SERVICES);
    const lock = await holdLock(lockFile());
    const running = await start();
    try {
      const { connections, failures } = await underLoad(cluster, streams, async () => {
        await active(running);
        // Another process holds the lock: both rule sets serve.
        await sleep(500);
        expect(removedFrom(running.lines())).toEqual([]);
        await lock.release();
        await expect.poll(() => removedFrom(running.lines()), { timeout: patience(60_000) }).toEqual(ALL);
        await sleep(1000);
      });
      expect(failures).toEqual([]);
      expect(connections).toBeGreaterThan(50);
      const said = running.lines().filter(({ level, leftover }) => level === "warn" && leftover !== undefined);
      expect(said).toEqual([]);
      expect(await tables()).toEqual(others);
      await checkAll(ROWS);
    } finally {
      await stop(running);
    }

    const again = await start();
    try {
      await active(again);
    } finally {
      await stop(again);
    }
    expect(removedFrom(again.lines())).toEqual([]);
    expect(await tables()).toEqual(others);
  });
});

describe("cleanup", () => {
  const cleanup = async (): Promise<{ code: number; log: string }> => {
    const { code, stdout, stderr } = await cluster.command(["cleanup"]);
    return { code, log: stdout + stderr };
  };

  test("deletes our tables and the leftovers of the iptables mode", async (context) => {
    await enter(context, SERVICES);
    await cluster.apply(SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)));
    expect(await cleanup()).toMatchObject({ code: 0 });
    expect(await tables()).toEqual(others);
    expect(await cluster.node.mustRun(["nft", "list", "tables"])).not.toContain(" kube-proxy");
    const row = { rule: "", from: ["b", "client"], to: everyWay(web), expect: "untouched" } as const;
    expect(await checkRow(cluster, row)).toEqual([]);
  });

  test("exits with 1 while another program's rule jumps to a chain, and names both", async (context) => {
    await enter(context);
    const { prefix } = cluster.lab.node;
    const nat = (await getLegacyTable(prefix, "ip", "nat")) ?? [];
    await putLegacyTable(prefix, "ip", "nat", [
      ...nat,
      { name: "CNI-HOSTPORT-SETMARK", rules: [{ target: { jump: "KUBE-MARK-MASQ" } }] },
      { name: "KUBE-MARK-MASQ", rules: [] },
      { name: "KUBE-SERVICES", rules: [] },
    ]);
    const { code, log } = await cleanup();
    expect(code).toBe(1);
    expect(log).toMatch(/chain=KUBE-MARK-MASQ.*CNI-HOSTPORT-SETMARK|"chain":"KUBE-MARK-MASQ".*CNI-HOSTPORT-SETMARK/);
    const left = (await getLegacyTable(prefix, "ip", "nat"))?.map(({ name }) => name);
    expect(left?.filter((name) => /KUBE-(MARK-MASQ|SERVICES)/.test(name))).toEqual(["KUBE-MARK-MASQ"]);
  });

  test("exits with 1 while another process keeps the tables locked, and says what to run", async (context) => {
    await enter(context);
    const { prefix } = cluster.lab.node;
    await addLegacyChains(prefix, "ip", "nat", ["KUBE-SERVICES", "KUBE-MARK-MASQ", "DOCKER"]);
    const lock = await holdLock(lockFile());
    try {
      const { code, log } = await cleanup();
      expect(code).toBe(1);
      expect(log).toMatch(/ip nat: KUBE-SERVICES and 1 more chain.*iptables-legacy-restore/);
      expect(log).toContain("another process holds the lock");
    } finally {
      await lock.release();
    }
    expect(await cleanup()).toMatchObject({ code: 0 });
    expect((await getLegacyTable(prefix, "ip", "nat"))?.at(-1)?.name).toBe("DOCKER");
  });
});
