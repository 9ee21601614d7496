/** Results for whole objects; the model's tests cover their fields. */
import { expect, test } from "vitest";
import type { Fields } from "../../../src/base/unknown.js";
import { nameOf, ObjectDecoder } from "../../../src/objects/decode/object-decoder.js";
import type { KubeKind } from "../../../src/objects/object-sink.js";

const KINDS = ["Service", "EndpointSlice", "Node", "ServiceCIDR"] as const;

test("ObjectDecoder: an object that does not fit its kind has problems and no record", () => {
  const decoder = new ObjectDecoder({ nodeName: "n1" });
  for (const kind of KINDS) {
    for (const object of [{ metadata: 7, spec: "x", status: null, endpoints: 5 }, {}]) {
      const decoded = decoder.decode(kind, "a/web", object);
      expect(decoded).toMatchObject({ kind, name: "a/web" });
      if (kind === "Service" || kind === "EndpointSlice") {
        expect(decoded).toMatchObject({ record: undefined, problems: expect.anything() as unknown });
      }
    }
  }
});

test("ObjectDecoder: another proxy's Service is not served, and causes no problem", () => {
  const labels = { "service.kubernetes.io/service-proxy-name": "other" };
  const object = { metadata: { name: "web", labels }, spec: { clusterIP: "10.0.0.1", ports: [{ port: 80 }] } };
  expect(new ObjectDecoder({ nodeName: "n1" }).decode("Service", "a/web", object)).toEqual({
    kind: "Service",
    name: "a/web",
    record: undefined,
    skipped: "its label service.kubernetes.io/service-proxy-name assigns it to another proxy",
    problems: undefined,
  });
});

test("a Node's fields that cannot be read are reported, and the others are used", () => {
  const zone = "topology.kubernetes.io/zone";
  const address = (type: unknown, text: unknown) => ({ type, address: text });
  const object = {
    metadata: { name: "n", labels: { [zone]: 7 }, deletionTimestamp: "2026-01-01T00:00:00Z" },
    spec: { podCIDR: 5, podCIDRs: ["10.244.0.0/240", "10.244.1.7/24"], taints: [{ key: "a" }, "b", { key: 3 }] },
    status: {
      addresses: [
        address("ExternalIP", "203.0.113.1"),
        address("InternalIP", "192.0.2.x"),
        address("InternalIP", "192.0.2.1"),
        address("InternalIP", "192.0.2.2"),
        address("Hostname", "n"),
        address("Hostname", 5),
        "fd00::1",
        address("InternalIP", "FD00::2"),
      ],
    },
  };
  const { record, problems } = new ObjectDecoder({ nodeName: "n" }).decode("Node", "n", object);
  expect(record).toMatchObject({
    ...{ zone: "", deleted: true, taints: ["a", "", ""], hostIPs: ["192.0.2.1", "fd00::2"], unreadableIP: true },
    podCIDRs: [{ field: "spec.podCIDRs[1]", prefix: { text: "10.244.1.0/24" } }],
  });
  expect(Object.fromEntries(problems ?? [])).toEqual({
    [`metadata.labels["${zone}"]`]: "7 is not a string",
    "spec.podCIDR": "5 is not a string",
    "spec.podCIDRs[0]": '"10.244.0.0/240" is not a CIDR',
    "spec.taints[1]": '"b" is not an object',
    "spec.taints[2].key": "3 is not a string",
    "status.addresses[1].address": '"192.0.2.x" is not an IP address',
    "status.addresses[5].address": "5 is not a string",
    "status.addresses[6]": '"fd00::1" is not an object',
  });
});

test.each([5, { addresses: 5 }, { addresses: [null] }])(
  "a Node whose status is %j may have an IP of any family",
  (status) => {
    const { record, problems } = new ObjectDecoder({ nodeName: "n" }).decode("Node", "n", { status });
    expect([record, problems?.size]).toEqual([expect.objectContaining({ hostIPs: [], unreadableIP: true }), 1]);
  },
);

