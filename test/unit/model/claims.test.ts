import { describe, expect, test } from "vitest";
import { Claims } from "../../../src/model/claims.js";
import { NO_ENDPOINTS } from "../../../src/objects/endpoint-list.js";
import type { ServiceRecord } from "../../../src/objects/records.js";
import { type ModelUnderTest, newModel, service, slice } from "./objects.js";

const OLD = { creationTimestamp: "2024-01-01T00:00:00Z" };
const NEW = { creationTimestamp: "2025-01-01T00:00:00Z" };

/** A service with the external IP that all claim. */
function claimant(name: string, metadata: Record<string, unknown> = {}, spec: Record<string, unknown> = {}) {
  const last = name.charCodeAt(0) - 96;
  return service(name, { clusterIP: `10.0.0.${last}`, externalIPs: ["192.0.2.1"], ...spec }, { metadata });
}

describe("Claims: the holder of a VIP", () => {
  test.each<[string, [string, Record<string, unknown>][], string, string?]>([
    [
      "the older one",
      [
        ["a", NEW],
        ["b", OLD],
      ],
      "b",
    ],
    [
      "by name if equally old",
      [
        ["b", OLD],
        ["a", OLD],
      ],
      "a",
      "comes first by name",
    ],
    [
      "by name if no age is known",
      [
        ["b", {}],
        ["a", {}],
      ],
      "a",
      "comes first by name",
    ],
    [
      "one with a known age before one without",
      [
        ["a", {}],
        ["b", NEW],
      ],
      "b",
    ],
    [
      "one of three",
      [
        ["c", NEW],
        ["a", {}],
        ["b", OLD],
      ],
      "b",
    ],
    [
      "a Date counts like its text",
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
      "comes first by name",
    ],
  ])("%s", (_name, services, winner, why = "was there first") => {
    for (const order of [services, services.toReversed()]) {
      const { model, problems } = newModel();
      for (const [name, metadata] of order) model.upsertService(claimant(name, metadata));
      const { services: dirty } = model.takeDirty();
      const holders = dirty.filter((name) => model.views("ip", name)[0]?.externalIPs.length === 1);
      expect(holders.map((name) => name.split("/")[1])).toEqual([winner]);
      expect(problems).toHaveLength(services.length - 1);
      expect(problems.join()).toContain(`192.0.2.1:80/TCP belongs to ${holders[0]}, which ${why}`);
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
  ])("no conflict: %s", (_name, a, b) => {
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
      "Service default/b status.loadBalancer.ingress: 10.0.0.1:80/TCP belongs to default/a, which was there first",
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
      "Service default/b spec.clusterIP: 10.0.0.1:80/TCP belongs to default/a, which was there first",
    ]);
  });

  test("a node port is claimed in each family separately", () => {
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

  test("a loser without an external VIP left uses the list of its policies", () => {
    const { model, view } = newModel();
    model.upsertService(claimant("a", OLD));
    model.upsertService(claimant("b", NEW, { externalTrafficPolicy: "Local" }));
    model.upsertSlice(slice("r", "a", ["10.1.0.2"]));
    model.upsertSlice(slice("s", "b", [{ addresses: ["10.1.0.1"], nodeName: "here" }]));
    expect(view("b")).toMatchObject({ externalIPs: [], localEndpoints: NO_ENDPOINTS });
    expect([...view("b").clusterEndpoints]).toMatchObject([{ local: true }]);
  });
});

describe("Claims: taking over", () => {
  test("the next service gets the VIP when the winner is deleted, and is then the winner", () => {
    const { model, view, problems, transfers } = newModel();
    model.upsertService(claimant("a", OLD));
    model.upsertService(claimant("b", NEW));
    model.upsertService(claimant("c", NEW));
    model.takeDirty();
    problems.length = 0;
    model.removeService("default/a");
    expect([...model.takeDirty().services].sort()).toEqual(["default/a", "default/b"]);
    expect(view("b").externalIPs).toEqual(["192.0.2.1"]);
    expect(view("c").externalIPs).toEqual([]);
    model.removeService("default/b");
    expect([...model.takeDirty().services].sort()).toEqual(["default/b", "default/c"]);
    expect(view("c").externalIPs).toEqual(["192.0.2.1"]);
    expect(transfers).toEqual([
      "default/b from default/a: 192.0.2.1:80/TCP (no longer claimed there)",
      "default/c from default/b: 192.0.2.1:80/TCP (no longer claimed there)",
    ]);
    expect(problems).toEqual([]);
  });

  test("the next service gets the VIP when the winner releases only the address", () => {
    const { model, view } = newModel();
    model.upsertService(claimant("a", OLD));
    model.upsertService(claimant("b", NEW));
    model.takeDirty();
    model.upsertService(claimant("a", OLD, { externalIPs: [] }));
    expect([...model.takeDirty().services].sort()).toEqual(["default/a", "default/b"]);
    expect(view("b").externalIPs).toEqual(["192.0.2.1"]);
  });

  test("an older service that arrives later takes the VIP back, and the loser is dirty", () => {
    const { model, view } = newModel();
    model.upsertService(claimant("b", NEW));
    model.takeDirty();
    model.upsertService(claimant("a", OLD));
    expect([...model.takeDirty().services].sort()).toEqual(["default/a", "default/b"]);
    expect(view("b").externalIPs).toEqual([]);
  });

  test("losers that are added and deleted do not affect the winner", () => {
    const { model, view } = newModel();
    model.upsertService(claimant("a", OLD));
    model.takeDirty();
    model.upsertService(claimant("b", NEW));
    expect(model.takeDirty().services).toEqual(["default/b"]);
    model.removeService("default/b");
    expect(model.takeDirty().services).toEqual(["default/b"]);
    expect(view("a").externalIPs).toEqual(["192.0.2.1"]);
  });

  test("an address that moves between two services in one change is no conflict", () => {
    const { model, problems } = newModel();
    model.upsertService(claimant("a", OLD));
    model.takeDirty();
    model.upsertService(claimant("b", NEW));
    model.removeService("default/a");
    model.takeDirty();
    expect(problems).toEqual([]);
  });

  test("the loser against an earlier service without a creation time gets the same message later, whatever their names", () => {
    const { model, problems } = newModel();
    for (const name of ["b", "a"]) {
      model.upsertService(claimant(name));
      model.takeDirty();
    }
    const reason = "192.0.2.1:80/TCP belongs to default/b, which was there first";
    expect(problems).toEqual([`Service default/a spec.externalIPs: ${reason}`]);
    expect(Array.from(model.lostClaims(), (lost) => lost.reason)).toEqual([reason]);
  });

  test("a conflict that returns is reported again", () => {
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

describe("Claims: endpoints", () => {
  const up = (name: string, conditions: Record<string, unknown> = {}) =>
    slice(`${name}-1`, name, [{ addresses: [`10.1.0.${name.charCodeAt(0)}`], nodeName: "n1", conditions }]);
  const holders = ({ model }: ModelUnderTest) =>
    ["a", "b", "c"].filter((name) => model.views("ip", `default/${name}`)[0]?.externalIPs.length === 1).join();

  test("the first service with a usable endpoint holds the VIP, or without any, the first service", () => {
    const under = newModel();
    const { model, problems } = under;
    model.upsertService(claimant("a", OLD));
    model.upsertService(claimant("b", NEW));
    expect(holders(under)).toBe("a");
    model.upsertSlice(up("b"));
    expect(holders(under)).toBe("b");
    model.takeDirty();
    expect(problems).toEqual([
      "Service default/a spec.externalIPs: 192.0.2.1:80/TCP belongs to default/b, which has a usable endpoint, unlike this service",
    ]);
  });

  test.each<[string, Record<string, unknown>, string]>([
    ["ready", {}, "a"],
    ["serving and terminating", { ready: false, serving: true, terminating: true }, "a"],
    ["not ready", { ready: false }, "b"],
    ["terminating, and no longer serving", { ready: false, serving: false, terminating: true }, "b"],
  ])("an endpoint that is %s counts or not, on any node and for every policy", (_what, conditions, holder) => {
    for (const policy of ["Cluster", "Local"]) {
      const under = newModel();
      const policies = { internalTrafficPolicy: policy, externalTrafficPolicy: policy };
      under.model.upsertService(claimant("a", OLD, policies));
      under.model.upsertService(claimant("b", NEW, policies));
      under.model.upsertSlice(up("a", conditions));
      under.model.upsertSlice(up("b"));
      expect(holders(under)).toBe(holder);
    }
  });

  test("a holder without endpoints passes the claim on, and regains it with the next endpoint: each change is reported once", () => {
    const under = newModel();
    const { model, problems, transfers } = under;
    model.upsertService(claimant("a", OLD));
    model.upsertService(claimant("b", NEW));
    model.upsertSlice(up("a"));
    model.upsertSlice(up("b"));
    model.takeDirty();
    expect(problems).toHaveLength(1);
    for (let round = 0; round < 2; round++) {
      model.upsertSlice(up("a", { ready: false }));
      expect([...model.takeDirty().services].sort()).toEqual(["default/a", "default/b"]);
      expect(holders(under)).toBe("b");
      model.upsertSlice(slice("b-2", "b", [`10.1.1.${round}`]));
      expect(model.takeDirty().services).toEqual(["default/b"]);
      model.upsertSlice(up("a"));
      expect([...model.takeDirty().services].sort()).toEqual(["default/a", "default/b"]);
      expect(holders(under)).toBe("a");
      model.upsertSlice(slice("a-2", "a", [`10.1.2.${round}`]));
      expect(model.takeDirty().services).toEqual(["default/a"]);
      model.removeSlice("default/a-2");
      model.takeDirty();
    }
    const round = [
      "default/b from default/a: 192.0.2.1:80/TCP (no usable endpoint there)",
      "default/a from default/b: 192.0.2.1:80/TCP (precedence)",
    ];
    expect(transfers).toEqual([...round, ...round]);
    expect(problems).toHaveLength(1);
  });

  test("endpoints that are deleted and added in one group of changes cause no change of owner", () => {
    const under = newModel();
    const { model, transfers } = under;
    model.upsertService(claimant("a", OLD));
    model.upsertService(claimant("b", NEW));
    model.upsertSlice(up("a"));
    model.upsertSlice(up("b"));
    model.takeDirty();
    model.removeSlice("default/a-1");
    model.upsertSlice(up("a"));
    model.takeDirty();
    expect([holders(under), transfers]).toEqual(["a", []]);
  });

  test("count by the name of the claiming port, and in each family separately", () => {
    const { model } = newModel();
    const ports = [{ name: "web", port: 80, nodePort: 30080 }];
    const both = (name: string, n: number, metadata: Record<string, unknown>) =>
      service(name, { clusterIPs: [`10.0.0.${n}`, `fd00::${n}`], ports }, { metadata });
    model.upsertService(both("a", 1, OLD));
    model.upsertService(both("b", 2, NEW));
    const named = (name: string, port: string) =>
      slice(`${name}-${port}`, name, ["10.1.0.1"], { ports: [{ name: port, port: 8080 }] });
    model.upsertSlice(named("a", "other"));
    model.upsertSlice(named("b", "web"));
    const holder = (family: "ip" | "ip6") =>
      ["a", "b"].filter((name) => model.views(family, `default/${name}`)[0]?.nodePort === 30080).join();
    expect([holder("ip"), holder("ip6")]).toEqual(["b", "a"]);
    model.upsertService(
      service("a", { clusterIPs: ["10.0.0.1", "fd00::1"], ports: [{ ...ports[0], name: "other" }] }, { metadata: OLD }),
    );
    expect([holder("ip"), holder("ip6")]).toEqual(["a", "a"]);
  });
});

describe("Claims: without creation times", () => {
  const holder = ({ model }: ModelUnderTest) =>
    ["a", "b", "c"].filter((name) => model.views("ip", `default/${name}`)[0]?.externalIPs.length === 1).join();

  test("the active service keeps its claim when another one arrives later, whatever their names", () => {
    const under = newModel();
    const { model, problems, transfers } = under;
    model.upsertService(claimant("b"));
    model.takeDirty();
    model.upsertService(claimant("a"));
    expect(model.takeDirty().services).toEqual(["default/a"]);
    expect(holder(under)).toBe("b");
    expect(problems).toEqual([
      "Service default/a spec.externalIPs: 192.0.2.1:80/TCP belongs to default/b, which was there first",
    ]);
    // Its other fields may change, and so may those of the waiting service.
    model.upsertService(claimant("b", {}, { sessionAffinity: "ClientIP" }));
    model.upsertService(claimant("a", {}, { sessionAffinity: "ClientIP" }));
    model.takeDirty();
    expect(holder(under)).toBe("b");
    model.removeService("default/b");
    model.takeDirty();
    expect(holder(under)).toBe("a");
    model.upsertService(claimant("b"));
    model.takeDirty();
    expect(holder(under)).toBe("a");
    expect(transfers).toEqual(["default/a from default/b: 192.0.2.1:80/TCP (no longer claimed there)"]);
  });

  test("an older service that claims an address later has the later claim", () => {
    const under = newModel();
    const { model } = under;
    model.upsertService(claimant("a", {}, { externalIPs: [] }));
    model.upsertService(claimant("b"));
    model.takeDirty();
    model.upsertService(claimant("a"));
    model.takeDirty();
    expect(holder(under)).toBe("b");
    model.upsertService(claimant("c"));
    model.takeDirty();
    model.removeService("default/b");
    model.takeDirty();
    expect(holder(under)).toBe("a");
  });

  test("a later service serves as long as the earlier ones have no usable endpoint", () => {
    const under = newModel();
    const { model } = under;
    model.upsertService(claimant("b"));
    model.takeDirty();
    model.upsertService(claimant("a"));
    model.upsertSlice(slice("a-1", "a", ["10.1.0.1"]));
    model.takeDirty();
    expect(holder(under)).toBe("a");
    model.upsertSlice(slice("b-1", "b", ["10.1.0.2"]));
    model.takeDirty();
    expect(holder(under)).toBe("b");
  });
});

describe("Claims: source ranges of any claimant protect the address", () => {
  const balanced = (name: string, metadata: Record<string, unknown>, ranges: readonly string[]) =>
    service(
      name,
      { clusterIP: `10.0.0.${name.charCodeAt(0)}`, type: "LoadBalancer", loadBalancerSourceRanges: ranges },
      {
        metadata,
        status: { loadBalancer: { ingress: [{ ip: "192.0.2.1" }, { ip: `192.0.2.${name.charCodeAt(0)}` }] } },
      },
    );

  test("the holder's view has the others' ranges", () => {
    const { model, view } = newModel();
    model.upsertService(balanced("a", OLD, []));
    model.takeDirty();
    expect(view("a").guards).toBeUndefined();
    model.upsertService(balanced("b", NEW, ["10.0.0.0/8"]));
    expect([...model.takeDirty().services].sort()).toEqual(["default/a", "default/b"]);
    const sources = [{ sourceRanges: ["10.0.0.0/8"], loadBalancerIPs: ["192.0.2.1", "192.0.2.98"] }];
    expect(view("a").guards).toEqual([{ address: "192.0.2.1", sources }]);
    expect(view("b").guards).toBeUndefined();
    model.upsertService(balanced("b", NEW, []));
    expect([...model.takeDirty().services].sort()).toEqual(["default/a", "default/b"]);
    expect(view("a").guards).toBeUndefined();
  });

  test("only load-balancer IPs of the others are protected", () => {
    const { model, view } = newModel();
    model.upsertService(claimant("a", OLD));
    model.upsertService(claimant("b", NEW, { loadBalancerSourceRanges: ["10.0.0.0/8"] }));
    model.takeDirty();
    expect(view("a").guards).toBeUndefined();
    model.upsertService(balanced("c", NEW, ["10.0.0.0/8"]));
    model.takeDirty();
    expect(view("a").guards).toMatchObject([{ address: "192.0.2.1" }]);
  });
});

test("one of thousands of claimants is asked for its endpoints only when it changes", () => {
  let asked = 0;
  const usable = new Set<string>();
  const claims = new Claims("ip", {
    affected: () => undefined,
    usable: ({ name }) => (asked++, usable.has(name)),
    ofLastRound: () => undefined,
    keepUnclaimed: false,
  });
  const ip = { clusterIP: "10.0.0.1", externalIPs: [], loadBalancerIPs: [], sourceRanges: undefined };
  const all = Array.from({ length: 3000 }, (_, i): ServiceRecord => ({
    ...{ name: `default/s${(i * 7919) % 3000}`, uid: "", created: Infinity, ip, ip6: undefined },
    ports: [{ name: "", protocol: "TCP", port: 80, nodePort: 0 }],
    ...{ internalPolicyLocal: false, externalPolicyLocal: false, affinitySeconds: 0, balance: undefined },
    ...{ limits: undefined, resetRemovedEndpoints: false, drainSeconds: 0, healthCheckPort: 0 },
  }));
  for (const record of all) claims.put(undefined, record);
  expect(asked).toBe(all.length);
  const loss = (record: ServiceRecord) =>
    claims.loss(record, { family: "ip", address: "10.0.0.1", protocol: "TCP", port: 80 });
  expect(loss(all[1234])).toMatchObject({ holder: "default/s0", reason: "name" });
  claims.endRound();
  usable.add(all[2000].name);
  claims.endpointsChanged(all[2000]);
  expect(asked).toBe(all.length + 1);
  expect(all.filter((record) => loss(record) === undefined)).toEqual([all[2000]]);
  expect(loss(all[0])).toMatchObject({ holder: all[2000].name, reason: "endpoints" });
  expect(asked).toBe(all.length + 1);
});
