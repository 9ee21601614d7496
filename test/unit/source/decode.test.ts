/** What becomes of whole objects; their fields are tested where they matter, in the model's tests. */
import { expect, test } from "vitest";
import { nameOf, ObjectDecoder } from "../../../src/source/decode/decoder.js";

const KINDS = ["Service", "EndpointSlice", "Node", "ServiceCIDR"] as const;

test("ObjectDecoder: what is no object of its kind has no record, and problems", () => {
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

test("ObjectDecoder: another proxy's Service is not served, and no problem", () => {
  const labels = { "service.kubernetes.io/service-proxy-name": "other" };
  const object = { metadata: { name: "web", labels }, spec: { clusterIP: "10.0.0.1", ports: [{ port: 80 }] } };
  expect(new ObjectDecoder({ nodeName: "n1" }).decode("Service", "a/web", object)).toEqual({
    kind: "Service",
    name: "a/web",
    record: undefined,
    problems: undefined,
  });
});

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

test("nameOf: namespace/name, of cluster-wide kinds the name alone", () => {
  const object = { metadata: { namespace: "shop", name: "web" } };
  expect(KINDS.map((kind) => nameOf(kind, object))).toEqual(["shop/web", "shop/web", "web", "web"]);
  expect(nameOf("Service", { metadata: { name: "web" } })).toBe("default/web");
  expect(nameOf("Service", { metadata: { name: "" } })).toBeUndefined();
});
