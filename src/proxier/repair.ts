/** When to repair a table that another process changed, and what to log of it. */
import type { IpFamily } from "../base/ip.js";
import type { ApplyResult, Drift, ForeignChange, Table } from "../table/table-exports.js";
import type { Contention, Writer } from "./contention.js";
import type { RepairCause } from "./observer.js";
import type { ProxierContext } from "./proxier-context.js";

/** Of one processor, that reading and repairing a table may take. */
const SHARE = 0.1;
/** Work that needs no wait after a time with none, ms: the first repairs start at once. */
const CREDIT_MS = 200;
/** No repair waits longer, ms, however long the one before it took. */
const LONGEST_WAIT_MS = 10_000;
/** Kept of what was noticed before one repair. */
const MAX_NAMES = 5;
const MAX_CHANGES = 10;

/**
 * Limits the share of a processor that is spent on a table which another process keeps changing: after work of t ms the next may begin 9 t
 * later. Short repairs are so as frequent as what they undo, and long ones do not take a processor for themselves.
 */
export class RepairPace {
  /** When all work so far is a tenth of the time since it began. */
  #paidAt = Number.NEGATIVE_INFINITY;

  /** Ms until the next work may begin; 0: now. */
  waitMs(now: number): number {
    return Math.max(0, this.#paidAt - CREDIT_MS / SHARE - now);
  }

  /** Work has ended, for which so much of a processor was used, ms. */
  spent(now: number, cpuMs: number): void {
    const paidAt = Math.max(this.#paidAt, now - cpuMs) + cpuMs / SHARE;
    this.#paidAt = Math.min(paidAt, now + CREDIT_MS / SHARE + LONGEST_WAIT_MS);
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

export interface FamilyRepairOptions extends ProxierContext {
  readonly contention: Contention;
  /** CPU time that this process has used, ms; by default what the system says. */
  readonly cpuMs?: () => number;
}

/** When a write began. */
export interface RepairStart {
  /** ms of the clock. */
  readonly at: number;
  readonly cpuMs: number;
}

function processCpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

export class FamilyRepair {
  readonly #family: IpFamily;
  readonly #table: Table;
  readonly #context: ProxierContext;
  readonly #contention: Contention;
  readonly #cpuMs: () => number;
  readonly #pace = new RepairPace();
  #noticed: Noticed | undefined;

  constructor(family: IpFamily, table: Table, options: FamilyRepairOptions) {
    this.#family = family;
    this.#table = table;
    this.#context = options;
    this.#contention = options.contention;
    this.#cpuMs = options.cpuMs ?? processCpuMs;
  }

  /** Another process changed the table. */
  notice({ changes, process, portId }: ForeignChange): void {
    this.drifted();
    this.#contention.noticed();
    const noticed = (this.#noticed ??= nothingSince(this.#context.clock.now()));
    noticed.transactions++;
    for (const change of changes) if (noticed.changes.size < MAX_CHANGES) noticed.changes.add(change);
    if (process !== undefined && noticed.by.size < MAX_NAMES) noticed.by.add(`${process.name} (pid ${process.pid})`);
    if (noticed.writers.size < MAX_NAMES && !noticed.writers.has(portId))
      noticed.writers.set(portId, { portId, process });
  }

  /** The table is otherwise than it was left. */
  drifted(): void {
    for (const observer of this.#context.observers) observer.drifted?.(this.#family);
  }

  /** Ms until the table may be repaired; 0: now. */
  waitMs(): number {
    return this.#pace.waitMs(this.#context.clock.now());
  }

  /** Ms until a repair that waits may be done; undefined when there is none. */
  get pendingMs(): number | undefined {
    return this.#table.invalidated ? this.waitMs() : undefined;
  }

  /** A write begins that may repair. */
  begin(): RepairStart {
    return { at: this.#context.clock.now(), cpuMs: this.#cpuMs() };
  }

  /** A write of which it was part to read the table has ended, whatever came of it: the next may have to wait. */
  spent({ at, cpuMs }: RepairStart): void {
    const now = this.#context.clock.now();
    // Whatever else the process did meanwhile, it took no longer than that.
    this.#pace.spent(now, Math.min(now - at, this.#cpuMs() - cpuMs));
  }

  /** A write is through: counts and tells what it undid. */
  applied(result: ApplyResult, start: RepairStart): void {
    const now = this.#context.clock.now();
    if (result.resynced !== undefined) this.spent(start);
    if (result.drift === undefined || result.transactions === 0) {
      if (result.resynced !== undefined && !this.#table.invalidated) this.#noticed = undefined;
      return;
    }
    // What a read finds by itself is known of since the read began.
    const noticed = this.#noticed ?? nothingSince(start.at);
    this.#noticed = undefined;
    const contended = this.#contention.repaired(this.#family, [...noticed.writers.values()]);
    const report = {
      family: this.#family,
      cause: causeOf(result.drift),
      found: result.drift.changes,
      changes: [...noticed.changes],
      by: [...noticed.by],
      operations: result.total,
      ms: now - noticed.since,
    };
    // The contention has been said once, and there may be many repairs.
    this.#context.log[contended ? "debug" : "warn"](
      { ...report, ms: Math.round(report.ms * 1000) / 1000, transactions: noticed.transactions },
      "table changed by another process; repaired",
    );
    for (const observer of this.#context.observers) observer.repaired?.(report);
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
