/** Failures between us and the API server: no change is lost, and no existing object is removed. */
import timers from "node:timers/promises";
import { once } from "node:events";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Backoff } from "../../../../src/base/backoff.js";
import { ObjectDecoder } from "../../../../src/objects/decode/object-decoder.js";
import type { ApiConnection } from "../../../../src/objects/kubernetes/api-connection.js";
import { TransportError } from "../../../../src/objects/kubernetes/errors.js";
import { FailureLog } from "../../../../src/objects/kubernetes/failure-log.js";
import { Reflector, type ShrunkList } from "../../../../src/objects/kubernetes/reflector.js";
import { resources } from "../../../../src/objects/kubernetes/resources.js";
import { TIMING } from "../../../../src/objects/kubernetes/timing.js";
import { ApiServer } from "../../../lab/api-server/api-server.ts";
import { eventually } from "../../../lab/eventually.ts";
import { patience } from "../../../lab/patience.ts";
import { isAtLeast, keptIn } from "../../../support/log.ts";
import { type Listening, type ListenOptions, listen, NODE, node, Recorder, service, slice } from "./support.ts";
import { someOf } from "../../../lab/length.ts";

let api: ApiServer;

const open: Listening[] = [];

function follow(options: ListenOptions = {}): Listening {
  const listening = listen(api, options);
  open.push(listening);
  return listening;
}

/** Starts a source, and waits until it has its lists and watches. */
async function following(options: ListenOptions = {}): Promise<Listening> {
  const listening = follow(options);
  await listening.started;
  // The start does not wait for all kinds.
  await Promise.all(["services", "endpointslices", "nodes", "servicecidrs"].map((resource) => api.watching(resource)));
  listening.sink.clear();
  return listening;
}

/** Requests for one item are not counted: they ask for the server's version some time after an interruption, however slow the machine is. */
const lists = (resource: string) =>
  api.requests.filter(
    ({ path, query }) => path.endsWith(`/${resource}`) && !query.has("watch") && query.get("limit") !== "1",
  ).length;

/** Records each wait for another attempt: `QUICK` in support.ts has them from 20 to 200 ms long. */
function recordWaits(): () => number {
  const setting = vi.spyOn(timers, "setTimeout");
  return () => setting.mock.calls.filter(([ms = 0]) => ms >= 20 && ms <= 200).length;
}

const removals = ({ sink }: Listening) => sink.calls.filter((call) => call.startsWith("-"));

beforeEach(async () => {
  api = await ApiServer.start({ maxPage: 500 });
  api.put(service("a/web"));
  api.put(service("a/db"));
  api.put(slice("a/web-1", "web", ["10.0.0.1"]));
  api.put(node(NODE));
});

afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all(open.splice(0).map((one) => one.stop()));
  await api.stop();
});

test.each([406, 415])("a server or proxy that refuses protobuf with HTTP %d is asked for JSON", async (status) => {
  api.fail({ resource: "services", verb: "list", times: 1 }, { status, body: "only application/json" });
  const { sink } = await following();
  api.put(service("a/new"));
  await sink.seen("+ Service a/new");
  const accepted = api.requests.filter(({ path }) => path.endsWith("/services")).map(({ headers }) => headers.accept);
  expect(accepted).toEqual([
    "application/vnd.kubernetes.protobuf, application/json",
    "application/json",
    "application/json",
  ]);
});

