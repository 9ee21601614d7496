/** The JavaScript runtime: which Node is needed, and what V8's garbage collector is told. */
import { existsSync } from "node:fs";
// The default import: Node before 22.1 has no enableCompileCache, and would end with a SyntaxError instead of the message.
import module from "node:module";
import { PerformanceObserver } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";

/** As package.json's "engines" say. */
const OLDEST_NODE = [22, 12] as const;

/** Why this Node cannot run the program, and what to do; undefined: it can. Loaded by any Node from 18 on. */
export function nodeProblem(version: string): string | undefined {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1])) return undefined;
  return `Node ${OLDEST_NODE.join(".")} or later is needed, and this is ${version}: "npm install" puts one at node_modules/.bin/node`;
}

export const COLLECTOR_FLAGS = [
  // In the pauses of a collection V8 shares the work with helper threads, and waits for each that has begun: where the cores are busy with
  // something else, other programs or a large commit in the kernel, that takes ten times as long as all of the work. Alone it takes
  // hardly longer than with helpers that have a core (test/bench/README.md). Marking and sweeping go on beside the program and keep their threads.
  "--no-parallel-scavenge",
  "--no-parallel-compaction",
  "--no-parallel-pointer-update",
  "--no-parallel-weak-ref-clearing",
  // The heap is collected when it has doubled. V8 lets a small one become four times as large, and what was read to build 50 MB then leaves
  // holes among them that stay resident.
  "--heap-growing-percent=100",
] as const;

/** For what is collected from here on. */
export function setUpCollector(): void {
  for (const flag of COLLECTOR_FLAGS) setFlagsFromString(flag);
}

/**
 * Of V8's young generation, in which new objects begin, both halves together, bytes. V8 lets it grow to 32 MiB while many objects are read,
 * never takes that back, and then pauses the program for 10 ms at a time to collect it. With 4 MiB a pause takes 1 ms, and what is read is
 * read in less time, not in more (test/bench/README.md). --max-semi-space-size says the same, but on the command line alone.
 */
const ENOUGH = 4 << 20;

/** V8 reads it whenever it is about to make the young generation larger; 1 leaves it as it is. */
function growBy(factor: 1 | 2 | 16): void {
  setFlagsFromString(`--semi-space-growth-factor=${factor}`);
}

/** Keeps the young generation as it is: for work that the event loop has no turn in, loading modules say. */
function holdYoungGeneration(): void {
  growBy(1);
}

/**
 * V8's compilers to machine code pay off with many services only. Without them, 100 services take 11 MB less resident memory and as much CPU; a load of 10,000
 * takes twice as long. `--max-optimized-bytecode-size=0` stops them too, but for good: V8 gives up on each
 * function that it refuses once.
 */
const UNOPTIMIZED = ["--no-turbofan", "--no-maglev", "--no-sparkplug", ...askAgainAfter(16)] as const;
const OPTIMIZED = ["--turbofan", "--maglev", "--sparkplug", ...askAgainAfter(3000)] as const;

/**
 * Number of calls after which V8 considers again whether to optimize a function; 3,000 is its default. A function that has begun to count down from 3,000
 * while nothing was optimized would go on slowly for as long: a load of 10,000 services took 10 to 20 % more CPU.
 */
function askAgainAfter(calls: number): readonly string[] {
  return [`--invocation-count-for-turbofan=${calls}`];
}

/** Number of services above which optimized code saves more than it costs. */
export const MANY_SERVICES = 200;

/** For a daemon's start, before the number of services is known: nothing is optimized, and the young generation does not grow. */
export function setUpForFewServices(): void {
  holdYoungGeneration();
  for (const flag of UNOPTIMIZED) setFlagsFromString(flag);
}

/** For more than MANY_SERVICES: from here on code is optimized, and the young generation grows until it is large enough. */
export function setUpForManyServices(): void {
  for (const flag of OPTIMIZED) setFlagsFromString(flag);
  limitYoungGeneration();
}

let limiting: PerformanceObserver | undefined;

/** From here on it grows as it needs to until it is large enough, and then stays so. */
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

/** To where V8 lets it grow, in one go: a command asks, prints and ends; nothing waits in its pauses, and collections would be a third of its work. */
export function letYoungGenerationGrow(): void {
  growBy(16);
}

/**
 * Has V8 take the compiled code of modules from `directory`, where there is one: the image's build makes it. V8 takes such code with the
 * flags alone that it was compiled with, which `letYoungGenerationGrow` is one of: so this comes after it, and is for commands. A
 * daemon's flags are not the same all through its start, which the code would shorten by 3 %.
 */
export function useCodeCache(directory: URL): void {
  if (existsSync(directory)) module.enableCompileCache(fileURLToPath(directory));
}
