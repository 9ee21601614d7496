/** Makes metrics in a registry. */
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import { FAMILY_NAMES } from "../base/ip-families.js";
import type { IpFamily } from "../base/ip.js";

type FamilyLabel = "ip_family";
export type FamilyLabels = Readonly<Record<FamilyLabel, string>>;

/** Labels of each family, as constants: counting allocates nothing. */
export const FAMILY_LABELS: Readonly<Record<IpFamily, FamilyLabels>> = {
  ip: Object.freeze({ ip_family: FAMILY_NAMES.ip }),
  ip6: Object.freeze({ ip_family: FAMILY_NAMES.ip6 }),
};

export class MetricMaker {
  /**
   * @param families the series of metrics per family, which exist from the start.
   * @param prefix precedes each help text: component-base puts the metric's stability there.
   */
  constructor(
    private readonly registry: Registry,
    private readonly families: readonly IpFamily[],
    private readonly prefix = "",
  ) {}

  /** @param collect called before each scrape. */
  counter<L extends string>(
    name: string,
    help: string,
    labelNames: readonly L[] = [],
    collect?: () => void | Promise<void>,
  ): Counter<L> {
    return new Counter({ ...this.#named(name, help), labelNames, collect });
  }

  /** @param collect sets the value before each scrape. */
  gauge<L extends string>(
    name: string,
    help: string,
    labelNames: readonly L[] = [],
    collect?: (gauge: Gauge<L>) => void | Promise<void>,
  ): Gauge<L> {
    const gauge: Gauge<L> = new Gauge({
      ...this.#named(name, help),
      labelNames,
      collect: collect && (() => collect(gauge)),
    });
    return gauge;
  }

  histogram<L extends string>(name: string, help: string, buckets: number[], labelNames: L[] = []): Histogram<L> {
    return new Histogram({ ...this.#named(name, help), buckets, labelNames });
  }

  familyCounter(name: string, help: string): Counter<FamilyLabel> {
    const counter = this.counter(name, help, ["ip_family"]);
    for (const family of this.families) counter.inc(FAMILY_LABELS[family], 0);
    return counter;
  }

  familyHistogram(name: string, help: string, buckets: number[]): Histogram<FamilyLabel> {
    const histogram = this.histogram(name, help, buckets, ["ip_family"]);
    for (const family of this.families) histogram.zero(FAMILY_LABELS[family]);
    return histogram;
  }

  /** @param valueOf called for each scrape. */
  familyGauge(name: string, help: string, valueOf: (family: IpFamily) => number): Gauge<FamilyLabel> {
    return this.gauge(name, help, ["ip_family"], (gauge) => {
      for (const family of this.families) gauge.set(FAMILY_LABELS[family], valueOf(family));
    });
  }

  #named(name: string, help: string): { name: string; help: string; registers: [Registry] } {
    return { name, help: this.prefix + help, registers: [this.registry] };
  }
}
