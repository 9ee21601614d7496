/** Shared parts of the benchmarks: numbers, and processes in their own namespaces. */
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

/**
 * The exponent e of the growth cost ~ size ** e, by least squares over the logarithms. Sizes that double three times up to 10,000 give 1.1 for
 * n log n.
 */
export function exponentOf(sizes: readonly number[], costs: readonly number[]): number {
  const [x, y] = [sizes.map(Math.log), costs.map(Math.log)];
  const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
  const [meanX, meanY] = [mean(x), mean(y)];
  const products = x.map((value, i) => (value - meanX) * (y[i] - meanY));
  return mean(products) / mean(x.map((value) => (value - meanX) ** 2));
}

export function fixed(value: number, digits = 2): string {
  return value.toFixed(digits);
}

/** Memory of a process: VmRSS, VmHWM, RssAnon; bytes. */
export function memoryOf(pid: number | "self", field: string): number {
  const line = new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(line?.[1]) * 1024;
}

/** CPU time of a process and its threads so far, ms. */
export function cpuMsOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  const TICK_MS = 10;
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

/** CPU of processes that this one has waited for, ms: utime and stime of children, in units of 10 ms (proc_pid_stat(5)). */
export function childrenMs(): number {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ")[1]?.split(" ") ?? [];
  return (Number(fields[13]) + Number(fields[14])) * 10;
}

/** The kernel's memory for objects that it cannot reclaim, and for large buffers and tables, bytes. */
export function kernelBytes(): number {
  const text = readFileSync("/proc/meminfo", "utf8");
  return ["SUnreclaim", "VmallocUsed"].reduce(
    (sum, field) => sum + 1024 * Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(text)?.[1]),
    0,
  );
}

/** Collects garbage, so that earlier work does not affect the measurement. Needs --expose-gc. */
export function collect(): void {
  if (globalThis.gc === undefined) throw new Error("node --expose-gc");
  globalThis.gc();
}

/** Runs a command in its own network and mount namespaces. */
export const ENTER = fileURLToPath(new URL("../lab/enter.mjs", import.meta.url));
/**
 * V8's collector settings as in the program (src/main.ts), for the young generation from the start, because much is allocated here in one
 * turn.
 */
const FLAGS = ["--no-warnings", "--min-semi-space-size=2", "--max-semi-space-size=2", ...COLLECTOR_FLAGS];

/** The directory of this build. */
const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Runs a script of this directory in its own process and network namespace, so that leftovers in the kernel or in the heap do not slow the
 * next one. Returns its last line, which is JSON.
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

/** Prints a script's result. */
export function tell(result: unknown): void {
  process.stdout.write(`${JSON.stringify(result)}\n`);
}
