/** The rule for all growing waits: each failure in a row doubles the wait, up to a limit. */

export interface BackoffOptions {
  readonly firstMs: number;
  /** Upper limit of each wait, ms. */
  readonly longestMs: number;
  /**
   * Lengthens each wait by a random part of itself, as client-go does, so that clients of one server spread out. Default:
   * false.
   */
  readonly jitter?: boolean;
}

export class Backoff {
  #failures = 0;

  constructor(private readonly options: BackoffOptions) {}

  get failures(): number {
    return this.#failures;
  }

  /** Counts a failure, and returns how long to wait before the next attempt, ms. */
  next(): number {
    const { firstMs, longestMs, jitter = false } = this.options;
    // Limits the exponent, because 2 ** 1024 is Infinity.
    const waitMs = Math.min(firstMs * 2 ** Math.min(this.#failures++, 52), longestMs);
    return jitter ? waitMs * (1 + Math.random()) : waitMs;
  }

  /** Call it after a success: the next failure counts as the first. */
  reset(): void {
    this.#failures = 0;
  }
}
