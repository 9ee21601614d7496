/** Answers to a load balancer's health checks of a service, and when the ports are open. */
import { connect, type Socket } from "node:net";
import { Registry } from "prom-client";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { HealthCheck } from "../../../src/model/service-port-view.js";
import type { IpFamily } from "../../../src/base/ip.js";
import { ServiceHealth } from "../../../src/observe/service-health.js";
import { freePort } from "../../lab/ports.ts";
import { ask, type Journal, journal, occupy } from "./http.js";
import { WRITTEN } from "../proxier/support/sync-report.ts";

let book: Journal;
let wellness: boolean;
let registry: Registry;
let checks: ServiceHealth;
/** The model's answers, by family and service. */
let model: Map<string, HealthCheck>;
/** Services that become active with the next write. */
let changed: Set<string>;

function make(): ServiceHealth {
  const { log, events } = book;
  return new ServiceHealth({
    nodeName: "n1",
    events,
    log,
    check: (family, service) => model.get(`${family} ${service}`),
    healthy: () => wellness,
    registry,
    firstRetryMs: 10,
  });
}

beforeEach(() => {
  book = journal();
  wellness = true;
  registry = new Registry();
  model = new Map();
  changed = new Set();
  checks = make();
  checks.nodePortAddresses("ip", ["127.0.0.1"]);
});

afterEach(async () => {
  await checks.close();
});

function wanted(port: number, localEndpoints = 1): HealthCheck {
  return { port, localEndpoints, uid: "4711" };
}

function update(family: IpFamily, service: string, check: HealthCheck | undefined): void {
  if (check === undefined) model.delete(`${family} ${service}`);
  else model.set(`${family} ${service}`, check);
  changed.add(service);
}

function written(family: IpFamily = "ip", ok = true): void {
  const services = ok ? [...changed] : [];
  checks.synced({ ...WRITTEN, family, ok, settled: ok, services });
}

/** Status of a health check; "ECONNREFUSED" if nothing listens. */
async function status(port: number, host = "127.0.0.1"): Promise<number | string | undefined> {
  return ask(port, "/", { host }).then(
    (answer) => answer.status,
    (error: NodeJS.ErrnoException) => error.code,
  );
}

async function opened(port: number, host?: string): Promise<void> {
  await expect.poll(() => status(port, host)).toSatisfy((found) => typeof found === "number");
}

/** Opens the health checks of default/web. Returns their port. */
async function servedWeb(localEndpoints?: number): Promise<number> {
  const port = await freePort();
  update("ip", "default/web", wanted(port, localEndpoints));
  written();
  await opened(port);
  return port;
}

describe("answers", () => {
  test("are byte for byte kube-proxy's, whatever the path", async () => {
    const port = await servedWeb(2);
    const { status, headers, body } = await ask(port, "/any/path?x");
    expect(status).toBe(200);
    expect(headers).toMatchObject({
      "content-type": "application/json",
      "x-content-type-options": "nosniff",
      "x-load-balancing-endpoint-weight": "2",
    });
    expect(body).toBe(
      '{\n\t"service": {\n\t\t"namespace": "default",\n\t\t"name": "web"\n\t},\n\t"localEndpoints": 2,\n' +
        '\t"serviceProxyHealthy": true\n}',
    );
  });

  test.each(["HEAD", "OPTIONS", "POST", "PUT"])("%s is like GET", async (method) => {
    const port = await servedWeb(0);
    const { status, headers, body } = await ask(port, "/", { method });
    expect({ status, weight: headers["x-load-balancing-endpoint-weight"] }).toEqual({ status: 503, weight: "0" });
    expect(body === "").toBe(method === "HEAD");
  });

  test("idle connections to one service's port, or half requests, do not delay others' answers", async () => {
    const [web, api] = [await freePort(), await freePort()];
    update("ip", "default/web", wanted(web));
    update("ip", "default/api", wanted(api));
    written();
    await opened(web);
    await opened(api);
    const sockets: Socket[] = [];
    for (let n = 0; n < 1_500; n++) {
      const socket = connect(web, "127.0.0.1", () => socket.write(n % 2 === 0 ? "GET / HT" : ""));
      sockets.push(socket);
      socket.on("error", () => undefined).resume();
      if (n % 100 === 99) await new Promise((resolve) => void socket.once("connect", resolve));
    }
    expect([await status(web), await status(api)]).toEqual([200, 200]);
    await expect.poll(() => sockets.filter(({ closed }) => !closed).length).toBeLessThanOrEqual(512);
    for (const socket of sockets) socket.destroy();
  });

  test("are 503 without an endpoint on this node", async () => {
    const port = await servedWeb(0);
    const { status, headers, body } = await ask(port, "/");
    expect({ status, weight: headers["x-load-balancing-endpoint-weight"] }).toEqual({ status: 503, weight: "0" });
    expect(JSON.parse(body)).toMatchObject({ localEndpoints: 0, serviceProxyHealthy: true });
  });

  test("are 503 while the proxier is unhealthy", async () => {
    const port = await servedWeb();
    wellness = false;
    const { status, body } = await ask(port, "/");
    expect(status).toBe(503);
    expect(JSON.parse(body)).toMatchObject({ localEndpoints: 1, serviceProxyHealthy: false });
    wellness = true;
    expect((await ask(port, "/")).status).toBe(200);
  });

  test("follow endpoints on an open port, once their rules are active", async () => {
    const port = await servedWeb(1);
    update("ip", "default/web", wanted(port, 0));
    written("ip", false);
    written("ip6");
    expect(await status(port)).toBe(200);
    written();
    expect(await status(port)).toBe(503);
  });
});

