import { Registry } from "prom-client";
import { type HttpHandler, textReply } from "./http-server.js";
import { MetricMaker } from "./metric-maker.js";

/**
 * /metrics/slis: results of the health checks on the metrics port (k8s.io/component-base/metrics/prometheus/slis). As there,
 * they have a separate registry, so that they can be scraped more often than the rest. DELETE resets it.
 */
export class SliMetrics {
  readonly registry = new Registry();
  readonly #make = new MetricMaker(this.registry, [], "[STABLE] ");
  readonly #last = this.#make.gauge(
    "kubernetes_healthcheck",
    "This metric records the result of a single healthcheck.",
    ["name", "type"],
  );
  readonly #total = this.#make.counter(
    "kubernetes_healthchecks_total",
    "This metric records the results of all healthcheck.",
    ["name", "type", "status"],
  );

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
