import { ConntrackMetrics } from "../conntrack/metrics.js";
import { NetlinkConntrack } from "../conntrack/netlink-conntrack.js";
import { ConntrackService } from "../conntrack/service.js";
import { readNumber } from "../host/kernel-number.js";
import type { IpFamily } from "../model/types.js";
import type { LocalAddress } from "../node/facts.js";
import type { Logger } from "../observe/log.js";
import type { Metrics } from "../observe/metrics.js";
import type { Proxier } from "../proxier/proxier.js";

export interface ConntrackOptions {
  readonly proxier: Proxier;
  readonly families: readonly IpFamily[];
  readonly localAddresses: () => Promise<readonly LocalAddress[]>;
  readonly metrics: Metrics;
  readonly log: Logger;
}

/**
 * Keeps the connection tracking table in line with the services. Returns how to end it; a kernel without ctnetlink is a
 * warning: services work, connections to endpoints that are gone hang longer.
 */
export async function followConntrack(options: ConntrackOptions): Promise<() => Promise<void>> {
  const { proxier, families, localAddresses, metrics, log } = options;
  let table: NetlinkConntrack;
  try {
    table = await NetlinkConntrack.open();
  } catch (error) {
    log.warn(
      { err: error },
      "connection tracking cannot be read: stale connections of services stay until they time out",
    );
    return () => Promise.resolve();
  }
  const observers = [metrics, new ConntrackMetrics(metrics.registry)];
  const tcpLoose = () => readNumber({ root: "/" }, "proc/sys/net/netfilter/nf_conntrack_tcp_loose");
  const service = new ConntrackService({
    table,
    model: proxier.model,
    families,
    localAddresses,
    log,
    observers,
    settings: { tcpLoose },
  });
  proxier.observe(service);
  service.start();
  return async () => {
    await service.stop();
    await table.close();
  };
}
