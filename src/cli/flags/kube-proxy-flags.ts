/**
 * The command line of kube-proxy 1.36 on Linux as data. Sources: cmd/kube-proxy/app/options.go (AddFlags), server.go
 * (--boot-id-file, --machine-id-file of cAdvisor), k8s.io/component-base logs/api/v1 (AddFlags) and version/verflag.
 */

import type { Flag, FlagType, ValueOf } from "../read-flags.js";

export interface FlagSpec extends Flag {
  /** Path of the KubeProxyConfiguration field that the flag sets, or "". */
  readonly field: string;
  /** The default as Go prints it. "" for the type's default: false, 0, 0s or nothing. */
  readonly initial: string;
  /** For the help. IGNORED and the reason, if the flag changes nothing. */
  readonly usage: string;
  /** The replacement if the flag is deprecated, or "". */
  readonly deprecated: string;
  /** The flag has an effect also with a configuration file. */
  readonly besideConfig: boolean;
}

/** The usage of a flag that changes nothing starts with this, and continues with the reason. */
export const IGNORED = "ignored: ";

/** The input of `flagSpecs` for one flag. */
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
  ["config", "string", "file", "", "", "KubeProxyConfiguration, YAML or JSON; with it, most other flags are ignored"],
  ["write-config-to", "string", "file", "", "", "write the effective configuration to this file and exit"],
  ["cleanup", "bool", "", "", "", "remove everything that nft-proxier or kube-proxy left in the kernel, and exit"],
  ["init-only", "bool", "", "", "", "change the system settings that need full root privileges, and exit"],
  ["hostname-override", "string", "name", "", "", "name of this node (default: the host name)"],
  ["master", "string", "url", "", "", "URL of the API server, instead of the kubeconfig's"],
  ["version", "version", "raw", "", "false", "print the version and exit; =raw prints all build information"],
] as const satisfies readonly Row[];

// prettier-ignore
const ROWS = [
  ["feature-gates", "gates", "gate=bool,...", "featureGates", "", "feature gates; two have an effect: AllowServiceExternalIPs, and KubeProxyNFTablesLocalhostNodePorts (false: no node ports on loopback)"],
  ["kubeconfig", "string", "file", "clientConnection.kubeconfig", "", "kubeconfig of the API server (default: the pod's service account)"],
  ["kube-api-content-type", "string", "type", "clientConnection.contentType", "application/vnd.kubernetes.protobuf", "ignored: the API is read as protobuf, or as JSON if the server or a proxy answers with JSON or refuses protobuf"],
  ["kube-api-burst", "integer", "n", "clientConnection.burst", "10", "maximum burst of requests to the API server (default 10)"],
  ["kube-api-qps", "number", "n", "clientConnection.qps", "5", "requests to the API server per second (default 5)"],
  ["config-sync-period", "duration", "duration", "configSyncPeriod", "15m0s", "ignored: there is no cache to replay"],
  ["bind-address", "string", "ip", "bindAddress", "0.0.0.0", "primary IP of this node, instead of the Node object's"],
  ["healthz-bind-address", "string", "ip:port", "healthzBindAddress", "0.0.0.0:10256", "address of the health server (default 0.0.0.0:10256)"],
  ["metrics-bind-address", "string", "ip:port", "metricsBindAddress", "127.0.0.1:10249", "address of the metrics server (default 127.0.0.1:10249)"],
  ["bind-address-hard-fail", "bool", "", "bindAddressHardFail", "", "exit if the health or metrics server cannot listen on its address"],
  ["healthz-port", "integer", "port", "", "10256", "port of the health server; 0: none (deprecated)", "use --healthz-bind-address"],
  ["metrics-port", "integer", "port", "", "10249", "port of the metrics server; 0: none (deprecated)", "use --metrics-bind-address"],
  ["profiling", "bool", "", "enableProfiling", "", "serve profiles at /debug/pprof of the metrics server"],
  ["show-hidden-metrics-for-version", "string", "major.minor", "showHiddenMetricsForVersion", "", "ignored: no metrics are hidden"],
  ["proxy-mode", "string", "mode", "mode", "", "nftables, iptables or ipvs; the rules are always nftables rules (default nftables)"],
  ["masquerade-all", "bool", "", "nftables.masqueradeAll", "", "masquerade all traffic to ClusterIPs"],
  ["detect-local-mode", "string", "mode", "detectLocalMode", "", "how to identify traffic from pods: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix (default ClusterCIDR)"],
  ["cluster-cidr", "string", "cidr[,cidr]", "clusterCIDR", "", "addresses of the pods, at most one CIDR of each family"],
  ["pod-bridge-interface", "string", "name", "detectLocal.bridgeInterface", "", "bridge of the pods, for BridgeInterface"],
  ["pod-interface-name-prefix", "string", "prefix", "detectLocal.interfaceNamePrefix", "", "prefix of the names of the pods' interfaces, for InterfaceNamePrefix"],
  ["nodeport-addresses", "strings", "cidr,...", "nodePortAddresses", "", "addresses for node ports: CIDRs, primary (the node's own IPs), localhost or all (default primary)"],
  ["iptables-sync-period", "duration", "duration", "nftables.syncPeriod", "30s", "maximum time between retries of a failed write; after twice this time the daemon is unhealthy (default 30s)"],
  ["iptables-min-sync-period", "duration", "duration", "nftables.minSyncPeriod", "", "minimum time between two writes (default 0s)"],
  ["iptables-masquerade-bit", "integer", "bit", "iptables.masqueradeBit", "14", "bit of the packet mark for masquerading, unless --proxy-mode is nftables (default 14)"],
  ["iptables-localhost-nodeports", "bool", "", "iptables.localhostNodePorts", "true", "if true, and --proxy-mode is iptables or not set, also serve node ports on 127.0.0.0/8"],
  ["ipvs-sync-period", "duration", "duration", "ipvs.syncPeriod", "30s", "with --proxy-mode=ipvs, used if --iptables-sync-period is not set (default 30s)"],
  ["ipvs-min-sync-period", "duration", "duration", "ipvs.minSyncPeriod", "", "with --proxy-mode=ipvs, used if --iptables-min-sync-period is not set (default 0s)"],
  ["ipvs-scheduler", "string", "name", "ipvs.scheduler", "", "ignored: for the ipvs mode; docs/migration-ipvs.md names the replacement"],
  ["ipvs-exclude-cidrs", "strings", "cidr,...", "ipvs.excludeCIDRs", "", "keep virtual servers in these CIDRs when removing kube-proxy's IPVS mode"],
  ["ipvs-strict-arp", "bool", "", "ipvs.strictARP", "", "ignored: for the ipvs mode; docs/migration-ipvs.md names the replacement"],
  ["ipvs-tcp-timeout", "duration", "duration", "ipvs.tcpTimeout", "", "ignored: for the ipvs mode; docs/migration-ipvs.md names the replacement"],
  ["ipvs-tcpfin-timeout", "duration", "duration", "ipvs.tcpFinTimeout", "", "ignored: for the ipvs mode; docs/migration-ipvs.md names the replacement"],
  ["ipvs-udp-timeout", "duration", "duration", "ipvs.udpTimeout", "", "ignored: for the ipvs mode; docs/migration-ipvs.md names the replacement"],
  ["oom-score-adj", "integer", "score", "oomScoreAdj", "-999", "oom_score_adj of this process, from -1000 to 1000 (default -999)"],
  ["conntrack-max-per-core", "integer", "n", "conntrack.maxPerCore", "32768", "maximum tracked connections per CPU; 0: keep the kernel's limit (default 32768)"],
  ["conntrack-min", "integer", "n", "conntrack.min", "131072", "minimum for the limit of tracked connections (default 131072)"],
  ["conntrack-tcp-timeout-established", "duration", "duration", "conntrack.tcpEstablishedTimeout", "24h0m0s", "timeout of idle TCP connections; 0: keep the kernel's (default 24h)"],
  ["conntrack-tcp-timeout-close-wait", "duration", "duration", "conntrack.tcpCloseWaitTimeout", "1h0m0s", "timeout of TCP connections in CLOSE_WAIT; 0: keep the kernel's (default 1h)"],
  ["conntrack-tcp-be-liberal", "bool", "", "conntrack.tcpBeLiberal", "", "accept TCP packets outside the window as valid"],
  ["conntrack-udp-timeout", "duration", "duration", "conntrack.udpTimeout", "", "timeout of UDP flows without a reply; 0: keep the kernel's (default 0)"],
  ["conntrack-udp-timeout-stream", "duration", "duration", "conntrack.udpStreamTimeout", "", "timeout of UDP flows with replies; 0: keep the kernel's (default 0)"],
  ["boot-id-file", "string", "files", "", "/proc/sys/kernel/random/boot_id", "ignored: for cAdvisor"],
  ["machine-id-file", "string", "files", "", "/etc/machine-id,/var/lib/dbus/machine-id", "ignored: for cAdvisor"],
] as const satisfies readonly Row[];

