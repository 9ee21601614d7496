import { describe, expect, test } from "vitest";
import { newModel, service, slice } from "./objects.js";

const OLD = { creationTimestamp: "2024-01-01T00:00:00Z" };
const NEW = { creationTimestamp: "2025-01-01T00:00:00Z" };

/** A service with the external IP that everybody wants. */
function claimant(name: string, metadata: Record<string, unknown> = {}, spec: Record<string, unknown> = {}) {
  const last = name.charCodeAt(0) - 96;
  return service(name, { clusterIP: `10.0.0.${last}`, externalIPs: ["192.0.2.1"], ...spec }, { metadata });
}

describe("who has a VIP", () => {
  test.each<[string, [string, Record<string, unknown>][], string]>([
    [
      "the older one",
      [
        ["a", NEW],
        ["b", OLD],
      ],
      "b",
    ],
    [
      "by name when equally old",
      [
        ["b", OLD],
        ["a", OLD],
      ],
      "a",
    ],
    [
      "by name when neither says",
      [
        ["b", {}],
        ["a", {}],
      ],
      "a",
    ],
    [
      "one that says its age before one that does not",
      [
        ["a", {}],
        ["b", NEW],
      ],
      "b",
    ],
    [
      "of three",
      [
        ["c", NEW],
        ["a", {}],
        ["b", OLD],
      ],
      "b",
    ],
    [
      "a Date is as good as its text",
      [
        ["a", { creationTimestamp: new Date("2025-01-01") }],
        ["b", OLD],
      ],
      "b",
    ],
    [
      "the namespace counts as part of the name",
      [
        ["a", { namespace: "z" }],
        ["b", { namespace: "y" }],
      ],
      "b",
    ],
  ])("%s", (_name, services, winner) => {
    for (const order of [services, services.toReversed()]) {
      const { model, problems } = newModel();
      for (const [name, metadata] of order) model.upsertService(claimant(name, metadata));
      const { services: dirty } = model.takeDirty();
      const holders = dirty.filter((name) => model.views("ip", name)[0]?.externalIPs.length === 1);
      expect(holders.map((name) => name.split("/")[1])).toEqual([winner]);
      expect(problems).toHaveLength(services.length - 1);
      expect(problems.join()).toContain(`192.0.2.1 port 80/TCP belongs to ${holders[0]}, which was there first`);
    }
  });

  test.each<[string, Record<string, unknown>, Record<string, unknown>]>([
    ["another port", { ports: [{ port: 80 }] }, { ports: [{ port: 81 }] }],
    ["another protocol", { ports: [{ port: 80 }] }, { ports: [{ port: 80, protocol: "UDP" }] }],
    [
      "another node port",
      { externalIPs: [], ports: [{ port: 80, nodePort: 30000 }] },
      { externalIPs: [], ports: [{ port: 80, nodePort: 30001 }] },
    ],
    [
      "a node port of another protocol",
      { externalIPs: [], ports: [{ port: 80, nodePort: 30000 }] },
      { externalIPs: [], ports: [{ port: 80, protocol: "SCTP", nodePort: 30000 }] },
    ],
    [
      "a node port of another family",
      { externalIPs: [], ports: [{ port: 80, nodePort: 30000 }] },
      { externalIPs: [], clusterIP: "fd00::2", ports: [{ port: 80, nodePort: 30000 }] },
    ],
  ])("no clash: %s", (_name, a, b) => {
    const { model, problems } = newModel();
    model.upsertService(claimant("a", OLD, a));
    model.upsertService(claimant("b", NEW, b));
    model.takeDirty();
    expect(problems).toEqual([]);
  });

  test("the same address in different places is one claim", () => {
    const { model, view, problems } = newModel();
    model.upsertService(service("a", { clusterIP: "10.0.0.1" }, { metadata: OLD }));
    const status = { loadBalancer: { ingress: [{ ip: "10.0.0.1" }, { ip: "192.0.2.7" }] } };
    model.upsertService(service("b", { clusterIP: "10.0.0.2", type: "LoadBalancer" }, { metadata: NEW, status }));
    model.takeDirty();
    expect(view("b").loadBalancerIPs).toEqual(["192.0.2.7"]);
    expect(problems).toEqual([
      "Service default/b status.loadBalancer.ingress: 10.0.0.1 port 80/TCP belongs to default/a, which was there first",
    ]);
  });

  test("the loser of a cluster IP serves its other VIPs and ports", () => {
    const { model, problems } = newModel();
    model.upsertService(service("a", {}, { metadata: OLD }));
    const ports = [
      { name: "x", port: 80, nodePort: 30080 },
      { name: "y", port: 81 },
    ];
    model.upsertService(service("b", { ports, externalIPs: ["192.0.2.1"] }, { metadata: NEW }));
    model.takeDirty();
    const [x, y] = model.views("ip", "default/b");
    expect(x).toMatchObject({ externalIPs: ["192.0.2.1"], nodePort: 30080 });
    expect(x.clusterIP).toBeUndefined();
    expect(y).toMatchObject({ clusterIP: "10.0.0.1", externalIPs: ["192.0.2.1"] });
    expect(problems).toEqual([
      "Service default/b spec.clusterIP: 10.0.0.1 port 80/TCP belongs to default/a, which was there first",
    ]);
  });

  test("a node port is claimed in each family by itself", () => {
    const { model, problems } = newModel();
    const ports = [{ port: 80, nodePort: 30080 }];
    model.upsertService(service("a", { ports }, { metadata: OLD }));
    model.upsertService(service("b", { clusterIPs: ["10.0.0.2", "fd00::2"], ports }, { metadata: NEW }));
    model.takeDirty();
    expect(model.views("ip", "default/b")[0]?.nodePort).toBe(0);
    expect(model.views("ip6", "default/b")[0]?.nodePort).toBe(30080);
    expect(problems).toEqual([
      "Service default/b spec.ports[].nodePort: IPv4 node port 30080/TCP belongs to default/a, which was there first",
    ]);
  });

  test("a loser without an external VIP left draws from what its policies say", () => {
    const { model, view } = newModel();
    model.upsertService(claimant("a", OLD));
    model.upsertService(claimant("b", NEW, { externalTrafficPolicy: "Local" }));
    model.upsertSlice(slice("s", "b", [{ addresses: ["10.1.0.1"], nodeName: "here" }]));
    expect(view("b")).toMatchObject({ externalIPs: [], localEndpoints: [], clusterEndpoints: [{ local: true }] });
  });
});

