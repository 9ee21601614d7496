/** Objects that are missing from a reading of manifests, and objects that are only ignored. */
import { expect, test } from "vitest";
import { countIgnored, shortfallOf } from "../../../src/daemon/complete-reading.js";
import { ServiceModel } from "../../../src/model/service-model.js";
import { ObjectDecoder } from "../../../src/objects/decode/object-decoder.js";

const source = { gaps: () => ({ files: [], empty: false }), problems: () => [] };
const decoder = new ObjectDecoder({ nodeName: "n1" });
const newModel = (): ServiceModel =>
  new ServiceModel({ families: ["ip", "ip6"], node: { nodeName: "n1" }, onProblem: () => undefined });

function service(model: ServiceModel, spec: object, ingress: readonly object[] = [], annotations = {}): void {
  const object = {
    metadata: { name: "web", annotations },
    spec: { clusterIP: "10.96.0.1", ports: [{ port: 80 }], ...spec },
    status: { loadBalancer: { ingress } },
  };
  model.upsert(decoder.decode("Service", "default/web", object));
}

function slice(model: ServiceModel, addresses: readonly string[]): void {
  const object = {
    metadata: { name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [{ port: 80 }],
    endpoints: addresses.map((address) => ({ addresses: [address] })),
  };
  model.upsert(decoder.decode("EndpointSlice", "default/web-1", object));
}

test("impossible addresses are ignored without being incomplete, however many there are", () => {
  const model = newModel();
  service(model, { externalIPs: ["169.254.1.1"] }, [{ ip: "127.0.0.1" }]);
  slice(model, ["127.0.0.1", "10.1.0.7"]);
  const reading = { source, model };
  expect(shortfallOf(reading, false)).toBeUndefined();
  expect(countIgnored(reading)).toBe(3);

  slice(
    model,
    Array.from({ length: 150 }, (_, i) => `127.0.0.${i + 1}`),
  );
  expect(shortfallOf(reading, false)).toBeUndefined();
  slice(model, ["127.0.0.1", ...Array.from({ length: 150 }, (_, i) => (i === 120 ? "nonsense" : `127.0.0.${i + 1}`))]);
  expect(shortfallOf(reading, false)).toEqual({ objects: ["EndpointSlice default/web-1: …"] });
  service(model, { externalIPs: ["169.254.1.300"] });
  slice(model, ["10.1.0.7"]);
  expect(shortfallOf(reading, false)).toEqual({ objects: ["Service default/web: spec.externalIPs[0]"] });
});

test("objects that are skipped by design are ignored without being incomplete", () => {
  const model = newModel();
  const annotations = {
    "nft-proxier.dev/balnce": "consistent",
    "nft-proxier.dev/balance": "consistent",
    "nft-proxier.dev/weights": "10.1.0.7:2",
    "nft-proxier.dev/drain-seconds": "5",
    "nft-proxier.dev/reset-removed-endpoints": "false",
  };
  const spec = { externalIPs: ["10.96.0.1"], sessionAffinity: "ClientIP" };
  service(model, spec, [{ ip: "10.96.0.1" }], annotations);
  expect(shortfallOf({ source, model }, false)).toBeUndefined();
  expect(countIgnored({ source, model })).toBe(6);
  service(model, spec, [], { "nft-proxier.dev/balance": "sometimes" });
  expect(shortfallOf({ source, model }, false)).toEqual({
    objects: ['Service default/web: metadata.annotations["nft-proxier.dev/balance"]'],
  });
});
