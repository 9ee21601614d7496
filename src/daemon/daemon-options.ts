import type { LogTail } from "../base/log-tail.js";
import type { Logger } from "../base/logger.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import type { GcInterval } from "../conntrack/conntrack-service.js";
import type { NftKernel } from "../nft/kernel/nft-kernel.js";
import type { KernelFamilies } from "../node/kernel-families.js";
import type { ServiceCounters } from "../ruleset/service-counters.js";
import type { ManifestSource } from "../objects/manifests/manifest-source.js";
import type { Clock } from "../nft/engine-exports.js";

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
  /** Replace the objects of an API server. */
  readonly manifests: ManifestSource | undefined;
  /** Whether an incomplete reading of the manifests may change an active table. */
  readonly allowIncomplete: boolean;
  /**
   * Set if the program has the node to itself, as kube-proxy does. It then listens on the configured addresses, adjusts
   * system settings to the configuration, and removes leftovers of kube-proxy's other modes. Contains the configuration that
   * the metrics port shows. If undefined, the daemon listens on no port, and changes only the tables and stale
   * connections.
   */
  readonly node: { readonly configz: unknown; readonly flagz: string } | undefined;
  /** Whether to prevent other processes from changing the tables while it runs. */
  readonly ownTable: boolean;
  /** Whether the metrics port has the status page. Default: only if that port listens on loopback. */
  readonly statusPage?: boolean;
  /** Connections to count. */
  readonly serviceCounters: ServiceCounters;
  /** See ConnectionMetricsOptions.series. */
  readonly connectionSeries?: number;
  /**
   * Interfaces between which established connections skip the rules. Absent: none, and a flowtable from an earlier run
   * is removed.
   */
  readonly flowtable?: readonly string[];
  /** Path of the socket for `status` and `services`. Absent: none. */
  readonly controlSocket?: string;
  /** Interval of the background garbage collection of connection tracking. Default "adaptive". */
  readonly gcInterval?: GcInterval;
  /** Resolves when the daemon must end. */
  readonly ended: Promise<void>;
  /** Registers a function to call when the status must be logged. */
  readonly onStatusRequest: (say: () => void) => void;
}
