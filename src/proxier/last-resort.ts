/**
 * The last of a sequence: a write that the kernel refuses is tried again on a fresh read (Table.apply), then without services that are at fault
 * (Quarantine), and after some refusals in a row the table is deleted and written from scratch. So a fault in the table that nobody has
 * thought of does not keep changes of services from the kernel.
 */
import { Backoff } from "../base/backoff.js";
import type { Clock, TableError } from "../table/table-exports.js";

/** Refusals in a row before the table is written from scratch, each on a fresh read; 0.1 s apart by the pace of failed writes. */
const REFUSALS = 2;
/** Until the next try when the kernel refuses that, too, ms: the first, and the longest. */
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 300_000;
/** Errors that a table written from scratch would meet as well, or that pass. */
const NOT_THE_TABLE: ReadonlySet<string> = new Set(["EPERM", "ENOMEM", "ENOBUFS", "EAGAIN", "EINTR"]);

export class LastResort {
  readonly #clock: Clock;
  readonly #backoff = new Backoff({ firstMs: FIRST_WAIT_MS, longestMs: LONGEST_WAIT_MS });
  #refusals = 0;
  #notBefore = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Refusals in a row. */
  get refusals(): number {
    return this.#refusals;
  }

  /** A write was refused for no service's fault. Returns the ms until the table is to be written from scratch (0: now); undefined: that is no remedy. */
  refused({ code, faulty }: TableError): number | undefined {
    if (code !== "refused" || faulty.some(({ errno }) => NOT_THE_TABLE.has(errno))) return undefined;
    this.#refusals++;
    const wait = Math.max(0, this.#notBefore - this.#clock.now());
    return this.#refusals < REFUSALS ? Math.max(1, wait) : wait;
  }

  /** The kernel has taken a write. */
  over(): void {
    this.#refusals = 0;
    this.#backoff.reset();
  }

  /** It has refused the table from scratch. Returns the ms until the next try. */
  failed(): number {
    const waitMs = this.#backoff.next();
    this.#notBefore = this.#clock.now() + waitMs;
    return waitMs;
  }
}