describe("taking over", () => {
  test("the next one has it when the winner goes, and then it is the winner", () => {
    const { model, view, problems } = newModel();
    model.upsertService(claimant("a", OLD));
    model.upsertService(claimant("b", NEW));
    model.upsertService(claimant("c", NEW));
    model.takeDirty();
    problems.length = 0;
    model.removeService("default/a");
    expect([...model.takeDirty().services].sort()).toEqual(["default/a", "default/b", "default/c"]);
    expect(view("b").externalIPs).toEqual(["192.0.2.1"]);
    expect(view("c").externalIPs).toEqual([]);
    expect(problems).toEqual([
      "Service default/c spec.externalIPs: 192.0.2.1 port 80/TCP belongs to default/b, which was there first",
    ]);
    model.removeService("default/b");
    expect([...model.takeDirty().services].sort()).toEqual(["default/b", "default/c"]);
    expect(view("c").externalIPs).toEqual(["192.0.2.1"]);
  });

  test("when the winner lets go of the address alone", () => {
    const { model, view } = newModel();
    model.upsertService(claimant("a", OLD));
    model.upsertService(claimant("b", NEW));
    model.takeDirty();
    model.upsertService(claimant("a", OLD, { externalIPs: [] }));
    expect([...model.takeDirty().services].sort()).toEqual(["default/a", "default/b"]);
    expect(view("b").externalIPs).toEqual(["192.0.2.1"]);
  });

  test("an older one that comes later takes it back, and the loser is dirty", () => {
    const { model, view } = newModel();
    model.upsertService(claimant("b", NEW));
    model.takeDirty();
    model.upsertService(claimant("a", OLD));
    expect([...model.takeDirty().services].sort()).toEqual(["default/a", "default/b"]);
    expect(view("b").externalIPs).toEqual([]);
  });

  test("losers that come and go leave the winner alone", () => {
    const { model, view } = newModel();
    model.upsertService(claimant("a", OLD));
    model.takeDirty();
    model.upsertService(claimant("b", NEW));
    expect(model.takeDirty().services).toEqual(["default/b"]);
    model.removeService("default/b");
    expect(model.takeDirty().services).toEqual(["default/b"]);
    expect(view("a").externalIPs).toEqual(["192.0.2.1"]);
  });

  test("an address that moves between two services in one go is no clash", () => {
    const { model, problems } = newModel();
    model.upsertService(claimant("a", OLD));
    model.takeDirty();
    model.upsertService(claimant("b", NEW));
    model.removeService("default/a");
    model.takeDirty();
    expect(problems).toEqual([]);
  });

  test("a clash that comes back is named again", () => {
    const { model, problems } = newModel();
    model.upsertService(claimant("a", OLD));
    for (let i = 0; i < 2; i++) {
      model.upsertService(claimant("b", NEW));
      model.takeDirty();
      model.upsertService(claimant("b", NEW, { ports: [{ port: 81 }] }));
      model.takeDirty();
    }
    expect(problems).toHaveLength(2);
  });
});
