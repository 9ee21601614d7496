/**
 * Upgrade from an older version, and rollback to it, with 1,000 open connections and thousands of new ones a second. None is lost, and the
 * table that a version works on equals the one that it creates on an empty node.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";

import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { type AddressPair, FAMILIES } from "../lab/topology.ts";
import { changeOver, createCluster, expectNoFailure, type Traffic } from "../packets/support/change-over.ts";
import { type Cluster, MAIN } from "../packets/support/cluster.ts";
import { Conversation } from "../packets/support/conversation.ts";
import { exceptMissed } from "../packets/support/load.ts";
import {
  clusterIP,
  configuration,
  nodeObject,
  nodePort,
  serviceCIDRObject,
  type Target,
} from "../packets/support/objects.ts";
import { allObjects, echo, OPEN_TO, sticky, STREAMS, web } from "./services.ts";
import { type OlderVersion, VERSIONS_VARIABLE } from "./versions.ts";

const given = process.env[VERSIONS_VARIABLE];
if (given === undefined) throw new Error("no older version is given. Run `npm run test:rollback -- [COMMIT...]`.");
const older = JSON.parse(given) as readonly OlderVersion[];

const NEW_PER_SECOND = 3000;
/** The load saturates a small or busy machine, and the start time is not measured. */
const START_MS = patience(180_000);
const CLIENTS = ["client", "clientSecond", "node", "nodeOutside", "remoteNode", "b", "c", "r1"];
const LOOPBACK: AddressPair = { ip: "127.0.0.1", ip6: "::1" };

let directory: string;
let cluster: Cluster;
/** Arguments for every version. */
let common: readonly string[];
/** The same with node ports on loopback, which only later versions support. */
let withLocalhost: readonly string[];
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "nft-proxier-rollback-"));
  cluster = await createCluster();
  const [flag, manifests, ...config] = await cluster.write(allObjects(cluster.lab));
  common = ["run", flag, manifests, ...config];
  const file = join(directory, "localhost.json");
  await writeFile(file, JSON.stringify(configuration({ nodePortAddresses: ["primary", "localhost"] })));
  withLocalhost = ["run", flag, manifests, "--config", file];
});
afterAll(async () => {
  await cluster.destroy();
  await rm(directory, { recursive: true, force: true });
});

const daemons: ChildProcess[] = [];
afterEach(async () => {
  await end("SIGKILL");
  await cluster.node.mustRun(["nft", "flush", "ruleset"]);
});

/** The message was "rules in force" before 0.2.0. Versions before that one logged for each family that it was synced. */
function isServing(log: string): boolean {
  if (/rules (?:active|in force)/.test(log)) return true;
  const synced = log.split("\n").filter((line) => /"msg":"(synced|nothing written)"/.test(line));
  return FAMILIES.every((family) => synced.some((line) => line.includes(`"family":"${family}"`)));
}

function launch(main: string, args: readonly string[]): { readonly daemon: ChildProcess; readonly log: () => string } {
  const daemon = cluster.start(args, "ignore", main);
  daemons.push(daemon);
  let log = "";
  daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  return { daemon, log: () => log };
}

/** Starts a version and waits until its rules are active. */
async function start(main: string, args = common): Promise<void> {
  const { daemon, log } = launch(main, args);
  const waiting = { timeout: START_MS, interval: 20 };
  await vi.waitFor(() => {
    if (!isServing(log())) throw new Error(`${main} does not serve (exit code ${daemon.exitCode}):\n${log()}`);
  }, waiting);
}

async function end(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
  for (const daemon of daemons.splice(0)) {
    const exited = once(daemon, "exit");
    if (daemon.exitCode !== null) continue;
    daemon.kill(signal);
    await exited;
  }
}

async function replace(main: string, { signal, args = common }: Replacement = {}): Promise<void> {
  await end(signal);
  await start(main, args);
}
interface Replacement {
  readonly signal?: NodeJS.Signals;
  readonly args?: readonly string[];
}

/**
 * The whole ruleset, except parts that depend on packets or on earlier contents. These are remembered clients, the numbers of their endpoints, an
 * endpoint's index in its list, and the size of a grown map.
 */
