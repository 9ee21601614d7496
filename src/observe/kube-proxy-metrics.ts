/**
 * kube-proxy's metrics in nftables mode: names, labels, help texts and buckets of release 1.36 (pkg/proxy/metrics,
 * component-base/metrics/prometheus/restclient, component-base/metrics/version.go). They are all alpha there.
 */
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

const SYNC_BUCKETS = Array.from({ length: 15 }, (_, n) => 0.001 * 2 ** n);
const PROGRAMMING_BUCKETS = [
  0.25,
  0.5,
  ...Array.from({ length: 59 }, (_, n) => n + 1),
  ...Array.from({ length: 12 }, (_, n) => 60 + 5 * n),
  ...Array.from({ length: 7 }, (_, n) => 120 + 30 * n),
];
const REST_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60];

/** The release whose behaviour, metrics and configuration we follow. */
export const KUBE_PROXY_VERSION = "v1.36.0";
/** Go's names of architectures, if they differ from Node's. */
const GO_ARCHITECTURES: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386" };

/** Makes metrics without labels, and metrics with the label `ip_family` whose series exist from the start. */
export class MetricMaker {
  readonly registry: Registry;
  readonly #families: readonly FamilyLabels[];
  readonly #prefix: string;

  /** `prefix` precedes each help text: component-base puts the metric's stability there. */
  constructor(registry: Registry, families: readonly IpFamily[], prefix = "") {
    this.registry = registry;
    this.#families = families.map((family) => FAMILY_LABELS[family]);
    this.#prefix = prefix;
  }