describe("Reflector: a watch that ends", () => {
  const endings: readonly (readonly [string, (watch: ReturnType<ApiServer["watches"]>[number]) => void])[] = [
    ["in order, after its time is over", (watch) => watch.end()],
    ["between two events", (watch) => watch.cut()],
    ["in the middle of an event", (watch) => watch.cut({ midLine: true })],
    ["with an error of the server", (watch) => watch.error(500)],
  ];
  test.each(endings)("%s continues from where it was, without a list", async (_how, end) => {
    const listening = await following();
    const [watch] = api.watches("services");
    end(watch);
    api.put(service("a/new"));
    await listening.sink.seen("+ Service a/new");
    expect(listening.sink.calls.filter((call) => call !== "flush")).toEqual(["+ Service a/new"]);
    expect(lists("services")).toBe(1);
  });

  test("misses no change in between, including deletions", async () => {
    const { sink } = await following();
    api.fail({ resource: "services", verb: "watch", times: 2 }, { reset: true });
    api.watches("services")[0].cut();
    api.delete("Service", "a/db");
    api.put(service("a/web", { clusterIP: "10.96.0.7" }));
    await sink.seen("+ Service a/web");
    expect(sink.names("Service")).toEqual(["Service a/web"]);
    expect(lists("services")).toBe(1);
  });

  test("a bookmark advances the point where a watch continues", async () => {
    await following();
    const [first] = api.watches("services");
    api.advance(500);
    first.bookmark();
    const { revision } = api;
    // The history before the bookmark is gone: without the bookmark, a list would be needed.
    api.compact();
    await eventually(() => expect(api.watches("services")).toEqual([first]));
    first.end();
    const again = await eventually(() => {
      const [watch] = api.watches("services").filter((one) => one !== first);
      expect(watch).toBeDefined();
      return watch;
    });
    expect(again.query.get("resourceVersion")).toBe(String(revision));
    expect(lists("services")).toBe(1);
  });

  test("is retried with backoff if the server ends it at once, repeatedly", async () => {
    // However slow the machine is, no such watch counts as a success.
    const { sink } = await following({ timing: { resetAfterMs: 600_000 } });
    const ended = api.fail({ resource: "services", verb: "watch" }, { status: 200, body: "" });
    const waits = recordWaits();
    api.watches("services")[0].end();
    await eventually(() => expect(ended.hits).toBeGreaterThan(5));
    // The first attempt is immediate, and another one may have been made since the last wait.
    expect(waits()).toBeGreaterThanOrEqual(ended.hits - 2);
    ended.remove();
    api.put(service("a/new"));
    await sink.seen("+ Service a/new");
  });
});

describe("Reflector: 410 Gone", () => {
  const forms: readonly (readonly [string, () => void])[] = [
    ["as an ERROR event in the stream", () => api.watches("services")[0].error(410)],
    [
      "as the answer to a watch",
      () => {
        api.fail({ resource: "services", verb: "watch", times: 1 }, { status: 410 });
        api.watches("services")[0].end();
      },
    ],
    [
      "because the server has compacted its history",
      () => {
        // Changes to other kinds advance the history, so that the watch's resourceVersion is compacted away.
        api.advance(5);
        api.compact();
        api.watches("services")[0].cut();
      },
    ],
  ];
  test.each(forms)("%s: it lists again, and delivers the differences", async (_form, gone) => {
    const listening = await following();
    const delay = api.fail({ resource: "services", verb: "list" }, { pace: { bytes: 100, everyMs: 1 } });
    gone();
    api.delete("Service", "a/db");
    api.put(service("a/new"));
    await listening.sink.seen("- Service a/db");
    delay.remove();
    expect(lists("services")).toBe(2);
    expect(listening.sink.calls.filter((call) => call !== "flush").sort()).toEqual([
      "+ Service a/new",
      "+ Service a/web",
      "- Service a/db",
    ]);
    expect(listening.sink.names("Service")).toEqual(["Service a/new", "Service a/web"]);
    // No change between the list and the following watch is missed.
    api.put(service("a/newer"));
    await listening.sink.seen("+ Service a/newer");
  });

  test("in the middle of a list in pages, it restarts the list, and keeps the last known state", async () => {
    for (let i = 0; i < 1100; i++) api.put(service(`b/s-${i}`));
    const listening = await following();
    const gone = api.fail({ resource: "services", verb: "list", continued: true, times: 1 }, { status: 410 });
    api.watches("services")[0].error(410);
    api.delete("Service", "a/db");
    api.put(service("a/new"));
    await listening.sink.seen("- Service a/db");
    await listening.sink.seen("+ Service a/new");
    expect(gone.hits).toBe(1);
    expect(removals(listening)).toEqual(["- Service a/db"]);
    expect(listening.sink.names("Service")).toHaveLength(1102);
  });

  test("a compaction between two pages of the first list restarts the list", async () => {
    for (let i = 0; i < 1100; i++) api.put(service(`b/s-${i}`));
    api.fail({ resource: "services", verb: "list", continued: true, times: 1 }, { status: 410 });
    const { sink, started } = follow();
    await started;
    expect(sink.names("Service")).toHaveLength(1102);
    expect(sink.calls.filter((call) => call === "synced")).toHaveLength(1);
  });

  test("repeated errors do not cause a storm of lists", async () => {
    await following({ timing: { resetAfterMs: 600_000 } });
    const before = lists("services");
    const waits = recordWaits();
    api.fail({ resource: "services", verb: "watch" }, { status: 410 });
    api.watches("services")[0].end();
    await eventually(() => expect(lists("services") - before).toBeGreaterThan(5));
    expect(waits()).toBeGreaterThanOrEqual(lists("services") - before - 2);
  });
});

