/**
 * The last step after a refused write. First the write is retried after a fresh read (Table.apply), then without the
 * services at fault (Quarantine). After some refusals in a row, the table is deleted and written from scratch. So even
 * an unforeseen fault in the table does not keep changes of services from the kernel.
 */
import { Backoff } from "../base/backoff.js";
import type { Clock, TableError } from "../nft/engine-exports.js";

/**
 * Refusals in a row, each after a fresh read, before the table is written from scratch. The pace of failed writes puts
 * 0.1 s between them.
 */
const REFUSALS = 2;
/** Waits if the kernel rejects that as well, ms: the first, and the longest. */
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 300_000;
/** Errors that also affect a table written from scratch, or that are temporary. */
const NOT_THE_TABLE: ReadonlySet<string> = new Set(["EPERM", "ENOMEM", "ENOBUFS", "EAGAIN", "EINTR"]);

export class LastResort {
  readonly #backoff = new Backoff({ firstMs: FIRST_WAIT_MS, longestMs: LONGEST_WAIT_MS });
  #refusals = 0;
  #notBefore = Number.NEGATIVE_INFINITY;

  constructor(private readonly clock: Clock) {}

  /** Refusals in a row. */
  get refusals(): number {
    return this.#refusals;
  }

  /**
   * A write was refused, but no service is at fault. Returns the time until the table must be written from scratch, ms
   * (0: now). Returns undefined if that would not help.
   */
  refused({ code, faulty }: TableError): number | undefined {
    if (code !== "refused" || faulty.some(({ errno }) => NOT_THE_TABLE.has(errno))) return undefined;
    this.#refusals++;
    const wait = Math.max(0, this.#notBefore - this.clock.now());
    return this.#refusals < REFUSALS ? Math.max(1, wait) : wait;
  }

  /** The kernel has accepted a write. */
  over(): void {
    this.#refusals = 0;
    this.#backoff.reset();
  }

  /** The kernel has also rejected the table from scratch. Returns the time until the next attempt, ms. */
  failed(): number {
    const waitMs = this.#backoff.next();
    this.#notBefore = this.clock.now() + waitMs;
    return waitMs;
  }
}
