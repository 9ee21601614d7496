/**
 * kube-proxy's metrics in nftables mode: names, labels, help texts and buckets of release 1.36 (pkg/proxy/metrics,
 * component-base/metrics/prometheus/restclient, component-base/metrics/version.go). They are all alpha there.
 */
import type { Gauge } from "prom-client";
import type { MetricMaker } from "./metric-maker.js";

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

const RULES = "kubeproxy_sync_proxy_rules";
const LATENCY = "SyncProxyRules latency in seconds";

/** Metrics of writes: their duration, their failures, and the time of a change from its cause to the kernel. */
export function syncMetrics(make: MetricMaker) {
  // Writes need no separate cleanup here, so this stays 0. It exists for users with an alert on it.
  make.familyCounter(`${RULES}_nftables_cleanup_failures_total`, "Cumulative proxy nftables cleanup failures");
  return {
    duration: make.familyHistogram(`${RULES}_duration_seconds`, LATENCY, SYNC_BUCKETS),
    full: make.familyHistogram(
      "kubeproxy_sync_full_proxy_rules_duration_seconds",
      `${LATENCY} for full resyncs`,
      SYNC_BUCKETS,
    ),
    partial: make.familyHistogram(
      "kubeproxy_sync_partial_proxy_rules_duration_seconds",
      `${LATENCY} for partial resyncs`,
      SYNC_BUCKETS,
    ),
    programming: make.familyHistogram(
      "kubeproxy_network_programming_duration_seconds",
      "In Cluster Network Programming Latency in seconds",
      PROGRAMMING_BUCKETS,
    ),
    // Their series appear when they are set: 0 would be a wrong value for a time counted from 1970.
    last: make.gauge(`${RULES}_last_timestamp_seconds`, "The last time proxy rules were successfully synced", [
      "ip_family",
    ]),
    lastQueued: make.gauge(`${RULES}_last_queued_timestamp_seconds`, "The last time a sync of proxy rules was queued", [
      "ip_family",
    ]),
    failures: make.familyCounter(`${RULES}_nftables_sync_failures_total`, "Cumulative proxy nftables sync failures"),
  } as const;
}

/** Changes by kind of object, and services whose Local policy keeps them from their endpoints. */
export function objectMetrics(make: MetricMaker) {
  return {
    changes: {
      Service: make.counter(`${RULES}_service_changes_total`, "Cumulative proxy rules Service changes"),
      EndpointSlice: make.counter(`${RULES}_endpoint_changes_total`, "Cumulative proxy rules Endpoint changes"),
    },
    pending: {
      Service: make.gauge(`${RULES}_service_changes_pending`, "Pending proxy rules Service changes"),
      EndpointSlice: make.gauge(`${RULES}_endpoint_changes_pending`, "Pending proxy rules Endpoint changes"),
    },
    noLocal: make.gauge(
      `${RULES}_no_local_endpoints_total`,
      "Number of services with a Local traffic policy and no endpoints",
      ["traffic_policy", "ip_family"],
    ),
  } as const;
}

/** Answers on the health port. One series per code. */
export function probeMetrics(make: MetricMaker) {
  const answers = (name: string, help: string) => {
    const counter = make.counter(name, help, ["code"]);
    for (const code of ["200", "503"]) counter.inc({ code }, 0);
    return counter;
  };
  return {
    healthz: answers("kubeproxy_proxy_healthz_total", "Cumulative proxy healthz HTTP status"),
    livez: answers("kubeproxy_proxy_livez_total", "Cumulative proxy livez HTTP status"),
  } as const;
}

export function conntrackMetrics(make: MetricMaker) {
  return {
    duration: make.familyHistogram(
      "kubeproxy_conntrack_reconciler_sync_duration_seconds",
      "ReconcileConntrackFlowsLatency latency in seconds",
      SYNC_BUCKETS,
    ),
    deleted: make.familyCounter(
      "kubeproxy_conntrack_reconciler_deleted_entries_total",
      "Cumulative conntrack flows deleted by conntrack reconciler",
    ),
  } as const;
}

/** client-go's metrics of requests to the API server. */
export function restMetrics(make: MetricMaker) {
  return {
    requests: make.counter(
      "rest_client_requests_total",
      "Number of HTTP requests, partitioned by status code, method, and host.",
      ["code", "method", "host"],
    ),
    duration: make.histogram(
      "rest_client_request_duration_seconds",
      "Request latency in seconds. Broken down by verb, and host.",
      REST_BUCKETS,
      ["verb", "host"],
    ),
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

export function buildInfo(make: MetricMaker): Gauge<(typeof BUILD_LABELS)[number]> {
  return make.gauge(
    "kubernetes_build_info",
    "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, " +
      "build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
    BUILD_LABELS,
  );
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
