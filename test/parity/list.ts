/**
 * Every flag, configuration field and metric of kube-proxy 1.36 on Linux, and how this program treats it. The program's own list of flags
 * says which fields they set, and which flags are ignored and why; this file has the rest. write.ts generates the table of docs/parity.md
 * from both. Tests compare it with the schema and with the existing metrics.
 *
 * Sources:
 * - configuration types, logging flags, metrics of component-base and client-go: k8s.io/kube-proxy and k8s.io/component-base at v0.36.0
 * - flags: cmd/kube-proxy/app/options.go at 008b3652, the stored commit nearest to 1.36
 * - kubeproxy_*: the metrics reference of Kubernetes 1.36
 * - series of the API server library: a scrape of kube-proxy 1.31 in elastic/beats, metricbeat/module/kubernetes/proxy/_meta/test
 */

import { IGNORED, KUBE_PROXY_FLAGS } from "../../src/cli/flags/kube-proxy-flags.ts";

/** "same": as in kube-proxy; "better": as in kube-proxy, with the addition in the note; "ignored": accepted or absent, for the reason in the note. */
export type Treatment = "same" | "better" | "ignored";

export interface ParityRow {
  /** Names of flags, without their hyphens. */
  readonly flags?: readonly string[];
  /** Paths in KubeProxyConfiguration; items of lists of objects have no index. */
  readonly fields?: readonly string[];
  /** Names of metrics; a name that ends in "_*" stands for all with that prefix. */
  readonly metrics?: readonly string[];
  readonly ours: Treatment;
  readonly note?: string;
}

const GENERAL: readonly ParityRow[] = [
  {
    flags: ["config"],
    ours: "better",
    note: "Reports all problems of the file at once, each with its path. Unknown and repeated fields are reported in every section, with a suggestion. An invalid or equivalent change does not end the program",
  },
  { fields: ["apiVersion", "kind"], ours: "same" },
  {
    flags: ["write-config-to"],
    ours: "same",
    note: "writes `mode: nftables`, and the log format only if it is set",
  },
  {
    flags: ["cleanup"],
    ours: "better",
    note: "Also removes the rules of kube-proxy's other modes in iptables-nft and IPVS, without running iptables, ipvsadm or ipset. Rules in iptables-legacy stay. The exit code is 1 if something remains that only other tools can remove",
  },
  { flags: ["init-only"], ours: "same" },
  { flags: ["hostname-override"], fields: ["hostnameOverride"], ours: "same" },
  { flags: ["master"], ours: "same" },
  {
    flags: ["version"],
    ours: "same",
    note: "prints the version and commit of nft-proxier; `=raw` prints the same fields as in kube-proxy, and `=vX.Y.Z` has no effect",
  },
  {
    flags: ["feature-gates"],
    ours: "same",
    note: "`AllowServiceExternalIPs` works as in kube-proxy. `KubeProxyNFTablesLocalhostNodePorts` (1.37) is not required, and `false` disables node ports on loopback. Other gates have no effect. An unknown gate causes a warning (kube-proxy exits)",
  },
];

const API_SERVER: readonly ParityRow[] = [
  { flags: ["kubeconfig"], ours: "same" },
  {
    fields: ["clientConnection.acceptContentTypes"],
    ours: "ignored",
    note: "the API is read as protobuf, or as JSON if the server or a proxy answers with JSON or refuses protobuf",
  },
  { flags: ["kube-api-qps", "kube-api-burst"], ours: "same" },
];

const SERVERS: readonly ParityRow[] = [
  { flags: ["bind-address"], ours: "same" },
  {
    flags: ["healthz-bind-address", "healthz-port", "metrics-bind-address", "metrics-port"],
    ours: "same",
    note: "The defaults are the same, and a missing port is completed in the same way. Port 0 turns a server off. An empty address means the default, with a warning. [Paths](#paths) are listed below",
  },
  { flags: ["bind-address-hard-fail"], ours: "same" },
  {
    flags: ["profiling"],
    ours: "same",
    note: "`/debug/pprof/` serves V8's CPU profile and sampled heap profiles (`profile`, `heap`, `allocs`) and `cmdline`. Go's other profiles answer 501 with the reason. `PUT /debug/flags/v` sets the verbosity",
  },
];

