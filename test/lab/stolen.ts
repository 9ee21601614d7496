/** What others took of the processors: the machine's host, for other machines of it, and other programs of this one. */
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

/** How long the main thread of a process has been ready to run and had no core, ms: schedstat's second number; 0 once it has ended. */
function waitedMs(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, "latin1").split(" ")[1] ?? "0") / 1e6;
  } catch {
    return 0; // ended, or a kernel without CONFIG_SCHED_INFO
  }
}

/** Begins to watch; what it returns says for how long since these processes could not run, as other programs or other machines did, ms. */
export function watchWithoutCore(...pids: readonly number[]): () => number {
  const waited = pids.map(waitedMs);
  const stolen = stolenMs();
  return () => {
    const waitedSince = pids.reduce((sum, pid, i) => sum + Math.max(0, waitedMs(pid) - waited[i]), 0);
    return waitedSince + Math.max(...stolenMs().map((ms, cpu) => ms - (stolen[cpu] ?? 0)));
  };
}
