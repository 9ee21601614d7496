/** `preflight`'s estimate of the kernel's memory, compared with the actual use for the same services. */
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { PreflightReport } from "../../src/migration/preflight/preflight-report.js";
import { median } from "../bench/lib.ts";
import { writeManifests } from "../bench/manifests.ts";
import { patience } from "../lab/patience.js";
import { memoryAccount } from "../support/kernel-memory.ts";
import { dropTable, ip, useLab } from "./lab.js";
import { atLength } from "../lab/length.ts";

const MAIN = process.env["NFT_PROXIER_MAIN"] ?? join(import.meta.dirname, "../../dist/main.js");
const SERVICES = atLength({ short: 1000, usual: 2000 });
const ENDPOINTS = 50;
const ROUNDS = 3;

const lab = useLab();
const account = memoryAccount();
let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "nft-proxier-footprint-"));
  writeManifests(directory, SERVICES, ENDPOINTS);
});
afterAll(async () => {
  account.close();
  await rm(directory, { recursive: true, force: true });
});

/** The kernel frees part of a table's memory later, and on a busy machine much later: waits until a second passes without a change. */
async function settledBytes(): Promise<number> {
  let bytes = account.bytes();
  for (let [same, looks] = [0, 0]; same < 10 && looks < 300; looks++) {
    await sleep(100);
    const now = account.bytes();
    same = Math.abs(now - bytes) < 65_536 ? same + 1 : 0;
    bytes = now;
  }
  return bytes;
}

async function program(...args: readonly string[]): Promise<string> {
  const enter = [...account.prefix, "nsenter", `--net=${lab().netns}`];
  const [command, ...rest] = [...enter, process.execPath, MAIN, ...args, "--manifests", directory];
  const { stdout } = await promisify(execFile)(command, rest, { maxBuffer: 1 << 26 });
  return stdout;
}

test(
  `preflight estimates the kernel memory of ${SERVICES} services with ${ENDPOINTS} endpoints within a factor of 2`,
  { timeout: patience(120_000) },
  async () => {
    const { findings } = JSON.parse(await program("preflight", "-o", "json")) as PreflightReport;
    const { what = "" } = findings.find(({ check }) => check === "footprint") ?? {};
    const words =
      /^these services need about \d+ MB of the process's memory and ([\d.]+) MB in the kernel \((\d+) map elements?\); /;
    const [megabytes, elements] = (words.exec(what) ?? []).slice(1).map(Number);

    const { kernel } = lab();
    const table = ip("kube-proxy");
    const taken: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const before = await settledBytes();
      await program("run", "--once");
      taken.push((await settledBytes()) - before);
      let count = 0;
      for (const set of await kernel.sets(table)) count += (await kernel.elements(table, set)).count;
      // Not one more or less.
      expect(count).toBe(elements);
      await kernel.commit([dropTable(table)]);
    }
    const ratio = (megabytes * 1e6) / median(taken);
    expect(ratio, `${megabytes} MB estimated; taken: ${taken.join(", ")} bytes`).toBeGreaterThan(1 / 2);
    expect(ratio, `${megabytes} MB estimated; taken: ${taken.join(", ")} bytes`).toBeLessThan(2);
  },
);
