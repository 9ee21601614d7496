/** Measures time, memory and how long the event loop is held, for programs that measure themselves. */
import { openSync, readFileSync, readSync } from "node:fs";
import { performance } from "node:perf_hooks";

/** Returns a field of /proc/self/status in bytes: VmRSS, VmHWM. */
export const memory = (field) =>
  Number(new RegExp(`${field}:\\s+(\\d+)`).exec(readFileSync("/proc/self/status", "utf8"))[1]) * 1024;

/**
 * Size of the largest send buffer without CAP_NET_ADMIN in the first user namespace, bytes: the kernel doubles the requested size, up to
 * net.core.wmem_max. If that is not shown, uses its default, 212992.
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
 * Whether to run another round: on a busy machine the best of few rounds says little. `times` are pairs of a measured time and its
 * reference.
 */
export function wantsMore(times, rounds) {
  if (times.length < rounds) return true;
  const best = (which) => Math.min(...times.map((pair) => pair[which]));
  return times.length < 10 * rounds && best(0) > 1.8 * best(1);
}

/** Reads a file of /proc repeatedly into the same memory, because memory is measured here, too; "" if there is no file. */
function reader(path) {
  const buffer = Buffer.alloc(4096);
  try {
    const file = openSync(path, "r");
    return () => buffer.latin1Slice(0, readSync(file, buffer, 0, buffer.length, 0));
  } catch {
    return () => "";
  }
}

/** How long the main thread was ready to run without a core, ms: schedstat's second number (CONFIG_SCHED_INFO). */
const schedstat = reader("/proc/thread-self/schedstat");
const waitedMs = () => Number(schedstat().split(" ")[1] ?? "0") / 1e6;

/** Time for which the host ran something else, for each processor, ms: steal of /proc/stat, in ticks of 10 ms. */
const stat = reader("/proc/stat");
const stolenMs = () =>
  Array.from(stat().matchAll(/^cpu\d+ (.*)$/gm), ([, all]) => Number(all.split(" ")[7] ?? "0") * 10);

/** The host's other machines take longer than this, and the kernel counts it some ticks later. */
const LOOK_INTO_MS = 10;
const COUNTED_AFTER_MS = 20;

/**
 * Watches the event loop with a timer of a millisecond. The returned function stops that and returns the longest time that the loop was
 * held, in ms. It subtracts the time in which other threads or other machines had the core.
 */
export function watchLoop() {
  let longest = 0;
  let last = performance.now();
  let waited = waitedMs();
  let stolen = stolenMs();
  let stolenAt = last;
  /** A long delay whose stolen time may not be fully counted yet. */
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
    // If two delays are close together, only the longer one counts: they share the stolen time.
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
