import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ApiServer, type ApiServerOptions } from "../../../lab/api-server/api-server.ts";
import type { FaultEffect } from "../../../lab/api-server/faults.ts";
import { type Listening, type ListenOptions, listen, NODE, node, service, serviceCIDR, slice } from "./support.ts";

let api: ApiServer;
const open: Listening[] = [];

async function serve(options: ApiServerOptions = {}): Promise<void> {
  api = await ApiServer.start(options);
}

function follow(options: ListenOptions = {}): Listening {
  const listening = listen(api, options);
  open.push(listening);
  return listening;
}

beforeEach(() => serve());

afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.stop()));
  await api.stop();
});

describe("KubernetesSource: delivered objects", () => {
  test("all objects of the server are delivered, then one synced", async () => {
    api.put(service("a/web"));
    api.put(slice("a/web-1", "web", ["10.0.0.1"]));
    api.put(node(NODE));
    api.put(serviceCIDR("kubernetes", "10.96.0.0/12"));
    const { sink, started } = follow();
    await started;
    await sink.until(() => sink.objects.size === 4, "the last object");
    expect(sink.calls.filter((call) => call === "synced")).toHaveLength(1);
    expect([...sink.objects.keys()].sort()).toEqual([
      "EndpointSlice a/web-1",
      "Node node-1",
      "Service a/web",
      "ServiceCIDR kubernetes",
    ]);
    expect(sink.calls[sink.calls.indexOf("synced") + 1]).toBe("flush");
    for (const kind of ["Service a/web", "EndpointSlice a/web-1"]) {
      expect(sink.calls.indexOf(`+ ${kind}`)).toBeLessThan(sink.calls.indexOf("synced"));
    }
  });

  test("the server selects only the objects that a proxy serves", async () => {
    api.put(service("a/headless", { clusterIP: "None" }));
    const other = service("a/other");
    api.put({
      ...other,
      metadata: { ...other.metadata, labels: { "service.kubernetes.io/service-proxy-name": "x" } },
    });
    const headless = slice("a/h-1", "headless", ["10.0.0.1"]);
    api.put({ ...headless, metadata: { ...headless.metadata, labels: { "service.kubernetes.io/headless": "" } } });
    api.put(node("node-2"));
    const { sink, started } = follow();
    await started;
    expect(sink.calls.filter((call) => call.startsWith("+"))).toEqual([]);
  });

  test("changes are delivered, each group followed by a flush", async () => {
    const { sink, started } = follow();
    await started;
    // A watch follows its list, so kinds that the start does not wait for have arrived, too.
    for (const resource of ["services", "nodes", "servicecidrs"]) await api.watching(resource);
    sink.clear();
    api.put(service("a/web"));
    await sink.seen("flush");
    expect(sink.calls).toEqual(["+ Service a/web", "flush"]);
    sink.clear();
    api.put(service("a/web", { clusterIP: "10.96.0.2" }));
    api.delete("Service", "a/web");
    await sink.seen("- Service a/web");
    await sink.seen("flush");
    expect(sink.objects.size).toBe(0);
  });

  test("a service that becomes headless is removed, and restored when it no longer is", async () => {
    api.put(service("a/web"));
    const { sink, started } = follow();
    await started;
    api.put(service("a/web", { clusterIP: "None" }));
    await sink.seen("- Service a/web");
    sink.clear();
    api.put(service("a/web"));
    await sink.seen("+ Service a/web");
  });

  test("each object has only the used fields", async () => {
    const web = service("a/web", { externalIPs: ["192.0.2.9"], healthCheckNodePort: 30001 });
    const annotations = { "nft-proxier.dev/conntrack": "tcp", "example.com/x": "y" };
    api.put({ ...web, metadata: { ...web.metadata, annotations } });
    api.put(slice("a/web-1", "web", ["10.0.0.1"]));
    api.put(node(NODE));
    const { sink, started } = follow();
    await started;
    await sink.until(() => sink.objects.size === 3, "the last object");
    const text = JSON.stringify([...sink.objects.values()]);
    for (const unused of ["managedFields", "example.com", "selector", "images", "providerID", "managed-by", "x/y"]) {
      expect(text).not.toContain(unused);
    }
    expect(sink.objects.get("Service a/web")).toMatchObject({
      record: { name: "a/web", ip: { clusterIP: "10.96.0.1", externalIPs: ["192.0.2.9"] }, ports: [{ port: 80 }] },
    });
    expect(sink.objects.get("EndpointSlice a/web-1")).toMatchObject({
      record: { name: "a/web-1", service: "a/web", family: "ip", ports: [{ port: 8080 }] },
      trigger: { family: "ip", at: Date.parse("2026-01-01T00:00:00Z") },
    });
    expect(sink.objects.get("Node node-1")).toMatchObject({
      record: { zone: "a", podCIDRs: [{ prefix: { text: "10.244.0.0/24" } }], hostIPs: ["192.0.2.1"] },
    });
  });
});

