/**
 * The command line of kube-proxy 1.36 on Linux as data. Sources: cmd/kube-proxy/app/options.go (AddFlags), server.go
 * (--boot-id-file, --machine-id-file of cAdvisor), k8s.io/component-base logs/api/v1 (AddFlags) and version/verflag.
 */

/** As Go's pflag reads them; "strings" is comma-separated and repeatable, "gates" and "levels" are key=value pairs. */
export type FlagType =
  "bool" | "string" | "integer" | "number" | "duration" | "strings" | "gates" | "levels" | "version";

export interface FlagSpec {
  readonly name: string;
  readonly type: FlagType;
  /** What stands for the value in the help; "": it needs none. */
  readonly placeholder: string;
  /** Path of the KubeProxyConfiguration field that it sets; "": none. */
  readonly field: string;
  /** Its value when it is not given, as Go prints it; "": that of the type: false, 0, 0s or nothing. */
  readonly initial: string;
  /** For the help; "unused: " and why, when it changes nothing. */
  readonly usage: string;
  /** Why it should not be used any more, and what instead; "": it may be used. */
  readonly deprecated: string;
  /** It counts although there is a configuration file. */
  readonly besideConfig: boolean;
}

/** What `flagSpecs` makes a flag of, in the order of its fields. */
type Row = readonly [
  name: string,
  type: FlagType,
  placeholder: string,
  field: string,
  initial: string,
  usage: string,
  deprecated?: string,
];

// prettier-ignore
const ROWS_BESIDE_CONFIG = [
  ["config", "string", "file", "", "", "KubeProxyConfiguration, YAML or JSON; most other flags are ignored beside it"],
  ["write-config-to", "string", "file", "", "", "write the effective configuration to this file and exit"],
  ["cleanup", "bool", "", "", "", "remove what proxying has left in the kernel and exit"],
  ["init-only", "bool", "", "", "", "do what needs all of root's rights at the start (system settings) and exit"],
  ["hostname-override", "string", "name", "", "", "name of this node; by default the host's own"],
  ["master", "string", "url", "", "", "the API server, instead of the kubeconfig's"],
  ["version", "version", "raw", "", "false", "print the version, or with =raw all that is known of it, and exit"],
] as const satisfies readonly Row[];

