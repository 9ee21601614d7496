/** The health port and the metrics port, over real HTTP. */
import { nodeRecord } from "../../support/decoded.ts";
import type { HeapProfiler } from "node:inspector";
import { Session } from "node:inspector/promises";
import { connect } from "node:net";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { ProxyHealth } from "../../../src/observe/proxy-health.js";
import { type HttpServer, ListenError } from "../../../src/observe/http-server.js";
import { Metrics } from "../../../src/observe/metrics.js";
import {
  healthListener,
  metricsListener,
  type MetricsContents,
  type ListenerOptions,
} from "../../../src/observe/listeners.js";
import { freePort } from "../../lab/ports.ts";
import { type Answer, ask, type Journal, journal, occupy } from "./http.js";
import { WRITTEN } from "../proxier/support/sync-report.ts";

const START = Date.parse("2026-01-02T03:04:05Z");

let now: number;
let book: Journal;
let health: ProxyHealth;
let metrics: Metrics;
let servers: HttpServer[];

beforeEach(() => {
  now = START;
  book = journal();
  const clock = { now: () => now };
  health = new ProxyHealth({ families: ["ip"], timeoutMs: 60_000, nodeName: "n1", clock, now: () => now });
  health.node(nodeRecord({ metadata: { name: "n1" } }));
  metrics = new Metrics({ families: ["ip"], version: "0.2.0" });
  servers = [];
});

afterEach(async () => {
  await Promise.all(servers.map((server) => server.close()));
});

function optionsOf(change: Partial<ListenerOptions> = {}): ListenerOptions {
  const { log, events } = book;
  return { address: "127.0.0.1:0", hardFail: false, nodeName: "n1", events, log, retryMs: 10, ...change };
}

function makeHealth(change: Partial<ListenerOptions> = {}): HttpServer {
  const server = healthListener(optionsOf(change), health, metrics);
  servers.push(server);
  return server;
}

function makeMetrics(contents: Partial<MetricsContents> = {}, change: Partial<ListenerOptions> = {}): HttpServer {
  const server = metricsListener(optionsOf(change), {
    metrics,
    configz: { kind: "KubeProxyConfiguration", mode: "nftables" },
    flagz: "config=/var/lib/kube-proxy/config.conf\nv=2\n",
    enableProfiling: false,
    version: "0.2.0",
    log: book.log,
    ...contents,
  });
  servers.push(server);
  return server;
}

async function started(server: HttpServer): Promise<number> {
  await server.open();
  return server.port ?? 0;
}

/** Bytes allocated by the calls of the function `name` and those below them. */
function bytesBelow(node: HeapProfiler.SamplingHeapProfileNode, name: string, inside = false): number {
  const counts = inside || node.callFrame.functionName === name;
  return node.children.reduce((sum, child) => sum + bytesBelow(child, name, counts), counts ? node.selfSize : 0);
}