test("a kind that the server never answers does not end the backoff of another kind", async () => {
  // The first failures of a kind are followed by short waits, and the others by a day.
  const counts = new Map<Backoff, number>();
  const asleep = new Set<Backoff>();
  vi.spyOn(Backoff.prototype, "next").mockImplementation(function (this: Backoff) {
    const failures = (counts.get(this) ?? 0) + 1;
    counts.set(this, failures);
    if (failures > 3) asleep.add(this);
    return failures > 3 ? 86_400_000 : 20;
  });
  vi.spyOn(Backoff.prototype, "reset").mockImplementation(function (this: Backoff) {
    counts.delete(this);
    asleep.delete(this);
  });
  api.fail({ resource: "services", verb: "watch" }, { status: 410 });
  api.fail({ resource: "endpointslices", verb: "list" }, { status: 503 });
  follow({ timing: { resetAfterMs: 600_000 } });
  await eventually(() => expect(asleep.size).toBe(2));
});

describe("Reflector: the first list", () => {
  test("synced follows after every list is complete", async () => {
    const refused = api.fail({ resource: "endpointslices", verb: "list" }, { status: 500 });
    const { sink, lines, started } = follow();
    await sink.seen("+ Service a/web");
    await eventually(() => expect(refused.hits).toBeGreaterThan(2));
    expect(sink.calls).not.toContain("synced");
    refused.remove();
    await started;
    expect(sink.calls.filter((call) => call === "synced")).toHaveLength(1);
    expect(lines.some(({ msg, kind }) => msg.startsWith("list failed") && kind === "EndpointSlice")).toBe(true);
  });

  test.each([
    ["that breaks off", { cutAfter: 700 }],
    ["that breaks off before it begins", { reset: true }],
    ["answered by another kind of server", { status: 200, body: "<html>welcome</html>" }],
    ["answered with a redirect", { status: 302, body: "" }],
    ["answered with a JSON object of another kind", { status: 200, body: '{"items":"none"}' }],
  ] as const)("a list %s is requested again, and nothing of it is lost", async (_what, effect) => {
    const fault = api.fail({ resource: "services", verb: "list", times: 3 }, effect);
    const { sink, started } = follow();
    await started;
    expect(fault.hits).toBe(3);
    expect(sink.names("Service")).toEqual(["Service a/db", "Service a/web"]);
  });

  test("a list may arrive byte by byte", async () => {
    api.fail({ resource: "services", verb: "list", times: 1 }, { pace: { bytes: 37, everyMs: 0 } });
    const { sink, started } = follow();
    await started;
    expect(sink.names("Service")).toEqual(["Service a/db", "Service a/web"]);
  });

  test("a list without an answer times out and is retried", async () => {
    const silent = api.fail({ resource: "services", verb: "list", times: 1 }, { hang: true });
    const { sink, started } = follow({ timing: { answerIdleMs: 200 } });
    await started;
    expect(silent.hits).toBe(1);
    expect(sink.names("Service")).toHaveLength(2);
  });

  test("a list is retried until the API server is up", async () => {
    await api.down();
    const { sink, lines, started } = follow();
    await eventually(() =>
      expect(lines.some(({ msg }) => msg.startsWith("connection to the API server failed"))).toBe(true),
    );
    await api.up();
    await started;
    expect(sink.names("Service")).toHaveLength(2);
  });

  test("stopping does not wait for it", async () => {
    await api.down();
    const { source, sink, started } = follow({ timing: { minBackoffMs: 60_000 } });
    await source.stop();
    await started;
    expect(sink.calls).toEqual([]);
  });
});

