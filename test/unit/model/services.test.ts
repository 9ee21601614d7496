import { describe, expect, test } from "vitest";
import { NO_ENDPOINTS } from "../../../src/objects/endpoint-list.js";
import { portId } from "../../../src/model/service-port-view.js";
import { newModel, service, slice } from "./objects.js";

describe("Service: served services", () => {
  test("a plain service with the API server's defaults is served", () => {
    const { model, view, problems } = newModel();
    model.upsertService(service("web"));
    expect(view("web")).toEqual({
      service: "default/web",
      portName: "",
      protocol: "TCP",
      port: 80,
      clusterIP: "10.0.0.1",
      externalIPs: [],
      loadBalancerIPs: [],
      nodePort: 0,
      internalPolicyLocal: false,
      externalPolicyLocal: false,
      affinitySeconds: 0,
      clusterEndpoints: NO_ENDPOINTS,
      localEndpoints: NO_ENDPOINTS,
      hasAnyEndpoint: false,
      resetRemovedEndpoints: false,
    });
    expect(model.views("ip6", "default/web")).toEqual([]);
    expect([...model.services()]).toEqual(["default/web"]);
    expect(problems).toEqual([]);
  });

  test("a missing namespace means default", () => {
    const { model, view } = newModel();
    model.upsertService(service("web", {}, { metadata: { namespace: undefined } }));
    expect(view("web").service).toBe("default/web");
  });

  test.each([
    ["another proxy's by its label", {}, { labels: { "service.kubernetes.io/service-proxy-name": "" } }],
    ["ExternalName", { type: "ExternalName", externalName: "x.example" }, {}],
    ["headless", { clusterIP: "None" }, {}],
    ["headless by its list", { clusterIP: undefined, clusterIPs: ["None"] }, {}],
  ])("skipped silently: %s", (_name, spec, metadata) => {
    const { model, problems } = newModel();
    model.upsertService(service("web", spec, { metadata }));
    expect([...model.services()]).toEqual([]);
    expect(problems).toEqual([]);
  });

  test("a service that becomes headless is removed", () => {
    const { model } = newModel();
    model.upsertService(service("web"));
    model.takeDirty();
    model.upsertService(service("web", { clusterIP: "None" }));
    expect(model.takeDirty().services).toEqual(["default/web"]);
    expect(model.views("ip", "default/web")).toEqual([]);
  });

  test.each([
    ["", "spec.clusterIP: is empty"],
    [undefined, "spec.clusterIP: is empty"],
    ["nonsense", 'spec.clusterIP: "nonsense" is not an IP address'],
    [7, "spec.clusterIP: 7 is not a string"],
  ])("a cluster IP of %j is reported", (clusterIP, problem) => {
    const { model, problems } = newModel();
    model.upsertService(service("web", { clusterIP }));
    expect(problems.join("\n")).toContain(`Service default/web ${problem}`);
    expect([...model.services()]).toEqual([]);
  });
});

describe("Service: families", () => {
  test.each<[string, object, string | undefined, string | undefined]>([
    ["clusterIP's own family", { clusterIP: "fd00::1" }, undefined, "fd00::1"],
    [
      "ipFamilies defines the family of an entry",
      { clusterIPs: ["10.0.0.1", "fd00::1"], ipFamilies: ["IPv4", "IPv6"] },
      "10.0.0.1",
      "fd00::1",
    ],
    [
      "in any order",
      { clusterIP: "fd00::1", clusterIPs: ["fd00::1", "10.0.0.1"], ipFamilies: ["IPv6", "IPv4"] },
      "10.0.0.1",
      "fd00::1",
    ],
    [
      "an entry without a family is ignored",
      { clusterIPs: ["10.0.0.1", "fd00::1"], ipFamilies: ["IPv4"] },
      "10.0.0.1",
      undefined,
    ],
    [
      "ipFamilies default to the families of the entries",
      { clusterIPs: ["10.0.0.1", "fd00::1"] },
      "10.0.0.1",
      "fd00::1",
    ],
    ["clusterIPs default to clusterIP", { ipFamilies: ["IPv4"] }, "10.0.0.1", undefined],
    [
      "an entry of the wrong family is ignored",
      { clusterIPs: ["fd00::1", "10.0.0.1"], ipFamilies: ["IPv4", "IPv4"] },
      "10.0.0.1",
      undefined,
    ],
    ["read leniently", { clusterIP: "010.0.0.01" }, "10.0.0.1", undefined],
    [
      "an invalid entry does not affect the other",
      { clusterIPs: ["10.0.0.300", "fd00::1"], ipFamilies: ["IPv4", "IPv6"] },
      undefined,
      "fd00::1",
    ],
  ])("%s", (_name, spec, ip, ip6) => {
    const { model } = newModel();
    model.upsertService(service("web", spec as Record<string, unknown>));
    expect(model.views("ip", "default/web").map((view) => view.clusterIP)).toEqual(ip === undefined ? [] : [ip]);
    expect(model.views("ip6", "default/web").map((view) => view.clusterIP)).toEqual(ip6 === undefined ? [] : [ip6]);
  });

  test("without a ClusterIP in a family, nothing of it is served, including node port and VIPs", () => {
    const { model } = newModel();
    model.upsertService(
      service(
        "web",
        { type: "LoadBalancer", externalIPs: ["fd00::5"], ports: [{ port: 80, nodePort: 30080 }] },
        { status: { loadBalancer: { ingress: [{ ip: "fd00::6" }] } } },
      ),
    );
    expect(model.views("ip6", "default/web")).toEqual([]);
    expect(model.views("ip", "default/web")).toMatchObject([{ externalIPs: [], loadBalancerIPs: [], nodePort: 30080 }]);
  });

  test("a family that is not served has no views", () => {
    const { model } = newModel({ families: ["ip"] });
    model.upsertService(service("web", { clusterIPs: ["10.0.0.1", "fd00::1"] }));
    expect(model.views("ip6", "default/web")).toEqual([]);
    expect(model.views("ip", "default/web")).toHaveLength(1);
  });
});

