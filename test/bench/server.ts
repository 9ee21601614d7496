/**
 * Measures the CPU of a real API server for lists, watches, and clients that start at once:
 *
 *   ip netns exec NAMESPACE node test/bench/server.ts KUBECONFIG PID lists|watches|start-pages|start-stream [ROUNDS|CLIENTS]
 *
 * PID is the server's process. beside.ts has filled the namespace `bench` of its cluster. `lists` gets all EndpointSlices in several ways, in
 * turns. `watches` replaces 1,000 EndpointSlices with no, one, 50 and 500 watchers, in both formats. `start-pages` and `start-stream` get all
 * Services and EndpointSlices once with CLIENTS at once, in pages of 10,000 or as streaming lists; the server's peak memory counts from its own
 * start.
 */
import type { IncomingMessage } from "node:http";
import type https from "node:https";
import { loadavg } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { createGunzip } from "node:zlib";
import { freshPod, podsOf } from "./cluster.ts";
import { cpuMsOf, fixed, median, memoryOf } from "./lib.ts";
import { ALL_SLICES, inParallel, newAgent, RealApi } from "./real-api.ts";

const [kubeconfig = "", process_ = "", what = "", count = "5"] = process.argv.slice(2);
const server = Number(process_);
const COLLECTIONS = [ALL_SLICES, "/api/v1/services"];
const ACCEPT = { JSON: "application/json", protobuf: "application/vnd.kubernetes.protobuf, application/json" } as const;
type Format = keyof typeof ACCEPT;
const FORMATS = Object.keys(ACCEPT) as Format[];
const EVENTS = 1_000;
const WATCHERS = [0, 1, 50, 500];
const ENDPOINTS = 10;
/** The server closes watches that cannot keep up with more. */
const WRITERS = 4;
const QUIET_MS = 2_000;

const api = new RealApi(kubeconfig);

async function get(
  agent: https.Agent,
  path: string,
  headers: Readonly<Record<string, string>>,
): Promise<IncomingMessage> {
  const answer = await api.send(path, { agent, headers });
  if (answer.statusCode !== 200) throw new Error(`${path}: ${answer.statusCode}`);
  return answer;
}

/** Lists a collection in pages. Resolves with the bytes received. */
async function list(agent: https.Agent, path: string, format: Format, page: number, gzip: boolean): Promise<number> {
  let bytes = 0;
  let token: string | undefined = "";
  while (token !== undefined) {
    const query: string = token === "" ? "" : `&continue=${token}`;
    const answer = await get(agent, `${path}?limit=${page}${query}`, {
      Accept: ACCEPT[format],
      ...(gzip && { "Accept-Encoding": "gzip" }),
    });
    answer.on("data", (chunk: Buffer) => (bytes += chunk.length));
    let begin: string | undefined;
    const body = answer.headers["content-encoding"] === "gzip" ? answer.pipe(createGunzip()) : answer;
    for await (const chunk of body) begin ??= (chunk as Buffer).toString("latin1", 0, 1_000);
    // The token is Base64 of an object, before the items.
    token = /eyJ2[\w=-]+/.exec(begin ?? "")?.[0];
  }
  return bytes;
}

/** Reads a streaming list until the bookmark that ends it. Resolves with the bytes received. */
async function stream(agent: https.Agent, path: string, format: Format): Promise<number> {
  const query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
  const answer = await get(agent, `${path}?${query}`, { Accept: ACCEPT[format] });
  let bytes = 0;
  let last = "";
  for await (const chunk of answer) {
    bytes += (chunk as Buffer).length;
    last = last.slice(-100) + (chunk as Buffer).toString("latin1");
    if (last.includes("k8s.io/initial-events-end")) break;
  }
  return bytes;
}

interface Cost {
  readonly ms: number;
  readonly serverMs: number;
}

async function cost(work: () => Promise<unknown>): Promise<Cost> {
  const before = cpuMsOf(server);
  const began = performance.now();
  await work();
  const ms = performance.now() - began;
  await sleep(500);
  return { ms, serverMs: cpuMsOf(server) - before };
}

const said = (values: readonly number[]): string =>
  `${fixed(median(values))} (${fixed(Math.min(...values))} to ${fixed(Math.max(...values))})`;

