/** Decides when to repair a table that another process changed, and what to log. */
import type { IpFamily } from "../base/ip.js";
import { describeProcess } from "../node/processes.js";
import type { ApplyResult, Drift, ForeignChange, Table } from "../nft/engine-exports.js";
import type { Contention } from "./contention.js";
import type { RepairCause } from "./observer.js";
import type { ProxierContext } from "./proxier-context.js";

/** Maximum share of one processor for reading and repairing a table. */
const SHARE = 0.1;
/** Work allowed without a wait after an idle time, ms, so that the first repairs start at once. */
const CREDIT_MS = 200;
/** Longest wait for a repair, ms, however long the previous one took. */
const LONGEST_WAIT_MS = 10_000;
/** Maximum number of items to keep until a repair. */
const MAX_NAMES = 5;
const MAX_CHANGES = 10;

/**
 * Limits the CPU time spent on a table that another process keeps changing: after t ms of work, the next may start 9 t
 * later. So short repairs are as frequent as the changes that they undo, and long ones do not occupy a processor.
 */
export class RepairPace {
  /** When all work so far will be a tenth of the time since it began. */
  #paidAt = Number.NEGATIVE_INFINITY;

  /** Time until the next work may start, ms; 0: now. */
  waitMs(now: number): number {
    return Math.max(0, this.#paidAt - CREDIT_MS / SHARE - now);
  }

  /** Work has ended. @param cpuMs CPU time that it used, ms. */
  spent(now: number, cpuMs: number): void {
    const paidAt = Math.max(this.#paidAt, now - cpuMs) + cpuMs / SHARE;
    this.#paidAt = Math.min(paidAt, now + CREDIT_MS / SHARE + LONGEST_WAIT_MS);
  }
}

/** Changes noticed since the last repair. */
interface Noticed {
  /** ms of the clock. */
  readonly since: number;
  transactions: number;
  readonly changes: Set<string>;
  /** Descriptions of the processes, by thread. */
  readonly by: Map<number, string>;
}

interface FamilyRepairOptions extends ProxierContext {
  readonly contention: Contention;
  /** CPU time that this process has used, ms. Default: as the system reports it. */
  readonly cpuMs?: () => number;
}

/** When a write began. */
interface RepairStart {
  /** ms of the clock. */
  readonly at: number;
  readonly cpuMs: number;
}

function processCpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

export class FamilyRepair {
  readonly #context: ProxierContext;
  readonly #contention: Contention;
  readonly #cpuMs: () => number;
  readonly #pace = new RepairPace();
  #noticed: Noticed | undefined;

  constructor(
    private readonly family: IpFamily,
    private readonly table: Table,
    options: FamilyRepairOptions,
  ) {
    this.#context = options;
    this.#contention = options.contention;
    this.#cpuMs = options.cpuMs ?? processCpuMs;
  }

  /** Another process changed the table. */
  notice({ changes, process }: ForeignChange): void {
    this.drifted();
    this.#contention.noticed();
    const noticed = (this.#noticed ??= nothingSince(this.#context.clock.now()));
    noticed.transactions++;
    for (const change of changes) if (noticed.changes.size < MAX_CHANGES) noticed.changes.add(change);
    if (process === undefined || noticed.by.size >= MAX_NAMES || noticed.by.has(process.pid)) return;
    noticed.by.set(process.pid, describeProcess(process.pid, process.name));
  }

  /** The table differs from what we last wrote. */
  drifted(): void {
    for (const observer of this.#context.observers) observer.drifted?.(this.family);
  }

  /** Time until the table may be repaired, ms; 0: now. */
  waitMs(): number {
    return this.#pace.waitMs(this.#context.clock.now());
  }

  /** Time until a pending repair may start, ms. Undefined if there is none. */
  get pendingMs(): number | undefined {
    return this.table.invalidated ? this.waitMs() : undefined;
  }

  /** A write begins that may repair the table. */
  begin(): RepairStart {
    return { at: this.#context.clock.now(), cpuMs: this.#cpuMs() };
  }

  /** A write that read the table has ended, with any result. The next may have to wait. */
  spent({ at, cpuMs }: RepairStart): void {
    const now = this.#context.clock.now();
    // Limit it to the elapsed time, because the process may have done other work meanwhile.
    this.#pace.spent(now, Math.min(now - at, this.#cpuMs() - cpuMs));
  }

  /** A write is complete. Counts and reports the changes that it undid. */
  applied(result: ApplyResult, start: RepairStart): void {
    const now = this.#context.clock.now();
    if (result.resynced !== undefined) this.spent(start);
    if (result.drift === undefined || result.transactions === 0) {
      if (result.resynced !== undefined && !this.table.invalidated) this.#noticed = undefined;
      return;
    }
    // A difference that a read finds by itself is known from the start of the read.
    const noticed = this.#noticed ?? nothingSince(start.at);
    this.#noticed = undefined;
    const by = [...noticed.by.values()];
    const contended = this.#contention.repaired(by);
    const report = {
      family: this.family,
      cause: causeOf(result.drift),
      found: result.drift.changes,
      changes: [...noticed.changes],
      by,
      operations: result.total,
      ms: now - noticed.since,
    };
    // The contention has already been logged, and there may be many repairs.
    this.#context.log[contended ? "debug" : "warn"](
      { ...report, ms: Math.round(report.ms * 1000) / 1000, transactions: noticed.transactions },
      "table changed by another process; repaired",
    );
    for (const observer of this.#context.observers) observer.repaired?.(report);
  }
}

function nothingSince(since: number): Noticed {
  return { since, transactions: 0, changes: new Set(), by: new Map() };
}

function causeOf({ causes, tableDeleted }: Drift): RepairCause {
  if (tableDeleted) return "table-deleted";
  if (causes.has("foreign")) return "changed";
  if (causes.has("lost events")) return "events-lost";
  return causes.has("check") ? "check" : "conflict";
}
