/** A client that sends requests without waiting for answers and reads nothing costs no memory, and delays no other. */
import { type ChildProcess, spawn } from "node:child_process";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import type { RequestGate } from "../../../src/base/request-gate.js";
import { PiecewiseList } from "../../../src/daemon/control/json-parts.js";
import { ControlServer } from "../../../src/daemon/control/control-server.js";
import { ProxyHealth } from "../../../src/observe/proxy-health.js";
import { ConnectionLimit, HttpServer, textReply } from "../../../src/observe/http-server.js";
import { Metrics } from "../../../src/observe/metrics.js";
import { healthListener, metricsListener } from "../../../src/observe/listeners.js";
import { ServiceHealth } from "../../../src/observe/service-health.js";
import { freePort } from "../../lab/ports.ts";
import { ownMs } from "../../bench/loop-watch.ts";
import { patience } from "../../lab/patience.ts";
import { liveBytes } from "../../support/live-bytes.ts";
import { ask, journal, send } from "./http.js";
import { atLength } from "../../lab/length.ts";
import { temporaryDirectory } from "../../support/temporary-directory.ts";
import { WRITTEN } from "../proxier/support/sync-report.ts";

const REQUESTS = 100_000;
/** 100,000 parsed requests would take 200 MiB or more. */
const MOST_GROWTH = 50 * 1024 * 1024;
/** The limit of the server, and one answer that has just begun. */
const MOST_PENDING = 24 * 1024 * 1024;
/** This thread's own work from a request to its answer, ms: some 10 are usual. */
const MOST_MS = patience(100);
const PROBES = atLength({ short: 20, usual: 100 });

/** A separate process, so that its memory is not the server's. */
const FLOOD = `
  const [target, request, requests, connections] = JSON.parse(process.argv[1]);
  const bytes = Buffer.from(request.repeat(requests));
  for (let i = 0; i < connections; i++) {
    const socket = require("node:net").connect(target).on("error", () => undefined);
    socket.pause().write(bytes);
  }
  console.log("flooding");
`;

let closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.toReversed()) await close();
  closing = [];
});

async function flood(target: object, path: string, connections = 1): Promise<void> {
  const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
  const words = JSON.stringify([target, request, Math.ceil(REQUESTS / connections), connections]);
  const child: ChildProcess = spawn(process.execPath, ["-e", FLOOD, words], { stdio: ["ignore", "pipe", "inherit"] });
  closing.push(() => child.kill("SIGKILL"));
  await once(child.stdout!, "data");
}

/** A health port in this process, as in the daemon. */
async function serveHealth(): Promise<number> {
  const health = new ProxyHealth({ families: ["ip"], timeoutMs: 60_000, nodeName: undefined, clock: performance });
  const metrics = new Metrics({ families: ["ip"], version: "1" });
  const { log, events } = journal();
  const server = healthListener(
    { address: "127.0.0.1:0", hardFail: false, nodeName: "n", events, log },
    health,
    metrics,
  );
  await server.open();
  closing.push(() => server.close());
  return server.port ?? 0;
}

/** Unanswered requests of all servers in this process. */
function watchRequests() {
  const open = new Map<ServerResponse, RequestGate>();
  const most = { requests: 0, bytes: 0 };
  const begins = (message: unknown): void => {
    const { request, response } = message as { readonly request: IncomingMessage; readonly response: ServerResponse };
    open.set(response, request.socket as unknown as RequestGate);
    response.once("close", () => open.delete(response));
    most.requests = Math.max(most.requests, open.size);
  };
  const measure = (): void => {
    const bytes = [...open.values()].reduce((sum, { pendingBytes }) => sum + pendingBytes, 0);
    most.bytes = Math.max(most.bytes, bytes);
  };
  subscribe("http.server.request.start", begins);
  return { most, measure, stop: () => unsubscribe("http.server.request.start", begins) };
}

/** Floods, and requests the health meanwhile. */
async function expectCalm(flooding: () => Promise<void>, connections: number): Promise<void> {
  const probed = await serveHealth();
  await ask(probed, "/livez");
  const before = liveBytes();
  const requests = watchRequests();
  closing.push(() => requests.stop());
  await flooding();
  await expect.poll(() => requests.most.requests).toBeGreaterThan(0);
  const work: number[] = [];
  for (let i = 0; i < PROBES; i++) {
    const began = ownMs();
    await ask(probed, "/livez");
    work.push(ownMs() - began);
    requests.measure();
    await sleep(10);
  }
  expect(liveBytes() - before).toBeLessThan(MOST_GROWTH);
  // One of each connection, and ours.
  expect(requests.most.requests).toBeLessThanOrEqual(connections + 1);
  expect(requests.most.bytes).toBeLessThan(MOST_PENDING);
  expect(Math.max(...work)).toBeLessThan(MOST_MS);
}

test(`${REQUESTS} requests for metrics on one connection are served`, async () => {
  const metrics = new Metrics({ families: ["ip", "ip6"], version: "1" });
  const { log, events } = journal();
  const pages = { configz: {}, flagz: "", enableProfiling: false };
  const options = { address: "127.0.0.1:0", hardFail: false, nodeName: "n", events, log };
  const server = metricsListener(options, { ...pages, metrics, version: "1", log });
  await server.open();
  closing.push(() => server.close());
  await expectCalm(() => flood({ port: server.port }, "/metrics"), 1);
});

