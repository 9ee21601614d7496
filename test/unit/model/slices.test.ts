import { describe, expect, test } from "vitest";
import { addresses, newModel, service, slice } from "./objects.js";

function serve(...slices: ReturnType<typeof slice>[]) {
  const under = newModel();
  under.model.upsertService(service("web", { clusterIPs: ["10.0.0.1", "fd00::1"] }));
  for (const one of slices) under.model.upsertSlice(one);
  return under;
}

describe("EndpointSlice: the service of a slice", () => {
  test("a slice belongs to the service that its label names, in its own namespace", () => {
    const metadata = { name: "b", namespace: "other", labels: { "kubernetes.io/service-name": "web" } };
    const { view } = serve(slice("a", "web", ["10.1.0.1"]), slice("b", "web", ["10.1.0.2"], { metadata }));
    expect(addresses(view("web").clusterEndpoints)).toBe("10.1.0.1:8080");
  });

  test("slices of one service are merged", () => {
    const { view } = serve(slice("a", "web", ["10.1.0.1"]), slice("b", "web", ["10.1.0.2", "10.1.0.3"]));
    expect(addresses(view("web").clusterEndpoints)).toBe("10.1.0.1:8080 10.1.0.2:8080 10.1.0.3:8080");
  });

  test("a slice may arrive before its service", () => {
    const { model, view } = newModel();
    model.upsertSlice(slice("a", "web", ["10.1.0.1"]));
    expect(model.takeDirty().services).toEqual([]);
    model.upsertService(service("web"));
    expect(addresses(view("web").clusterEndpoints)).toBe("10.1.0.1:8080");
  });

  test.each([
    [
      "of a headless service",
      {
        metadata: { name: "a", labels: { "service.kubernetes.io/headless": "", "kubernetes.io/service-name": "web" } },
      },
      undefined,
    ],
    ["FQDN", { addressType: "FQDN", endpoints: [{ addresses: ["x.example"] }] }, undefined],
    [
      "without the label",
      { metadata: { name: "a" } },
      'EndpointSlice default/a metadata.labels["kubernetes.io/service-name"]: is missing',
    ],
    ["without an address type", { addressType: undefined }, "EndpointSlice default/a addressType: is missing"],
    ["of an unknown address type", { addressType: "IPv5" }, 'EndpointSlice default/a addressType: "IPv5" is not'],
  ])("ignored: %s", (_name, rest, problem) => {
    const { view, problems } = serve(slice("a", "web", ["10.1.0.1"], rest));
    expect(view("web").hasAnyEndpoint).toBe(false);
    expect(problems).toHaveLength(problem === undefined ? 0 : 1);
    expect(problems.join()).toContain(problem ?? "");
  });

  test("slices of the other family are ignored", () => {
    const { view } = serve(slice("a", "web", ["10.1.0.1"]), slice("b", "web", ["FD00::0:5"], { addressType: "IPv6" }));
    expect(addresses(view("web").clusterEndpoints)).toBe("10.1.0.1:8080");
    expect(addresses(view("web", "ip6").clusterEndpoints)).toBe("fd00::5:8080");
  });
});

