/**
 * Health checks of services. Load balancers ask which nodes have endpoints before they send them traffic (kube-proxy:
 * pkg/proxy/healthcheck/service_health.go). Each `healthCheckNodePort` has an HTTP server in each family, on the addresses on
 * which node ports answer.
 */
import type { Registry } from "prom-client";
import { IP_FAMILIES } from "../base/ip-families.js";
import { type IpFamily, parseCIDR, prefixContains } from "../base/ip.js";
import type { HealthCheck } from "../model/service-port-view.js";
import type { ProxierObserver, SyncReport } from "../proxier/observer.js";
import type { EventRecorder } from "../base/events.js";
import {
  ConnectionLimit,
  type HttpReply,
  HttpServer,
  JSON_TYPE,
  type ListenAddress,
  type ListenError,
} from "./http-server.js";
import { FAMILY_LABELS, MetricMaker } from "./metric-maker.js";
import { type Logger, serviceFields } from "../base/logger.js";

/** First and longest wait between attempts to open a port, ms; each wait doubles. */
const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 30_000;
/** Shared by all these servers: each service adds a port, and an idle connection costs about 16 KiB. */
const MAX_CONNECTIONS = 512;

interface ServiceHealthOptions {
  readonly nodeName: string;
  readonly events: EventRecorder;
  readonly log: Logger;
  /** Returns a service's health check in a family, or undefined if it has none. The model's `healthCheck`. */
  readonly check: (family: IpFamily, service: string) => HealthCheck | undefined;
  /** Whether the proxier itself is healthy: ProxyHealth's `healthy`. */
  readonly healthy: () => boolean;
  /** Registry for `nftproxier_service_healthcheck_listeners`. */
  readonly registry?: Registry;
  /** Default: 1 s. */
  readonly firstRetryMs?: number;
}

/** The server of one service in one family, on all addresses. */
interface ServiceServer {
  check: HealthCheck;
  /** By address, "" for all. */
  readonly listeners: Map<string, HttpServer>;
}

const ALL = "";

export class ServiceHealth implements ProxierObserver {
  readonly #connections = new ConnectionLimit(MAX_CONNECTIONS);
  readonly #servers: Readonly<Record<IpFamily, Map<string, ServiceServer>>> = { ip: new Map(), ip6: new Map() };
  readonly #addresses: Record<IpFamily, readonly string[]> = { ip: [], ip6: [] };
  readonly #closing = new Set<Promise<void>>();
  #closed = false;

  constructor(private readonly options: ServiceHealthOptions) {
    if (options.registry !== undefined) this.#count(options.registry);
  }