// prettier-ignore
const ROWS = [
  ["feature-gates", "gates", "gate=bool,...", "featureGates", "", "feature gates; two mean something here: AllowServiceExternalIPs, and KubeProxyNFTablesLocalhostNodePorts (false: no node ports on loopback)"],
  ["kubeconfig", "string", "file", "clientConnection.kubeconfig", "", "kubeconfig; without it and --master, the pod's own service account"],
  ["kube-api-content-type", "string", "type", "clientConnection.contentType", "application/vnd.kubernetes.protobuf", "unused: JSON is spoken"],
  ["kube-api-burst", "integer", "n", "clientConnection.burst", "10", "requests to the API server that may be sent at once (default 10)"],
  ["kube-api-qps", "number", "n", "clientConnection.qps", "5", "requests to the API server per second (default 5)"],
  ["config-sync-period", "duration", "duration", "configSyncPeriod", "15m0s", "unused: nothing is kept twice that could be replayed"],
  ["bind-address", "string", "ip", "bindAddress", "0.0.0.0", "the node's primary IP, instead of what the Node object says"],
  ["healthz-bind-address", "string", "ip:port", "healthzBindAddress", "0.0.0.0:10256", 'address of the health server (default "0.0.0.0:10256")'],
  ["metrics-bind-address", "string", "ip:port", "metricsBindAddress", "127.0.0.1:10249", 'address of the metrics server (default "127.0.0.1:10249")'],
  ["bind-address-hard-fail", "bool", "", "bindAddressHardFail", "", "exit when one of these addresses cannot be bound"],
  ["healthz-port", "integer", "port", "", "10256", "port of the health server; 0: none", "use --healthz-bind-address"],
  ["metrics-port", "integer", "port", "", "10249", "port of the metrics server; 0: none", "use --metrics-bind-address"],
  ["profiling", "bool", "", "enableProfiling", "", "serve profiles at /debug/pprof of the metrics server"],
  ["show-hidden-metrics-for-version", "string", "major.minor", "showHiddenMetricsForVersion", "", "unused: no metric is hidden"],
  ["proxy-mode", "string", "mode", "mode", "", '"nftables", the only one there is here (default)'],
  ["masquerade-all", "bool", "", "nftables.masqueradeAll", "", "masquerade all traffic to ClusterIPs"],
  ["detect-local-mode", "string", "mode", "detectLocalMode", "", "how pods' traffic is detected: ClusterCIDR (default), NodeCIDR, BridgeInterface, InterfaceNamePrefix"],
  ["cluster-cidr", "string", "cidr[,cidr]", "clusterCIDR", "", "the pods' addresses, at most one CIDR of each family"],
  ["pod-bridge-interface", "string", "name", "detectLocal.bridgeInterface", "", "the pods' bridge, for BridgeInterface"],
  ["pod-interface-name-prefix", "string", "prefix", "detectLocal.interfaceNamePrefix", "", "how the names of the pods' interfaces begin, for InterfaceNamePrefix"],
  ["nodeport-addresses", "strings", "cidr,...", "nodePortAddresses", "", "addresses that node ports answer on: CIDRs, \"primary\" (default): the node's own IPs, \"localhost\", \"all\""],
  ["iptables-sync-period", "duration", "duration", "nftables.syncPeriod", "30s", "the longest time between two attempts at a failing write (default 30s); twice it, and the proxier counts as unhealthy"],
  ["iptables-min-sync-period", "duration", "duration", "nftables.minSyncPeriod", "", "the shortest time between two writes (default 0s)"],
  ["iptables-masquerade-bit", "integer", "bit", "iptables.masqueradeBit", "14", "unused: of the modes iptables and ipvs"],
  ["iptables-localhost-nodeports", "bool", "", "iptables.localhostNodePorts", "true", "true, with no --proxy-mode: node ports answer on 127.0.0.0/8 too"],
  ["ipvs-sync-period", "duration", "duration", "ipvs.syncPeriod", "30s", "unused: of the mode ipvs; a line of the log says what does the same"],
  ["ipvs-min-sync-period", "duration", "duration", "ipvs.minSyncPeriod", "", "unused: of the mode ipvs; a line of the log says what does the same"],
  ["ipvs-scheduler", "string", "name", "ipvs.scheduler", "", "unused: of the mode ipvs; a line of the log says what does the same"],
  ["ipvs-exclude-cidrs", "strings", "cidr,...", "ipvs.excludeCIDRs", "", "virtual servers of kube-proxy's IPVS mode in these stay when the others are removed"],
  ["ipvs-strict-arp", "bool", "", "ipvs.strictARP", "", "unused: of the mode ipvs; a line of the log says what does the same"],
  ["ipvs-tcp-timeout", "duration", "duration", "ipvs.tcpTimeout", "", "unused: of the mode ipvs; a line of the log says what does the same"],
  ["ipvs-tcpfin-timeout", "duration", "duration", "ipvs.tcpFinTimeout", "", "unused: of the mode ipvs; a line of the log says what does the same"],
  ["ipvs-udp-timeout", "duration", "duration", "ipvs.udpTimeout", "", "unused: of the mode ipvs; a line of the log says what does the same"],
  ["oom-score-adj", "integer", "score", "oomScoreAdj", "-999", "oom_score_adj of this process, -1000 to 1000 (default -999)"],
  ["conntrack-max-per-core", "integer", "n", "conntrack.maxPerCore", "32768", "connections to track per CPU (default 32768); 0: keep the kernel's limit"],
  ["conntrack-min", "integer", "n", "conntrack.min", "131072", "connections to track at least (default 131072)"],
  ["conntrack-tcp-timeout-established", "duration", "duration", "conntrack.tcpEstablishedTimeout", "24h0m0s", "of idle TCP connections (default 24h); 0: keep the kernel's"],
  ["conntrack-tcp-timeout-close-wait", "duration", "duration", "conntrack.tcpCloseWaitTimeout", "1h0m0s", "of TCP connections in CLOSE_WAIT (default 1h); 0: keep the kernel's"],
  ["conntrack-tcp-be-liberal", "bool", "", "conntrack.tcpBeLiberal", "", "do not call TCP packets outside the window invalid"],
  ["conntrack-udp-timeout", "duration", "duration", "conntrack.udpTimeout", "", "of UDP flows without a reply; 0: keep the kernel's"],
  ["conntrack-udp-timeout-stream", "duration", "duration", "conntrack.udpStreamTimeout", "", "of UDP flows with replies; 0: keep the kernel's"],
  ["boot-id-file", "string", "files", "", "/proc/sys/kernel/random/boot_id", "unused: of cAdvisor"],
  ["machine-id-file", "string", "files", "", "/etc/machine-id,/var/lib/dbus/machine-id", "unused: of cAdvisor"],
] as const satisfies readonly Row[];

// prettier-ignore
const LOGGING_ROWS_BESIDE_CONFIG = [
  ["v", "integer", "level", "logging.verbosity", "", "verbosity: 2 and up each write, 4 and up debug messages, 6 and up all"],
  ["vmodule", "levels", "pattern=level,...", "logging.vmodule", "", "unused: names source files of kube-proxy"],
  ["logging-format", "string", "format", "logging.format", "", '"text" or "json"; by default text on a terminal, else json'],
  ["log-flush-frequency", "duration", "duration", "logging.flushFrequency", "5s", "unused: every line is written at once"],
  ["log-text-split-stream", "bool", "", "logging.options.text.splitStream", "", "unused: all goes to stderr"],
  ["log-text-info-buffer-size", "string", "size", "logging.options.text.infoBufferSize", "0", "unused: nothing is buffered"],
  ["log-json-split-stream", "bool", "", "logging.options.json.splitStream", "", "unused: all goes to stderr"],
  ["log-json-info-buffer-size", "string", "size", "logging.options.json.infoBufferSize", "0", "unused: nothing is buffered"],
] as const satisfies readonly Row[];

type AnyRow = (typeof ROWS_BESIDE_CONFIG | typeof ROWS | typeof LOGGING_ROWS_BESIDE_CONFIG)[number];

export type FlagName = AnyRow[0];
export type TypeOfFlag<N extends FlagName> = Extract<AnyRow, readonly [N, ...unknown[]]>[1];

export function flagSpecs(besideConfig: boolean, rows: readonly Row[]): FlagSpec[] {
  return rows.map(([name, type, placeholder, field, initial, usage, deprecated = ""]) => {
    return { name, type, placeholder, field, initial, usage, deprecated, besideConfig };
  });
}

/** Every flag, in the order of the help. */
export const KUBE_PROXY_FLAGS: readonly FlagSpec[] = [
  ...flagSpecs(true, ROWS_BESIDE_CONFIG),
  ...flagSpecs(false, ROWS),
  ...flagSpecs(true, LOGGING_ROWS_BESIDE_CONFIG),
];
