/** The JavaScript runtime: the Node version needed, and the settings of V8's garbage collector. */
import { existsSync } from "node:fs";
// The default import: Node before 22.1 has no enableCompileCache, and would end with a SyntaxError instead of the message.
import module from "node:module";
import { PerformanceObserver } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";

/** The same as "engines" in package.json. */
const OLDEST_NODE = [22, 12] as const;

/**
 * Why this Node cannot run the program, and how to fix it. Returns undefined if it can. Any Node from 18 on can load this
 * module.
 */
export function nodeProblem(version: string): string | undefined {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1])) return undefined;
  return `this is Node ${version}, but Node ${OLDEST_NODE.join(".")} or later is required. Run \`npm run build\`, then use node_modules/.bin/node`;
}

export const COLLECTOR_FLAGS = [
  // In the pauses of a collection V8 shares the work with helper threads, and waits for each helper that has started. If other
  // programs or a large commit in the kernel keep the cores busy, the wait takes ten times as long as the whole work.
  // Without helpers a pause takes hardly longer than with helpers on idle cores (test/bench/README.md). Marking and
  // sweeping run beside the program and keep their threads.
  "--no-parallel-scavenge",
  "--no-parallel-compaction",
  "--no-parallel-pointer-update",
  "--no-parallel-weak-ref-clearing",
  // Collect the heap whenever it has doubled. V8 lets a small heap grow to four times its size. Temporary objects from
  // building 50 MB then leave holes that stay resident.
  "--heap-growing-percent=100",
] as const;

export function setUpCollector(): void {
  for (const flag of COLLECTOR_FLAGS) setFlagsFromString(flag);
}

/**
 * Enough for both halves together of V8's young generation, where new objects start, bytes. While many objects are read, V8
 * lets it grow to 32 MiB. It never shrinks it again, and then pauses the program for 10 ms per collection. With 4 MiB a
 * pause takes 1 ms, and reading takes less time, not more (test/bench/README.md). --max-semi-space-size sets the same
 * limit, but only works on the command line.
 */
const ENOUGH = 4 << 20;

/** V8 reads this factor whenever it is about to enlarge the young generation; 1 keeps its size. */
function growBy(factor: 1 | 2 | 16): void {
  setFlagsFromString(`--semi-space-growth-factor=${factor}`);
}

/**
 * Keeps the size of the young generation. For work that does not return to the event loop, such as loading modules. Also
 * for commands that handle many objects but keep none: it would grow to 100 MB of garbage.
 */
export function holdYoungGeneration(): void {
  growBy(1);
}

/**
 * V8's compilers to machine code only pay off with many services. Without them, 100 services take 11 MB less resident
 * memory and the same CPU; loading 10,000 takes twice as long. `--max-optimized-bytecode-size=0` also stops them, but for
 * good: V8 gives up on each function that it has rejected once. `--optimize-for-size` makes
 * collections leave fewer holes, but many services would take a fifth more CPU.
 */
const UNOPTIMIZED = "--no-turbofan --no-maglev --no-sparkplug --optimize-for-size";
const OPTIMIZED = "--turbofan --maglev --sparkplug --no-optimize-for-size";

/**
 * Number of calls after which V8 considers again whether to optimize a function; the default is 3,000. A function that
 * started to count down from 3,000 while the compilers were off would stay slow that long. Loading 10,000 services then
 * took 10 to 20 % more CPU.
 */
const ASK_AGAIN_AFTER = "--invocation-count-for-turbofan";

/** Number of services above which optimized code saves more than it costs. */
export const MANY_SERVICES = 200;

/**
 * For the start of a daemon, before the number of services is known: nothing is optimized, and the young generation does
 * not grow.
 */
export function setUpForFewServices(): void {
  holdYoungGeneration();
  setFlagsFromString(`${UNOPTIMIZED} ${ASK_AGAIN_AFTER}=16`);
}

/** For more than MANY_SERVICES: from now on V8 optimizes code, and lets the young generation grow until it is large enough. */
export function setUpForManyServices(): void {
  setFlagsFromString(`${OPTIMIZED} ${ASK_AGAIN_AFTER}=3000`);
  limitYoungGeneration();
}

let limiting: PerformanceObserver | undefined;

/** Lets the young generation grow on demand until it is large enough, and then keeps its size. */
function limitYoungGeneration(): void {
  limiting = new PerformanceObserver(() => {
    const size = getHeapSpaceStatistics().find((space) => space.space_name === "new_space")?.space_size ?? 0;
    if (size < ENOUGH) return;
    growBy(1);
    limiting?.disconnect();
  });
  limiting.observe({ entryTypes: ["gc"] });
  growBy(2);
}

/**
 * Lets the young generation grow up to V8's own limit. For a command that asks, prints and ends: nothing waits during its
 * pauses, and collections would be a third of its work.
 */
export function letYoungGenerationGrow(): void {
  growBy(16);
}

/**
 * Makes V8 load compiled modules from `directory`, if it exists: the image build creates it. V8 accepts compiled code only
 * with the flags that it was compiled with. `letYoungGenerationGrow` sets one of these, so call it before. Only for
 * commands: a daemon's flags change during its start, which the code would only shorten by 3 %.
 */
export function useCodeCache(directory: URL): void {
  if (existsSync(directory)) module.enableCompileCache(fileURLToPath(directory));
}
