/** Metrics in a separate registry: kube-proxy's, so that its dashboards and alerts keep working, and ours, under `nftproxier_`. */
import { collectDefaultMetrics, Registry } from "prom-client";
import type { NoLocalEndpoints } from "../model/no-local-endpoints.js";
import type { RequestReport } from "../objects/kubernetes/api-connection.js";
import type { IpFamily } from "../base/ip.js";
import type { ProxierObserver, SyncReport, SyncWork } from "../proxier/observer.js";
import {
  buildInfo,
  buildLabels,
  conntrackMetrics,
  KUBE_PROXY_VERSION,
  objectMetrics,
  probeMetrics,
  restMetrics,
  syncMetrics,
} from "./kube-proxy-metrics.js";
import { FAMILY_LABELS, type FamilyLabels, MetricMaker } from "./metric-maker.js";

interface MetricsOptions {
  /** The served families: their counters exist from the start, with 0. */
  readonly families: readonly IpFamily[];
  /** The version of this program, such as "0.2.0". */
  readonly version: string;
  /** Unix ms; default: the system's clock. */
  readonly now?: () => number;
  /** Age of a family's oldest pending change, ms; 0 if none is pending. */
  readonly pendingMs?: (family: IpFamily) => number;
}

/** Status codes of /livez and /healthz. */
export type ProbeCode = 200 | 503;

/** 50 µs to 3.3 s: one element takes the kernel about 100 µs, a full load of 50,000 services half a second. */
const KERNEL_BUCKETS = Array.from({ length: 17 }, (_, n) => 0.00005 * 2 ** n);

export class Metrics implements ProxierObserver {
  /** Other parts of the program register their metrics here: `registers: [metrics.registry]`. */
  readonly registry = new Registry();
  readonly #now: () => number;
  readonly #families: readonly FamilyLabels[];
  readonly #sync;
  readonly #objects;
  readonly #probes;
  readonly #conntrack;
  readonly #rest;
  readonly #build;
  readonly #own;
  #rendering: Promise<string> | undefined;

