/** What the benchmarks share: numbers, and processes in namespaces of their own. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { COLLECTOR_FLAGS } from "../../dist/base/runtime.js";

export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

export function fixed(value: number, digits = 2): string {
  return value.toFixed(digits);
}

/** Of a process: VmRSS, VmHWM, RssAnon; bytes. */
export function memoryOf(pid: number | "self", field: string): number {
  const line = new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(line?.[1]) * 1024;
}

/** Of processes that this one has waited for, ms: utime and stime of children, in 10 ms (proc_pid_stat(5)). */
export function childrenMs(): number {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[13]) + Number(fields[14])) * 10;
}

/** What the kernel has for objects that it cannot give up, and for large buffers and tables, bytes. */
export function kernelBytes(): number {
  const text = readFileSync("/proc/meminfo", "utf8");
  return ["SUnreclaim", "VmallocUsed"].reduce(
    (sum, field) => sum + 1024 * Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(text)?.[1]),
    0,
  );
}

/** Collects garbage, so that what was done before is not the business of what is measured now. Needs --expose-gc. */
export function collect(): void {
  if (globalThis.gc === undefined) throw new Error("node --expose-gc");
  globalThis.gc();
}

/** Runs a command in network and mount namespaces of its own. */
export const ENTER = fileURLToPath(new URL("../lab/enter.mjs", import.meta.url));
/** V8's collector as the program has it (src/main.ts), from the start: the young generation too, for much is made here in one turn. */
const FLAGS = ["--no-warnings", "--min-semi-space-size=2", "--max-semi-space-size=2", ...COLLECTOR_FLAGS];

/** This build. */
const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Runs a script of this directory in a process and a network namespace of its own: what one leaves in the kernel, or in the heap,
 * must not slow the next. Returns its last line, which is JSON.
 * @param root of another build, whose script of that name is run instead.
 */
export function inNamespace(
  script: string,
  args: readonly (string | number)[],
  flags: readonly string[] = [],
  root: string = ROOT,
): unknown {
  const path = join(root, "test/bench", script);
  const command = [ENTER, "--", process.execPath, ...FLAGS, ...flags, path, ...args.map(String)];
  const output = execFileSync(process.execPath, command, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  return JSON.parse(output.trim().split("\n").at(-1) ?? "");
}

/** Prints what a script came to. */
export function tell(result: unknown): void {
  process.stdout.write(`${JSON.stringify(result)}\n`);
}
