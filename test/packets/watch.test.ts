/** `run` without --once: edits of the manifests reach packets, mistakes do not, and the rules outlive the program. */
import type { ChildProcess } from "node:child_process";
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import { Cluster } from "./support/cluster.ts";
import { end, endIfRunning } from "./support/daemon.ts";
import {
  clusterIP,
  handover,
  loadBalancer,
  type Manifest,
  nodePort,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { underLoad } from "./support/load.ts";
import { checkRow, type Row, untilRow } from "./support/rows.ts";

interface LogLine {
  readonly msg: string;
  readonly family?: string;
  readonly ms?: number;
  readonly ip?: { readonly writes: number };
  readonly ip6?: { readonly writes: number };
}

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const late: ServiceSpec = { name: "late", n: 2, endpoints: ["b"] };

let cluster: Cluster;
let daemon: ChildProcess;
let log = "";
let manifests = "";

beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(() => cluster.destroy());
/** Each test starts with a new daemon that serves `web`. */
beforeEach(async () => {
  log = "";
  const args = await cluster.write(objects(web));
  manifests = args[args.indexOf("--manifests") + 1];
  daemon = cluster.start(["run", ...args]);
  daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  await becomes({ rule: "", from: "c", to: clusterIP(web), expect: { pods: ["a"], masq: false } });
});
afterEach(async () => {
  await endIfRunning(daemon);
  expect((await cluster.command(["cleanup"])).code).toBe(0);
});

function objects(...services: readonly ServiceSpec[]): Manifest[] {
  return services.flatMap((service) => serviceObjects(cluster.lab, service));
}

async function edit(file: string, content: readonly Manifest[] | string): Promise<void> {
  const text = typeof content === "string" ? content : content.map((object) => JSON.stringify(object)).join("\n---\n");
  // Write in one step: if the machine stood still during the write, half a file would be visible for longer than the daemon distrusts it.
  const written = join(manifests, `.${file}.new`);
  await writeFile(written, text);
  await rename(written, join(manifests, file));
}

const becomes = (row: Row): Promise<void> => untilRow(cluster, row, () => log);

/** Serves `late` from a file of its own, and waits until packets reach these pods. */
async function serveLate(...pods: readonly string[]): Promise<void> {
  await edit("late.yaml", objects({ ...late, endpoints: pods }));
  await becomes({ rule: "", from: "c", to: clusterIP(late), expect: { pods, masq: false } });
}

test("a new file is served", async () => {
  await serveLate("b");
  await becomes({ rule: "", from: "client", to: nodePort(late), expect: { pods: ["b"], masq: true } });
});

test("an edit is served, and loses no connection", async () => {
  await serveLate("b");
  const streams = [
    { from: "client", to: loadBalancer(late), protocol: "tcp" },
    { from: "c", to: clusterIP(late), protocol: "udp" },
    { from: "node", to: clusterIP(late), protocol: "sctp" },
  ] as const;
  const { connections, failures } = await underLoad(cluster, streams, async () => {
    let before = ["b"];
    for (const pods of [["a", "b", "r1"], ["r1", "r2"], ["a", "b", "r1", "r2"], ["b"]]) {
      for (const endpoints of handover(before, pods)) {
        await edit("late.yaml", objects({ ...late, endpoints }));
        await becomes({ rule: "", from: "c", to: clusterIP(late), expect: { pods, masq: false } });
      }
      before = pods;
    }
  });
  expect(failures).toEqual([]);
  expect(connections).toBeGreaterThan(200);
});

test("a file that does not parse is reported with line and column, and keeps its last good version", async () => {
  await serveLate("b");
  await edit("late.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: [\n");
  const named = (): boolean => log.split("\n").some((line) => /late\.yaml/.test(line) && /"column":\d+/.test(line));
  await expect.poll(named).toBe(true);
  const still: Row = { rule: "", from: "c", to: clusterIP(late), expect: { pods: ["b"], masq: false } };
  expect(await checkRow(cluster, still)).toEqual([]);
  await serveLate("r2");
});

test("removing a file removes its services, and the others stay", async () => {
  await serveLate("b");
  await rm(join(manifests, "late.yaml"));
  await becomes({ rule: "", from: ["c", "client"], to: clusterIP(late), expect: "drop" });
  await becomes({ rule: "", from: ["c", "client"], to: loadBalancer(late), expect: "untouched" });
  const row: Row = { rule: "", from: "c", to: clusterIP(web), expect: { pods: ["a"], masq: false } };
  expect(await checkRow(cluster, row)).toEqual([]);
});

test("SIGTERM ends it with 0 and leaves the rules in place", async () => {
  const ended = new Promise<number | null>((resolve) => daemon.once("exit", resolve));
  daemon.kill("SIGTERM");
  expect(await ended).toBe(0);
  const row: Row = { rule: "", from: "client", to: nodePort(web), expect: { pods: ["a"], masq: true } };
  expect(await checkRow(cluster, row)).toEqual([]);
});

test("the log has the first write of each family, slow ones, and the number of the others", async () => {
  const EDITS = 7;
  // Packets show each edit before the next one, so each has its own write.
  for (let i = 0; i < EDITS; i++) await serveLate(i % 2 === 0 ? "b" : "r1");
  await end(daemon);
  // The last lines may arrive after the exit. On a busy machine all edits may be slow, and none is left for the summary.
  await eventually(() => {
    const lines = log
      .split("\n")
      .filter((line) => line.startsWith("{"))
      .map((line) => JSON.parse(line) as LogLine);
    const synced = lines.filter(({ msg }) => msg === "synced");
    const quick = synced.filter(({ ms = 0 }) => ms <= 1000);
    expect(new Set(synced.map(({ family }) => family))).toEqual(new Set(["ip", "ip6"]));
    expect(quick.length).toBeLessThanOrEqual(2);
    const counted = lines.filter(({ msg }) => msg === "recent writes");
    const writes = counted.reduce((sum, { ip, ip6 }) => sum + (ip?.writes ?? 0) + (ip6?.writes ?? 0), 0);
    expect(writes + synced.length - quick.length).toBeGreaterThanOrEqual(EDITS);
  });
});
