/** The health port and the metrics port, over real HTTP. */
import { connect } from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { ConfiguredServer, ConfiguredServerOptions } from "../../../src/observe/configured-server.js";
import { ProxyHealth } from "../../../src/observe/health.js";
import { healthServer } from "../../../src/observe/health-server.js";
import { ListenError } from "../../../src/observe/http-listener.js";
import { Metrics } from "../../../src/observe/metrics.js";
import { metricsServer, type MetricsServerContents } from "../../../src/observe/metrics-server.js";
import { type Answer, ask, freePort, type Journal, journal, occupy, PATIENT, SLOW } from "./http.js";

vi.setConfig(SLOW);

const START = Date.parse("2026-01-02T03:04:05Z");

let now: number;
let book: Journal;
let health: ProxyHealth;
let metrics: Metrics;
let servers: ConfiguredServer[];

beforeEach(() => {
  now = START;
  book = journal();
  const clock = { now: () => now };
  health = new ProxyHealth({ families: ["ip"], timeoutMs: 60_000, cluster: true, clock, now: () => now });
  health.node({ metadata: { name: "n1" } });
  metrics = new Metrics({ families: ["ip"], version: "0.1.0" });
  servers = [];
});

afterEach(async () => {
  await Promise.all(servers.map((server) => server.close()));
});

function optionsOf(change: Partial<ConfiguredServerOptions> = {}): ConfiguredServerOptions {
  const { log, events } = book;
  return { address: "127.0.0.1:0", hardFail: false, nodeName: "n1", events, log, retryMs: 10, ...change };
}

function makeHealth(change: Partial<ConfiguredServerOptions> = {}): ConfiguredServer {
  const server = healthServer(optionsOf(change), health, metrics);
  servers.push(server);
  return server;
}

function makeMetrics(
  contents: Partial<MetricsServerContents> = {},
  change: Partial<ConfiguredServerOptions> = {},
): ConfiguredServer {
  const server = metricsServer(optionsOf(change), {
    metrics,
    configz: () => ({ "kubeproxy.config.k8s.io": { kind: "KubeProxyConfiguration", mode: "nftables" } }),
    flagz: () => "config=/var/lib/kube-proxy/config.conf\nv=2\n",
    enableProfiling: false,
    version: "0.1.0",
    ...contents,
  });
  servers.push(server);
  return server;
}

async function started(server: ConfiguredServer): Promise<number> {
  await server.start();
  return server.port ?? 0;
}

describe("health port", () => {
  test("/livez and /healthz, bodies and headers as kube-proxy's", async () => {
    const port = await started(makeHealth());
    now += 1_500;
    const status = '"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":true}}}';
    const times = '"lastUpdated":"2026-01-02T03:04:06.5Z","currentTime":"2026-01-02T03:04:06.5Z"';
    const livez = await ask(port, "/livez");
    expect(livez).toMatchObject({ status: 200, body: `{${times},${status}` });
    expect(livez.headers).toMatchObject({ "content-type": "application/json", "x-content-type-options": "nosniff" });
    expect(await ask(port, "/healthz")).toMatchObject({ status: 200, body: `{${times},"nodeEligible":true,${status}` });
  });

  test("503 when a change waits for too long; only /healthz asks for the node; both are counted", async () => {
    const port = await started(makeHealth());
    health.node(undefined);
    expect([(await ask(port, "/livez")).status, (await ask(port, "/healthz")).status]).toEqual([200, 503]);
    health.queued();
    now += 60_000;
    expect([(await ask(port, "/livez")).status, (await ask(port, "/healthz")).status]).toEqual([503, 503]);
    const text = await metrics.render();
    for (const line of ['livez_total{code="200"} 1', 'livez_total{code="503"} 1', 'healthz_total{code="503"} 2']) {
      expect(text).toContain(`kubeproxy_proxy_${line}\n`);
    }
  });

  test.each(["OPTIONS", "POST", "PUT", "HEAD"])(
    "%s: as GET, and counted; load balancers probe so too",
    async (method) => {
      const port = await started(makeHealth());
      const { status, headers, body } = await ask(port, "/healthz", { method });
      expect({ status, type: headers["content-type"] }).toEqual({ status: 200, type: "application/json" });
      expect(body.includes('"nodeEligible":true')).toBe(method !== "HEAD");
      expect(await metrics.render()).toContain('kubeproxy_proxy_healthz_total{code="200"} 1\n');
      expect((await ask(port, "/other", { method })).status).toBe(404);
    },
  );

  test("nothing else", async () => {
    const port = await started(makeHealth());
    for (const path of ["/", "/metrics", "/healthz/", "/readyz"]) {
      expect((await ask(port, path)).status).toBe(404);
    }
  });
});

