/**
 * Measures how much processor time others took: the host for its other machines, and other programs of this machine.
 */
import { readdirSync, readFileSync } from "node:fs";

import { standstillMs } from "./standstill.ts";

/** Steal time of each processor since boot, ms: from /proc/stat, in ticks of 10 ms. */
function stolenMs(): number[] {
  const lines = readFileSync("/proc/stat", "latin1").matchAll(/^cpu\d+ (.*)$/gm);
  return Array.from(lines, ([, columns = ""]) => Number(columns.split(" ")[7] ?? "0") * 10);
}

/** How long a thread has been ready to run without a core, ms: schedstat's second number (CONFIG_SCHED_INFO). */
function waitedMs(task: string): number {
  try {
    return Number(readFileSync(`${task}/schedstat`, "latin1").split(" ")[1] ?? "0") / 1e6;
  } catch {
    return 0; // ended
  }
}

/** `waitedMs` of every thread of a process; empty once it has ended. */
function waits(pid: number): [task: string, ms: number][] {
  try {
    const tasks = readdirSync(`/proc/${pid}/task`).map((tid) => `/proc/${pid}/task/${tid}`);
    return tasks.map((task) => [task, waitedMs(task)]);
  } catch {
    return [];
  }
}

/**
 * Starts a watch. The returned function says, in ms, how long the machine has stood still since then, or how long other programs or machines
 * kept these processes from running. The result is the standstill or, if that is larger, the sum of the threads' waits, because each thread may
 * have waited for the others. Call it now and then: the wait of a thread is lost once it has ended.
 */
export function watchWithoutCore(...pids: readonly number[]): () => number {
  const before = new Map(pids.flatMap(waits));
  /** The highest value of each thread since the watch began. */
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