  histogram(name: string, help: string, buckets: number[]): Histogram<FamilyLabel> {
    const histogram = new Histogram({ ...this.#named(name, help), buckets, labelNames: ["ip_family"] });
    for (const family of this.#families) histogram.zero(family);
    return histogram;
  }

  counter(name: string, help: string): Counter<FamilyLabel> {
    const counter = new Counter({ ...this.#named(name, help), labelNames: ["ip_family"] });
    for (const family of this.#families) counter.inc(family, 0);
    return counter;
  }

  /** Its series appear when they are set: 0 would be a wrong value for a time counted from 1970. */
  timestamp(name: string, help: string): Gauge<FamilyLabel> {
    return new Gauge({ ...this.#named(name, help), labelNames: ["ip_family"] });
  }

  /** One series per code. */
  codeCounter(name: string, help: string, codes: readonly string[]): Counter<"code"> {
    const counter = new Counter({ ...this.#named(name, help), labelNames: ["code"] });
    for (const code of codes) counter.inc({ code }, 0);
    return counter;
  }

  plainGauge(name: string, help: string): Gauge {
    return new Gauge(this.#named(name, help));
  }

  plainCounter(name: string, help: string): Counter {
    return new Counter(this.#named(name, help));
  }

  #named(name: string, help: string): { name: string; help: string; registers: [Registry] } {
    return { name, help: this.#prefix + help, registers: [this.registry] };
  }
}

const RULES = "kubeproxy_sync_proxy_rules";
const LATENCY = "SyncProxyRules latency in seconds";

/** Metrics of writes: their duration, their failures, and the time of a change from its cause to the kernel. */
export function syncMetrics(make: MetricMaker) {
  // Writes need no separate cleanup here, so this stays 0. It exists for users with an alert on it.
  make.counter(`${RULES}_nftables_cleanup_failures_total`, "Cumulative proxy nftables cleanup failures");
  return {
    duration: make.histogram(`${RULES}_duration_seconds`, LATENCY, SYNC_BUCKETS),
    full: make.histogram(
      "kubeproxy_sync_full_proxy_rules_duration_seconds",
      `${LATENCY} for full resyncs`,
      SYNC_BUCKETS,
    ),
    partial: make.histogram(
      "kubeproxy_sync_partial_proxy_rules_duration_seconds",
      `${LATENCY} for partial resyncs`,
      SYNC_BUCKETS,
    ),
    programming: make.histogram(
      "kubeproxy_network_programming_duration_seconds",
      "In Cluster Network Programming Latency in seconds",
      PROGRAMMING_BUCKETS,
    ),
    last: make.timestamp(`${RULES}_last_timestamp_seconds`, "The last time proxy rules were successfully synced"),
    lastQueued: make.timestamp(
      `${RULES}_last_queued_timestamp_seconds`,
      "The last time a sync of proxy rules was queued",
    ),
    failures: make.counter(`${RULES}_nftables_sync_failures_total`, "Cumulative proxy nftables sync failures"),
  } as const;
}

/** Changes by kind of object, and services whose Local policy keeps them from their endpoints. */
export function objectMetrics(make: MetricMaker) {
  return {
    changes: {
      Service: make.plainCounter(`${RULES}_service_changes_total`, "Cumulative proxy rules Service changes"),
      EndpointSlice: make.plainCounter(`${RULES}_endpoint_changes_total`, "Cumulative proxy rules Endpoint changes"),
    },
    pending: {
      Service: make.plainGauge(`${RULES}_service_changes_pending`, "Pending proxy rules Service changes"),
      EndpointSlice: make.plainGauge(`${RULES}_endpoint_changes_pending`, "Pending proxy rules Endpoint changes"),
    },
    noLocal: new Gauge({
      name: `${RULES}_no_local_endpoints_total`,
      help: "[ALPHA] Number of services with a Local traffic policy and no endpoints",
      labelNames: ["traffic_policy", "ip_family"],
      registers: [make.registry],
    }),
  } as const;
}

/** Answers on the health port. */
export function probeMetrics(make: MetricMaker) {
  const codes = ["200", "503"];
  return {
    healthz: make.codeCounter("kubeproxy_proxy_healthz_total", "Cumulative proxy healthz HTTP status", codes),
    livez: make.codeCounter("kubeproxy_proxy_livez_total", "Cumulative proxy livez HTTP status", codes),
  } as const;
}

export function conntrackMetrics(make: MetricMaker) {
  return {
    duration: make.histogram(
      "kubeproxy_conntrack_reconciler_sync_duration_seconds",
      "ReconcileConntrackFlowsLatency latency in seconds",
      SYNC_BUCKETS,
    ),
    deleted: make.counter(
      "kubeproxy_conntrack_reconciler_deleted_entries_total",
      "Cumulative conntrack flows deleted by conntrack reconciler",
    ),
  } as const;
}

/** client-go's metrics of requests to the API server. */
export function restMetrics(registry: Registry) {
  return {
    requests: new Counter({
      name: "rest_client_requests_total",
      help: "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
      labelNames: ["code", "method", "host"],
      registers: [registry],
    }),
    duration: new Histogram({
      name: "rest_client_request_duration_seconds",
      help: "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
      labelNames: ["verb", "host"],
      buckets: REST_BUCKETS,
      registers: [registry],
    }),
  } as const;
}

const BUILD_LABELS = [
  "major",
  "minor",
  "git_version",
  "git_commit",
  "git_tree_state",
  "build_date",
  "go_version",
  "compiler",
  "platform",
] as const;

export function buildInfo(registry: Registry): Gauge<(typeof BUILD_LABELS)[number]> {
  return new Gauge({
    name: "kubernetes_build_info",
    help:
      "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, " +
      "build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
    labelNames: BUILD_LABELS,
    registers: [registry],
  });
}

/** Labels of `kubernetes_build_info` for a version ("v1.36.0"). Labels that only a Kubernetes build has are empty. */
export function buildLabels(gitVersion: string): Record<(typeof BUILD_LABELS)[number], string> {
  const [, major = "", minor = ""] = /^v?(\d+)\.(\d+)/.exec(gitVersion) ?? [];
  const platform = `${process.platform}/${GO_ARCHITECTURES[process.arch] ?? process.arch}`;
  return {
    major,
    minor,
    git_version: gitVersion,
    git_commit: "",
    git_tree_state: "",
    build_date: "",
    go_version: "",
    compiler: "",
    platform,
  };
}
