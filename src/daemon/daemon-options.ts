import type { LogTail } from "../base/log-tail.js";
import type { Logger } from "../base/logger.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import type { GcInterval } from "../conntrack/service.js";
import type { NftKernel } from "../netlink/nft-kernel.js";
import type { KernelFamilies } from "../node/families.js";
import type { ServiceCounters } from "../ruleset/service-counters.js";
import type { ManifestSource } from "../objects/manifests/source.js";
import type { Clock } from "../table/table-exports.js";

export interface DaemonOptions {
  readonly config: ProxyConfig;
  readonly nodeName: string;
  readonly kernel: NftKernel;
  readonly families: KernelFamilies;
  readonly clock: Clock;
  readonly log: Logger;
  /** The log's last lines, for a bug report. */
  readonly logTail?: LogTail;
  readonly version: string;
  /** Objects instead of an API server's. */
  readonly manifests: ManifestSource | undefined;
  /** An incomplete reading of the manifests may change a table that is in force. */
  readonly allowIncomplete: boolean;
  /**
   * The program has the node to itself, as kube-proxy does: it listens on the configured addresses, brings system
   * settings up to the configuration and removes what kube-proxy's other modes left. With what the metrics port shows of the
   * configuration. Undefined: nothing is touched but the tables and stale connections, and nothing listens.
   */
  readonly node: { readonly configz: unknown; readonly flagz: string } | undefined;
  /** Keep other processes from changing the tables while it runs. */
  readonly ownTable: boolean;
  /** Whether the metrics port has the status page. Default: where it listens on loopback. */
  readonly statusPage?: boolean;
  /** Which connections are counted. */
  readonly serviceCounters: ServiceCounters;
  /** See ConnectionMetricsOptions.series. */
  readonly connectionSeries?: number;
  /** Interfaces between which established connections skip the rules; absent: none, and what a run before left is removed. */
  readonly flowtable?: readonly string[];
  /** Where `status` and `services` ask; absent: nowhere. */
  readonly controlSocket?: string;
  /** Of the connection tracking table, in the background. Default "adaptive". */
  readonly gcInterval?: GcInterval;
  /** Resolves when it is to end. */
  readonly ended: Promise<void>;
  /** Has the function called whenever the log is to say how things stand. */
  readonly onStatusRequest: (say: () => void) => void;
}
