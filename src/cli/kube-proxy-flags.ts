/**
 * The command line of kube-proxy 1.36 on Linux as data: every flag with its type, the configuration field that it sets,
 * and whether it still counts beside a configuration file. Sources: cmd/kube-proxy/app/options.go (AddFlags), server.go
 * (--boot-id-file, --machine-id-file of cAdvisor), k8s.io/component-base logs/api/v1 (AddFlags) and version/verflag.
 */

/** As Go's pflag reads them; "strings" is comma-separated and repeatable, "gates" and "levels" are key=value pairs. */
export type FlagType =
  "bool" | "string" | "integer" | "number" | "duration" | "strings" | "gates" | "levels" | "version";

export interface FlagSpec {
  readonly name: string;
  readonly type: FlagType;
  /** What stands for the value in the help. */
  readonly placeholder?: string;
  readonly usage: string;
  /** Its value when it is not given, as Go prints it; when absent, that of the type: false, 0, 0s or nothing. */
  readonly initial?: string;
  /** Path of the KubeProxyConfiguration field that it sets. */
  readonly field?: string;
  /** It counts although there is a configuration file. */
  readonly besideConfig?: true;
  /** Why it should not be used any more, and what instead. */
  readonly deprecated?: string;
}

const GENERAL = [
  {
    name: "config",
    type: "string",
    placeholder: "file",
    besideConfig: true,
    usage: "KubeProxyConfiguration, YAML or JSON; most other flags are ignored beside it",
  },
  {
    name: "write-config-to",
    type: "string",
    placeholder: "file",
    besideConfig: true,
    usage: "write the effective configuration to this file and exit",
  },
  { name: "cleanup", type: "bool", besideConfig: true, usage: "remove what proxying has left in the kernel and exit" },
  {
    name: "init-only",
    type: "bool",
    besideConfig: true,
    usage: "do what needs all of root's rights at the start (system settings) and exit",
  },
  {
    name: "hostname-override",
    type: "string",
    placeholder: "name",
    besideConfig: true,
    usage: "name of this node; by default the host's own",
  },
  {
    name: "master",
    type: "string",
    placeholder: "url",
    besideConfig: true,
    usage: "the API server, instead of the kubeconfig's",
  },
  {
    name: "version",
    type: "version",
    initial: "false",
    placeholder: "raw",
    besideConfig: true,
    usage: "print the version, or with =raw all that is known of it, and exit",
  },
  {
    name: "feature-gates",
    type: "gates",
    field: "featureGates",
    placeholder: "gate=bool,...",
    usage: "feature gates; AllowServiceExternalIPs is the one that means something here",
  },
] as const satisfies readonly FlagSpec[];

const CLIENT = [
  {
    name: "kubeconfig",
    type: "string",
    field: "clientConnection.kubeconfig",
    placeholder: "file",
    usage: "kubeconfig; without it and --master, the pod's own service account",
  },
  {
    name: "kube-api-content-type",
    type: "string",
    initial: "application/vnd.kubernetes.protobuf",
    field: "clientConnection.contentType",
    placeholder: "type",
    usage: "content type of requests (JSON is spoken, whatever it says)",
  },
  {
    name: "kube-api-burst",
    type: "integer",
    initial: "10",
    field: "clientConnection.burst",
    placeholder: "n",
    usage: "requests to the API server that may be sent at once",
  },
  {
    name: "kube-api-qps",
    type: "number",
    initial: "5",
    field: "clientConnection.qps",
    placeholder: "n",
    usage: "requests to the API server per second",
  },
  {
    name: "config-sync-period",
    type: "duration",
    initial: "15m0s",
    field: "configSyncPeriod",
    placeholder: "duration",
    usage: "unused: nothing is kept twice that could be replayed",
  },
] as const satisfies readonly FlagSpec[];

const SERVERS = [
  {
    name: "bind-address",
    type: "string",
    initial: "0.0.0.0",
    field: "bindAddress",
    placeholder: "ip",
    usage: "the node's primary IP, instead of what the Node object says",
  },
  {
    name: "healthz-bind-address",
    type: "string",
    initial: "0.0.0.0:10256",
    field: "healthzBindAddress",
    placeholder: "ip:port",
    usage: 'address of the health server (default "0.0.0.0:10256")',
  },
  {
    name: "metrics-bind-address",
    type: "string",
    initial: "127.0.0.1:10249",
    field: "metricsBindAddress",
    placeholder: "ip:port",
    usage: 'address of the metrics server (default "127.0.0.1:10249")',
  },
  {
    name: "bind-address-hard-fail",
    type: "bool",
    field: "bindAddressHardFail",
    usage: "exit when one of these addresses cannot be bound",
  },
  {
    name: "healthz-port",
    type: "integer",
    initial: "10256",
    placeholder: "port",
    usage: "port of the health server; 0: none",
    deprecated: "use --healthz-bind-address",
  },
  {
    name: "metrics-port",
    type: "integer",
    initial: "10249",
    placeholder: "port",
    usage: "port of the metrics server; 0: none",
    deprecated: "use --metrics-bind-address",
  },
  {
    name: "profiling",
    type: "bool",
    field: "enableProfiling",
    usage: "serve profiles at /debug/pprof of the metrics server",
  },
  {
    name: "show-hidden-metrics-for-version",
    type: "string",
    field: "showHiddenMetricsForVersion",
    placeholder: "major.minor",
    usage: "unused: no metric is hidden",
  },
] as const satisfies readonly FlagSpec[];

