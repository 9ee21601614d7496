/** KubeProxyConfiguration as the program uses it: read, checked, defaults filled in, frozen. */

export type DetectLocalMode = "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix";

export interface ProxyConfig {
  /** Name of the node, trimmed and in lower case; "": the host's own. */
  readonly hostnameOverride: string;
  /** Canonical. The node's own IP; unspecified (0.0.0.0 or ::): the Node object says. */
  readonly bindAddress: string;
  /** "IP:port" or ":port" as written; undefined: not written; "": off. */
  readonly healthzBindAddress: string | undefined;
  /** As healthzBindAddress. */
  readonly metricsBindAddress: string | undefined;
  /** Canonical CIDRs of clusterCIDR, at most one of each family; empty: none. */
  readonly clusterCIDRs: readonly string[];
  readonly detectLocalMode: DetectLocalMode;
  readonly detectLocal: {
    /** Not empty in mode BridgeInterface. */
    readonly bridgeInterface: string;
    /** Not empty in mode InterfaceNamePrefix. */
    readonly interfaceNamePrefix: string;
  };
  /** Canonical CIDRs, or ["primary"]. */
  readonly nodePortAddresses: readonly string[];
  readonly nftables: {
    readonly masqueradeAll: boolean;
    /** 0 to 31. */
    readonly masqueradeBit: number;
    readonly minSyncPeriodMs: number;
    readonly syncPeriodMs: number;
  };
  readonly featureGates: Readonly<Record<string, boolean>>;
  /** Feature gate AllowServiceExternalIPs. */
  readonly allowExternalIPs: boolean;
}

/** One thing wrong in a configuration. */
export interface ConfigProblem {
  /** "nftables.masqueradeBit"; "" for the file as a whole. */
  readonly path: string;
  readonly message: string;
}

/** The configuration cannot be used; all that is wrong with it at once. */
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