describe("Reflector: a list that removes objects", () => {
  const META = { resourceVersion: "99999" };
  const strange: readonly (readonly [string, object])[] = [
    ["of Pods", { kind: "PodList", apiVersion: "v1", metadata: META, items: [] }],
    [
      "of Pods, with items",
      { kind: "PodList", apiVersion: "v1", metadata: META, items: [{ metadata: { name: "p" } }] },
    ],
    ["of another group", { kind: "ServiceList", apiVersion: "serving.knative.dev/v1", metadata: META, items: [] }],
    [
      "that is a Table",
      { kind: "Table", apiVersion: "meta.k8s.io/v1", metadata: META, columnDefinitions: [], rows: [] },
    ],
    ["without items", { kind: "ServiceList", apiVersion: "v1", metadata: META }],
    ["whose items are an object", { kind: "ServiceList", apiVersion: "v1", metadata: META, items: {} }],
    ["without a kind", { apiVersion: "v1", metadata: META, items: [] }],
  ];
  test.each(strange)("a list %s removes nothing, is reported, and is requested again", async (_what, list) => {
    const listening = await following();
    const fault = api.fail({ resource: "services", verb: "list" }, { status: 200, body: JSON.stringify(list) });
    api.watches("services")[0].error(410);
    await eventually(() => expect(fault.hits).toBeGreaterThan(2));
    await eventually(() => expect(listening.source.health.failures).toHaveLength(1));
    expect(listening.source.health.failures[0]).toMatchObject({
      message: "list failed; keeping the last known state",
      reason: expect.stringMatching(/^the answer is not .*Service/) as string,
    });
    expect(listening.sink.calls.filter((call) => call !== "flush")).toEqual([]);
    fault.remove();
    api.delete("Service", "a/db");
    await listening.sink.seen("- Service a/db");
    expect(listening.sink.names("Service")).toEqual(["Service a/web"]);
    expect(listening.source.health.failures).toEqual([]);
  });

  test.each([
    [10, 9, false],
    [11, 10, true],
    [11, 0, true],
    [11, 11, false],
    [40, 39, true],
  ])("if %i of them disappear and %i stay, there is a warning: %s", async (gone, stay, warned) => {
    api.delete("Service", "a/db");
    api.delete("Service", "a/web");
    for (let i = 0; i < gone; i++) api.put(service(`gone/s-${i}`));
    for (let i = 0; i < stay; i++) api.put(service(`stay/s-${i}`));
    const shrunk: ShrunkList[] = [];
    const { sink, lines } = await following({ onShrunk: (list) => shrunk.push(list) });
    // The watch does not see the deletions.
    api.watches("services")[0].stall();
    for (let i = 0; i < gone; i++) api.delete("Service", `gone/s-${i}`);
    api.compact();
    api.watches("services")[0].cut();
    await sink.seen(`- Service gone/s-${gone - 1}`);
    await eventually(() => expect(lists("services")).toBe(2));
    await api.watching("services");
    expect(sink.names("Service")).toHaveLength(stay);
    const warnings = lines.filter((line) => line.level === "warn" && line.msg.includes("lacks more than half"));
    expect(warnings).toHaveLength(warned ? 1 : 0);
    expect(shrunk).toEqual(warned ? [{ kind: "Service", before: gone + stay, removed: gone }] : []);
    if (warned) expect(warnings[0]).toMatchObject({ kind: "Service", before: gone + stay, removed: gone });
  });

  test.each([
    ["of another uid", "8f5a0c1e-0000-4000-8000-000000000001"],
    ["of the same uid", "8f5a0c1e-0000-4000-8000-000000000000"],
  ])("an object %s at the same resourceVersion, from a restored etcd, is delivered", async (_what, uid) => {
    const at = (own: string, clusterIP: string) => {
      const { metadata, spec, ...object } = service("a/web");
      const versioned = { ...metadata, uid: own, resourceVersion: "7" };
      return { ...object, metadata: versioned, spec: { ...(spec as object), clusterIP, clusterIPs: [clusterIP] } };
    };
    const answer = (own: string, clusterIP: string) => ({
      status: 200,
      body: JSON.stringify({
        kind: "ServiceList",
        apiVersion: "v1",
        metadata: { resourceVersion: String(api.revision) },
        items: [at(own, clusterIP)],
      }),
    });
    const list = { resource: "services", verb: "list", times: 1 } as const;
    api.fail(list, answer("8f5a0c1e-0000-4000-8000-000000000000", "10.96.0.8"));
    const { sink } = await following();
    api.fail(list, answer(uid, "10.96.0.9"));
    api.watches("services")[0].error(410);
    await sink.seen("+ Service a/web");
    expect(sink.objects.get("Service a/web")).toMatchObject({ record: { uid, ip: { clusterIP: "10.96.0.9" } } });
  });
});

