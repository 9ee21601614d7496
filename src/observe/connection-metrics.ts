/** Connections of services, as the kernel counts them. They are only read from the kernel for a scrape. */
import { Counter, Gauge, type Registry } from "prom-client";
import { TimeSlice } from "../base/time-slice.js";
import type { IpFamily } from "../base/ip.js";
import { FAMILY_LABELS } from "./kube-proxy-metrics.js";

const DEFAULT_SERIES = 2000;
const LABELS = ["namespace", "service", "port", "protocol", "ip_family"] as const;
type Label = (typeof LABELS)[number];
const NAME = "nftproxier_service_connections_total";

/** One service port of one family. */
export interface CountedPort {
  readonly family: IpFamily;
  readonly namespace: string;
  readonly service: string;
  /** The port's name if it has one, otherwise its number: "80". */
  readonly port: string;
  readonly protocol: string;
  readonly connections: number;
}

export interface ConnectionSource {
  /** In a stable order, by name. */
  ports(): Promise<Iterable<CountedPort>>;
  /** Numbers of active services and endpoints. */
  counts(family: IpFamily): { readonly services: number; readonly endpoints: number };
}

export interface ConnectionMetricsOptions {
  readonly families: readonly IpFamily[];
  /** Maximum number of the counter's series, the first ones by name; 0: no counter. Default 2,000. */
  readonly series?: number;
}

export function registerConnectionMetrics(
  registry: Registry,
  source: ConnectionSource,
  { families, series = DEFAULT_SERIES }: ConnectionMetricsOptions,
): void {
  for (const what of ["services", "endpoints"] as const) {
    const gauge: Gauge<"ip_family"> = new Gauge({
      name: `nftproxier_${what}`,
      help: what === "services" ? "Services that are served" : "Endpoints that take traffic",
      labelNames: ["ip_family"],
      registers: [registry],
      collect: () => {
        for (const family of families) gauge.set(FAMILY_LABELS[family], source.counts(family)[what]);
      },
    });
  }
  if (series === 0) return;
  let omittedSeries = 0;
  /**
   * Concurrent scrapes share one collection, because it yields to the event loop. Otherwise, each would add to the same series.
   */
  let collecting: Promise<void> | undefined;
  const collectAll = async (): Promise<void> => {
    try {
      omittedSeries = await collect(connections, source, series);
    } finally {
      collecting = undefined;
    }
  };
  const connections: Counter<Label> = new Counter({
    name: NAME,
    help: "New connections to a service's addresses and node port that were given an endpoint, as the kernel counts them",
    labelNames: LABELS,
    registers: [registry],
    collect: () => (collecting ??= collectAll()),
  });
  // Registered after the counter, so that it is from the same scrape.
  const omitted: Gauge = new Gauge({
    name: "nftproxier_service_connections_omitted_series",
    help: `Service ports that ${NAME} does not name: more than --connection-series`,
    registers: [registry],
    collect: async () => {
      await collecting;
      omitted.set(omittedSeries);
    },
  });
}

/** Returns the number of service ports without a series. */
async function collect(connections: Counter<Label>, source: ConnectionSource, series: number): Promise<number> {
  const slice = new TimeSlice();
  let all = 0;
  const ports = await source.ports();
  // The numbers are the kernel's, and may start from 0 again.
  connections.reset();
  for (const { family, namespace, service, port, protocol, connections: count } of ports) {
    if (++all > series) continue;
    connections.inc({ namespace, service, port, protocol, ...FAMILY_LABELS[family] }, count);
    if (slice.spent) await slice.yield();
  }
  return Math.max(0, all - series);
}
