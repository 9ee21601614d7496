import { Counter, Gauge, Registry } from "prom-client";
import { type HttpHandler, textReply } from "./http-server.js";

/**
 * /metrics/slis: results of the health checks on the metrics port (k8s.io/component-base/metrics/prometheus/slis). As there,
 * they have a separate registry, so that they can be scraped more often than the rest. DELETE resets it.
 */
export class SliMetrics {
  readonly registry = new Registry();
  readonly #last = new Gauge({
    name: "kubernetes_healthcheck",
    help: "[STABLE] This metric records the result of a single healthcheck.",
    labelNames: ["name", "type"],
    registers: [this.registry],
  });
  readonly #total = new Counter({
    name: "kubernetes_healthchecks_total",
    help: "[STABLE] This metric records the results of all healthcheck.",
    labelNames: ["name", "type", "status"],
    registers: [this.registry],
  });

  /** /healthz was answered. Its only check, "ping", cannot fail. */
  pinged(): void {
    const check = { name: "ping", type: "healthz" };
    this.#last.set(check, 1);
    this.#total.inc({ ...check, status: "success" });
  }

  readonly handler: HttpHandler = async ({ method }) => {
    if (method === "DELETE") {
      this.registry.resetMetrics();
      return textReply(200, "metrics reset\n");
    }
    return { status: 200, type: this.registry.contentType, body: await this.registry.metrics() };
  };
}
