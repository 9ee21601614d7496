/** What V8's garbage collector is told; its young generation is another matter (young-generation.ts). */
import { setFlagsFromString } from "node:v8";

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
