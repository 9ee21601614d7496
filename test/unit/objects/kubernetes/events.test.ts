import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { ApiConnection } from "../../../../src/objects/kubernetes/api-connection.js";
import { type EventTiming, KubernetesEventRecorder } from "../../../../src/objects/kubernetes/event-recorder.js";
import { ApiServer, type KubeJson } from "../../../lab/api-server/api-server.ts";
import { eventually, EVENTUALLY_MS } from "../../../lab/eventually.ts";
import { keptIn, type LogLine } from "../../../support/log.ts";
import { connectTo, NODE } from "./support.ts";

const STARTING = { type: "Normal", reason: "Starting", action: "StartKubeProxy", note: "" } as const;
const HEALTH = {
  type: "Warning",
  reason: "FailedToStartServiceHealthcheck",
  action: "Listen",
  note: "node node-1 failed to start healthcheck",
} as const;
const SERVICE = { kind: "Service", namespace: "a", name: "web", uid: "1-2-3" } as const;
const OWN_NODE = { kind: "Node", name: NODE } as const;

let api: ApiServer;
let recorder: KubernetesEventRecorder;
let lines: LogLine[];
let close: () => void;

function record(timing: Partial<EventTiming> = {}): KubernetesEventRecorder {
  lines = [];
  const log = keptIn(lines, "info");
  const connection = connectTo(api);
  close = () => connection.close();
  const quick = { minBackoffMs: 10, maxBackoffMs: 40, ...timing };
  recorder = new KubernetesEventRecorder({ connection, nodeName: NODE, log, timing: quick });
  return recorder;
}

async function events(count: number): Promise<readonly KubeJson[]> {
  return eventually(() => {
    expect(api.events).toHaveLength(count);
    return api.events;
  });
}

beforeEach(async () => {
  api = await ApiServer.start();
});

afterEach(async () => {
  await recorder.stop();
  close();
  await api.stop();
});

test("an Event about the node is like kube-proxy's", async () => {
  record().record(OWN_NODE, STARTING);
  const [event] = await events(1);
  expect(event).toMatchObject({
    metadata: { namespace: "default", name: expect.stringMatching(/^node-1\.[0-9a-f]{16}$/) as string },
    reportingController: "kube-proxy",
    reportingInstance: "kube-proxy-node-1",
    type: "Normal",
    reason: "Starting",
    action: "StartKubeProxy",
    regarding: { kind: "Node", name: NODE, uid: NODE },
  });
  expect(event).not.toHaveProperty("regarding.namespace");
});

test("an Event about a service is in its namespace", async () => {
  record().record(SERVICE, HEALTH);
  const [event] = await events(1);
  expect(event).toMatchObject({
    metadata: { namespace: "a" },
    regarding: { kind: "Service", namespace: "a", name: "web", uid: "1-2-3" },
    note: HEALTH.note,
  });
});

test("text that is too long for the API server is truncated, and then accepted", async () => {
  const name = `${"n".repeat(199)}.${"m".repeat(40)}`;
  record().record({ kind: "Service", namespace: "a", name }, { ...HEALTH, note: "ü".repeat(2000) });
  const [event] = await events(1);
  expect(String(event["note"]).endsWith("...")).toBe(true);
});

test("repeated Events are counted in one Event", async () => {
  record({ countMs: 50 });
  for (let i = 0; i < 40; i++) recorder.record(SERVICE, HEALTH);
  recorder.record(OWN_NODE, STARTING);
  await events(2);
  await eventually(() =>
    expect(api.events.find(({ metadata }) => metadata.namespace === "a")).toMatchObject({ series: { count: 40 } }),
  );
  expect(api.requests.length).toBeLessThan(6);
});

test("the same Event after a while is a separate one", async () => {
  record({ seriesMs: 0 });
  recorder.record(SERVICE, HEALTH);
  recorder.record(SERVICE, HEALTH);
  await events(2);
});

test("an Event whose series has expired is sent again", async () => {
  record({ countMs: 20 }).record(SERVICE, HEALTH);
  const [event] = await events(1);
  api.delete("Event", `a/${event.metadata.name}`);
  recorder.record(SERVICE, HEALTH);
  const [again] = await events(1);
  expect(again).toMatchObject({ series: { count: 2 } });
});

test("Events are retried while the server is down or busy", async () => {
  await api.down();
  const send = vi.spyOn(ApiConnection.prototype, "send");
  onTestFinished(() => send.mockRestore());
  // The number of attempts is limited.
  record({ minBackoffMs: 100, maxBackoffMs: 100 }).record(OWN_NODE, STARTING);
  await eventually(() => expect(send.mock.settledResults[0]).toMatchObject({ type: "rejected" }));
  api.fail({ resource: "events", times: 2 }, { status: 429 });
  await api.up();
  await events(1);
  expect(lines).toEqual([]);
});

test("an Event whose answer was lost is not an error", async () => {
  api.fail({ resource: "events", times: 1 }, { status: 409 });
  record().record(OWN_NODE, STARTING);
  recorder.record(SERVICE, HEALTH);
  await events(1);
  expect(lines).toEqual([]);
});

test("forbidden Events are logged once, with the missing role", async () => {
  const refused = api.fail({ resource: "events" }, { status: 403, message: "events is forbidden" });
  record().record(OWN_NODE, STARTING);
  recorder.record(SERVICE, HEALTH);
  await eventually(() => expect(refused.hits).toBe(2));
  await recorder.stop();
  expect(lines).toHaveLength(1);
  expect(lines[0]).toMatchObject({ level: "warn", reason: "events is forbidden" });
  expect(String(lines[0]["hint"])).toContain("system:node-proxier");
});

test("an Event that cannot be sent is logged with its text", async () => {
  api.fail({ resource: "events" }, { status: 422, message: "invalid" });
  record().record(SERVICE, HEALTH);
  await eventually(() => expect(lines).toHaveLength(1));
  expect(lines[0]).toMatchObject({ event: HEALTH.reason, note: HEALTH.note, reason: "invalid" });
});

test("the number of Events that wait while the server is down is limited: the newest are kept", async () => {
  await api.down();
  record();
  for (let i = 0; i < 300; i++) recorder.record({ kind: "Service", namespace: "a", name: `s-${i}` }, HEALTH);
  await api.up();
  const last = () => api.events.some(({ metadata }) => metadata.name.startsWith("s-299."));
  await eventually(() => expect(last()).toBe(true));
  // 256 wait, and one more is being sent.
  expect(api.events.length).toBeGreaterThanOrEqual(256);
  expect(api.events.length).toBeLessThanOrEqual(257);
});

test("stopping sends waiting Events, but does not wait for a server that is down", async () => {
  record().record(OWN_NODE, STARTING);
  await recorder.stop(EVENTUALLY_MS);
  expect(api.events).toHaveLength(1);
  await api.down();
  // Without the limit, it would wait a day for the second attempt.
  record({ minBackoffMs: 86_400_000, maxBackoffMs: 86_400_000 }).record(OWN_NODE, STARTING);
  await recorder.stop(100);
});