describe("Service: ports", () => {
  test("there is one view for each name and protocol", () => {
    const { model } = newModel();
    const ports = [
      { name: "dns", port: 53, protocol: "UDP" },
      { name: "dns", port: 53, protocol: "TCP" },
      { name: "diameter", port: 3868, protocol: "SCTP", nodePort: 31000 },
    ];
    model.upsertService(service("web", { ports }));
    expect(model.views("ip", "default/web").map((view) => [portId(view), view.portName, view.nodePort])).toEqual([
      ["default/web:dns/UDP", "dns", 0],
      ["default/web:dns/TCP", "dns", 0],
      ["default/web:diameter/SCTP", "diameter", 31000],
    ]);
  });

  test.each<[unknown, string]>([
    [{ name: "x", port: 0 }, "spec.ports[1].port: 0 is not a port (1 to 65535)"],
    [{ name: "x", port: 65536 }, "spec.ports[1].port: 65536 is not a port"],
    [{ name: "x", port: "80" }, 'spec.ports[1].port: "80" is not a port'],
    [{ name: "x", port: 1.5 }, "spec.ports[1].port: 1.5 is not a port"],
    [{ name: "x" }, "spec.ports[1].port:"],
    [{ name: "x", port: 81, protocol: "ICMP" }, 'spec.ports[1].protocol: "ICMP" is not TCP, UDP or SCTP'],
    [{ name: "x", port: 81, protocol: "tcp" }, 'spec.ports[1].protocol: "tcp" is not TCP, UDP or SCTP'],
    [{ name: "ok", port: 81 }, 'spec.ports[1].name: "ok" is the name of another TCP port'],
    [{ name: "x", port: 80 }, "spec.ports[1].port: 80/TCP occurs twice"],
    ["81", 'spec.ports[1]: "81" is not an object'],
    [null, "spec.ports[1]: null is not an object"],
  ])("a port that cannot be served is reported, and the rest is served: %j", (port, problem) => {
    const { model, view, problems } = newModel();
    model.upsertService(service("web", { ports: [{ name: "ok", port: 80 }, port] }));
    expect(view("web").port).toBe(80);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(`Service default/web ${problem}`);
  });

  test("an invalid node port does not affect the rest of the port", () => {
    const { model, view, problems } = newModel();
    model.upsertService(service("web", { ports: [{ port: 80, nodePort: 70000 }] }));
    expect(view("web")).toMatchObject({ port: 80, nodePort: 0 });
    expect(problems).toEqual(["Service default/web spec.ports[0].nodePort: 70000 is not a port (1 to 65535)"]);
  });

  test("a node port that two ports of one service have belongs to the first one", () => {
    const { model, problems } = newModel();
    const ports = [
      { name: "a", port: 80, nodePort: 30000 },
      { name: "b", port: 81, nodePort: 30000 },
      { name: "c", port: 81, nodePort: 30000, protocol: "UDP" },
    ];
    model.upsertService(service("web", { ports }));
    expect(model.views("ip", "default/web").map((view) => view.nodePort)).toEqual([30000, 0, 30000]);
    expect(problems).toEqual(["Service default/web spec.ports[1].nodePort: 30000/TCP occurs twice"]);
  });

  test("without a port nothing is served", () => {
    const { model, problems } = newModel();
    model.upsertService(service("web", { ports: [] }));
    expect([...model.services()]).toEqual([]);
    expect(problems).toEqual(["Service default/web spec.ports: has no port to serve"]);
  });
});