  constructor(options: MetricsOptions) {
    this.#now = options.now ?? Date.now;
    this.#families = options.families.map((family) => FAMILY_LABELS[family]);
    const make = new MetricMaker(this.registry, options.families, "[ALPHA] ");
    this.#sync = syncMetrics(make);
    this.#objects = objectMetrics(make);
    this.#probes = probeMetrics(make);
    this.#conntrack = conntrackMetrics(make);
    this.#rest = restMetrics(make);
    this.#build = buildInfo(new MetricMaker(this.registry, [], "[BETA] "));
    this.#own = ownMetrics(new MetricMaker(this.registry, options.families), options);
    processMetrics(this.registry);

    this.setKubernetesVersion(KUBE_PROXY_VERSION);
    this.queued(this.#now());
    for (const family of options.families) this.noLocalEndpoints(family, { internal: 0, external: 0 });
  }

  /**
   * Counts as kube-proxy does (pkg/proxy/{servicechangetracker,endpointschangetracker}.go): every event, even if it changes no
   * rules. Each Service counts for each family's proxier, a slice only for the one of its family.
   */
  received(kind: "Service" | "EndpointSlice"): void {
    this.#objects.changes[kind].inc(kind === "Service" ? this.#families.length : 1);
  }

  changed(kind: "Service" | "EndpointSlice"): void {
    this.#objects.pending[kind].inc();
  }

  queued(at: number): void {
    for (const family of this.#families) this.#sync.lastQueued.set(family, at / 1000);
  }

  taken(): void {
    this.#objects.pending.Service.set(0);
    this.#objects.pending.EndpointSlice.set(0);
  }

  synced(report: SyncReport): void {
    const family = FAMILY_LABELS[report.family];
    const seconds = report.ms / 1000;
    this.#sync.duration.observe(family, seconds);
    (report.full ? this.#sync.full : this.#sync.partial).observe(family, seconds);
    if (!report.ok) {
      this.#sync.failures.inc(family);
      return;
    }
    const now = this.#now();
    this.#sync.last.set(family, now / 1000);
    for (const trigger of report.triggers) this.#sync.programming.observe(family, (now - trigger) / 1000);
    if (report.work !== undefined && report.work.transactions > 0) this.#worked(family, report.work);
  }

  noLocalEndpoints(family: IpFamily, counts: NoLocalEndpoints): void {
    const { ip_family } = FAMILY_LABELS[family];
    this.#objects.noLocal.set({ traffic_policy: "internal", ip_family }, counts.internal);
    this.#objects.noLocal.set({ traffic_policy: "external", ip_family }, counts.external);
  }

  /** One answer of /healthz or /livez on the health port. */
  probed(path: "healthz" | "livez", code: ProbeCode): void {
    this.#probes[path].inc({ code: String(code) });
  }

  /** One check of a family's conntrack entries for stale ones: ReconcileReport of `conntrack/`. */
  reconciled({ family, ms, deleted }: { family: IpFamily; ms: number; deleted: number }): void {
    this.#conntrack.duration.observe(FAMILY_LABELS[family], ms / 1000);
    this.#conntrack.deleted.inc(FAMILY_LABELS[family], deleted);
  }

  restRequest({ code, method, verb, host, seconds }: RequestReport): void {
    this.#rest.requests.inc({ code, method, host });
    if (seconds !== undefined) this.#rest.duration.observe({ verb, host }, seconds);
  }

  /**
   * Makes `kubernetes_build_info` show the version that the API server reports ("v1.35.2", from its /version). Alerts compare
   * that metric between components. We work with every version, and would only trigger them.
   */
  setKubernetesVersion(gitVersion: string): void {
    this.#build.reset();
    this.#build.set(buildLabels(gitVersion), 1);
  }

  /**
   * All metrics in the format of `registry.contentType`. Requests that arrive during a rendering share it: many clients cost no
   * more than one.
   */
  render(): Promise<string> {
    this.#rendering ??= this.registry.metrics().finally(() => (this.#rendering = undefined));
    return this.#rendering;
  }

  #worked(family: FamilyLabels, work: SyncWork): void {
    this.#own.kernel.observe(family, work.kernelMs / 1000);
    this.#own.transactions.inc(family, work.transactions);
    this.#own.operations.inc(family, work.operations);
    this.#own.bytes.inc(family, work.bytes);
  }
}

/** Our metrics: work for the kernel, waiting changes, and build information. */
function ownMetrics(make: MetricMaker, { version, pendingMs }: MetricsOptions) {
  make
    .gauge("nftproxier_build_info", "Always 1; the labels are the versions of nft-proxier and Node.js", [
      "version",
      "node_version",
    ])
    .set({ version, node_version: process.version }, 1);
  if (pendingMs !== undefined)
    make.familyGauge(
      "nftproxier_oldest_pending_change_seconds",
      "Age of the change that has been pending longest; 0 if none is pending",
      (family) => pendingMs(family) / 1000,
    );
  return {
    kernel: make.familyHistogram("nftproxier_sync_kernel_seconds", "Time per write in the kernel", KERNEL_BUCKETS),
    transactions: make.familyCounter("nftproxier_sync_transactions_total", "Transactions that the kernel accepted"),
    operations: make.familyCounter(
      "nftproxier_sync_operations_total",
      "Objects and elements that were added or deleted in the kernel",
    ),
    bytes: make.familyCounter("nftproxier_sync_bytes_total", "Bytes of netlink messages that the kernel accepted"),
  } as const;
}

/**
 * `process_*` as in every Prometheus client, and `nodejs_*`. For the event loop there is only the lag at the time of a scrape.
 * Percentiles need a timer every 10 ms, which would be nearly all the work of an idle node.
 */
function processMetrics(registry: Registry): void {
  const never = 3_600_000;
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: never });
  // prom-client reads the time when it is loaded. With a startup snapshot, that is when the image is built.
  const start = "process_start_time_seconds";
  registry.removeSingleMetric(start);
  const started = Math.round(performance.timeOrigin / 1000);
  new MetricMaker(registry, []).gauge(start, "Start time of the process since unix epoch in seconds.").set(started);
  for (const { name } of registry.getMetricsAsArray()) {
    const percentile = name.startsWith("nodejs_eventloop_lag_") && name !== "nodejs_eventloop_lag_seconds";
    if (percentile) registry.removeSingleMetric(name);
  }
}
