/**
 * The program with manifests as its source: resident memory, and the time until all of it is in the kernel; or how long its event
 * loop is held by that. Prints one line of JSON (`Memory`, `Blocked`). Arguments: services endpoints [watch]
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { makeService, makeSlice, podsOf } from "./cluster.ts";
import { memoryOf, tell } from "./lib.ts";
import { Program } from "./program.ts";

export interface Memory {
  /** Once it is at rest, bytes. */
  readonly rss: number;
  readonly peak: number;
  /** From the start of the process to the kernel's answer. */
  readonly startedMs: number;
}

const [services, endpoints] = process.argv.slice(2).map(Number);
const watchLoop = process.argv[4] === "watch";
/** Objects of one file: a Service and its slice for each of them. */
const PER_FILE = 100;
/** What follows the load at once is over by then. */
const REST_MS = 3_000;

function writeManifests(directory: string): void {
  for (let at = 0; at < services; at += PER_FILE) {
    const numbers = Array.from({ length: Math.min(PER_FILE, services - at) }, (_, i) => at + i);
    const items = numbers.flatMap((i) => [makeService(i), makeSlice(i, podsOf(i, endpoints))]);
    const name = `${String(at / PER_FILE).padStart(5, "0")}.json`;
    writeFileSync(join(directory, name), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  }
}

const directory = mkdtempSync(join(tmpdir(), "nft-proxier-bench-"));
try {
  writeManifests(directory);
  const program = await Program.start(
    ["run", "--manifests", directory],
    watchLoop,
    ({ msg, family, operations = 0 }) => msg === "synced" && family === "ip" && operations >= services,
  );
  await sleep(REST_MS);
  const { startedMs, pid } = program;
  const memory: Memory = { rss: memoryOf(pid, "VmRSS"), peak: memoryOf(pid, "VmHWM"), startedMs };
  const blocked = await program.end();
  tell(blocked ?? memory);
} finally {
  rmSync(directory, { recursive: true });
}
