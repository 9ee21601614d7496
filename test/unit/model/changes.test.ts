import { describe, expect, test } from "vitest";
import { newModel, service, serviceCIDR, slice } from "./objects.js";

describe("ServiceModel: dirty services", () => {
  test("an added, changed or deleted service is dirty once", () => {
    const { model } = newModel();
    model.upsertService(service("web"));
    model.upsertSlice(slice("a", "web", ["10.1.0.1"]));
    model.upsertSlice(slice("b", "web", ["10.1.0.2"]));
    expect(model.takeDirty()).toEqual({ services: ["default/web"], serviceCIDRs: false });
    expect(model.takeDirty()).toEqual({ services: [], serviceCIDRs: false });
    model.upsertService(service("web", { ports: [{ port: 81 }] }));
    expect(model.takeDirty().services).toEqual(["default/web"]);
    model.removeService("default/web");
    expect(model.takeDirty().services).toEqual(["default/web"]);
    expect(model.views("ip", "default/web")).toEqual([]);
    model.removeService("default/web");
    expect(model.takeDirty().services).toEqual([]);
  });

  test("a slice event marks only its service", () => {
    const { model } = newModel();
    model.upsertService(service("web"));
    model.upsertService(service("db", { clusterIP: "10.0.0.2" }));
    model.takeDirty();
    model.upsertSlice(slice("a", "web", ["10.1.0.1"]));
    expect(model.takeDirty().services).toEqual(["default/web"]);
    model.removeSlice("default/a");
    expect(model.takeDirty().services).toEqual(["default/web"]);
    model.removeSlice("default/a");
    expect(model.takeDirty().services).toEqual([]);
  });

  test("a slice that moves to another service marks both", () => {
    const { model, view } = newModel();
    model.upsertService(service("web"));
    model.upsertService(service("db", { clusterIP: "10.0.0.2" }));
    model.upsertSlice(slice("a", "web", ["10.1.0.1"]));
    model.takeDirty();
    model.upsertSlice(slice("a", "db", ["10.1.0.1"]));
    expect([...model.takeDirty().services].sort()).toEqual(["default/db", "default/web"]);
    expect(view("web").hasAnyEndpoint).toBe(false);
    expect(view("db").hasAnyEndpoint).toBe(true);
  });

  test("a slice that is no longer used loses its endpoints", () => {
    const { model, view } = newModel();
    model.upsertService(service("web"));
    model.upsertSlice(slice("a", "web", ["10.1.0.1"]));
    model.upsertSlice(slice("a", "web", []));
    expect(view("web").hasAnyEndpoint).toBe(false);
  });

  test("the same content again marks nothing", () => {
    const { model } = newModel();
    const put = (extra: Record<string, unknown>) => {
      model.upsertService(service("web", {}, { metadata: { resourceVersion: "1", ...extra } }));
      model.upsertSlice(
        slice("a", "web", ["10.1.0.1", { addresses: ["10.1.0.2"], hints: { forZones: [{ name: "a" }] } }]),
      );
      model.upsertServiceCIDR(serviceCIDR("kubernetes", ["10.0.0.0/16"]));
    };
    put({});
    model.takeDirty();
    put({ resourceVersion: "2", annotations: { a: "b" } });
    expect(model.takeDirty()).toEqual({ services: [], serviceCIDRs: false });
  });

  test("another zone marks every service with endpoints", () => {
    const { model } = newModel();
    model.upsertService(service("web"));
    model.upsertService(service("idle", { clusterIP: "10.0.0.2" }));
    model.upsertSlice(slice("a", "web", ["10.1.0.1"]));
    model.upsertSlice(slice("b", "gone", ["10.1.0.2"]));
    model.takeDirty();
    model.setZone("a");
    expect(model.takeDirty().services).toEqual([]);
    model.setZone("b");
    expect(model.takeDirty().services).toEqual(["default/web"]);
    model.setZone(undefined);
    expect(model.takeDirty().services).toEqual(["default/web"]);
  });

  test("an endpoint that moves between other nodes marks nothing", () => {
    const { model } = newModel();
    const on = (nodeName: string) => model.upsertSlice(slice("a", "web", [{ addresses: ["10.1.0.1"], nodeName }]));
    model.upsertService(service("web"));
    on("n1");
    model.takeDirty();
    expect(on("n2")).toBe(false);
    expect(model.takeDirty().services).toEqual([]);
    expect(on("here")).toBe(true);
    expect(model.takeDirty().services).toEqual(["default/web"]);
    expect(model.views("ip", "default/web")[0]?.clusterEndpoints.isLocal(0)).toBe(true);
  });
});

