/** The metrics that a dashboard made for kube-proxy finds at /metrics. */
import { beforeEach, describe, expect, test } from "vitest";
import { Metrics } from "../../../src/observe/metrics.js";
import { WRITTEN } from "../proxier/support/sync-report.ts";

const START = Date.parse("2026-01-02T03:04:05Z");

let now: number;
let metrics: Metrics;

function make(): Metrics {
  return new Metrics({ families: ["ip", "ip6"], version: "0.2.0", now: () => now, pendingMs: () => 250 });
}

beforeEach(() => {
  now = START;
  metrics = make();
});

/** Lines of one metric, without its help. */
async function series(name: string): Promise<string[]> {
  const lines = (await metrics.render()).split("\n");
  return lines.filter((line) => new RegExp(`^${name}(_bucket|_sum|_count)?[{ ]`).test(line));
}

async function heads(): Promise<{ name: string; type: string; help: string }[]> {
  const text = await metrics.render();
  return [...text.matchAll(/^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)$/gm)].map(([, name = "", help = "", type = ""]) => ({
    name,
    help,
    type,
  }));
}

/**
 * Metrics of kube-proxy 1.36 in nftables mode, from its reference page,
 * kubernetes.io/docs/reference/instrumentation/metrics: name, type, help.
 */
const KUBE_PROXY = `
kubeproxy_conntrack_reconciler_deleted_entries_total counter [ALPHA] Cumulative conntrack flows deleted by conntrack reconciler
kubeproxy_conntrack_reconciler_sync_duration_seconds histogram [ALPHA] ReconcileConntrackFlowsLatency latency in seconds
kubeproxy_network_programming_duration_seconds histogram [ALPHA] In Cluster Network Programming Latency in seconds
kubeproxy_proxy_healthz_total counter [ALPHA] Cumulative proxy healthz HTTP status
kubeproxy_proxy_livez_total counter [ALPHA] Cumulative proxy livez HTTP status
kubeproxy_sync_full_proxy_rules_duration_seconds histogram [ALPHA] SyncProxyRules latency in seconds for full resyncs
kubeproxy_sync_partial_proxy_rules_duration_seconds histogram [ALPHA] SyncProxyRules latency in seconds for partial resyncs
kubeproxy_sync_proxy_rules_duration_seconds histogram [ALPHA] SyncProxyRules latency in seconds
kubeproxy_sync_proxy_rules_endpoint_changes_pending gauge [ALPHA] Pending proxy rules Endpoint changes
kubeproxy_sync_proxy_rules_endpoint_changes_total counter [ALPHA] Cumulative proxy rules Endpoint changes
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds gauge [ALPHA] The last time a sync of proxy rules was queued
kubeproxy_sync_proxy_rules_last_timestamp_seconds gauge [ALPHA] The last time proxy rules were successfully synced
kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total counter [ALPHA] Cumulative proxy nftables cleanup failures
kubeproxy_sync_proxy_rules_nftables_sync_failures_total counter [ALPHA] Cumulative proxy nftables sync failures
kubeproxy_sync_proxy_rules_no_local_endpoints_total gauge [ALPHA] Number of services with a Local traffic policy and no endpoints
kubeproxy_sync_proxy_rules_service_changes_pending gauge [ALPHA] Pending proxy rules Service changes
kubeproxy_sync_proxy_rules_service_changes_total counter [ALPHA] Cumulative proxy rules Service changes
`
  .trim()
  .split("\n");

