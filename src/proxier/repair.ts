/** When to repair what somebody else did to a table, and what to say of it. */
import type { IpFamily } from "../model/types.js";
import type { Logger } from "../observe/log.js";
import type { Table } from "../table/index.js";
import type { ApplyResult, Clock, Drift } from "../table/types.js";
import type { ForeignChange } from "../table/watch.js";
import type { ProxierObserver, RepairCause } from "./observer.js";

/** Repairs in a row without a wait: who reloads a firewall does so in a few transactions. */
const AT_ONCE = 5;
/** Wait after those, ms; doubles from there. */
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 10_000;
/** After this long without a repair the next one is at once again, ms. */
const QUIET_MS = 60_000;
/**
 * A look that found nothing to undo (somebody changed something and back, or what is none of our business) may take this share of the time,
 * and keeps the next look waiting no longer than this.
 */
const LOOK_SHARE = 0.1;
const LONGEST_LOOK_WAIT_MS = 1000;
/** Kept of what was noticed before one repair. */
const MAX_NAMES = 5;
const MAX_CHANGES = 10;

/**
 * Back-off against a writer that keeps breaking a table: a few repairs are at once, each further one waits twice as long since the
 * last, up to 10 s, until there has been none for a minute.
 */
export class RepairPace {
  #waitMs = 0;
  #inARow = 0;
  #last = Number.NEGATIVE_INFINITY;
  #notBefore = Number.NEGATIVE_INFINITY;

  /** Ms until the next repair may be; 0: now. */
  waitMs(now: number): number {
    if (now - this.#last >= QUIET_MS) this.#waitMs = this.#inARow = 0;
    return Math.max(0, this.#last + this.#waitMs - now, this.#notBefore - now);
  }

  /** The table was read, for so many ms, and there was nothing to undo. */
  looked(now: number, tookMs: number): void {
    this.#notBefore = now + Math.min(tookMs / LOOK_SHARE, LONGEST_LOOK_WAIT_MS);
  }

  repaired(now: number): void {
    if (++this.#inARow >= AT_ONCE) {
      this.#waitMs = this.#waitMs === 0 ? FIRST_WAIT_MS : Math.min(this.#waitMs * 2, LONGEST_WAIT_MS);
    }
    this.#last = now;
  }
}

/** What was noticed since the last repair. */
interface Noticed {
  /** ms of the clock. */
  readonly since: number;
  transactions: number;
  readonly changes: Set<string>;
  readonly by: Set<string>;
}

export class FamilyRepair {
  readonly #family: IpFamily;
  readonly #table: Table;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #observers: readonly ProxierObserver[];
  readonly #pace = new RepairPace();
  #noticed: Noticed | undefined;

  constructor(family: IpFamily, table: Table, log: Logger, clock: Clock, observers: readonly ProxierObserver[]) {
    this.#family = family;
    this.#table = table;
    this.#log = log;
    this.#clock = clock;
    this.#observers = observers;
  }

  /** Somebody else changed the table. */
  notice({ changes, process }: ForeignChange): void {
    const noticed = (this.#noticed ??= this.#nothing());
    noticed.transactions++;
    for (const change of changes) if (noticed.changes.size < MAX_CHANGES) noticed.changes.add(change);
    if (process !== undefined && noticed.by.size < MAX_NAMES) noticed.by.add(`${process.name} (pid ${process.pid})`);
  }

  /** Ms until the table may be repaired; 0: now. */
  waitMs(): number {
    return this.#pace.waitMs(this.#clock.now());
  }

  /** Ms until a repair that waits may be done; undefined when there is none. */
  get pendingMs(): number | undefined {
    return this.#table.inDoubt ? this.waitMs() : undefined;
  }

  /** A write is through, which began then (ms of the clock): counts and tells what it undid. */
  applied(result: ApplyResult, began: number): void {
    const now = this.#clock.now();
    if (result.drift === undefined || result.transactions === 0) {
      if (result.resynced === undefined) return;
      this.#pace.looked(now, now - began);
      if (!this.#table.inDoubt) this.#noticed = undefined;
      return;
    }
    this.#pace.repaired(now);
    const noticed = this.#noticed ?? this.#nothing();
    this.#noticed = undefined;
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
      "somebody else changed the kernel's table; repaired",
    );
    for (const observer of this.#observers) observer.repaired?.(report);
  }

  #nothing(): Noticed {
    return { since: this.#clock.now(), transactions: 0, changes: new Set(), by: new Set() };
  }
}

function causeOf({ causes, tableDeleted }: Drift): RepairCause {
  if (tableDeleted) return "table-deleted";
  if (causes.has("foreign")) return "changed";
  if (causes.has("lost events")) return "events-lost";
  return causes.has("check") ? "check" : "conflict";
}
