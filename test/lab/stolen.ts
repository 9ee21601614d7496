/** What the machine's host took from it: time in which other machines of the host ran on its processors. */
import { readFileSync } from "node:fs";

/** Of each processor since boot, ms: steal of /proc/stat, in ticks of 10 ms. */
export function stolenMs(): number[] {
  const lines = readFileSync("/proc/stat", "latin1").matchAll(/^cpu\d+ (.*)$/gm);
  return Array.from(lines, ([, columns = ""]) => Number(columns.split(" ")[7] ?? "0") * 10);
}

/** Begins to watch; what it returns says which share of the processors' time has been stolen since, 0 to 1. */
export function watchStolen(): () => number {
  const from = performance.now();
  const before = stolenMs();
  return () => {
    const now = stolenMs();
    const stolen = now.reduce((sum, ms, cpu) => sum + ms - (before[cpu] ?? 0), 0);
    return stolen / Math.max(1, (performance.now() - from) * now.length);
  };
}