describe("health port", () => {
  test("/livez and /healthz have kube-proxy's bodies and headers", async () => {
    const port = await started(makeHealth());
    now += 1_500;
    const status = '"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":true}}}';
    const times = '"lastUpdated":"2026-01-02T03:04:06.5Z","currentTime":"2026-01-02T03:04:06.5Z"';
    const livez = await ask(port, "/livez");
    expect(livez).toMatchObject({ status: 200, body: `{${times},${status}` });
    expect(livez.headers).toMatchObject({ "content-type": "application/json", "x-content-type-options": "nosniff" });
    expect(await ask(port, "/healthz")).toMatchObject({ status: 200, body: `{${times},"nodeEligible":true,${status}` });
  });

  test("503 is the answer when a change waits for too long; only /healthz depends on the node; both are counted", async () => {
    const port = await started(makeHealth());
    health.node(nodeRecord({ metadata: { name: "n1", deletionTimestamp: new Date(START).toISOString() } }));
    expect([(await ask(port, "/livez")).status, (await ask(port, "/healthz")).status]).toEqual([200, 503]);
    health.queued();
    now += 60_000;
    expect([(await ask(port, "/livez")).status, (await ask(port, "/healthz")).status]).toEqual([503, 503]);
    const text = await metrics.render();
    for (const line of ['livez_total{code="200"} 1', 'livez_total{code="503"} 1', 'healthz_total{code="503"} 2']) {
      expect(text).toContain(`kubeproxy_proxy_${line}\n`);
    }
  });

  test("/readyz is 503 with a reason until the first write is done", async () => {
    const port = await started(makeHealth());
    const early = await ask(port, "/readyz");
    expect(early).toMatchObject({ status: 503, headers: { "content-type": "application/json" } });
    expect(JSON.parse(early.body)).toEqual({
      ready: false,
      reason: expect.stringContaining("since startup") as string,
    });
    health.synced({ ...WRITTEN, full: true });
    expect(await ask(port, "/readyz")).toMatchObject({ status: 200, body: '{"ready":true}' });
  });

  test.each(["OPTIONS", "POST", "PUT", "HEAD"])(
    "%s is like GET, and counted, because load balancers also probe with it",
    async (method) => {
      const port = await started(makeHealth());
      const { status, headers, body } = await ask(port, "/healthz", { method });
      expect({ status, type: headers["content-type"] }).toEqual({ status: 200, type: "application/json" });
      expect(body.includes('"nodeEligible":true')).toBe(method !== "HEAD");
      expect(await metrics.render()).toContain('kubeproxy_proxy_healthz_total{code="200"} 1\n');
      expect((await ask(port, "/other", { method })).status).toBe(404);
    },
  );

  test("/healthz without a Node object names the one that it needs, and /livez does not need it", async () => {
    health = new ProxyHealth({ families: ["ip"], timeoutMs: 60_000, nodeName: "n1", clock: { now: () => now } });
    health.nodeUnread = () => undefined;
    const port = await started(makeHealth());
    const { status, body } = await ask(port, "/healthz");
    expect([status, JSON.parse(body)]).toMatchObject([
      503,
      {
        healthy: true,
        nodeEligible: false,
        nodeIneligibleReason: expect.stringContaining("No Node object named n1") as string,
      },
    ]);
    expect((await ask(port, "/livez")).status).toBe(200);
    health.node(nodeRecord({ metadata: { name: "n1" } }));
    const known = await ask(port, "/healthz");
    expect(known.status).toBe(200);
    expect(known.body).not.toContain("nodeIneligibleReason");
  });

  test("other paths are 404", async () => {
    const port = await started(makeHealth());
    for (const path of ["/", "/metrics", "/healthz/", "/readyz/"]) {
      expect((await ask(port, path)).status).toBe(404);
    }
  });
});