describe("Service: VIPs", () => {
  test("external IPs of the family are canonical, each once", () => {
    const { model, view, problems } = newModel();
    model.upsertService(
      service("web", {
        clusterIPs: ["10.0.0.1", "fd00::1"],
        externalIPs: ["192.0.2.1", "192.0.02.1", "FD00::0002", "192.0.2", 7],
      }),
    );
    expect(view("web").externalIPs).toEqual(["192.0.2.1"]);
    expect(view("web", "ip6").externalIPs).toEqual(["fd00::2"]);
    expect(problems).toEqual([
      'Service default/web spec.externalIPs[3]: "192.0.2" is not an IP address',
      "Service default/web spec.externalIPs[4]: 7 is not an IP address",
    ]);
  });

  test("AllowServiceExternalIPs: false ignores external IPs", () => {
    const { model, view } = newModel({ allowExternalIPs: false });
    model.upsertService(service("web", { externalIPs: ["192.0.2.1"] }));
    expect(view("web").externalIPs).toEqual([]);
  });

  test("load-balancer IPs with ipMode VIP or unset are served, Proxy is not, and a host name is not an IP", () => {
    const { model, view, problems } = newModel();
    const ingress = [
      { ip: "192.0.2.1" },
      { ip: "192.0.2.2", ipMode: "VIP" },
      { ip: "192.0.2.3", ipMode: "Proxy" },
      { hostname: "lb.example" },
      { ip: "", hostname: "lb.example" },
      { ip: "192.0.2.x" },
      { ip: "fd00::9" },
      { ip: "192.0.2.1" },
    ];
    model.upsertService(service("web", { type: "LoadBalancer" }, { status: { loadBalancer: { ingress } } }));
    expect(view("web").loadBalancerIPs).toEqual(["192.0.2.1", "192.0.2.2"]);
    expect(problems).toEqual([
      'Service default/web status.loadBalancer.ingress[5].ip: "192.0.2.x" is not an IP address',
    ]);
  });

  test("an address that is both external and load-balancer IP is protected as the latter", () => {
    const { model, view } = newModel();
    const status = { loadBalancer: { ingress: [{ ip: "192.0.2.1" }] } };
    model.upsertService(service("web", { type: "LoadBalancer", externalIPs: ["192.0.2.1", "192.0.2.2"] }, { status }));
    expect(view("web")).toMatchObject({ externalIPs: ["192.0.2.2"], loadBalancerIPs: ["192.0.2.1"] });
  });

  test("the service's own cluster IP is not another VIP of it", () => {
    const { model, view, problems } = newModel();
    model.upsertService(service("web", { externalIPs: ["10.0.0.1"] }));
    expect(view("web").externalIPs).toEqual([]);
    expect(problems).toEqual(["Service default/web spec.externalIPs: 10.0.0.1 is the cluster IP of the service"]);
  });

  test("a node port is served whatever the type", () => {
    const { model, view } = newModel();
    model.upsertService(service("web", { type: "ClusterIP", ports: [{ port: 80, nodePort: 30080 }] }));
    expect(view("web").nodePort).toBe(30080);
  });
});

