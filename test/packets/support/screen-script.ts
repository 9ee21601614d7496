/**
 * A script: what an operator types on the node, and the whole screen that answers. In the form of Go's txtar: a comment, then parts that
 * begin with a line `-- NAME --`.
 */
import type { ChildProcess } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { parse } from "yaml";
import { NetlinkConntrack } from "../../../src/nft/conntrack/netlink-conntrack.ts";
import { ask } from "../../../src/daemon/control/client.ts";
import type { ServiceList, StatusReport } from "../../../src/observe/status-report.ts";
import { eventually } from "../../lab/eventually.ts";
import { Cluster, PODS } from "./cluster.ts";
import { endIfRunning } from "./daemon.ts";
import { type EntrySpec, entryTo } from "./entries.ts";
import { configuration, type Manifest, serviceObjects, type ServiceSpec } from "./objects.ts";

/** Parts of a script, by name. Their texts are YAML, except the session. */
interface Parts {
  /** Services with their slices, in the short form of `ServiceSpec`. */
  readonly services?: string;
  /** Other manifests. */
  readonly objects?: string;
  /** Fields of the KubeProxyConfiguration that differ from the lab's. */
  readonly config?: string;
  /** Entries of the connection tracking table, as `EntrySpec`. */
  readonly connections?: string;
  readonly session: string;
}

const NAMES: ReadonlySet<string> = new Set<keyof Parts>(["services", "objects", "config", "connections", "session"]);

/** Texts that differ from run to run, by what they are. */
const VARYING: Readonly<Record<string, readonly [pattern: RegExp, text: string]>> = {
  instant: [/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, "2026-01-01T00:00:00.000Z"],
  "version and uptime": [/nft-proxier \S+, up \w+, Linux \S+$/gm, "nft-proxier VERSION, up TIME, Linux KERNEL"],
  "fill of the connection tracking table": [/\d+ of \d+ entries \(\d+\.\d %\)/g, "N of MAX entries (N %)"],
  // The daemon finds out who started a process only if that still runs.
  "process id": [/\((?:pid|thread) \d+[^)]*\)/g, "(pid PID)"],
  "process id to kill": [/(?<=kill -KILL )\d+/g, "PID"],
  "time since an event": [/\b\d+(?:ms|s|m) ago\b/g, "TIME ago"],
  "time between readings": [/\bin the last \d+(?:ms|s)\b/g, "in the last TIME"],
  "duration of a repair": [/\brepaired in \d+m?s\b/g, "repaired in TIME"],
};

/** A line that begins with "$ ", and those below that begin with "> ". */
const COMMAND = /^\$ .*\n(?:> .*\n)*/gm;

/** Returns the first line of a script, which says what is seen. */
export function titleOf(script: string): string {
  return /^# (.+?)\.?$/m.exec(script)?.[1] ?? "";
}

/** Runs a script on a new node, which lasts until the current test ends. Returns it with the screens that its commands showed. Rejects if it has an unknown part. */
export async function played(script: string): Promise<string> {
  const [, ...texts] = script.split(/^-- (.+) --\n/m);
  const parts = Object.fromEntries(texts.flatMap((name, i) => (i % 2 === 0 ? [[name, texts[i + 1]]] : [])));
  const unknown = Object.keys(parts).filter((name) => !NAMES.has(name));
  if (unknown.length > 0) throw new Error(`unknown parts: ${unknown.join(", ")}`);
  const { session, ...setting } = parts as unknown as Parts;
  const silent = PODS.map(({ name }) => name);
  const cluster = await Cluster.create(PODS, silent);
  onTestFinished(() => cluster.destroy());
  const directory = await cluster.temporaryDirectory();
  const socket = join(directory, "daemon.sock");
  const daemon = await startDaemon(cluster, socket, setting);
  const shell = await shellOf(cluster, directory, socket, daemon);
  const screens: string[] = [];
  for (const command of session.match(COMMAND) ?? []) screens.push(command + (await shell(command)));
  return script.slice(0, script.indexOf(session)) + screens.join("\n");
}

/** Resolves when the rules are active and the connections exist. */
async function startDaemon(
  cluster: Cluster,
  socket: string,
  { services, objects, config, connections }: Omit<Parts, "session">,
): Promise<ChildProcess> {
  const specs = listOf(services) as readonly ServiceSpec[];
  const manifests = [
    ...specs.flatMap((spec) => serviceObjects(cluster.lab, spec)),
    ...(listOf(objects) as readonly Manifest[]),
  ];
  const settings = config === undefined ? {} : (parse(config) as Manifest);
  const args = await cluster.write(manifests, configuration(settings));
  const daemon = cluster.start(["run", ...args, "--control-socket", socket]);
  daemon.stderr?.resume();
  // A session may have stopped or ended it.
  onTestFinished(() => endIfRunning(daemon, "SIGKILL"));
  await eventually(async () => {
    const { families } = (await ask(socket, "status")) as StatusReport;
    if (!families.every(({ inForce }) => inForce)) throw new Error("no rules are active");
    // Rates are known after two readings of the counters, a second apart.
    const { items } = (await ask(socket, "services")) as ServiceList;
    if (items.some(({ connections, rateMs }) => connections !== undefined && rateMs === undefined))
      throw new Error("no rates are known");
  });
  const table = await NetlinkConntrack.open({ netns: `/run/netns/${cluster.lab.node.name}` });
  for (const entry of listOf(connections) as readonly EntrySpec[]) await table.create(entryTo(entry));
  await table.close();
  return daemon;
}

/** Returns a shell of the node, which runs a command and returns its screen. */
async function shellOf(
  cluster: Cluster,
  directory: string,
  socket: string,
  daemon: ChildProcess,
): Promise<(command: string) => Promise<string>> {
  // The sanitizer's library is for our program alone.
  const program = `#!/bin/sh\nLD_PRELOAD='${process.env["LD_PRELOAD"] ?? ""}' exec '${process.execPath}' '${cluster.main}' "$@" --socket '${socket}'\n`;
  const bin = join(directory, "bin");
  await mkdir(bin);
  await writeFile(join(bin, "nft-proxier"), program, { mode: 0o755 });
  const set = `PATH=${bin}:$PATH; DAEMON=${daemon.pid}; exec 2>&1`;
  return async (command) => {
    const typed = command.slice(2).replaceAll("\n> ", "\n");
    const { code, stdout } = await cluster.node.run(["env", "-u", "LD_PRELOAD", "sh", "-c", `${set}\n${typed}`]);
    const screen = Object.values(VARYING).reduce((text, [pattern, by]) => text.replaceAll(pattern, by), stdout);
    return screen.replaceAll(socket, "/run/nft-proxier/daemon.sock") + (code === 0 ? "" : `[exit ${code}]\n`);
  };
}

function listOf(yaml: string | undefined): readonly unknown[] {
  return yaml === undefined ? [] : (parse(yaml) as readonly unknown[]);
}
