/** The double answers an independent client, @kubernetes/client-node, as a kube-apiserver does. */
import {
  CoreV1Api,
  DiscoveryV1Api,
  EventsV1Api,
  KubeConfig,
  V1MicroTime,
  VersionApi,
  Watch,
} from "@kubernetes/client-node";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ApiServer } from "../../../lab/api-server/api-server.ts";
import { node, NODE, service, slice } from "./support.ts";

let api: ApiServer;
let config: KubeConfig;

beforeEach(async () => {
  api = await ApiServer.start({ tls: {}, tokens: ["secret"] });
  config = new KubeConfig();
  config.loadFromString(api.kubeconfig());
});

afterEach(() => api.stop());

const core = () => config.makeApiClient(CoreV1Api);

/** One page of services: names, the next page's token, resourceVersion, and the number of remaining ones. */
async function page(token: string, options: { limit?: number; labelSelector?: string; fieldSelector?: string }) {
  const { items, metadata } = await core().listServiceForAllNamespaces({
    ...options,
    ...(token !== "" && { _continue: token }),
  });
  const { _continue: next = "", resourceVersion, remainingItemCount } = metadata ?? {};
  return { names: items.map((item) => item.metadata?.name), next, resourceVersion, remainingItemCount };
}

describe("lists", () => {
  test("pages belong to one snapshot, whatever changes meanwhile", async () => {
    for (let i = 0; i < 25; i++) api.put(service(`a/s-${String(i).padStart(2, "0")}`));
    const first = await page("", { limit: 10 });
    expect(first.names).toHaveLength(10);
    expect(first.remainingItemCount).toBe(15);
    api.delete("Service", "a/s-20");
    api.put(service("a/s-99"));
    const second = await page(first.next, { limit: 10 });
    const third = await page(second.next, { limit: 10 });
    const names = [...first.names, ...second.names, ...third.names];
    expect(names).toHaveLength(25);
    expect(names).toContain("s-20");
    expect(third.next).toBe("");
    expect(new Set([first, second, third].map(({ resourceVersion }) => resourceVersion)).size).toBe(1);
  });

  test("items have no kind and apiVersion, and the fields that the server adds", async () => {
    api.put(slice("a/web-1", "web", ["10.0.0.1"]));
    const list = await config.makeApiClient(DiscoveryV1Api).listEndpointSliceForAllNamespaces();
    expect(list).toMatchObject({ kind: "EndpointSliceList", apiVersion: "discovery.k8s.io/v1" });
    const [item] = list.items;
    expect(item.kind).toBeUndefined();
    expect(item.apiVersion).toBeUndefined();
    expect(item.metadata?.uid).toMatch(/^[0-9a-f-]{36}$/);
    expect(item.metadata?.creationTimestamp).toBeInstanceOf(Date);
    expect(item.metadata?.managedFields?.[0].fieldsV1).toMatchObject({ "f:endpoints": {} });
  });

  test("selectors work, without a count of remaining items", async () => {
    api.put(service("a/web"));
    api.put(service("a/db"));
    api.put(service("b/none", { clusterIP: "None" }));
    const select = async (labelSelector = "", fieldSelector = "") =>
      (await page("", { labelSelector, fieldSelector })).names;
    expect(await select("app")).toEqual(["db", "web", "none"]);
    expect(await select("!app")).toEqual([]);
    expect(await select("app=web")).toEqual(["web"]);
    expect(await select("app!=web,app")).toEqual(["db", "none"]);
    expect(await select("app in (web, none)")).toEqual(["web", "none"]);
    expect(await select("", "spec.clusterIP!=None")).toEqual(["db", "web"]);
    expect(await select("", "metadata.name=db")).toEqual(["db"]);
    expect((await page("", { limit: 1, labelSelector: "app" })).remainingItemCount).toBeUndefined();
    await expect(select("", "spec.ports=80")).rejects.toMatchObject({ code: 400 });
  });

  test("a token from before a compaction returns 410 and a token for the rest", async () => {
    for (let i = 0; i < 3; i++) api.put(service(`a/s-${i}`));
    const { next } = await page("", { limit: 1 });
    api.put(service("a/s-9"));
    api.compact();
    const refused = (await page(next, { limit: 1 }).catch((error: unknown) => error)) as { code: number; body: string };
    expect(refused.code).toBe(410);
    const status = JSON.parse(refused.body) as { reason: string; metadata: { continue: string } };
    expect(status.reason).toBe("Expired");
    expect((await page(status.metadata.continue, {})).names).toEqual(["s-1", "s-2", "s-9"]);
  });
});

