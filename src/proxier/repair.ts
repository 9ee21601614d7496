/** When to repair a table that another process changed, and what to log of it. */
import type { IpFamily } from "../model/types.js";
import { Backoff } from "../base/backoff.js";
import type { Logger } from "../base/logger.js";
import type { ApplyResult, Clock, Drift, ForeignChange, Table } from "../table/index.js";
import type { Contention, Writer } from "./contention.js";
import type { ProxierObserver, RepairCause } from "./observer.js";

/** Repairs in a row without a wait: who reloads a firewall does so in a few transactions. */
const AT_ONCE = 5;
/** Wait after those, ms; doubles from there. */
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 10_000;
/** Against another proxier: wait after a repair, ms; doubles from there, up to this and the sync period. */
const FIRST_CONTENDED_WAIT_MS = 5000;
const LONGEST_CONTENDED_WAIT_MS = 30_000;
/** After this long without a repair the next one is at once again, ms. */
const QUIET_MS = 60_000;
/**
 * A look that found nothing to undo (a change that was undone by its author, or that is none of ours) may take this share of the time,
 * and keeps the next look waiting no longer than this.
 */
const LOOK_SHARE = 0.1;
const LONGEST_LOOK_WAIT_MS = 1000;
/** Kept of what was noticed before one repair. */
const MAX_NAMES = 5;
const MAX_CHANGES = 10;

/**
 * Back-off against a writer that keeps breaking a table: a few repairs are at once, each further one waits twice as long since the
 * last, up to 10 s, until there has been none for a minute. A second proxier keeps breaking it for as long as it runs: from the repair on
 * that shows it, the waits are 5 s to 30 s.
 */
export class RepairPace {
  #waitMs = 0;
  readonly #backoff = new Backoff({ firstMs: FIRST_WAIT_MS, longestMs: LONGEST_WAIT_MS });
  readonly #contended: Backoff;
  #inARow = 0;
  #last = Number.NEGATIVE_INFINITY;
  #notBefore = Number.NEGATIVE_INFINITY;

  /** @param syncPeriodMs a change that can only be written with a repair is to wait no longer. */
  constructor(syncPeriodMs = Number.POSITIVE_INFINITY) {
    const longestMs = Math.min(LONGEST_CONTENDED_WAIT_MS, syncPeriodMs);
    this.#contended = new Backoff({ firstMs: FIRST_CONTENDED_WAIT_MS, longestMs });
  }

  /** Ms until the next repair may be; 0: now. */
  waitMs(now: number): number {
    if (now - this.#last >= QUIET_MS) this.reset();
    return Math.max(0, this.#last + this.#waitMs - now, this.#notBefore - now);
  }

  /** The table was read, for so many ms, and there was nothing to undo. */
  looked(now: number, tookMs: number): void {
    this.#notBefore = now + Math.min(tookMs / LOOK_SHARE, LONGEST_LOOK_WAIT_MS);
  }

  /** A repair now waits as long as it does for any writer. */
  get isLongest(): boolean {
    return this.#waitMs >= LONGEST_WAIT_MS;
  }

  /** `contended`: another proxier is known to break the table. */
  repaired(now: number, contended = false): void {
    this.#inARow++;
    if (contended) this.#waitMs = this.#contended.next();
    else if (this.#inARow >= AT_ONCE) this.#waitMs = this.#backoff.next();
    this.#last = now;
  }

  /** Repairs are immediate again. */
  reset(): void {
    this.#waitMs = this.#inARow = 0;
    this.#backoff.reset();
    this.#contended.reset();
  }
}

/** What was noticed since the last repair. */
interface Noticed {
  /** ms of the clock. */
  readonly since: number;
  transactions: number;
  readonly changes: Set<string>;
  readonly by: Set<string>;
  /** By port. */
  readonly writers: Map<number, Writer>;
}

export interface FamilyRepairOptions {
  readonly log: Logger;
  readonly clock: Clock;
  readonly observers: readonly ProxierObserver[];
  readonly contention: Contention;
  /** nftables.syncPeriod, ms. */
  readonly syncPeriodMs: number;
}

export class FamilyRepair {
  readonly #family: IpFamily;
  readonly #table: Table;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #observers: readonly ProxierObserver[];
  readonly #contention: Contention;
  readonly #pace: RepairPace;
  #noticed: Noticed | undefined;

  constructor(family: IpFamily, table: Table, options: FamilyRepairOptions) {
    this.#family = family;
    this.#table = table;
    this.#log = options.log;
    this.#clock = options.clock;
    this.#observers = options.observers;
    this.#contention = options.contention;
    this.#pace = new RepairPace(options.syncPeriodMs);
  }

  /** Another process changed the table. */
  notice({ changes, process, portId }: ForeignChange): void {
    this.drifted();
    this.#contention.noticed();
    const noticed = (this.#noticed ??= nothingSince(this.#clock.now()));
    noticed.transactions++;
    for (const change of changes) if (noticed.changes.size < MAX_CHANGES) noticed.changes.add(change);
    if (process !== undefined && noticed.by.size < MAX_NAMES) noticed.by.add(`${process.name} (pid ${process.pid})`);
    if (noticed.writers.size < MAX_NAMES && !noticed.writers.has(portId))
      noticed.writers.set(portId, { portId, ...(process === undefined ? {} : { process }) });
  }

  /** The table is otherwise than it was left. */
  drifted(): void {
    for (const observer of this.#observers) observer.drifted?.(this.#family);
  }

  /** The table is contended no more: the next repair is immediate. */
  release(): void {
    this.#pace.reset();
  }

  /** Ms until the table may be repaired; 0: now. */
  waitMs(): number {
    return this.#pace.waitMs(this.#clock.now());
  }

  /** Ms until a repair that waits may be done; undefined when there is none. */
  get pendingMs(): number | undefined {
    return this.#table.invalidated ? this.waitMs() : undefined;
  }

  /** A write is through, which began then (ms of the clock): counts and tells what it undid. */
  applied(result: ApplyResult, began: number): void {
    const now = this.#clock.now();
    if (result.drift === undefined || result.transactions === 0) {
      if (result.resynced === undefined) return;
      this.#pace.looked(now, now - began);
      if (!this.#table.invalidated) this.#noticed = undefined;
      return;
    }
    // What a read finds by itself is known of since the read began.
    const noticed = this.#noticed ?? nothingSince(began);
    this.#noticed = undefined;
    const contended = this.#contention.repaired(this.#family, [...noticed.writers.values()], this.#pace.isLongest);
    this.#pace.repaired(now, contended);
    const report = {
      family: this.#family,
      cause: causeOf(result.drift),
      found: result.drift.changes,
      changes: [...noticed.changes],
      by: [...noticed.by],
      operations: result.total,
      ms: now - noticed.since,
    };
    this.#log.warn(
      { ...report, ms: Math.round(report.ms * 1000) / 1000, transactions: noticed.transactions },
      "table changed by another process; repaired",
    );
    for (const observer of this.#observers) observer.repaired?.(report);
  }
}

function nothingSince(since: number): Noticed {
  return { since, transactions: 0, changes: new Set(), by: new Set(), writers: new Map() };
}

function causeOf({ causes, tableDeleted }: Drift): RepairCause {
  if (tableDeleted) return "table-deleted";
  if (causes.has("foreign")) return "changed";
  if (causes.has("lost events")) return "events-lost";
  return causes.has("check") ? "check" : "conflict";
}
