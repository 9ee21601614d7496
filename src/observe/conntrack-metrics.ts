/** Our own metrics of connection tracking. kube-proxy's two metrics are in kube-proxy-metrics.ts. */
import type { Registry } from "prom-client";
import { FAMILY_NAMES } from "../base/ip-families.js";
import type { ConntrackObserver } from "../conntrack/conntrack-service.js";
import { DIRECTIONS, type GcReason, type GcReport } from "../conntrack/gc/garbage-collector.js";
import type { PressureReport } from "../conntrack/gc/pressure-monitor.js";
import type { ConntrackEntry } from "../nft/conntrack/conntrack-table.js";
import { MetricMaker } from "./metric-maker.js";

const GC_BUCKETS = Array.from({ length: 15 }, (_, n) => 0.001 * 2 ** n);
const OUTCOMES = ["alive", "deleted", "orphaned"] as const;

function conntrackMetrics(make: MetricMaker) {
  return {
    entries: make.gauge(
      "nftproxier_conntrack_entries",
      "Entries in the connection tracking table, as of the last sample (every 10 s)",
    ),
    max: make.gauge(
      "nftproxier_conntrack_max",
      "Maximum number of entries in the connection tracking table, as of the last sample (every 10 s)",
    ),
    pressure: make.gauge(
      "nftproxier_conntrack_pressure",
      "Usage of the connection tracking table as of the last sample (every 10 s), 0 to 1",
    ),
    insertFailed: make.counter(
      "nftproxier_conntrack_insert_failed_total",
      "Failed insertions into the connection tracking table since the node booted",
    ),
    gcDuration: make.histogram(
      "nftproxier_conntrack_gc_duration_seconds",
      "Duration of one garbage collection of the connection tracking table",
      GC_BUCKETS,
    ),
    gcEntries: make.gauge(
      "nftproxier_conntrack_gc_entries",
      "Entries at the last garbage collection. direction: original (no reply seen), reply (both directions seen). " +
        "outcome: alive, deleted, orphaned (alive, but no service has the endpoint)",
      ["family", "direction", "outcome"],
    ),
    deleted: make.counter(
      "nftproxier_conntrack_deleted_entries_total",
      "Entries deleted from the connection tracking table, as confirmed by the kernel. by: reconciler (after a change), " +
        "gc (garbage collection). reason: as in the log",
      ["family", "by", "reason"],
    ),
  } as const;
}

export class ConntrackMetrics implements ConntrackObserver {
  readonly #metrics;
  #insertFailedSoFar = 0;

  constructor(registry: Registry) {
    this.#metrics = conntrackMetrics(new MetricMaker(registry, []));
  }

  pressure(report: PressureReport): void {
    this.#metrics.entries.set(report.entries);
    this.#metrics.max.set(report.max);
    this.#metrics.pressure.set(report.pressure);
    this.#metrics.insertFailed.inc(Math.max(0, report.insertFailed - this.#insertFailedSoFar));
    this.#insertFailedSoFar = report.insertFailed;
  }

  /** Counted one by one, because entries that a failed pass had already deleted count as well. */
  deleted({ family }: ConntrackEntry, reason: GcReason, by: "reconciler" | "gc"): void {
    this.#metrics.deleted.inc({ family: FAMILY_NAMES[family], by, reason });
  }

  collected(report: GcReport): void {
    this.#metrics.gcDuration.observe(report.ms / 1000);
    for (const { family, directions } of report.families) {
      for (const direction of DIRECTIONS) {
        for (const outcome of OUTCOMES) {
          this.#metrics.gcEntries.set(
            { family: FAMILY_NAMES[family], direction, outcome },
            directions[direction][outcome],
          );
        }
      }
    }
  }
}
