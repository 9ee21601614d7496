import { ConfiguredServer, type ConfiguredServerOptions } from "./configured-server.js";
import { debugFlagRoutes } from "./debug-flags.js";
import { type HttpHandler, jsonReply, NOT_FOUND, textReply } from "./http-listener.js";
import type { Logger } from "../base/logger.js";
import type { Metrics } from "./metrics.js";
import { profilingRoutes } from "./profiling.js";
import { SliMetrics } from "./sli-metrics.js";
import { flagz, statusz } from "./zpages.js";

/** Of KubeProxyConfiguration: its key in /configz. */
const CONFIG_GROUP = "kubeproxy.config.k8s.io";

export interface MetricsServerContents {
  readonly metrics: Metrics;
  /** The KubeProxyConfiguration in force. */
  readonly configz: () => unknown;
  /** A line "name=value" for each flag. */
  readonly flagz: () => string;
  readonly enableProfiling: boolean;
  /** Of this program: "0.1.0". */
  readonly version: string;
  /** Its level can be set here, with profiling. */
  readonly log: Logger;
  /** Unix ms; by default the system's clock. */
  readonly now?: () => number;
}

/** The metrics port (`metricsBindAddress`): what kube-proxy serves there. */
export function metricsServer(options: ConfiguredServerOptions, contents: MetricsServerContents): ConfiguredServer {
  const routes = routesOf(contents);
  return new ConfiguredServer(options, {
    what: "metrics",
    reason: "FailedToStartMetricServer",
    handler: (request) => routes.get(request.path)?.(request) ?? NOT_FOUND,
  });
}

/** By path. */
function routesOf(contents: MetricsServerContents): ReadonlyMap<string, HttpHandler> {
  const { metrics, configz, enableProfiling, version, log, now = Date.now } = contents;
  const slis = new SliMetrics();
  const routes = new Map<string, HttpHandler>([
    ["/metrics", async () => ({ status: 200, type: metrics.registry.contentType, body: await metrics.render() })],
    ["/metrics/slis", slis.handler],
    ["/proxyMode", () => textReply(200, "nftables")],
    ["/healthz/ping", () => textReply(200, "ok")],
    ["/configz", () => jsonReply({ [CONFIG_GROUP]: configz() })],
    ["/flagz", (request) => flagz(request, contents.flagz())],
  ]);
  routes.set("/healthz", () => {
    slis.observed({ name: "ping", type: "healthz", status: "success" });
    return textReply(200, "ok");
  });
  routes.set("/statusz", (request) =>
    statusz(request, { startedAt: performance.timeOrigin, now: now(), version, paths: foldersOf(paths) }),
  );
  const paths = [...routes.keys(), ...(enableProfiling ? ["/debug/flags/v", "/debug/pprof/"] : [])].sort();
  // kube-proxy has nothing there; the API server has this.
  routes.set("/", () => jsonReply({ paths }));
  const debug = enableProfiling ? [...profilingRoutes(), ...debugFlagRoutes(log)] : [];
  for (const [path, handler] of debug) routes.set(path, handler);
  return routes;
}

/** "/debug" of "/debug/pprof/heap": as statusz shows paths. */
function foldersOf(paths: readonly string[]): string[] {
  return [...new Set(paths.map((path) => path.split("/", 2).join("/")))];
}