describe("watches", () => {
  /** Events as "TYPE name", until `count` have come or the watch ended. */
  async function watch(query: Record<string, string | number | boolean>, count: number): Promise<string[]> {
    const seen: string[] = [];
    await new Promise<void>((resolve, reject) => {
      new Watch(config)
        .watch(
          "/api/v1/services",
          query,
          (type, _object, event: { object: { metadata: { name?: string }; code?: number } }) => {
            seen.push(`${type} ${event.object.metadata.name ?? event.object.code ?? ""}`.trim());
            if (seen.length === count) resolve();
          },
          () => resolve(),
        )
        .catch(reject);
    });
    return seen;
  }

  test("a watch returns the events after a resourceVersion, and then new ones", async () => {
    const from = api.put(service("a/web"));
    api.put(service("a/db"));
    api.put(service("a/web", { clusterIP: "10.96.0.9" }));
    api.delete("Service", "a/db");
    const watching = watch({ resourceVersion: from }, 4);
    await api.watching("services");
    api.put(service("b/new"));
    expect(await watching).toEqual(["ADDED db", "MODIFIED web", "DELETED db", "ADDED new"]);
  });

  test("objects enter and leave a selection", async () => {
    const watching = watch({ resourceVersion: "0", fieldSelector: "spec.clusterIP!=None" }, 3);
    await api.watching("services");
    api.put(service("a/web", { clusterIP: "None" }));
    api.put(service("a/web"));
    api.put(service("a/web", { externalIPs: [] }));
    api.put(service("a/web", { clusterIP: "None" }));
    expect(await watching).toEqual(["ADDED web", "MODIFIED web", "DELETED web"]);
  });

  test("clients that request bookmarks receive them, one before the end of the watch", async () => {
    expect(await watch({ timeoutSeconds: 1, allowWatchBookmarks: true }, 9)).toEqual(["BOOKMARK"]);
    expect(await watch({ timeoutSeconds: 1 }, 9)).toEqual([]);
  });

  test("a forgotten resourceVersion is an ERROR event with 410", async () => {
    const from = api.put(service("a/web"));
    api.put(service("a/db"));
    api.compact();
    expect(await watch({ resourceVersion: from }, 9)).toEqual(["ERROR 410"]);
  });
});

test("known users may do only what system:node-proxier allows", async () => {
  api.put(node(NODE));
  api.put(service("a/web"));
  expect((await core().readNode({ name: NODE })).status?.addresses).toHaveLength(1);
  await expect(core().readNamespacedService({ namespace: "a", name: "web" })).rejects.toMatchObject({ code: 403 });
  await expect(core().deleteNode({ name: NODE })).rejects.toMatchObject({ code: 403 });
  api.tokens.clear();
  api.tokens.add("other");
  await expect(core().readNode({ name: NODE })).rejects.toMatchObject({ code: 401 });
});

test("complete Events are accepted", async () => {
  const events = config.makeApiClient(EventsV1Api);
  const body = {
    metadata: { name: "node-1.1", namespace: "default" },
    eventTime: new V1MicroTime(),
    reportingController: "kube-proxy",
    reportingInstance: "kube-proxy-node-1",
    action: "StartKubeProxy",
    reason: "Starting",
    regarding: { kind: "Node", name: NODE },
    type: "Normal",
  };
  await events.createNamespacedEvent({ namespace: "default", body });
  expect(api.events).toHaveLength(1);
  await expect(events.createNamespacedEvent({ namespace: "default", body })).rejects.toMatchObject({ code: 409 });
  const incomplete = { ...body, metadata: { name: "node-1.2" }, action: "" };
  await expect(events.createNamespacedEvent({ namespace: "default", body: incomplete })).rejects.toMatchObject({
    code: 422,
  });
});

test("the version is returned", async () => {
  expect((await config.makeApiClient(VersionApi).getCode()).gitVersion).toBe("v1.36.0");
});
