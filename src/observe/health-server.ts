import { ConfiguredServer, type ConfiguredServerOptions } from "./configured-server.js";
import type { ProbeReply, ProxyHealth } from "./health.js";
import { type HttpHandler, type HttpReply, JSON_TYPE, NOT_FOUND } from "./http-listener.js";
import type { Metrics } from "./metrics.js";

/** The health port (`healthzBindAddress`): /livez for the kubelet, /healthz for load balancers. */
export function healthServer(
  options: ConfiguredServerOptions,
  health: ProxyHealth,
  metrics: Metrics,
): ConfiguredServer {
  return new ConfiguredServer(options, {
    what: "health checks",
    reason: "FailedToStartProxierHealthcheck",
    handler: healthHandler(health, metrics),
  });
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
      default:
        return NOT_FOUND;
    }
  };
}