describe("Service: source ranges", () => {
  test.each<[string, unknown, readonly string[] | undefined, readonly string[] | undefined]>([
    ["none", undefined, undefined, undefined],
    ["of both families", ["10.0.0.0/8", "fd00::/8"], ["10.0.0.0/8"], ["fd00::/8"]],
    [
      "canonical, trimmed, without overlap",
      [" 10.1.2.3/8 ", "010.1.0.0/16", "9.0.0.0/8\n"],
      ["9.0.0.0/8", "10.0.0.0/8"],
      undefined,
    ],
    ["only of the other family: unrestricted", ["fd00::/8"], undefined, ["fd00::/8"]],
    ["all addresses: unrestricted", ["0.0.0.0/0", "10.0.0.0/8", "fd00::/8"], undefined, ["fd00::/8"]],
    ["an invalid range may belong to either family", ["10.0.0.0/8", "10.0.0.0/40"], ["10.0.0.0/8"], []],
    ["only invalid ranges: no client", ["10.0.0.0/40", 5], [], []],
    ["an invalid range beside all addresses", ["0.0.0.0/0", "::/0", ""], undefined, undefined],
  ])("%s", (_name, loadBalancerSourceRanges, ip, ip6) => {
    const { model, view } = newModel();
    model.upsertService(service("web", { clusterIPs: ["10.0.0.1", "fd00::1"], loadBalancerSourceRanges }));
    expect(view("web").sourceRanges).toEqual(ip);
    expect(view("web", "ip6").sourceRanges).toEqual(ip6);
  });

  test("an invalid range is reported", () => {
    const { model, problems } = newModel();
    model.upsertService(service("web", { loadBalancerSourceRanges: ["10.0.0.0/40", 5] }));
    expect(problems).toEqual([
      'Service default/web spec.loadBalancerSourceRanges[0]: "10.0.0.0/40" is not a CIDR, so it allows no client',
      "Service default/web spec.loadBalancerSourceRanges[1]: 5 is not a CIDR, so it allows no client",
    ]);
  });

  test("ranges that are no list allow no client", () => {
    const { model, problems, view } = newModel();
    model.upsertService(service("web", { loadBalancerSourceRanges: "10.0.0.0/8" }));
    expect(view("web").sourceRanges).toEqual([]);
    expect(problems).toEqual([
      'Service default/web spec.loadBalancerSourceRanges: "10.0.0.0/8" is not a list, so load-balancer IPs accept no client',
    ]);
  });
});

describe("Service: policies and affinity", () => {
  test.each<[string, object, boolean, boolean]>([
    ["Cluster by default", { type: "NodePort" }, false, false],
    ["internal Local", { internalTrafficPolicy: "Local" }, true, false],
    ["external Local", { type: "NodePort", externalTrafficPolicy: "Local" }, false, true],
    ["external Local by an external IP", { externalIPs: ["192.0.2.1"], externalTrafficPolicy: "Local" }, false, true],
    [
      "external Local with type ClusterIP and a node port: Cluster, as in kube-proxy",
      { type: "ClusterIP", ports: [{ port: 80, nodePort: 30080 }], externalTrafficPolicy: "Local" },
      false,
      false,
    ],
    ["external Local without anything external", { externalTrafficPolicy: "Local" }, false, false],
  ])("%s", (_name, spec, internal, external) => {
    const { model, view } = newModel();
    model.upsertService(service("web", spec as Record<string, unknown>));
    expect(view("web")).toMatchObject({ internalPolicyLocal: internal, externalPolicyLocal: external });
  });

  test.each<[string, object, number, string?]>([
    ["none", { sessionAffinity: "None" }, 0],
    ["three hours by default", { sessionAffinity: "ClientIP" }, 10800],
    ["as configured", { sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds: 5 } } }, 5],
    ["config without affinity", { sessionAffinityConfig: { clientIP: { timeoutSeconds: 5 } } }, 0],
    [
      "zero",
      { sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds: 0 } } },
      10800,
      "timeoutSeconds",
    ],
    [
      "more than a day",
      { sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds: 86401 } } },
      10800,
      "timeoutSeconds",
    ],
    [
      "an unknown kind",
      { sessionAffinity: "Cookie" },
      0,
      'spec.sessionAffinity: "Cookie" is not one of None, ClientIP',
    ],
  ])("affinity: %s", (_name, spec, seconds, problem) => {
    const { model, view, problems } = newModel();
    model.upsertService(service("web", spec as Record<string, unknown>));
    expect(view("web").affinitySeconds).toBe(seconds);
    expect(problems).toHaveLength(problem === undefined ? 0 : 1);
    expect(problems.join()).toContain(problem ?? "");
  });

  test("type ClusterIP with a node port and load-balancer IPs: both are served, and policy Local counts only with an external IP", () => {
    const { model, view, problems } = newModel();
    const ports = [{ port: 80, nodePort: 30080 }];
    const status = { loadBalancer: { ingress: [{ ip: "192.0.2.1" }] } };
    const spec = { type: "ClusterIP", externalTrafficPolicy: "Local", healthCheckNodePort: 32000, ports };
    model.upsertService(service("web", spec, { status }));
    const served = { nodePort: 30080, loadBalancerIPs: ["192.0.2.1"] };
    expect(view("web")).toMatchObject({ ...served, externalPolicyLocal: false });
    expect(model.healthCheck("ip", "default/web")).toBeUndefined();
    model.upsertService(service("web", { ...spec, externalIPs: ["192.0.2.2"] }, { status }));
    expect(view("web")).toMatchObject({ ...served, externalPolicyLocal: true });
    expect(problems).toEqual([]);
  });

  test.each<[string, object, boolean, boolean]>([
    ["internalTrafficPolicy", {}, true, false],
    ["externalTrafficPolicy", { type: "NodePort" }, false, true],
    ["type", { externalTrafficPolicy: "Local" }, false, true],
  ])("an unknown %s is reported, and restricts access", (field, spec, internal, external) => {
    const { model, view, problems } = newModel();
    model.upsertService(service("web", { ...spec, [field]: "Nearby" }));
    expect(view("web")).toMatchObject({ internalPolicyLocal: internal, externalPolicyLocal: external });
    expect(problems.join()).toContain(`Service default/web spec.${field}: "Nearby" is not one of`);
  });
});

