/** Our own metrics of connection tracking. kube-proxy's two metrics are in observe/kube-proxy-metrics.ts. */
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { FAMILY_NAMES } from "../base/ip-families.js";
import { DIRECTIONS, type GcReason, type GcReport } from "./gc/garbage-collector.js";
import type { PressureReport } from "./gc/pressure-monitor.js";
import type { ConntrackObserver } from "./conntrack-service.js";
import type { ConntrackEntry } from "../nft/conntrack/conntrack-table.js";

const GC_BUCKETS = Array.from({ length: 15 }, (_, n) => 0.001 * 2 ** n);
const OUTCOMES = ["alive", "deleted", "orphaned"] as const;

export class ConntrackMetrics implements ConntrackObserver {
  readonly #entries;
  readonly #max;
  readonly #pressure;
  readonly #insertFailed;
  readonly #gcDuration;
  readonly #gcEntries;
  readonly #deleted;
  #insertFailedSoFar = 0;

  constructor(registry: Registry) {
    const registers = [registry];
    const gauge = (name: string, help: string) => new Gauge({ name, help, registers });
    this.#entries = gauge(
      "nftproxier_conntrack_entries",
      "Entries in the connection tracking table, as of the last sample (every 10 s)",
    );
    this.#max = gauge(
      "nftproxier_conntrack_max",
      "Maximum number of entries in the connection tracking table, as of the last sample (every 10 s)",
    );
    this.#pressure = gauge(
      "nftproxier_conntrack_pressure",
      "Usage of the connection tracking table as of the last sample (every 10 s), 0 to 1",
    );
    this.#insertFailed = new Counter({
      name: "nftproxier_conntrack_insert_failed_total",
      help: "Failed insertions into the connection tracking table since the node booted",
      registers,
    });
    this.#gcDuration = new Histogram({
      name: "nftproxier_conntrack_gc_duration_seconds",
      help: "Duration of one garbage collection of the connection tracking table",
      buckets: GC_BUCKETS,
      registers,
    });
    this.#gcEntries = new Gauge({
      name: "nftproxier_conntrack_gc_entries",
      help:
        "Entries at the last garbage collection. direction: original (no reply seen), reply (both directions seen). " +
        "outcome: alive, deleted, orphaned (alive, but no service has the endpoint)",
      labelNames: ["family", "direction", "outcome"],
      registers,
    });
    this.#deleted = new Counter({
      name: "nftproxier_conntrack_deleted_entries_total",
      help:
        "Entries deleted from the connection tracking table, as confirmed by the kernel. by: reconciler (after a change), " +
        "gc (garbage collection). reason: as in the log",
      labelNames: ["family", "by", "reason"],
      registers,
    });
  }

  pressure(report: PressureReport): void {
    this.#entries.set(report.entries);
    this.#max.set(report.max);
    this.#pressure.set(report.pressure);
    this.#insertFailed.inc(Math.max(0, report.insertFailed - this.#insertFailedSoFar));
    this.#insertFailedSoFar = report.insertFailed;
  }

  /** Counted one by one, because entries that a failed pass had already deleted count as well. */
  deleted({ family }: ConntrackEntry, reason: GcReason, by: "reconciler" | "gc"): void {
    this.#deleted.inc({ family: FAMILY_NAMES[family], by, reason });
  }

  collected(report: GcReport): void {
    this.#gcDuration.observe(report.ms / 1000);
    for (const { family, directions } of report.families) {
      for (const direction of DIRECTIONS) {
        for (const outcome of OUTCOMES) {
          this.#gcEntries.set({ family: FAMILY_NAMES[family], direction, outcome }, directions[direction][outcome]);
        }
      }
    }
  }
}
