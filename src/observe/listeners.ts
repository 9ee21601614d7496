/** The health port and the metrics port, on the configured addresses, with kube-proxy's contents. */
import { hostname } from "node:os";
import type { EventRecorder } from "../base/events.js";
import type { Logger } from "../base/logger.js";
import { debugRoutes } from "./debug-pages.js";
import type { ProbeReply, ProxyHealth } from "./proxy-health.js";
import { hostCheck, OTHER_HOST } from "./host-check.js";
import {
  type HttpHandler,
  type HttpReply,
  HttpServer,
  JSON_TYPE,
  jsonReply,
  NOT_FOUND,
  parseListenAddress,
  textReply,
} from "./http-server.js";
import type { Metrics } from "./metrics.js";
import { SliMetrics } from "./sli-metrics.js";
import { flagz, statusz } from "./zpages.js";

/** Key of KubeProxyConfiguration in /configz. */
const CONFIG_GROUP = "kubeproxy.config.k8s.io";

export interface ListenerOptions {
  /** "IP:port", with an IPv6 address in brackets; an unspecified address means all addresses of both families. */
  readonly address: string;
  /** bindAddressHardFail: a failure of the first attempt to listen ends the program. */
  readonly hardFail: boolean;
  readonly nodeName: string;
  readonly events: EventRecorder;
  readonly log: Logger;
  /** Between two attempts to listen, ms. Default: 5 s. */
  readonly retryMs?: number;
}

/**
 * The health port (`healthzBindAddress`): /livez and /readyz for the kubelet, /healthz for load balancers. Throws a TypeError
 * for an invalid address.
 */
export function healthListener(options: ListenerOptions, health: ProxyHealth, metrics: Metrics): HttpServer {
  return makeListener(options, "health checks", "FailedToStartProxierHealthcheck", healthHandler(health, metrics));
}

/** Served under any host name: scrapers and monitors may reach the node through a name that it does not know. */
const SCRAPED: ReadonlySet<string> = new Set(["/metrics", "/metrics/slis", "/healthz", "/healthz/ping", "/proxyMode"]);

/** The metrics port (`metricsBindAddress`). Throws a TypeError for an invalid address. */
export function metricsListener(options: ListenerOptions, contents: MetricsContents): HttpServer {
  const routes = routesOf(contents);
  const { statusPage } = contents;
  const isOurs = hostCheck([options.nodeName, hostname()]);
  const handler: HttpHandler = (request) => {
    if (!SCRAPED.has(request.path) && !isOurs(request.host)) return OTHER_HOST;
    if (statusPage !== undefined && /^\/status(\/|$)/.test(request.path)) return statusPage(request);
    return routes.get(request.path)?.(request) ?? NOT_FOUND;
  };
  return makeListener(options, "metrics", "FailedToStartMetricServer", handler);
}

/** @param reason of the Event sent with `hardFail`. */
function makeListener(options: ListenerOptions, what: string, reason: string, handler: HttpHandler): HttpServer {
  const { address, hardFail, nodeName, events, log, retryMs } = options;
  const server = new HttpServer({
    address: parseListenAddress(address),
    handler,
    hardFail,
    ...(retryMs !== undefined && { retry: { firstMs: retryMs, longestMs: retryMs } }),
    onFailed: (error) => {
      if (!hardFail) return log.error({ server: what, err: error }, "listening failed; retrying");
      const event = { type: "Warning", reason, action: "StartKubeProxy", note: error.message } as const;
      events.record({ kind: "Node", name: nodeName }, event);
    },
    onListening: () => log.info({ server: what, address, port: server.port }, "listening"),
    onRequestFailed: (error) => log.warn({ server: what, err: error }, "answering a request failed"),
  });
  return server;
}

function healthHandler(health: ProxyHealth, metrics: Metrics): HttpHandler {
  const probe = (path: "livez" | "healthz", { code, body }: ProbeReply): HttpReply => {
    metrics.probed(path, code);
    return { status: code, type: JSON_TYPE, body };
  };
  return ({ path }) => {
    switch (path) {
      case "/livez":
        return probe("livez", health.livez());
      case "/healthz":
        return probe("healthz", health.healthz());
      // kube-proxy has no such path, and therefore no metric of its answers.
      case "/readyz": {
        const { code, body } = health.readyz();
        return { status: code, type: JSON_TYPE, body };
      }
      default:
        return NOT_FOUND;
    }
  };
}

export interface MetricsContents {
  readonly metrics: Metrics;
  /** The active KubeProxyConfiguration. */
  readonly configz: unknown;
  /** One line "name=value" per flag. */
  readonly flagz: string;
  readonly enableProfiling: boolean;
  /** The version of this program, such as "0.2.0". */
  readonly version: string;
  /** Handler of /status and the paths below; absent if there are none. */
  readonly statusPage?: HttpHandler;
  /** Its level can be set here if profiling is enabled. */
  readonly log: Logger;
}

/** Routes by path. */
function routesOf(contents: MetricsContents): ReadonlyMap<string, HttpHandler> {
  const { metrics, configz, enableProfiling, version, log } = contents;
  const slis = new SliMetrics();
  const routes = new Map<string, HttpHandler>([
    ["/metrics", async () => ({ status: 200, type: metrics.registry.contentType, body: await metrics.render() })],
    ["/metrics/slis", slis.handler],
    ["/proxyMode", () => textReply(200, "nftables")],
    ["/healthz/ping", () => textReply(200, "ok")],
    ["/configz", () => jsonReply({ [CONFIG_GROUP]: configz })],
    ["/flagz", (request) => flagz(request, contents.flagz)],
  ]);
  routes.set("/healthz", () => {
    slis.pinged();
    return textReply(200, "ok");
  });
  routes.set("/statusz", (request) =>
    statusz(request, { startedAt: performance.timeOrigin, now: Date.now(), version, paths: foldersOf(paths) }),
  );
  const paths = [
    ...routes.keys(),
    ...(contents.statusPage ? ["/status"] : []),
    ...(enableProfiling ? ["/debug/flags/v", "/debug/pprof/"] : []),
  ].sort();
  // kube-proxy has nothing here; the API server has this list.
  routes.set("/", () => jsonReply({ paths }));
  if (enableProfiling) for (const [path, handler] of debugRoutes(log)) routes.set(path, handler);
  return routes;
}

/** "/debug" of "/debug/pprof/heap", as statusz shows paths. */
function foldersOf(paths: readonly string[]): string[] {
  return [...new Set(paths.map((path) => path.split("/", 2).join("/")))];
}
