/**
 * Decides when to retry while another program owns the table (NFT_TABLE_F_OWNER). Attempts back off. No event reports
 * that an owner has exited: nft_rcv_nl_event clears the flag or frees the table, and sends no event. So the table is
 * also checked between attempts. A check asks the kernel for a few bytes, writes nothing, and does not count as a
 * failed attempt.
 */
import type { IpFamily } from "../base/ip.js";
import { Backoff } from "../base/backoff.js";
import type { Logger } from "../base/logger.js";
import type { Clock, Table, TableError } from "../nft/engine-exports.js";

/** Time between the first two attempts, ms. It doubles up to the sync period. */
const FIRST_WAIT_MS = 1000;
/** Interval between checks of the table, ms. */
const CHECK_MS = 500;

interface OwnerWaitOptions {
  readonly log: Logger;
  readonly clock: Clock;
  /** nftables.syncPeriod, ms. */
  readonly syncPeriodMs: number;
  /** Requests a write now. */
  readonly request: () => void;
}

interface Held {
  readonly error: TableError;
  readonly since: number;
  readonly notBefore: number;
}

export class OwnerWait {
  readonly #backoff: Backoff;
  #held: Held | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(
    private readonly family: IpFamily,
    private readonly table: Table,
    private readonly options: OwnerWaitOptions,
  ) {
    this.#backoff = new Backoff({ firstMs: FIRST_WAIT_MS, longestMs: options.syncPeriodMs });
  }

  /** The refusal that we wait for, and the time until the next attempt, ms. Undefined if a write may be tried. */
  get waiting(): { readonly error: TableError; readonly againMs: number } | undefined {
    if (this.#held === undefined) return undefined;
    const againMs = this.#held.notBefore - this.options.clock.now();
    return againMs <= 0 ? undefined : { error: this.#held.error, againMs };
  }

  /** Whether another program owned the table at the last attempt. */
  get held(): boolean {
    return this.#held !== undefined;
  }

  /** An attempt was rejected because of the owner. Returns whether that is new. */
  refused(error: TableError): boolean {
    const { clock } = this.options;
    const former = this.#held?.error.owner === error.owner ? this.#held : undefined;
    if (former === undefined) this.#backoff.reset();
    const now = clock.now();
    this.#held = { error, since: former?.since ?? now, notBefore: now + this.#backoff.next() };
    this.#checkLater();
    return former === undefined;
  }

  /** An attempt had another result, so no other program owns the table. */
  over(): void {
    if (this.#held === undefined) return;
    const { log, clock } = this.options;
    const seconds = Math.round((clock.now() - this.#held.since) / 1000);
    this.#held = undefined;
    clearTimeout(this.#timer);
    log.info({ family: this.family, seconds }, "table released by its owner");
  }

  /** The table was created or deleted, so its owner may have released it. */
  check(): void {
    if (this.#held !== undefined) void this.#check();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #checkLater(): void {
    clearTimeout(this.#timer);
    if (this.#closed) return;
    this.#timer = setTimeout(() => void this.#check(), CHECK_MS);
    this.#timer.unref();
  }

  async #check(): Promise<void> {
    const held = this.#held;
    let free = false;
    try {
      free = !(await this.table.ownedByOther());
    } catch {
      // The next attempt reports the error.
    }
    // Meanwhile another attempt was made.
    if (this.#closed || held === undefined || this.#held !== held) return;
    if (!free) return this.#checkLater();
    this.#held = { ...held, notBefore: Number.NEGATIVE_INFINITY };
    this.options.request();
  }
}