  /** Moves the servers of a family to these addresses. Before the first call there are none. */
  nodePortAddresses(family: IpFamily, addresses: "all" | readonly string[], localhost: readonly string[] = []): void {
    // On loopback, only the addresses of the interface, as in kube-proxy.
    const loopback = [family === "ip" ? "127.0.0.1" : "::1"].filter((address) =>
      localhost.some((net) => prefixContains(parseCIDR(net)!, address)),
    );
    const desired = addresses === "all" ? [ALL] : [...new Set([...addresses, ...loopback])];
    const before = this.#addresses[family];
    if (desired.length === before.length && desired.every((address) => before.includes(address))) return;
    this.#addresses[family] = desired;
    // Close first: a listener on all addresses conflicts with one on a single address.
    for (const { listeners } of this.#servers[family].values()) {
      for (const [address, listener] of listeners) {
        if (desired.includes(address)) continue;
        listeners.delete(address);
        void this.#close(listener);
      }
    }
    for (const [service, server] of this.#servers[family]) this.#open(family, service, server);
  }

  /** Load balancers only learn of active rules. */
  synced({ family, ok, services }: SyncReport): void {
    if (ok && !this.#closed) this.#apply(family, services);
  }

  /** Health checks that cannot be opened now, with the reason. */
  *failures(): Iterable<{ readonly service: string; readonly reason: string }> {
    for (const [service, { failure }] of this.#listeners(...IP_FAMILIES))
      if (failure !== undefined) yield { service, reason: failure };
  }

  /** Resolves when every port is free. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const [, listener] of this.#listeners(...IP_FAMILIES)) void this.#close(listener);
    for (const family of IP_FAMILIES) this.#servers[family].clear();
    await Promise.all(this.#closing);
  }

  *#listeners(...families: readonly IpFamily[]): Generator<readonly [service: string, listener: HttpServer]> {
    for (const family of families) {
      for (const [service, { listeners }] of this.#servers[family])
        for (const listener of listeners.values()) yield [service, listener];
    }
  }

  #count(registry: Registry): void {
    const name = "nftproxier_service_healthcheck_listeners";
    const help = "Listeners for health checks of services now, by whether the port could be opened";
    new MetricMaker(registry, []).gauge(name, help, ["ip_family", "state"], (gauge) => {
      for (const family of IP_FAMILIES) {
        const listeners = Array.from(this.#listeners(family), ([, listener]) => listener);
        const failed = listeners.filter(({ failure }) => failure !== undefined).length;
        const listening = listeners.filter(({ failure, port }) => failure === undefined && port !== undefined).length;
        gauge.set({ ...FAMILY_LABELS[family], state: "listening" }, listening);
        gauge.set({ ...FAMILY_LABELS[family], state: "failed" }, failed);
      }
    });
  }

  /** Updates the health checks of these services. */
  #apply(family: IpFamily, services: readonly string[]): void {
    const servers = this.#servers[family];
    const desired = new Map<string, HealthCheck>();
    const freed = new Set<number>();
    const closing: Promise<void>[] = [];
    for (const service of services) {
      const check = this.options.check(family, service);
      if (check !== undefined) desired.set(service, check);
      const server = servers.get(service);
      if (server === undefined || server.check.port === check?.port) continue;
      servers.delete(service);
      freed.add(server.check.port);
      for (const listener of server.listeners.values()) closing.push(this.#close(listener));
      this.options.log.debug({ ...serviceFields(service), family, port: server.check.port }, "health check closed");
    }
    // The old listeners are closed by now, so ports may move from one service to another.
    for (const [service, check] of desired) {
      const server = servers.get(service) ?? { check, listeners: new Map<string, HttpServer>() };
      server.check = check;
      servers.set(service, server);
      this.#open(family, service, server);
    }
    if (freed.size > 0) void Promise.all(closing).then(() => this.#retryNow(family, freed));
  }

  async #close(listener: HttpServer): Promise<void> {
    const closing = listener.close();
    this.#closing.add(closing);
    await closing;
    this.#closing.delete(closing);
  }

  #open(family: IpFamily, service: string, server: ServiceServer): void {
    for (const address of this.#addresses[family]) {
      if (server.listeners.has(address)) continue;
      const listener = this.#listener(family, service, server, address);
      server.listeners.set(address, listener);
      void listener.open();
    }
  }

  /** Retries the listeners that wait for one of these ports. */
  #retryNow(family: IpFamily, ports: ReadonlySet<number>): void {
    for (const { check, listeners } of this.#servers[family].values()) {
      if (ports.has(check.port)) for (const listener of listeners.values()) listener.retryNow();
    }
  }

  #listener(family: IpFamily, service: string, server: ServiceServer, address: string): HttpServer {
    const { log, firstRetryMs = FIRST_RETRY_MS } = this.options;
    const { port } = server.check;
    let failed = false;
    return new HttpServer({
      address: listenAddress(family, address, port),
      connections: this.#connections,
      handler: () => reply(service, server.check.localEndpoints, this.options.healthy()),
      retry: { firstMs: firstRetryMs, longestMs: MAX_RETRY_MS },
      onFailed: (error) => {
        failed = true;
        this.#report(family, service, server.check, error);
      },
      onListening: () => {
        log[failed ? "info" : "debug"]({ ...serviceFields(service), family, address, port }, "health check opened");
        failed = false;
      },
      onRequestFailed: (error) =>
        log.warn({ ...serviceFields(service), family, err: error }, "answering a health check request failed"),
    });
  }

  /** The other servers continue. Meanwhile the load balancer treats this node as one without endpoints. */
  #report(family: IpFamily, service: string, { port, uid }: HealthCheck, error: ListenError): void {
    const { nodeName, events, log } = this.options;
    log.warn({ ...serviceFields(service), family, port, err: error }, "opening a health check port failed; retrying");
    const { namespace, service: name } = serviceFields(service);
    events.record(
      { kind: "Service", namespace, name, uid: uid || undefined },
      {
        type: "Warning",
        reason: "FailedToStartServiceHealthcheck",
        action: "Listen",
        note: `node ${nodeName} failed to start healthcheck "${service}" on port ${port}: ${error.message}`,
      },
    );
  }
}

/** The servers of both families have the same port: neither may take the other's addresses. */
function listenAddress(family: IpFamily, address: string, port: number): ListenAddress {
  if (address !== ALL) return { host: address, port };
  return family === "ip" ? { host: "0.0.0.0", port } : { host: "::", port, ipv6Only: true };
}

/** Identical to kube-proxy's answer, byte for byte. */
function reply(service: string, localEndpoints: number, healthy: boolean): HttpReply {
  const { namespace, service: name } = serviceFields(service);
  const answer = { service: { namespace, name }, localEndpoints, serviceProxyHealthy: healthy };
  return {
    status: localEndpoints > 0 && healthy ? 200 : 503,
    type: JSON_TYPE,
    body: JSON.stringify(answer, undefined, "\t"),
    headers: { "X-Load-Balancing-Endpoint-Weight": String(localEndpoints) },
  };
}
