/**
 * The model's information for existing connections: every endpoint with its state and owners, and removed addresses.
 */
import { addressText } from "../../../src/model/service-address.js";
import { describe, expect, test } from "vitest";
import { newModel, service, slice } from "./objects.js";

const UDP = [{ port: 53, protocol: "UDP" }];
const dns = (spec: Record<string, unknown> = {}) => service("dns", { ports: UDP, ...spec });
const dnsSlice = (endpoints: Parameters<typeof slice>[2]) =>
  slice("dns-1", "dns", endpoints, { ports: [{ port: 5353, protocol: "UDP" }] });

describe("targets: endpoints of a service port", () => {
  test("policies and hints exclude none, and each says whether it receives traffic", () => {
    const { model } = newModel();
    model.upsertService(dns({ internalTrafficPolicy: "Local", externalIPs: ["192.0.2.1"] }));
    model.upsertSlice(
      dnsSlice([
        { addresses: ["10.1.0.1"], nodeName: "here", hints: { forZones: [{ name: "a" }] } },
        { addresses: ["10.1.0.2"], nodeName: "there", hints: { forZones: [{ name: "b" }] } },
        { addresses: ["10.1.0.3"], conditions: { ready: false, serving: true, terminating: true } },
        { addresses: ["10.1.0.4"], conditions: { ready: false, serving: false, terminating: true } },
        { addresses: ["10.1.0.5"], conditions: { ready: true, serving: false } },
      ]),
    );
    const [target] = model.targets("ip", "default/dns");
    expect(target).toMatchObject({ id: "default/dns/UDP", addresses: ["10.0.0.1", "192.0.2.1"], nodePort: 0 });
    expect(target?.endpoints.map(({ address, port }, i) => `${address}:${port} ${target.serving[i]}`)).toEqual([
      "10.1.0.1:5353 true",
      "10.1.0.2:5353 true",
      "10.1.0.3:5353 true",
      "10.1.0.4:5353 false",
      "10.1.0.5:5353 true",
    ]);
  });

  test("an address that another service claimed first is not among its own", () => {
    const { model } = newModel();
    model.upsertService(dns({ externalIPs: ["192.0.2.1"] }));
    const old = { metadata: { creationTimestamp: "2020-01-01T00:00:00Z" } };
    model.upsertService(service("old", { clusterIP: "10.0.0.2", ports: UDP, externalIPs: ["192.0.2.1"] }, old));
    expect([...model.targets("ip", "default/dns")][0]?.addresses).toEqual(["10.0.0.1"]);
    expect(model.ownerOf({ family: "ip", address: "192.0.2.1", protocol: "UDP", port: 53 })).toBe("default/old");
    expect(model.ownerOf({ family: "ip", address: "192.0.2.1", protocol: "TCP", port: 53 })).toBeUndefined();
    expect(model.targets("ip6", "default/dns")).toEqual([]);
  });

  test("the annotation requests resets only for TCP, and a value that is not a boolean is reported and ignored", () => {
    const { model, problems } = newModel();
    const annotations = { "nft-proxier.dev/reset-removed-endpoints": "true" };
    const ports = [
      { name: "t", port: 53 },
      { name: "u", port: 53, protocol: "UDP" },
    ];
    model.upsertService(service("dns", { ports }, { metadata: { annotations } }));
    expect([...model.targets("ip", "default/dns")].map((target) => target.resetRemovedEndpoints)).toEqual([
      true,
      false,
    ]);
    expect(model.views("ip", "default/dns").map((view) => view.resetRemovedEndpoints)).toEqual([true, false]);
    annotations["nft-proxier.dev/reset-removed-endpoints"] = "yes";
    model.upsertService(service("dns", { ports }, { metadata: { annotations } }));
    expect([...model.targets("ip", "default/dns")].map((target) => target.resetRemovedEndpoints)).toEqual([
      false,
      false,
    ]);
    expect(problems).toEqual([
      'Service default/dns metadata.annotations["nft-proxier.dev/reset-removed-endpoints"]: ' +
        '"yes" is neither "true" nor "false"; using "false"',
    ]);
  });
});

test("endpoints are known from any slice that names them, whichever service it belongs to", () => {
  const { model } = newModel();
  model.upsertSlice(dnsSlice([{ addresses: ["10.1.0.1"], conditions: { ready: false, serving: false } }]));
  const wanted = new Set(["10.1.0.1 5353 UDP", "10.1.0.1 5353 TCP", "10.1.0.1 53 UDP", "10.1.0.9 5353 UDP"]);
  expect(model.endpointsAmong("ip", wanted)).toEqual(new Set(["10.1.0.1 5353 UDP"]));
  expect(model.endpointsAmong("ip6", wanted).size).toBe(0);
});

describe("targets: removed addresses", () => {
  const tracked = () => {
    const { model } = newModel({ trackRemovals: true });
    const removed = () =>
      model
        .takeRemovals()
        .map(({ address, service: of, endpoints }) => [addressText(address), of, ...(endpoints ?? [])].join(" "));
    return { model, removed };
  };
  const full = dns({ type: "NodePort", externalIPs: ["192.0.2.1"], ports: [{ ...UDP[0], nodePort: 30053 }] });

  test("the removals of a deleted service are every address and its node port, with the endpoints of its slices", () => {
    const { model, removed } = tracked();
    model.upsertService(full);
    model.upsertSlice(dnsSlice(["10.1.0.1", "10.1.0.2"]));
    expect(removed()).toEqual([]);
    model.removeService("default/dns");
    expect(removed().sort()).toEqual([
      "10.0.0.1:53/UDP default/dns 10.1.0.1 5353 10.1.0.2 5353",
      "192.0.2.1:53/UDP default/dns 10.1.0.1 5353 10.1.0.2 5353",
      "IPv4 node port 30053/UDP default/dns 10.1.0.1 5353 10.1.0.2 5353",
    ]);
    expect(removed()).toEqual([]);
  });

  test("endpoints that were removed before the service are remembered with it, replaced ones too", () => {
    const { model, removed } = tracked();
    model.upsertService(dns());
    model.upsertSlice(dnsSlice(["10.1.0.1"]));
    model.upsertSlice(dnsSlice(["10.1.0.2"]));
    model.removeSlice("default/dns-1");
    model.removeService("default/dns");
    expect(removed()).toEqual(["10.0.0.1:53/UDP default/dns 10.1.0.1 5353 10.1.0.2 5353"]);
  });

  test("a port or address that changes is removed, unless it stays or moves to another service", () => {
    const { model, removed } = tracked();
    model.upsertService(full);
    model.upsertService(dns({ externalIPs: ["192.0.2.2"], ports: [{ port: 54, protocol: "UDP", nodePort: 30053 }] }));
    expect(removed().sort()).toEqual(["10.0.0.1:53/UDP default/dns", "192.0.2.1:53/UDP default/dns"]);
    model.removeService("default/dns");
    model.upsertService(service("heir", { ports: [{ port: 54, protocol: "UDP" }] }));
    expect(removed().sort()).toEqual(["192.0.2.2:54/UDP default/dns", "IPv4 node port 30053/UDP default/dns"]);
  });
});
