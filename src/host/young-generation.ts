/**
 * The size of V8's young generation, in which new objects begin. V8 lets it grow to 32 MiB while many objects are read, never
 * takes that back, and then pauses the program for 10 ms at a time to collect it. With 4 MiB a pause takes 1 ms, and what is read
 * is read in less time, not in more (test/bench/README.md).
 */
import { PerformanceObserver } from "node:perf_hooks";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";

/** Both halves together, bytes. */
const ENOUGH = 4 << 20;

/** V8 reads it whenever it is about to make the young generation larger; 1 leaves it as it is. */
function growBy(factor: 1 | 2): void {
  setFlagsFromString(`--semi-space-growth-factor=${factor}`);
}

/** Keeps the young generation as it is: for work that the event loop has no turn in, loading modules say. */
export function holdYoungGeneration(): void {
  growBy(1);
}

/** From here on it grows as it needs to until it is large enough, and then stays so. */
export function limitYoungGeneration(): void {
  const observer = new PerformanceObserver(() => {
    const size = getHeapSpaceStatistics().find((space) => space.space_name === "new_space")?.space_size ?? 0;
    if (size < ENOUGH) return;
    growBy(1);
    observer.disconnect();
  });
  observer.observe({ entryTypes: ["gc"] });
  growBy(2);
}
