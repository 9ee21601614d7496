/**
 * Starts of the program with an API server (the double, in this process), several builds in turns. Measures time and CPU until both
 * families are written, memory 5 s later, and anonymous memory again 5 s after 30 changes that are 0.1 s apart. Each start finds no table.
 *
 *   node test/lab/enter.mjs -- node test/bench/start.ts SERVICES ENDPOINTS ROUNDS [BUSY] NAME=COMMAND...
 *
 * COMMAND is the program without flags. BUSY is the number of loops that compete for the processors (default 0). Prints medians, minima and
 * maxima. Needs `nft`.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { startApiCluster } from "./api-cluster.ts";
import { makeSlice, podsOf } from "./cluster.ts";
import type { LogLine } from "./program.ts";

const REST_MS = 5_000;
const TICK_MS = 10;
const CHANGES = 30;
const CHANGE_EVERY_MS = 100;

const words = process.argv.slice(2);
const [services = 0, endpoints = 0, rounds = 0, busy = 0] = words.filter((word) => !word.includes("=")).map(Number);
const variants = words
  .filter((word) => word.includes("="))
  .map((word) => {
    const at = word.indexOf("=");
    return { name: word.slice(0, at), command: word.slice(at + 1).split(" ") };
  });

const cluster = await startApiCluster(services, endpoints);

/** User and system time together, ms. */
function cpuOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(/\) /)[1]?.split(" ") ?? [];
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

/** Memory of one kind of a process, MB. */
function memoryOf(pid: number, kind: "Rss" | "Anonymous"): number {
  const kib = new RegExp(`^${kind}:\\s+(\\d+)`, "m").exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1];
  return Math.round((Number(kib) * 1024) / 1e5) / 10;
}

/** Resolves with the CPU time used when both families have been written. */
async function written(child: ChildProcess, name: string): Promise<number> {
  const families = new Set<string>();
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`${name} ended with ${code}`)));
    createInterface({ input: child.stderr! }).on("line", (text) => {
      if (!text.startsWith("{")) return;
      const { msg, family } = JSON.parse(text) as LogLine;
      if (msg === "synced" && family !== undefined) families.add(family);
      if (families.size === 2) resolve(cpuOf(child.pid!));
    });
  });
}

/** Removes an endpoint from one service after the other, and then restores them. */
async function change(): Promise<void> {
  const half = CHANGES / 2;
  for (let i = 0; i < CHANGES; i++) {
    const service = (i % half) % services;
    cluster.put(makeSlice(service, podsOf(service, endpoints).slice(i < half ? 1 : 0)));
    await sleep(CHANGE_EVERY_MS);
  }
}

async function start(name: string, command: readonly string[]): Promise<Record<string, number>> {
  execFileSync("nft", ["flush", "ruleset"]);
  const began = performance.now();
  const [program = "", ...args] = command;
  const child = spawn(program, [...args, ...cluster.flags], { stdio: ["ignore", "ignore", "pipe"] });
  const cpu = await written(child, name);
  const ms = Math.round(performance.now() - began);
  await sleep(REST_MS);
  const pid = child.pid!;
  const rested = { ms, cpu, rss: memoryOf(pid, "Rss"), anon: memoryOf(pid, "Anonymous") };
  await change();
  await sleep(REST_MS);
  const figures = { ...rested, changed: memoryOf(pid, "Anonymous") };
  child.removeAllListeners("exit");
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  await ended;
  return figures;
}

const loops = Array.from({ length: busy }, () => spawn(process.execPath, ["-e", "for (;;);"], { stdio: "ignore" }));
const all = new Map<string, Record<string, number>[]>();
for (let round = 0; round < rounds; round++) {
  for (const { name, command } of variants) all.set(name, [...(all.get(name) ?? []), await start(name, command)]);
}
for (const loop of loops) loop.kill();
for (const [name, runs] of all) {
  const parts = ["ms", "cpu", "rss", "anon", "changed"].map((kind) => {
    const values = runs.map((run) => run[kind] ?? 0).sort((a, b) => a - b);
    return `${kind} ${values[values.length >> 1]} (${values[0]} to ${values.at(-1)})`;
  });
  console.log(`${name}: ${parts.join(", ")}`);
}
await cluster.close();
