/** Whether the API server is heard from, for alerts: kube-proxy has no such metric. */
import { Gauge, type Registry } from "prom-client";

/** @param connected whether Services and EndpointSlices are being watched without a failure. */
export function registerApiMetrics(registry: Registry, connected: () => boolean): void {
  const gauge: Gauge = new Gauge({
    name: "nftproxier_api_server_connected",
    help: "1: changes are received from the API server; 0: they are not, and retried",
    registers: [registry],
    collect: () => gauge.set(connected() ? 1 : 0),
  });
}
