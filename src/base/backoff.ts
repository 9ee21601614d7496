/** The one way in which waits grow: twice as long after each failure in a row, up to a bound. */

export interface BackoffOptions {
  /** The first wait, ms. */
  readonly firstMs: number;
  /** No wait is longer, ms. */
  readonly longestMs: number;
  /** Each wait is stretched by a random part of its own length, as client-go does: many clients of one server spread out. Default: no. */
  readonly jitter?: boolean;
}

export class Backoff {
  readonly #options: BackoffOptions;
  #failures = 0;

  constructor(options: BackoffOptions) {
    this.#options = options;
  }

  /** Failures in a row, since the start or `reset`. */
  get failures(): number {
    return this.#failures;
  }

  /** Counts a failure, and returns how long to wait before the next attempt, ms. */
  next(): number {
    const { firstMs, longestMs, jitter = false } = this.#options;
    // Bounded: 2 ** 1024 would be no number.
    const waitMs = Math.min(firstMs * 2 ** Math.min(this.#failures++, 52), longestMs);
    return jitter ? waitMs * (1 + Math.random()) : waitMs;
  }

  /** An attempt went well: the next failure is a first one. */
  reset(): void {
    this.#failures = 0;
  }
}
