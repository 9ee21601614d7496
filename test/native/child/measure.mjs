/** Time, memory and how long the event loop is held, for programs that measure themselves. */
import { readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";

/** A field of /proc/self/status in bytes: VmRSS, VmHWM. */
export const memory = (field) =>
  Number(new RegExp(`${field}:\\s+(\\d+)`).exec(readFileSync("/proc/self/status", "utf8"))[1]) * 1024;

/**
 * Bytes of the largest send buffer without CAP_NET_ADMIN in the first user namespace: the kernel doubles what is asked for, up
 * to net.core.wmem_max; 212992 is its default where it is not shown.
 */
export function largestBuffer() {
  try {
    return 2 * Number(readFileSync("/proc/sys/net/core/wmem_max", "utf8"));
  } catch {
    return 2 * 212_992;
  }
}

export async function timed(work) {
  const start = performance.now();
  const result = await work();
  return { ms: performance.now() - start, result };
}

/**
 * Whether one more round tells more: the best of few say little on a machine that others keep busy. `times` are pairs, what
 * is measured and what it is held against.
 */
export function wantsMore(times, rounds) {
  if (times.length < rounds) return true;
  const best = (which) => Math.min(...times.map((pair) => pair[which]));
  return times.length < 4 * rounds && best(0) > 1.8 * best(1);
}

/** How often the main thread was given a core (schedstat's third number). */
function turnsOnCore() {
  try {
    return Number(readFileSync("/proc/thread-self/schedstat", "utf8").split(" ")[2]);
  } catch {
    return 0; // a kernel without CONFIG_SCHED_INFO
  }
}

/**
 * The longest time, ms, between two turns of the event loop. Those in which the scheduler gave the core to other work do
 * not count: they say how busy the machine is.
 */
export function watchLoop() {
  let longest = 0;
  let running = true;
  let last = performance.now();
  let lastOnCore = turnsOnCore();
  const turn = () => {
    const now = performance.now();
    const onCore = turnsOnCore();
    if (onCore === lastOnCore) longest = Math.max(longest, now - last);
    lastOnCore = onCore;
    if (running) setImmediate(turn);
    last = performance.now();
  };
  setImmediate(turn);
  return () => {
    running = false;
    return longest;
  };
}
