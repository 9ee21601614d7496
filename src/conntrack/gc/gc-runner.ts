/** Runs garbage collection in the background, at an adaptive interval, and early when the table has problems. */
import type { Logger } from "../../base/logger.js";
import {
  DIRECTIONS,
  GC_MIN_MS,
  GC_START_MS,
  type GarbageCollector,
  gcInterval,
  type GcReport,
  type GcRequest,
} from "./garbage-collector.js";

/** Callbacks for the entries that a background run handles. */
export type GcWatcher = Pick<GcRequest, "onEntry" | "onAlive">;

interface GcRunnerOptions {
  readonly collector: Pick<GarbageCollector, "run">;
  readonly log: Logger;
  /** Time between two runs, ms. "adaptive" (default): GC_START_MS at first, then by `gcInterval`. */
  readonly interval?: number | "adaptive";
  readonly watcher?: GcWatcher;
  /** A run is complete. Must not throw. */
  onRun?(report: GcReport): void;
  /** Monotonic clock, ms. Default performance.now. */
  readonly now?: () => number;
}

export class GcRunner {
  readonly #options: GcRunnerOptions;
  readonly #now: () => number;
  #intervalMs: number;
  /** The next run must make room. */
  #early = false;
  #lastStart: number | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #started = false;

  constructor(options: GcRunnerOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    const { interval = "adaptive" } = options;
    this.#intervalMs = interval === "adaptive" ? GC_START_MS : interval;
  }

  /** The current interval, ms. */
  get intervalMs(): number {
    return this.#intervalMs;
  }

  /** Schedules the first run one interval from now. The reconciler handles entries that are stale at the start. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    this.#schedule(this.#now() + this.#intervalMs);
  }

  /** Runs early: now, or GC_MIN_MS after the last run began. An early run also purges closing orphans. */
  trigger(reason: string): void {
    if (!this.#started) return;
    this.#early = true;
    // The current run schedules the next one when it ends.
    if (this.#running !== undefined) return;
    const at = this.#earliest;
    if (at >= this.#dueAt) return;
    this.#options.log.debug({ reason, inMs: Math.round(at - this.#now()) }, "collecting stale entries early");
    this.#schedule(at);
  }

  get #earliest(): number {
    return Math.max(this.#now(), (this.#lastStart ?? Number.NEGATIVE_INFINITY) + GC_MIN_MS);
  }

  /** Stops. Resolves when the current run, if any, is complete. */
  async stop(): Promise<void> {
    this.#started = false;
    clearTimeout(this.#timer);
    await this.#running;
  }

  #schedule(at: number): void {
    this.#dueAt = at;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => {
        this.#running ??= this.#run().finally(() => {
          this.#running = undefined;
        });
      },
      Math.max(0, at - this.#now()),
    );
  }

  async #run(): Promise<void> {
    const { collector, log, interval = "adaptive", watcher } = this.#options;
    const orphans = this.#early ? "closing" : "spent";
    this.#early = false;
    const started = this.#now();
    const actual = this.#lastStart === undefined ? undefined : started - this.#lastStart;
    this.#lastStart = started;
    this.#dueAt = Number.POSITIVE_INFINITY;
    try {
      const report = await collector.run({ orphans, ...watcher });
      if (interval === "adaptive") this.#intervalMs = gcInterval(this.#intervalMs, report.deleteRatio, actual);
      log.debug({ ...summary(report), nextMs: this.#intervalMs }, "stale entries collected");
      for (const { family, directions, reasons } of report.families) {
        const deleted = directions.original.deleted + directions.reply.deleted;
        if (deleted > 0) log.info({ family, deleted, reasons }, "stale entries deleted");
      }
      this.#options.onRun?.(report);
    } catch (error) {
      log.warn({ err: error, retryMs: this.#intervalMs }, "collecting stale entries failed");
    }
    const next = this.#now() + this.#intervalMs;
    if (this.#started) this.#schedule(this.#early ? Math.min(next, this.#earliest) : next);
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