const TRAFFIC = [
  {
    name: "proxy-mode",
    type: "string",
    field: "mode",
    placeholder: "mode",
    usage: '"nftables", the only one there is here (default)',
  },
  {
    name: "masquerade-all",
    type: "bool",
    field: "nftables.masqueradeAll",
    usage: "masquerade all traffic to ClusterIPs",
  },
  {
    name: "detect-local-mode",
    type: "string",
    field: "detectLocalMode",
    placeholder: "mode",
    usage:
      "how pods' traffic is told from other: ClusterCIDR (default), NodeCIDR, BridgeInterface, InterfaceNamePrefix",
  },
  {
    name: "cluster-cidr",
    type: "string",
    field: "clusterCIDR",
    placeholder: "cidr[,cidr]",
    usage: "the pods' addresses, at most one CIDR of each family",
  },
  {
    name: "pod-bridge-interface",
    type: "string",
    field: "detectLocal.bridgeInterface",
    placeholder: "name",
    usage: "the pods' bridge, for BridgeInterface",
  },
  {
    name: "pod-interface-name-prefix",
    type: "string",
    field: "detectLocal.interfaceNamePrefix",
    placeholder: "prefix",
    usage: "how the names of the pods' interfaces begin, for InterfaceNamePrefix",
  },
  {
    name: "nodeport-addresses",
    type: "strings",
    field: "nodePortAddresses",
    placeholder: "cidr,...",
    usage: 'addresses that node ports answer on: CIDRs, or "primary" (default): the node\'s own IPs',
  },
] as const satisfies readonly FlagSpec[];

const IPTABLES_AND_IPVS = [
  {
    name: "iptables-sync-period",
    type: "duration",
    initial: "30s",
    field: "nftables.syncPeriod",
    placeholder: "duration",
    usage: "the longest time between two attempts at a failing write; twice it, and the proxier counts as unhealthy",
  },
  {
    name: "iptables-min-sync-period",
    type: "duration",
    field: "nftables.minSyncPeriod",
    placeholder: "duration",
    usage: "the shortest time between two writes",
  },
  {
    name: "iptables-masquerade-bit",
    type: "integer",
    initial: "14",
    field: "iptables.masqueradeBit",
    placeholder: "bit",
    usage: "of the modes iptables and ipvs; unused here",
  },
  {
    name: "iptables-localhost-nodeports",
    type: "bool",
    initial: "true",
    field: "iptables.localhostNodePorts",
    usage: "of the mode iptables; unused here",
  },
  {
    name: "ipvs-sync-period",
    type: "duration",
    initial: "30s",
    field: "ipvs.syncPeriod",
    placeholder: "duration",
    usage: "of the mode ipvs; unused here",
  },
  {
    name: "ipvs-min-sync-period",
    type: "duration",
    field: "ipvs.minSyncPeriod",
    placeholder: "duration",
    usage: "of the mode ipvs; unused here",
  },
  {
    name: "ipvs-scheduler",
    type: "string",
    field: "ipvs.scheduler",
    placeholder: "name",
    usage: "of the mode ipvs; unused here",
  },
  {
    name: "ipvs-exclude-cidrs",
    type: "strings",
    field: "ipvs.excludeCIDRs",
    placeholder: "cidr,...",
    usage: "of the mode ipvs; unused here",
  },
  { name: "ipvs-strict-arp", type: "bool", field: "ipvs.strictARP", usage: "of the mode ipvs; unused here" },
  {
    name: "ipvs-tcp-timeout",
    type: "duration",
    field: "ipvs.tcpTimeout",
    placeholder: "duration",
    usage: "of the mode ipvs; unused here",
  },
  {
    name: "ipvs-tcpfin-timeout",
    type: "duration",
    field: "ipvs.tcpFinTimeout",
    placeholder: "duration",
    usage: "of the mode ipvs; unused here",
  },
  {
    name: "ipvs-udp-timeout",
    type: "duration",
    field: "ipvs.udpTimeout",
    placeholder: "duration",
    usage: "of the mode ipvs; unused here",
  },
] as const satisfies readonly FlagSpec[];

