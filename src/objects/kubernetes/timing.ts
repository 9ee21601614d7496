/** How long to wait for what. All in ms, all to be shortened by tests. */
import { Backoff } from "../../base/backoff.js";

export interface Timing {
  /** Wait after the first failure, doubled with every further one up to `maxBackoffMs`, each stretched by up to its own length. */
  readonly minBackoffMs: number;
  readonly maxBackoffMs: number;
  /** A watch that lived so long was a success: the next failure is a first one. */
  readonly resetAfterMs: number;
  /** A watch lasts so long, and up to twice as long; then the server ends it. */
  readonly watchMs: number;
  /** A watch without a byte for so long is dead. A server sends a bookmark every minute. */
  readonly watchIdleMs: number;
  /** Any other answer without a byte for so long is dead, its beginning included. */
  readonly answerIdleMs: number;
  /** A kind that the server does not have or does not let us see is asked for again after so long. */
  readonly absentMs: number;
  /** A failure that goes on is logged again after so long. */
  readonly repeatLogMs: number;
  /** A list that goes on is reported so often. */
  readonly progressMs: number;
}

/** Back-off and the length of a watch are those of client-go's reflector. */
export const TIMING: Timing = {
  minBackoffMs: 800,
  maxBackoffMs: 30_000,
  resetAfterMs: 10_000,
  watchMs: 300_000,
  watchIdleMs: 150_000,
  answerIdleMs: 60_000,
  absentMs: 600_000,
  repeatLogMs: 300_000,
  progressMs: 2_000,
};

/** Exponential, with jitter. */
export function backoffOf(timing: Pick<Timing, "minBackoffMs" | "maxBackoffMs">): Backoff {
  return new Backoff({ firstMs: timing.minBackoffMs, longestMs: timing.maxBackoffMs, jitter: true });
}

/** Resolves after `ms`, or when `signal` aborts; never rejects. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await new Sleep().for(ms, signal);
}

/** A pause that can be ended. */
export class Sleep {
  #wake: (() => void) | undefined;

  /** Resolves after `ms`, when `signal` aborts, or when `wake` is called; never rejects. */
  async for(ms: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
      signal.addEventListener("abort", this.#wake, { once: true });
    });
    if (this.#wake !== undefined) signal.removeEventListener("abort", this.#wake);
    this.#wake = undefined;
  }

  /** Ends the sleep, when there is one. */
  wake(): void {
    this.#wake?.();
  }
}
