/** Metrics of the flowtable, registered if it is enabled. */
import { Counter, Gauge, type Registry } from "prom-client";

/** Registers its metrics. @returns a function that counts a failure. */
export function registerFlowtableMetrics(registry: Registry, interfaces: () => number): () => void {
  const registers = [registry];
  const gauge: Gauge = new Gauge({
    name: "nftproxier_flowtable_interfaces",
    help: "Interfaces in the flowtable now",
    registers,
    collect: () => gauge.set(interfaces()),
  });
  const failures = new Counter({
    name: "nftproxier_flowtable_failures_total",
    help: "Number of failed updates of the flowtable, including refused interfaces",
    registers,
  });
  return () => failures.inc();
}
