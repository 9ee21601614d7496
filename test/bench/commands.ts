/**
 * The cost of commands beside a daemon that serves many services: CPU of a command from start to end, and how long the answer blocks the
 * daemon's event loop. CPU instead of wall time, because that depends on other load. Prints one line of JSON (`Commands`). Arguments:
 * services endpoints rounds
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { clusterIPOf, serviceName } from "./cluster.ts";
import { MAIN } from "./image.ts";
import { childrenMs, tell } from "./lib.ts";
import type { Blocked } from "./loop-watch.ts";
import { writeManifests } from "./manifests.ts";
import { Program } from "./program.ts";

export interface CommandCost {
  readonly command: string;
  /** User and system time of all threads; the mean of the rounds. */
  readonly cpuMs: number;
  /** The daemon's event loop meanwhile. */
  readonly blocked: Blocked;
}

export interface Commands {
  /** CPU of a program that only prints its version: the minimum for any command. */
  readonly startMs: number;
  readonly commands: readonly CommandCost[];
}

const [services, endpoints, rounds] = process.argv.slice(2).map(Number);
/** The work that directly follows the load ends within this time. */
const REST_MS = 3_000;

/** Mean of `rounds` runs. Throws if one fails, except for exit code 1 of `status`, which means that there are problems. */
function cpuOf(args: readonly string[]): number {
  const before = childrenMs();
  for (let i = 0; i < rounds; i++) {
    const { status, stderr } = spawnSync(process.execPath, [MAIN, ...args], { maxBuffer: 1 << 28, encoding: "utf8" });
    if (status !== 0 && args[0] !== "status") throw new Error(`${args.join(" ")}: ${stderr}`);
  }
  return (childrenMs() - before) / rounds;
}

const directory = mkdtempSync(join(tmpdir(), "nft-proxier-bench-"));
try {
  writeManifests(join(directory, "manifests"), services, endpoints);
  const socket = join(directory, "socket");
  const program = await Program.start(
    ["run", "--manifests", join(directory, "manifests"), "--control-socket", socket],
    true,
    ({ msg, family, operations = 0 }) => msg === "synced" && family === "ip" && operations >= services,
  );
  await sleep(REST_MS);
  const name = `bench/${serviceName(services >> 1)}`;
  const lines = [
    ["status"],
    ["services"],
    ["services", "-o", "wide"],
    ["services", "-o", "json"],
    ["services", name],
    ["top", "-n", "1"],
    ["explain", `${clusterIPOf(services >> 1)}:80`],
  ];
  const startMs = cpuOf(["--version"]);
  const commands: CommandCost[] = [];
  for (const line of lines) {
    await program.blocked();
    const cpuMs = cpuOf([...line, "--socket", socket]);
    commands.push({ command: line.join(" "), cpuMs, blocked: await program.blocked() });
  }
  await program.end();
  tell({ startMs, commands } satisfies Commands);
} finally {
  rmSync(directory, { recursive: true });
}
