/** What others took of the processors: the machine's host, for other machines of it, and other programs of this one. */
import { readdirSync, readFileSync } from "node:fs";

import { standstillMs } from "./standstill.ts";

/** Of each processor since boot, ms: steal of /proc/stat, in ticks of 10 ms. */
function stolenMs(): number[] {
  const lines = readFileSync("/proc/stat", "latin1").matchAll(/^cpu\d+ (.*)$/gm);
  return Array.from(lines, ([, columns = ""]) => Number(columns.split(" ")[7] ?? "0") * 10);
}

/** How long a thread has been ready to run and had no core, ms: schedstat's second number (CONFIG_SCHED_INFO). */
function waitedMs(task: string): number {
  try {
    return Number(readFileSync(`${task}/schedstat`, "latin1").split(" ")[1] ?? "0") / 1e6;
  } catch {
    return 0; // ended
  }
}

/** Of every thread of a process, as `waitedMs`; none once it has ended. */
function waits(pid: number): [task: string, ms: number][] {
  try {
    const tasks = readdirSync(`/proc/${pid}/task`).map((tid) => `/proc/${pid}/task/${tid}`);
    return tasks.map((task) => [task, waitedMs(task)]);
  } catch {
    return [];
  }
}

/**
 * Begins to watch; what it returns says for how long since the machine stood still, or these processes could not run, as other programs or other machines did, ms: at
 * least as long as the machine stood still, or else the sum of what their threads waited, as each may have waited for the other.
 * Call it now and then: what a thread waited is lost once it has ended.
 */
export function watchWithoutCore(...pids: readonly number[]): () => number {
  const before = new Map(pids.flatMap(waits));
  /** The most that was seen of each thread, since the watch began. */
  const waited = new Map<string, number>();
  const stolen = stolenMs();
  const stood = standstillMs();
  return () => {
    for (const [task, ms] of pids.flatMap(waits)) {
      waited.set(task, Math.max(waited.get(task) ?? 0, ms - (before.get(task) ?? 0)));
    }
    const threads = Array.from(waited.values()).reduce((sum, ms) => sum + ms, 0);
    const host = Math.max(...stolenMs().map((ms, cpu) => ms - (stolen[cpu] ?? 0)));
    return Math.max(standstillMs() - stood, threads + host);
  };
}
