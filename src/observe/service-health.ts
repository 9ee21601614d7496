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

/** Addresses on which node ports answer in a family; "all": every address of the node. */
type NodePortAddresses = "all" | readonly string[];

export class ServiceHealth implements ProxierObserver {
  readonly #families: Readonly<Record<IpFamily, FamilyHealthChecks>>;

  constructor(options: ServiceHealthOptions) {
    const connections = new ConnectionLimit(MAX_CONNECTIONS);
    this.#families = {
      ip: new FamilyHealthChecks("ip", options, connections),
      ip6: new FamilyHealthChecks("ip6", options, connections),
    };
    if (options.registry !== undefined) this.#count(options.registry);
  }

  /** Moves the servers of a family to these addresses. Before the first call there are none. */
  nodePortAddresses(family: IpFamily, addresses: NodePortAddresses, localhost: readonly string[] = []): void {
    // On loopback, only the addresses of the interface, as in kube-proxy.
    const loopback = [family === "ip" ? "127.0.0.1" : "::1"].filter((address) =>
      localhost.some((net) => prefixContains(parseCIDR(net)!, address)),
    );
    this.#families[family].setAddresses(addresses === "all" ? addresses : [...addresses, ...loopback]);
  }

  /** Load balancers only learn of active rules. */
  synced({ family, ok, services }: SyncReport): void {
    if (ok && services.length > 0) this.#families[family].apply(services);
  }

  /** Health checks that cannot be opened now, with the reason. */
  *failures(): Iterable<{ readonly service: string; readonly reason: string }> {
    yield* this.#families.ip.failures();
    yield* this.#families.ip6.failures();
  }

  /** Resolves when every port is free. */
  async close(): Promise<void> {
    await Promise.all([this.#families.ip.close(), this.#families.ip6.close()]);
  }

  #count(registry: Registry): void {
    const name = "nftproxier_service_healthcheck_listeners";
    const help = "Listeners for health checks of services now, by whether the port could be opened";
    new MetricMaker(registry, []).gauge(name, help, ["ip_family", "state"], (gauge) => {
      for (const family of IP_FAMILIES) {
        const { listening, failed } = this.#families[family].count();
        gauge.set({ ...FAMILY_LABELS[family], state: "listening" }, listening);
        gauge.set({ ...FAMILY_LABELS[family], state: "failed" }, failed);
      }
    });
  }
}

/** The server of one service, on all addresses. */
interface ServiceServer {
  check: HealthCheck;
  /** By address, "" for all. */
  readonly listeners: Map<string, HttpServer>;
}

const ALL = "";

class FamilyHealthChecks {
  readonly #family: IpFamily;
  readonly #options: ServiceHealthOptions;
  readonly #connections: ConnectionLimit;
  readonly #servers = new Map<string, ServiceServer>();
  readonly #closing = new Set<Promise<void>>();
  #addresses: readonly string[] = [];
  #closed = false;

  constructor(family: IpFamily, options: ServiceHealthOptions, connections: ConnectionLimit) {
    this.#family = family;
    this.#options = options;
    this.#connections = connections;
  }