describe("Reflector: answers that try to fill the memory", () => {
  /** An object of a list, or an event, with 256 MiB: a quarter of a MB when compressed. */
  async function bomb(beginning: string): Promise<Buffer> {
    const compressor = createGzip({ level: 9 });
    const parts: Buffer[] = [];
    compressor.on("data", (part: Buffer) => parts.push(part));
    const chunk = Buffer.alloc(1 << 20, "x");
    async function* text() {
      yield beginning;
      for (let i = 0; i < 256; i++) yield await Promise.resolve(chunk);
    }
    await pipeline(Readable.from(text()), compressor);
    return Buffer.concat(parts);
  }

  const NAME = '"metadata":{"name":"';
  const BOMBS = [
    [
      "an object of a list",
      "list",
      `{"kind":"ServiceList","apiVersion":"v1","metadata":{},"items":[{${NAME}`,
      "a value in the list",
    ],
    ["a field of a list", "list", '{"kind":"', "a value in the list"],
    [
      "an event of a watch",
      "watch",
      `{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1",${NAME}`,
      "an event of a watch",
    ],
  ] as const;
  test.each(someOf(BOMBS, 3))("%s is given up after 8 of its 256 MiB", async (_what, verb, beginning, what) => {
    const packed = await bomb(beginning);
    expect(packed.length).toBeLessThan(1 << 19);
    const effect = { status: 200, headers: { "Content-Encoding": "gzip" }, body: packed };
    const fault = api.fail({ resource: "services", verb }, effect);
    // A watch that takes long to read must not count as a success.
    const { source, sink, connection } = follow({ timing: { resetAfterMs: 600_000 } });
    const stream = connection.stream.bind(connection);
    let most = 0;
    vi.spyOn(connection, "stream").mockImplementation(async function* (request) {
      let bytes = 0;
      for await (const chunk of stream(request)) {
        bytes += chunk.length;
        most = Math.max(most, bytes);
        yield chunk;
      }
    });
    const reason = `${what} exceeds 8 MiB, more than any object can have`;
    // Reading as much takes seconds, and a minute on a busy machine.
    const failures = (): string[] => source.health.failures.map((failure) => failure.reason);
    await vi.waitFor(() => expect(failures()).toEqual([reason]), { timeout: patience(120_000), interval: 20 });
    expect(fault.hits).toBeGreaterThan(1);
    expect(most).toBeGreaterThan(8 << 20);
    expect(most).toBeLessThan(9 << 20);
    fault.remove();
    api.put(service("a/new"));
    await sink.seen("+ Service a/new");
  });
});

