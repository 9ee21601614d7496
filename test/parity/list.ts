/**
 * Every flag, configuration field and metric of kube-proxy 1.36 on Linux, and what ours makes of it. Which fields flags set,
 * and which flags are unused and why, the program's own list of flags says; the rest stands here. The table of docs/parity.md is made
 * of both; tests hold it against the schema and the metrics that are really there.
 *
 * Sources: k8s.io/kube-proxy and k8s.io/component-base at v0.36.0 (configuration types, logging flags, metrics of
 * component-base and client-go); cmd/kube-proxy/app/options.go at 008b3652, the stored commit nearest to 1.36 (flags);
 * the metrics reference of Kubernetes 1.36 (kubeproxy_*).
 */

import { KUBE_PROXY_FLAGS } from "../../src/cli/kube-proxy-flags.ts";

/** same: as kube-proxy does; better: that, and what the note says; ignored: accepted or absent, and why. */
export type Treatment = "same" | "better" | "ignored";

export interface ParityRow {
  /** Names of flags, without their hyphens. */
  readonly flags?: readonly string[];
  /** Paths in KubeProxyConfiguration; of lists of objects without an index. */
  readonly fields?: readonly string[];
  /** Names of metrics; one that ends in "_*" stands for all that begin so. */
  readonly metrics?: readonly string[];
  readonly ours: Treatment;
  readonly note?: string;
}

const GENERAL: readonly ParityRow[] = [
  {
    flags: ["config"],
    ours: "better",
    note: "every problem of the file at once, with its path; unknown and repeated fields are named, with the nearest known one, in whichever section; a change that is wrong or means the same does not end the program",
  },
  { fields: ["apiVersion", "kind"], ours: "same" },
  {
    flags: ["write-config-to"],
    ours: "same",
    note: "with `mode: nftables`; the log format is written only when it was set",
  },
  {
    flags: ["cleanup"],
    ours: "better",
    note: "also what its other modes left in iptables-nft, in the older iptables and in IPVS, without starting iptables, ipvsadm or ipset; exit code 1 while something is left that only other tools can remove",
  },
  { flags: ["init-only"], ours: "same" },
  { flags: ["hostname-override"], fields: ["hostnameOverride"], ours: "same" },
  { flags: ["master"], ours: "same" },
  {
    flags: ["version"],
    ours: "same",
    note: "of this program; `=raw` prints the same fields, `=vX.Y.Z` changes nothing",
  },
  {
    flags: ["feature-gates"],
    ours: "same",
    note: "`AllowServiceExternalIPs` has its meaning; `KubeProxyNFTablesLocalhostNodePorts` (1.37) is needed for nothing, and false forbids node ports on loopback; no other gate has a meaning here; an unknown one is a warning, kube-proxy stops",
  },
];

const API_SERVER: readonly ParityRow[] = [
  { flags: ["kubeconfig"], ours: "same" },
  { fields: ["clientConnection.acceptContentTypes"], ours: "ignored", note: "JSON is spoken" },
  { flags: ["kube-api-qps", "kube-api-burst"], ours: "same" },
];

const SERVERS: readonly ParityRow[] = [
  { flags: ["bind-address"], ours: "same" },
  {
    flags: ["healthz-bind-address", "healthz-port", "metrics-bind-address", "metrics-port"],
    ours: "same",
    note: "defaults and the completion of a missing port included; a port 0 turns a server off; an empty address is the default, with a warning; the health port also has `/readyz`, which is 503 until the first write is done",
  },
  { flags: ["bind-address-hard-fail"], ours: "same" },
  {
    flags: ["profiling"],
    ours: "same",
    note: "`PUT /debug/flags/v`; of `/debug/pprof/` V8's CPU and sampled heap profiles: `profile`, `heap`, `allocs`, and `cmdline`; Go's others answer 501 with the reason",
  },
];

const TRAFFIC: readonly ParityRow[] = [
  {
    flags: ["proxy-mode"],
    ours: "same",
    note: "nftables, also when it is not set (a note says what the iptables mode did otherwise); the other modes are refused with what to set",
  },
  { flags: ["masquerade-all"], ours: "same" },
  { fields: ["nftables.masqueradeBit"], ours: "same" },
  {
    flags: ["iptables-sync-period"],
    ours: "same",
    note: "the longest time between two attempts at a failing write, and half the health timeout",
  },
  {
    flags: ["iptables-min-sync-period"],
    ours: "better",
    note: "by default 0, not 1 s: a change goes at once, more within 20 ms go together",
  },
  { flags: ["detect-local-mode", "pod-bridge-interface", "pod-interface-name-prefix"], ours: "same" },
  { flags: ["cluster-cidr"], ours: "same" },
  {
    flags: ["nodeport-addresses"],
    ours: "better",
    note: "by default `primary`, as in kube-proxy's nftables mode; addresses that come and go on the interfaces are followed by the kernel's events. `localhost`, `all` and `primary` beside others as in 1.37 (KEP-6032, alpha there and off without a feature gate); loopback addresses in the list are served by the kernel: TCP, UDP and SCTP, all of 127.0.0.0/8 that the list has, and ::1, where kube-proxy relays TCP to 127.0.0.1 and ::1 in a process. With policy Local the node draws from all endpoints there, as at its other addresses and in the iptables mode; kube-proxy 1.37's relay from this node's alone",
  },
  {
    flags: ["iptables-localhost-nodeports"],
    ours: "better",
    note: "written out as true, with `mode` unset and `nodePortAddresses` unset or with 0.0.0.0/0: node ports answer on 127.0.0.0/8, as in the iptables mode, and a note says so; else another mode's, as in kube-proxy's nftables mode",
  },
  {
    flags: ["ipvs-exclude-cidrs"],
    ours: "same",
    note: "virtual servers in these stay when what the IPVS mode left is removed",
  },
];

