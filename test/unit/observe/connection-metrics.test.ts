/** The metrics of services' connections. */
import { Registry } from "prom-client";
import { expect, test } from "vitest";
import { registerConnectionMetrics, type CountedPort } from "../../../src/observe/connection-metrics.js";

const port = (service: string, connections: number): CountedPort => ({
  family: "ip",
  namespace: "default",
  name: service,
  portName: "http",
  port: 80,
  protocol: "TCP",
  connections,
});

function metrics(ports: () => CountedPort[], series?: number): { readonly registry: Registry; reads(): number } {
  const registry = new Registry();
  let reads = 0;
  const source = {
    ports: async function* () {
      reads++;
      for (const one of ports()) yield await Promise.resolve([one]);
    },
    counts: () => ({ services: 3, endpoints: 7 }),
  };
  registerConnectionMetrics(registry, source, { families: ["ip"], series });
  return { registry, reads: () => reads };
}

test("a scrape reads the kernel's numbers, also after a reset; deleted services have no series", async () => {
  let now = [port("a", 5), port("b", 1)];
  const { registry, reads } = metrics(() => now);
  expect(reads()).toBe(0);
  const first = await registry.metrics();
  expect(first).toContain(
    'nftproxier_service_connections_total{namespace="default",service="a",port="http",protocol="TCP",ip_family="IPv4"} 5',
  );
  expect(first).toContain("# TYPE nftproxier_service_connections_total counter");
  expect(first).toContain('nftproxier_services{ip_family="IPv4"} 3');
  expect(first).toContain('nftproxier_endpoints{ip_family="IPv4"} 7');
  now = [port("a", 2)];
  const second = await registry.metrics();
  expect(second).toMatch(/service="a".*\} 2$/m);
  expect(second).not.toContain('service="b"');
});

test("refused connections have a series per reason", async () => {
  const refusals = { endpoint: 12, limits: 1 };
  const { registry } = metrics(() => [{ ...port("a", 5), refusals }, port("b", 1)]);
  const text = await registry.metrics();
  const labels = 'namespace="default",service="a",port="http",protocol="TCP"';
  expect(text.match(/^nftproxier_service_refused_packets_total\{.*$/gm)).toEqual([
    `nftproxier_service_refused_packets_total{${labels},ip_family="IPv4",reason="endpoint"} 12`,
    `nftproxier_service_refused_packets_total{${labels},ip_family="IPv4",reason="limits"} 1`,
  ]);
});

test("two simultaneous scrapes have the same result, with each series once", async () => {
  const names = Array.from({ length: 40 }, (_, i) => `s${i}`);
  const { registry } = metrics(() =>
    names.map((name) => {
      const slow = port(name, 3);
      // Slow enough that the event loop turns in between.
      return Object.defineProperty({ ...slow }, "connections", {
        get: () => {
          const until = performance.now() + 1;
          while (performance.now() < until);
          return slow.connections;
        },
      });
    }),
  );
  const first = registry.metrics();
  await new Promise((resolve) => setTimeout(resolve, 10));
  for (const text of await Promise.all([first, registry.metrics()])) {
    const values = Array.from(
      text.matchAll(/^nftproxier_service_connections_total\{.*\} (\d+)$/gm),
      ([, value]) => value,
    );
    expect(values).toEqual(names.map(() => "3"));
  }
});

test("the number of series is limited, and omitted ones are counted; with 0 there is no such metric, and nothing is read", async () => {
  const three = [port("a", 1), port("b", 1), port("c", 1)];
  const text = await metrics(() => three, 2).registry.metrics();
  expect(text.match(/^nftproxier_service_connections_total\{/gm)).toHaveLength(2);
  expect(text).toContain("nftproxier_service_connections_omitted_series 1");
  const none = metrics(() => three, 0);
  expect(await none.registry.metrics()).not.toContain("nftproxier_service_connections");
  expect(none.reads()).toBe(0);
});