describe("Reflector: a watch that is slow or dead", () => {
  test("a watch that arrives in pieces is read as a whole", async () => {
    const { sink } = await following();
    const pace = api.fail({ resource: "services", verb: "watch" }, { pace: { bytes: 11, everyMs: 0 } });
    api.watches("services")[0].end();
    await eventually(() => expect(pace.hits).toBe(1));
    api.put(service("a/new"));
    await sink.seen("+ Service a/new");
  });

  test("a silent watch times out, and missed changes are fetched", async () => {
    const { sink } = await following({ timing: { watchIdleMs: 250 } });
    const [dead] = api.watches("services");
    dead.stall();
    api.put(service("a/new"));
    await sink.seen("+ Service a/new");
    await eventually(() => expect(dead.open).toBe(false));
  });

  test("a watch that is never answered times out", async () => {
    const { sink } = await following({ timing: { watchIdleMs: 250 } });
    const silent = api.fail({ resource: "services", verb: "watch", times: 1 }, { hang: true });
    api.watches("services")[0].end();
    api.put(service("a/new"));
    await sink.seen("+ Service a/new");
    expect(silent.hits).toBe(1);
  });

  test("after two silent watches without bookmarks it lists again, in case the server's revisions restarted", async () => {
    await following({ timing: { watchIdleMs: 100 } });
    await eventually(() => expect(lists("services")).toBeGreaterThan(1));
  });

  test("bookmarks keep a watch without changes alive", async () => {
    await api.stop();
    api = await ApiServer.start({ bookmarkEveryMs: 20 });
    // Identifies its timers.
    const watchIdleMs = 123_456;
    const setting = vi.spyOn(globalThis, "setTimeout");
    await following({ timing: { watchIdleMs } });
    const timers = setting.mock.results.filter((_, call) => setting.mock.calls[call]?.[1] === watchIdleMs);
    expect(timers).toHaveLength(4);
    const restarts = timers.map(({ value }) => vi.spyOn(value as NodeJS.Timeout, "refresh").mock.calls);
    await eventually(() => expect(Math.min(...restarts.map(({ length }) => length))).toBeGreaterThan(2));
  });

  test("a resourceVersion that decreases means another history, and it lists again", async () => {
    const { sink } = await following();
    const [watch] = api.watches("services");
    const object = { kind: "Service", apiVersion: "v1", metadata: { resourceVersion: "7", creationTimestamp: null } };
    watch.event("BOOKMARK", object);
    await eventually(() => expect(lists("services")).toBe(2));
    api.put(service("a/new"));
    await sink.seen("+ Service a/new");
  });
});

