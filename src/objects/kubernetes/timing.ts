/** Times for waiting, all in ms. Tests can shorten all of them. */
import timers from "node:timers/promises";
import { Backoff } from "../../base/backoff.js";

export interface Timing {
  /** Wait after the first failure. Each further failure doubles it, up to `maxBackoffMs`; jitter adds up to the same length. */
  readonly minBackoffMs: number;
  readonly maxBackoffMs: number;
  /** Longest wait before the next attempt to reach a server that no request reaches; jitter adds up to the same length. */
  readonly reconnectMs: number;
  /** A watch that lasted this long was a success: the next failure counts as the first. */
  readonly resetAfterMs: number;
  /** A watch lasts this long, up to twice as long; then the server ends it. */
  readonly watchMs: number;
  /** A watch without a byte for this long is dead. A server sends a bookmark every minute. */
  readonly watchIdleMs: number;
  /** Any other answer without a byte for this long is dead, including its start. */
  readonly answerIdleMs: number;
  /** Wait before asking again for a kind that the server does not have or does not show us. */
  readonly absentMs: number;
  /** Interval at which a continuing failure is logged again. */
  readonly repeatLogMs: number;
  /** Interval at which the progress of a list is logged. */
  readonly progressMs: number;
}

/** Backoff and duration of watches are those of client-go's reflector, except `reconnectMs`. */
export const TIMING: Timing = {
  minBackoffMs: 800,
  maxBackoffMs: 30_000,
  reconnectMs: 4_000,
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

/** Resolves after `ms`, or if `signal` aborts; never rejects. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await timers.setTimeout(ms, undefined, { signal }).catch(() => undefined);
}
