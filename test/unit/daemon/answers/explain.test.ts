/** How `explain` parses its arguments, and its notes about services. */
import { expect, test } from "vitest";
import { ownerOf, packetOf } from "../../../../src/tools/explain/packet-report.js";
import type { Explanation } from "../../../../src/tools/explain/explain-packet.js";
import { differenceNotes, nearestNotes, nodePortNotes } from "../../../../src/tools/explain/service-notes.js";
import type { NodePortStatus, ServicePortStatus } from "../../../../src/observe/status-report.js";
import { PORT_STATUS } from "../../observe/port-status.ts";

test.each([
  [["10.96.0.80:80"], { protocol: "tcp", source: "192.0.2.1", destination: "10.96.0.80", destinationPort: 80 }],
  [["udp", "10.244.0.5", "10.96.0.10:53"], { protocol: "udp", source: "10.244.0.5", destinationPort: 53 }],
  [["[fd00:10:96::50]:443"], { family: "ip6", source: "2001:db8::1", destination: "fd00:10:96::50" }],
  [["sctp", "FD00::5", "[fd00:10:96:0::50]:1"], { protocol: "sctp", source: "fd00::5", destination: "fd00:10:96::50" }],
])("%j", (words, expected) => {
  expect(packetOf(words, "")).toMatchObject(expected);
});

test.each([
  [[], /not an address and port/],
  [["10.96.0.80"], /not an address and port/],
  [["10.96.0.80:0"], /not an address and port/],
  [["10.96.0.80:65536"], /not an address and port/],
  [["icmp", "10.0.0.1", "10.96.0.80:80"], /not an address and port/],
  [["fd00::1", "10.96.0.80:80"], /fd00::1 is not an address of the destination's family/],
  [["web", "10.96.0.80:80"], /web is not an address of the destination's family/],
])("%j is an error that shows the form", (words, message) => {
  expect(() => packetOf(words, "")).toThrow(message);
});

const web: ServicePortStatus = {
  ...PORT_STATUS,
  namespace: "demo",
  portName: "http",
  clusterIP: "10.96.0.80",
  loadBalancerIPs: ["203.0.113.80"],
  nodePort: 30_080,
};

test("the answer says whose address it is: a VIP with port and protocol, or a node port", () => {
  expect(ownerOf(packetOf(["10.96.0.80:80"], ""), [web])).toBe(web);
  expect(ownerOf(packetOf(["203.0.113.80:80"], ""), [web])).toBe(web);
  expect(ownerOf(packetOf(["192.0.2.10:30080"], ""), [web])).toBe(web);
  expect(ownerOf(packetOf(["udp", "10.96.0.80:80"], ""), [web])).toBeUndefined();
  expect(ownerOf(packetOf(["10.96.0.80:81"], ""), [web])).toBeUndefined();
});

test("this node is the source of a packet to loopback, unless a source is given", () => {
  expect(packetOf(["127.0.0.2:30080"], "")).toMatchObject({ source: "127.0.0.1", destination: "127.0.0.2" });
  expect(packetOf(["udp", "[::1]:30080"], "")).toMatchObject({ source: "::1", protocol: "udp" });
  expect(packetOf(["192.0.2.9", "127.0.0.1:30080"], "").source).toBe("192.0.2.9");
});

test("a node port on an address without node ports gets the addresses that have them", () => {
  const untouched: Explanation = { verdict: "untouched", endpoints: [], draws: 0, steps: [], unknown: [] };
  const packet = packetOf(["127.0.0.1:30080"], "");
  const notes = (nodePorts: NodePortStatus) => nodePortNotes(packet, untouched, web, nodePorts);
  expect(notes({ nodePortAddresses: ["192.0.2.10"] })).toEqual([
    "node port 30080 belongs to demo/web, but this node serves node ports on 192.0.2.10, not on 127.0.0.1",
  ]);
  expect(notes({ nodePortAddresses: "all" })).toEqual([
    "node port 30080 belongs to demo/web, but this node serves node ports on every local address except loopback, not on 127.0.0.1",
  ]);
  const second = { nodePortAddresses: "all", localhostNodePorts: ["127.0.0.2/32"] } as const;
  expect(notes(second)[0]).toContain("serves node ports on 127.0.0.2/32, every other local address, not on 127.0.0.1");
  expect(notes({})).toEqual([]);
});

test("the nearest match for an unused node port is a node port, not a VIP", () => {
  const other = { ...web, name: "other", nodePort: 30_500 };
  const udp = { ...web, name: "dns", protocol: "UDP" as const, nodePort: 30_600 };
  const packet = packetOf(["192.0.2.10:30600"], "");
  const nearest = (services: readonly ServicePortStatus[]) => nearestNotes(packet, services, true);
  expect(nearest([web, other])).toEqual(["no service has node port 30600/TCP; the nearest is 30500/TCP of demo/other"]);
  expect(nearest([web, udp])).toEqual(["no service has node port 30600/TCP; the nearest is 30600/UDP of demo/dns"]);
  expect(nearest([{ ...web, nodePort: 0 }])).toEqual(["no service has node port 30600/TCP"]);
  expect(nearestNotes(packet, [web], false)).toEqual([
    "no service has this address; the nearest is 203.0.113.80:80/TCP of demo/web",
  ]);
});

test("the kernel's endpoints are compared with the daemon's desired ones", () => {
  const drawnOf = (draws: number, ...addresses: readonly string[]): Explanation => ({
    verdict: "endpoint",
    draws,
    endpoints: addresses.map((address) => ({ address, port: 8080, share: 1 / addresses.length, masqueraded: false })),
    steps: [],
    unknown: [],
  });
  const drawn = (...addresses: readonly string[]): Explanation => drawnOf(addresses.length, ...addresses);
  const endpoint = (address: string, clusterShare: number, localShare: number) => ({
    ...{ address, port: 8080, local: localShare > 0, ready: true, serving: true, terminating: false },
    ...{ clusterShare, localShare },
  });
  const desired = { ...web, endpoints: [endpoint("10.1.0.1", 0.5, 1), endpoint("10.1.0.2", 0.5, 0)] };
  expect(differenceNotes(drawn("10.1.0.2", "10.1.0.1"), desired)).toEqual([]);
  expect(differenceNotes(drawn("10.1.0.1"), desired)).toEqual([]);
  expect(differenceNotes(drawn("10.1.0.1", "10.1.0.9"), desired)).toEqual([
    "the kernel has 10.1.0.9:8080, which the daemon does not want, and lacks 10.1.0.2:8080; a change is pending or was refused (see `nft-proxier status`)",
  ]);
  expect(differenceNotes(drawn("10.1.0.9"), web)).toEqual([]);
  // The endpoint was drawn at random, so all others should appear. If the client decides (balance consistent,
  // affinity), other endpoints do not appear.
  expect(differenceNotes(drawn("10.1.0.2"), desired)[0]).toContain("the kernel lacks 10.1.0.1:8080; ");
  expect(differenceNotes(drawnOf(0, "10.1.0.2"), desired)).toEqual([]);
  expect(differenceNotes(drawnOf(0, "10.1.0.9"), desired)[0]).toContain(
    "the kernel has 10.1.0.9:8080, which the daemon does not want",
  );
  // Not every random number was followed.
  expect(differenceNotes(drawnOf(16_384, "10.1.0.2"), desired)).toEqual([]);
});
