/**
 * The program with manifests as its source: resident memory, and the time until everything is in the kernel; or how long that blocks its
 * event loop. Prints one line of JSON (`Memory`, `Blocked`). Arguments: services endpoints [watch]
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { memoryOf, tell } from "./lib.ts";
import { writeManifests } from "./manifests.ts";
import { Program } from "./program.ts";

export interface Memory {
  /** Resident memory at rest, bytes. */
  readonly rss: number;
  readonly peak: number;
  /** From the start of the process to the kernel's answer. */
  readonly startedMs: number;
}

const [services, endpoints] = process.argv.slice(2).map(Number);
const watchLoop = process.argv[4] === "watch";
/** The work that directly follows the load ends within this time. */
const REST_MS = 3_000;

const directory = mkdtempSync(join(tmpdir(), "nft-proxier-bench-"));
try {
  writeManifests(directory, services, endpoints);
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