test("onPod is called for endpoints that are Pods", () => {
  const pods: string[] = [];
  const decoder = new ObjectDecoder({ nodeName: "n1", onPod: (address, pod) => pods.push(`${address} ${pod}`) });
  const pod = (address: unknown, targetRef: unknown) => ({ addresses: [address], targetRef });
  decoder.decode("EndpointSlice", "shop/web-1", {
    endpoints: [
      pod("10.0.0.1", { kind: "Pod", name: "web-a" }),
      pod("10.0.0.2", { kind: "Pod", name: "web-b", namespace: "other" }),
      pod("10.0.0.3", { kind: "Node", name: "n1" }),
      pod(5, { kind: "Pod", name: "odd" }),
      "nonsense",
    ],
  });
  expect(pods).toEqual(["10.0.0.1 shop/web-a", "10.0.0.2 other/web-b"]);
});

test("nameOf returns namespace/name, or only the name of cluster-wide kinds", () => {
  const object = { metadata: { namespace: "shop", name: "web" } };
  expect(KINDS.map((kind) => nameOf(kind, object))).toEqual(["shop/web", "shop/web", "web", "web"]);
  expect(nameOf("Service", { metadata: { name: "web" } })).toBe("default/web");
  expect(nameOf("Service", { metadata: { name: "" } })).toBeUndefined();
});

test.each<[KubeKind, Fields]>([
  ["Service", { spec: { clusterIP: "10.96.0.1", ports: portsOf(20_000) } }],
  ["EndpointSlice", sliceOf({ ports: portsOf(20_000), endpoints: [{ addresses: ["10.244.1.1"] }] })],
  ["EndpointSlice", sliceOf({ ports: portsOf(1), endpoints: endpointsOf(20_000) })],
])("ObjectDecoder: a large %s is decoded in pieces with the same result as at once", (kind, object) => {
  const pieces = new ObjectDecoder({ nodeName: "n1" }).decodeInPieces(kind, "a/web", object);
  let count = 0;
  let decoded: unknown;
  for (let next = pieces.next(); ; next = pieces.next()) {
    if (next.done === true) {
      decoded = next.value;
      break;
    }
    count++;
  }
  expect(count).toBeGreaterThan(20);
  expect(decoded).toEqual(new ObjectDecoder({ nodeName: "n1" }).decode(kind, "a/web", object));
  expect(decoded).toMatchObject({ problems: undefined });
});

function portsOf(count: number): Fields[] {
  return Array.from({ length: count }, (_, i) => ({ name: `p${i}`, port: i + 1 }));
}

function endpointsOf(count: number): Fields[] {
  return Array.from({ length: count }, (_, i) => ({ addresses: [`10.244.${i >> 8}.${i & 255}`] }));
}

function sliceOf(fields: Fields): Fields {
  return { metadata: { labels: { "kubernetes.io/service-name": "web" } }, addressType: "IPv4", ...fields };
}

test("a Service with many addresses is decoded in pieces, each address once", () => {
  const COUNT = 20_000;
  const addresses = (first: number): string[] =>
    Array.from({ length: COUNT }, (_, i) => `${first}.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`);
  const object = {
    spec: {
      clusterIP: "10.96.0.1",
      externalIPs: [...addresses(11), ...addresses(12), "10.96.0.1"],
      ports: [{ port: 80 }],
    },
    status: { loadBalancer: { ingress: addresses(12).map((ip) => ({ ip })) } },
  };
  const work = new ObjectDecoder({ nodeName: "n" }).decodeInPieces("Service", "default/web", object);
  let pieces = 0;
  let result = work.next();
  for (; result.done !== true; pieces++) result = work.next();
  // 512 addresses each: all when they are read, and again when they are assigned to a family.
  expect(pieces).toBeGreaterThan((2 * 3 * COUNT) / 512 - 6);
  const decoded = result.value;
  if (decoded.kind !== "Service") throw new Error("not a Service");
  expect(decoded.record?.ip?.externalIPs).toEqual(addresses(11));
  expect(decoded.record?.ip?.loadBalancerIPs).toEqual(addresses(12));
  expect(decoded.refused).toEqual(new Set(["spec.externalIPs"]));
});