describe("ports", () => {
  test("are closed before the rules are active", async () => {
    const port = await freePort();
    update("ip", "default/web", wanted(port));
    written("ip", false);
    expect(await status(port)).toBe("ECONNREFUSED");
    written();
    await opened(port);
  });

  test("are closed when the service is deleted, or no longer needs one", async () => {
    const [first, second] = [await freePort(), await freePort()];
    update("ip", "default/web", wanted(first));
    update("ip", "default/db", wanted(second));
    written();
    await opened(first);
    await opened(second);
    update("ip", "default/web", undefined);
    written();
    expect(await status(first)).toBe("ECONNREFUSED");
    expect(await status(second)).toBe(200);
  });

  test("are not opened for a service that is added and deleted before it is written", async () => {
    const port = await freePort();
    update("ip", "default/web", wanted(port));
    update("ip", "default/web", undefined);
    written();
    expect(await status(port)).toBe("ECONNREFUSED");
  });

  test("move when a service changes its port", async () => {
    const [first, second] = [await freePort(), await freePort()];
    update("ip", "default/web", wanted(first));
    written();
    await opened(first);
    update("ip", "default/web", wanted(second));
    written();
    await opened(second);
    expect(await status(first)).toBe("ECONNREFUSED");
  });

  test("do not conflict when two services swap them", async () => {
    const [first, second] = [await freePort(), await freePort()];
    update("ip", "default/web", wanted(first, 1));
    update("ip", "default/db", wanted(second, 0));
    written();
    await opened(first);
    await opened(second);
    update("ip", "default/web", wanted(second, 1));
    update("ip", "default/db", wanted(first, 0));
    written();
    await expect.poll(() => status(second)).toBe(200);
    await expect.poll(() => status(first)).toBe(503);
    expect(book.recorded).toEqual([]);
  });

  test("are all closed by close, and free at once", async () => {
    const port = await servedWeb();
    await checks.close();
    const again = await occupy("127.0.0.1", port);
    await again.free();
  });
});