async function listing(): Promise<string[]> {
  const text = await cluster.node.mustRun(["nft", "-s", "list", "ruleset"]);
  return text
    .replaceAll(/^\t(?:set|map) \S+ \{\n(?:\t\t.*\n)*?\t\}\n/gm, (set) =>
      /flags .*dynamic/.test(set) ? set.replace(/\n\t\telements = \{[^}]*\}/, "") : set,
    )
    .replaceAll(/\b6b[0-9a-f]{2}:[0-9a-f]{1,4}\b/g, "NUMBER")
    .replaceAll(/ \. 0x[0-9a-f]{8} : /g, " . INDEX : ")
    .replaceAll(/\t\tsize \d+\n/g, "")
    .split(/[\n,]/)
    .map((line) =>
      line
        .trim()
        .replace(/^elements = \{ /, "")
        .replace(/(.) \}$/, "$1"),
    )
    .toSorted();
}

/** Versions that do not know counting maps keep maps that count. */
const uncounted = (lines: readonly string[]): string[] =>
  lines.filter((line) => line !== "counter").map((line) => line.replace(" counter :", " :"));

/**
 * Lines of chains that draw an endpoint, and of the elements that lead to them. Today's version keeps spare ones for other numbers of
 * endpoints. On a full map of an older version that lacks some, it adds each with the first list of its number.
 */
