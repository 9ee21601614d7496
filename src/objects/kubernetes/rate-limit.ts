/** client-go's defaults, used if the configuration says 0. */
const DEFAULT_QPS = 5;
const DEFAULT_BURST = 10;

/** At most `burst` requests at once, then `qps` per second (clientConnection.qps and .burst). */
export class RateLimit {
  readonly #perMs: number;
  readonly #burst: number;
  /** Requests that may start now; a negative number counts waiting requests. */
  #tokens: number;
  #filledAt: number;

  /** @param qps 0: client-go's defaults; negative: no limit. */
  constructor(
    qps: number,
    burst: number,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.#perMs = (qps === 0 ? DEFAULT_QPS : qps < 0 ? Infinity : qps) / 1000;
    this.#burst = burst <= 0 ? DEFAULT_BURST : burst;
    this.#tokens = this.#burst;
    this.#filledAt = now();
  }

  /** Reserves a place in the queue. Returns how long to wait for it, ms. */
  reserve(): number {
    if (this.#perMs === Infinity) return 0;
    const now = this.now();
    this.#tokens = Math.min(this.#burst, this.#tokens + (now - this.#filledAt) * this.#perMs);
    this.#filledAt = now;
    this.#tokens -= 1;
    return this.#tokens >= 0 ? 0 : -this.#tokens / this.#perMs;
  }
}
