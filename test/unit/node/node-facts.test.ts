import { describe, expect, it } from "vitest";
import { defaultConfig } from "../../../src/config/load.js";
import { type ProxyConfig } from "../../../src/config/proxy-config.js";
import type { NodeRecord } from "../../../src/objects/records.js";
import { nodeRecord } from "../../support/decoded.ts";
import { localDetector, nodeFacts, nodePortAddresses, type LocalAddress } from "../../../src/node/node-facts.js";

const config = (changes: Partial<ProxyConfig> = {}): ProxyConfig => ({ ...defaultConfig(), ...changes });
const node = (...addresses: [type: string, address: string][]): NodeRecord =>
  nodeRecord({
    metadata: { name: "n1", labels: { "topology.kubernetes.io/zone": "z1" } },
    spec: { podCIDRs: ["10.244.1.0/24", "fd00:10:244:1::/64", "nonsense"] },
    status: { addresses: addresses.map(([type, address]) => ({ type, address })) },
  });
const local = (...addresses: string[]): LocalAddress[] =>
  addresses.map((address) => ({ family: address.includes(":") ? "ip6" : "ip", address }));

describe("nodeFacts", () => {
  it("takes the first InternalIP of each family, then ExternalIPs", () => {
    const facts = nodeFacts(
      config(),
      "n1",
      node(
        ["ExternalIP", "203.0.113.1"],
        ["Hostname", "n1"],
        ["InternalIP", "192.0.2.1"],
        ["ExternalIP", "2001:db8::1"],
      ),
    );
    expect(facts.nodeIPs).toEqual({ ip: "192.0.2.1", ip6: "2001:db8::1" });
    expect(facts.primary).toBe("ip");
    expect(facts.context).toEqual({ nodeName: "n1", zone: "z1" });
    expect(facts.podCIDRs).toEqual(["10.244.1.0/24", "fd00:10:244:1::/64"]);
  });

  it("lets bindAddress override only its own family, unless it is unspecified", () => {
    const n = node(["InternalIP", "192.0.2.1"], ["InternalIP", "2001:db8::1"]);
    expect(nodeFacts(config({ bindAddress: "192.0.2.9" }), "n1", n).nodeIPs).toEqual({
      ip: "192.0.2.9",
      ip6: "2001:db8::1",
    });
    expect(nodeFacts(config({ bindAddress: "::" }), "n1", n).nodeIPs).toEqual({ ip: "192.0.2.1", ip6: "2001:db8::1" });
  });

  it("uses the family of the first address as the primary one, or that of bindAddress", () => {
    const six = node(["InternalIP", "2001:db8::1"], ["InternalIP", "192.0.2.1"]);
    expect(nodeFacts(config(), "n1", six).primary).toBe("ip6");
    const later = node(["ExternalIP", "192.0.2.1"], ["InternalIP", "2001:db8::1"]);
    expect(nodeFacts(config(), "n1", later).primary).toBe("ip6");
    expect(nodeFacts(config({ bindAddress: "192.0.2.9" }), "n1", six).primary).toBe("ip");
    expect(nodeFacts(config({ bindAddress: "2001:db8::9" }), "n1", undefined)).toMatchObject({
      primary: "ip6",
      nodeIPs: { ip: "127.0.0.1", ip6: "2001:db8::9" },
    });
    expect(nodeFacts(config({ bindAddress: "::" }), "n1", undefined).primary).toBe("ip");
  });

  it("knows nothing without a Node", () => {
    expect(nodeFacts(config(), "n1", undefined)).toEqual({
      context: { nodeName: "n1" },
      nodeIPs: { ip: "127.0.0.1", ip6: "::1" },
      unreadableIP: false,
      primary: "ip",
      podCIDRs: [],
    });
  });

  it("survives a Node of any shape", () => {
    const odd = {
      status: { addresses: [null, { type: "InternalIP", address: 5 }, { type: "InternalIP" }] },
      spec: { podCIDRs: "x" },
    };
    expect(nodeFacts(config(), "n1", nodeRecord(odd))).toMatchObject({
      nodeIPs: { ip: "127.0.0.1", ip6: "::1" },
      unreadableIP: true,
    });
  });
});

describe("localDetector", () => {
  const facts = nodeFacts(config(), "n1", node());
  const detect = (changes: Partial<ProxyConfig>, family: "ip" | "ip6" = "ip"): unknown =>
    localDetector(config(changes), facts, family);

  it("uses the cluster's CIDR of the family, or none", () => {
    const clusterCIDRs = ["10.244.0.0/16"];
    expect(detect({ clusterCIDRs })).toEqual({ kind: "cidr", cidrs: ["10.244.0.0/16"] });
    expect(detect({ clusterCIDRs }, "ip6")).toEqual({ kind: "none" });
  });
  it("uses the node's own pod CIDR", () => {
    expect(detect({ detectLocalMode: "NodeCIDR" }, "ip6")).toEqual({ kind: "cidr", cidrs: ["fd00:10:244:1::/64"] });
  });
  it("uses interfaces", () => {
    const detectLocal = { bridgeInterface: "cbr0", interfaceNamePrefix: "veth" };
    expect(detect({ detectLocalMode: "BridgeInterface", detectLocal })).toEqual({ kind: "interface", name: "cbr0" });
    expect(detect({ detectLocalMode: "InterfaceNamePrefix", detectLocal })).toEqual({
      kind: "interface",
      name: "veth*",
    });
  });
});