const DRAW =
  /^$|^\}$|^chain (np-)?(cluster|local)-\S+ \{$|: goto (np-)?(cluster|local)-\S+$|^meta .* map @(nodeport-)?endpoints(-\S+)?$/;

/** The ruleset that this version creates on an empty node. */
async function listingOf(main: string): Promise<string[]> {
  await start(main);
  const listed = await listing();
  await end();
  await cluster.node.mustRun(["nft", "flush", "ruleset"]);
  return listed;
}

/** Nothing is there that is not expected, and only draws may be missing. Deferred deletions come a moment after the first write. */
async function expectListing(expected: readonly string[], seen = (lines: readonly string[]) => lines): Promise<void> {
  await eventually(async () => {
    const { tooMuch, missing } = difference(seen(await listing()), seen(expected));
    expect({ tooMuch, missing: missing.filter((line) => !DRAW.test(line)) }).toEqual({ tooMuch: [], missing: [] });
  });
}

function difference(actual: readonly string[], expected: readonly string[]): Record<"tooMuch" | "missing", string[]> {
  const count = (lines: readonly string[]): Map<string, number> => {
    const counts = new Map<string, number>();
    for (const line of lines) counts.set(line, (counts.get(line) ?? 0) + 1);
    return counts;
  };
  const [is, should] = [count(actual), count(expected)];
  const more = (a: Map<string, number>, b: Map<string, number>): string[] =>
    [...a].filter(([line, times]) => times > (b.get(line) ?? 0)).map(([line]) => line);
  return { tooMuch: more(is, should), missing: more(should, is) };
}

const TRAFFIC: Traffic = { open: OPEN_TO, streams: STREAMS, perSecond: NEW_PER_SECOND };

/** Checks that `work` costs no connection. */
async function lossless(what: string, work: () => Promise<unknown>): Promise<void> {
  console.log(`${what}:`);
  await expectNoFailure(cluster, work, TRAFFIC);
}

/** The pods that answer a client, in each family. */
function answerers(to: Target, client: string): Promise<string[]> {
  return Promise.all(
    FAMILIES.map(async (family) => {
      const { namespace, address } = cluster.source(client);
      const source = address ? { source: address[family] } : {};
      const probe = { protocol: "tcp", destination: to.address[family], port: to.port, count: 1 } as const;
      const [first] = await namespace.agent().probe({ ...probe, ...source, concurrency: 1, timeoutMs: 10_000 });
      return first.result === "ok" ? first.name : JSON.stringify(first);
    }),
  );
}

async function clientsOfSticky(): Promise<string[]> {
  return (await Promise.all(CLIENTS.map((client) => answerers(clusterIP(sticky), client)))).flat();
}

/** Writes the manifests under the names that every version watches. */
async function putObjects(endpoints = web.endpoints): Promise<void> {
  const items = [nodeObject(), serviceCIDRObject(), ...allObjects(cluster.lab, endpoints)];
  const file = join(directory, "objects.json");
  await writeFile(file, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  await rename(file, join(common[2], "objects.json"));
}

/** Endpoints change, and change back. */
async function expectChangesFollowed(): Promise<void> {
  await putObjects(["b"]);
  await eventually(async () => expect(await answerers(clusterIP(web), "client")).toEqual(["b", "b"]));
  await putObjects();
  await eventually(async () => expect(await answerers(clusterIP(web), "client")).not.toContain("b"));
}

function openOnLoopback(): Promise<Conversation[]> {
  const { port } = nodePort(echo);
  return Promise.all(FAMILIES.map((family) => Conversation.open(cluster.node, LOOPBACK[family], port)));
}

/** Returns the number of connections that still answer. Ends them. */
async function countAnswers(talks: readonly Conversation[]): Promise<number> {
  const answers = await Promise.all(talks.map((talk) => talk.say("still there", patience(20_000))));
  for (const talk of talks) talk.close();
  return answers.filter((word) => word === "still there").length;
}

/** Whether this version accepts the configuration. */
async function takes(main: string, [, ...args]: readonly string[]): Promise<boolean> {
  const { code, stderr } = await cluster.node.run([process.execPath, main, "render", ...args, "--family", "ip"]);
  if (code !== 0) console.log(`its configuration is refused: ${stderr.trim()}`);
  return code === 0;
}

describe.each(older)("$name", ({ main }) => {
  let asOlder: string[];
  let asToday: string[];
  beforeAll(async () => {
    asOlder = await listingOf(main);
    asToday = await listingOf(MAIN);
  });

  test.each(["SIGTERM", "SIGKILL"] as const)(
    "an upgrade, a rollback, another upgrade, and changes after a rollback lose no connection, each after %s",
    async (signal) => {
      await start(main);
      await lossless(`upgrade, ${signal}`, () => replace(MAIN, { signal }));
      await expectListing(asToday);
      const before = await clientsOfSticky();
      await lossless(`rollback, ${signal}`, () => replace(main, { signal }));
      await expectListing(asOlder, uncounted);
      const after = await clientsOfSticky();
      const remembered = before.filter((endpoint, i) => endpoint === after[i]).length;
      console.log(`ClientIP affinity: ${remembered} of ${before.length} clients at the endpoint that they had`);
      await lossless(`upgrade again, ${signal}`, () => replace(MAIN, { signal }));
      await expectListing(asToday);
      // Done last: unused chains of such a change stay for a while.
      await replace(main, { signal });
      await lossless("changes after the rollback", expectChangesFollowed);
    },
  );

  test("repeated kills of the older version during its first writes to today's table lose no connection", async () => {
    await start(MAIN);
    const began = performance.now();
    await replace(main);
    const startMs = performance.now() - began;
    await replace(MAIN);
    await lossless("kills during the rollback", async () => {
      for (const part of [0.7, 0.8, 0.9, 1]) {
        await end();
        launch(main, common);
        await sleep(part * startMs);
        await replace(MAIN, { signal: "SIGKILL" });
      }
    });
    await expectListing(asToday);
  });

  test("a rollback from tables that today's version owned refuses at most one new connection per CPU and family", async () => {
    await start(MAIN, [...common, "--own-table"]);
    console.log("rollback from owned tables:");
    const { failures } = await changeOver(cluster, () => replace(main), TRAFFIC);
    if (failures.length > 0) console.log(failures.join("\n"));
    expect(exceptMissed(failures)).toEqual([]);
    await expectListing(asOlder, uncounted);
  });

  test("a rollback from node ports on loopback loses no connection", async () => {
    await start(MAIN, withLocalhost);
    const known = await takes(main, withLocalhost);
    const talks = await openOnLoopback();
    const args = known ? withLocalhost : common;
    await lossless("rollback from node ports on loopback", () => replace(main, { args }));
    const kept = await countAnswers(talks);
    console.log(`connections to node ports on loopback: ${kept} of ${talks.length} kept`);
    if (known) expect(kept).toBe(talks.length);
    else await expectListing(asOlder, uncounted);
  });

  test("a rollback with an active copy of a handover, and an upgrade, lose no connection", async () => {
    await start(MAIN, withLocalhost);
    const talks = await openOnLoopback();
    await lossless("rollback after a handover", async () => {
      expect((await cluster.command(["handover"])).code).toBe(0);
      await replace(main);
    });
    const kept = await countAnswers(talks);
    const opened = await countAnswers(await openOnLoopback());
    console.log(`connections to node ports on loopback: ${kept} of ${talks.length} kept, ${opened} opened`);
    console.log(`tables: ${(await cluster.node.mustRun(["nft", "list", "tables"])).trim().replaceAll("\n", ", ")}`);
    await lossless("upgrade, removing the copy", () => replace(MAIN));
    await expectListing(asToday);
    expect({ kept, opened }).toEqual({ kept: talks.length, opened: talks.length });
  });
});
