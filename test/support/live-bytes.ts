/** Memory that V8 and Node hold in this process after a full garbage collection: a figure that does not depend on when V8 collects. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

let collect: (() => void) | undefined;

/** Collects garbage. Works in a process that was started without `--expose-gc`. */
export function collectGarbage(): void {
  if (collect === undefined) {
    setFlagsFromString("--expose-gc");
    collect = runInNewContext("gc") as () => void;
    setFlagsFromString("--no-expose-gc");
  }
  collect();
}

/** Bytes of reachable objects, and of buffers outside of the heap. */
export function liveBytes(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