// prettier-ignore
const LOGGING_ROWS_BESIDE_CONFIG = [
  ["v", "integer", "level", "logging.verbosity", "", "log level: 2 adds each write, 4 debug messages, 6 everything (default 0)"],
  ["vmodule", "levels", "pattern=level,...", "logging.vmodule", "", "ignored: selects Go source files of kube-proxy"],
  ["logging-format", "string", "format", "logging.format", "", "text or json (default: text on a terminal, otherwise json)"],
  ["log-flush-frequency", "duration", "duration", "logging.flushFrequency", "5s", "ignored: every line is written at once"],
  ["log-text-split-stream", "bool", "", "logging.options.text.splitStream", "", "ignored: everything goes to stderr"],
  ["log-text-info-buffer-size", "string", "size", "logging.options.text.infoBufferSize", "0", "ignored: nothing is buffered"],
  ["log-json-split-stream", "bool", "", "logging.options.json.splitStream", "", "ignored: everything goes to stderr"],
  ["log-json-info-buffer-size", "string", "size", "logging.options.json.infoBufferSize", "0", "ignored: nothing is buffered"],
] as const satisfies readonly Row[];

type AnyRow = (typeof ROWS_BESIDE_CONFIG | typeof ROWS | typeof LOGGING_ROWS_BESIDE_CONFIG)[number];

export type FlagName = AnyRow[0];

/** The flags that were given, with their values. */
export type FlagValues = { readonly [N in FlagName]?: ValueOf<Extract<AnyRow, readonly [N, ...unknown[]]>[1]> };

function flagSpecs(besideConfig: boolean, rows: readonly Row[]): FlagSpec[] {
  return rows.map(([name, type, placeholder, field, initial, usage, deprecated = ""]) => {
    const short = name.length === 1 ? name : undefined;
    return { name, short, type, placeholder, field, initial, usage, deprecated, besideConfig };
  });
}

/** Every flag, in the order of the help. */
export const KUBE_PROXY_FLAGS: readonly FlagSpec[] = [
  ...flagSpecs(true, ROWS_BESIDE_CONFIG),
  ...flagSpecs(false, ROWS),
  ...flagSpecs(true, LOGGING_ROWS_BESIDE_CONFIG),
];