describe("metrics port", () => {
  test("/metrics has Prometheus' text format", async () => {
    const port = await started(makeMetrics());
    const { status, headers, body } = await ask(port, "/metrics");
    expect({ status, type: headers["content-type"] }).toEqual({
      status: 200,
      type: "text/plain; version=0.0.4; charset=utf-8",
    });
    expect(body).toContain("# TYPE kubeproxy_sync_proxy_rules_duration_seconds histogram\n");
  });

  test("/proxyMode and /healthz answer", async () => {
    const port = await started(makeMetrics());
    const mode = await ask(port, "/proxyMode");
    expect(mode).toMatchObject({ status: 200, body: "nftables" });
    expect(mode.headers).toMatchObject({ "content-type": "text/plain; charset=utf-8" });
    expect(await ask(port, "/healthz")).toMatchObject({ status: 200, body: "ok" });
  });

  test("/configz is the configuration as JSON, under its group; /flagz and /statusz are pages for people", async () => {
    const port = await started(makeMetrics());
    const { headers, body } = await ask(port, "/configz");
    expect(headers["content-type"]).toBe("application/json");
    expect(JSON.parse(body)).toEqual({
      "kubeproxy.config.k8s.io": { kind: "KubeProxyConfiguration", mode: "nftables" },
    });
    expect((await ask(port, "/flagz")).body).toBe(
      "\nkube-proxy flagz\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility " +
        "guarantees and is for debugging purposes only.\nconfig=/var/lib/kube-proxy/config.conf\nv=2\n",
    );
    expect((await ask(port, "/statusz")).body).toContain(
      "Paths: /configz /flagz /healthz /metrics /proxyMode /statusz\n",
    );
    expect((await ask(port, "/statusz", { headers: { Accept: "application/xml" } })).status).toBe(406);
  });

  test("/ lists the paths, like the API server's", async () => {
    const paths = async (port: number) => JSON.parse((await ask(port, "/")).body) as { paths: string[] };
    const always = [
      "/configz",
      "/flagz",
      "/healthz",
      "/healthz/ping",
      "/metrics",
      "/metrics/slis",
      "/proxyMode",
      "/statusz",
    ];
    const port = await started(makeMetrics());
    expect((await ask(port, "/")).headers["content-type"]).toBe("application/json");
    expect(await paths(port)).toEqual({ paths: always });
    const profiled = await started(makeMetrics({ enableProfiling: true }));
    expect(await paths(profiled)).toEqual({ paths: [...always, "/debug/flags/v", "/debug/pprof/"].sort() });
    for (const path of (await paths(profiled)).paths) {
      expect([path, (await ask(profiled, path)).status]).toEqual([path, path === "/debug/flags/v" ? 406 : 200]);
    }
    expect((await ask(port, "/nothing")).status).toBe(404);
  });

  test("/metrics/slis has the results of /healthz, as component-base counts them; DELETE resets them", async () => {
    const port = await started(makeMetrics());
    const slis = async (): Promise<string[]> => {
      const { status, headers, body } = await ask(port, "/metrics/slis");
      expect({ status, type: headers["content-type"] }).toEqual({
        status: 200,
        type: "text/plain; version=0.0.4; charset=utf-8",
      });
      return body.split("\n").filter((line) => line.startsWith("kubernetes_"));
    };
    expect(await slis()).toEqual([]);
    await ask(port, "/healthz");
    await ask(port, "/healthz");
    await ask(port, "/healthz/ping");
    expect(await slis()).toEqual([
      'kubernetes_healthcheck{name="ping",type="healthz"} 1',
      'kubernetes_healthchecks_total{name="ping",type="healthz",status="success"} 2',
    ]);
    expect((await ask(port, "/metrics/slis")).body).toContain(
      "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n",
    );
    expect((await ask(port, "/metrics")).body).not.toContain("kubernetes_healthcheck");
    expect(await ask(port, "/metrics/slis", { method: "DELETE" })).toMatchObject({
      status: 200,
      body: "metrics reset\n",
    });
    expect(await slis()).toEqual([]);
  });
});

describe("a request with another host's name", () => {
  const statusPage = () => ({ status: 200, type: "text/plain", body: "page" });
  const asked = async (path: string, host: string): Promise<number> => {
    const port = await started(makeMetrics({ enableProfiling: true, statusPage }, { nodeName: "Node-1" }));
    return (await ask(port, path, { headers: { host } })).status;
  };

  test.each([
    "/status",
    "/status/v1/services",
    "/configz",
    "/flagz",
    "/statusz",
    "/",
    "/debug/flags/v",
    "/debug/pprof/cmdline",
  ])("%s is refused, because a page of another site could read it", async (path) => {
    for (const host of ["rebound.example:10249", "127.0.0.1.example", "localhost.example", "[::1"])
      expect(await asked(path, host)).toBe(403);
    expect(await asked(path, "127.0.0.1:10249")).not.toBe(403);
  });

  test.each(["/metrics", "/metrics/slis", "/healthz", "/healthz/ping", "/proxyMode"])(
    "%s is open to every scraper",
    async (path) => {
      expect(await asked(path, "node-1.internal.example:10249")).toBe(200);
    },
  );

  test.each(["127.0.0.1:10249", "[::1]:10249", "localhost:8080", "192.0.2.7", "node-1:10249", "NODE-1"])(
    "%s is accepted as this node",
    async (host) => {
      expect(await asked("/status", host)).toBe(200);
    },
  );
});

