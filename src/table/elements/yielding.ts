import { yieldToEventLoop } from "../../base/time-slice.js";

/** Records handled between two turns of the event loop: well below 20 ms even on a slow core. */
const CHUNK = 8_192;

/**
 * Does `work` on the records from 0 to `count`, some at a time. A loop that waits in its midst is slow: V8 optimizes it only to
 * throw that away at its first wait.
 */
export async function inSlices(count: number, work: (from: number, to: number) => void): Promise<void> {
  for (let from = 0; from < count; from += CHUNK) {
    if (from > 0) await yieldToEventLoop();
    work(from, Math.min(from + CHUNK, count));
  }
}