  setAddresses(addresses: NodePortAddresses): void {
    const desired = addresses === "all" ? [ALL] : [...new Set(addresses)];
    const before = this.#addresses;
    if (desired.length === before.length && desired.every((address) => before.includes(address))) return;
    this.#addresses = desired;
    // Close first: a listener on all addresses conflicts with one on a single address.
    for (const { listeners } of this.#servers.values()) {
      for (const [address, listener] of listeners) {
        if (desired.includes(address)) continue;
        listeners.delete(address);
        void this.#close(listener);
      }
    }
    for (const [service, server] of this.#servers) this.#open(service, server);
  }

  /** Updates the health checks of these services. */
  apply(services: readonly string[]): void {
    if (this.#closed) return;
    const desired = new Map<string, HealthCheck>();
    const freed = new Set<number>();
    const closing: Promise<void>[] = [];
    for (const service of services) {
      const check = this.#options.check(this.#family, service);
      if (check !== undefined) desired.set(service, check);
      const server = this.#servers.get(service);
      if (server === undefined || server.check.port === check?.port) continue;
      this.#servers.delete(service);
      freed.add(server.check.port);
      for (const listener of server.listeners.values()) closing.push(this.#close(listener));
      this.#options.log.debug(
        { ...serviceFields(service), family: this.#family, port: server.check.port },
        "health check closed",
      );
    }
    // The old listeners are closed by now, so ports may move from one service to another.
    for (const [service, check] of desired) this.#serve(service, check);
    if (freed.size > 0) void Promise.all(closing).then(() => this.#retryNow(freed));
  }

  count(): { listening: number; failed: number } {
    let listening = 0;
    let failed = 0;
    for (const { listeners } of this.#servers.values()) {
      for (const listener of listeners.values()) {
        if (listener.failing) failed++;
        else if (listener.port !== undefined) listening++;
      }
    }
    return { listening, failed };
  }

  *failures(): Iterable<{ readonly service: string; readonly reason: string }> {
    for (const [service, { listeners }] of this.#servers) {
      for (const { failure } of listeners.values()) if (failure !== undefined) yield { service, reason: failure };
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const { listeners } of this.#servers.values()) {
      for (const listener of listeners.values()) void this.#close(listener);
    }
    this.#servers.clear();
    await Promise.all(this.#closing);
  }

  async #close(listener: HttpServer): Promise<void> {
    const closing = listener.close();
    this.#closing.add(closing);
    await closing;
    this.#closing.delete(closing);
  }

  #serve(service: string, check: HealthCheck): void {
    let server = this.#servers.get(service);
    if (server === undefined) this.#servers.set(service, (server = { check, listeners: new Map() }));
    else server.check = check;
    this.#open(service, server);
  }

  #open(service: string, server: ServiceServer): void {
    for (const address of this.#addresses) {
      if (server.listeners.has(address)) continue;
      const listener = this.#listener(service, server, address);
      server.listeners.set(address, listener);
      void listener.open();
    }
  }

  /** Retries the listeners that wait for one of these ports. */
  #retryNow(ports: ReadonlySet<number>): void {
    for (const { check, listeners } of this.#servers.values()) {
      if (ports.has(check.port)) for (const listener of listeners.values()) listener.retryNow();
    }
  }

  #listener(service: string, server: ServiceServer, address: string): HttpServer {
    const { log, firstRetryMs = FIRST_RETRY_MS } = this.#options;
    const family = this.#family;
    const { port } = server.check;
    let failed = false;
    return new HttpServer({
      address: this.#listenAddress(address, port),
      connections: this.#connections,
      handler: () => reply(service, server.check.localEndpoints, this.#options.healthy()),
      retry: { firstMs: firstRetryMs, longestMs: MAX_RETRY_MS },
      onFailed: (error) => {
        failed = true;
        this.#report(service, server.check, error);
      },
      onListening: () => {
        log[failed ? "info" : "debug"]({ ...serviceFields(service), family, address, port }, "health check opened");
        failed = false;
      },
      onRequestFailed: (error) =>
        log.warn({ ...serviceFields(service), family, err: error }, "answering a health check request failed"),
    });
  }

  /** The servers of both families have the same port: neither may take the other's addresses. */
  #listenAddress(address: string, port: number): ListenAddress {
    if (address !== ALL) return { host: address, port };
    return this.#family === "ip" ? { host: "0.0.0.0", port } : { host: "::", port, ipv6Only: true };
  }

  /** The other servers continue. Meanwhile the load balancer treats this node as one without endpoints. */
  #report(service: string, { port, uid }: HealthCheck, error: ListenError): void {
    const { nodeName, events, log } = this.#options;
    log.warn(
      { ...serviceFields(service), family: this.#family, port, err: error },
      "opening a health check port failed; retrying",
    );
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
