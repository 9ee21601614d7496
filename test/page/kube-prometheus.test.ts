/**
 * Alerts that clusters have from kube-prometheus, beside our PodMonitors: promtool finds the targets of a pod of our DaemonSet and relabels them,
 * as Prometheus does, and evaluates the alert.
 */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { mustRun } from "../lab/debian.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";
import { HAS_HELM, helm } from "./helm.ts";
import { promtool } from "./promtool.ts";

interface Relabeling {
  readonly sourceLabels?: readonly string[];
  readonly targetLabel?: string;
  readonly regex?: string;
  readonly replacement?: string;
  readonly action?: string;
}
interface PodMonitor {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly spec: {
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly podMetricsEndpoints: readonly {
      readonly port?: string;
      readonly honorLabels?: boolean;
      readonly relabelings?: readonly Relabeling[];
    }[];
  };
}
type Labels = Readonly<Record<string, string>>;

const deploy = path.resolve(import.meta.dirname, "../../deploy");

/** The expressions of `KubeProxyDown` in kubernetes-mixin, which kube-prometheus installs: of August 2026, and of earlier releases. */
const KUBE_PROXY_DOWN = ['absent(up{job="kube-proxy"})', 'absent(up{job="kube-proxy"} == 1)'];

/** Prometheus' labels of a container of our DaemonSet's pod. The chart names the container's port. */
const container = (name: string, ip: string, port: Labels = {}): Labels => ({
  __address__: ip,
  __meta_kubernetes_pod_ip: ip,
  __meta_kubernetes_namespace: "kube-system",
  __meta_kubernetes_pod_name: "nft-proxier-x",
  __meta_kubernetes_pod_container_name: name,
  ...port,
});

/** The targets' final labels. The first steps are those that the Prometheus Operator writes for every PodMonitor. */
function targets({ metadata, spec }: PodMonitor, discovered: readonly Labels[]): readonly Labels[] {
  const [{ port, relabelings = [] }] = spec.podMetricsEndpoints;
  const steps: readonly Relabeling[] = [
    ...(port === undefined
      ? []
      : [{ sourceLabels: ["__meta_kubernetes_pod_container_port_name"], regex: port, action: "keep" }]),
    { sourceLabels: ["__meta_kubernetes_namespace"], targetLabel: "namespace" },
    { targetLabel: "job", replacement: `${metadata.namespace}/${metadata.name}` },
    ...relabelings,
  ];
  const snakeCase = (name: string): string => name.replace(/[A-Z]/, (letter) => `_${letter.toLowerCase()}`);
  const relabel_configs = steps.map((step) =>
    Object.fromEntries(Object.entries(step).map(([name, value]) => [snakeCase(name), value as unknown])),
  );
  const directory = temporaryDirectory();
  writeFileSync(
    path.join(directory, "pods.json"),
    JSON.stringify(discovered.map(({ __address__: address = "", ...labels }) => ({ targets: [address], labels }))),
  );
  const config = path.join(directory, "prometheus.yaml");
  const job = { job_name: "pods", file_sd_configs: [{ files: ["pods.json"] }], relabel_configs };
  writeFileSync(config, JSON.stringify({ scrape_configs: [job] }));
  const output = mustRun(promtool(), ["check", "service-discovery", "--timeout=1s", config, "pods"]);
  const found = JSON.parse(output) as readonly { readonly labels: Labels }[];
  // Without labels, Prometheus drops the target.
  return found.map(({ labels }) => labels).filter((labels) => Object.keys(labels).length > 0);
}

function check(monitor: PodMonitor, discovered: readonly Labels[], address: string): void {
  expect(monitor.spec.selector.matchLabels).toMatchObject({ "k8s-app": "nft-proxier" });
  const found = targets(monitor, discovered);
  expect(found).toEqual([expect.objectContaining({ __address__: address, instance: address })]);
  const up = Object.entries(found[0]).flatMap(([name, value]) => (name.startsWith("__") ? [] : [`${name}="${value}"`]));
  const directory = temporaryDirectory();
  const rules = KUBE_PROXY_DOWN.map((expr) => ({ alert: "KubeProxyDown", expr, for: "15m" }));
  writeFileSync(path.join(directory, "rules.yaml"), JSON.stringify({ groups: [{ name: "kube-proxy", rules }] }));
  const input_series = [{ series: `up{${up.join(",")}}`, values: "1x40" }];
  const alert_rule_test = [{ eval_time: "40m", alertname: "KubeProxyDown", exp_alerts: [] }];
  const file = path.join(directory, "test.yaml");
  writeFileSync(
    file,
    JSON.stringify({ rule_files: ["rules.yaml"], tests: [{ interval: "1m", input_series, alert_rule_test }] }),
  );
  expect(mustRun(promtool(), ["test", "rules", file])).toContain("SUCCESS");
  // Else Prometheus replaces the service's namespace by the pod's.
  expect(monitor.spec.podMetricsEndpoints[0].honorLabels).toBe(true);
}

test.each([
  ["192.0.2.1", "192.0.2.1:10249"],
  ["fd00::1", "[fd00::1]:10249"],
])("KubeProxyDown is silent beside deploy/monitoring/pod-monitor.yaml, with a node at %s", (ip, address) => {
  const monitor = parse(readFileSync(path.join(deploy, "monitoring/pod-monitor.yaml"), "utf8")) as PodMonitor;
  check(monitor, [container("system-settings", ip), container("nft-proxier", ip)], address);
});

test.skipIf(!HAS_HELM)("KubeProxyDown is silent beside the chart's PodMonitor", () => {
  const values = "image.repository=r/x,existingConfigMap=kube-proxy,metrics.bindAddress=0.0.0.0:10249";
  const sets = ["--set", values, "--set", "metrics.podMonitor.enabled=true"];
  const template = ["template", "nft-proxier", path.join(deploy, "chart"), "-n", "kube-system", ...sets];
  const monitor = parse(mustRun(helm(), [...template, "--show-only", "templates/pod-monitor.yaml"])) as PodMonitor;
  const port = { __meta_kubernetes_pod_container_port_name: "metrics" };
  const pods = [container("system-settings", "192.0.2.1"), container("nft-proxier", "192.0.2.1:10249", port)];
  check(monitor, pods, "192.0.2.1:10249");
});
