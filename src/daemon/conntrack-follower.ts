import { ConntrackMetrics } from "../observe/conntrack-metrics.js";
import { NetlinkConntrack } from "../nft/conntrack/netlink-conntrack.js";
import { ConntrackService, type ConntrackServiceOptions, type GcInterval } from "../conntrack/conntrack-service.js";
import { readNumber } from "../node/kernel-number.js";
import type { IpFamily } from "../base/ip.js";
import type { Logger } from "../base/logger.js";
import type { Metrics } from "../observe/metrics.js";
import type { Proxier } from "../proxier/proxier.js";

interface ConntrackOptions {
  /** Created with `trackRemovals`. */
  readonly proxier: Proxier;
  readonly families: readonly IpFamily[];
  readonly log: Logger;
}

interface FollowOptions extends ConntrackOptions {
  readonly metrics: Metrics;
  /** Default "adaptive". */
  readonly gcInterval?: GcInterval;
}

/**
 * Time limit, ms. Reading a table of a million entries takes a second or two. It is read twice, or three times if
 * services have gone.
 */
const ONCE_MS = 30_000;

/**
 * Keeps the connection tracking table in line with the services. Returns a function that stops it. If the kernel has no
 * ctnetlink, logs a warning: services work, but connections to endpoints that are gone hang longer.
 */
export async function followConntrack(options: FollowOptions): Promise<() => Promise<void>> {
  const { metrics, gcInterval = "adaptive" } = options;
  const observers = [metrics, new ConntrackMetrics(metrics.registry)];
  const opened = await open(options, { observers, gcInterval });
  if (opened === undefined) return () => Promise.resolve();
  opened.service.start();
  return opened.close;
}

/**
 * Does the same for a program that writes once: deletes stale entries when the rules of their family are committed.
 * Returns a function that waits for that, half a minute at most, and then stops. Never rejects.
 */
export async function reconcileOnce(options: ConntrackOptions): Promise<() => Promise<void>> {
  const opened = await open(options, {});
  if (opened === undefined) return () => Promise.resolve();
  const { service, close } = opened;
  return async () => {
    if (!(await service.settled(ONCE_MS))) {
      options.log.warn(
        "some stale connection tracking entries may remain until they time out, because the search did not end in time",
      );
    }
    await close();
  };
}

async function open(
  { proxier, families, log }: ConntrackOptions,
  more: Pick<ConntrackServiceOptions, "observers" | "gcInterval">,
): Promise<{ readonly service: ConntrackService; readonly close: () => Promise<void> } | undefined> {
  let table: NetlinkConntrack;
  try {
    table = await NetlinkConntrack.open();
  } catch (error) {
    log.warn(
      { err: error },
      "connection tracking cannot be read, so stale connections of services stay until they time out",
    );
    return undefined;
  }
  const tcpLoose = () => readNumber({ root: "/" }, "proc/sys/net/netfilter/nf_conntrack_tcp_loose");
  const service = new ConntrackService({
    table,
    model: proxier.model,
    families,
    localAddresses: () => proxier.localAddresses.current(),
    log,
    settings: { tcpLoose },
    ...more,
  });
  proxier.observe(service);
  const close = async (): Promise<void> => {
    await service.stop();
    await table.close();
  };
  return { service, close };
}