const SYSTEM = [
  {
    name: "oom-score-adj",
    type: "integer",
    initial: "-999",
    field: "oomScoreAdj",
    placeholder: "score",
    usage: "oom_score_adj of this process, -1000 to 1000 (default -999)",
  },
  {
    name: "conntrack-max-per-core",
    type: "integer",
    initial: "32768",
    field: "conntrack.maxPerCore",
    placeholder: "n",
    usage: "connections to track per CPU (default 32768); 0: the limit stays as it is",
  },
  {
    name: "conntrack-min",
    type: "integer",
    initial: "131072",
    field: "conntrack.min",
    placeholder: "n",
    usage: "connections to track at least (default 131072)",
  },
  {
    name: "conntrack-tcp-timeout-established",
    type: "duration",
    initial: "24h0m0s",
    field: "conntrack.tcpEstablishedTimeout",
    placeholder: "duration",
    usage: "of idle TCP connections (default 24h); 0: as it is",
  },
  {
    name: "conntrack-tcp-timeout-close-wait",
    type: "duration",
    initial: "1h0m0s",
    field: "conntrack.tcpCloseWaitTimeout",
    placeholder: "duration",
    usage: "of TCP connections in CLOSE_WAIT (default 1h); 0: as it is",
  },
  {
    name: "conntrack-tcp-be-liberal",
    type: "bool",
    field: "conntrack.tcpBeLiberal",
    usage: "do not call TCP packets outside the window invalid",
  },
  {
    name: "conntrack-udp-timeout",
    type: "duration",
    field: "conntrack.udpTimeout",
    placeholder: "duration",
    usage: "of UDP flows without a reply; 0: as it is",
  },
  {
    name: "conntrack-udp-timeout-stream",
    type: "duration",
    field: "conntrack.udpStreamTimeout",
    placeholder: "duration",
    usage: "of UDP flows with replies; 0: as it is",
  },
  {
    name: "boot-id-file",
    type: "string",
    initial: "/proc/sys/kernel/random/boot_id",
    placeholder: "files",
    usage: "of cAdvisor; unused here",
  },
  {
    name: "machine-id-file",
    type: "string",
    initial: "/etc/machine-id,/var/lib/dbus/machine-id",
    placeholder: "files",
    usage: "of cAdvisor; unused here",
  },
] as const satisfies readonly FlagSpec[];

const LOGGING = [
  {
    name: "v",
    type: "integer",
    field: "logging.verbosity",
    placeholder: "level",
    besideConfig: true,
    usage: "verbosity: 4 and up debug messages, 6 and up all",
  },
  {
    name: "vmodule",
    type: "levels",
    field: "logging.vmodule",
    placeholder: "pattern=level,...",
    besideConfig: true,
    usage: "unused: it names source files of kube-proxy",
  },
  {
    name: "logging-format",
    type: "string",
    field: "logging.format",
    placeholder: "format",
    besideConfig: true,
    usage: '"text" or "json"; by default text on a terminal, else json',
  },
  {
    name: "log-flush-frequency",
    type: "duration",
    initial: "5s",
    field: "logging.flushFrequency",
    placeholder: "duration",
    besideConfig: true,
    usage: "unused: every line is written at once",
  },
  {
    name: "log-text-split-stream",
    type: "bool",
    field: "logging.options.text.splitStream",
    besideConfig: true,
    usage: "unused: all goes to stderr",
  },
  {
    name: "log-text-info-buffer-size",
    type: "string",
    initial: "0",
    field: "logging.options.text.infoBufferSize",
    placeholder: "size",
    besideConfig: true,
    usage: "unused: nothing is buffered",
  },
  {
    name: "log-json-split-stream",
    type: "bool",
    field: "logging.options.json.splitStream",
    besideConfig: true,
    usage: "unused: all goes to stderr",
  },
  {
    name: "log-json-info-buffer-size",
    type: "string",
    initial: "0",
    field: "logging.options.json.infoBufferSize",
    placeholder: "size",
    besideConfig: true,
    usage: "unused: nothing is buffered",
  },
] as const satisfies readonly FlagSpec[];

/** Every flag, grouped as the help shows them. */
export const KUBE_PROXY_FLAGS = [
  ...GENERAL,
  ...CLIENT,
  ...SERVERS,
  ...TRAFFIC,
  ...IPTABLES_AND_IPVS,
  ...SYSTEM,
  ...LOGGING,
] as const;

export type FlagName = (typeof KUBE_PROXY_FLAGS)[number]["name"];