describe("Service: lists that have endpoints", () => {
  const endpoints = [{ addresses: ["10.1.0.1"], nodeName: "here" }, "10.1.0.2"];

  test.each<[string, object, number, number]>([
    ["no policy Local", {}, 2, 0],
    ["internal Local, nothing external: the cluster list is unused", { internalTrafficPolicy: "Local" }, 0, 1],
    ["internal Local, external Cluster", { internalTrafficPolicy: "Local", externalIPs: ["192.0.2.1"] }, 2, 1],
    [
      "external Local: its short cuts use the cluster list",
      { externalTrafficPolicy: "Local", externalIPs: ["192.0.2.1"] },
      2,
      1,
    ],
    [
      "both Local",
      { internalTrafficPolicy: "Local", externalTrafficPolicy: "Local", ports: [{ port: 80, nodePort: 30080 }] },
      2,
      1,
    ],
    ["external Local, nothing external in the view", { type: "NodePort", externalTrafficPolicy: "Local" }, 2, 0],
  ])("%s", (_name, spec, cluster, local) => {
    const { model, view } = newModel();
    model.upsertService(service("web", spec as Record<string, unknown>));
    model.upsertSlice(slice("web-1", "web", endpoints));
    expect(view("web").clusterEndpoints).toHaveLength(cluster);
    expect(view("web").localEndpoints).toHaveLength(local);
    expect(view("web").hasAnyEndpoint).toBe(true);
  });
});

test("counts include services with an address in the family, and the ready endpoints of their slices", () => {
  const { model } = newModel();
  const gone = { addresses: ["10.1.0.3"], conditions: { ready: false } };
  model.upsertService(service("web"));
  model.upsertSlice(slice("web-1", "web", ["10.1.0.1", "10.1.0.2", gone]));
  model.upsertSlice(slice("web-2", "web", ["10.1.0.4"]));
  model.upsertSlice(slice("web-6", "web", ["fd00::1"], { addressType: "IPv6" }));
  model.upsertService(service("idle", { clusterIP: "10.0.0.2" }));
  model.upsertSlice(slice("stray", "no-such-service", ["10.1.0.9"]));
  model.upsertService(service("headless", { clusterIP: "None" }));
  expect(model.counts("ip")).toEqual({ services: 2, endpoints: 3 });
  expect(model.counts("ip6")).toEqual({ services: 0, endpoints: 0 });
  model.removeService("default/web");
  expect(model.counts("ip")).toEqual({ services: 1, endpoints: 0 });
});

test("counts follow every change of slices and services", () => {
  const { model } = newModel();
  const is = (services: number, endpoints: number) => expect(model.counts("ip")).toEqual({ services, endpoints });
  model.upsertSlice(slice("web-1", "web", ["10.1.0.1", "10.1.0.2"]));
  is(0, 0);
  model.upsertService(service("web"));
  is(1, 2);
  model.upsertSlice(slice("web-1", "web", ["10.1.0.1", "10.1.0.2", "10.1.0.3"]));
  is(1, 3);
  model.upsertService(service("web", { sessionAffinity: "ClientIP" }));
  is(1, 3);
  model.upsertSlice(slice("web-1", "other", ["10.1.0.1"]));
  is(1, 0);
  model.upsertService(service("other", { clusterIP: "10.0.0.2" }));
  is(2, 1);
  model.upsertService(service("other", { clusterIP: "fd00::2", ipFamilies: ["IPv6"] }));
  is(1, 0);
  model.upsertService(service("other", { clusterIP: "10.0.0.2" }));
  model.removeSlice("default/web-1");
  is(2, 0);
  model.removeSlice("default/web-1");
  model.removeService("default/other");
  model.removeService("default/web");
  is(0, 0);
  expect(model.counts("ip6")).toEqual({ services: 0, endpoints: 0 });
});
