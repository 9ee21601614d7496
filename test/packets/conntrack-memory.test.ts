/** `nft-proxier conntrack list` needs the same memory for a short table and for a long one. */
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildHelper } from "../lab/build.ts";
import { Namespace } from "../lab/namespace.ts";
import { MAIN } from "./support/cluster.ts";

const FEW = 2000;
const MANY = 100_000;

let namespace: Namespace;
beforeAll(async () => {
  namespace = await Namespace.create("conntrack-memory");
});
afterAll(() => namespace.destroy());

/** Returns 0 for a process that has exited: a pipe still holds its last output. */
function peakOf(pid: number): number {
  const file = `/proc/${pid}/status`;
  const status = existsSync(file) ? readFileSync(file, "utf8") : "";
  return Number(/^VmHWM:\s*(\d+) kB$/m.exec(status)?.[1] ?? 0) * 1024;
}

/** Lists all entries. Returns the number of lines, and the process's largest resident memory, bytes. */
async function list(format: string): Promise<{ lines: number; peak: number }> {
  const words = [process.execPath, MAIN, "conntrack", "list", "--no-headers", "-o", format];
  const [command, ...args] = [...namespace.prefix, ...words] as [string, ...string[]];
  // The young generation grows to 48 MB with chance and load: this holds it at its smallest.
  const env = { ...process.env, NODE_OPTIONS: "--max-semi-space-size=1" };
  const child = spawn(command, args, { env, stdio: ["ignore", "pipe", "pipe"] });
  const errors = text(child.stderr);
  let [lines, peak] = [0, 0];
  for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
    for (const byte of chunk) if (byte === 10) lines++;
    peak = Math.max(peak, peakOf(child.pid!));
  }
  expect(await errors).toBe("");
  return { lines, peak };
}

test("conntrack list needs no more memory for fifty times as many entries, as text or JSON", async () => {
  const fill = buildHelper("conntrack");
  await namespace.mustRun([fill, "fill", String(FEW)]);
  const few = [await list("text"), await list("json")];
  await namespace.mustRun([fill, "fill", String(MANY - FEW), String(FEW)]);
  const many = [await list("text"), await list("json")];
  expect([...few, ...many].map(({ lines }) => lines)).toEqual([FEW, FEW, MANY, MANY]);
  for (const [i, { peak }] of many.entries()) expect(peak / few[i].peak).toBeLessThan(1.4);
});