const TRAFFIC: readonly ParityRow[] = [
  {
    flags: ["proxy-mode"],
    ours: "same",
    note: "The rules are always nftables rules, and `/proxyMode` and `/configz` say so. `iptables` and `ipvs` are accepted, with one warning that lists the differences. Without a mode, the log has the same list. Settings of these modes that mean the same are used where `nftables` does not set them",
  },
  { flags: ["masquerade-all"], ours: "same" },
  { fields: ["nftables.masqueradeBit"], ours: "same" },
  {
    flags: ["iptables-sync-period"],
    ours: "same",
    note: "the longest time between two attempts at a failing write; the health timeout is twice as long",
  },
  {
    flags: ["iptables-min-sync-period"],
    ours: "better",
    note: "The default is 0 instead of 1 s, so a change is written at once. Changes within 20 ms are written together",
  },
  { flags: ["detect-local-mode", "pod-bridge-interface", "pod-interface-name-prefix"], ours: "same" },
  { flags: ["cluster-cidr"], ours: "same" },
  {
    flags: ["nodeport-addresses"],
    ours: "better",
    note: "The default is `primary`, as in kube-proxy's nftables mode. Kernel events report added and removed addresses. `localhost`, `all`, and `primary` beside other values work as in 1.37 (KEP-6032, alpha and off by default there). Loopback addresses are served in the kernel: TCP, UDP and SCTP, on ::1 and the listed part of 127.0.0.0/8. In kube-proxy 1.37, a process relays TCP on 127.0.0.1 and ::1. With policy Local, the node's connections go to all endpoints, as at its other addresses and in the iptables mode. The relay of kube-proxy 1.37 uses only local endpoints",
  },
  {
    flags: ["iptables-localhost-nodeports"],
    ours: "better",
    note: "If it is explicitly true, `mode` is iptables or unset, and `nodePortAddresses` is unset or has 0.0.0.0/0, node ports are served on 127.0.0.0/8. This is as in the iptables mode, and the log says so. Otherwise it is ignored, as in kube-proxy's nftables mode",
  },
  {
    flags: ["ipvs-exclude-cidrs"],
    ours: "same",
    note: "virtual servers in these CIDRs stay when the other leftovers of the IPVS mode are removed",
  },
];

const SYSTEM: readonly ParityRow[] = [
  { flags: ["oom-score-adj"], ours: "same", note: "a value that the kernel refuses causes a warning" },
  {
    flags: ["conntrack-max-per-core", "conntrack-min"],
    ours: "better",
    note: "never lowers a limit that is already higher",
  },
  {
    flags: [
      "conntrack-tcp-timeout-established",
      "conntrack-tcp-timeout-close-wait",
      "conntrack-tcp-be-liberal",
      "conntrack-udp-timeout",
      "conntrack-udp-timeout-stream",
    ],
    ours: "same",
    note: "a value that the kernel refuses causes a warning",
  },
];

const LOG: readonly ParityRow[] = [
  { flags: ["v"], ours: "same", note: "2 logs each write, 4 adds debug messages, 6 adds everything else" },
  {
    flags: ["logging-format"],
    ours: "same",
    note: "if not set: text on a terminal, otherwise JSON (kube-proxy: text)",
  },
  {
    fields: ["logging.vmodule.filePattern", "logging.vmodule.verbosity"],
    ours: "ignored",
    note: "selects Go source files",
  },
];

const OTHERS: readonly ParityRow[] = [
  {
    flags: ["iptables-masquerade-bit"],
    fields: ["iptables.masqueradeAll", "iptables.syncPeriod", "iptables.minSyncPeriod"],
    ours: "same",
    note: "Used if `mode` is iptables or unset, where `nftables` does not set them. The masquerade settings are also used if `mode` is ipvs, as in kube-proxy",
  },
  {
    flags: ["ipvs-sync-period", "ipvs-min-sync-period"],
    ours: "same",
    note: "used if `mode` is ipvs, where `nftables` does not set them",
  },
  {
    fields: [
      "winkernel.networkName",
      "winkernel.sourceVip",
      "winkernel.enableDSR",
      "winkernel.rootHnsEndpointName",
      "winkernel.forwardHealthCheckVip",
      "windowsRunAsService",
    ],
    ours: "ignored",
    note: "for Windows",
  },
  { fields: ["portRange"], ours: "ignored", note: "as in kube-proxy" },
];