describe("EndpointSlice: ports", () => {
  test("ports match by name and protocol", () => {
    const { model } = newModel();
    const ports = [
      { name: "a", port: 1, protocol: "TCP" },
      { name: "a", port: 1, protocol: "UDP" },
      { name: "b", port: 2 },
      { name: "c", port: 3 },
    ];
    model.upsertService(service("web", { ports }));
    const slicePorts = [
      { name: "a", port: 11, protocol: "TCP" },
      { name: "a", port: 12, protocol: "UDP" },
      { name: "b", port: 21, protocol: "UDP" },
      { name: "c", port: 31 },
    ];
    model.upsertSlice(slice("s", "web", ["10.1.0.1"], { ports: slicePorts }));
    expect(model.views("ip", "default/web").map((view) => addresses(view.clusterEndpoints))).toEqual([
      "10.1.0.1:11",
      "10.1.0.1:12",
      "",
      "10.1.0.1:31",
    ]);
  });

  test.each<[unknown, string | undefined]>([
    [{ name: "" }, undefined],
    [{ name: "", port: null }, undefined],
    [{ port: 70000 }, "ports[0].port: 70000 is not a port"],
    [{ port: 80, protocol: "ICMP" }, 'ports[0].protocol: "ICMP" is not TCP, UDP or SCTP'],
    [5, "ports[0]: 5 is not an object"],
  ])("ignored: %j", (port, problem) => {
    const { view, problems } = serve(slice("a", "web", ["10.1.0.1"], { ports: [port] }));
    expect(view("web").hasAnyEndpoint).toBe(false);
    expect(problems.join()).toContain(problem ?? "");
    expect(problems).toHaveLength(problem === undefined ? 0 : 1);
  });

  test("two numbers with one name and protocol in a slice are both used, as in kube-proxy, and the same number twice counts once", () => {
    const ports = [{ port: 8080 }, { port: 9090 }, { port: 8080 }, { port: 53, protocol: "UDP" }];
    const { view, problems } = serve(slice("a", "web", ["10.1.0.1", "10.1.0.2"], { ports }));
    expect(addresses(view("web").clusterEndpoints)).toBe("10.1.0.1:8080 10.1.0.1:9090 10.1.0.2:8080 10.1.0.2:9090");
    expect(problems).toEqual([]);
  });

  test("slices may send one service port to different numbers", () => {
    const { view } = serve(
      slice("a", "web", ["10.1.0.1"]),
      slice("b", "web", ["10.1.0.1", "10.1.0.2"], { ports: [{ port: 9090 }] }),
    );
    expect(addresses(view("web").clusterEndpoints)).toBe("10.1.0.1:8080 10.1.0.1:9090 10.1.0.2:9090");
  });
});

const on = (nodeName: unknown, address: string) => ({ addresses: [address], nodeName });

const hinted = (address: string, nodes: string[], zones: string[]) => ({
  addresses: [address],
  hints: { forNodes: nodes.map((name) => ({ name })), forZones: zones.map((name) => ({ name })) },
});

describe("EndpointSlice: endpoints", () => {
  test("only the first address counts", () => {
    const { view } = serve(slice("a", "web", [{ addresses: ["10.1.0.1", "10.1.0.2"] }]));
    expect(addresses(view("web").clusterEndpoints)).toBe("10.1.0.1:8080");
  });

  test("addresses are read leniently; an invalid one is reported, and the rest is used", () => {
    const { view, problems } = serve(
      slice("a", "web", [
        "010.1.0.01",
        "10.1.0.300",
        { addresses: [] },
        "fd00::1",
        { addresses: [{}] },
        "10.1.0.2",
        {},
      ]),
    );
    expect(addresses(view("web").clusterEndpoints)).toBe("10.1.0.1:8080 10.1.0.2:8080");
    expect(problems).toEqual([
      'EndpointSlice default/a endpoints[1].addresses[0]: "10.1.0.300" is not an IP address',
      "EndpointSlice default/a endpoints[2].addresses: has no address",
      "EndpointSlice default/a endpoints[3].addresses[0]: fd00::1 does not have the slice's address type",
      "EndpointSlice default/a endpoints[4].addresses[0]: an object is not an IP address",
      "EndpointSlice default/a endpoints[6].addresses: has no address",
    ]);
  });

  test("an endpoint is local only if its node name matches exactly", () => {
    const { view } = serve(
      slice("a", "web", [
        on("here", "10.1.0.1"),
        on("HERE", "10.1.0.2"),
        on("here2", "10.1.0.3"),
        on(undefined, "10.1.0.4"),
      ]),
    );
    expect([...view("web").clusterEndpoints].filter(({ local }) => local)).toEqual([
      { address: "10.1.0.1", port: 8080, local: true },
    ]);
  });

  test.each<[string, unknown, boolean]>([
    ["conditions unset", undefined, true],
    ["ready unset", {}, true],
    ["ready null", { ready: null }, true],
    ["not ready", { ready: false }, false],
    ["serving and terminating", { ready: false, serving: true, terminating: true }, true],
    ["terminating, serving unset", { ready: false, terminating: true }, true],
    ["not ready, terminating unset", { ready: false, serving: true }, false],
    ["terminating, not serving", { ready: false, serving: false, terminating: true }, false],
    ["ready and terminating", { ready: true, serving: true, terminating: true }, true],
  ])("%s", (_name, conditions, usable) => {
    const { view } = serve(slice("a", "web", [{ addresses: ["10.1.0.1"], conditions }]));
    expect(view("web").hasAnyEndpoint).toBe(usable);
    expect(view("web").clusterEndpoints).toHaveLength(usable ? 1 : 0);
  });

  test("hints narrow by node and by zone", () => {
    const { model, view } = serve(
      slice("a", "web", [hinted("10.1.0.1", ["here"], ["b"]), hinted("10.1.0.2", ["there"], ["a"])]),
    );
    expect(addresses(view("web").clusterEndpoints)).toBe("10.1.0.1:8080");
    model.upsertSlice(
      slice("a", "web", [hinted("10.1.0.1", ["elsewhere"], ["b"]), hinted("10.1.0.2", ["there"], ["a"])]),
    );
    expect(addresses(view("web").clusterEndpoints)).toBe("10.1.0.2:8080");
    model.setZone(undefined);
    expect(view("web").clusterEndpoints).toHaveLength(2);
  });

  test("hints in only one of the slices narrow nothing", () => {
    const hints = { forZones: [{ name: "a" }] };
    const { view } = serve(
      slice("a", "web", ["10.1.0.1"]),
      slice("b", "web", [{ addresses: ["10.1.0.2"], hints }]),
      slice("c", "web", [{ addresses: ["10.1.0.3"], hints }]),
    );
    expect(view("web").clusterEndpoints).toHaveLength(3);
  });
});

