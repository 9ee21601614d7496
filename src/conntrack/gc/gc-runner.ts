/** Runs garbage collection in the background, at an adaptive interval, and early when the table has problems. */
import { BoundedFrequencyRunner, type WriteOutcome } from "../../base/bounded-frequency-runner.js";
import type { Logger } from "../../base/logger.js";
import {
  DIRECTIONS,
  GC_MAX_MS,
  GC_MIN_MS,
  GC_START_MS,
  type GarbageCollector,
  gcInterval,
  type GcReport,
  type GcRequest,
} from "./garbage-collector.js";

interface GcRunnerOptions extends Pick<GcRequest, "onEntry" | "onAlive"> {
  readonly collector: Pick<GarbageCollector, "run">;
  readonly log: Logger;
  /** Time between two runs, ms. "adaptive" (default): GC_START_MS at first, then by `gcInterval`. */
  readonly interval?: number | "adaptive";
  /** A run is complete. Must not throw. */
  onRun?(report: GcReport): void;
  /** Monotonic clock, ms. Default performance.now. */
  readonly now?: () => number;
}

export class GcRunner {
  readonly #now: () => number;
  #intervalMs: number;
  /** The next run must make room. */
  #early = false;
  #lastStart: number | undefined;
  readonly #runner: BoundedFrequencyRunner;
  #started = false;

  constructor(private readonly options: GcRunnerOptions) {
    this.#now = options.now ?? (() => performance.now());
    const { interval = "adaptive" } = options;
    this.#intervalMs = interval === "adaptive" ? GC_START_MS : interval;
    const limits = { gapMs: GC_MIN_MS, maxRetryMs: GC_MAX_MS, now: this.#now };
    this.#runner = new BoundedFrequencyRunner(() => this.#run(), limits);
  }

  /** The current interval, ms. */
  get intervalMs(): number {
    return this.#intervalMs;
  }

  /** Schedules the first run one interval from now. The reconciler handles entries that are stale at the start. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    this.#runner.requestIn(this.#intervalMs);
  }

  /** Runs early: now, or GC_MIN_MS after the last run began. An early run also purges closing orphans. */
  trigger(reason: string): void {
    if (!this.#started) return;
    if (!this.#early) this.options.log.debug({ reason }, "collecting stale entries early");
    this.#early = true;
    this.#runner.requestIn(0);
  }

  /** Stops. Resolves when the current run, if any, is complete. */
  async stop(): Promise<void> {
    this.#started = false;
    await this.#runner.stop();
  }

  async #run(): Promise<WriteOutcome> {
    const { collector, log, interval = "adaptive", onEntry, onAlive } = this.options;
    const orphans = this.#early ? "closing" : "spent";
    this.#early = false;
    const started = this.#now();
    const actual = this.#lastStart === undefined ? undefined : started - this.#lastStart;
    this.#lastStart = started;
    try {
      const report = await collector.run({ orphans, onEntry, onAlive });
      if (interval === "adaptive") this.#intervalMs = gcInterval(this.#intervalMs, report.deleteRatio, actual);
      log.debug({ ...summary(report), nextMs: this.#intervalMs }, "stale entries collected");
      for (const { family, directions, reasons } of report.families) {
        const deleted = directions.original.deleted + directions.reply.deleted;
        if (deleted > 0) log.info({ family, deleted, reasons }, "stale entries deleted");
      }
      this.options.onRun?.(report);
    } catch (error) {
      log.warn({ err: error, retryMs: this.#intervalMs }, "collecting stale entries failed");
    }
    return { ok: true, againMs: this.#intervalMs };
  }
}

function summary({ families, ms }: GcReport): Record<string, unknown> {
  const sum = (what: "alive" | "deleted" | "orphaned"): number =>
    families.reduce(
      (total, { directions }) => total + DIRECTIONS.reduce((part, direction) => part + directions[direction][what], 0),
      0,
    );
  return { ms, alive: sum("alive"), deleted: sum("deleted"), orphaned: sum("orphaned") };
}
