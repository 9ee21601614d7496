/** Metrics of repairs, rebuilds and contention, and of quarantined services. */
import type { Registry } from "prom-client";
import type { IpFamily } from "../base/ip.js";
import {
  REPAIR_CAUSES,
  type ProxierObserver,
  type QuarantineReport,
  type RebuildReport,
  type RepairReport,
} from "../proxier/observer.js";
import { FAMILY_LABELS, MetricMaker } from "./metric-maker.js";

/** 1 ms to 16 s: restoring an element takes a millisecond, a large table half a second, a repair that has to wait ten seconds. */
const REPAIR_BUCKETS = Array.from({ length: 15 }, (_, n) => 0.001 * 2 ** n);

function tableMetrics(make: MetricMaker) {
  return {
    repairs: make.counter(
      "nftproxier_table_repairs_total",
      "Transactions that repaired changes by another process, by how the change was noticed",
      ["ip_family", "cause"],
    ),
    seconds: make.familyHistogram(
      "nftproxier_table_repair_seconds",
      "Time from the first noticed change by another process to the kernel's answer to the repair",
      REPAIR_BUCKETS,
    ),
    rebuilds: make.counter(
      "nftproxier_table_rebuilds_total",
      "Number of times that a table was deleted and written from scratch because the kernel refused to change it, by whether the kernel accepted that",
      ["ip_family", "result"],
    ),
    quarantined: make.familyCounter(
      "nftproxier_services_quarantined_total",
      "Number of times that a service was quarantined because the kernel refused it",
    ),
    inQuarantine: make.gauge(
      "nftproxier_services_quarantined",
      "Services in quarantine now: the kernel refuses them, so their desired rules are not active",
      ["ip_family"],
    ),
    contended: make.gauge(
      "nftproxier_tables_contended",
      "1 while another process, such as a second proxier, keeps reverting our writes",
    ),
    contentions: make.counter(
      "nftproxier_tables_contended_total",
      "Number of times that another process began to revert our writes repeatedly",
    ),
  } as const;
}

/** Registers its metrics. It is an observer of the proxier. */
export class TableMetrics implements ProxierObserver {
  readonly #metrics;

  /** @param families the served families: their counters exist from the start, with 0. */
  constructor(registry: Registry, families: readonly IpFamily[]) {
    this.#metrics = tableMetrics(new MetricMaker(registry, families));
    const { repairs, rebuilds, inQuarantine } = this.#metrics;
    for (const family of families) {
      const labels = FAMILY_LABELS[family];
      for (const cause of REPAIR_CAUSES) repairs.inc({ ...labels, cause }, 0);
      for (const result of ["written", "refused"]) rebuilds.inc({ ...labels, result }, 0);
      inQuarantine.set(labels, 0);
    }
  }

  repaired({ family, cause, ms }: RepairReport): void {
    this.#metrics.repairs.inc({ ...FAMILY_LABELS[family], cause });
    this.#metrics.seconds.observe(FAMILY_LABELS[family], ms / 1000);
  }

  rebuilt({ family, ok }: RebuildReport): void {
    this.#metrics.rebuilds.inc({ ...FAMILY_LABELS[family], result: ok ? "written" : "refused" });
  }

  contended(): void {
    this.#metrics.contended.set(1);
    this.#metrics.contentions.inc();
  }

  uncontended(): void {
    this.#metrics.contended.set(0);
  }

  quarantined({ family }: QuarantineReport): void {
    this.#metrics.quarantined.inc(FAMILY_LABELS[family]);
    this.#metrics.inQuarantine.inc(FAMILY_LABELS[family]);
  }

  released({ family }: Pick<QuarantineReport, "family">): void {
    this.#metrics.inQuarantine.dec(FAMILY_LABELS[family]);
  }
}
