/** A Service with many slices: the work grows with their number, and one port with many endpoints can pause. */
import { expect, it } from "vitest";

import { ObjectDecoder } from "../../../src/objects/decode/object-decoder.js";
import { ServiceModel } from "../../../src/model/service-model.js";
import type { KubeObject } from "../../../src/objects/object-sink.js";

const decoder = new ObjectDecoder({ nodeName: "this-node" });
const portOf = (i: number) => ({ name: `p${i}`, port: 1_000 + i, protocol: "TCP" });

function service(ports: number): KubeObject {
  const fields = {
    metadata: { namespace: "default", name: "web" },
    spec: { clusterIP: "10.96.0.1", ports: Array.from({ length: ports }, (_, i) => portOf(i)) },
  };
  return decoder.decode("Service", "default/web", fields);
}

function slice(i: number, port: number): KubeObject {
  const fields = {
    metadata: { namespace: "default", name: `web-${i}`, labels: { "kubernetes.io/service-name": "web" } },
    addressType: "IPv4",
    ports: [portOf(port)],
    endpoints: [{ addresses: [`10.244.${i >> 8}.${i & 255}`], conditions: { ready: true } }],
  };
  return decoder.decode("EndpointSlice", `default/web-${i}`, fields);
}

const newModel = (): ServiceModel =>
  new ServiceModel({ families: ["ip"], node: { nodeName: "this-node" }, onProblem: () => undefined });

/** Reads of one field of all slices until the slices are loaded, read, and removed again, each slice with its own port or all with one. */
function reads(field: "name" | "ports", slices: number, ports: 1 | "each"): number {
  let count = 0;
  const model = newModel();
  model.upsert(service(ports === 1 ? 1 : slices));
  for (let i = 0; i < slices; i++) {
    const object = slice(i, ports === 1 ? 0 : i);
    if (object.kind !== "EndpointSlice" || object.record === undefined) throw new Error("not a slice");
    const value = object.record[field];
    const record = Object.defineProperty({ ...object.record }, field, { get: () => (count++, value) });
    model.upsert({ ...object, record });
  }
  const views = model.views("ip", "default/web");
  expect(views.reduce((sum, { clusterEndpoints }) => sum + clusterEndpoints.length, 0)).toBe(slices);
  for (let i = 0; i < slices; i++) model.remove("EndpointSlice", `default/web-${i}`);
  expect(model.views("ip", "default/web")[0].clusterEndpoints.length).toBe(0);
  return count;
}

it.each([
  { what: "the names", field: "name", ports: 1 },
  { what: "the ports, if each has another port,", field: "ports", ports: "each" },
] as const)("reads $what of its slices at most n · log n times", ({ field, ports }) => {
  const [few, many] = [reads(field, 256, ports), reads(field, 2048, ports)];
  // n log n is 11 times as much.
  expect(many / few).toBeLessThan(12);
});

it("pauses between the slices of one port", () => {
  const model = newModel();
  model.upsert(service(1));
  for (let i = 0; i < 100; i++) model.upsert(slice(i, 0));
  const steps = [...model.eachView("ip", "default/web")];
  expect(steps.length).toBe(101);
  expect(steps.at(-1)?.clusterEndpoints.length).toBe(100);
});