const METRICS: readonly ParityRow[] = [
  {
    metrics: [
      "kubeproxy_sync_proxy_rules_duration_seconds",
      "kubeproxy_sync_full_proxy_rules_duration_seconds",
      "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    ],
    ours: "same",
  },
  {
    metrics: ["kubeproxy_network_programming_duration_seconds"],
    ours: "better",
    note: "Also measures changes whose first write failed, until the write that succeeds, and changes of a service that loses another slice. A slice change that does not affect traffic is not measured (an endpoint's zone, a new slice without endpoints)",
  },
  {
    metrics: [
      "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
      "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
    ],
    ours: "same",
  },
  {
    metrics: ["kubeproxy_sync_proxy_rules_endpoint_changes_total", "kubeproxy_sync_proxy_rules_service_changes_total"],
    ours: "same",
    note: "Counts every event, Services once per family. kube-proxy counts all objects again every `configSyncPeriod`, which has no effect here",
  },
  {
    metrics: [
      "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
      "kubeproxy_sync_proxy_rules_service_changes_pending",
    ],
    ours: "same",
    note: "a Service that changes twice before a write counts twice (kube-proxy: once)",
  },
  {
    metrics: ["kubeproxy_sync_proxy_rules_no_local_endpoints_total"],
    ours: "same",
    note: "Does not count a Service with externalTrafficPolicy Local that has no external address or node port yet, because no packet to it is dropped. kube-proxy counts it, even with a local endpoint",
  },
  { metrics: ["kubeproxy_sync_proxy_rules_nftables_sync_failures_total"], ours: "same" },
  {
    metrics: ["kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total"],
    ours: "same",
    note: "always 0, because cleanup is part of each write",
  },
  {
    metrics: [
      "kubeproxy_conntrack_reconciler_sync_duration_seconds",
      "kubeproxy_conntrack_reconciler_deleted_entries_total",
    ],
    ours: "same",
  },
  {
    metrics: ["kubeproxy_nftables_localhost_nodeport_listeners"],
    ours: "same",
    note: "From 1.37. Present if node ports are served on loopback. Counts node ports with an endpoint, by protocol, because rules answer and no socket listens",
  },
  {
    metrics: [
      "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
      "kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
    ],
    ours: "same",
    note: "From 1.37. Always 0, because a rule needs no free port, and UDP and SCTP are served",
  },
  { metrics: ["kubeproxy_proxy_healthz_total", "kubeproxy_proxy_livez_total"], ours: "same" },
  {
    metrics: [
      "kubeproxy_sync_proxy_rules_iptables_total",
      "kubeproxy_sync_proxy_rules_iptables_last",
      "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
      "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
      "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
      "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
    ],
    ours: "ignored",
    note: "for the iptables mode; kube-proxy does not have them in its nftables mode either",
  },
  { metrics: ["rest_client_requests_total", "rest_client_request_duration_seconds"], ours: "same" },
  {
    metrics: [
      "rest_client_request_retries_total",
      "rest_client_request_size_bytes",
      "rest_client_response_size_bytes",
      "rest_client_dns_resolution_duration_seconds",
      "rest_client_rate_limiter_duration_seconds",
      "rest_client_exec_plugin_*",
      "rest_client_transport_*",
    ],
    ours: "ignored",
    note: "internals of client-go",
  },
  {
    metrics: ["kubernetes_build_info"],
    ours: "same",
    note: "the API server's version; `nftproxier_build_info` has the version of nft-proxier",
  },
  {
    metrics: [
      "process_cpu_seconds_total",
      "process_max_fds",
      "process_open_fds",
      "process_resident_memory_bytes",
      "process_start_time_seconds",
      "process_virtual_memory_bytes",
    ],
    ours: "same",
  },
  {
    metrics: [
      "process_virtual_memory_max_bytes",
      "process_network_receive_bytes_total",
      "process_network_transmit_bytes_total",
    ],
    ours: "ignored",
    note: "Node's Prometheus client does not have them",
  },
  { metrics: ["go_*"], ours: "ignored", note: "not a Go program; it has `nodejs_*` instead" },
  {
    metrics: ["workqueue_*", "informer_*", "leader_election_*"],
    ours: "ignored",
    note: "about client-go's queues, which are not used here and stay empty in kube-proxy",
  },
  { metrics: ["kubernetes_healthcheck", "kubernetes_healthchecks_total"], ours: "same", note: "at `/metrics/slis`" },
  {
    metrics: ["kubernetes_feature_enabled"],
    ours: "ignored",
    note: "not available; `/configz` shows the gates that are set",
  },
  {
    metrics: ["aggregator_discovery_*", "apiserver_*"],
    ours: "ignored",
    note: "series of the API server library in kube-proxy, which stay at 0 there (according to a scrape of kube-proxy 1.31)",
  },
  {
    metrics: [
      "registered_metrics_total",
      "hidden_metrics_total",
      "disabled_metrics_total",
      "cardinality_enforcement_unexpected_categorizations_total",
    ],
    ours: "ignored",
    note: "about component-base's own registry",
  },
];

const WRITTEN: readonly ParityRow[] = [
  ...GENERAL,
  ...API_SERVER,
  ...SERVERS,
  ...TRAFFIC,
  ...SYSTEM,
  ...LOG,
  ...OTHERS,
  ...METRICS,
];

/** The rows above with the fields that flags set, plus the ignored flags. */
export const PARITY: readonly ParityRow[] = [...WRITTEN.map(withFields), ...ignored()];

function withFields(row: ParityRow): ParityRow {
  const flags = KUBE_PROXY_FLAGS.filter(({ name }) => row.flags?.includes(name));
  return { ...row, fields: [...flags.flatMap(({ field }) => (field === "" ? [] : [field])), ...(row.fields ?? [])] };
}

function ignored(): ParityRow[] {
  const flags = KUBE_PROXY_FLAGS.filter(({ usage }) => usage.startsWith(IGNORED));
  return Object.entries(Object.groupBy(flags, ({ usage }) => usage.slice(IGNORED.length))).map(([note, specs = []]) =>
    withFields({ flags: specs.map(({ name }) => name), ours: "ignored", note }),
  );
}
