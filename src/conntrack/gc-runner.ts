/** Runs garbage collection in the background: at an interval that adapts, and early when the table does badly. */
import type { Logger } from "../observe/log.js";
import { DIRECTIONS, GC_MIN_MS, GC_START_MS, type GarbageCollector, gcInterval, type GcReport } from "./gc.js";

export interface GcRunnerOptions {
  readonly collector: Pick<GarbageCollector, "run">;
  readonly log: Logger;
  /** A run is done. Must not throw. */
  onRun?(report: GcReport): void;
  /** ms, monotonic. Default performance.now. */
  readonly now?: () => number;
}

export class GcRunner {
  readonly #options: GcRunnerOptions;
  readonly #now: () => number;
  #intervalMs = GC_START_MS;
  #lastStart: number | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #started = false;

  constructor(options: GcRunnerOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** The interval as it is now, ms. */
  get intervalMs(): number {
    return this.#intervalMs;
  }

  /** The first run is GC_START_MS away: what a start finds stale is the reconciler's work. */
  start(): void {
    if (this.#started) return;
    this.#started = true;
    this.#schedule(this.#now() + this.#intervalMs);
  }

  /** Run early: now, or GC_MIN_MS after the last run began. */
  trigger(reason: string): void {
    if (!this.#started) return;
    const at = Math.max(this.#now(), (this.#lastStart ?? Number.NEGATIVE_INFINITY) + GC_MIN_MS);
    if (at >= this.#dueAt) return;
    this.#options.log.debug({ reason, inMs: Math.round(at - this.#now()) }, "connection tracking: collecting early");
    this.#schedule(at);
  }

  /** Ends; resolves when a run that is under way is done. */
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
    const { collector, log } = this.#options;
    const started = this.#now();
    const actual = this.#lastStart === undefined ? undefined : started - this.#lastStart;
    this.#lastStart = started;
    this.#dueAt = Number.POSITIVE_INFINITY;
    try {
      const report = await collector.run({ orphans: true });
      this.#intervalMs = gcInterval(this.#intervalMs, report.deleteRatio, actual);
      log.debug({ ...summary(report), nextMs: this.#intervalMs }, "connection tracking: garbage collected");
      this.#options.onRun?.(report);
    } catch (error) {
      log.warn({ err: error, againMs: this.#intervalMs }, "connection tracking: garbage could not be collected");
    }
    if (this.#started) this.#schedule(this.#now() + this.#intervalMs);
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
