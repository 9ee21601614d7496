/** Answers about the endpoints on this node, for load balancers' health checks and for metrics. */
import { describe, expect, test } from "vitest";
import { NoLocalEndpointsCounter } from "../../../src/model/no-local-endpoints.js";
import { newModel, service, slice } from "./objects.js";

const BALANCED = { type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 32000 };

/** An endpoint on this node. */
function here(address: string, conditions: Record<string, boolean> = {}): Record<string, unknown> {
  return { addresses: [address], nodeName: "here", conditions };
}

describe("health check of a service", () => {
  test("it has the port, and the number of ready endpoints on this node", () => {
    const { model } = newModel();
    model.upsertService(service("web", BALANCED, { metadata: { uid: "4711" } }));
    model.upsertSlice(slice("a", "web", [here("10.1.0.1"), here("10.1.0.2"), "10.1.0.3"]));
    expect(model.healthCheck("ip", "default/web")).toEqual({ port: 32000, uid: "4711", localEndpoints: 2 });
  });

  test("an endpoint counts whatever its port, as in kube-proxy, but only in its own family", () => {
    const { model } = newModel();
    model.upsertService(service("web", { ...BALANCED, ports: [{ name: "p", port: 80, protocol: "TCP" }] }));
    const other = { ports: [{ name: "other", port: 8000, protocol: "TCP" }] };
    model.upsertSlice(slice("a", "web", [here("10.1.0.1"), "10.1.0.3"], other));
    model.upsertSlice(slice("b", "web", [here("fd00::1")], { ...other, addressType: "IPv6" }));
    expect(model.healthCheck("ip", "default/web")?.localEndpoints).toBe(1);
  });

  test("without local endpoints the number is zero, not missing", () => {
    const { model } = newModel();
    model.upsertService(service("web", BALANCED));
    expect(model.healthCheck("ip", "default/web")).toEqual({ port: 32000, uid: "", localEndpoints: 0 });
    model.upsertSlice(slice("a", "web", ["10.1.0.3"]));
    expect(model.healthCheck("ip", "default/web")?.localEndpoints).toBe(0);
  });

  test("an endpoint that terminates or is not ready does not count, even if it still receives traffic", () => {
    const { model, view } = newModel();
    model.upsertService(service("web", { ...BALANCED, ports: [{ port: 80, nodePort: 30080 }] }));
    model.upsertSlice(
      slice("a", "web", [
        here("10.1.0.1", { ready: false, serving: true, terminating: true }),
        here("10.1.0.2", { ready: false }),
      ]),
    );
    expect(view("web").localEndpoints).toHaveLength(1);
    expect(model.healthCheck("ip", "default/web")?.localEndpoints).toBe(0);
  });

  test("an address counts once, however many ports and slices it is in", () => {
    const { model } = newModel();
    const ports = [
      { name: "http", port: 80 },
      { name: "https", port: 443 },
    ];
    model.upsertService(service("web", { ...BALANCED, ports }));
    const slicePorts = [
      { name: "http", port: 8080 },
      { name: "https", port: 8443 },
    ];
    model.upsertSlice(slice("a", "web", [here("10.1.0.1"), here("10.1.0.2")], { ports: slicePorts }));
    model.upsertSlice(slice("b", "web", [here("10.1.0.2")], { ports: [{ name: "https", port: 9443 }] }));
    expect(model.healthCheck("ip", "default/web")?.localEndpoints).toBe(2);
  });

  test("each family counts its own endpoints, and one without a cluster IP has no health check", () => {
    const { model } = newModel();
    model.upsertService(service("web", { ...BALANCED, clusterIPs: ["10.0.0.1", "fd00::1"] }));
    model.upsertService(service("v4", { ...BALANCED, clusterIP: "10.0.0.2" }));
    model.upsertSlice(slice("a", "web", [here("10.1.0.1"), here("10.1.0.2")]));
    model.upsertSlice(slice("b", "web", [here("fd01::1")], { addressType: "IPv6" }));
    expect(model.healthCheck("ip", "default/web")?.localEndpoints).toBe(2);
    expect(model.healthCheck("ip6", "default/web")?.localEndpoints).toBe(1);
    expect(model.healthCheck("ip", "default/v4")?.port).toBe(32000);
    expect(model.healthCheck("ip6", "default/v4")).toBeUndefined();
  });

  test.each([
    ["of another type", { type: "NodePort" }],
    ["of policy Cluster", { externalTrafficPolicy: "Cluster" }],
    ["without a port", { healthCheckNodePort: undefined }],
    ["with port 0", { healthCheckNodePort: 0 }],
  ])("a service %s has no health check", (_, change) => {
    const { model, problems } = newModel();
    model.upsertService(service("web", { ...BALANCED, ...change }));
    expect(model.healthCheck("ip", "default/web")).toBeUndefined();
    expect(problems).toEqual([]);
  });

  test("an invalid port is reported, and the service is still served", () => {
    const { model, problems, view } = newModel();
    model.upsertService(service("web", { ...BALANCED, healthCheckNodePort: 70000 }));
    expect(model.healthCheck("ip", "default/web")).toBeUndefined();
    expect(problems).toEqual(["Service default/web spec.healthCheckNodePort: 70000 is not a port (1 to 65535)"]);
    expect(view("web").clusterIP).toBe("10.0.0.1");
  });

  test("an unknown or deleted service has no health check, and another port makes it dirty", () => {
    const { model } = newModel();
    expect(model.healthCheck("ip", "default/web")).toBeUndefined();
    model.upsertService(service("web", BALANCED));
    model.takeDirty();
    model.upsertService(service("web", { ...BALANCED, healthCheckNodePort: 32001 }));
    expect(model.takeDirty().services).toEqual(["default/web"]);
    expect(model.healthCheck("ip", "default/web")?.port).toBe(32001);
    model.removeService("default/web");
    expect(model.takeDirty().services).toEqual(["default/web"]);
    expect(model.healthCheck("ip", "default/web")).toBeUndefined();
  });
});

