/** Samples how full the connection tracking table is, and warns once when it is nearly full. */
import { BoundedFrequencyRunner, type WriteOutcome } from "../../base/bounded-frequency-runner.js";
import { percentText } from "../../base/percent.js";
import type { Logger } from "../../base/logger.js";
import { CONNTRACK_EVICTION, CONNTRACK_REMEDY } from "../../node/packet-settings.js";
import type { ConntrackTable } from "../../nft/conntrack/conntrack-table.js";

export interface PressureReport {
  readonly entries: number;
  readonly max: number;
  /** entries / max, 0 to 1. */
  readonly pressure: number;
  /** Since boot: entries that were not inserted because another entry had the same tuple. */
  readonly insertFailed: number;
  /** Since boot: packets dropped because the table was full or memory was short. */
  readonly dropped: number;
}

/** A problem that garbage may have caused. */
export type Distress = "insert-failed" | "table-full" | "pressure";

interface PressureOptions {
  readonly table: Pick<ConntrackTable, "count" | "max" | "stats">;
  readonly log: Logger;
  onSample?(report: PressureReport): void;
  /** Called for each sample that shows the problem. */
  onDistress?(distress: Distress): void;
  /** Time between two samples, ms. Default 10 s. */
  readonly intervalMs?: number;
}

/** Warn once above WARN_PRESSURE; warn again only after the pressure has been below CALM_PRESSURE. */
const WARN_PRESSURE = 0.9;
const CALM_PRESSURE = 0.8;
const INTERVAL_MS = 10_000;

const HINT = `when it is full, ${CONNTRACK_EVICTION}. To prevent that, ${CONNTRACK_REMEDY}`;

export class PressureMonitor {
  readonly #runner: BoundedFrequencyRunner;
  #before: PressureReport | undefined;
  #warned = false;
  #failing = false;

  constructor(private readonly options: PressureOptions) {
    const limits = { gapMs: 0, maxRetryMs: INTERVAL_MS };
    this.#runner = new BoundedFrequencyRunner(() => this.#sample(), limits);
  }

  /** Samples at once, then at each interval. */
  start(): void {
    this.#runner.requestIn(0);
  }

  async stop(): Promise<void> {
    await this.#runner.stop();
  }

  async #sample(): Promise<WriteOutcome> {
    const { table, log, intervalMs: againMs = INTERVAL_MS } = this.options;
    try {
      const [entries, max, stats] = await Promise.all([table.count(), table.max(), table.stats()]);
      const pressure = max > 0 ? Math.min(1, entries / max) : 0;
      this.#evaluate({ entries, max, pressure, insertFailed: stats.insertFailed, dropped: stats.drop });
      this.#failing = false;
    } catch (error) {
      // Logged once. Everything else works without these statistics.
      if (!this.#failing) log.warn({ err: error }, "reading connection tracking statistics failed");
      this.#failing = true;
    }
    return { ok: true, againMs };
  }

  #evaluate(report: PressureReport): void {
    const { log } = this.options;
    const before = this.#before;
    this.#before = report;
    if (report.pressure > WARN_PRESSURE && !this.#warned) {
      this.#warned = true;
      const { entries, max } = report;
      const percent = Number.parseFloat(percentText(entries, max));
      log.warn({ entries, max, percent, hint: HINT }, "connection tracking table nearly full");
    } else if (report.pressure < CALM_PRESSURE && this.#warned) {
      this.#warned = false;
      log.info({ entries: report.entries, max: report.max }, "connection tracking table relieved");
    }
    this.options.onSample?.(report);
    if (report.pressure > WARN_PRESSURE) this.options.onDistress?.("pressure");
    if (before === undefined) return;
    if (report.insertFailed > before.insertFailed) this.options.onDistress?.("insert-failed");
    if (report.dropped > before.dropped) this.options.onDistress?.("table-full");
  }
}
