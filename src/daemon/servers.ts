/** The daemon's interfaces to the outside: metrics, health, and the servers for them. */
import type { ProxyConfig } from "../config/proxy-config.js";
import type { IpFamily } from "../base/ip.js";
import { ProxyHealth } from "../observe/proxy-health.js";
import type { HttpHandler, HttpServer } from "../observe/http-server.js";
import { Metrics } from "../observe/metrics.js";
import { TableMetrics } from "../observe/table-metrics.js";
import { healthListener, type ListenerOptions, metricsListener } from "../observe/listeners.js";
import type { ProxierObserver } from "../proxier/observer.js";
import type { Clock } from "../nft/engine-exports.js";

interface ObservationOptions {
  readonly config: ProxyConfig;
  readonly families: readonly IpFamily[];
  /** The Node that the API server must have. Undefined if there is no API server. */
  readonly nodeName: string | undefined;
  readonly version: string;
  readonly clock: Clock;
}

/** Metrics and health. Kept even if no port serves them. */
export class Observation {
  readonly metrics: Metrics;
  readonly health: ProxyHealth;
  readonly #tables: TableMetrics;

  constructor({ config, families, nodeName, version, clock }: ObservationOptions) {
    this.health = new ProxyHealth({ families, timeoutMs: 2 * config.nftables.syncPeriod, nodeName, clock });
    this.metrics = new Metrics({ families, version, pendingMs: (family) => this.health.pendingMs(family) });
    this.#tables = new TableMetrics(this.metrics.registry, families);
  }

  get observers(): readonly ProxierObserver[] {
    return [this.health, this.metrics, this.#tables];
  }
}

interface ServerOptions extends Omit<ListenerOptions, "address" | "hardFail"> {
  readonly config: ProxyConfig;
  readonly version: string;
  /** The parts of the configuration that the metrics port shows. */
  readonly pages: { readonly configz: unknown; readonly flagz: string };
  /** Absent if there is no status page. */
  readonly statusPage?: HttpHandler;
}

/** Returns the health port and the metrics port, if configured. Does not listen yet. */
export function configuredListeners(options: ServerOptions, { metrics, health }: Observation): HttpServer[] {
  const { config, version, pages, statusPage, ...shared } = options;
  const { healthzBindAddress, metricsBindAddress, bindAddressHardFail: hardFail, enableProfiling } = config;
  const at = (address: string): ListenerOptions => ({ ...shared, address, hardFail });
  const servers: HttpServer[] = [];
  if (healthzBindAddress !== "") servers.push(healthListener(at(healthzBindAddress), health, metrics));
  if (metricsBindAddress !== "") {
    const contents = { metrics, version, enableProfiling, log: shared.log, ...pages, statusPage };
    servers.push(metricsListener(at(metricsBindAddress), contents));
  }
  return servers;
}