describe("ServiceModel: ServiceCIDRs", () => {
  test("are merged over objects and families", () => {
    const { model, problems } = newModel();
    model.upsertServiceCIDR(serviceCIDR("a", ["10.96.0.0/12", "fd00:0:0::/108"]));
    model.upsertServiceCIDR(serviceCIDR("b", ["10.100.0.0/16", "010.1.2.3/24"]));
    expect(model.serviceCIDRs("ip")).toEqual(["10.1.2.0/24", "10.96.0.0/12"]);
    expect(model.serviceCIDRs("ip6")).toEqual(["fd00::/108"]);
    expect(model.takeDirty().serviceCIDRs).toBe(true);
    model.removeServiceCIDR("a");
    expect(model.serviceCIDRs("ip")).toEqual(["10.1.2.0/24", "10.100.0.0/16"]);
    expect(model.takeDirty().serviceCIDRs).toBe(true);
    expect(problems).toEqual([]);
  });

  test("changes that cancel out have no effect", () => {
    const { model } = newModel();
    model.upsertServiceCIDR(serviceCIDR("a", ["10.96.0.0/12"]));
    model.takeDirty();
    model.upsertServiceCIDR(serviceCIDR("b", ["10.96.0.0/16"]));
    expect(model.takeDirty().serviceCIDRs).toBe(false);
  });

  test("an invalid one is reported, and the rest is used", () => {
    const { model, problems } = newModel();
    model.upsertServiceCIDR(serviceCIDR("a", ["10.96.0.0/12", "10.0.0.0/99", null]));
    model.upsertServiceCIDR(serviceCIDR("b", "10.0.0.0/8"));
    expect(model.serviceCIDRs("ip")).toEqual(["10.96.0.0/12"]);
    expect(problems).toEqual([
      'ServiceCIDR a spec.cidrs[1]: "10.0.0.0/99" is not a CIDR',
      "ServiceCIDR a spec.cidrs[2]: null is not a CIDR",
      'ServiceCIDR b spec.cidrs: "10.0.0.0/8" is not a list',
    ]);
  });
});

describe("ServiceModel: problems", () => {
  test("are reported once, until they change", () => {
    const { model, problems } = newModel();
    const put = (...externalIPs: string[]) => model.upsertService(service("web", { externalIPs }));
    put("x");
    put("x");
    expect(problems).toHaveLength(1);
    put("x", "y");
    expect(problems).toHaveLength(2);
    put("192.0.2.1");
    put("x");
    expect(problems).toHaveLength(3);
    model.removeService("default/web");
    put("x");
    expect(problems).toHaveLength(4);
  });
});

describe("ServiceModel: an object never makes it throw", () => {
  const junk: readonly unknown[] = [
    null,
    undefined,
    0,
    -1,
    NaN,
    1e99,
    "",
    "x",
    true,
    [],
    [[]],
    {},
    [null],
    [{}],
    { a: { b: 1 } },
    "\u0000",
    new Date(NaN),
  ];
  const bases = {
    service: service(
      "web",
      {
        type: "LoadBalancer",
        clusterIPs: ["10.0.0.1"],
        ipFamilies: ["IPv4"],
        externalIPs: ["192.0.2.1"],
        loadBalancerSourceRanges: ["10.0.0.0/8"],
        sessionAffinity: "ClientIP",
        sessionAffinityConfig: { clientIP: { timeoutSeconds: 5 } },
        internalTrafficPolicy: "Local",
        externalTrafficPolicy: "Local",
        ports: [{ name: "", port: 80, protocol: "TCP", nodePort: 30080 }],
      },
      {
        metadata: { creationTimestamp: "2026-01-01T00:00:00Z", labels: {} },
        status: { loadBalancer: { ingress: [{ ip: "192.0.2.2", ipMode: "VIP" }] } },
      },
    ) as unknown,
    slice: slice("a", "web", [
      {
        addresses: ["10.1.0.1"],
        nodeName: "here",
        conditions: { ready: true, serving: true, terminating: false },
        hints: { forNodes: [{ name: "here" }], forZones: [{ name: "a" }] },
      },
    ]) as unknown,
    cidr: serviceCIDR("c", ["10.0.0.0/8"]) as unknown,
  };

  /** Yields every object in which one value of `base` is replaced by junk, at any depth. */
  function* mutants(base: unknown): Generator {
    yield* junk;
    if (typeof base !== "object" || base === null) return;
    for (const [key, value] of Object.entries(base)) {
      for (const mutant of mutants(value)) {
        yield Array.isArray(base) ? base.with(Number(key), mutant) : { ...base, [key]: mutant };
      }
    }
  }

  test("any field may have any type", () => {
    let tried = 0;
    const { model } = newModel();
    for (const [kind, base] of Object.entries(bases)) {
      for (const mutant of mutants(base)) {
        if (kind === "service") model.upsertService(mutant as never);
        else if (kind === "slice") model.upsertSlice(mutant as never);
        else model.upsertServiceCIDR(mutant as never);
        for (const name of model.takeDirty().services) {
          for (const family of ["ip", "ip6"] as const) model.views(family, name);
        }
        tried++;
      }
    }
    expect(tried).toBeGreaterThan(1000);
    // Some mutants claim the same addresses under names that take precedence.
    for (const name of model.services()) model.removeService(name);
    model.upsertService(bases.service as never);
    model.upsertSlice(bases.slice as never);
    expect(model.views("ip", "default/web")[0]?.localEndpoints.address(0)).toBe("10.1.0.1");
  });
});
