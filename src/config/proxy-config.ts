/** The parts of KubeProxyConfiguration that the program uses: parsed, checked, with defaults, frozen. */

type DetectLocalMode = "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix";

export interface ProxyConfig {
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
  readonly clientConnection: {
    /** Path; "": in-cluster, unless `master` is set. */
    readonly kubeconfig: string;
    readonly qps: number;
    readonly burst: number;
  };
  /** URL of the API server, which overrides the kubeconfig's; "": none. Only a flag (--master). */
  readonly master: string;
  readonly logging: {
    /** "": text on a terminal, otherwise JSON. */
    readonly format: "" | "text" | "json";
    readonly verbosity: number;
  };
  /** Name of the node, trimmed and in lower case; "": the host's own name. */
  readonly hostnameOverride: string;
  /** The node's own IP, canonical. If unspecified (0.0.0.0 or ::), the Node object decides. */
  readonly bindAddress: string;
  /** "IP:port", with an IPv6 address in brackets and the default filled in; "": off. */
  readonly healthzBindAddress: string;
  /** Like healthzBindAddress. */
  readonly metricsBindAddress: string;
  readonly bindAddressHardFail: boolean;
  readonly enableProfiling: boolean;
  /** Canonical CIDRs of clusterCIDR, at most one of each family; empty: none. */
  readonly clusterCIDRs: readonly string[];
  readonly detectLocalMode: DetectLocalMode;
  readonly detectLocal: {
    /** Not empty in mode BridgeInterface. */
    readonly bridgeInterface: string;
    /** Not empty in mode InterfaceNamePrefix. */
    readonly interfaceNamePrefix: string;
  };
  /** Canonical CIDRs, and the keywords of `node-port-addresses.ts`. */
  readonly nodePortAddresses: readonly string[];
  /** Serve the loopback addresses in it. False if the feature gate KubeProxyNFTablesLocalhostNodePorts is set to false. */
  readonly localhostNodePorts: boolean;
  readonly nftables: {
    readonly masqueradeAll: boolean;
    /** 0 to 31. */
    readonly masqueradeBit: number;
    readonly minSyncPeriodMs: number;
    readonly syncPeriodMs: number;
  };
  readonly ipvs: {
    /** Virtual servers of kube-proxy's IPVS mode to keep: canonical CIDRs; invalid ones are ignored. */
    readonly excludeCIDRs: readonly string[];
  };
  /** -1000 to 1000; undefined if not set. */
  readonly oomScoreAdj: number | undefined;
  readonly conntrack: {
    /** 0: keep the kernel's limit. */
    readonly maxPerCore: number;
    readonly min: number;
    /** 0: keep the kernel's value, here and below. */
    readonly tcpEstablishedTimeoutMs: number;
    readonly tcpCloseWaitTimeoutMs: number;
    readonly tcpBeLiberal: boolean;
    readonly udpTimeoutMs: number;
    readonly udpStreamTimeoutMs: number;
  };
}

/** One error in a configuration. */
export interface ConfigProblem {
  /** "nftables.masqueradeBit"; "" for the file as a whole. */
  readonly path: string;
  readonly message: string;
}

/** The configuration cannot be used. Contains all its errors at once. */
export class ConfigError extends Error {
  readonly code = "ECONFIG";
  readonly problems: readonly ConfigProblem[];

  constructor(file: string, problems: readonly ConfigProblem[], options?: ErrorOptions) {
    const lines = problems.map(({ path, message }) => (path === "" ? message : `${path}: ${message}`));
    super(lines.length === 1 ? `${file}: ${lines[0]}` : `${file}:\n  ${lines.join("\n  ")}`, options);
    this.name = "ConfigError";
    this.problems = problems;
  }
}