describe("nodePortAddresses", () => {
  const facts = nodeFacts(config(), "n1", node(["InternalIP", "192.0.2.1"]));
  const interfaces = local("127.0.0.1", "192.0.2.1", "192.0.2.2", "10.0.0.1", "::1", "2001:db8::1");
  const answer = (entries: string[], family: "ip" | "ip6" = "ip"): unknown =>
    nodePortAddresses(config({ nodePortAddresses: entries }), facts, family, interfaces).addresses;

  it("primary means the node's own IP, if an interface has it", () => {
    expect(answer(["primary"])).toEqual(["192.0.2.1"]);
    const elsewhere = nodePortAddresses(config(), facts, "ip", local("10.0.0.1"));
    expect(elsewhere.addresses).toEqual([]);
    expect(elsewhere.warning).toContain("192.0.2.1/32");
  });
  it("primary without a node IP means every local address, with a warning", () => {
    const result = nodePortAddresses(config(), facts, "ip6", interfaces);
    expect(result.addresses).toBe("all");
    expect(result.warning).toContain("IPv6");
  });
  it("primary means no address if an IP of the Node cannot be read", () => {
    const odd = nodeFacts(config(), "n1", node(["InternalIP", "192.0.2.1"], ["InternalIP", "2001:db8::x"]));
    expect(nodePortAddresses(config(), odd, "ip", interfaces).addresses).toEqual(["192.0.2.1"]);
    expect(nodePortAddresses(config(), odd, "ip6", interfaces)).toEqual({
      addresses: [],
      warning: "an IP of the Node cannot be read, so node ports are not reachable on any IPv6 address",
    });
  });
  it("CIDRs select interface addresses, but never loopback", () => {
    expect(answer(["192.0.2.0/24", "127.0.0.0/8"])).toEqual(["192.0.2.1", "192.0.2.2"]);
    expect(answer(["198.51.100.0/24"])).toEqual([]);
  });
  it("primary may be combined with CIDRs", () => {
    expect(answer(["primary", "10.0.0.0/8"])).toEqual(["10.0.0.1", "192.0.2.1"]);
    expect(answer(["primary", "2001:db8::/32"], "ip6")).toEqual(["2001:db8::1"]);
  });
  it("all means every local address except loopback", () => {
    for (const family of ["ip", "ip6"] as const) {
      const result = nodePortAddresses(config({ nodePortAddresses: ["all"] }), facts, family, interfaces);
      expect(result).toEqual({ addresses: "all" });
    }
  });
  it("localhost means loopback of both families, in addition to other entries", () => {
    const places = (entries: string[], family: "ip" | "ip6", changes: Partial<ProxyConfig> = {}) =>
      nodePortAddresses(config({ nodePortAddresses: entries, ...changes }), facts, family, interfaces);
    const four = { nets: ["127.0.0.0/8"], source: "192.0.2.1" };
    expect(places(["localhost"], "ip")).toEqual({ addresses: [], localhost: four });
    expect(places(["primary", "localhost"], "ip")).toEqual({ addresses: ["192.0.2.1"], localhost: four });
    expect(places(["all", "localhost"], "ip")).toEqual({ addresses: "all", localhost: four });
    expect(places(["127.0.0.1/32", "0.0.0.0/0"], "ip").localhost).toEqual({ ...four, nets: ["127.0.0.1/32"] });
    expect(places(["localhost"], "ip6").localhost).toEqual({ nets: ["::1/128"], source: "2001:db8::1" });
    expect(places(["127.0.0.0/8"], "ip6")).toEqual({ addresses: "all" });
    expect(places(["localhost"], "ip", { localhostNodePorts: false })).toEqual({ addresses: [] });
  });
  it("localhost and primary without a node IP mean only loopback, with a warning", () => {
    const both = config({ nodePortAddresses: ["primary", "localhost"] });
    expect(nodePortAddresses(both, facts, "ip6", interfaces)).toEqual({
      addresses: [],
      localhost: { nets: ["::1/128"], source: "2001:db8::1" },
      warning:
        "no IPv6 address of this node is known, so node ports are not reachable on any IPv6 address except loopback",
    });
  });
  it("localhost needs a node address that is neither loopback nor link-local", () => {
    const both = config({ nodePortAddresses: ["localhost"] });
    const result = nodePortAddresses(both, facts, "ip6", local("::1", "fe80::1"));
    expect(result.localhost).toBeUndefined();
    expect(result.warning).toContain("node ports are not reachable on ::1/128");
  });
  it("a family without an entry, and a zero CIDR, mean every local address", () => {
    expect(answer(["192.0.2.0/24"], "ip6")).toBe("all");
    expect(answer(["0.0.0.0/0"])).toBe("all");
  });
});
