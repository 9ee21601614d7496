/** Metrics of repairs, rebuilds and contention, and of quarantined services. */
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { IpFamily } from "../base/ip.js";
import {
  REPAIR_CAUSES,
  type ProxierObserver,
  type QuarantineReport,
  type RebuildReport,
  type RepairReport,
} from "../proxier/observer.js";
import { FAMILY_LABELS } from "./kube-proxy-metrics.js";

/** 1 ms to 16 s: restoring an element takes a millisecond, a large table half a second, a repair that has to wait ten seconds. */
const REPAIR_BUCKETS = Array.from({ length: 15 }, (_, n) => 0.001 * 2 ** n);

/** Registers its metrics. It is an observer of the proxier. */
export class TableMetrics implements ProxierObserver {
  readonly #repairs;
  readonly #seconds;
  readonly #rebuilds;
  readonly #inQuarantine;
  readonly #quarantined;
  readonly #contended;
  readonly #contentions;

  /** @param families the served families: their counters exist from the start, with 0. */
  constructor(registry: Registry, families: readonly IpFamily[]) {
    const registers = [registry];
    this.#repairs = new Counter({
      name: "nftproxier_table_repairs_total",
      help: "Transactions that repaired changes by another process, by how the change was noticed",
      labelNames: ["ip_family", "cause"] as const,
      registers,
    });
    this.#seconds = new Histogram({
      name: "nftproxier_table_repair_seconds",
      help: "Time from the first noticed change by another process to the kernel's answer to the repair",
      labelNames: ["ip_family"] as const,
      buckets: REPAIR_BUCKETS,
      registers,
    });
    this.#rebuilds = new Counter({
      name: "nftproxier_table_rebuilds_total",
      help: "Number of times that a table was deleted and written from scratch because the kernel refused to change it, by whether the kernel accepted that",
      labelNames: ["ip_family", "result"] as const,
      registers,
    });
    this.#quarantined = new Counter({
      name: "nftproxier_services_quarantined_total",
      help: "Number of times that a service was quarantined because the kernel refused it",
      labelNames: ["ip_family"] as const,
      registers,
    });
    this.#inQuarantine = new Gauge({
      name: "nftproxier_services_quarantined",
      help: "Services in quarantine now: the kernel refuses them, so their desired rules are not active",
      labelNames: ["ip_family"] as const,
      registers,
    });
    this.#contended = new Gauge({
      name: "nftproxier_tables_contended",
      help: "1 while another process, such as a second proxier, keeps reverting our writes",
      registers,
    });
    this.#contentions = new Counter({
      name: "nftproxier_tables_contended_total",
      help: "Number of times that another process began to revert our writes repeatedly",
      registers,
    });
    for (const family of families) {
      const labels = FAMILY_LABELS[family];
      for (const cause of REPAIR_CAUSES) this.#repairs.inc({ ...labels, cause }, 0);
      this.#seconds.zero(labels);
      for (const result of ["written", "refused"]) this.#rebuilds.inc({ ...labels, result }, 0);
      this.#quarantined.inc(labels, 0);
      this.#inQuarantine.set(labels, 0);
    }
  }

  repaired({ family, cause, ms }: RepairReport): void {
    this.#repairs.inc({ ...FAMILY_LABELS[family], cause });
    this.#seconds.observe(FAMILY_LABELS[family], ms / 1000);
  }

  rebuilt({ family, ok }: RebuildReport): void {
    this.#rebuilds.inc({ ...FAMILY_LABELS[family], result: ok ? "written" : "refused" });
  }

  contended(): void {
    this.#contended.set(1);
    this.#contentions.inc();
  }

  uncontended(): void {
    this.#contended.set(0);
  }

  quarantined({ family }: QuarantineReport): void {
    this.#quarantined.inc(FAMILY_LABELS[family]);
    this.#inQuarantine.inc(FAMILY_LABELS[family]);
  }

  released({ family }: Pick<QuarantineReport, "family">): void {
    this.#inQuarantine.dec(FAMILY_LABELS[family]);
  }
}
