import { ConfiguredServer, type ConfiguredServerOptions } from "./configured-server.js";
import { type HttpHandler, type HttpReply, JSON_TYPE, NOT_FOUND, textReply } from "./http-listener.js";
import type { Metrics } from "./metrics.js";
import { PROFILING_PREFIX, profilingHandler } from "./profiling.js";
import { flagz, statusz } from "./zpages.js";

export interface MetricsServerContents {
  readonly metrics: Metrics;
  /** The object of /configz: the KubeProxyConfiguration in force, under its group. */
  readonly configz: () => unknown;
  /** The text of /flagz: a head, and a line "name=value" for each flag. */
  readonly flagz: () => string;
  readonly enableProfiling: boolean;
  /** Of this program: "0.1.0". */
  readonly version: string;
  /** Unix ms; by default the system's clock. */
  readonly now?: () => number;
}

const PATHS = ["/configz", "/flagz", "/healthz", "/metrics", "/proxyMode", "/statusz"] as const;

/** The metrics port (`metricsBindAddress`): what kube-proxy serves there. */
export function metricsServer(options: ConfiguredServerOptions, contents: MetricsServerContents): ConfiguredServer {
  return new ConfiguredServer(options, {
    what: "metrics",
    reason: "FailedToStartMetricServer",
    handler: metricsHandler(contents),
  });
}

function metricsHandler(contents: MetricsServerContents): HttpHandler {
  const { metrics, configz, enableProfiling, version, now = Date.now } = contents;
  const paths = enableProfiling ? ["/debug", ...PATHS].sort() : PATHS;
  const profile = profilingHandler();
  return async (request): Promise<HttpReply> => {
    switch (request.path) {
      case "/metrics":
        return { status: 200, type: metrics.registry.contentType, body: await metrics.render() };
      case "/proxyMode":
        return textReply(200, "nftables");
      case "/healthz":
      case "/healthz/ping":
        return textReply(200, "ok");
      case "/configz":
        return { status: 200, type: JSON_TYPE, body: JSON.stringify(configz()) };
      case "/statusz":
        return statusz(request, { startedAt: performance.timeOrigin, now: now(), version, paths });
      case "/flagz":
        return flagz(request, contents.flagz());
      default:
        return enableProfiling && request.path.startsWith(PROFILING_PREFIX) ? profile(request) : NOT_FOUND;
    }
  };
}