describe("KubernetesSource: requests", () => {
  test("it lists in pages, and then watches with bookmarks from the list's version", async () => {
    await api.stop();
    await serve({ maxPage: 500 });
    for (let i = 0; i < 1203; i++) api.put(service(`a/s-${i}`));
    const { sink, started } = follow();
    await started;
    expect(sink.names("Service")).toHaveLength(1203);
    const pages = api.requests.filter(({ path, query }) => path.endsWith("/services") && !query.has("watch"));
    expect(pages.map(({ query }) => [query.get("limit"), query.has("continue")])).toEqual([
      ["10000", false],
      ["10000", true],
      ["10000", true],
    ]);
    const [{ query }] = await api.watching("services");
    expect(query.get("resourceVersion")).toBe(String(api.revision));
    expect(query.get("allowWatchBookmarks")).toBe("true");
    expect(Number(query.get("timeoutSeconds"))).toBeGreaterThanOrEqual(300);
    expect(Number(query.get("timeoutSeconds"))).toBeLessThanOrEqual(600);
  });

  test("an object of the first page that is deleted before the last page is removed", async () => {
    await api.stop();
    await serve({ maxPage: 500 });
    for (let i = 0; i < 600; i++) api.put(service(`a/s-${String(i).padStart(3, "0")}`));
    const slow = api.fail(
      { resource: "services", verb: "list", continued: true },
      { pace: { bytes: 20_000, everyMs: 5 } },
    );
    const { sink, started } = follow();
    await sink.seen("+ Service a/s-499");
    api.delete("Service", "a/s-000");
    await started;
    slow.remove();
    await sink.seen("- Service a/s-000");
    expect(sink.names("Service")).toHaveLength(599);
  });

  test("an older server without ServiceCIDRs is sufficient", async () => {
    await api.stop();
    await serve({ without: ["servicecidrs"] });
    api.put(service("a/web"));
    const { sink, started, lines } = follow();
    await started;
    expect(sink.names("Service")).toHaveLength(1);
    await expect.poll(() => lines.filter(({ msg }) => msg.includes("skipped"))).toHaveLength(1);
    if (sink.calls.includes("pending ServiceCIDR")) await sink.seen("listed ServiceCIDR");
  });
});

describe("KubernetesSource: lists that the start does not wait for", () => {
  test.each<[string, FaultEffect, string]>([
    ["fails", { status: 500 }, "list failed; retrying"],
    ["hangs", { hang: true }, "connection to the API server failed; keeping the last known state"],
    ["is forbidden", { status: 403 }, "kind not available to this user; skipped"],
  ])("a ServiceCIDR list that %s is pending, and delivered when it arrives", async (_what, effect, message) => {
    api.put(service("a/web"));
    api.put(node(NODE));
    const fault = api.fail({ resource: "servicecidrs" }, effect);
    const { sink, started, lines } = follow({ timing: { answerIdleMs: 300, absentMs: 50 } });
    await started;
    expect(sink.calls).toContain("pending ServiceCIDR");
    await expect.poll(() => lines.map(({ msg }) => msg)).toContain(message);
    expect(sink.calls).not.toContain("listed ServiceCIDR");
    sink.clear();
    fault.remove();
    api.put(serviceCIDR("kubernetes", "10.96.0.0/12"));
    await sink.seen("listed ServiceCIDR");
    await sink.seen("flush");
    expect(sink.calls.indexOf("+ ServiceCIDR kubernetes")).toBeLessThan(sink.calls.indexOf("listed ServiceCIDR"));
    expect(sink.calls.at(-1)).toBe("flush");
  });

  test("an error is an answer of the server too, and a kind that was never listed is known as such", async () => {
    const fault = api.fail({ resource: "nodes" }, { status: 500 });
    const others = ["services", "endpointslices", "servicecidrs"].map((resource) =>
      api.fail({ resource }, { hang: true }),
    );
    const { source, started } = follow({ timing: { answerIdleMs: 300 } });
    expect(source.health.silentMs).toBeUndefined();
    await expect.poll(() => source.health.silentMs).toBeGreaterThan(0);
    expect([source.complete, source.isListed("Node")]).toEqual([false, false]);
    for (const one of [fault, ...others]) one.remove();
    await started;
    await expect.poll(() => [source.complete, source.isListed("Node")]).toEqual([true, true]);
  });

  test("a Node list that hangs is pending; with deniedIsFinal, as for a command that needs the Node, it is awaited", async () => {
    api.put(service("a/web"));
    const fault = api.fail({ resource: "nodes" }, { hang: true });
    const daemon = follow({ timing: { answerIdleMs: 300 } });
    const command = follow({ timing: { answerIdleMs: 300 }, deniedIsFinal: true });
    await daemon.started;
    expect(daemon.sink.calls).toContain("pending Node");
    expect(command.sink.calls.join()).not.toContain("synced");
    fault.remove();
    await command.started;
    await daemon.sink.seen("listed Node");
  });

  test.each(["services", "endpointslices"])("%s are awaited", async (resource) => {
    const fault = api.fail({ resource, verb: "list" }, { status: 500 });
    const { sink } = follow();
    await expect.poll(() => fault.hits).toBeGreaterThan(2);
    expect(sink.calls.join()).not.toContain("synced");
    fault.remove();
    await sink.seen("synced");
  });
});

test("stopping ends everything at once, at any time", async () => {
  for (let i = 0; i < 600; i++) api.put(service(`a/s-${i}`));
  for (let ms = 0; ms < 40; ms += 2) {
    const { stop, started, sink } = follow();
    // Idle connections are reused: a request may be aborted before it is sent.
    await new Promise((resolve) => setTimeout(resolve, ms));
    await stop();
    await started;
    const calls = sink.calls.length;
    await new Promise((resolve) => setImmediate(resolve));
    expect(sink.calls).toHaveLength(calls);
  }
});