describe("service ports that policy Local cuts off from their endpoints", () => {
  const counterOf = (spec: Record<string, unknown>, endpoints: readonly (string | Record<string, unknown>)[]) => {
    const { model } = newModel();
    model.upsertService(service("web", spec));
    model.upsertSlice(slice("a", "web", endpoints));
    const counter = new NoLocalEndpointsCounter();
    counter.update("default/web", model.views("ip", "default/web"));
    return counter.counts;
  };
  const nodePort = { type: "NodePort", ports: [{ port: 80, nodePort: 30080 }] };
  const elsewhere = ["10.1.0.1"];

  test("internal: a port with endpoints only elsewhere counts", () => {
    const local = { internalTrafficPolicy: "Local" };
    expect(counterOf(local, elsewhere)).toEqual({ internal: 1, external: 0 });
    expect(counterOf(local, ["10.1.0.1", here("10.1.0.2")])).toEqual({ internal: 0, external: 0 });
  });

  test("external: a port with endpoints only elsewhere counts if it has an external address", () => {
    const local = { externalTrafficPolicy: "Local" };
    expect(counterOf({ ...nodePort, ...local }, elsewhere)).toEqual({ internal: 0, external: 1 });
    expect(counterOf({ ...nodePort, ...local }, [here("10.1.0.1")])).toEqual({ internal: 0, external: 0 });
    expect(counterOf({ type: "LoadBalancer", ...local }, elsewhere)).toEqual({ internal: 0, external: 0 });
  });

  test("a port without any endpoint is refused, not dropped, and does not count", () => {
    const both = { ...nodePort, internalTrafficPolicy: "Local", externalTrafficPolicy: "Local" };
    expect(counterOf(both, [])).toEqual({ internal: 0, external: 0 });
    expect(counterOf(both, elsewhere)).toEqual({ internal: 1, external: 1 });
  });

  test("policy Cluster does not count", () => {
    expect(counterOf(nodePort, elsewhere)).toEqual({ internal: 0, external: 0 });
  });

  test("every port counts, and changed or deleted services are subtracted", () => {
    const { model } = newModel();
    const counter = new NoLocalEndpointsCounter();
    const update = (name: string) => counter.update(name, model.views("ip", name));
    const ports = [
      { name: "a", port: 80 },
      { name: "b", port: 81 },
    ];
    model.upsertService(service("web", { internalTrafficPolicy: "Local", ports }));
    model.upsertService(service("db", { clusterIP: "10.0.0.2", internalTrafficPolicy: "Local" }));
    const slicePorts = [
      { name: "a", port: 8080 },
      { name: "b", port: 8081 },
    ];
    model.upsertSlice(slice("web", "web", elsewhere, { ports: slicePorts }));
    model.upsertSlice(slice("db", "db", elsewhere));
    update("default/web");
    update("default/db");
    update("default/db");
    expect(counter.counts).toEqual({ internal: 3, external: 0 });
    model.upsertSlice(slice("db", "db", [here("10.1.0.1")]));
    update("default/db");
    expect(counter.counts).toEqual({ internal: 2, external: 0 });
    model.removeService("default/web");
    update("default/web");
    expect(counter.counts).toEqual({ internal: 0, external: 0 });
  });
});