async function lists(): Promise<void> {
  const ways = FORMATS.flatMap((format) =>
    [true, false].flatMap((gzip) =>
      [500, 10_000].map((page) => ({ format, gzip, page, costs: [] as Cost[], bytes: 0 })),
    ),
  );
  const agent = newAgent(1);
  for (let round = 0; round < Number(count); round++) {
    for (const way of ways) {
      way.costs.push(
        await cost(async () => (way.bytes = await list(agent, ALL_SLICES, way.format, way.page, way.gzip))),
      );
    }
  }
  agent.destroy();
  console.table(
    ways.map(({ format, gzip, page, costs, bytes }) => {
      const cpu = said(costs.map(({ serverMs }) => serverMs / 1000));
      return { format, gzip, page, "server's CPU, s": cpu, MB: fixed(bytes / 1e6) };
    }),
  );
}

/** Opens watches from now on, each with its own connection. */
async function watch(watchers: number, format: Format): Promise<{ bytes(): number; ended(): number; close(): void }> {
  const agent = newAgent(Math.max(1, watchers));
  let head = "";
  for await (const chunk of await get(agent, `${ALL_SLICES}?limit=1`, { Accept: ACCEPT.JSON })) head += String(chunk);
  const { metadata } = JSON.parse(head) as { metadata: { resourceVersion: string } };
  let [bytes, ended] = [0, 0];
  const query = `watch=true&resourceVersion=${metadata.resourceVersion}&allowWatchBookmarks=true`;
  await Promise.all(
    Array.from({ length: watchers }, async () => {
      const answer = await get(agent, `${ALL_SLICES}?${query}`, { Accept: ACCEPT[format] });
      answer.on("data", (chunk: Buffer) => (bytes += chunk.length));
      answer.on("error", () => undefined);
      answer.once("end", () => ended++);
    }),
  );
  return { bytes: () => bytes, ended: () => ended, close: () => agent.destroy() };
}

/** Numbers the pods that changes add. */
let serial = 0;

async function watches(): Promise<void> {
  const ways = WATCHERS.flatMap((watchers) =>
    FORMATS.map((format) => ({ watchers, format, costs: [] as Cost[], bytes: 0 })),
  );
  for (let round = 0; round < Number(count); round++) {
    for (const way of ways) {
      const { bytes, ended, close } = await watch(way.watchers, way.format);
      const change = async (service: number): Promise<void> => {
        const [, ...pods] = podsOf(service, ENDPOINTS);
        await api.replaceSlice(service, [freshPod(EVENTS * ENDPOINTS, ENDPOINTS, serial++), ...pods]);
      };
      way.costs.push(
        await cost(async () => {
          await inParallel(EVENTS, change, WRITERS);
          // All watchers have all events when nothing has come for a while.
          for (let before = -1; before !== bytes(); await sleep(QUIET_MS)) before = bytes();
        }),
      );
      way.bytes = bytes();
      if (ended() > 0)
        console.log(`${way.watchers} watchers, ${way.format}: the server has closed ${ended()} that were too slow`);
      close();
      process.stderr.write(`${JSON.stringify(way)}\n`);
    }
  }
  console.table(
    ways.map(({ watchers, format, costs, bytes }) => {
      const cpu = said(costs.map(({ serverMs }) => serverMs / 1000));
      return { watchers, format, "server's CPU for 1,000 events, s": cpu, "MB sent": fixed(bytes / 1e6) };
    }),
  );
}

async function start(get: (agent: https.Agent, path: string) => Promise<number>): Promise<void> {
  const before = memoryOf(server, "VmRSS");
  let bytes = 0;
  const { ms, serverMs } = await cost(async () => {
    await Promise.all(
      Array.from({ length: Number(count) }, async () => {
        const agent = newAgent(COLLECTIONS.length);
        for (const size of await Promise.all(COLLECTIONS.map((path) => get(agent, path)))) bytes += size;
        agent.destroy();
      }),
    );
  });
  const [base, peak] = [before, memoryOf(server, "VmHWM")].map((size) => fixed(size / 1e6, 0));
  console.log(
    `${what}, clients ${count}: server's CPU ${serverMs / 1000} s, ${fixed(ms / 1000)} s, ${fixed(bytes / 1e6)} MB; server's memory ${base} MB, peak ${peak} MB`,
  );
}

if (what === "lists") await lists();
if (what === "watches") await watches();
if (what === "start-pages") await start((agent, path) => list(agent, path, "protobuf", 10_000, true));
if (what === "start-stream") await start((agent, path) => stream(agent, path, "protobuf"));
console.log(
  `load ${loadavg()
    .map((load) => fixed(load, 1))
    .join(" ")}`,
);
api.close();
process.exit();