describe("names", () => {
  test("all of kube-proxy's exist, and none that it does not have", async () => {
    const found = (await heads()).filter(({ name }) => name.startsWith("kubeproxy_"));
    const lines = found.map(({ name, type, help }) => `${name} ${type} ${help}`);
    expect(lines.sort()).toEqual([...KUBE_PROXY].sort());
  });

  test("client-go's, the build's and the process's exist", async () => {
    const names = (await heads()).map(({ name }) => name);
    for (const name of [
      "rest_client_requests_total",
      "rest_client_request_duration_seconds",
      "kubernetes_build_info",
      "process_cpu_seconds_total",
      "process_max_fds",
      "process_open_fds",
      "process_resident_memory_bytes",
      "process_start_time_seconds",
      "process_virtual_memory_bytes",
    ]) {
      expect(names).toContain(name);
    }
  });

  test("ours exist", async () => {
    const names = (await heads()).map(({ name }) => name).filter((name) => name.startsWith("nftproxier_"));
    expect(names.sort()).toEqual([
      "nftproxier_build_info",
      "nftproxier_oldest_pending_change_seconds",
      "nftproxier_sync_bytes_total",
      "nftproxier_sync_kernel_seconds",
      "nftproxier_sync_operations_total",
      "nftproxier_sync_transactions_total",
    ]);
  });

  test("each set has its own registry: two sets fit in one process", async () => {
    const other = make();
    other.changed("Service");
    expect(await series("kubeproxy_sync_proxy_rules_service_changes_total")).toEqual([
      "kubeproxy_sync_proxy_rules_service_changes_total 0",
    ]);
  });
});

describe("initial values", () => {
  test("metrics per family exist for each with 0", async () => {
    for (const [name, type] of KUBE_PROXY.map((line) => line.split(" "))) {
      if (type === "gauge" || name.includes("healthz") || name.includes("livez") || name.includes("_changes_"))
        continue;
      const suffix = type === "histogram" ? "_count" : "";
      const lines = await series(name);
      expect(lines).toContain(`${name}${suffix}{ip_family="IPv4"} 0`);
      expect(lines).toContain(`${name}${suffix}{ip_family="IPv6"} 0`);
    }
  });

  test("a single-stack node has no series of the other family", async () => {
    metrics = new Metrics({ families: ["ip6"], version: "0.2.0" });
    metrics.synced({ ...WRITTEN, family: "ip6" });
    expect(await metrics.render()).not.toContain("IPv4");
  });

  test("gauges and probes exist", async () => {
    expect(await series("kubeproxy_sync_proxy_rules_no_local_endpoints_total")).toEqual([
      'kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="internal",ip_family="IPv4"} 0',
      'kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="external",ip_family="IPv4"} 0',
      'kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="internal",ip_family="IPv6"} 0',
      'kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="external",ip_family="IPv6"} 0',
    ]);
    expect(await series("kubeproxy_proxy_livez_total")).toEqual([
      'kubeproxy_proxy_livez_total{code="200"} 0',
      'kubeproxy_proxy_livez_total{code="503"} 0',
    ]);
    expect(await series("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds")).toEqual([
      `kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"} ${START / 1000}`,
      `kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv6"} ${START / 1000}`,
    ]);
  });

  test("the time of a last write is missing before there was one", async () => {
    expect(await series("kubeproxy_sync_proxy_rules_last_timestamp_seconds")).toEqual([]);
    metrics.synced(WRITTEN);
    expect(await series("kubeproxy_sync_proxy_rules_last_timestamp_seconds")).toEqual([
      `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} ${START / 1000}`,
    ]);
  });
});

async function bounds(name: string, labels: string): Promise<string[]> {
  const buckets = (await series(name)).filter((line) => line.startsWith(`${name}_bucket`) && line.includes(labels));
  return buckets.map((line) => /le="([^"]+)"/.exec(line)?.[1] ?? "");
}

describe("buckets", () => {
  test("writes have buckets from 1 ms, doubled 14 times", async () => {
    const expected = ["0.001", "0.002", "0.004", "0.008", "0.016", "0.032", "0.064", "0.128", "0.256", "0.512"];
    const all = [...expected, "1.024", "2.048", "4.096", "8.192", "16.384", "+Inf"];
    for (const name of [
      "kubeproxy_sync_proxy_rules_duration_seconds",
      "kubeproxy_sync_full_proxy_rules_duration_seconds",
      "kubeproxy_sync_partial_proxy_rules_duration_seconds",
      "kubeproxy_conntrack_reconciler_sync_duration_seconds",
    ]) {
      expect(await bounds(name, 'ip_family="IPv6"')).toEqual(all);
    }
  });

  test("network programming has buckets from a quarter of a second to five minutes", async () => {
    const found = await bounds("kubeproxy_network_programming_duration_seconds", 'ip_family="IPv4"');
    const range = (from: number, to: number, step: number) =>
      Array.from({ length: (to - from) / step + 1 }, (_, n) => String(from + n * step));
    expect(found).toEqual(["0.25", "0.5", ...range(1, 59, 1), ...range(60, 115, 5), ...range(120, 300, 30), "+Inf"]);
  });

  test("requests to the API server have client-go's buckets", async () => {
    metrics.restRequest({ code: "200", method: "GET", verb: "GET", host: "10.96.0.1:443", seconds: 0.3 });
    const found = await bounds("rest_client_request_duration_seconds", 'verb="GET"');
    expect(found).toEqual(["0.005", "0.025", "0.1", "0.25", "0.5", "1", "2", "4", "8", "15", "30", "60", "+Inf"]);
  });
});