describe("EndpointSlice: the same address and port twice is one endpoint", () => {
  const dying = {
    addresses: ["10.1.0.1"],
    nodeName: "old",
    conditions: { ready: false, serving: true, terminating: true },
  };
  const alive = { addresses: ["010.1.0.1"], nodeName: "here", conditions: { ready: true } };
  const unready = { addresses: ["10.1.0.1"], nodeName: "here", conditions: { ready: false } };
  const published = { ...dying, conditions: { ready: true, serving: true, terminating: true } };
  // More than the slice reader handles with a linear search.
  const many = Array.from({ length: 20 }, (_, i) => `10.2.0.${i}`);

  test.each([
    ["in one slice", [[dying, alive]]],
    ["in one slice, the other way round", [[alive, dying]]],
    ["in two slices", [[dying], [alive]]],
    ["in two slices, the other way round", [[alive], [dying]]],
    ["ready before not ready", [[unready], [alive]]],
    ["although both are ready", [[published], [alive]]],
  ])("a non-terminating endpoint wins: %s", (_name, groups) => {
    const { view } = serve(...groups.map((group, i) => slice(`s${i}`, "web", group)));
    expect([...view("web").clusterEndpoints]).toEqual([{ address: "10.1.0.1", port: 8080, local: true }]);
  });

  test("a non-terminating endpoint wins even if it is not ready yet", () => {
    const { view } = serve(slice("a", "web", [dying]), slice("b", "web", [unready]));
    expect(view("web").hasAnyEndpoint).toBe(false);
  });

  test("duplicates in a long slice are merged", () => {
    const { view } = serve(slice("a", "web", [...many, dying, ...many, alive, dying]));
    expect(view("web").clusterEndpoints).toHaveLength(21);
    expect([...view("web").clusterEndpoints].at(-1)).toEqual({ address: "10.1.0.1", port: 8080, local: true });
  });

  test("duplicates in three slices are merged", () => {
    const { view } = serve(
      slice("a", "web", many),
      slice("b", "web", [dying, ...many]),
      slice("c", "web", [...many, alive]),
    );
    expect(view("web").clusterEndpoints).toHaveLength(21);
    expect([...view("web").clusterEndpoints].filter(({ local }) => local)).toHaveLength(1);
  });
});