const SYSTEM: readonly ParityRow[] = [
  { flags: ["oom-score-adj"], ours: "same", note: "what the kernel forbids is a warning" },
  {
    flags: ["conntrack-max-per-core", "conntrack-min"],
    ours: "better",
    note: "a limit that is higher already is never lowered",
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
    note: "what the kernel forbids is a warning",
  },
];

const LOG: readonly ParityRow[] = [
  { flags: ["v"], ours: "same", note: "2 and up each write, 4 and up debug messages, 6 and up all" },
  { flags: ["logging-format"], ours: "same", note: "not set: text on a terminal, else JSON (kube-proxy: text)" },
  {
    fields: ["logging.vmodule.filePattern", "logging.vmodule.verbosity"],
    ours: "ignored",
    note: "names source files of Go",
  },
];

const OTHERS: readonly ParityRow[] = [
  {
    fields: ["iptables.masqueradeAll", "iptables.syncPeriod", "iptables.minSyncPeriod"],
    ours: "ignored",
    note: "another mode's, as in kube-proxy's nftables mode; with `mode` unset a note says what that changes",
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
    note: "of Windows",
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
    note: "a change whose first write failed is measured too, up to the write that brought it into force, and so are changes of a service of which another slice goes; a slice's change that alters nothing served (an endpoint's zone, a new slice without endpoints) is not",
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
    note: "every event, Services once per family; kube-proxy adds all objects again every `configSyncPeriod`, which is not replayed here",
  },
  {
    metrics: [
      "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
      "kubeproxy_sync_proxy_rules_service_changes_pending",
    ],
    ours: "same",
    note: "a Service that changes twice before a write counts twice, in kube-proxy once",
  },
  {
    metrics: ["kubeproxy_sync_proxy_rules_no_local_endpoints_total"],
    ours: "same",
    note: "a Service with externalTrafficPolicy Local that has no external address or node port yet is not counted: nothing sent to it is dropped. kube-proxy counts it, even with a local endpoint",
  },
  { metrics: ["kubeproxy_sync_proxy_rules_nftables_sync_failures_total"], ours: "same" },
  {
    metrics: ["kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total"],
    ours: "same",
    note: "always 0: nothing is cleaned up apart from a write",
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
    note: "of 1.37; there where node ports answer on loopback. Node ports with an endpoint, by protocol: rules answer, no socket listens",
  },
  {
    metrics: [
      "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
      "kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
    ],
    ours: "same",
    note: "of 1.37; always 0: a rule needs no free port, and UDP and SCTP are served",
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
    note: "of the iptables mode; kube-proxy does not have them in nftables mode either",
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
    note: "inner workings of client-go",
  },
  {
    metrics: ["kubernetes_build_info"],
    ours: "same",
    note: "the API server's version; `nftproxier_build_info` has this program's",
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
    note: "the Prometheus client of Node has them not",
  },
  { metrics: ["go_*"], ours: "ignored", note: "there is no Go; `nodejs_*` instead" },
  {
    metrics: ["workqueue_*", "informer_*", "leader_election_*"],
    ours: "ignored",
    note: "client-go's queues, which are not used; kube-proxy's own stay empty",
  },
  { metrics: ["kubernetes_healthcheck", "kubernetes_healthchecks_total"], ours: "same", note: "at `/metrics/slis`" },
  { metrics: ["kubernetes_feature_enabled"], ours: "ignored", note: "there are no feature gates to count" },
  {
    metrics: [
      "registered_metrics_total",
      "hidden_metrics_total",
      "disabled_metrics_total",
      "cardinality_enforcement_unexpected_categorizations_total",
    ],
    ours: "ignored",
    note: "about component-base's registry itself",
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

const UNUSED = "unused: ";

/** What is written above, with the fields that the flags set, and the flags that are unused. */
export const PARITY: readonly ParityRow[] = [...WRITTEN.map(withFields), ...unused()];

function withFields(row: ParityRow): ParityRow {
  const flags = KUBE_PROXY_FLAGS.filter(({ name }) => row.flags?.includes(name));
  return { ...row, fields: [...flags.flatMap(({ field }) => (field === "" ? [] : [field])), ...(row.fields ?? [])] };
}

function unused(): ParityRow[] {
  const flags = KUBE_PROXY_FLAGS.filter(({ usage }) => usage.startsWith(UNUSED));
  return Object.entries(Object.groupBy(flags, ({ usage }) => usage.slice(UNUSED.length))).map(([note, specs = []]) =>
    withFields({ flags: specs.map(({ name }) => name), ours: "ignored", note }),
  );
}