describe("counted events", () => {
  test("received objects are counted, a Service once per family as in kube-proxy; changes count until they are taken over", async () => {
    for (const kind of ["Service", "EndpointSlice", "EndpointSlice", "EndpointSlice"] as const) metrics.received(kind);
    metrics.changed("Service");
    metrics.changed("EndpointSlice");
    metrics.changed("EndpointSlice");
    const counts = async () => [
      ...(await series("kubeproxy_sync_proxy_rules_service_changes_(total|pending)")),
      ...(await series("kubeproxy_sync_proxy_rules_endpoint_changes_(total|pending)")),
    ];
    expect((await counts()).sort()).toEqual([
      "kubeproxy_sync_proxy_rules_endpoint_changes_pending 2",
      "kubeproxy_sync_proxy_rules_endpoint_changes_total 3",
      "kubeproxy_sync_proxy_rules_service_changes_pending 1",
      "kubeproxy_sync_proxy_rules_service_changes_total 2",
    ]);
    metrics.taken();
    expect((await counts()).sort()).toEqual([
      "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0",
      "kubeproxy_sync_proxy_rules_endpoint_changes_total 3",
      "kubeproxy_sync_proxy_rules_service_changes_pending 0",
      "kubeproxy_sync_proxy_rules_service_changes_total 2",
    ]);
    const single = new Metrics({ families: ["ip"], version: "0.2.0" });
    single.received("Service");
    expect(await single.render()).toContain("\nkubeproxy_sync_proxy_rules_service_changes_total 1\n");
  });

  test("writes are counted, full and partial, only for their family", async () => {
    metrics.synced({ ...WRITTEN, full: true, ms: 20 });
    metrics.synced({ ...WRITTEN, ms: 3 });
    const value = async (name: string) => (await series(name)).filter((line) => /_(sum|count)\{.*IPv4/.test(line));
    expect(await value("kubeproxy_sync_proxy_rules_duration_seconds")).toEqual([
      'kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family="IPv4"} 0.023',
      'kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 2',
    ]);
    expect(await value("kubeproxy_sync_full_proxy_rules_duration_seconds")).toEqual([
      'kubeproxy_sync_full_proxy_rules_duration_seconds_sum{ip_family="IPv4"} 0.02',
      'kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1',
    ]);
    expect(await value("kubeproxy_sync_partial_proxy_rules_duration_seconds")).toEqual([
      'kubeproxy_sync_partial_proxy_rules_duration_seconds_sum{ip_family="IPv4"} 0.003',
      'kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1',
    ]);
    expect(await series("kubeproxy_sync_proxy_rules_duration_seconds")).toContain(
      'kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv6"} 0',
    );
  });

  test("a failed write counts with its time and the failure, but does not change the time of the last write", async () => {
    metrics.synced(WRITTEN);
    now += 60_000;
    metrics.synced({ ...WRITTEN, ok: false, settled: false });
    expect(await series("kubeproxy_sync_proxy_rules_nftables_sync_failures_total")).toContain(
      'kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 1',
    );
    expect(await series("kubeproxy_sync_proxy_rules_duration_seconds")).toContain(
      'kubeproxy_sync_proxy_rules_duration_seconds_count{ip_family="IPv4"} 2',
    );
    expect(await series("kubeproxy_sync_proxy_rules_last_timestamp_seconds")).toEqual([
      `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} ${START / 1000}`,
    ]);
  });

  test("the time of each change from its cause to the kernel is measured", async () => {
    metrics.synced({ ...WRITTEN, triggers: [START - 300, START - 2_000] });
    const lines = await series("kubeproxy_network_programming_duration_seconds");
    expect(lines).toContain('kubeproxy_network_programming_duration_seconds_bucket{le="0.25",ip_family="IPv4"} 0');
    expect(lines).toContain('kubeproxy_network_programming_duration_seconds_bucket{le="0.5",ip_family="IPv4"} 1');
    expect(lines).toContain('kubeproxy_network_programming_duration_seconds_bucket{le="2",ip_family="IPv4"} 2');
    expect(lines).toContain('kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 2');
  });

  test("messages to the kernel are counted, and none if there was nothing to write", async () => {
    metrics.synced({ ...WRITTEN, work: { transactions: 0, operations: 0, bytes: 0, kernelMs: 0 } });
    metrics.synced({ ...WRITTEN, work: { transactions: 2, operations: 7, bytes: 900, kernelMs: 0.5 } });
    const text = await metrics.render();
    expect(text).toContain('nftproxier_sync_transactions_total{ip_family="IPv4"} 2\n');
    expect(text).toContain('nftproxier_sync_operations_total{ip_family="IPv4"} 7\n');
    expect(text).toContain('nftproxier_sync_bytes_total{ip_family="IPv4"} 900\n');
    expect(text).toContain('nftproxier_sync_kernel_seconds_sum{ip_family="IPv4"} 0.0005\n');
    expect(text).toContain('nftproxier_sync_kernel_seconds_count{ip_family="IPv4"} 1\n');
  });

  test("services that a Local policy cuts off from their endpoints are counted", async () => {
    metrics.noLocalEndpoints("ip6", { internal: 2, external: 5 });
    const lines = await series("kubeproxy_sync_proxy_rules_no_local_endpoints_total");
    expect(lines.slice(2)).toEqual([
      'kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="internal",ip_family="IPv6"} 2',
      'kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="external",ip_family="IPv6"} 5',
    ]);
  });

  test("probes, conntrack, requests and waiting work are counted", async () => {
    metrics.probed("healthz", 503);
    metrics.probed("livez", 200);
    metrics.reconciled({ family: "ip", ms: 10, deleted: 3 });
    metrics.restRequest({ code: "200", method: "GET", verb: "GET", host: "10.96.0.1:443", seconds: 0.3 });
    metrics.restRequest({ code: "200", method: "GET", verb: "GET", host: "10.96.0.1:443", seconds: undefined });
    metrics.queued(START + 5_000);
    const text = await metrics.render();
    for (const line of [
      'kubeproxy_proxy_healthz_total{code="503"} 1',
      'kubeproxy_proxy_livez_total{code="200"} 1',
      'kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 3',
      'kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family="IPv4"} 1',
      'rest_client_requests_total{code="200",method="GET",host="10.96.0.1:443"} 2',
      'rest_client_request_duration_seconds_count{verb="GET",host="10.96.0.1:443"} 1',
      `kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv6"} ${START / 1000 + 5}`,
      'nftproxier_oldest_pending_change_seconds{ip_family="IPv4"} 0.25',
    ]) {
      expect(text).toContain(`${line}\n`);
    }
  });
});

describe("build", () => {
  test("kubernetes_build_info has the labels of Kubernetes, and the version of the API server once it is known", async () => {
    const labels = async () => {
      const [line = ""] = await series("kubernetes_build_info");
      return Object.fromEntries([...line.matchAll(/(\w+)="([^"]*)"/g)].map(([, key, value]) => [key, value]));
    };
    expect(Object.keys(await labels()).sort()).toEqual([
      "build_date",
      "compiler",
      "git_commit",
      "git_tree_state",
      "git_version",
      "go_version",
      "major",
      "minor",
      "platform",
    ]);
    expect(await labels()).toMatchObject({ major: "1", minor: "36", git_version: "v1.36.0" });
    metrics.setKubernetesVersion("v1.34.2+k3s1");
    expect(await labels()).toMatchObject({ major: "1", minor: "34", git_version: "v1.34.2+k3s1" });
    expect(await series("kubernetes_build_info")).toHaveLength(1);
  });

  test("nftproxier_build_info is ours", async () => {
    expect(await series("nftproxier_build_info")).toEqual([
      `nftproxier_build_info{version="0.2.0",node_version="${process.version}"} 1`,
    ]);
  });
});
