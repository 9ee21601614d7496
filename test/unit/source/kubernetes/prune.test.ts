/** What is left of an object means the same as the whole of it. */
import { expect, test } from "vitest";
import { defaultConfig } from "../../../../src/config/index.js";
import { Findings } from "../../../../src/model/fields.js";
import { readService } from "../../../../src/model/service-record.js";
import { readSlice } from "../../../../src/model/slice-record.js";
import { nodeFacts } from "../../../../src/node/facts.js";
import {
  pruneEndpointSlice,
  pruneNode,
  pruneService,
  pruneServiceCIDR,
} from "../../../../src/source/kubernetes/prune.js";
import type { KubeObject } from "../../../../src/source/types.js";

const intern = (text: string) => text;

const METADATA = {
  namespace: "a",
  name: "web",
  uid: "1-2",
  resourceVersion: "7",
  generation: 3,
  creationTimestamp: "2026-01-02T03:04:05Z",
  managedFields: [{ manager: "x", fieldsV1: { "f:spec": {} } }],
  ownerReferences: [{ kind: "Service", name: "web", uid: "1" }],
  finalizers: ["service.kubernetes.io/load-balancer-cleanup"],
};

const SERVICE = {
  metadata: {
    ...METADATA,
    labels: { app: "web" },
    annotations: {
      "kubectl.kubernetes.io/last-applied-configuration": "{}",
      "nft-proxier.dev/reset-removed-endpoints": "true",
    },
  },
  spec: {
    type: "LoadBalancer",
    clusterIP: "10.96.0.1",
    clusterIPs: ["10.96.0.1", "fd00::1"],
    ipFamilies: ["IPv4", "IPv6"],
    ipFamilyPolicy: "PreferDualStack",
    ports: [{ name: "http", port: 80, protocol: "TCP", nodePort: 30080, targetPort: 8080, appProtocol: "http" }],
    externalIPs: ["192.0.2.1", "2001:db8::1"],
    loadBalancerSourceRanges: ["198.51.100.0/24", "2001:db8::/32"],
    sessionAffinity: "ClientIP",
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
    internalTrafficPolicy: "Local",
    externalTrafficPolicy: "Local",
    healthCheckNodePort: 30999,
    selector: { app: "web" },
  },
  status: { loadBalancer: { ingress: [{ ip: "203.0.113.1", ipMode: "VIP" }] }, conditions: [{ type: "x" }] },
};

const SLICE = {
  metadata: {
    ...METADATA,
    labels: { "kubernetes.io/service-name": "web", app: "web" },
    annotations: { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z", other: "x" },
  },
  addressType: "IPv4",
  endpoints: [
    {
      addresses: ["10.0.0.1"],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: "node-1",
      zone: "a",
      hints: { forZones: [{ name: "a" }], forNodes: [{ name: "node-1" }] },
      targetRef: { kind: "Pod", name: "web-1" },
    },
  ],
  ports: [{ name: "http", port: 8080, protocol: "TCP" }],
};

const NODE = {
  metadata: {
    ...METADATA,
    namespace: undefined,
    deletionTimestamp: "2026-01-02T03:04:05Z",
    labels: { "topology.kubernetes.io/zone": "a" },
    annotations: { "node.alpha.kubernetes.io/ttl": "0" },
  },
  spec: {
    podCIDR: "10.244.0.0/24",
    podCIDRs: ["10.244.0.0/24", "fd01::/64"],
    taints: [{ key: "t", effect: "NoSchedule" }],
  },
  status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }], images: [{ names: ["i"] }], nodeInfo: {} },
};

/** Without what JSON does not show. */
const plain = ({ object }: KubeObject): unknown => JSON.parse(JSON.stringify(object));

test("a Service", () => {
  const pruned = pruneService(SERVICE);
  const read = (object: unknown) => readService(object, { allowExternalIPs: true, intern }, new Findings());
  expect(read(pruned.object)).toEqual(read(SERVICE));
  expect(read(SERVICE).record).toBeDefined();
  expect(plain(pruned)).toEqual({
    metadata: {
      name: "web",
      namespace: "a",
      uid: "1-2",
      creationTimestamp: "2026-01-02T03:04:05.000Z",
      annotations: { "nft-proxier.dev/reset-removed-endpoints": "true" },
    },
    spec: { ...SERVICE.spec, ipFamilyPolicy: undefined, selector: undefined },
    status: { loadBalancer: SERVICE.status.loadBalancer },
  });
});

test("another proxy's Service still is another proxy's", () => {
  const labels = { "service.kubernetes.io/service-proxy-name": "other" };
  const { object } = pruneService({ ...SERVICE, metadata: { ...SERVICE.metadata, labels } });
  expect(readService(object, { allowExternalIPs: true, intern }, new Findings()).record).toBeUndefined();
});

test("an EndpointSlice", () => {
  const pruned = pruneEndpointSlice(SLICE);
  const read = (object: unknown) => readSlice(object, { intern, nodeName: "n1" }, new Findings());
  expect(read(pruned.object)).toEqual(read(SLICE));
  expect(read(SLICE).record).toBeDefined();
  expect(pruned.object.metadata?.annotations).toEqual({
    "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z",
  });
});

test("the Node", () => {
  const pruned = pruneNode(NODE);
  if (pruned.kind !== "Node") expect.unreachable();
  const { object } = pruned;
  expect(nodeFacts(defaultConfig(), "web", object)).toEqual(nodeFacts(defaultConfig(), "web", NODE as never));
  expect(object.metadata?.deletionTimestamp).toEqual(new Date("2026-01-02T03:04:05Z"));
  expect(object.spec?.taints).toEqual(NODE.spec.taints);
  expect(JSON.stringify(object)).not.toMatch(/images|nodeInfo|managedFields|ttl/);
});

test("a ServiceCIDR", () => {
  const object = { metadata: METADATA, spec: { cidrs: ["10.96.0.0/12"] }, status: { conditions: [] } };
  expect(plain(pruneServiceCIDR(object))).toMatchObject({
    metadata: { name: "web" },
    spec: { cidrs: ["10.96.0.0/12"] },
  });
});

test("what is no object at all goes through, for the model to name", () => {
  for (const prune of [pruneService, pruneEndpointSlice, pruneNode, pruneServiceCIDR]) {
    expect(() => prune({ metadata: 7, spec: "x", status: null })).not.toThrow();
    expect(() => prune({})).not.toThrow();
  }
});
