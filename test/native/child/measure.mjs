/** Time, memory and how long the event loop is held, for programs that measure themselves. */
import { openSync, readFileSync, readSync } from "node:fs";
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

/** Reads a file of /proc again and again into the same memory, which is measured here too; "" where there is none. */
function reader(path) {
  const buffer = Buffer.alloc(4096);
  try {
    const file = openSync(path, "r");
    return () => buffer.latin1Slice(0, readSync(file, buffer, 0, buffer.length, 0));
  } catch {
    return () => "";
  }
}

/** How long the main thread was ready to run and had no core, ms: schedstat's second number (CONFIG_SCHED_INFO). */
const schedstat = reader("/proc/thread-self/schedstat");
const waitedMs = () => Number(schedstat().split(" ")[1] ?? "0") / 1e6;

/** Of each processor, how long its host has run something else, ms: steal of /proc/stat, in ticks of 10 ms. */
const stat = reader("/proc/stat");
const stolenMs = () =>
  Array.from(stat().matchAll(/^cpu\d+ (.*)$/gm), ([, all]) => Number(all.split(" ")[7] ?? "0") * 10);

/** The host's other machines take longer than this, and the kernel has counted it some ticks later. */
const LOOK_INTO_MS = 10;
const COUNTED_AFTER_MS = 20;

/**
 * Watches the event loop with a timer of a millisecond; what it returns stops that and gives the longest time, ms, that the loop
 * was held, less what the thread stood still in for others: for threads that had the core, and for the host's other
 * machines. Both say how busy the machine is.
 */
export function watchLoop() {
  let longest = 0;
  let last = performance.now();
  let waited = waitedMs();
  let stolen = stolenMs();
  let stolenAt = last;
  /** A long time of which not all that was stolen may be counted yet. */
  let pending;
  const settle = () => {
    const others = Math.max(0, ...stolenMs().map((ms, cpu) => ms - pending.stolen[cpu]));
    longest = Math.max(longest, pending.ms - others);
    pending = undefined;
  };
  const look = () => {
    const now = performance.now();
    const waitedNow = waitedMs();
    const ms = now - last - (waitedNow - waited);
    if (ms < LOOK_INTO_MS) longest = Math.max(longest, ms);
    // Of two that are close together the longer one counts: they share what was stolen.
    else if (pending === undefined || ms > pending.ms) pending = { ms, at: now, stolen: pending?.stolen ?? stolen };
    if (pending !== undefined && now - pending.at > COUNTED_AFTER_MS) settle();
    if (pending === undefined && now - stolenAt > COUNTED_AFTER_MS) {
      stolen = stolenMs();
      stolenAt = now;
    }
    waited = waitedNow;
    last = now;
  };
  const timer = setInterval(look, 1);
  return async () => {
    look();
    clearInterval(timer);
    if (pending !== undefined) {
      await new Promise((resolve) => setTimeout(resolve, COUNTED_AFTER_MS));
      settle();
    }
    return longest;
  };
}
