/** Metrics of the flowtable, registered if it is enabled. */
import type { Registry } from "prom-client";
import { MetricMaker } from "./metric-maker.js";

/** Registers its metrics. @returns a function that counts a failure. */
export function registerFlowtableMetrics(registry: Registry, interfaces: () => number): () => void {
  const make = new MetricMaker(registry, []);
  make.gauge("nftproxier_flowtable_interfaces", "Interfaces in the flowtable now", [], (gauge) =>
    gauge.set(interfaces()),
  );
  const failures = make.counter(
    "nftproxier_flowtable_failures_total",
    "Number of failed updates of the flowtable, including refused interfaces",
  );
  return () => failures.inc();
}
