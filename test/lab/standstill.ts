/**
 * Measures how long the machine stood still. A separate thread wakes every few milliseconds and records how late it was. It counts any
 * cause: other programs, the host's other machines (even if the host does not report steal in /proc/stat), a suspended machine.
 */
import { Worker } from "node:worker_threads";

/** Interval at which the thread wakes, ns. */
const TICK_NS = 5_000_000n;
/** Delay that timers have anyway, ns. */
const OWN_NS = 5_000_000n;

/** Fields of the shared memory: time of the thread's last wake-up, and the sum of its delays; ns. */
const WOKE = 0;
const LATE = 1;

const THREAD = `
const { workerData: { memory, tick, own } } = require("node:worker_threads");
const shared = new BigInt64Array(memory);
const never = new Int32Array(new SharedArrayBuffer(4));
for (;;) {
  Atomics.wait(never, 0, 0, Number(tick) / 1e6);
  const now = process.hrtime.bigint();
  const late = now - Atomics.load(shared, ${WOKE}) - tick;
  if (late > own) Atomics.add(shared, ${LATE}, late);
  Atomics.store(shared, ${WOKE}, now);
}`;

let shared: BigInt64Array | undefined;

function start(): BigInt64Array {
  const memory = new SharedArrayBuffer(2 * BigInt64Array.BYTES_PER_ELEMENT);
  const started = new BigInt64Array(memory);
  started[WOKE] = process.hrtime.bigint();
  new Worker(THREAD, { eval: true, workerData: { memory, tick: TICK_NS, own: OWN_NS } }).unref();
  return started;
}

/** Returns how long the machine has stood still since the first call, in ms. The first call starts the watch. */
export function standstillMs(): number {
  shared ??= start();
  // Read this one first, so that nothing is counted twice if the thread wakes in between.
  const late = Atomics.load(shared, LATE);
  const now = process.hrtime.bigint() - Atomics.load(shared, WOKE) - TICK_NS;
  return Number(late + (now > OWN_NS ? now : 0n)) / 1e6;
}