test(`${REQUESTS} probes on one connection, and on 250, are served`, async () => {
  const port = await serveHealth();
  await expectCalm(() => flood({ port }, "/healthz"), 1);
  // The first connection is still open.
  await expectCalm(() => flood({ port }, "/healthz", 250), 251);
});

test(`${REQUESTS} health checks of a service on one connection are served`, async () => {
  const { log, events } = journal();
  const port = await freePort();
  const check = () => ({ port, localEndpoints: 1, uid: "" });
  const server = new ServiceHealth({ nodeName: "n", events, log, check, healthy: () => true });
  closing.push(() => server.close());
  server.nodePortAddresses("ip", ["127.0.0.1"]);
  server.synced({ ...WRITTEN, full: true, services: ["d/s"] });
  await expect
    .poll(() =>
      ask(port, "/").then(
        ({ status }) => status,
        () => 0,
      ),
    )
    .toBe(200);
  await expectCalm(() => flood({ port }, "/"), 1);
});

test(`${REQUESTS} requests for all services on 16 connections to the control socket are served`, async () => {
  const directory = temporaryDirectory();
  const path = join(directory, "one.sock");
  const piece = Array.from({ length: 300 }, (_, i) => ({ name: `service-${i}`, text: "x".repeat(200) }));
  const pieces = async function* () {
    for (let i = 0; i < 50; i++) yield await Promise.resolve(piece);
  };
  const server = new ControlServer(path, () => Promise.resolve(new PiecewiseList({}, pieces())), journal().log);
  await server.start();
  closing.push(() => server.close());
  await expectCalm(() => flood({ path }, "/v1/services", 16), 16);
});

async function serve(
  handler: ConstructorParameters<typeof HttpServer>[0]["handler"],
  connections?: ConnectionLimit,
): Promise<number> {
  const address = { host: "127.0.0.1", port: 0 };
  const server = new HttpServer({
    address,
    handler,
    onRequestFailed: () => undefined,
    ...(connections && { connections }),
  });
  await server.listen();
  closing.push(() => server.close());
  return server.port ?? 0;
}

test("requests that are sent ahead are answered one after the other, in order", async () => {
  let [running, most] = [0, 0];
  const port = await serve(async ({ path, body }) => {
    most = Math.max(most, ++running);
    await sleep(1);
    running--;
    return textReply(200, `[${path} ${await body}]`);
  });
  const count = 200;
  const requests = Array.from(
    { length: count },
    (_, i) =>
      `${"\r\n".repeat(i % 3)}PUT /${i} HTTP/1.1\r\nHost: x\r\nContent-Length: ${i % 7}\r\n\r\n${"b".repeat(i % 7)}`,
  );
  const answer = await send(port, `${requests.join("")}GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
  const bodies = [...answer.matchAll(/\[.*?\]/g)].map(([body]) => body);
  expect(bodies).toEqual([...requests.map((_, i) => `[/${i} ${"b".repeat(i % 7)}]`), "[/end ]"]);
  expect(most).toBe(1);
});

test("requests may arrive in pieces of any length", async () => {
  const port = await serve(({ path }) => textReply(200, `[${path}]`));
  const bytes =
    "GET /a HTTP/1.1\r\nHost: x\r\n\r\n\r\nPUT /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  for (const length of [1, 2, 3, 7, 30]) {
    const socket = connect({ port, host: "127.0.0.1", noDelay: true });
    let answer = "";
    socket.setEncoding("utf8").on("data", (part: string) => (answer += part));
    for (let at = 0; at < bytes.length; at += length) {
      socket.write(bytes.slice(at, at + length));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await once(socket, "close");
    expect([...answer.matchAll(/\[.*?\]/g)].map(([body]) => body)).toEqual(["[/a]", "[/b]", "[/c]"]);
  }
});

test("a body of unknown length is refused, because later requests could not be held back", async () => {
  const port = await serve(() => textReply(200, "ok"));
  const head = "PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  expect(await send(port, `${head}2\r\nab\r\n0\r\n\r\n`)).toMatch(/^HTTP\/1\.1 411 /);
});

test("the unread answers that hold most memory are dropped first, and others are served", async () => {
  const long = "x".repeat(16 << 20);
  let begun = 0;
  const port = await serve(
    ({ path }) => {
      if (path !== "/long") return textReply(200, "ok");
      begun++;
      return textReply(200, long);
    },
    new ConnectionLimit(100, 32 << 20),
  );
  const sockets = Array.from({ length: 8 }, () => {
    const socket = connect(port, "127.0.0.1").on("error", () => undefined);
    socket.pause().write("GET /long HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    return socket;
  });
  closing.push(() => sockets.map((socket) => socket.destroy()));
  await expect.poll(() => begun).toBe(sockets.length);
  expect(await ask(port, "/")).toMatchObject({ status: 200, body: "ok" });
  const received = await Promise.all(
    sockets.map(async (socket) => {
      let bytes = 0;
      socket.on("data", (part: Buffer) => void (bytes += part.length)).resume();
      await new Promise((resolve) => void socket.once("close", resolve));
      return bytes;
    }),
  );
  const complete = received.filter((bytes) => bytes > long.length).length;
  // Each holds at least 11 MiB, because the kernel takes at most 5 MiB that nobody reads. So 2 fit, and the one that began last is kept.
  expect(complete).toBeLessThanOrEqual(3);
});