describe("/debug", () => {
  test("exists only if profiling is enabled, and lists the available parts of pprof", async () => {
    const without = await started(makeMetrics());
    for (const path of [
      "/debug/pprof/",
      "/debug/pprof/profile",
      "/debug/pprof/heap",
      "/debug/flags",
      "/debug/flags/v",
    ]) {
      expect([path, (await ask(without, path)).status]).toEqual([path, 404]);
    }
    expect((await ask(without, "/debug/flags/v", { method: "PUT", body: "4" })).status).toBe(404);
    const port = await started(makeMetrics({ enableProfiling: true }));
    const index = await ask(port, "/debug/pprof/");
    expect(index.status).toBe(200);
    for (const there of ["profile?seconds=N", "heap?seconds=N", "allocs?seconds=N", "cmdline"]) {
      expect(index.body).toContain(`/debug/pprof/${there}`);
    }
    for (const missing of ["goroutine", "threadcreate", "block", "mutex", "trace", "symbol"]) {
      const { status, body } = await ask(port, `/debug/pprof/${missing}`);
      const [line = ""] = index.body.split("\n").filter((text) => text.startsWith(`${missing}: `));
      expect([missing, status, body]).toEqual([missing, 501, `${line}\n`]);
    }
    expect((await ask(port, "/debug/pprof/nothing")).status).toBe(404);
    expect((await ask(port, "/debug/pprof/cmdline")).body.split("\0")).toEqual(process.argv);
    for (const seconds of ["0", "x", "121", "1.5"]) {
      expect((await ask(port, `/debug/pprof/profile?seconds=${seconds}`)).status).toBe(400);
      expect((await ask(port, `/debug/pprof/heap?seconds=${seconds}`)).status).toBe(400);
    }
  });

  test("has a CPU profile, one at a time, which ends if no client waits for it", async () => {
    const port = await started(makeMetrics({ enableProfiling: true }));
    const profile = async (): Promise<Answer> => ask(port, "/debug/pprof/profile?seconds=1");
    const impatient = connect(port, "127.0.0.1", () =>
      impatient.write("GET /debug/pprof/heap?seconds=120 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    );
    await expect.poll(async () => (await profile()).status).toBe(409);
    impatient.destroy();
    await expect.poll(async () => (await profile()).status).toBe(200);
    const { headers, body } = await profile();
    expect(headers["content-disposition"]).toBe('attachment; filename="profile.cpuprofile"');
    const fields = ["nodes", "startTime", "endTime", "samples", "timeDeltas"];
    expect(Object.keys(JSON.parse(body) as object)).toEqual(expect.arrayContaining(fields));
  });

  test("has heap profiles: objects still in use; with allocs also freed ones", async () => {
    const port = await started(makeMetrics({ enableProfiling: true }));
    const kept: object[] = [];
    const keepFor4711 = () => kept.push(Array.from({ length: 100_000 }, (_, n) => ({ n, kept: [n] })));
    const dropFor4711 = () => Array.from({ length: 100_000 }, (_, n) => ({ n, dropped: [n] })).length;
    const ROUNDS = 4;
    // Allocates as soon as samples are taken, and all at once, so that the end of the profile's second cannot come in between.
    const { post } = Session.prototype as { post: (method: string, params?: object) => Promise<unknown> };
    const posting = vi.spyOn(Session.prototype as { post: typeof post }, "post").mockImplementation(async function (
      this: Session,
      method,
      params,
    ) {
      const answer = await post.call(this, method, params);
      const rounds = method === "HeapProfiler.startSampling" ? ROUNDS : 0;
      for (let round = 0; round < rounds; round++) {
        keepFor4711();
        dropFor4711();
      }
      return answer;
    });
    onTestFinished(() => posting.mockRestore());
    // Compare amounts, not names: a function's own code is allocated while it runs, and a sample may hit that.
    const taken = async (name: "heap" | "allocs"): Promise<{ kept: number; dropped: number }> => {
      const { status, headers, body } = await ask(port, `/debug/pprof/${name}?seconds=1`);
      expect({ status, file: headers["content-disposition"] }).toEqual({
        status: 200,
        file: `attachment; filename="${name}.heapprofile"`,
      });
      const profile = JSON.parse(body) as HeapProfiler.SamplingHeapProfile;
      return { kept: bytesBelow(profile.head, "keepFor4711"), dropped: bytesBelow(profile.head, "dropFor4711") };
    };
    const inUse = await taken("heap");
    const allocated = await taken("allocs");
    // V8 samples a byte in 32 KiB, so that each of the two functions, which allocate 41 MB, has 1,250 samples, with a standard deviation of
    // 35. The limits are more than 15 standard deviations away.
    expect(inUse.kept).toBeGreaterThan(5_000_000);
    expect(inUse.dropped).toBeLessThan(inUse.kept / 50);
    expect(allocated.kept).toBeGreaterThan(5_000_000);
    expect(allocated.dropped).toBeGreaterThan(allocated.kept / 2);
    expect(kept).toHaveLength(2 * ROUNDS);
  });

  test("sets the log's verbosity with PUT /debug/flags/v, with kube-proxy's answers", async () => {
    const port = await started(makeMetrics({ enableProfiling: true }));
    book.log.level = "info";
    const put = async (body: string): Promise<Answer> => ask(port, "/debug/flags/v", { method: "PUT", body });
    expect((await ask(port, "/debug/flags")).body).toContain("/debug/flags/v");
    expect(book.log.level).toBe("info");
    expect(await put("4")).toMatchObject({
      status: 200,
      body: "successfully set klog.logging.verbosity to 4\n",
    });
    expect(book.log.level).toBe("debug");
    expect(book.lines.at(-1)).toMatchObject({ msg: "log verbosity changed", verbosity: 4, level: "info" });
    for (const wrong of ["", "x", "4.5", "99999999999"]) {
      expect(await put(wrong)).toMatchObject({ status: 400, body: expect.stringContaining("failed set") as string });
    }
    expect(book.log.level).toBe("debug");
    for (const method of ["GET", "POST"]) {
      const answer = await ask(port, "/debug/flags/v", { method });
      expect(answer).toMatchObject({ status: 406, body: "unsupported http method\n" });
    }
    expect((await put("2")).status).toBe(200);
    expect(book.log.level).toBe("verbose");
    expect((await put("1")).status).toBe(200);
    expect(book.log.level).toBe("info");
  });
});

describe("an address that cannot be opened", () => {
  test("is retried and reported once; then it serves", async () => {
    const other = await occupy();
    const server = makeHealth({ address: `127.0.0.1:${other.port}` });
    await server.open();
    expect(server.port).toBeUndefined();
    const said = () => book.lines.filter(({ level }) => level === "error");
    expect(said()).toMatchObject([
      {
        msg: "listening failed; retrying",
        err: `listening on 127.0.0.1:${other.port} failed: another program (or another server of nft-proxier) uses this port (EADDRINUSE)`,
        code: "EADDRINUSE",
      },
    ]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(said()).toHaveLength(1);
    expect(book.recorded).toEqual([]);
    await other.free();
    await expect.poll(() => server.port).toBe(other.port);
    expect((await ask(other.port, "/livez")).status).toBe(200);
    expect(book.lines.at(-1)).toMatchObject({ msg: "listening", server: "health checks", port: other.port });
  });

  test("is fatal with bindAddressHardFail, and an Event on the node reports it", async () => {
    const other = await occupy();
    const address = `127.0.0.1:${other.port}`;
    await expect(makeHealth({ address, hardFail: true }).open()).rejects.toThrow(ListenError);
    await expect(makeMetrics({}, { address, hardFail: true }).open()).rejects.toThrow(ListenError);
    const note = `listening on ${address} failed: another program (or another server of nft-proxier) uses this port (EADDRINUSE)`;
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

  test("is no longer tried after close", async () => {
    const other = await occupy();
    const server = makeHealth({ address: `127.0.0.1:${other.port}` });
    await server.open();
    await server.close();
    await other.free();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(server.port).toBeUndefined();
    const again = await occupy("127.0.0.1", other.port);
    await again.free();
  });

  test("is not left open if close happens during the start", async () => {
    const port = await freePort();
    const server = makeHealth({ address: `127.0.0.1:${port}` });
    const starting = server.open();
    await server.close();
    await starting;
    const again = await occupy("127.0.0.1", port);
    await again.free();
  });
});