describe("addresses", () => {
  test("are the node-port addresses, and no others", async () => {
    const port = await freePort();
    checks.nodePortAddresses("ip", ["127.0.0.2", "127.0.0.3"]);
    update("ip", "default/web", wanted(port));
    written();
    await opened(port, "127.0.0.2");
    await opened(port, "127.0.0.3");
    expect(await status(port)).toBe("ECONNREFUSED");
  });

  test("include loopback if node ports answer there", async () => {
    const port = await freePort();
    checks.nodePortAddresses("ip", ["127.0.0.2"], ["127.0.0.0/8"]);
    update("ip", "default/web", wanted(port));
    written();
    await opened(port);
    checks.nodePortAddresses("ip", ["127.0.0.2"], ["127.0.0.3/32"]);
    await opened(port, "127.0.0.2");
    expect(await status(port)).toBe("ECONNREFUSED");
  });

  test("changed addresses move the servers", async () => {
    const port = await servedWeb();
    checks.nodePortAddresses("ip", ["127.0.0.2"]);
    await opened(port, "127.0.0.2");
    expect(await status(port)).toBe("ECONNREFUSED");
    checks.nodePortAddresses("ip", "all");
    await opened(port);
    expect(await status(port, "127.0.0.2")).toBe(200);
    checks.nodePortAddresses("ip", []);
    expect(await status(port)).toBe("ECONNREFUSED");
    expect(book.recorded).toEqual([]);
  });

  test("unknown addresses keep everything closed", async () => {
    const port = await freePort();
    registry = new Registry();
    const other = make();
    update("ip", "default/web", wanted(port));
    other.synced({ ...WRITTEN, full: true, services: ["default/web"] });
    expect(await status(port)).toBe("ECONNREFUSED");
    other.nodePortAddresses("ip", ["127.0.0.1"]);
    await opened(port);
    await other.close();
  });

  test("ports of both families have the same number, each with its own count", async () => {
    const port = await freePort();
    checks.nodePortAddresses("ip", "all");
    checks.nodePortAddresses("ip6", "all");
    update("ip", "default/web", wanted(port, 1));
    update("ip6", "default/web", wanted(port, 0));
    written("ip6");
    written("ip");
    await opened(port);
    expect(await status(port)).toBe(200);
    const over6 = await status(port, "::1");
    // 503, unless this machine has no IPv6 on its loopback.
    expect([503, "EADDRNOTAVAIL", "EAFNOSUPPORT"]).toContain(over6);
    expect(book.recorded.filter(({ event }) => event.note.includes("EADDRINUSE"))).toEqual([]);
  });
});

describe("a port that cannot be opened", () => {
  test("causes a warning and an Event on the service, the others continue, and it opens when possible", async () => {
    const other = await occupy();
    const port = await freePort();
    update("ip", "default/web", wanted(other.port));
    update("ip", "default/db", wanted(port));
    written();
    await opened(port);
    await expect.poll(() => book.recorded).toHaveLength(1);
    const why = `listening on 127.0.0.1:${other.port} failed: another program (or another server of nft-proxier) uses this port (EADDRINUSE)`;
    expect(book.recorded).toEqual([
      {
        subject: { kind: "Service", namespace: "default", name: "web", uid: "4711" },
        event: {
          type: "Warning",
          reason: "FailedToStartServiceHealthcheck",
          action: "Listen",
          note: `node n1 failed to start healthcheck "default/web" on port ${other.port}: ${why}`,
        },
      },
    ]);
    expect(book.lines.filter(({ level }) => level === "warn")).toMatchObject([
      {
        namespace: "default",
        service: "web",
        family: "ip",
        port: other.port,
        msg: "opening a health check port failed; retrying",
        err: why,
      },
    ]);
    const text = await registry.metrics();
    expect(text).toContain('nftproxier_service_healthcheck_listeners{ip_family="IPv4",state="listening"} 1\n');
    expect(text).toContain('nftproxier_service_healthcheck_listeners{ip_family="IPv4",state="failed"} 1\n');
    await other.free();
    await opened(other.port);
    expect(book.recorded).toHaveLength(1);
    expect(book.lines.at(-1)).toMatchObject({
      namespace: "default",
      service: "web",
      level: "info",
      msg: "health check opened",
    });
  });

  test("is requested by two services: the first has it, and the second takes over when the first is deleted", async () => {
    const port = await freePort();
    update("ip", "default/first", wanted(port, 1));
    written();
    await opened(port);
    update("ip", "default/second", wanted(port, 0));
    written();
    await expect.poll(() => book.recorded.map(({ subject }) => subject.name)).toEqual(["second"]);
    expect(await status(port)).toBe(200);
    update("ip", "default/first", undefined);
    written();
    await expect.poll(() => status(port)).toBe(503);
  });

  test("has a missing address: the service answers on the others, and on that one as soon as it exists", async () => {
    const port = await freePort();
    const other = await occupy("127.0.0.2", port);
    checks.nodePortAddresses("ip", ["127.0.0.1", "127.0.0.2", "192.0.2.1"]);
    update("ip", "default/web", wanted(port));
    written();
    await opened(port);
    await expect.poll(() => book.recorded).toHaveLength(2);
    await other.free();
    await opened(port, "127.0.0.2");
  });
});