describe("Reflector: a server that refuses", () => {
  test("429 with Retry-After: it sends no request before the time is over", async () => {
    const { sink } = await following();
    const busy = api.fail(
      { resource: "services", verb: "watch", times: 1 },
      { status: 429, headers: { "Retry-After": "1" } },
    );
    const from = performance.now();
    api.watches("services")[0].end();
    api.put(service("a/new"));
    await sink.seen("+ Service a/new");
    expect(busy.hits).toBe(1);
    expect(performance.now() - from).toBeGreaterThan(990);
    expect(lists("services")).toBe(1);
  });

  test("429 with Retry-After: 0 is retried with backoff", async () => {
    await following({ timing: { resetAfterMs: 600_000 } });
    const busy = api.fail({ resource: "services", verb: "watch" }, { status: 429, headers: { "Retry-After": "0" } });
    const waits = recordWaits();
    api.watches("services")[0].end();
    await eventually(() => expect(busy.hits).toBeGreaterThan(5));
    expect(waits()).toBeGreaterThanOrEqual(busy.hits - 2);
  });

  test("503 from a proxy in between is retried", async () => {
    const listening = await following();
    const away = api.fail({}, { status: 503, body: "<html>no healthy upstream</html>" });
    for (const watch of api.watches()) watch.cut();
    await eventually(() => expect(away.hits).toBeGreaterThan(12));
    api.delete("Service", "a/db");
    away.remove();
    await listening.sink.seen("- Service a/db");
    expect(removals(listening)).toEqual(["- Service a/db"]);
    expect(listening.lines.some((line) => line["reason"] === "<html>no healthy upstream</html>")).toBe(true);
  });

  test("403 logs the missing role once, and it recovers when the role exists", async () => {
    const refused = api.fail({ resource: "services", verb: "list" }, { status: 403, message: "services is forbidden" });
    const { lines, started } = follow();
    await eventually(() => expect(refused.hits).toBeGreaterThan(4));
    const warnings = lines.filter(({ level }) => level === "warn");
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toMatchObject({ kind: "Service", reason: "services is forbidden" });
    expect(String(warnings[0]["hint"])).toContain("system:node-proxier");
    refused.remove();
    await started;
  });

  test.each<[number, string, RegExp]>([
    [401, "Unauthorized", /^the API server http:.* \(401: Unauthorized\); .*check the token or client certificate$/],
    [
      403,
      "services is forbidden",
      /^the API server http:.* Service objects \(403: services is forbidden\); bind Cluster/,
    ],
  ])("%i ends a command that asks once, and says what to do", async (status, message, expected) => {
    const denied = api.fail({ resource: "services", verb: "list" }, { status, message });
    const { lines, started } = follow({ deniedIsFinal: true });
    await expect(started).rejects.toMatchObject({ code: "EACCESSDENIED", message: expect.stringMatching(expected) });
    expect(denied.hits).toBe(1);
    expect(lines.filter((line) => isAtLeast(line, "warn"))).toEqual([]);
  });

  test("other failures do not end a command with deniedIsFinal", async () => {
    api.fail({ resource: "servicecidrs" }, { status: 403 });
    const busy = api.fail({ resource: "services", verb: "list", times: 2 }, { status: 503 });
    const { started, sink } = follow({ deniedIsFinal: true });
    await started;
    expect([busy.hits, sink.calls.includes("synced")]).toEqual([2, true]);
  });

  test("a ServiceCIDR list that is forbidden is skipped, and its last known state is kept", async () => {
    const refused = api.fail({ resource: "servicecidrs" }, { status: 403 });
    const { lines, started } = follow({ timing: { absentMs: 50 } });
    await started;
    await eventually(() => expect(refused.hits).toBeGreaterThan(2));
    expect(lines.filter(({ msg }) => msg.includes("skipped"))).toHaveLength(1);
    refused.remove();
    api.put({ kind: "ServiceCIDR", metadata: { name: "later" }, spec: { cidrs: ["10.96.0.0/12"] } });
    await open[0].sink.seen("+ ServiceCIDR later");
  });
});

