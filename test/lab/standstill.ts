/**
 * How long the machine stood still: a thread of its own that wakes every few milliseconds notes by how much it came late. Counts
 * whatever the cause: other programs, the host's other machines (also where the host does not tell, so that /proc/stat's
 * steal is 0), a machine that was halted.
 */
import { Worker } from "node:worker_threads";

/** How often the thread wakes, ns. */
const TICK_NS = 5_000_000n;
/** Late by up to this is a timer's own, ns. */
const OWN_NS = 5_000_000n;

/** Of the shared memory: when the thread last woke, and by how much it was late since it began; ns. */
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

/** For how long the machine has stood still since the first call, ms; that begins the watch. */
export function standstillMs(): number {
  shared ??= start();
  // Read before the other, so that nothing is counted twice where the thread wakes in between.
  const late = Atomics.load(shared, LATE);
  const now = process.hrtime.bigint() - Atomics.load(shared, WOKE) - TICK_NS;
  return Number(late + (now > OWN_NS ? now : 0n)) / 1e6;
}