describe("metrics port", () => {
  test("/metrics in Prometheus' text format", async () => {
    const port = await started(makeMetrics());
    const { status, headers, body } = await ask(port, "/metrics");
    expect({ status, type: headers["content-type"] }).toEqual({
      status: 200,
      type: "text/plain; version=0.0.4; charset=utf-8",
    });
    expect(body).toContain("# TYPE kubeproxy_sync_proxy_rules_duration_seconds histogram\n");
  });

  test("/proxyMode and /healthz", async () => {
    const port = await started(makeMetrics());
    const mode = await ask(port, "/proxyMode");
    expect(mode).toMatchObject({ status: 200, body: "nftables" });
    expect(mode.headers).toMatchObject({ "content-type": "text/plain; charset=utf-8" });
    expect(await ask(port, "/healthz")).toMatchObject({ status: 200, body: "ok" });
  });

  test("/configz: the configuration as JSON; /flagz and /statusz: pages for people", async () => {
    const port = await started(makeMetrics());
    const { headers, body } = await ask(port, "/configz");
    expect(headers["content-type"]).toBe("application/json");
    expect(JSON.parse(body)).toEqual({
      "kubeproxy.config.k8s.io": { kind: "KubeProxyConfiguration", mode: "nftables" },
    });
    expect((await ask(port, "/flagz")).body).toBe("config=/var/lib/kube-proxy/config.conf\nv=2\n");
    expect((await ask(port, "/statusz")).body).toContain(
      "Paths: /configz /flagz /healthz /metrics /proxyMode /statusz\n",
    );
    expect((await ask(port, "/statusz", { headers: { Accept: "application/xml" } })).status).toBe(406);
  });

  test("/debug is there only where profiling is enabled, and says what it has", async () => {
    const without = await started(makeMetrics());
    expect((await ask(without, "/debug/pprof/")).status).toBe(404);
    expect((await ask(without, "/debug/pprof/profile")).status).toBe(404);
    const port = await started(makeMetrics({ enableProfiling: true }));
    expect(await ask(port, "/debug/pprof/")).toMatchObject({ status: 200 });
    const heap = await ask(port, "/debug/pprof/heap");
    expect(heap.status).toBe(404);
    expect(heap.body).toContain("/debug/pprof/profile?seconds=N");
    expect((await ask(port, "/debug/pprof/profile?seconds=0")).status).toBe(400);
    expect((await ask(port, "/debug/pprof/profile?seconds=x")).status).toBe(400);
  });

  test("a CPU profile, one at a time; one that nobody waits for ends", async () => {
    const port = await started(makeMetrics({ enableProfiling: true }));
    const profile = async (): Promise<Answer> => ask(port, "/debug/pprof/profile?seconds=1");
    const impatient = connect(port, "127.0.0.1", () =>
      impatient.write("GET /debug/pprof/profile?seconds=120 HTTP/1.1\r\nHost: x\r\n\r\n"),
    );
    await expect.poll(async () => (await profile()).status, PATIENT).toBe(409);
    impatient.destroy();
    await expect.poll(async () => (await profile()).status, PATIENT).toBe(200);
    const { headers, body } = await profile();
    expect(headers["content-disposition"]).toBe('attachment; filename="profile.cpuprofile"');
    const fields = ["nodes", "startTime", "endTime", "samples", "timeDeltas"];
    expect(Object.keys(JSON.parse(body) as object)).toEqual(expect.arrayContaining(fields));
  });
});

describe("an address that cannot be had", () => {
  test("is tried again and said once; then it serves", async () => {
    const other = await occupy();
    const server = makeHealth({ address: `127.0.0.1:${other.port}` });
    await server.start();
    expect(server.port).toBeUndefined();
    const said = () => book.lines.filter(({ level }) => level === 50);
    expect(said().map(({ msg }) => msg)).toEqual([
      `cannot listen on 127.0.0.1:${other.port}: another program (or another of our servers) has this port ` +
        "(EADDRINUSE); it is tried again",
    ]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(said()).toHaveLength(1);
    expect(book.recorded).toEqual([]);
    await other.free();
    await expect.poll(() => server.port, PATIENT).toBe(other.port);
    expect((await ask(other.port, "/livez")).status).toBe(200);
    expect(book.lines.at(-1)).toMatchObject({ msg: "listening", server: "health checks", port: other.port });
  });

  test("with bindAddressHardFail: refused, and an Event on the node tells of it", async () => {
    const other = await occupy();
    const address = `127.0.0.1:${other.port}`;
    await expect(makeHealth({ address, hardFail: true }).start()).rejects.toThrow(ListenError);
    await expect(makeMetrics({}, { address, hardFail: true }).start()).rejects.toThrow(ListenError);
    const note = `cannot listen on ${address}: another program (or another of our servers) has this port (EADDRINUSE)`;
    const subject = { kind: "Node", name: "n1" };
    expect(book.recorded).toEqual([
      {
        subject,
        event: { type: "Warning", reason: "FailedToStartProxierHealthcheck", action: "StartKubeProxy", note },
      },
      { subject, event: { type: "Warning", reason: "FailedToStartMetricServer", action: "StartKubeProxy", note } },
    ]);
    await other.free();
  });

  test("close ends the attempts", async () => {
    const other = await occupy();
    const server = makeHealth({ address: `127.0.0.1:${other.port}` });
    await server.start();
    await server.close();
    await other.free();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(server.port).toBeUndefined();
    const again = await occupy("127.0.0.1", other.port);
    await again.free();
  });

  test("close while it starts leaves nothing open", async () => {
    const port = await freePort();
    const server = makeHealth({ address: `127.0.0.1:${port}` });
    const starting = server.start();
    await server.close();
    await starting;
    const again = await occupy("127.0.0.1", port);
    await again.free();
  });
});