describe("Reflector: the API server is down", () => {
  test("it keeps all objects, and resumes as soon as the server is back", async () => {
    const listening = await following();
    await api.down();
    await eventually(() =>
      expect(listening.lines.some(({ msg }) => msg.startsWith("connection to the API server failed"))).toBe(true),
    );
    // As after an hour: the changes meanwhile are compacted away.
    api.delete("Service", "a/db");
    api.put(service("a/new"));
    api.advance(5);
    api.compact();
    expect(listening.sink.calls).toEqual([]);
    await api.up();
    await listening.sink.seen("- Service a/db");
    expect(removals(listening)).toEqual(["- Service a/db"]);
    expect(listening.sink.names("Service")).toEqual(["Service a/new", "Service a/web"]);
  });

  test("all kinds end their backoff with the first answer", async () => {
    const { sink } = await following();
    // One kind tries again soon, and the others in a day.
    const waiting = new Set<Backoff>();
    const next = vi.spyOn(Backoff.prototype, "next").mockImplementation(function (this: Backoff) {
      waiting.add(this);
      return [...waiting].indexOf(this) === 0 ? 50 : 86_400_000;
    });
    await api.down();
    await eventually(() => expect(waiting.size).toBe(4));
    next.mockRestore();
    await api.up();
    api.put(service("a/new"));
    const kinds = ["services", "endpointslices", "nodes", "servicecidrs"];
    await Promise.all(kinds.map((kind) => api.watching(kind)));
    await sink.seen("+ Service a/new");
  });

  test("after a long outage with a compaction, the first list comes at once", async () => {
    // With the backoff of a server that answers, the last attempts would be days apart.
    const timing = { resetAfterMs: 600_000, maxBackoffMs: 2 ** 40, reconnectMs: 20 };
    const { sink, lines } = await following({ timing });
    for (let outage = 0; outage < 3; outage++) {
      await api.down();
      const before = lines.length;
      const failed = () =>
        lines.slice(before).filter(({ msg }) => msg.startsWith("connection to the API server failed"));
      await eventually(() => expect(failed().length).toBeGreaterThan(4 * 16));
      api.delete("Service", `a/new-${outage - 1}`);
      api.put(service(`a/new-${outage}`));
      api.compact();
      await api.up();
      await sink.seen(`+ Service a/new-${outage}`);
    }
    await eventually(() => expect(sink.names("Service")).toEqual(["Service a/db", "Service a/new-2", "Service a/web"]));
    expect(lists("services")).toBe(4);
  });

  test("after a restore of etcd from a backup, it lists again, and follows changes", async () => {
    const { sink, lines } = await following();
    const backup = api.backup();
    api.delete("Service", "a/db");
    api.put(service("a/new"));
    api.advance(1000);
    api.put(service("a/newest"));
    await sink.seen("+ Service a/newest");
    await api.down();
    api.restore(backup);
    await api.up();
    await sink.seen("+ Service a/db");
    await eventually(() => expect(sink.names("Service")).toEqual(["Service a/db", "Service a/web"]));
    const back = "the API server's resourceVersion went back, as after a restore of etcd; relisting";
    await eventually(() => expect(lines.filter(({ msg }) => msg === back)).toHaveLength(1));
    api.put(service("a/later"));
    await sink.seen("+ Service a/later");
  });

  test("a watch that ends just when the version turns out to be older is followed by a list", async () => {
    const whole: string[] = [];
    let watches = 0;
    const list = (resourceVersion: string): Buffer =>
      Buffer.from(JSON.stringify({ kind: "ServiceList", apiVersion: "v1", metadata: { resourceVersion }, items: [] }));
    const connection = {
      server: "http://double",
      async *stream({
        path,
        signal,
      }: Pick<Parameters<ApiConnection["stream"]>[0], "path" | "signal">): AsyncGenerator<Buffer> {
        const query = new URL(path, "http://double").searchParams;
        if (query.get("limit") === "1") yield list("5");
        else if (!query.has("watch")) {
          whole.push(path);
          yield list("100");
        } else if (++watches === 1) throw new TransportError("the connection was lost");
        else await once(signal, "abort");
      },
    } as unknown as ApiConnection;
    const [resource] = resources(NODE);
    const reflector = new Reflector({
      resource,
      connection,
      decoder: new ObjectDecoder({ nodeName: NODE }),
      sink: new Recorder(),
      timing: { ...TIMING, minBackoffMs: 1, resetAfterMs: 20 },
      failureLog: new FailureLog(keptIn([]), 1000),
      log: keptIn([]),
      onAnswer: () => undefined,
      complete: () => true,
    });
    const stop = new AbortController();
    const run = reflector.run(stop.signal);
    await eventually(() => expect(whole.length).toBeGreaterThan(1));
    stop.abort();
    await run;
  });

  test("it logs one line when the server goes down, and one when it is back", async () => {
    const { lines } = await following();
    const shown = () => lines.filter((line) => isAtLeast(line, "info")).map(({ msg }) => msg);
    const before = shown().length;
    await api.down();
    await eventually(() =>
      expect(lines.filter(({ msg }) => msg.startsWith("connection to the API server failed")).length).toBeGreaterThan(
        12,
      ),
    );
    await api.up();
    await Promise.all(
      ["services", "endpointslices", "nodes", "servicecidrs"].map((resource) => api.watching(resource)),
    );
    expect(shown().slice(before)).toEqual([
      "connection to the API server failed; keeping the last known state",
      "connection to the API server restored",
    ]);
  });
});
