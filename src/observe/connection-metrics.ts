/** Connections of services, as the kernel counts them. They are only read from the kernel for a scrape. */
import type { Counter, Registry } from "prom-client";
import type { ServedCounts } from "../model/service-port-view.js";
import { yieldToEventLoop } from "../base/time-slice.js";
import type { IpFamily } from "../base/ip.js";
import { FAMILY_LABELS, MetricMaker } from "./metric-maker.js";
import type { ServicePortStatus } from "./status-report.js";

const DEFAULT_SERIES = 2000;
const LABELS = ["namespace", "service", "port", "protocol", "ip_family"] as const;
type Label = (typeof LABELS)[number];
const NAME = "nftproxier_service_connections_total";
const REFUSED = "nftproxier_service_refused_packets_total";

/** The parts of a service port that the metric needs. */
export type CountedPort = Pick<
  ServicePortStatus,
  "family" | "namespace" | "name" | "portName" | "port" | "protocol" | "connections" | "refusals"
>;

export interface ConnectionSource {
  /** Service ports in a stable order, by name, some at a time. `connections` is absent if they are not counted. */
  ports(): AsyncIterable<readonly CountedPort[]>;
  /** Numbers of active services and endpoints. */
  counts(family: IpFamily): ServedCounts;
}

interface ConnectionMetricsOptions {
  readonly families: readonly IpFamily[];
  /** Maximum number of the counter's series, the first ones by name; 0: no counter. Default 2,000. */
  readonly series?: number;
}

export function registerConnectionMetrics(
  registry: Registry,
  source: ConnectionSource,
  { families, series = DEFAULT_SERIES }: ConnectionMetricsOptions,
): void {
  const make = new MetricMaker(registry, families);
  make.familyGauge("nftproxier_services", "Active services now", (family) => source.counts(family).services);
  make.familyGauge(
    "nftproxier_endpoints",
    "Endpoints that receive traffic now",
    (family) => source.counts(family).endpoints,
  );
  if (series === 0) return;
  let omittedSeries = 0;
  /**
   * Concurrent scrapes share one collection, because it yields to the event loop. Otherwise, each would add to the same series.
   */
  let collecting: Promise<void> | undefined;
  const collectAll = async (): Promise<void> => {
    try {
      omittedSeries = await collect({ connections, refused }, source, series);
    } finally {
      collecting = undefined;
    }
  };
  const connections: Counter<Label> = make.counter(
    NAME,
    "New connections to a service's addresses and node port that got an endpoint. The kernel counts them since the service's elements were created",
    LABELS,
    () => (collecting ??= collectAll()),
  );
  // Registered after the counter, so that they are from the same scrape.
  const refused: Counter<Label | "reason"> = make.counter(
    REFUSED,
    "Packets of new connections that a service or its endpoints refused or dropped, by reason. The kernel counts them since the first one, and starts again after an hour without one (reason endpoint: a minute)",
    [...LABELS, "reason"],
    () => collecting,
  );
  make.gauge(
    "nftproxier_service_connections_omitted_series",
    `Service ports that ${NAME} omits now, because there are more than --connection-series`,
    [],
    async (omitted) => {
      await collecting;
      omitted.set(omittedSeries);
    },
  );
}

interface Counters {
  readonly connections: Counter<Label>;
  readonly refused: Counter<Label | "reason">;
}

/** Returns the number of service ports without a series. Refusals have separate series, at most as many. */
async function collect({ connections, refused }: Counters, source: ConnectionSource, series: number): Promise<number> {
  let all = 0;
  // The numbers are the kernel's, and may start from 0 again.
  connections.reset();
  refused.reset();
  let refusedSeries = 0;
  for await (const piece of source.ports()) {
    for (const port of piece) {
      const { connections: count, refusals = {} } = port;
      for (const [reason, packets] of Object.entries(refusals)) {
        if (++refusedSeries <= series) refused.inc({ ...labelsOf(port), reason }, packets);
      }
      if (count !== undefined && ++all <= series) connections.inc(labelsOf(port), count);
    }
    await yieldToEventLoop();
  }
  return Math.max(0, all - series);
}

function labelsOf({ family, namespace, name: service, portName, port, protocol }: CountedPort): Record<Label, string> {
  return { namespace, service, port: portName || String(port), protocol, ...FAMILY_LABELS[family] };
}
